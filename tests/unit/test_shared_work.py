"""What a deployment does at once, ahead and only once: from the pipeline to the frames of a fake host, and back."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from frontend.errors import HostDied, InternalError, Poisoned
from frontend.families.base import Decision
from frontend.serving import equal
from frontend.serving.answer_cache import ENTRY_BYTES, AnswerCache, held_bytes
from protocol import families
from protocol.messages import CancelAnswer, Result
from protocol.tensors import Blob
from tests.helpers import fake_family
from tests.helpers.asking import Asking
from tests.helpers.fake_host import failure, until, zmq_context
from tests.unit.test_deployment import Bench

Make = Callable[..., Bench]


@pytest.fixture(autouse=True)
def _family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(families.BUILT_IN, "fake", dataclasses.replace(fake_family.FAKE, pure=True))


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:
        context = stack.enter_context(zmq_context())

        def made(**settings: Any) -> Bench:
            bench = Bench(context, **{"max_requests": 10, "max_cost": 100, **settings})
            stack.callback(bench.close)
            return bench

        yield made


def outputs(decision: Decision) -> list[Any]:
    return [output["call"] for output in decision.extras["x_all"]]


async def joined(bench: Bench, number: int) -> None:
    await until(lambda: bench.deployment.scheduler.statistics().joined == number, f"{number} joined")


async def test_who_waits_is_sent_in_one_frame_list(make: Make) -> None:
    """In queue order, each with a call of its own; answers of one frame list end each its own."""
    bench = make(batch={"units": 8})
    host = await bench.host()
    first = bench.ask("first")
    call = (await host.unit()).call
    asked = [bench.ask(name) for name in ("a", "b", "c")]
    await bench.waiting(3)
    host.answer(call)
    calls = [(await host.unit()).call for _ in asked]
    ((batch, together),) = host.batches
    assert together == calls
    host.answer_together(
        batch, [(calls[1], failure("executor_error")), (calls[2], Result(outputs={"call": calls[2]}, elapsed_us=1))]
    )
    host.answer(calls[0])
    assert outputs(await asked[0]) == [calls[0]]
    with pytest.raises(InternalError):
        await asked[1]
    assert outputs(await asked[2]) == [calls[2]]
    await first
    assert bench.held() == [(0, 0), (0, 0)]


async def test_a_dead_hosts_batch_is_taken_as_a_whole_and_what_was_staged_keeps_its_place(make: Make) -> None:
    """Taken: 503 for each of its units. Staged and not taken: the next host gets it, before all others."""
    bench = make(batch={"units": 2}, look_ahead=True)
    host = await bench.host("1-a")
    asked = {"a": bench.ask("a")}
    taken = (await host.unit()).call
    asked |= {name: bench.ask(name) for name in "bcd"}
    staged = await host.unit()
    await bench.waiting(2)
    bench.deployment.host_down(host.down(taken={"front-1": taken}))
    with pytest.raises(HostDied):
        await asked["a"]
    await bench.waiting(3)
    successor = await bench.host("2-b")
    sent = [await successor.unit() for _ in range(3)]
    assert [unit.message.payload for unit in sent[:1]] == [staged.message.payload]  # type: ignore[attr-defined]
    for unit in sent:
        successor.answer(unit.call)
    await asyncio.gather(*(asked[name] for name in "bcd"))
    assert bench.held() == [(0, 0), (0, 0)]


async def test_what_was_sent_ahead_is_withdrawn_while_the_host_is_busy(make: Make) -> None:
    """Its slot and its cost go back on the host's word, long before the host comes to its frame."""
    bench = make(look_ahead=True)
    host = await bench.host()
    first, ahead = bench.ask("first"), bench.ask("ahead")
    running, staged = [(await host.unit()).call for _ in range(2)]
    assert bench.deployment.scheduler.statistics().staged == 1
    ahead.cancel()
    assert await host.cancelled() == staged
    assert bench.held() == [(2, 0), (2, 2)]
    host.tell(CancelAnswer(outcome="not_begun"), staged)
    await until(lambda: bench.held()[0] == (1, 0), "the slot is back")
    assert bench.deployment.scheduler.statistics().withdrawn == 1
    host.answer(running)
    await first
    # The host meets the frame and says so: nobody waits for that.
    host.answer(staged, failure("cancelled", dispatched=False))
    last = bench.ask("last")
    host.answer((await host.unit()).call)
    await last
    statistics = bench.deployment.statistics().link
    assert statistics is not None
    assert (statistics.late, statistics.unknown, statistics.outstanding) == (1, 0, 0)


