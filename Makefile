# Every target creates what it needs itself; the virtual environment is rebuilt when a lock file changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8080

.PHONY: promtool help install serve test test-fast chromium test-browser test-js test-extra test-ray fuzz lint format types chaos bench readme models lock clean mutants

help:
	@echo "make serve    serve all-MiniLM-L6-v2, fetched once (84 MB), at http://127.0.0.1:$(PORT) (ARGS=... are passed on)"
	@echo "make test     run the tests (ARGS=... are passed to pytest)"
	@echo "make test-fast  unit and property tests without torch: what needs it, and real processes, is left to make test"
	@echo "make test-browser  run the tests of the page in Chromium, which is installed if it is missing"
	@echo "make test-js  run the JavaScript clients; node and npm are installed if they are missing"
	@echo "make test-extra  what takes longer or needs more: other clients, the public references, Ray, five minutes of chaos"
	@echo "make mutants  do the tests notice broken promises? (ARGS=\"--jobs 2 upload\")"
	@echo "make fuzz     the parsers of hostile bytes under atheris (ARGS=\"--seconds 300 json\")"
	@echo "make lint     ruff and mypy; neither torch nor the tests are installed for it"
	@echo "make chaos    minutes of random load and faults, then an audit; ten thousand seeds of the simulation"
	@echo "make bench    measure beside a bare aiohttp + ZeroMQ split, mosec, LitServe and transformers serve (25 minutes)"
	@echo "make readme   ask what README asks, and write the answers and figures into it"
	@echo "make models   measure the small models, and write the table of docs/models.md"
	@echo "make install  only create $(VENV) with what serving needs"

install: $(VENV)/base.stamp

$(VENV)/base.stamp: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the packages of requirements.lock into $(VENV), once; this takes a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

# torch is its own first step and exactly this release; see requirements-torch.lock. All is compiled at the end, on all
# cores, which takes a third of the time; but for transformers' many models, of which few are imported. Some files are
# for other versions of Python.
$(VENV)/test.stamp: PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
$(VENV)/test.stamp: $(VENV)/base.stamp requirements-test.lock requirements-torch.lock
	$(PIP) --require-hashes -r requirements-test.lock
	$(PIP) torch==2.13.0
	$(PIP) -r requirements-torch.lock
	$(PIP) --no-deps decider-ai==1.8.1 laya==0.3.20 clef-finetune==0.1.0
	$(BIN)/python -m compileall -q -j 0 -x /transformers/models/ $(VENV)/lib > /dev/null || true
	touch $@

# ruff, mypy and what the product imports; no torch, which mypy does not follow anyway.
$(VENV)/lint.stamp: $(VENV)/base.stamp requirements-lint.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-lint.lock
	touch $@

# The model is kept in the user's cache, verified each time. Where it cannot be downloaded, serve says so and starts the
# tiny one.
serve: $(VENV)/base.stamp
	-$(BIN)/framehost fetch minilm > /dev/null
	$(BIN)/framehost serve --port $(PORT) $(ARGS)

# One thread of torch's to a worker: more of them than cores wait for each other.
test: export OMP_NUM_THREADS = 1
test: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --ignore tests/browser $(ARGS)

# Under 90 s on two quiet cores. Torch cannot be imported there, so that no test of it can slip in;
# a test that is marked slow is left to `make test`, too.
test-fast: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses 2 --without-torch -m "not slow" tests/unit tests/property $(ARGS)

# Tests the rules of docs/alerts.yml; a package of the system.
promtool:
	command -v promtool > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq --yes --no-install-recommends prometheus > /dev/null; }

chromium:
	command -v chromium > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core > /dev/null; }

# ARGS=--screenshots writes those of the documentation anew.
test-browser: $(VENV)/test.stamp chromium
	$(BIN)/python -m pytest tests/browser $(ARGS)

# The exact versions of the lock file.
tests/js/node_modules: tests/js/package-lock.json
	command -v npm > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq --yes --no-install-recommends nodejs npm > /dev/null; }
	cd tests/js && npm ci --silent --no-audit --no-fund
	touch $@

# Node's own test runner.
test-js: $(VENV)/test.stamp tests/js/node_modules
	$(BIN)/python -m tests.js.run

# ARGS=openrouter runs only that client, and no comparison of the families with their references. What both said last is
# in docs/conformance.md.
test-extra: $(VENV)/test.stamp test-ray
	$(BIN)/python -m tests.clients.extra.run $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m tests.fidelity)
	$(BIN)/python -m tests.chaos --seconds 300

# A host that Ray places, on a Ray of its own with one machine.
test-ray: $(VENV)/test.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/ray ray==2.60.0
	PYTHONPATH=$(VENV)/ray $(BIN)/python -m pytest tests/faults/test_ray_hosts.py

# A minute for each target; ARGS="--seconds 600 wire" is ten for one of them.
fuzz: $(VENV)/test.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/atheris atheris==3.0.0
	PYTHONPATH=$(VENV)/atheris $(BIN)/python -m tests.fuzz $(ARGS)

# Breaks each promise of tests/mutants in a copy of the tree, and counts the tests that notice.
mutants: $(VENV)/test.stamp
	$(BIN)/python -m tests.mutants $(ARGS)

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/lint.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Random load and faults, then an audit; ARGS="--seconds 600 --seed 7".
chaos: $(VENV)/test.stamp
	$(BIN)/python -m tests.chaos $(ARGS)
	$(BIN)/python -m tests.simulation

bench: $(VENV)/test.stamp $(VENV)/peers/mosec
	command -v wrk > /dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
		apt-get install -qq --yes --no-install-recommends wrk > /dev/null; }
	$(BIN)/python -m benchmarks.bench $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.throughput --write && $(BIN)/python -m benchmarks.growth)

# The servers that framehost is measured beside, away from what it is tested with.
$(VENV)/peers/mosec: $(VENV)/test.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/peers mosec==0.9.8 litserve==0.2.19
	touch $@

readme: $(VENV)/base.stamp
	$(BIN)/framehost fetch minilm > /dev/null
	$(BIN)/python -m benchmarks.readme

models: $(VENV)/base.stamp
	$(BIN)/framehost fetch minilm > /dev/null
	$(BIN)/python -m benchmarks.models

# Resolve the dependencies anew; review the diff before committing it.
lock:
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet pip-tools
	$(VENV)/lock/bin/pip-compile --quiet --no-emit-index-url --no-emit-find-links --strip-extras --generate-hashes \
		--output-file requirements.lock pyproject.toml
	$(VENV)/lock/bin/pip-compile --quiet --no-emit-index-url --no-emit-find-links --strip-extras --generate-hashes \
		--extra lint --extra test --output-file requirements-test.lock pyproject.toml
	$(VENV)/lock/bin/pip-compile --quiet --no-emit-index-url --no-emit-find-links --strip-extras --generate-hashes \
		--extra lint --output-file requirements-lint.lock pyproject.toml

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
