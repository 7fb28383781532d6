"""What the host makes of units: each answered once, alone or in company, whatever its neighbours do."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from executor_host.errors import DeviceMemory, FatalExecutionError, InputRefused, NonFinite
from executor_host.executors.base import Call, Executor, Progress
from executor_host.host.shared_state import MAX_CANCELLED, SharedState
from executor_host.host.units import Units, is_fatal
from protocol import families
from protocol.errors import Malformed, ProtocolError
from protocol.frames import Envelope
from protocol.messages import Evict, Execute, Failure, Message, Result
from protocol.retention import Cost, Held
from protocol.states import HostEvent

PEER = b"3-aa"
INCARNATION = "1-cc"


class Culprit(Exception):
    """A bug that a unit of the name "bad" finds in the executor."""


class Ballast:
    """What an execution holds on its device."""


class Joining(Executor):
    """Reads texts, several in one pass, and notes in which company each was."""

    def __init__(self, max_units: int = 8) -> None:
        super().__init__(None, {})
        self.max_units = max_units
        self.passes: list[list[str]] = []
        self.threads: set[int] = set()
        self.before: Callable[[str], None] = lambda name: None
        self.fitting = 99
        """Units for which the device has memory."""
        self.ballast: Callable[[], object] = lambda: None
        self.relieved: list[object] = []
        """By each time that memory was to be freed, what the last execution without any still held."""

    def relieve(self) -> None:
        self.relieved.append(self.ballast())

    def load(self, progress: Progress) -> Mapping[str, object]:
        raise NotImplementedError

    def warm_up(self) -> None:
        raise NotImplementedError

    def execute(self, payload: Any, call: Call) -> dict[str, Any]:
        (outcome,) = self._read([payload], [call])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def execute_many(self, payloads: Sequence[Any], calls: Sequence[Call]) -> list[Any]:
        return self._read(payloads, calls)

    def _read(self, payloads: Sequence[Any], calls: Sequence[Call]) -> list[Any]:
        names = [bytes(payload.document).decode() for payload in payloads]
        self.threads.add(threading.get_ident())
        self.passes.append(names)
        for name in names:
            self.before(name)
        if "bad" in names:
            raise Culprit("no client may read this")
        if "large" in names or len(names) > self.fitting:
            ballast = Ballast()
            self.ballast = weakref.ref(ballast)
            raise DeviceMemory("no memory left")
        if "device" in names:
            raise FatalExecutionError("the device is gone")
        special: dict[str, Any] = {
            "refused": InputRefused(422, "bad", ("state",), "not this"),
            "nan": NonFinite("not numbers"),
        }
        return [special.get(name, {"read": name}) for name in names]


class Serial(Joining):
    """One that knows nothing of batches: what the base class does for it."""

    def execute_many(self, payloads: Sequence[Any], calls: Sequence[Call]) -> list[Any]:
        return list(Executor.execute_many(self, payloads, calls))


@pytest.fixture
def shared_state() -> SharedState:
    made = SharedState(INCARNATION)
    for event in (HostEvent.WELCOME, HostEvent.LOADED, HostEvent.READY):
        made.advance(event)
    return made


def units_of(shared_state: SharedState, executor: Executor, family: str = "clef") -> Units:
    return Units(families.BUILT_IN[family], executor, shared_state)


def parts(*names: str, first: int = 1, budget_ms: int | None = None) -> list[Envelope | ProtocolError]:
    return [
        Envelope(INCARNATION, first + at, budget_ms, Execute(payload={"document": name.encode()}, request=name))
        for at, name in enumerate(names)
    ]


def answered(units: Units, batch: Sequence[Envelope | ProtocolError]) -> list[list[tuple[int, Message]]]:
    return list(units.execute_batch(PEER, batch))


TOLERANT = next(
    name for name, family in families.BUILT_IN.items() if not family.retire_on_error and "Text" in family.payload
)
STRICT = next(name for name, family in families.BUILT_IN.items() if family.retire_on_error and "Text" in family.payload)


def test_a_batch_is_read_in_one_pass_and_answered_at_once(shared_state: SharedState) -> None:
    """In the order of the calls, each with its own outputs; nothing is busy afterwards."""
    executor = Joining()
    seen: list[object] = []
    executor.before = lambda name: seen.append(tuple(shared_state.busy))
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), parts("a", "b", "c"))
    assert executor.passes == [["a", "b", "c"]]
    assert [(call, message.outputs) for call, message in answers] == [  # type: ignore[attr-defined]
        (1, {"read": "a"}), (2, {"read": "b"}), (3, {"read": "c"}),
    ]  # fmt: skip
    assert seen == [(("3-aa", 1), ("3-aa", 2), ("3-aa", 3))] * 3
    assert (shared_state.busy, shared_state.executed, shared_state.answered) == ((), 3, {"3-aa": 3})


def test_a_larger_batch_comes_in_portions(shared_state: SharedState) -> None:
    """Never more in one pass than the executor takes; each portion is answered when it is done."""
    executor = Joining(max_units=2)
    answers = answered(units_of(shared_state, executor, TOLERANT), parts("a", "b", "c", "d", "e"))
    assert executor.passes == [["a", "b"], ["c", "d"], ["e"]]
    assert [[call for call, _ in group] for group in answers] == [[1, 2], [3, 4], [5]]


def test_an_executor_without_batches_gets_one_unit_at_a_time(shared_state: SharedState) -> None:
    """And each is answered before the next begins."""
    executor = Serial(max_units=1)
    answers = answered(units_of(shared_state, executor, TOLERANT), parts("a", "refused", "b"))
    assert executor.passes == [["a"], ["refused"], ["b"]]
    assert [type(group[0][1]) for group in answers] == [Result, Failure, Result]


def test_the_default_executes_one_after_the_other(shared_state: SharedState) -> None:
    """A pass of several without an implementation of its own: what fails alone fails alone, nothing is done twice."""
    executor = Serial()
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), parts("a", "refused", "nan", "b"))
    assert executor.passes == [["a"], ["refused"], ["nan"], ["b"]]
    codes = [message.code if isinstance(message, Failure) else "" for _, message in answers]
    assert codes == ["", "input", "non_finite", ""]


def test_what_fails_alone_in_a_pass_is_its_own_affair(shared_state: SharedState) -> None:
    """Refused input and numbers that are none: the neighbours are answered from the same pass."""
    executor = Joining()
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), parts("a", "refused", "nan", "b"))
    assert executor.passes == [["a", "refused", "nan", "b"]]
    refused, nan = answers[1][1], answers[2][1]
    assert isinstance(refused, Failure)
    assert (refused.code, refused.status, refused.where) == ("input", 422, ["state"])
    assert isinstance(nan, Failure)
    assert nan.code == "non_finite"
    assert [type(message) for _, message in answers] == [Result, Failure, Failure, Result]


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("culprit", [0, 1, -1])
def test_a_pass_that_raises_is_halved_until_the_culprit_stands_alone(
    shared_state: SharedState, size: int, culprit: int
) -> None:
    """All others are answered; no unit is executed more than log2(n) + 1 times, and the culprit is told how often."""
    names = [f"unit {at}" for at in range(size)]
    names[culprit] = "bad"
    executor = Joining()
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), parts(*names))
    for name, (_, message) in zip(names, answers, strict=True):
        times = sum(name in names for names in executor.passes)
        assert times <= math.ceil(math.log2(size)) + 1
        if name == "bad":
            assert isinstance(message, Failure)
            assert (message.code, message.fatal) == ("executor_error", False)
            assert f"executed {times} times" in message.message
            assert "no client" not in message.message
        else:
            assert isinstance(message, Result)
            assert message.outputs == {"read": name}


def test_a_device_error_is_not_tried_again(shared_state: SharedState) -> None:
    """Every unit of the pass fails, the host retires, and what is behind it was not begun."""
    executor = Joining(max_units=2)
    first, second = answered(units_of(shared_state, executor, TOLERANT), parts("a", "device", "b", "c"))
    assert executor.passes == [["a", "device"]]
    assert all(is_fatal(message) for _, message in first)
    for _, message in second:
        assert isinstance(message, Failure)
        assert (message.code, message.dispatched) == ("draining", False)


def test_a_device_without_memory_costs_one_request(shared_state: SharedState) -> None:
    """Once; what its execution held is gone before the executor frees the rest, and the next one is answered."""
    executor = Serial()
    units = units_of(shared_state, executor, TOLERANT)
    for first in (1, 4):
        (answers,) = answered(units, parts("a", "large", "b", first=first))
        kinds = [getattr(message, "code", "") for _, message in answers]
        assert kinds == ["", "out_of_memory", ""]
        failure = answers[1][1]
        assert isinstance(failure, Failure)
        assert (failure.status, failure.fatal) == (503, False)
    assert set(executor.relieved) == {None}


def test_a_device_without_memory_twice_in_a_row_retires_the_host(shared_state: SharedState) -> None:
    """Whatever could be freed was freed before the second time."""
    executor = Serial(max_units=1)
    answers = answered(units_of(shared_state, executor, TOLERANT), parts("large", "refused", "large", "a"))
    found = [message for group in answers for _, message in group]
    assert [getattr(message, "code", "") for message in found] == ["out_of_memory", "input", "fatal", "draining"]
    assert [is_fatal(message) for message in found] == [False, False, True, False]
    assert len(executor.relieved) == 1


def test_a_pass_for_which_there_is_no_memory_is_halved(shared_state: SharedState) -> None:
    """Until its parts fit; nobody is told."""
    executor = Joining()
    executor.fitting = 1
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), parts("a", "b", "c", "d"))
    assert [type(message) for _, message in answers] == [Result] * 4
    assert executor.relieved == [None] * 3


def test_a_family_that_retires_on_any_error_retires_when_there_is_no_memory(shared_state: SharedState) -> None:
    """At once, every unit of the pass with it, and nothing is executed again."""
    executor = Joining()
    (answers,) = answered(units_of(shared_state, executor, STRICT), parts("a", "large"))
    assert executor.passes == [["a", "large"]]
    assert all(is_fatal(message) for _, message in answers)
    assert executor.relieved == []


def test_a_family_that_retires_on_any_error_does_so_for_the_culprit(shared_state: SharedState) -> None:
    """What came before it is answered; what comes after it was not begun."""
    executor = Joining()
    (answers,) = answered(units_of(shared_state, executor, STRICT), parts("a", "b", "bad", "c"))
    kinds = [type(message) for _, message in answers]
    assert kinds == [Result, Result, Failure, Failure]
    assert is_fatal(answers[2][1])
    assert not is_fatal(answers[3][1])


def test_a_malformed_part_is_answered_with_what_is_wrong_with_it(shared_state: SharedState) -> None:
    """Its neighbours are executed; a payload that is none counts, too."""
    executor = Joining()
    batch = parts("a", "b", "c")
    batch[1] = Malformed("not msgpack", call=2)
    batch[2] = Envelope(INCARNATION, 3, None, Execute(payload={"document": 5}))
    (answers,) = answered(units_of(shared_state, executor, TOLERANT), batch)
    assert executor.passes == [["a"]]
    assert [type(message) for _, message in answers] == [Result, Failure, Failure]
    assert [message.code for _, message in answers[1:]] == ["protocol", "protocol"]  # type: ignore[attr-defined]
    assert shared_state.stale == 1


def test_the_work_is_done_on_the_thread_that_brings_it(shared_state: SharedState) -> None:
    """The host's main thread: it is the reason for the process, as device libraries want one."""
    executor = Joining()
    units = units_of(shared_state, executor, TOLERANT)
    answered(units, parts("a", "b"))
    (envelope,) = parts("c", first=3)
    assert isinstance(envelope, Envelope)
    units.execute(PEER, envelope)
    assert executor.threads == {threading.get_ident()}


