"""The configuration: every kind of mistake is found before anything starts, and its place is named."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

import supervisor
from executor_host.supervision import listeners
from frontend.cli import serve
from frontend.configuration import fetched
from frontend.configuration import load as config
from frontend.configuration.endpoints import Endpoint, check_host
from frontend.configuration.successor import successor
from frontend.configuration.toml_file import ConfigurationError
from frontend.limits import ServerLimits
from protocol import families
from protocol.contracts import sparrow
from protocol.exits import ServeExit
from protocol.transport import keys


def write(path: Path, text: str) -> Path:
    file = path / "framehost.toml"
    file.write_text(text)
    return file


GOOD = """\
[server]
host = "::1"
port = 0
default = "second"
request_timeout = 10
max_body = 1000
drain = 2.5
restarts = 0
turn = 0
front_limit = 0
health = "[::]:0"

[models.first]
family = "sparrow"

[models.second]
family = "sparrow"
max_requests = 3
max_cost = 400
execution_limit = 1.5
load_limit = 1800
resident = false
keep_alive = 300
replicas = 2
"""


def test_native_listeners_are_read_and_may_not_meet(tmp_path: Path) -> None:
    """Addresses of both kinds, any number of free ports; one port for two of them is refused where it is repeated."""
    two = NATIVE + 'listen = "{}"\n' + NATIVE.replace(".m", ".n") + 'listen = "{}"\n'
    found = config.load(write(tmp_path, two.format("[::1]:8001", "localhost:8002")))
    assert [str(endpoint) for endpoint in found.endpoints] == ["127.0.0.1:8080", "[::1]:8001", "127.0.0.1:8002"]
    assert all(endpoint.loopback for endpoint in found.endpoints)
    config.load(write(tmp_path, two.format("127.0.0.1:0", "127.0.0.1:0")))
    with pytest.raises(
        ConfigurationError, match=r"line 10, key models\.n\.native\.listen: port 8001 is the native port"
    ):
        config.load(write(tmp_path, two.format("127.0.0.1:8001", "[::1]:8001")))


def test_a_native_listener_for_other_machines_needs_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the main port: refused before anything is bound."""
    file = write(tmp_path, NATIVE + 'listen = "0.0.0.0:0"\n')
    assert supervisor.main(["serve", "--config", str(file)]) == ServeExit.CONFIGURATION
    assert "refusing to listen on 0.0.0.0" in capsys.readouterr().err


def test_an_execution_limit_ends_no_unit_that_somebody_waits_for(tmp_path: Path) -> None:
    """0 is no limit; without one it is the family's, and at least twice the longest wait of a client."""
    text = '[server]\nrequest_timeout = 500\n[models.m]\nfamily = "{}"\n{}'
    for family, line, limit in (
        ("sparrow", "", 1000.0),
        ("decider", "", 1000.0),
        ("sparrow", "execution_limit = 7\n", 7),
        ("sparrow", "execution_limit = 0\n", None),
    ):
        path = f'path = "{tmp_path}"\n' if family == "decider" else ""
        (model,) = config.load(write(tmp_path, text.format(family, path + line))).models
        assert model.execution_limit_s == limit


def test_a_good_file_says_what_it_says(tmp_path: Path) -> None:
    """Every key arrives where it is used; what is not given has its documented default."""
    found = config.load(write(tmp_path, GOOD))
    assert (found.host, found.port, found.default) == ("::1", 0, "second")
    assert (found.limits.request_timeout_s, found.limits.max_body_bytes) == (10.0, 1000)
    assert (found.drain_s, found.restarts) == (2.5, 0)
    assert found.turn_s is None
    assert (found.front_limit_s, str(found.health)) == (None, "[::]:0")
    assert len(found.endpoints) == 1, "the health address has no lock, and needs no keys"
    first, second = found.models
    assert (first.max_requests, first.max_cost, first.path) == (1024, None, None)
    assert (second.max_requests, second.max_cost) == (3, 400)
    assert (first.execution_limit_s, first.load_limit_s) == (60.0, None)
    assert (second.execution_limit_s, second.load_limit_s) == (1.5, 1800)
    plain = config.load(write(tmp_path, '[models.m]\nfamily = "sparrow"\n'))
    assert (plain.host, plain.port, plain.default, plain.restarts) == ("127.0.0.1", 8080, "m", 5)
    assert (plain.front_limit_s, plain.turn_s, plain.health) == (60.0, 10.0, None)
    assert (plain.max_resident, plain.max_resident_bytes, plain.admin) == (None, None, None)
    assert (second.resident, second.pin, second.keep_alive_s, second.replicas) == (False, False, 300, 2)
    assert (first.resident, first.pin, first.keep_alive_s, first.replicas) == (True, False, None, 1)


