"""Under a service manager: it is told when the server is ready and when it stops."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.process.harness import Framehost, running


def test_ready_is_said_when_requests_are_answered(runtime: Path) -> None:
    """As `Type=notify` wants it, with a watchdog that is fed; the children do not have the address."""
    address = runtime / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        environment = {"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "30000000"}
        # It is not read from until the server answers: by then its queue is full.
        with running(runtime, environment=environment) as server:
            said = until(manager, b"READY=1")
            assert b"STATUS=serving toy (toy) at http://" in said[-1]
            assert b"WATCHDOG=1" in said
            assert server.decide("x").status == 200
            for pid in pids(server):
                assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
            server.process.terminate()
            until(manager, b"STOPPING=1")
            assert server.wait_exit() == 0


def until(manager: socket.socket, word: bytes) -> list[bytes]:
    """Everything that is said up to a datagram that begins with `word`."""
    said: list[bytes] = []
    while not (said and said[-1].startswith(word)):
        assert len(said) < 1000, said[-1]
        said.append(manager.recv(1000))
    return said


def pids(server: Framehost) -> list[int]:
    """Of the front and the host."""
    return [server.front_pid(), *(host["pid"] for host in server.status()["hosts"])]
