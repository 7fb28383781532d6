"""One server for all suites and clients of a worker: with the embedded model, and with a tiny Decider checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.process.conftest import runtime, short_directory
from tests.process.harness import Framehost, running

__all__ = ["decider", "runtime", "server"]


@pytest.fixture(scope="session")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory, "sparrow=sparrow") as server:
        yield server
        server.wait(server.idle, "idle")


@pytest.fixture(scope="session")
def decider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    for needed in ("torch", "transformers", "tokenizers"):
        pytest.importorskip(needed, reason="the decider family needs framehost[torch]")
    from tests.helpers import tiny_decider

    path = tiny_decider.write(tmp_path_factory.mktemp("decider") / "tiny")
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            f"[models.decider]\nfamily = 'decider'\npath = {json.dumps(str(path))}\n"
            "[models.decider.options]\ndevice = 'cpu'\n"
        )
        with running(directory, config=config, environment={"OMP_NUM_THREADS": "1"}) as server:
            yield server
            server.wait(server.idle, "idle")