def test_allowed_hosts_are_names_in_any_case(tmp_path: Path) -> None:
    """As in DNS; none unless there are some."""
    text = '[server]\nallowed_hosts = ["Judge.example", "framehost_1", ".Example"]\n[models.m]\nfamily = "sparrow"\n'
    assert config.load(write(tmp_path, text)).allowed_hosts == ("judge.example", "framehost_1", ".example")
    assert config.load(write(tmp_path, '[models.m]\nfamily = "sparrow"\n')).allowed_hosts == ()


def test_the_limits_of_the_main_port(tmp_path: Path) -> None:
    """Each key of the table arrives; what is not given has its default; room for uploads is room for one at least."""
    keys = ("uploads", "upload_bytes", *(field.name for field in dataclasses.fields(ServerLimits)[4:]))
    table = "".join(f"{key} = {5 + number}\n" for number, key in enumerate(keys))
    model = '[models.m]\nfamily = "sparrow"\n'
    found = config.load(write(tmp_path, f"[server]\nmax_body = 6\n[server.limits]\n{table}{model}"))
    assert dataclasses.astuple(found.limits) == (6, 30.0, 5, 6, 7, 8, 9, 10, 11, 12)
    assert config.load(write(tmp_path, model)).limits == ServerLimits()
    large = config.load(write(tmp_path, f"[server]\nmax_body = {2**30}\n{model}"))
    assert large.limits.ingress_bytes == 2**30


def test_a_model_of_remote_hosts_needs_no_checkpoint_here(tmp_path: Path) -> None:
    """Its path is one of the machine where the host runs."""
    text = '[models.m]\nfamily = "decider"\npath = "/on/another/machine"\nremote = true\n'
    found = config.load(write(tmp_path, text + HOSTS))
    assert found.models[0].remote
    assert found.hosts is not None
    assert (str(found.hosts.listen), found.hosts.lease_s) == ("127.0.0.1:0", 10.0)
    config.load(write(tmp_path, text.replace('path = "/on/another/machine"\n', "") + HOSTS))


WITHOUT_WEIGHTS = ["clef", "cua-s1", "decider", "embedding", "kev", "laya", "nimble", "open-jev", "transformers"]


@pytest.mark.parametrize("family", WITHOUT_WEIGHTS)
def test_a_family_without_weights_of_its_own_needs_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    """Said by `check`, and by a swap, and not only by the host that finds none."""
    file = write(tmp_path, f'[models.a]\nfamily = "sparrow"\n\n[models.m]\nfamily = "{family}"\n')
    assert supervisor.main(["check", "--config", str(file)]) == ServeExit.CONFIGURATION
    said = f"line 4, key models.m.path: the path is missing: the {family} family needs the folder of a "
    assert said in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="the path is missing"):
        successor(config.from_models(["sparrow=sparrow"]).models[0], {"family": family}, 30.0)


def test_every_family_without_weights_of_its_own_says_what_it_needs() -> None:
    """The list above is all of them."""
    assert sorted(name for name, family in families.BUILT_IN.items() if family.needs_path) == WITHOUT_WEIGHTS
    assert not any(bool(family.bundled) == bool(family.needs_path) for family in families.BUILT_IN.values())


def test_a_missing_configuration_file_is_told_in_words(tmp_path: Path) -> None:
    """Without the number that the system has for it."""
    with pytest.raises(ConfigurationError) as caught:
        config.load(tmp_path / "missing.toml")
    assert str(caught.value) == f"{tmp_path / 'missing.toml'}: cannot be read: No such file or directory"


NATIVE = '[models.m]\nfamily = "decider"\npath = "/"\n[models.m.native]\n'

HOSTS = '[hosts]\nlisten = "127.0.0.1:0"\nkey = "k"\nallow = "a"\n'

