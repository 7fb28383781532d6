"""The slots with launchers of the test: what no real process does on demand."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from executor_host.launch.base import (
    HostLauncher,
    HostSpec,
    ProcessExit,
    ProcessHandle,
)
from executor_host.supervision.console import Console
from executor_host.supervision.host_slot import HostSlot
from protocol.exits import HostExit, ServeExit
from protocol.messages import HostDown, Message
from tests.helpers.supervision import spec, surroundings

GUARD_S = 30.0


class Handle(ProcessHandle):
    """A started process that ends when it is killed."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self.killed = asyncio.Event()

    @property
    def pid(self) -> int:
        return 0

    async def wait(self) -> ProcessExit:
        await self.killed.wait()
        return ProcessExit.of(-9)

    def send_signal(self, number: signal.Signals) -> None:
        pass

    def kill(self) -> None:
        self.killed.set()

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return "a process of the test"

    def taken(self) -> dict[str, int] | None:
        return {"front-1": 7}


class Launcher(HostLauncher):
    """Does what the test says when a process is wanted."""

    def __init__(self, start: Callable[[], Handle]) -> None:
        self._start = start

    async def start(self, spec: HostSpec) -> ProcessHandle:
        return self._start()


class Server:
    """As much of one as a slot works with."""

    def __init__(self, path: Path, start: Callable[[Server], Handle]) -> None:
        self.log = io.StringIO()
        self.told: list[Message] = []
        self.events: list[str] = []
        around = surroundings(path, Console(self.log), Launcher(lambda: start(self)), self.told.append)
        self.life, self.directory = around.life, around.directory
        self.slot = HostSlot(around, spec(), 0, self)

    async def until_it_rests(self) -> None:
        async with asyncio.timeout(GUARD_S):
            self.slot.start()
            assert self.slot.end is not None
            await self.slot.end
        self.directory.close()

    def host_ready(self, slot: HostSlot) -> None:
        self.events.append("ready")

    def host_warm(self, slot: HostSlot) -> None:
        self.events.append("warm")

    def host_died(self, slot: HostSlot, how: str) -> None:
        self.events.append(f"died: {how}")

    def host_changed(self, slot: HostSlot) -> None:
        self.events.append("changed")


async def test_a_host_that_is_being_started_when_the_stop_comes_is_ended(runtime: Path) -> None:
    """There was nothing to kill yet when the stop looked; the process that appears then must not be waited for."""
    handles: list[Handle] = []

    def start(server: Server) -> Handle:
        server.slot.life.stop(1.0)
        handles.append(Handle())
        return handles[0]

    server = Server(runtime, start)
    await server.until_it_rests()
    assert handles[0].killed.is_set()
    (down,) = server.told
    assert isinstance(down, HostDown)
    assert down.taken == {"front-1": 7}, "the front is told what its process handle knows"
    assert server.events == ["changed"]


async def test_of_a_host_that_could_not_be_started_nothing_is_known(runtime: Path) -> None:
    """There is no process handle to ask, and the reason is what the system said."""

    def refuse(server: Server) -> Handle:
        raise OSError("no more processes")

    server = Server(runtime, refuse)
    await server.until_it_rests()
    (down,) = server.told
    assert isinstance(down, HostDown)
    assert down.taken is None
    assert server.slot.life.failed == f"exit status {int(HostExit.LOAD_FAILED)} (load failed): no more processes"


async def test_a_host_that_cannot_be_dialled_fails_its_deployment_alone(runtime: Path) -> None:
    """What a remote host says of its address is nonsense: it is ended, and the server has no failure."""
    handle = Handle("nonsense")
    server = Server(runtime, lambda _: handle)
    await server.until_it_rests()
    assert handle.killed.is_set()
    assert "it cannot be dialled at 'nonsense'" in (server.slot.life.failed or "")
    assert server.life.failure is None


async def test_a_bug_of_ours_in_a_slot_ends_the_server_and_is_not_waited_for(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loudly: a server is never left half alive."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))

    def bug(server: Server) -> Handle:
        raise KeyError("a bug")

    server = Server(runtime, bug)
    await server.until_it_rests()
    assert server.life.failure is ServeExit.FAILED
    assert [type(error) for error in told] == [KeyError]
