"""One server with the embedded model for all suites and clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.conftest import runtime, short_directory
from tests.process.harness import Framehost, running

__all__ = ["runtime", "server"]


@pytest.fixture(scope="session")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory, "sparrow=sparrow") as server:
        yield server
        server.wait(server.idle, "idle")
