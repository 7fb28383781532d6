"""Nothing in the supervisor's loop waits for a disk or walks through a table: it is done aside, and given up."""

from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path

import pytest

import supervisor
from executor_host.launch import ray_hosts
from executor_host.launch.aside import aside
from executor_host.launch.base import HostLauncher, HostSpec, ProcessHandle
from executor_host.supervision import fleet as fleets
from executor_host.supervision.clock import LONGEST_S, AwakeClock
from executor_host.supervision.console import Console
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.orders import Invalid
from executor_host.supervision.residency import Bounds
from frontend.configuration import load
from tests.helpers.supervision import Clock, spec, surroundings
from tests.unit.test_remote_launcher import serving

GUARD_S = 30.0


async def test_what_is_done_aside_returns_and_raises() -> None:
    """As if it had been called here."""
    assert await aside(lambda: 7, limit_s=GUARD_S) == 7
    with pytest.raises(KeyError):
        await aside(lambda: {"a": 1}["no"], limit_s=GUARD_S)


async def test_what_never_ends_is_given_up_and_the_loop_turns_meanwhile() -> None:
    """A hung file system holds its own thread and nobody else; the end of the process does not wait for it."""
    never, turned = threading.Event(), asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    with pytest.raises(TimeoutError):
        await aside(never.wait, limit_s=0.01)
    assert turned.is_set()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "aside")
    never.set()


async def test_a_checkpoint_that_cannot_be_measured_counts_as_nothing(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without an end, or on a file system that hangs: the swap goes on without its size."""
    never = threading.Event()
    monkeypatch.setattr(fleets, "checkpoint_bytes", lambda path: never.wait() and 0)
    monkeypatch.setattr(fleets, "SIZE_LIMIT_S", 0.01)
    log = io.StringIO()
    fleet = made(Bounds(bytes=10), log, runtime)
    assert await fleet.size_of(spec(path="/huge")) == 0
    assert "/huge could not be measured within 0.01 s" in log.getvalue()
    never.set()


async def test_an_order_that_names_something_on_a_hung_file_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would make of the model is looked at aside, and not for ever."""
    never = threading.Event()
    monkeypatch.setattr(supervisor, "successor", lambda *_: never.wait())
    monkeypatch.setattr(supervisor, "SETTINGS_LIMIT_S", 0.01)
    models = supervisor._Models(load.from_models(["m=sparrow"]))
    with pytest.raises(Invalid, match=r"could not be looked at within 0\.01 s"):
        await models.successor("m", {"family": "sparrow", "path": "/hung"})
    never.set()


async def test_without_a_bound_of_bytes_nothing_is_measured(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody needs to know."""
    monkeypatch.setattr(fleets, "checkpoint_bytes", pytest.fail)
    assert await made(Bounds(count=1), io.StringIO(), runtime).size_of(spec(path="/huge")) == 0


def test_time_that_passes_while_nobody_looks_counts_a_little_and_no_more() -> None:
    """A frozen container: no limit is over at the thaw because of it."""
    time = Clock()
    clock = AwakeClock(time)
    for _ in range(10):
        time.now += 0.5
        clock.look()
    assert clock() == 5.0
    time.now += 3600.0
    assert clock() == 5.0 + LONGEST_S
    clock.look()
    time.now += 0.5
    assert clock() == 5.0 + LONGEST_S + 0.5


async def test_the_keys_of_clients_are_no_business_of_what_ray_starts(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has an environment without them, and so have the processes that Ray makes for it."""
    seen: list[object] = []

    async def start(module: str, arguments: list[str], **options: object) -> object:
        seen.append(options["hidden"])
        raise OSError("the test starts nothing")

    monkeypatch.setattr(ray_hosts, "start_process", start)
    async with serving(runtime) as server:
        launcher = ray_hosts.RayLauncher(server.launcher, lambda *_: None, hidden={"FRAMEHOST_KEYS"})
        with pytest.raises(OSError, match="starts nothing"):
            await launcher.start(HostSpec(spec(ray={}), "1-x", "/nowhere"))
    assert seen == [{"FRAMEHOST_KEYS"}]


def made(bounds: Bounds, log: io.StringIO, path: Path) -> Fleet:
    """A fleet that starts nothing."""
    around = surroundings(path, Console(log), NoLauncher())
    return Fleet(
        around, bounds, drain_s=1.0, default="m", limits={}, kept_bytes={}, session_idle_s=600.0, died=lambda *_: None
    )


class NoLauncher(HostLauncher):
    """Starts nothing."""

    async def start(self, spec: HostSpec) -> ProcessHandle:
        raise AssertionError("nothing is started here")