MISTAKES = [
    ("[sever]\nport = 1\n", 1, "sever", "unknown key; known here: hosts, models, server"),
    ('[models.m]\nfamily = "sparrow"\nremote = true\n', 3, "models.m.remote", "there is a table [hosts]"),
    ('[models.m]\nfamily = "sparrow"\n[hosts]\nkey = "k"\nallow = "a"\n', 3, "hosts", "the key listen is missing"),
    ('[models.m]\nfamily = "sparrow"\n' + HOSTS + "lease = 0.5\n", 7, "hosts.lease", "seconds, 1 to 600"),
    ('[models.m]\nfamily = "sparrow"\n' + HOSTS + 'listen2 = ""\n', 7, "hosts.listen2", "unknown key"),
    ("[server]\nprot = 1\n", 2, "server.prot", "unknown key"),
    ('[server]\nport = "80"\n', 2, "server.port", "'80' is not a port number 0..65535; an integer is needed"),
    ("[server]\n\nport = 65536\n", 3, "server.port", "65536 is not a port number"),
    ("[server]\nport = -1\n", 2, "server.port", "not a port number"),
    ("[server]\nport = true\n", 2, "server.port", "True is not a port number"),
    ('[server]\nhost = "example.org"\n', 2, "server.host", "not an IP address"),
    ("[server]\nrequest_timeout = 0\n", 2, "server.request_timeout", "not seconds above 0"),
    ("[server]\nrequest_timeout = nan\n", 2, "server.request_timeout", "not seconds above 0"),
    ("[server]\nrequest_timeout = inf\n", 2, "server.request_timeout", "not seconds above 0"),
    ("[server]\ndrain = inf\n", 2, "server.drain", "not seconds above 0"),
    ('[server]\ndrain = "1"\n', 2, "server.drain", "; a number is needed"),
    ('[server]\nallowed_hosts = "a.example"\n', 2, "server.allowed_hosts", "is not a list of host names"),
    ('[server]\nallowed_hosts = ["a.example:80"]\n', 2, "server.allowed_hosts", "'a.example:80' is not a host name"),
    ('[server]\nallowed_hosts = ["*"]\n', 2, "server.allowed_hosts", "'*' is not a host name without a port"),
    ('[server]\nallowed_hosts = ["."]\n', 2, "server.allowed_hosts", "'.' is not a host name without a port"),
    ('[server]\nallowed_hosts = ["..a"]\n', 2, "server.allowed_hosts", "'..a' is not a host name without a port"),
    ("[server]\naccess_log = 1\n", 2, "server.access_log", "1 is not true or false"),
    ("[server]\nmax_body = 0\n", 2, "server.max_body", "not bytes above 0"),
    ("[server]\nmax_body = 1.5\n", 2, "server.max_body", "not bytes above 0"),
    ("[server]\ndrain = -1\n", 2, "server.drain", "not seconds above 0"),
    ("[server]\nrestarts = -1\n", 2, "server.restarts", "0 or more"),
    ("[server]\nrequest_timeout = 86401\n", 2, "server.request_timeout", "at most 86400"),
    ("[server]\ndrain = 86400.5\n", 2, "server.drain", "at most 86400"),
    (f"[server]\nmax_body = {2**40 + 1}\n", 2, "server.max_body", "at most 1099511627776"),
    ("[server]\n[server.limits]\nquestion = 3\n", 3, "server.limits.question", "unknown key; known here: depth, level"),
    ("[server]\n[server.limits]\n\noptions = 0\n", 4, "server.limits.options", "0 is not options of a choice, 1 to"),
    ("[server]\n[server.limits]\nlevels = 1.5\n", 3, "server.limits.levels", "1 to 1000; an integer is needed"),
    ("[server]\nlimits.depth = 3\n", 2, "server.limits.depth", "4 to 200"),
    ("[server]\nlimits.depth = 201\n", 2, "server.limits.depth", "4 to 200"),
    (
        '[server]\nmax_body = 9\n[server.limits]\nupload_bytes = 8\n[models.m]\nfamily = "sparrow"\n',
        4,
        "server.limits.upload_bytes",
        "8 is less than one body may have",
    ),
    ("[server]\nrestarts = 1001\n", 2, "server.restarts", "at most 1000"),
    (f'[models.m]\nfamily = "sparrow"\nmax_requests = {2**64}\n', 3, "models.m.max_requests", "limit of 1099511627776"),
    (f'[models.m]\nfamily = "sparrow"\nmax_cost = {2**64}\n', 3, "models.m.max_cost", "limit of 1099511627776"),
    ('# nothing\n[server]\nport = 1\n', 1, "models", "there is no model"),
    ('[server]\ndefault = "n"\n[models.m]\nfamily = "sparrow"\n', 2, "server.default", "there is no model 'n'"),
    ("[models.m]\npath = \"x\"\n", 1, "models.m", "the family is missing"),
    ('[models.m]\n\nfamily = "parrot"\n', 3, "models.m.family", "there is no model family 'parrot'; known families"),
    ('[models."models/m"]\nfamily = "sparrow"\n', 1, "models.models/m", "clients put 'models/' before any name"),
    ('[models.jev-latest]\nfamily = "sparrow"\n', 1, "models.jev-latest", "always means the default model"),
    ('[models.m]\nfamily = "sparrow"\npath = "no/such"\n', 3, "models.m.path", "No such file or directory; names"),
    ('[models.m]\nfamily = "decider"\npath = "nano-robot"\n', 3, "models.m.path", "No such file or directory"),
    ('[models.m]\n\nfamily = "embedding"\n', 1, "models.m.path", "needs the folder of a sentence encoder"),
    ('[server]\nkeys = "\\u0000"\n', 2, "server.keys", "holds a NUL, which no name and no path can have"),
    ('[server]\nkeys = "/no/such"\n', 2, "server.keys", "/no/such: cannot be read: No such file or directory"),
    ('[models.m]\nfamily = "sparrow"\npath = "\\u0000"\n', 3, "models.m.path", "holds a NUL, which no name"),
    ("[models.m]\nfamily = 7\n", 2, "models.m.family", "7 is not the name of a family"),
    ('[models.m]\nfamily = "sparrow"\nmax_requests = 0\n', 3, "models.m.max_requests", "admits nothing"),
    ('[models.m]\nfamily = "sparrow"\nmax_cost = -5\n', 3, "models.m.max_cost", "admits nothing"),
    ('[server]\nturn = -1\n[models.m]\nfamily = "sparrow"\n', 2, "server.turn", "0 (never)"),
    (
        '[models.m]\nfamily = "sparrow"\nremote = true\nspare = true\n',
        4,
        "models.m.spare",
        "give more replicas",
    ),
    ('[server]\nfront_limit = -1\n[models.m]\nfamily = "sparrow"\n', 2, "server.front_limit", "0 (no limit)"),
    ('[server]\nhealth = "x:1"\n[models.m]\nfamily = "sparrow"\n', 2, "server.health", "not an IP address"),
    (
        '[server]\nport = 90\nadmin = "127.0.0.1:90"\n[models.m]\nfamily = "sparrow"\n',
        3,
        "server.admin",
        "port 90 is the main port already",
    ),
    ('[server]\nmax_resident = 0\n[models.m]\nfamily = "sparrow"\n', 2, "server.max_resident", "1 or more"),
    ('[server]\nmax_resident_bytes = -1\n[models.m]\nfamily = "sparrow"\n', 2, "server.max_resident_bytes", "above 0"),
    (
        '[server]\nmax_resident = 1\n[models.a]\nfamily = "sparrow"\n[models.b]\nfamily = "sparrow"\n',
        2,
        "server.max_resident",
        "2 models are resident from the start and 1 may be: give resident = false to all but 1 of a, b",
    ),
    (
        '[server]\nmax_resident=1\n[models.a]\nfamily="sparrow"\npin=true\n[models.b]\nfamily="sparrow"\nresident=false',
        2,
        "server.max_resident",
        "the pinned a take all the room",
    ),
    ('[models.m]\nfamily = "sparrow"\nresident = 0\n', 3, "models.m.resident", "0 is not true or false"),
    ('[models.m]\nfamily = "sparrow"\nkeep_alive = -1\n', 3, "models.m.keep_alive", "0 (for ever)"),
    ('[models.m]\nfamily = "sparrow"\nreplicas = 0\n', 3, "models.m.replicas", "1 or more"),
    (
        '[models.m]\nfamily = "sparrow"\nresident = false\npin = true\n',
        4,
        "models.m.pin",
        "what is pinned is resident",
    ),
    ('[server]\nhealth = "127.0.0.1"\n[models.m]\nfamily = "sparrow"\n', 2, "server.health", "is not ADDRESS:PORT"),
    (
        '[server]\nport = 90\nhealth = "0.0.0.0:90"\n[models.m]\nfamily = "sparrow"\n',
        3,
        "server.health",
        "port 90 is the main port already",
    ),
    ('[models.m]\nfamily = "sparrow"\npath = ""\n', 3, "models.m.path", "the path is empty"),
    ('[models.m]\nfamily = "sparrow"\nexecution_limit = -1\n', 3, "models.m.execution_limit", "0 (no limit)"),
    ('[models.m]\nfamily = "sparrow"\nload_limit = 86401\n', 3, "models.m.load_limit", "to 86400"),
    ('[models.m]\nfamily = "sparrow"\nexecution_limit = nan\n', 3, "models.m.execution_limit", "nan is not seconds"),
    ('[models.m]\nfamily = "sparrow"\nload_limit = true\n', 3, "models.m.load_limit", "a number is needed"),
    ('[models.m]\nfamily = "sparrow"\nmax_requests = true\n', 3, "models.m.max_requests", "True is not"),
    ('[models.m]\nfamily = "sparrow"\ndevice = "gpu"\n', 3, "models.m.device", "unknown key"),
    ('[models]\nm = 3\n', 2, "models.m", "a table is expected"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.options]\nwhat = 1\n', 4, "models.m.options.what", "no option 'what'"),
    ('[models."a b"]\nfamily = "parrot"\n', 2, "models.a b.family", "no model family"),
    ('[models.m]\nfamily = "sparrow"\noptions = 1\n', 3, "models.m.options", "1 is not a table"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.native]\nlisten = "127.0.0.1:1"\n', 3, "models.m.native", "no native"),
    ('[models.m]\nfamily = "decider"\nnative = 1\n', 3, "models.m.native", "1 is not a table"),
    (
        f'[models.m]\nfamily = "decider"\n[models.m.options]\nbatch_rows = {2**70}\n',
        4,
        "models.m.options.batch_rows",
        "1 to 4",
    ),
    ('[models.m]\nfamily = "sparrow"\nreplicas = 65\n', 3, "models.m.replicas", "at most 64"),
    ('[models.m]\nfamily = "sparrow"\nkeep_alive = "1"\n', 3, "models.m.keep_alive", "a number is needed"),
    ('[models.m]\nfamily = "sparrow"\nray = 1\n', 3, "models.m.ray", "1 is not a table"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.ray]\ncpus = 1\n', 4, "models.m.ray.cpus", "unknown key"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.ray]\naddress = 1\n', 4, "models.m.ray.address", "Ray cluster"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.ray]\nmemory = 1.5\n', 4, "models.m.ray.memory", "1.5 is not bytes"),
    ('[models.m]\nfamily = "sparrow"\nray.num_gpus = true\n', 3, "models.m.ray.num_gpus", "a number of GPUs"),
    ('[models.m]\nfamily = "sparrow"\nray.resources = 1\n', 3, "models.m.ray.resources", "own resources"),
    ('[models.m]\nfamily = "sparrow"\nremote = false\n[models.m.ray]\n', 3, "models.m.remote", "Ray places is remote"),
    ('[models.m]\nfamily = "sparrow"\n[models.m.ray]\n', 3, "models.m.ray", "there is a table [hosts]"),
    ('[models.m]\nfamily = "sparrow"\n[hosts]\nlisten = "127.0.0.1:0"\n', 3, "hosts", "the key key is missing"),
    (
        '[models.m]\nfamily = "sparrow"\nremote = true\n' + HOSTS.removesuffix('allow = "a"\n'),
        4,
        "hosts",
        "the key allow is missing",
    ),
    ('[models.m]\nfamily = "sparrow"\n[hosts]\nlisten = "x"\nkey = "k"\n', 4, "hosts.listen", "is not ADDRESS:PORT"),
    ('[models.m]\nfamily = "sparrow"\n[hosts]\nlisten = 1\nkey = "k"\n', 4, "hosts.listen", "1 is not ADDRESS:PORT"),
    ('[server]\ncors = "https://a.example"\n', 2, "server.cors", "is not a list of origins"),
    ('[server]\ncors = ["https://a.example/"]\n', 2, "server.cors", "is not an origin, as https://app.example or"),
    ('[server]\ncors = [1]\n', 2, "server.cors", "1 is not an origin"),
    ('server = 1\n', 1, "server", "1 is not a table"),
    ('models = 1\n', 1, "models", "1 is not a table"),
    (NATIVE, 4, "models.m.native", "listen is missing"),
    (NATIVE + "listen = 8001\n", 5, "models.m.native.listen", "8001 is not ADDRESS:PORT"),
    (NATIVE + "port = 8001\n", 5, "models.m.native.port", "unknown key; known here: listen"),
    *((f'{NATIVE}listen = "{text}"\n', 5, "models.m.native.listen", said) for text, said in {
        "8001": "not ADDRESS:PORT",
        "127.0.0.1": "not ADDRESS:PORT",
        ":8001": "not ADDRESS:PORT",
        "::1:8001": "not ADDRESS:PORT",
        "[127.0.0.1]8001": "not ADDRESS:PORT",
        "127.0.0.1:x": "not ADDRESS:PORT",
        "127.0.0.1:": "not ADDRESS:PORT",
        "127.0.0.1:-1": "not ADDRESS:PORT",
        "127.0.0.1:65536": "a port is 0..65535",
        "127.0.0.1:8080": "port 8080 is the main port already",
        "example.com:8001": "not an IP address",
    }.items()),
]  # fmt: skip


