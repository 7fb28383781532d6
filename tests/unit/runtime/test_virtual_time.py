"""The virtual-time loop keeps its own promises; every other runtime test stands on them."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.virtual_time import Stuck, run_virtual, settle, virtual, virtual_loop


def test_sleeping_moves_the_virtual_clock_and_not_the_real_one() -> None:
    """An hour of virtual sleep is over at once and lands on the exact instant."""

    async def main() -> float:
        await asyncio.sleep(3600.1)
        return virtual_loop().time()

    began = time.monotonic()
    assert run_virtual(main()) == 3600.1
    assert time.monotonic() - began < 60


@virtual
async def test_timers_fire_in_order_at_their_own_instants() -> None:
    """Each sleeper wakes at its own time, not at the time of whoever jumped."""
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append((name, virtual_loop().time()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 2.5))
        group.create_task(sleeper("early", 0.1))
    assert woken == [("early", 0.1), ("late", 2.5)]


@virtual
async def test_a_timeout_fires_exactly_at_its_deadline() -> None:
    """`asyncio.timeout_at` and the clock agree to the last bit."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout_at(0.3):
            await asyncio.get_running_loop().create_future()
    assert virtual_loop().time() == 0.3


def test_a_hang_is_reported_instead_of_waited_for() -> None:
    """When nothing can wake anybody the loop says so, naming the task."""

    async def main() -> None:
        asyncio.current_task().set_name("forlorn")  # type: ignore[union-attr]
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="forlorn"):
        run_virtual(main())


def test_what_the_loop_reports_fails_the_test() -> None:
    """A callback that raises and an exception that nobody retrieved are both errors."""

    async def raising_callback() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0)

    async def unretrieved() -> None:
        asyncio.get_running_loop().create_future().set_exception(RuntimeError("nobody asks"))

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_virtual(raising_callback())
    with pytest.raises(AssertionError, match="nobody asks"):
        run_virtual(unretrieved())


@virtual
async def test_settle_runs_what_is_ready_and_moves_no_time() -> None:
    """Chains of ready tasks run to their end; a sleeper stays asleep."""
    steps: list[int] = []

    async def chain() -> None:
        for step in range(5):
            await asyncio.sleep(0)
            steps.append(step)

    async def sleeper() -> None:
        await asyncio.sleep(1)
        steps.append(-1)

    tasks = [asyncio.create_task(chain()), asyncio.create_task(sleeper())]
    await settle()
    assert steps == [0, 1, 2, 3, 4]
    assert virtual_loop().time() == 0.0
    await asyncio.gather(*tasks)
    assert virtual_loop().time() == 1.0


@virtual
async def test_advancing_by_hand_runs_nothing_until_the_next_turn() -> None:
    """A test can stand exactly on a deadline before its timer has run."""
    fired: list[float] = []
    virtual_loop().call_at(5.0, lambda: fired.append(virtual_loop().time()))
    virtual_loop().advance(5.0)
    assert fired == []
    await settle()
    assert fired == [5.0]
