"""Two hundred seeds of the simulation; `python -m tests.simulation` runs as many as one likes."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.simulation.run import BoundedLoop, Event, Run, events_of
from tests.virtual_time import run_virtual

SEEDS = 200


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_seed(seed: int) -> None:
    """Each request has one end, every budget is whole again, every model answers, and a stop is clean."""
    Run(seed)()


def test_the_seeds_reach_what_they_are_for() -> None:
    """Every kind of fault comes, and requests end in every way there is."""
    happened = Counter(event.what for seed in range(SEEDS) for event in events_of(seed))
    assert min(happened.values()) > SEEDS // 4, happened
    ends: Counter[str] = Counter()
    for seed in range(20):
        run = Run(seed)
        run()
        ends.update(end for asked in run.asked for end in asked.ends)
    assert {"answered", "Unavailable", "TimedOut", "InternalError", "HostDied", "HostLost", "gone"} <= ends.keys(), ends


def test_a_seed_runs_again_exactly() -> None:
    """To the last line of the log and the last microsecond."""
    first, again = Run(7), Run(7)
    first()
    again()
    assert first.trace == again.trace
    assert len(first.trace) > 10


def test_a_failing_run_says_how_it_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seed and its events, as the call that repeats it."""
    monkeypatch.setattr("tests.simulation.run.Run._not_given_back", lambda _: "a host is left")
    with pytest.raises(AssertionError, match="a host is left") as told:
        Run(1, [Event(14.9, "kill a host", 0.0)])()
    assert "Run(1, [\n    (14.9, 'kill a host', 0.0, 0.0, 0.0, 0.0),\n])()" in str(told.value)


@pytest.mark.parametrize("width", [1, 3_000])
def test_a_loop_that_spins_is_noticed(width: int) -> None:
    """Two parts that answer each other for ever, or thousands at once, are a failure and no hang."""

    async def spin() -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            for _ in range(width):
                loop.call_soon(again if width == 1 else lambda: None)

        again()
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="turn"):
        run_virtual(spin(), BoundedLoop)
