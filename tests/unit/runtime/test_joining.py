"""Equal work once: each caller keeps its own admission, context, signals and end; the work lives while one lives."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from frontend.errors import DeadlineExceeded, Misuse
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.joining import twin
from frontend.runtime.scheduler import SerialScheduler
from frontend.runtime.signals import Granted, Signal
from tests.unit.runtime.fakes import FakeHost, admitted, new_context
from tests.virtual_time import settle, virtual, virtual_loop

SAME = b"the same"


class Callers:
    """Requests of one queue, each with a slot of its own, whose signals are kept."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.slots = BoundedAdmission("slots", requests=99)
        self.scheduler = SerialScheduler("model", layers=(self.slots,))
        self.signals: dict[str, list[Signal]] = {}
        self.told: list[str] = []
        self.digested: list[str] = []

    def ask(self, name: str, digest: bytes | None = SAME, *, deadline: float | None = None) -> asyncio.Task[str]:
        heard = self.signals[name] = []
        send = self.host.start(name)

        def start(dispatch: object) -> None:
            send(dispatch)  # type: ignore[arg-type]
            dispatch.on_abandoned(lambda: self.told.append(name))  # type: ignore[attr-defined]

        def digested() -> bytes | None:
            self.digested.append(name)
            return digest

        async def ask() -> str:
            with new_context(admitted(self.slots), deadline=deadline, observer=heard.append) as context:
                return await self.scheduler.run_with_context(
                    context, start, digest=None if digest is None else digested
                )

        return asyncio.create_task(ask())

    def heard(self, name: str) -> str:
        return "".join(type(signal).__name__[0] for signal in self.signals[name])

    @property
    def held(self) -> int:
        return self.slots.statistics().outstanding


@virtual
async def test_a_lone_caller_pays_for_no_digest() -> None:
    """Its digest is made when another unit comes that might be equal, once, and never after its end."""
    callers = Callers()
    for name in ("a", "b"):
        alone = callers.ask(name)
        await settle()
        callers.host.answer(name)
        await alone
    assert callers.digested == []
    tasks = [callers.ask(name, digest) for name, digest in (("c", SAME), ("d", b"other"), ("e", SAME))]
    await settle()
    assert callers.digested == ["c", "d", "e"]
    assert callers.scheduler.statistics().joined == 1
    for name in ("c", "d"):
        callers.host.answer(name)
    await asyncio.gather(*tasks)
    assert not callers.scheduler.has_equal(SAME)


@virtual
async def test_equal_work_that_waits_is_executed_once() -> None:
    """Both are answered, both were admitted and told of the grant, and each is counted once."""
    callers = Callers()
    tasks = [callers.ask("busy", None), callers.ask("a"), callers.ask("b"), callers.ask("other", b"other")]
    await settle()
    assert [callers.heard(name) for name in ("a", "b")] == ["A", "A"]
    seen = callers.scheduler.statistics()
    assert (seen.waiting, seen.joined, callers.held) == (2, 1, 4)
    callers.host.answer("busy")
    assert [callers.heard(name) for name in ("a", "b")] == ["AGS", "AGS"]
    granted = [signal for name in "ab" for signal in callers.signals[name] if isinstance(signal, Granted)]
    assert [signal.joined for signal in granted] == [False, True]
    callers.host.answer("a")
    callers.host.answer("other")
    assert callers.host.sent == ["busy", "a", "other"]
    assert await asyncio.gather(*tasks) == ["answer to busy", "answer to a", "answer to a", "answer to other"]
    seen = callers.scheduler.statistics()
    assert (seen.completed, seen.joins, seen.joined, seen.dispatched, callers.held) == (4, 1, 0, 3, 0)


@virtual
async def test_who_comes_while_it_is_executed_is_told_what_has_happened_already() -> None:
    """Admitted, granted and started in one step, and the answer with the first one."""
    callers = Callers()
    first = callers.ask("a")
    await settle()
    second = callers.ask("b")
    await settle()
    assert callers.heard("b") == "AGS"
    callers.host.answer("a")
    assert await asyncio.gather(first, second) == ["answer to a"] * 2
    third = callers.ask("c")
    await settle()
    assert callers.host.sent == ["a", "c"], "what has ended is not joined"
    callers.host.answer("c")
    await third