FROZEN = (Path(__file__).parent / "configuration_messages.txt").read_text().splitlines()
"""What is said of each of these, whole: a change of a message is a change of that file."""


def test_every_message_is_frozen() -> None:
    """One line per mistake."""
    assert len(FROZEN) == len(MISTAKES)


@pytest.mark.parametrize(("text", "line", "key", "message"), MISTAKES, ids=[entry[2] for entry in MISTAKES])
def test_every_mistake_names_file_line_and_key(tmp_path: Path, text: str, line: int, key: str, message: str) -> None:
    """A person finds the place without searching."""
    file = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        config.load(file)
    said = str(caught.value)
    assert said.startswith(f"{file}, line {line}, key {key}: ")
    assert message in said
    frozen = FROZEN[MISTAKES.index((text, line, key, message))]
    # What is known is listed: the list grows with every key and every family.
    begin, cut, _ = frozen.partition("...")
    assert said.removeprefix(f"{file}, ").startswith(begin) if cut else said == f"{file}, {frozen}"


def test_the_file_of_the_audit_log_can_be_there(tmp_path: Path) -> None:
    """Its folder is there and it is no folder itself; a relative path is made absolute, as the front is told it."""
    model = '[models.m]\nfamily = "sparrow"\n'
    assert config.load(write(tmp_path, model)).audit is None
    found = config.load(write(tmp_path, f'[server]\naudit = "audit.jsonl"\n{model}'))
    assert found.audit == Path("audit.jsonl").absolute()
    with pytest.raises(ConfigurationError, match=r"key server.audit: '.*/absent' is no folder"):
        config.load(write(tmp_path, f'[server]\naudit = "{tmp_path}/absent/a.jsonl"\n{model}'))
    with pytest.raises(ConfigurationError, match=r"key server.audit: .* is no regular file"):
        config.load(write(tmp_path, f'[server]\naudit = "{tmp_path}"\n{model}'))


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.inside", "json.no_such_module"])
def test_tracing_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Said where it was asked for, not by a front that cannot start."""
    file = tmp_path / "c.toml"
    file.write_text('[server]\ntracing = true\n[models.m]\nfamily = "sparrow"\n')
    assert config.load(file).tracing
    monkeypatch.setattr(config, "TRACING_MODULE", module)
    with pytest.raises(ConfigurationError, match=r"line 2, key server.tracing: needs .* extra otel"):
        config.load(file)


@pytest.mark.parametrize("name", ["org/", "/name", "a//b", "a/../b", ".", "a/."])
def test_a_name_that_an_address_would_lose_is_refused(tmp_path: Path, name: str) -> None:
    """Clients shorten such addresses, and a slash at the end belongs to the path."""
    with pytest.raises(ConfigurationError, match="a model name with slashes"):
        config.load(write(tmp_path, f'[models."{name}"]\nfamily = "sparrow"\n'))


def test_a_long_model_name_is_refused(tmp_path: Path) -> None:
    """Names are shown in logs and travel on the wire: at most 200 printable characters."""
    for name in ("x" * 201, "line\\nbreak"):
        with pytest.raises(ConfigurationError, match="printable"):
            config.load(write(tmp_path, f'[models."{name}"]\nfamily = "sparrow"\n'))


@pytest.mark.parametrize(
    ("text", "message"), [("x = = 1", "not TOML"), ("\ufeffx = 1", "byte order mark"), ("[a]\n[a]\n", "not TOML")]
)
def test_what_is_no_toml_is_said(tmp_path: Path, text: str, message: str) -> None:
    """With the parser's own line and column."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        config.load(write(tmp_path, text))
    assert "line" in str(caught.value)


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000], ids=["digits", "depth"])
def test_toml_that_python_does_not_read_is_said(tmp_path: Path, value: str) -> None:
    """The parser has its own errors for these."""
    with pytest.raises(ConfigurationError, match="not TOML"):
        config.load(write(tmp_path, f"x = {value}\n"))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("options", "key models.m.options.a: there is no option 'a'"),
        ("options.truncate", "the option 'truncate' is a dict nested too deep; it is true or false"),
        ("path", "a dict nested too deep is not a path"),
        ("nobody", "key models.m.nobody: unknown key"),
    ],
)
def test_tables_inside_each_other_are_refused_however_deep(tmp_path: Path, table: str, said: str) -> None:
    """A dotted key nests them without a bound of the parser's: four times as deep as Python calls."""
    text = f'[models.m]\nfamily = "sparrow"\n{table}{".a" * 4_000} = 1\n'
    with pytest.raises(ConfigurationError) as caught:
        config.load(write(tmp_path, text))
    assert said in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, or not text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(ConfigurationError, match="cannot be read") as caught:
            config.load(path)
        assert str(path) in str(caught.value)


