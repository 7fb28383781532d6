"""BatchScheduler: whoever waits is sent together, within the limits; nobody notices a neighbour."""

from __future__ import annotations

import asyncio

import pytest

from frontend.errors import DeadlineExceeded, Unavailable
from frontend.runtime.admission import BoundedAdmission
from frontend.runtime.batches import BatchScheduler
from frontend.runtime.dispatch import Dispatch
from frontend.runtime.shape import BatchLimits, Shape
from frontend.runtime.signals import Signal
from tests.unit.runtime.fakes import FakeHost, admitted, new_context
from tests.virtual_time import settle, virtual, virtual_loop

ROW = Shape("rows", 1, 4, 10)


class Batches:
    """A host that is sent batches, and the frames it was sent."""

    def __init__(self, *, look_ahead: bool = False, layers: tuple[BoundedAdmission, ...] = (), **limits: float) -> None:
        self.host = FakeHost()
        self.frames: list[list[str]] = []
        self._seen = 0
        self.refuses: BaseException | None = None
        self.loses: set[str] = set()
        """Those that the socket refuses when the units of a batch are sent one by one."""
        self.signals: list[str] = []
        self.scheduler = BatchScheduler(
            "model",
            layers=layers,
            limits=BatchLimits(**limits),  # type: ignore[arg-type]
            look_ahead=look_ahead,
            flush=self._flush,
        )

    def _flush(self) -> None:
        sent = self.host.sent[self._seen :]
        self._seen = len(self.host.sent)
        if self.refuses is not None:
            raise self.refuses
        for name in self.loses & set(sent):
            self.host.fail(name, Unavailable("full", retry_after=1))
        self.frames.append(sent)

    def ask(self, name: str, shape: Shape | None = ROW, *, deadline: float | None = None) -> asyncio.Task[str]:
        async def ask() -> str:
            def observe(signal: Signal) -> None:
                self.signals.append(f"{type(signal).__name__} {name}")

            with new_context(
                *(admitted(layer) for layer in self.scheduler.layers), deadline=deadline, observer=observe
            ) as context:
                return await self.scheduler.run_with_context(context, self.host.start(name), shape=shape)

        return asyncio.create_task(ask())

    def answer(self, *names: str) -> None:
        for name in names:
            self.host.answer(name)


async def queued(batches: Batches, *shapes: tuple[str, Shape | None]) -> dict[str, asyncio.Task[str]]:
    """The units wait in this order behind one that is executed."""
    tasks = {"first": batches.ask("first", None)}
    await settle()
    tasks |= {name: batches.ask(name, shape) for name, shape in shapes}
    await settle()
    return tasks


@virtual
async def test_a_batch_is_whoever_waits_when_the_executor_becomes_free() -> None:
    """In queue order, at once, and nobody waits for company; signals are each unit's own."""
    batches = Batches(units=3)
    tasks = await queued(batches, *((name, ROW) for name in "abcde"))
    assert batches.frames == [["first"]], "the first one did not wait for company"
    batches.signals.clear()
    batches.answer("first")
    assert batches.frames == [["first"], ["a", "b", "c"]]
    assert batches.signals == [f"{signal} {name}" for signal in ("Granted", "Started") for name in "abc"]
    batches.answer("b", "a")
    assert len(batches.frames) == 2, "the permit belongs to the batch"
    batches.answer("c")
    assert batches.frames[2:] == [["d", "e"]]
    batches.answer("d", "e")
    assert set(await asyncio.gather(*tasks.values())) == {f"answer to {name}" for name in tasks}


@pytest.mark.parametrize(
    ("limits", "together"),
    [({"units": 9}, "abc"), ({"units": 9, "tokens": 8}, "ab"), ({"units": 9, "size": 29}, "ab"), ({"units": 1}, "a")],
)
@virtual
async def test_limits_close_a_batch(limits: dict[str, int], together: str) -> None:
    """Units, padded tokens (all rows times the longest) and bytes."""
    batches = Batches(**limits)
    tasks = await queued(batches, *((name, ROW) for name in "abc"))
    batches.answer("first")
    assert batches.frames[1] == list(together)
    while batches.host.busy:
        batches.answer(*list(batches.host.busy))
    await asyncio.gather(*tasks.values())