@virtual
async def test_its_failure_is_everybodys_each_with_an_error_of_its_own() -> None:
    """Equal ones: one instance raised in several tasks would grow one traceback."""
    callers = Callers()
    tasks = [callers.ask(name) for name in "abc"]
    await settle()
    callers.host.fail("a", ValueError("the host said no"))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [(type(outcome), str(outcome)) for outcome in outcomes] == [(ValueError, "the host said no")] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    seen = callers.scheduler.statistics()
    assert (seen.failed, seen.joined, callers.held) == (3, 0, 0)


@virtual
async def test_the_place_goes_to_the_next_when_the_first_one_leaves_the_queue() -> None:
    """The work keeps its turn, the one who left has its reservation back at once, and nothing is sent for it."""
    callers = Callers()
    tasks = {name: callers.ask(name, None if name == "busy" else SAME) for name in ("busy", "a")}
    await settle()
    tasks["between"] = callers.ask("between", None)
    tasks |= {name: callers.ask(name) for name in ("b", "c")}
    await settle()
    tasks["a"].cancel()
    await settle()
    seen = callers.scheduler.statistics()
    assert (callers.held, seen.waiting, seen.joined) == (4, 1, 2)
    callers.host.answer("busy")
    assert callers.host.sent == ["busy", "b"], "in the place of the first one"
    callers.host.answer("b")
    callers.host.answer("between")
    assert await tasks["b"] == await tasks["c"] == "answer to b"
    assert callers.heard("a") == "A"
    assert await tasks["between"] == "answer to between"


@virtual
async def test_a_place_that_nobody_wants_any_more_is_given_up() -> None:
    """The first one left, then the ones that had joined: nothing is executed and the digest is free."""
    callers = Callers()
    tasks = {name: callers.ask(name, None if name == "busy" else SAME) for name in ("busy", "a", "b")}
    await settle()
    for name in ("a", "b"):
        tasks[name].cancel()
        await settle()
    seen = callers.scheduler.statistics()
    assert (seen.waiting, seen.joined, seen.withdrawn, callers.held) == (0, 0, 2, 1)
    callers.host.answer("busy")
    assert callers.host.sent == ["busy"]
    again = callers.ask("again")
    await settle()
    callers.host.answer("again")
    assert await again == "answer to again"
    await tasks["busy"]


@virtual
async def test_the_host_is_told_when_the_last_of_them_has_left() -> None:
    """And not before; whoever comes after that does not join what may be stopped half-way."""
    callers = Callers()
    tasks = {name: callers.ask(name) for name in "ab"}
    await settle()
    tasks["a"].cancel()
    await settle()
    assert callers.told == []
    assert callers.held == 2, "what was dispatched for it is executed still"
    tasks["b"].cancel()
    await settle()
    assert callers.told == ["a"]
    assert callers.held == 1
    late = callers.ask("late")
    await settle()
    callers.host.answer("a")
    assert callers.host.sent == ["a", "late"]
    callers.host.answer("late")
    assert await late == "answer to late"
    assert callers.held == 0


@virtual
async def test_nobody_joins_what_its_only_caller_has_left() -> None:
    """The host was told to stop: it may be answered with nothing, or half."""
    callers = Callers()
    left = callers.ask("left")
    await settle()
    left.cancel()
    await settle()
    assert callers.told == ["left"]
    late = callers.ask("late")
    await settle()
    assert callers.heard("late") == "A"
    callers.host.answer("left")
    assert callers.host.sent == ["left", "late"]
    callers.host.answer("late")
    assert await late == "answer to late"