SPARROW = "frontend.families.sparrow.processor:SparrowProcessor"

BROKEN = {
    "no processor module": ("no_such_module:P", "json:dumps", "processor 'no_such_module:P'"),
    "no attribute": ("json:Absent", "json:dumps", "AttributeError"),
    "an import that raises": ("broken_half:P", "json:dumps", "RuntimeError: half"),
    "other options": (
        SPARROW.replace("sparrow", "clef").replace("Sparrow", "Clef"),
        "json:dumps",
        "its OPTIONS are not",
    ),
    "no processor": ("json:dumps", "json:dumps", "is not a Processor"),
    "no executor module": (
        SPARROW,
        "no_such_module:E",
        "executor 'no_such",
    ),
    "no executor package": (
        SPARROW,
        "no_such.module:E",
        "executor 'no_such",
    ),
    "no reference": (SPARROW, "json", "module:attribute"),
}


@pytest.mark.parametrize(("processor", "executor", "message"), BROKEN.values(), ids=BROKEN)
def test_a_family_whose_halves_cannot_be_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: str, executor: str, message: str
) -> None:
    """Whatever a stranger's module does: the place, the family and the reason, no traceback."""
    (tmp_path / "broken_half.py").write_text("raise RuntimeError('half')")
    monkeypatch.syspath_prepend(tmp_path)
    family = families.Family("parrot", processor, executor, "protocol.payloads:TextRequest", sparrow.OPTIONS)
    monkeypatch.setitem(families.BUILT_IN, "parrot", family)
    with pytest.raises(
        ConfigurationError, match=r"line 2, key models\.m\.family: .*'parrot' cannot be loaded"
    ) as caught:
        config.load(write(tmp_path, '[models.m]\nfamily = "parrot"\n'))
    assert message in str(caught.value)