@virtual
async def test_what_is_above_a_limit_by_itself_is_sent_alone() -> None:
    """It is not refused here, and it is not passed over when it is the head."""
    batches = Batches(units=9, tokens=8)
    tasks = await queued(batches, ("huge", Shape("rows", 1, 99)), ("a", ROW), ("b", ROW))
    batches.answer("first")
    batches.answer("huge")
    assert batches.frames == [["first"], ["huge"], ["a", "b"]]
    batches.answer("a", "b")
    await asyncio.gather(*tasks.values())


@virtual
async def test_the_incompatible_are_never_sent_together() -> None:
    """Another key, and what says nothing of itself, wait for a batch of their own."""
    batches = Batches(units=9)
    tasks = await queued(batches, ("a", ROW), ("x", Shape("other", 1, 4)), ("lonely", None), ("b", ROW))
    batches.answer("first")
    assert batches.frames[1] == ["a", "b"]
    batches.answer("a", "b")
    assert batches.frames[2] == ["x"]
    batches.answer("x")
    assert batches.frames[3] == ["lonely"]
    batches.answer("lonely")
    await asyncio.gather(*tasks.values())


@virtual
async def test_who_does_not_fit_is_passed_a_bounded_number_of_times() -> None:
    """Over all batches together: then the batch closes before it."""
    batches = Batches(units=3, overtakes=3)
    tasks = await queued(batches, ("a", ROW), ("x", Shape("other")), *((name, ROW) for name in "bcdef"))
    batches.answer("first")
    assert batches.frames[1] == ["a", "b", "c"]
    batches.answer("a", "b", "c")
    assert batches.frames[2] == ["x"], "it was the head by then"
    batches.answer("x")
    assert batches.frames[3] == ["d", "e", "f"]
    batches.answer("d", "e", "f")
    await asyncio.gather(*tasks.values())


@virtual
async def test_a_passed_unit_closes_the_batch_that_would_pass_it_once_too_often() -> None:
    """Two overtakes are two units, not two batches."""
    batches = Batches(units=9, overtakes=2)
    tasks = await queued(batches, ("a", ROW), ("x", Shape("other")), *((name, ROW) for name in "bcd"))
    batches.answer("first")
    assert batches.frames[1] == ["a", "b", "c"]
    batches.answer("a", "b", "c")
    assert batches.frames[2] == ["x"]
    batches.answer("x")
    assert batches.frames[3] == ["d"]
    batches.answer("d")
    await asyncio.gather(*tasks.values())


@virtual
async def test_who_is_gone_before_the_send_is_not_in_the_frame() -> None:
    """Cancelled, or out of time, in the middle of the queue: its neighbours are sent without it."""
    batches = Batches(units=9)
    tasks = await queued(batches, ("a", ROW), ("leaves", ROW), ("b", ROW))
    late = batches.ask("late", deadline=virtual_loop().time() + 1)
    await settle()
    tasks["leaves"].cancel()
    virtual_loop().advance(1)
    batches.answer("first")
    assert batches.frames[1] == ["a", "b"]
    batches.answer("a", "b")
    with pytest.raises(DeadlineExceeded):
        await late
    assert (await asyncio.gather(*tasks.values(), return_exceptions=True))[1] == "answer to a"


