"""The log goes away under the server: its reader leaves. That costs lines, never the server."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.process.harness import Framehost, alive, running


def deaf(server: Framehost) -> None:
    """Close the read end of the server's output, as `| head` does."""
    assert server.process.stdout is not None
    descriptor = server.process.stdout.fileno()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, descriptor)
    os.close(null)


def test_without_a_reader_of_its_log_the_server_restarts_hosts_and_stops_on_request(runtime: Path) -> None:
    """A host killed then is told to the front and started again; SIGTERM still ends everything with status 0."""
    with running(runtime) as server:
        everyone = server.family()
        deaf(server)
        before = server.host()
        os.kill(before["pid"], signal.SIGKILL)
        server.wait(lambda: server.host()["incarnation"] != before["incarnation"], "another incarnation is started")
        server.wait(lambda: server.get("/health").status == 200, "it is ready")
        assert server.decide("again").status == 200
        again = server.host()["pid"]
        os.kill(again, signal.SIGKILL)
        server.wait(lambda: server.decide("x").status == 200 and server.host()["pid"] != again, "and once more")
        server.process.terminate()
        assert server.wait_exit() == 0
        server.wait(lambda: not any(map(alive, everyone)), "nothing is left")