def test_a_cancel_that_overtakes_its_unit_is_remembered(shared_state: SharedState) -> None:
    """The unit is answered and never executed, alone or in a batch; others are not concerned."""
    executor = Joining()
    units = units_of(shared_state, executor, TOLERANT)
    assert shared_state.cancel(("3-aa", 1)) == "not_begun"
    assert shared_state.cancel(("3-aa", 3)) == "not_begun"
    (envelope,) = parts("gone")
    assert isinstance(envelope, Envelope)
    answer = units.execute(PEER, envelope)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.dispatched) == ("cancelled", False)
    (answers,) = answered(units, parts("a", "gone", "b", first=2))
    assert executor.passes == [["a", "b"]]
    assert [type(message) for _, message in answers] == [Result, Failure, Result]
    assert not shared_state.cancelled, "what has ended is forgotten"


def test_a_cancel_says_what_it_found(shared_state: SharedState) -> None:
    """Running while it is executed, in company, too; not running when it has ended; of another front's nothing."""
    executor = Joining()
    units = units_of(shared_state, executor, TOLERANT)
    found: list[str] = []
    executor.before = lambda name: found.append(shared_state.cancel(("3-aa", 2)))
    answered(units, parts("a", "b"))
    assert found == ["running", "running"]
    executor.before = lambda name: None
    assert shared_state.cancel(("3-aa", 2)) == "not_running"
    assert shared_state.cancel(("3-aa", 3)) == "not_begun"
    assert shared_state.cancel(("4-bb", 1)) == "not_begun", "calls are each front's own"