@virtual
async def test_who_leaves_afterwards_is_abandoned_and_its_neighbours_notice_nothing() -> None:
    """Its clone, and with it its reservation, is kept until its own end, and not until the batch's."""
    slots = BoundedAdmission("slots", requests=9)
    batches = Batches(units=9, layers=(slots,))
    tasks = await queued(batches, ("a", ROW), ("b", ROW), ("c", ROW))
    batches.answer("first")
    tasks["b"].cancel()
    await settle()
    assert (batches.scheduler.statistics().running, batches.scheduler.statistics().abandoned) == (3, 1)
    assert slots.statistics().outstanding == 3
    batches.answer("b")
    assert slots.statistics().outstanding == 2, "its end is its own"
    assert batches.scheduler.statistics().running == 2
    batches.answer("a", "c")
    assert await tasks["a"] == "answer to a"
    assert await tasks["c"] == "answer to c"
    await settle()
    assert slots.statistics().outstanding == 0
    assert batches.scheduler.statistics().dropped_results == 1
    await tasks["first"]


@virtual
async def test_one_failure_is_one_units_affair() -> None:
    """Also that of a start callable: the others are sent, executed and answered."""
    batches = Batches(units=9)
    tasks = await queued(batches, ("a", ROW))

    def broken(dispatch: Dispatch[str]) -> None:
        raise OverflowError("it does not fit the wire")

    failing = asyncio.create_task(batches.scheduler.run_with_context(context := new_context(), broken, shape=ROW))
    await settle()
    tasks |= {name: batches.ask(name) for name in "bc"}
    await settle()
    batches.answer("first")
    assert batches.frames[1] == ["a", "b", "c"]
    with pytest.raises(OverflowError, match="fit the wire"):
        await failing
    context.close()
    batches.host.fail("b", ValueError("bad input"))
    batches.answer("a", "c")
    outcomes = await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert [type(outcome).__name__ for outcome in outcomes] == ["str", "str", "ValueError", "str"]


