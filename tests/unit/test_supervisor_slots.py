"""The supervisor's slots alone, with launchers of the test: what no real process does on demand."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from executor_host.launch import stacks
from executor_host.launch.base import ProcessExit
from executor_host.supervision import front_slot
from executor_host.supervision.front_slot import FrontCommand, FrontSlot
from executor_host.supervision.host_slot import HostSlot
from protocol.models import DeploymentSpec


class Handle:
    """A started process that ends when it is killed."""

    address = None
    security = None

    pid = 4711

    def __init__(self) -> None:
        self.killed = asyncio.Event()

    async def wait(self) -> ProcessExit:
        await self.killed.wait()
        return ProcessExit.of(-9)

    def kill(self) -> None:
        self.killed.set()

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return "a process of the test"

    def taken(self) -> dict[str, int] | None:
        return {"front-1": 7}


class Owner:
    """As much of a supervisor as a slot asks for; the stop comes while a process is being started."""

    def __init__(self, tmp_path: Any) -> None:
        self.stopping = False
        self.console = SimpleNamespace(say=lambda *_: None, settled=lambda *_: None)
        self.restarts = 5
        self.front_limit_s = None
        self.directory = SimpleNamespace(incarnation=lambda name: tmp_path / name)
        self.handle = Handle()
        self.launcher = SimpleNamespace(start=self._start)
        self.epoch = "e"
        self.told: list[Any] = []

    async def _start(self, *_: Any, **__: Any) -> Handle:
        self.stopping = True
        return self.handle

    def is_stopping(self) -> bool:
        return self.stopping

    def mint(self) -> str:
        return "1-00000000"

    def tell_front(self, message: Any) -> None:
        self.told.append(message)

    def died(self, who: str, how: str) -> None:
        pass

    def host_ended(self, slot: Any, ended: Any) -> None:
        pass

    def front_lost(self) -> None:
        pass

    def launcher_of(self, deployment: Any) -> Any:
        return self.launcher

    def dial(self, address: str, receive: Any, process: Any) -> Any:
        return SimpleNamespace(close=lambda: None, send=lambda _: None)

    def front_command(self) -> FrontCommand:
        return FrontCommand([], [])


async def test_a_front_that_is_being_started_when_the_stop_comes_is_ended(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was nothing to kill yet when the stop looked; the process that appears then must not be waited for."""
    owner = Owner(tmp_path)
    monkeypatch.setattr(front_slot, "start_process", owner._start)
    async with asyncio.timeout(10):
        await FrontSlot(owner).keep()  # type: ignore[arg-type]
    assert owner.handle.killed.is_set()


async def test_a_host_that_is_being_started_when_the_stop_comes_is_ended(tmp_path: Any) -> None:
    """The same for a host."""
    owner = Owner(tmp_path)
    spec = DeploymentSpec(id="m@1", name="m", family="toy", path=None, options={})
    async with asyncio.timeout(10):
        await HostSlot(owner, spec).start()  # type: ignore[arg-type]
    assert owner.handle.killed.is_set()
    (down,) = owner.told
    assert down.taken == {"front-1": 7}, "the front is told what its process handle knows"


async def test_of_a_host_that_could_not_be_started_nothing_is_known(tmp_path: Any) -> None:
    """There is no process handle to ask."""
    owner = Owner(tmp_path)

    async def refuse(*_: Any) -> Handle:
        owner.stopping = True
        raise OSError("no more processes")

    owner.launcher = SimpleNamespace(start=refuse)
    spec = DeploymentSpec(id="m@1", name="m", family="toy", path=None, options={})
    async with asyncio.timeout(10):
        await HostSlot(owner, spec).start()  # type: ignore[arg-type]
    assert [down.taken for down in owner.told] == [None]


async def test_what_ends_by_itself_while_its_stacks_are_taken_leaves_no_cause_to_the_next(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dump takes up to two seconds; the process may crash in it and the next one be there already."""
    taken = asyncio.Event()

    async def dump(_: Any) -> str:
        await taken.wait()
        return "no stacks"

    monkeypatch.setattr(stacks, "dump", dump)
    spec = DeploymentSpec(id="m@1", name="m", family="toy", path=None, options={})
    slot = HostSlot(Owner(tmp_path), spec)  # type: ignore[arg-type]
    first, second = Handle(), Handle()
    slot._handle = first  # type: ignore[assignment]
    slot.overdue("too long")
    slot._handle, slot._cause = second, ""  # type: ignore[assignment]
    taken.set()
    assert slot._overdue is not None
    await slot._overdue
    assert slot._cause == ""
    assert not second.killed.is_set()