def test_checking_a_family_does_not_import_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may need a device library that the front does not have."""
    (tmp_path / "device_half.py").write_text("raise RuntimeError('no device')")
    monkeypatch.syspath_prepend(tmp_path)
    family = families.Family(
        "parrot",
        SPARROW,
        "device_half:E",
        "protocol.payloads:TextRequest",
        sparrow.OPTIONS,
    )
    monkeypatch.setitem(families.BUILT_IN, "parrot", family)
    assert config.load(write(tmp_path, '[models.m]\nfamily = "parrot"\n')).default == "m"


@pytest.mark.parametrize(
    "text", ['[server]\nhost = "0.0.0.0"\n[models.m]\nfamily = "sparrow"\n', NATIVE + 'listen = "[::]:1"\n']
)
def test_check_refuses_an_address_that_serve_would(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the word that would allow it, and not when the word is given."""
    file = write(tmp_path, text)
    assert supervisor.main(["check", "--config", str(file)]) == ServeExit.CONFIGURATION
    said = capsys.readouterr()
    assert "--insecure" in said.err
    assert said.out == ""
    assert supervisor.main(["check", "--config", str(file), "--insecure"]) == 0


# --model NAME=FAMILY[:PATH]


def test_the_model_that_is_served_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MiniLM where it has been fetched, whole; else the embedded one, with one line that says what is better. Whoever
    names a model, or has a file, is told nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def said(*options: str) -> str | None:
        parser = argparse.ArgumentParser()
        serve.add_to(parser.add_subparsers(), lambda arguments: 0, lambda path: "sparrow")
        return serve.hint(parser.parse_args(["serve", *options]))

    assert config.default_model() == "sparrow=sparrow"
    assert "framehost fetch minilm" in str(said())
    assert said("--model", "m=sparrow") is None
    assert said("--config", "file.toml") is None
    minilm = fetched.MODELS["minilm"]
    for name in minilm.files:
        assert config.default_model() == "sparrow=sparrow"
        file = minilm.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (model,) = config.from_models([]).models
    assert (model.name, model.family, model.path) == ("minilm", "embedding", str(minilm.path))
    assert said() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert config.default_model() == "sparrow=sparrow"


