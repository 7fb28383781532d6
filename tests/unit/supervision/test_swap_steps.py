"""A swap as a list of events: which steps, in which order, and what a failing one leaves behind."""

from __future__ import annotations

import pytest

from executor_host.supervision.swap import START_FIRST, STOP_FIRST, Event, Freed, Mode, Step, Swap, SwapReport
from protocol.errors import BadTransition
from protocol.states import RoleEvent
from tests.helpers.supervision import Clock


class SwapWorld:
    """The effects of one swap, recorded as words."""

    def __init__(self, mode: Mode) -> None:
        self.clock = Clock()
        self.report: SwapReport | None = None
        self.why = ""
        self._words: list[str] = []
        self.swap = Swap("m", "m@1", "m@2", mode, self, self.clock)
        self.swap.begin()

    def take(self) -> list[str]:
        """The effects since the last time."""
        words, self._words = self._words, []
        return words

    def create(self) -> None:
        self._words.append("create")

    def become(self, deployment: str, event: RoleEvent) -> None:
        self._words.append(f"{event.value} {deployment}")

    def publish(self) -> None:
        self._words.append("publish")

    def begin(self, deployment: str, room_of: str | None) -> None:
        self._words.append(f"begin {deployment}" + (f" in the room of {room_of}" if room_of else ""))

    def await_drained(self, deployment: str) -> None:
        self._words.append(f"drain {deployment}")

    def stop(self, deployment: str, *, at_once: bool) -> None:
        self._words.append(f"{'end' if at_once else 'stop'} {deployment}")

    def drop(self, deployment: str) -> None:
        self._words.append(f"drop {deployment}")

    def say(self, text: str) -> None:
        pass

    def succeed(self, report: SwapReport) -> None:
        self.report = report

    def fail(self, why: str) -> None:
        self.why = why


def test_start_first_leaves_no_moment_without_a_host() -> None:
    """The old one is stopped when the name means the new one and its last request has ended."""
    world = SwapWorld(Mode.START_FIRST)
    assert world.take() == ["create", "begin m@2"]
    world.swap.ready()
    assert world.take() == ["switch m@2", "replace m@1", "publish", "drain m@1"]
    world.swap.drained()
    assert world.take() == ["stop m@1"]
    world.clock.now += 2.0
    world.swap.gone(Freed(100, 0))
    assert world.take() == ["drop m@1"]
    assert world.report == SwapReport("m", "m@1", "m@2", "start-first", 2.0, 0.0, 100, 0)


def test_start_first_that_cannot_start_touches_nothing() -> None:
    """The new processes are ended, the name means what it meant."""
    world = SwapWorld(Mode.START_FIRST)
    world.take()
    world.swap.failed("it cannot be read")
    assert world.take() == ["end m@2"]
    world.swap.gone(Freed(0, 0))
    assert world.take() == ["replace m@2", "drop m@2"]
    assert world.why == "m@2 could not be started: it cannot be read. m@1 has not been touched and serves on"


def test_stop_first_starts_when_the_old_one_is_gone() -> None:
    """In its room, which nobody else gets in between; the gap is told."""
    world = SwapWorld(Mode.STOP_FIRST)
    assert world.take() == ["hold m@1", "publish", "drain m@1"]
    world.swap.drained()
    assert world.take() == ["stop m@1"]
    world.swap.gone(Freed(100, 7))
    assert world.take() == ["create", "begin m@2 in the room of m@1"]
    world.clock.now += 3.0
    world.swap.ready()
    assert world.take() == ["switch m@2", "replace m@1", "drop m@1"]
    assert world.report == SwapReport("m", "m@1", "m@2", "stop-first", 3.0, 3.0, 100, 7)


@pytest.mark.parametrize("again", ["", "no memory"])
def test_stop_first_that_cannot_start_brings_the_old_one_back(again: str) -> None:
    """It takes those who waited, or it is said that it could not."""
    world = SwapWorld(Mode.STOP_FIRST)
    world.swap.drained()
    world.swap.gone(Freed(100, 0))
    world.take()
    world.swap.failed("it cannot be read")
    assert world.take() == ["end m@2"]
    world.swap.gone(Freed(0, 0))
    assert world.take() == ["replace m@2", "begin m@1 in the room of m@2"]
    if again:
        world.swap.failed(again)
    else:
        world.swap.ready()
    assert world.take() == ["restore m@1", "drop m@2"]
    how = f"could not be started again either: {again}" if again else "serves again"
    assert world.why == f"m@2 could not be started: it cannot be read. m@1 {how}; newcomers waited 0.00 s"


@pytest.mark.parametrize("mode", Mode)
def test_an_event_out_of_its_order_is_loud(mode: Mode) -> None:
    """A swap whose steps are mixed up must not go on."""
    with pytest.raises(BadTransition):
        SwapWorld(mode).swap.gone(Freed(0, 0))


@pytest.mark.parametrize("table", [START_FIRST, STOP_FIRST], ids=["start-first", "stop-first"])
def test_every_step_leads_to_an_end(table: dict[tuple[Step, Event], Step]) -> None:
    """Nothing is waited for without anything after it."""
    ends = {Step.DONE, Step.FAILED}
    assert {state for state, _ in table}.isdisjoint(ends)
    assert set(table.values()) <= {state for state, _ in table} | ends
