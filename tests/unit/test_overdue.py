"""What a host owes, and when it has owed it for too long. Virtual time: nothing here waits."""

from __future__ import annotations

import pytest

from frontend.serving.overdue import CONFIRM_S, OverdueWatch
from tests.virtual_time import virtual, virtual_loop

LIMIT_S = 10.0


class Watched:
    """A watch that notes when it spoke, and for how long the answer had been owed."""

    def __init__(self, limit_s: float | None = LIMIT_S) -> None:
        self.loop = virtual_loop()
        self.said: list[tuple[float, float]] = []
        self.watch = OverdueWatch(self.loop, limit_s, lambda owed: self.said.append((self.loop.time(), owed)))

    async def until(self, instant: float) -> None:
        reached = self.loop.create_future()
        self.loop.call_at(instant, reached.set_result, None)
        await reached


@virtual
async def test_an_answer_that_is_owed_for_too_long_is_said_once() -> None:
    """At the limit and a confirmation later, with the seconds; then never again."""
    watched = Watched()
    watched.watch.owed()
    await watched.until(LIMIT_S + CONFIRM_S - 0.01)
    assert watched.said == []
    await watched.until(1000)
    assert watched.said == [(LIMIT_S + CONFIRM_S, LIMIT_S + CONFIRM_S)]


@virtual
async def test_units_below_the_limit_never_add_up() -> None:
    """A hundred units of nine seconds back to back, and an idle hour, are nobody's fault."""
    watched = Watched()
    for number in range(100):
        watched.watch.owed()
        await watched.until(9.0 * (number + 1))
        watched.watch.answered()
    await watched.until(3600 + 900)
    assert watched.said == []
    watched.watch.owed()
    await watched.until(9000)
    assert watched.said == [(4500 + LIMIT_S + CONFIRM_S, LIMIT_S + CONFIRM_S)]


@virtual
async def test_the_time_of_a_unit_counts_from_its_own_start() -> None:
    """Sent while the timer of its predecessor runs, it has the whole limit."""
    watched = Watched()
    watched.watch.owed()
    await watched.until(9)
    watched.watch.owed()
    await watched.until(9 + LIMIT_S + CONFIRM_S - 0.01)
    assert watched.said == []
    await watched.until(9 + LIMIT_S + CONFIRM_S)
    assert watched.said == [(9 + LIMIT_S + CONFIRM_S, LIMIT_S + CONFIRM_S)]


@virtual
async def test_a_front_that_was_stopped_reads_before_it_accuses() -> None:
    """The timer is found expired after a pause of ours; the answer that is read a moment later counts, and so does
    the whole limit of the unit that follows it."""
    watched = Watched()
    watched.watch.owed()
    watched.loop.advance(100)  # type: ignore[attr-defined]
    await watched.until(100.1)
    watched.watch.answered()
    watched.watch.owed()
    await watched.until(100.1 + LIMIT_S)
    assert watched.said == []
    watched.watch.answered()
    await watched.until(1000)
    assert watched.said == []


@virtual
@pytest.mark.parametrize("frozen_s", [15.0, 3600.0])
async def test_time_in_which_everything_was_frozen_counts_for_nobody(frozen_s: float) -> None:
    """A container that is paused in the middle of a unit: the unit has the rest of its limit after the thaw."""
    watched = Watched()
    watched.watch.owed()
    await watched.until(4.5)
    watched.loop.advance(frozen_s)  # type: ignore[attr-defined]
    await watched.until(4.5 + frozen_s + 5.0)
    assert watched.said == []
    assert watched.watch.owed_s == pytest.approx(10.0)
    await watched.until(4.5 + frozen_s + 100.0)
    assert [owed for _, owed in watched.said] == [pytest.approx(LIMIT_S + CONFIRM_S)]


@virtual
async def test_a_freeze_in_the_last_moment_is_forgiven_too() -> None:
    """Between the limit and its confirmation."""
    watched = Watched()
    watched.watch.owed()
    await watched.until(LIMIT_S + 0.1)
    watched.loop.advance(60.0)  # type: ignore[attr-defined]
    await watched.until(LIMIT_S + 60.2)
    assert watched.said == [], "the answer may be there, unread"
    watched.watch.answered()
    await watched.until(1000)
    assert watched.said == []


@virtual
async def test_without_a_limit_nothing_is_ever_said() -> None:
    """None is for ever, and makes no timer."""
    watched = Watched(None)
    watched.watch.owed()
    await watched.until(10.0**6)
    assert watched.said == []


@virtual
async def test_a_closed_watch_is_silent() -> None:
    """The host is gone: what it owed ends with it, whatever the watch is told afterwards."""
    watched = Watched()
    watched.watch.owed()
    watched.watch.close()
    watched.watch.owed()
    await watched.until(1000)
    assert watched.said == []