def test_models_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NAME=FAMILY, with a path after the first colon; without any, what is served without a word."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "where:else=x"
    file.touch()
    found = config.from_models(["a=sparrow", f"b=sparrow:{file}", "c=sparrow:nano-robot"])
    assert [(model.name, model.family, model.path) for model in found.models] == [
        ("a", "sparrow", None),
        ("b", "sparrow", str(file)),
        ("c", "sparrow", "nano-robot"),
    ]
    assert found.default == "a"
    assert [model.name for model in config.from_models([]).models] == ["sparrow"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("sparrow", "expected NAME=FAMILY"),
        ("=sparrow", "expected NAME=FAMILY"),
        ("a=", "expected NAME=FAMILY"),
        ("a=:path", "expected NAME=FAMILY"),
        ("a=sparrow:\udcff", "cannot be packed"),
        ("a=parrot", "no model family 'parrot'"),
    ],
)
def test_a_model_option_that_is_none_is_quoted(argument: str, message: str) -> None:
    """The text repeats what was given and shows the form."""
    with pytest.raises(ConfigurationError, match=message):
        config.from_models([argument])


def test_two_models_of_one_name_are_refused() -> None:
    """A name means one model."""
    with pytest.raises(ConfigurationError, match="two models called 'a'"):
        config.from_models(["a=sparrow", "a=sparrow:/x"])


