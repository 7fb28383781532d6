"""The log goes away under the server: its reader leaves, or sleeps. That costs lines, never the server."""

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


def test_a_reader_who_sleeps_holds_up_nobody(runtime: Path) -> None:
    """A pager that was left open, a stalled log driver: requests, restarts and the stop go on without it."""
    with running(runtime) as server:
        server.read_no_more()
        # Each failure has its trace in the log: together several times what a pipe and we hold.
        assert {server.decide({"op": "raise"}).status for _ in range(200)} == {500}
        before = server.host()
        os.kill(before["pid"], signal.SIGKILL)
        server.wait(lambda: server.host()["incarnation"] != before["incarnation"], "another incarnation is started")
        server.wait(lambda: server.decide("x").status == 200, "which answers")
        assert server.stop() == 0
        server.read_on()
        server.line("a secret of our insides")
