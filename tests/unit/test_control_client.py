"""Where a command finds the supervisor, and what it says when it does not."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import supervisor
from frontend.cli import control_client, orders
from protocol import addresses
from protocol.messages import Message, Order, Outcome, Progress


def test_a_server_with_another_runtime_directory_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found where we look; where it usually is, a lock is held: the variable to set is named. Else the
    directory that was looked in is."""
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here))
    monkeypatch.setattr(control_client, "USUAL_BASES", (str(there),))
    place = addresses.runtime_directory(8080, base=str(there))
    place.parent.mkdir(mode=0o700, parents=True)
    place.mkdir(mode=0o700)
    with (place / addresses.LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(control_client.NotRunning, match=f"XDG_RUNTIME_DIR={there}"), control_client.connected(8080):
            pass
    with (
        pytest.raises(control_client.NotRunning, match=rf"looked in {here}.*framehost serve --port 8080"),
        control_client.connected(8080),
    ):
        pass


def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a server on port 8080, as a supervisor makes it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = addresses.runtime_directory(8080)
    place.parent.mkdir(mode=0o700)
    place.mkdir(mode=0o700)
    return place


def refusal() -> str:
    with pytest.raises(control_client.NotRunning) as caught, control_client.connected(8080):
        pass
    return str(caught.value)


@pytest.mark.parametrize("level", ["of the server", "of the user"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, mode: int
) -> None:
    """Nothing in it is opened: what looks like a lock may be a pipe that nobody writes."""
    place = trusted(tmp_path, monkeypatch)
    os.mkfifo(place / addresses.LOCK_NAME)
    (place if level == "of the server" else place.parent).chmod(mode)
    assert "can be used by others" in refusal()


def test_a_directory_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp anybody may make one of our name, and wait for our orders behind it."""
    place = trusted(tmp_path, monkeypatch)
    with (place / addresses.LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        us = os.getuid()
        name = place.parent.name
        monkeypatch.setattr(os, "getuid", lambda: us + 1)
        (tmp_path / name).rename(tmp_path / f"framehost-{us + 1}")
        assert f"belongs to another user (uid {us})" in refusal()


def test_a_link_is_no_directory_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead to another user's."""
    place = trusted(tmp_path, monkeypatch)
    moved = tmp_path / "elsewhere"
    place.rename(moved)
    place.symlink_to(moved)
    assert "is no directory" in refusal()


def test_what_a_server_says_moves_no_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Notes, outcomes and reasons hold what a model has printed: escapes are shown and not obeyed."""
    evil = "\x1b]0;owned\x07\x1b[2J"

    class Line:
        said: ClassVar[list[Message]] = []

        def say(self, message: Message) -> None: ...

        def hear(self, *, patient: bool = False) -> Message:
            return self.said.pop(0)

    @contextlib.contextmanager
    def connected(port: int) -> Iterator[Line]:
        yield Line()

    monkeypatch.setattr(orders, "connected", connected)
    for code in ("done", "failed"):
        Line.said = [Progress(stage="load", note=evil), Outcome(code=code, message=evil, report={})]
        orders.carry_out(8080, Order(action="load", model="m", settings={}))
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\x1b]0;owned" in said.out
    assert "\\x1b]0;owned" in said.err


@pytest.mark.parametrize("command", [("status",), ("swap", "m=sparrow"), ("load", "m"), ("unload", "m")])
@pytest.mark.parametrize("number", ["0", "65536", "-1", "http"])
def test_a_port_that_is_none_is_a_mistake_in_the_options(
    command: tuple[str, ...], number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and the limit; 1 would say that no server has it."""
    with pytest.raises(SystemExit) as refused:
        supervisor.main([*command, f"--port={number}"])
    assert refused.value.code == 2
    assert f"argument --port: '{number}': a port is 1..65535" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["1", "65535"])
def test_the_first_and_the_last_port_are_ports(number: str) -> None:
    """The limits themselves are taken."""
    assert control_client.port_number(number) == int(number)