# The command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--insecure"),
        (["--host", "::"], "--insecure"),
        (["--host", "192.0.2.1"], "refusing to listen on 192.0.2.1"),
        (["--host", "example.org"], "not an IP address"),
        (["--port", "65536"], "a port is 0..65535"),
        (["--port", "-1"], "a port is 0..65535"),
        (["--model", "nonsense"], "expected NAME=FAMILY"),
        (["--config", "x.toml", "--model", "a=sparrow"], "not both"),
        (["--config", "there is no such file"], "cannot be read"),
    ],
)
def test_serve_refuses_before_it_touches_anything(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line on stderr, exit status 2; nothing is bound and no directory is made."""
    monkeypatch.setattr(listeners, "bind", pytest.fail)
    assert supervisor.main(["serve", *arguments]) == ServeExit.CONFIGURATION
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_needs_no_word(host: str) -> None:
    """Every loopback address is this machine alone."""
    assert Endpoint(host, 8080).loopback


def test_localhost_is_the_loopback_address() -> None:
    """The one name that is allowed, because it means the same everywhere."""
    assert check_host("localhost") == "127.0.0.1"


def test_check_shows_what_a_good_file_configures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`framehost check`: exit 0, the address, each model with its bounds, the default marked."""
    file = write(tmp_path, GOOD)
    assert supervisor.main(["check", "--config", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"{file}: listens on ::1 port 0" in said
    assert "second (default): sparrow" in said
    assert "max_requests 3, max_cost 400" in said


def test_check_shows_every_option_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are set and those that are not, with default and bounds."""
    text = f'[models.m]\nfamily = "decider"\npath = "{tmp_path}"\n[models.m.options]\nbatch_rows = 2\n'
    assert supervisor.main(["check", "--config", str(write(tmp_path, text))]) == 0
    said = capsys.readouterr().out
    assert "\n    batch_rows = 2 (default 4; a whole number, 1 to 4)\n" in said
    assert "\n    device = auto (the default; auto, cpu, cuda or cuda:N)\n" in said
    assert "\n    revision = none (the default; 533964dae8be954c5b5e19fa4948e48408094c1e)\n" in said
    assert said.count("\n    ") == len(families.find("decider").options.options)


def test_check_reads_the_keys_for_hosts_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server would not start with them, so `check` must not say that all is well."""
    keys.create(tmp_path, "server")
    (tmp_path / "allow").mkdir()
    text = f'[hosts]\nlisten = "127.0.0.1:0"\nkey = "{tmp_path}/KEY"\nallow = "{tmp_path}/allow"\n'
    text += '[models.m]\nfamily = "sparrow"\nremote = true\n'
    assert supervisor.main(["check", "--config", str(write(tmp_path, text))]) == 2
    assert "framehost.toml: [hosts]: " in (said := capsys.readouterr().err)
    assert "KEY cannot be read" in said
    text = text.replace("KEY", "server.key_secret")
    assert supervisor.main(["check", "--config", str(write(tmp_path, text))]) == 2
    assert "allow holds no NAME.key file" in capsys.readouterr().err
    keys.create(tmp_path / "allow", "host")
    (tmp_path / "allow" / "host.key_secret").unlink()
    assert supervisor.main(["check", "--config", str(write(tmp_path, text))]) == 0


def test_check_of_a_bad_file_is_exit_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`framehost check`: the same line that `serve` would say."""
    file = write(tmp_path, "[server]\nprot = 1\n")
    assert supervisor.main(["check", "--config", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"framehost: {file}, line 2, key server.prot: unknown key")