async def test_one_that_runs_is_not_withdrawn(make: Make) -> None:
    """Its permit stays until the host has answered."""
    bench = make()
    host = await bench.host()
    asked = bench.ask("x")
    call = (await host.unit()).call
    asked.cancel()
    assert await host.cancelled() == call
    host.tell(CancelAnswer(outcome="running"), call)
    behind = bench.ask("behind")
    await bench.waiting(1)
    host.answer(call)
    host.answer((await host.unit()).call)
    await behind


async def test_equal_requests_are_executed_once(make: Make) -> None:
    """Each takes a slot and its cost of its own, and gives both back at its own end."""
    bench = make()
    host = await bench.host()
    asked = [bench.ask("same") for _ in range(3)]
    unit = await host.unit()
    await joined(bench, 2)
    assert bench.held() == [(3, 0), (3, 3)]
    asked[0].cancel()
    await asyncio.wait(asked[:1])
    assert host.cancels.empty(), "somebody waits for it"
    host.answer(unit.call)
    assert [outputs(await task) for task in asked[1:]] == [[unit.call]] * 2
    assert host.units.empty()
    assert bench.held() == [(0, 0), (0, 0)]
    assert bench.deployment.scheduler.statistics().joins == 2


@pytest.mark.parametrize("off", ["configuration", "family", "port"])
async def test_joining_can_be_off(make: Make, off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per model, by a family whose answers depend on more than the payload, and on listeners that share nothing."""
    if off == "family":
        monkeypatch.setitem(families.BUILT_IN, "fake", fake_family.FAKE)
    if off == "port":
        monkeypatch.setattr(Asking, "SHARES", False)
    bench = make(answer_cache_mb=1 if off == "family" else 0, **({"join": False} if off == "configuration" else {}))
    host = await bench.host()
    asked = [bench.ask("same") for _ in range(2)]
    for _ in asked:
        host.answer((await host.unit()).call)
    assert [outputs(await task) for task in asked] == [[1], [2]]


async def test_what_differs_is_not_equal(make: Make) -> None:
    """Another payload, or other weights, is other work."""
    bench = make()
    host = await bench.host()
    asked = [bench.ask("one"), bench.ask("two")]
    for _ in asked:
        host.answer((await host.unit()).call)
    assert [outputs(await task) for task in asked] == [[1], [2]]
    fields = {"document": Blob(b"x" * 5000)}
    assert equal.digest("weights", fields) == equal.digest("weights", {"document": Blob(b"x" * 5000)})
    others = [{"document": Blob(b"x" * 4999 + b"y")}, {"document": Blob(b"x" * 4999)}, {"text": Blob(b"x" * 5000)}]
    assert len({equal.digest("weights", each) for each in (fields, *others)} | {equal.digest("other", fields)}) == 5
    assert equal.digest("weights", {"document": object()}) is None


async def test_a_kept_answer_is_given_again(make: Make) -> None:
    """Validated, admitted and finished as ever; only the host is not asked. Other weights know none of it."""
    bench = make(answer_cache_mb=1)
    host = await bench.host("1-a")
    asked = bench.ask("same")
    host.answer((await host.unit()).call)
    first = await asked
    second = await bench.ask("same")
    assert second == first
    assert host.units.empty()
    assert bench.held() == [(0, 0), (0, 0)]
    kept = bench.deployment.statistics().answers
    assert (kept.entries, kept.hits, kept.misses) == (1, 1, 1)
    assert bench.deployment.scheduler.statistics().answers_kept == 1
    bench.deployment.host_down(host.down())
    successor = await bench.host("2-b", identity="other")
    again = bench.ask("same")
    successor.answer((await successor.unit()).call)
    await again
    assert bench.deployment.statistics().answers.entries == 1


async def test_a_failure_is_not_kept(make: Make) -> None:
    """The next one is executed."""
    bench = make(answer_cache_mb=1)
    host = await bench.host()
    asked = bench.ask("same")
    host.answer((await host.unit()).call, failure("executor_error"))
    with pytest.raises(InternalError):
        await asked
    again = bench.ask("same")
    host.answer((await host.unit()).call)
    await again


def test_the_cache_is_bounded_by_bytes_and_drops_what_was_asked_longest_ago() -> None:
    """A hit counts as asked; what is above the whole limit is not kept; nothing grows by keeping the same twice."""
    outputs = {"logits": b"x" * 1000}
    size = ENTRY_BYTES + held_bytes(outputs)
    cache = AnswerCache(2 * size)
    for name in (b"a", b"b", b"b"):
        cache.put(name, outputs)
    assert cache.get(b"a") == outputs
    cache.put(b"c", outputs)
    assert cache.get(b"b") is None
    assert cache.get(b"a") is not None
    cache.put(b"huge", {"logits": b"x" * 4000})
    seen = cache.statistics()
    assert (seen.entries, seen.size, seen.evicted, seen.hits, seen.misses) == (2, 2 * size, 1, 2, 1)
    cache.clear()
    assert cache.statistics().size == 0
    assert not AnswerCache(0).on


async def test_who_was_in_company_when_a_host_ended_is_executed_alone_before_it_is_refused(make: Make) -> None:
    """The culprit is refused after it has ended a second host by itself; its neighbour never is."""
    bench = make(batch={"units": 8}, join=False)

    async def in_one_batch(incarnation: str) -> tuple[Any, dict[str, asyncio.Task[Decision]]]:
        """A host with what is sent to it at once, behind one that it has answered. Bodies differ by their sizes."""
        host = await bench.host(incarnation)
        first = bench.ask("first", size=10)
        call = (await host.unit()).call
        asked = {name: bench.ask(name, size=20 + at) for at, name in enumerate(("innocent", "poison", "third"))}
        await bench.waiting(3)
        host.answer(call)
        await first
        return host, asked

    host, asked = await in_one_batch("1-a")
    calls = [(await host.unit()).call for _ in asked]
    assert [together for _, together in host.batches] == [calls]
    bench.deployment.host_down(host.down(taken={"front-1": calls[-1]}))
    for task in asked.values():
        with pytest.raises(HostDied):
            await task
    successor, asked = await in_one_batch("2-b")
    successor.answer((await successor.unit()).call)
    await asked["innocent"]
    culprit = await successor.unit()
    assert successor.batches == [], "each of them is alone"
    bench.deployment.host_down(successor.down(taken={"front-1": culprit.call}))
    with pytest.raises(HostDied):
        await asked["poison"]
    third = await bench.host("3-c")
    third.answer((await third.unit()).call)
    await asked["third"]
    with pytest.raises(Poisoned):
        await bench.ask("poison", size=21)
    again = bench.ask("innocent", size=20)
    third.answer((await third.unit()).call)
    await again


async def test_a_request_that_was_twice_in_one_batch_is_suspected_once(make: Make) -> None:
    """One death in company is one suspicion, however often the request was in it."""
    bench = make(batch={"units": 8}, join=False)
    host = await bench.host("1-a")
    first = bench.ask("first")
    call = (await host.unit()).call
    asked = [bench.ask("innocent", size=20) for _ in range(2)]
    await bench.waiting(2)
    host.answer(call)
    last = [(await host.unit()).call for _ in asked][-1]
    await first
    bench.deployment.host_down(host.down(taken={"front-1": last}))
    for task in asked:
        with pytest.raises(HostDied):
            await task
    successor = await bench.host("2-b")
    again = bench.ask("innocent", size=20)
    successor.answer((await successor.unit()).call)
    await again


@pytest.mark.parametrize(("join", "cache", "times"), [(False, 0, 0), (True, 0, 0), (False, 1, 1)])
async def test_a_digest_is_made_only_where_it_matters(
    make: Make, monkeypatch: pytest.MonkeyPatch, join: bool, cache: int, times: int
) -> None:
    """For a lone request only where answers are kept."""
    made: list[str] = []

    def digest(identity: str, fields: Any) -> bytes:
        made.append(identity)
        return b"digest"

    monkeypatch.setattr(equal, "digest", digest)
    bench = make(join=join, answer_cache_mb=cache)
    host = await bench.host()
    asked = bench.ask("a")
    host.answer((await host.unit()).call)
    await asked
    assert len(made) == times
