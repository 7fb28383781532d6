"""Random load while a seeded schedule kills, stops, aborts, swaps and starves; then an audit.

    python -m tests.chaos [--seconds 300] [--seed N] [--clients 24] [--shared]

`--shared`: batches, look-ahead and joining are on, and clients ask the same at the same time.

Prints the table for docs/reliability.md. Exit status 1: something was lost, and what.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import audit
from tests.chaos.clients import Crowd
from tests.chaos.faults import Saboteur
from tests.process.harness import running

MODELS = {"alpha": 49, "beta": 49, "gamma": 2}
"""Room is for two of them: each request for the third has one of the others evicted."""

CONFIGURATION = """
[server]
request_timeout = 20
restarts = 1000
max_resident = 2
[models.alpha]
family = "toy"
max_requests = 64
execution_limit = 2
[models.beta]
family = "toy"
replicas = 2
execution_limit = 2
[models.gamma]
family = "toy"
resident = false
execution_limit = 2
"""


SHARED = "\nlook_ahead = true\nbatch = { units = 8 }"
"""What each model has with `--shared`, in a family whose equal units may be executed once."""


def storm(folder: Path, *, seconds: float, seed: int, clients: int, shared: bool = False) -> tuple[list[str], str]:
    """What was found wrong, and the table."""
    mark, file = folder / "mark", folder / "framehost.toml"
    family = "sharing" if shared else "toy"
    file.write_text(CONFIGURATION.replace('family = "toy"', f'family = "{family}"' + (SHARED if shared else "")))
    with running(folder, config=file) as server:
        for model in MODELS:
            assert server.decide("warm", model=model).status == 200
        before = audit.Footprint(server)
        crowd = Crowd(server.port, MODELS, mark, clients=clients, seed=seed, twins=shared)
        saboteur = Saboteur(server, list(MODELS), seed=seed, family=family)
        try:
            saboteur.run(seconds)
        finally:
            crowd.stop()
        wrong = audit.requests(crowd.records, saboteur.injected, mark)
        if shared:
            wrong += audit.nothing_shared(crowd.records, mark)
        for model in MODELS:
            # A host that was killed again and again is waited for: half a minute is the longest back-off.
            server.wait(lambda name=model: server.decide("again", model=name).status == 200, f"an answer of {model}")
        server.wait(server.idle, "nothing open, queued or running, and every permit back")
        wrong += audit.leftovers(before, audit.Footprint(server))
        status = server.stop()
        if status != 0:
            wrong.append(f"the stop ended with {status}")
        if wrong:
            wrong.append(server.log())
        return wrong, audit.table(crowd.records, saboteur.injected)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=None, help="of all choices (default: a new one)")
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--shared", action="store_true", help="with batches, look-ahead and joining")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.seconds:g} s, {arguments.clients} clients", flush=True)
    with tempfile.TemporaryDirectory(prefix="fh-") as folder:
        wrong, table = storm(
            Path(folder), seconds=arguments.seconds, seed=seed, clients=arguments.clients, shared=arguments.shared
        )
    print(table)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
