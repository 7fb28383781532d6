"""Deadlines that share one timer expire as those of `asyncio.timeout_at` do, each of which has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frontend.serving.deadlines import Deadlines
from tests.virtual_time import run_virtual, virtual, virtual_loop

Block = Callable[[float], AbstractAsyncContextManager[Any]]

REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 1.0, 2.5, 7.0]),  # seconds until it comes
        st.sampled_from([-1.0, 0.0, 0.5, 3.0, 3.0, 3.0, 10.0]),  # its budget
        st.sampled_from([0.0, 0.41, 2.01, 3.11, 11.01]),  # how long its work takes, never to the instant
        st.sampled_from([None, None, 0.0, 0.42, 3.12]),  # when its client leaves
    ),
    max_size=12,
)


def ends(requests: list[tuple[float, float, float, float | None]], block: Callable[[], Block]) -> list[Any]:
    """How each request ends and when, in the order of the ends."""

    async def main() -> list[Any]:
        made, seen = block(), []

        async def one(number: int, budget: float, work: float) -> None:
            try:
                async with made(virtual_loop().time() + budget):
                    await asyncio.sleep(work)
            except BaseException as error:
                seen.append((virtual_loop().time(), number, type(error)))
            else:
                seen.append((virtual_loop().time(), number, None))

        tasks = []
        for number, (pause, budget, work, leaves) in enumerate(requests):
            await asyncio.sleep(pause)
            task = asyncio.create_task(one(number, budget, work))
            tasks.append(task)
            if leaves is not None:
                virtual_loop().call_later(leaves, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        return sorted(seen, key=lambda end: (end[0], end[1]))

    return run_virtual(main())


def shared() -> Block:
    deadlines = Deadlines(virtual_loop())

    @asynccontextmanager
    async def at(instant: float) -> Any:
        with deadlines.at(instant):
            yield

    return at


@settings(max_examples=10, derandomize=True, deadline=None)
@given(REQUESTS)
@example([(0.0, 10.0, 11.01, None), (0.0, 0.5, 11.01, None)])  # a shorter one behind a longer one
@example([(0.0, 10.0, 0.41, None), (1.0, 0.5, 11.01, None)])  # a shorter one when the longer one was met
@example([(0.0, 3.0, 0.41, None), (1.0, 3.0, 11.01, None)])  # the timer of the first one finds the second one early
def test_they_end_as_with_a_timer_each(requests: list[tuple[float, float, float, float | None]]) -> None:
    """Whatever comes, with any budgets, finishing or leaving: the same ends at the same instants."""
    assert ends(requests, shared) == ends(requests, lambda: asyncio.timeout_at)


@virtual
async def test_a_deadline_that_was_met_is_forgotten() -> None:
    """Ten thousand requests that finish leave one timer and nothing else behind."""
    deadlines = Deadlines(virtual_loop())
    for _ in range(10_000):
        with deadlines.at(virtual_loop().time() + 30.0):
            pass
    assert not deadlines._queue
    timers = [timer for timer in virtual_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert len(timers) == 1


@virtual
async def test_a_cancellation_from_outside_stays_one() -> None:
    """A task that is cancelled by somebody else in the turn in which it expires ends as cancelled."""
    deadlines = Deadlines(virtual_loop())

    async def wait() -> None:
        with deadlines.at(1.0):
            await virtual_loop().create_future()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    virtual_loop().call_at(1.0, task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert virtual_loop().time() == 1.0


@virtual
async def test_a_block_inside_another_one_leaves_the_outer_one_its_own() -> None:
    """The inner deadline ends the inner block alone; the outer one comes later, at its own instant."""
    deadlines = Deadlines(virtual_loop())
    ended = []

    async def wait(seconds: float) -> None:
        try:
            with deadlines.at(seconds):
                if seconds > 2.0:
                    await wait(2.0)
                await virtual_loop().create_future()
        except TimeoutError:
            ended.append((seconds, virtual_loop().time()))

    await wait(5.0)
    assert ended == [(2.0, 2.0), (5.0, 5.0)]


@virtual
async def test_one_deadline_is_one_block() -> None:
    """Entering one that is in use is a mistake of ours and says so."""
    with Deadlines(virtual_loop()).at(1.0) as deadline, pytest.raises(RuntimeError, match="entered once"):
        deadline.__enter__()