@virtual
async def test_a_frame_that_cannot_be_sent_ends_all_of_its_units() -> None:
    """Each with an error of its own; they count as not dispatched, and the next batch is tried."""
    batches = Batches(units=2)
    tasks = await queued(batches, *((name, ROW) for name in "abc"))
    batches.refuses = ConnectionError("no room in the socket")
    batches.signals.clear()
    batches.answer("first")
    await tasks["first"]
    outcomes = await asyncio.gather(*(tasks[name] for name in "abc"), return_exceptions=True)
    assert all(isinstance(outcome, ConnectionError) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert not any(signal.startswith("Started") for signal in batches.signals)
    seen = batches.scheduler.statistics()
    assert (seen.dispatched, seen.failed, seen.running, seen.waiting) == (1, 3, 0, 0)


@virtual
async def test_an_idle_executor_waits_for_company_only_if_it_is_told_to() -> None:
    """Until the time is over or the batch is full; a busy one never waits."""
    batches = Batches(units=2, wait_s=1.0)
    tasks = [batches.ask("a")]
    await settle()
    assert batches.frames == []
    virtual_loop().advance(1.0)
    await settle()
    assert batches.frames == [["a"]]
    tasks.append(batches.ask("b"))
    await settle()
    batches.answer("a")
    assert batches.frames == [["a"], ["b"]], "whoever waits when it becomes free"
    batches.answer("b")
    tasks += [batches.ask("c"), batches.ask("d")]
    await settle()
    assert batches.frames[2:] == [["c", "d"]], "nobody waits for a batch that is full"
    batches.answer("c", "d")
    await asyncio.gather(*tasks)


@virtual
async def test_one_batch_is_sent_ahead_and_started_when_its_turn_comes() -> None:
    """Granted at the send, started when the batch before has ended; never a third one."""
    batches = Batches(units=2, look_ahead=True)
    tasks = await queued(batches, *((name, ROW) for name in "abcd"))
    assert batches.frames == [["first"], ["a"]], "what came first is sent ahead, alone: nobody waits for company"
    assert "Granted a" in batches.signals
    assert "Started a" not in batches.signals
    seen = batches.scheduler.statistics()
    assert (seen.running, seen.staged, seen.waiting, seen.dispatched) == (1, 1, 3, 1)
    batches.answer("first")
    assert batches.frames[2:] == [["b", "c"]]
    assert "Started a" in batches.signals
    assert "Started b" not in batches.signals
    batches.answer("a", "b", "c", "d")
    await asyncio.gather(*tasks.values())


@virtual
async def test_what_was_sent_ahead_and_withdrawn_was_never_started() -> None:
    """Its reservation goes back when the host has said so. Until the turn comes nothing else is sent ahead: what waits
    in the socket stays bounded."""
    slots = BoundedAdmission("slots", requests=9)
    batches = Batches(look_ahead=True, layers=(slots,))
    tasks = await queued(batches, ("a", ROW), ("b", ROW))
    told: list[str] = []
    batches.host.busy["a"].on_abandoned(lambda: told.append("cancel a"))
    tasks["a"].cancel()
    await settle()
    assert told == ["cancel a"]
    assert slots.statistics().outstanding == 2 + 1, "the host may have begun with it by now"
    batches.host.busy.pop("a").withdraw()
    assert slots.statistics().outstanding == 2
    assert batches.frames == [["first"], ["a"]]
    batches.answer("first")
    assert batches.frames[2:] == [["b"]]
    assert "Started a" not in batches.signals
    batches.answer("b")
    await asyncio.gather(tasks["first"], tasks["b"])
    seen = batches.scheduler.statistics()
    assert (seen.completed, seen.withdrawn, seen.dispatched) == (2, 1, 2)


@virtual
async def test_units_of_a_dead_host_that_were_not_taken_keep_their_places() -> None:
    """What was executed has ended; what was staged, and what it had passed, is in its old order."""
    batches = Batches(units=2, look_ahead=True, overtakes=8)
    tasks = await queued(batches, ("a", ROW))
    tasks |= {name: batches.ask(name, Shape("other") if name == "x" else ROW) for name in ("b", "x", "c")}
    await settle()
    batches.answer("first")
    assert batches.frames == [["first"], ["a"], ["b", "c"]]
    batches.scheduler.suspend()
    batches.host.fail("a", ConnectionResetError("host died"))
    batches.signals.clear()
    for name in ("b", "c"):
        batches.host.requeue(name)
    assert batches.signals == ["Requeued b", "Requeued c"]
    batches.scheduler.resume()
    assert batches.frames[3:] == [["b", "c"], ["x"]]
    batches.answer("b", "c", "x")
    await asyncio.wait(tasks.values())
    assert sum(task.exception() is None for task in tasks.values()) == 4


@virtual
async def test_leaving_the_middle_of_a_deep_queue_looks_at_nobody_else() -> None:
    """Cancelling costs the same in a queue of a hundred and of ten thousand: no other unit is touched."""
    batches = Batches(units=4)
    tasks = await queued(batches)
    crowd = [batches.ask(str(number)) for number in range(2_000)]
    await settle()
    queue = batches.scheduler._queue
    looked = 0

    class Counting(type(queue)):  # type: ignore[misc]
        def __iter__(self) -> object:
            nonlocal looked
            looked += 1
            return super().__iter__()

    batches.scheduler._queue = Counting(queue)
    for task in crowd[500:1500]:
        task.cancel()
    await settle()
    assert looked == 0
    assert batches.scheduler.statistics().waiting == 1_000
    batches.answer("first")
    while batches.host.busy:
        batches.answer(*list(batches.host.busy))
    await asyncio.wait([*crowd, *tasks.values()])
    assert sum(not task.cancelled() for task in crowd) == 1_000


@virtual
async def test_a_unit_that_was_not_sent_is_not_said_to_have_started() -> None:
    """Of a batch that is too much for one frame list the second one is refused by the socket: the others start."""
    batches = Batches(units=3)
    tasks = await queued(batches, *((name, ROW) for name in "abc"))
    batches.loses = {"b"}
    batches.signals.clear()
    batches.answer("first")
    assert batches.signals == ["Granted a", "Granted b", "Granted c", "Started a", "Started c"]
    batches.answer("a", "c")
    with pytest.raises(Unavailable):
        await tasks.pop("b")
    await asyncio.gather(*tasks.values())
    assert batches.scheduler.statistics().dispatched == 3