def test_a_front_cannot_fill_the_memory_of_cancels(shared_state: SharedState) -> None:
    """The oldest of those that nothing came for are forgotten."""
    for call in range(1, MAX_CANCELLED + 3):
        shared_state.cancel(("3-aa", call))
    assert len(shared_state.cancelled) == MAX_CANCELLED
    assert ("3-aa", 2) not in shared_state.cancelled
    assert ("3-aa", MAX_CANCELLED + 2) in shared_state.cancelled


def test_time_that_a_frame_waited_comes_off_its_budget(
    shared_state: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that stood still for two seconds does not execute what had one; the other unit has what is left."""
    executor = Joining()
    units = units_of(shared_state, executor, TOLERANT)
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ahead_ms = 5_000_000  # the front's clock is another one
    shared_state.ages.age_ms("3-aa", ahead_ms)
    now += 2.0
    batch: list[Envelope | ProtocolError] = [
        Envelope(INCARNATION, 1, 1000, Execute(payload={"document": b"late"}, sent_ms=ahead_ms)),
        Envelope(INCARNATION, 2, 5000, Execute(payload={"document": b"in time"}, sent_ms=ahead_ms)),
        Envelope(INCARNATION, 3, 1000, Execute(payload={"document": b"just sent"}, sent_ms=ahead_ms + 2000)),
        Envelope(INCARNATION, 4, 1000, Execute(payload={"document": b"says nothing"})),
    ]
    (answers,) = answered(units, batch)
    assert executor.passes == [["in time", "just sent", "says nothing"]]
    late = answers[0][1]
    assert isinstance(late, Failure)
    assert (late.code, late.dispatched) == ("expired", False)


class Keeping:
    """What stays between units, as far as a test has to see it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def cost(self) -> Cost:
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError

    def allow(self, prefixes: int) -> None:
        self.done.append(prefixes)

    def begin_turn(self) -> None:
        self.done.append("begin")

    def end_turn(self, conversation: str | None) -> Held:
        self.done.append(conversation)
        return Held(prefixes=5, tokens=3, bytes=30, found=2)

    def drop(self, conversations: Iterable[str]) -> None:
        self.done.append(list(conversations))


class Keeper(Joining):
    """One that keeps what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.keeping = Keeping()

    @property
    def kept(self) -> Keeping:
        return self.keeping


def turn(name: str, keep: dict[str, Any] | None, call: int = 1) -> Envelope:
    return Envelope(INCARNATION, call, None, Execute(payload={"document": name.encode()}, keep=keep))


def test_a_turn_is_told_what_may_stay_and_says_what_does(shared_state: SharedState) -> None:
    """A unit that says nothing of it leaves nothing. What is held is told to a front that comes later."""
    executor = Keeper()
    units = units_of(shared_state, executor, TOLERANT)
    answer = units.execute(PEER, turn("a", {"conversation": "bob\nx", "prefixes": 70}))
    assert isinstance(answer, Result)
    assert answer.held == {"prefixes": 5, "tokens": 3, "bytes": 30, "found": 2}
    assert shared_state.held == {"bob\nx": [3, 30]}
    units.execute(PEER, turn("b", None, 2))
    assert executor.keeping.done == [70, "begin", "bob\nx", 0, "begin", ""]
    units.evict(Evict(conversations=["bob\nx", "unknown"], prefixes=9))
    assert executor.keeping.done[-2:] == [9, ["bob\nx", "unknown"]]
    assert shared_state.held == {}


@pytest.mark.parametrize("name", ["bad", "refused", "nan"])
def test_a_turn_that_fails_pins_nothing(shared_state: SharedState, name: str) -> None:
    """What its conversation had stays."""
    executor = Keeper()
    shared_state.held["c"] = [1, 2]
    answer = units_of(shared_state, executor, TOLERANT).execute(PEER, turn(name, {"conversation": "c", "prefixes": 0}))
    assert isinstance(answer, Failure)
    assert executor.keeping.done == [0, "begin", None]
    assert shared_state.held == {"c": [1, 2]}


def test_units_of_an_executor_that_keeps_something_come_alone(shared_state: SharedState) -> None:
    """Also of a batch: each is a turn of its own."""
    executor = Keeper()
    answered(units_of(shared_state, executor), parts("a", "b"))
    assert executor.passes == [["a"], ["b"]]


@pytest.mark.parametrize(
    "keep",
    [
        {},
        {"conversation": 1, "prefixes": 0},
        {"conversation": "c", "prefixes": -1},
        {"conversation": "c" * 401, "prefixes": 0},
        {"conversation": "c", "prefixes": 0, "more": 1},
    ],
)
def test_what_a_front_says_of_keeping_is_checked(shared_state: SharedState, keep: dict[str, Any]) -> None:
    """A unit that says something else is not begun."""
    executor = Keeper()
    answer = units_of(shared_state, executor).execute(PEER, turn("a", keep))
    assert isinstance(answer, Failure)
    assert (answer.code, executor.passes) == ("protocol", [])
