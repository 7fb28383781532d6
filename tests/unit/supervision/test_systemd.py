"""What a service manager is told, and that one who does not listen changes nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor_host.supervision.systemd import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A manager's socket, and its name as the environment has it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@framehost-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
        made.settimeout(20)
        yield made, name


def test_the_start_the_end_and_that_it_lives(listening: tuple[socket.socket, str]) -> None:
    """One datagram each, and the variables are gone: no child tells in the server's name."""
    manager_socket, name = listening
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "7", "HOME": "/"}
    manager = ServiceManager(environment, 7)
    assert environment == {"HOME": "/"}
    manager.ready("serving m")
    manager.alive()
    manager.stopping("soon gone")
    manager.close()
    manager.close()
    manager.alive()
    told = [manager_socket.recv(1000).decode().split("\n") for _ in range(3)]
    assert told == [["READY=1", "STATUS=serving m"], ["WATCHDOG=1"], ["STOPPING=1", "STATUS=soon gone"]]


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "8"}])
def test_who_is_not_watched_says_nothing_of_it(listening: tuple[socket.socket, str], watchdog: dict[str, str]) -> None:
    """No WatchdogSec, or one of another process."""
    manager_socket, name = listening
    manager = ServiceManager({"NOTIFY_SOCKET": name, **watchdog}, 7)
    manager.alive()
    manager.ready("")
    assert manager_socket.recv(1000).startswith(b"READY=1")
    manager.close()


def test_a_manager_whose_queue_is_full_is_told_later(listening: tuple[socket.socket, str]) -> None:
    """What must arrive is said again at the next look, before any sign of life; those are not collected."""
    manager_socket, name = listening
    manager = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1"}, 7)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        address = name.replace("@", "\0", 1) if name.startswith("@") else name
        filled = 0
        try:
            while True:
                other.sendto(b"x", address)
                filled += 1
        except BlockingIOError:
            pass
    manager.ready("serving")
    for _ in range(3):
        manager.alive()
    assert {manager_socket.recv(1000) for _ in range(filled)} == {b"x"}
    manager.alive()
    assert manager_socket.recv(1000).startswith(b"READY=1")
    assert manager_socket.recv(1000) == b"WATCHDOG=1"
    manager.close()


def test_a_manager_that_is_not_there(tmp_path: Path) -> None:
    """Started by hand, or the socket is gone or full: nothing is raised."""
    for environment in ({}, {"NOTIFY_SOCKET": str(tmp_path / "none")}, {"NOTIFY_SOCKET": "x" * 300}):
        manager = ServiceManager(environment, 7)
        manager.ready("serving")
        manager.close()