@virtual
async def test_a_deadline_is_its_owners() -> None:
    """In the queue, at the grant: the one whose time is over ends, the others have the work done."""
    callers = Callers()
    soon = virtual_loop().time() + 1
    tasks = [
        callers.ask("busy", None),
        callers.ask("a", deadline=soon),
        callers.ask("b"),
        callers.ask("c", deadline=soon),
    ]
    await settle()
    virtual_loop().advance(1)
    callers.host.answer("busy")
    assert callers.host.sent == ["busy", "b"]
    callers.host.answer("b")
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["str", "DeadlineExceeded", "str", "DeadlineExceeded"]
    assert callers.held == 0


@virtual
async def test_a_host_that_stops_at_the_first_ones_deadline_goes_on_for_the_others() -> None:
    """The work is in its place of the queue again, for those who have time left."""
    callers = Callers()
    tasks = {name: callers.ask(name) for name in "ab"}
    await settle()
    tasks["behind"] = callers.ask("behind", None)
    await settle()
    callers.host.fail("a", DeadlineExceeded("the budget was spent"))
    assert callers.host.sent == ["a", "b"]
    assert callers.heard("b") == "AGSRGS"
    with pytest.raises(DeadlineExceeded):
        await tasks["a"]
    callers.host.answer("b")
    callers.host.answer("behind")
    assert await tasks["b"] == "answer to b"
    await tasks["behind"]
    assert callers.held == 0


@virtual
async def test_a_dead_hosts_unit_comes_back_with_all_who_have_joined_it() -> None:
    """Executed once by the next one; also when the first one has left meanwhile."""
    callers = Callers()
    tasks = {name: callers.ask(name) for name in "abc"}
    await settle()
    tasks["a"].cancel()
    await settle()
    callers.scheduler.suspend()
    callers.host.requeue("a")
    assert callers.held == 2
    callers.scheduler.resume()
    assert callers.host.sent == ["a", "b"]
    callers.host.answer("b")
    assert await tasks["b"] == await tasks["c"] == "answer to b"
    assert callers.heard("c") == "AGSRGS"


@virtual
async def test_a_queue_that_is_given_up_tells_every_one_of_them() -> None:
    """Each has an error of its own, and those who have joined what is executed go on waiting for it."""
    callers = Callers()
    running = [callers.ask(name, b"running") for name in ("r1", "r2")]
    await settle()
    waiting = [callers.ask(name) for name in "ab"]
    await settle()
    assert callers.scheduler.fail_waiting(lambda: ConnectionError("another model")) == 2
    assert all(isinstance(each, ConnectionError) for each in await asyncio.gather(*waiting, return_exceptions=True))
    callers.host.answer("r1")
    assert await asyncio.gather(*running) == ["answer to r1"] * 2


@virtual
async def test_a_known_answer_asks_admission_all_the_same() -> None:
    """It announces Admitted, needs every layer, and counts."""
    callers = Callers()
    with new_context() as context, pytest.raises(Misuse, match="without asking"):
        callers.scheduler.admit_answered(context)
    heard: list[Signal] = []
    with new_context(admitted(callers.slots), observer=heard.append) as context:
        callers.scheduler.admit_answered(context)
        callers.scheduler.admit_answered(context)
    assert [type(signal).__name__ for signal in heard] == ["Admitted"]
    late = new_context(admitted(callers.slots), deadline=virtual_loop().time())
    with late, pytest.raises(DeadlineExceeded):
        callers.scheduler.admit_answered(late)
    assert callers.scheduler.statistics().answers_kept == 2


def test_a_twin_says_the_same() -> None:
    """With its attributes and its cause; what cannot be made again is itself."""

    class Fussy(Exception):
        def __init__(self, message: str, *, retry_after: int) -> None:
            super().__init__(message)
            self.retry_after = retry_after

    error = Fussy("later", retry_after=3)
    error.__cause__ = KeyError("why")
    made = twin(error)
    assert made is not error
    assert (type(made), str(made), made.retry_after, made.__cause__) == (Fussy, "later", 3, error.__cause__)

    class Single(Exception):
        def __new__(cls, *args: object) -> Self:
            if args:
                raise TypeError("only one")
            return super().__new__(cls)

    single = Single()
    single.args = ("more",)
    assert twin(single) is single
