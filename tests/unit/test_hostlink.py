"""Whose is this reply? One link, a fake host, and every answer a host could give."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import zmq

from frontend.errors import DeadlineExceeded, HostDied, InternalError, InvalidRequest, Misuse, Unavailable
from frontend.runtime.scheduler import SerialScheduler
from frontend.serving.failures import HostFailure
from frontend.serving.hostlink import RECENT_CALLS, HostLink, Outputs
from protocol.frames import encode
from protocol.messages import Bye, CancelAnswer, Execute, Result, Status, Welcome
from tests.helpers.fake_host import GUARD_S, FakeHost, failure, until, zmq_context


class Linked:
    """A link, its host, and a scheduler that sends through it."""

    def __init__(self, context: zmq.Context[Any]) -> None:
        self.welcomes: list[Welcome] = []
        self.idles = 0
        self.retirings = 0
        self.host = FakeHost(context)
        self.scheduler = SerialScheduler("m")
        self.link = HostLink(
            asyncio.get_running_loop(),
            context,
            incarnation=self.host.incarnation,
            control=self.host.control,
            data=self.host.data,
            epoch="front-1",
            pid=1,
            on_welcome=self.welcomes.append,
            on_idle=self._idle,
            on_retiring=self._retiring,
        )

    def _idle(self) -> None:
        self.idles += 1

    def _retiring(self) -> None:
        self.retirings += 1

    def ask(self, budget_ms: int | None = None, payload: dict[str, Any] | None = None) -> asyncio.Task[Outputs]:
        """One unit, through the scheduler; one that never ends fails the test."""
        fields = {"document": b"{}"} if payload is None else payload

        async def run() -> Outputs:
            async with asyncio.timeout(GUARD_S):
                return await self.scheduler.run(lambda dispatch: self.link.send(dispatch, fields, budget_ms))

        return asyncio.get_running_loop().create_task(run())

    def stale(self) -> None:
        """The next message of the host proves that everything before it has been read."""
        self.host.idle()


@pytest.fixture
async def link() -> AsyncIterator[Linked]:
    with zmq_context() as context:
        linked = Linked(context)
        await until(lambda: linked.welcomes, "the welcome")
        yield linked
        try:
            linked.link.end(reason="the test is over", retry_after=1)
        except Misuse:
            pass
        linked.host.close()


async def test_a_unit_is_sent_with_its_budget_and_answered_with_its_outputs(link: Linked) -> None:
    """The frame carries incarnation, call and remaining time; the outputs come back as they are."""
    asked = link.ask(budget_ms=1500)
    unit = await link.host.unit()
    assert unit.incarnation == link.host.incarnation
    assert unit.budget_ms == 1500
    assert isinstance(unit.message, Execute)
    assert replace(unit.message, sent_ms=0) == Execute(payload={"document": b"{}"})
    assert 0 < unit.message.sent_ms <= asyncio.get_running_loop().time() * 1000
    link.host.answer(unit.call, Result(outputs={"x": 1}, elapsed_us=7))
    assert await asked == Outputs({"x": 1}, 7)
    statistics = link.link.statistics()
    assert (statistics.outstanding, statistics.replies, statistics.late, statistics.unknown) == (0, 1, 0, 0)


async def test_a_late_reply_reaches_nobody(link: Linked, caplog: pytest.LogCaptureFixture) -> None:
    """A second answer to call 1 comes while call 2 waits: call 2 gets its own."""
    caplog.set_level(logging.DEBUG)
    first = link.ask()
    one = await link.host.unit()
    link.host.answer(one.call)
    await first
    second = link.ask()
    two = await link.host.unit()
    link.host.answer(one.call, Result(outputs={"late": True}, elapsed_us=1))
    link.host.answer(two.call)
    assert (await second).values == {"call": two.call}
    assert link.link.statistics().late == 1
    assert link.link.statistics().unknown == 0
    assert {record.levelname for record in caplog.records if "late reply" in record.getMessage()} == {"DEBUG"}


async def test_an_unknown_reply_is_counted_apart_from_a_late_one(
    link: Linked, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply to a call nobody made is worth a warning; the valid one behind it arrives."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.answer(unit.call + 1000)
    link.host.answer(unit.call)
    assert (await asked).values == {"call": unit.call}
    assert link.link.statistics().unknown == 1
    assert link.link.statistics().late == 0
    said = [record.levelname for record in caplog.records if "which was never made" in record.getMessage()]
    assert said == ["WARNING"]


async def test_ids_are_never_used_again(link: Linked) -> None:
    """Also after more calls than are remembered, every id is new."""
    seen = set()
    for _ in range(RECENT_CALLS + 10):
        asked = link.ask()
        unit = await link.host.unit()
        seen.add(unit.call)
        link.host.answer(unit.call)
        await asked
    assert len(seen) == RECENT_CALLS + 10
    link.host.answer(min(seen))  # forgotten: the memory of ended calls is bounded
    link.stale()
    await until(lambda: link.link.statistics().late + link.link.statistics().unknown == 1)
    assert link.link.statistics().unknown == 1


async def test_a_reply_of_another_incarnation_ends_nobodys_call_but_its_own(link: Linked) -> None:
    """What a predecessor says is never delivered as a result; the call it names ends with an error."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.answer(unit.call, incarnation="0-old")
    with pytest.raises(InternalError):
        await asked
    assert link.link.statistics().refused == 1
    assert link.link.statistics().outstanding == 0


@pytest.mark.parametrize("body", [b"\xc1", b"", b"\x82\xa7outputs\x01", b"\x80", b"\x93\x01\x02\x03"])
async def test_a_reply_that_cannot_be_read_ends_its_call(link: Linked, body: bytes) -> None:
    """The header named the call, so its client is not left waiting for a second answer that never comes."""
    asked = link.ask()
    unit = await link.host.unit()
    kind, header, *_ = encode(Result(outputs={}, elapsed_us=1), incarnation=link.host.incarnation, call=unit.call)
    link.host.raw([bytes(kind), bytes(header), body])
    with pytest.raises(InternalError, match="cannot be read"):
        await asked
    link.host.answer(unit.call)
    following = link.ask()
    link.host.answer((await link.host.unit()).call)
    await following
    assert link.link.statistics().late == 1, "the broken one counts as ended"


@pytest.mark.parametrize("frames", [[b""], [b"\xff"] * 3, [b"x"] * 400, [b"\x06", b"\xc1", b"\x80"]])
async def test_garbage_ends_nothing_and_silences_nothing(link: Linked, frames: list[bytes]) -> None:
    """Frames that name no call are counted, and the valid reply behind them arrives."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.raw(frames)
    link.host.answer(unit.call)
    assert (await asked).values == {"call": unit.call}
    assert link.link.statistics().refused == 1


async def test_a_message_that_is_no_reply_ends_the_call_it_names(link: Linked) -> None:
    """A host that sends a unit back is wrong; its client learns it at once."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.answer(unit.call, Execute(payload={}))
    with pytest.raises(InternalError):
        await asked


async def test_a_failure_keeps_the_status_and_word_of_the_host(link: Linked) -> None:
    """Input errors found in the host come out as they were meant, with their place."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.answer(unit.call, failure("input", 400, error_type="max_tokens_exceeded", where=["state"]))
    with pytest.raises(HostFailure) as caught:
        await asked
    assert (caught.value.status, caught.value.error_type, caught.value.where) == (
        400,
        "max_tokens_exceeded",
        ("state",),
    )
    assert caught.value.retry_after is None
    assert link.retirings == 0


@pytest.mark.parametrize(
    ("code", "stated", "error", "status"),
    [
        ("expired", 504, DeadlineExceeded, None),
        ("expired", 499, DeadlineExceeded, None),
        ("cancelled", 499, Unavailable, 503),
        ("draining", 503, Unavailable, 503),
        ("stale_incarnation", 503, Unavailable, 503),
        ("executor_error", 599, InternalError, 500),
        ("protocol", 404, InternalError, 500),
        ("input", 422, InvalidRequest, 422),
        ("input", 499, HostFailure, 400),
        ("input", 504, HostFailure, 400),
    ],
)
async def test_a_client_is_never_told_a_status_of_the_hosts_own(
    link: Linked, code: str, stated: int, error: type[Exception], status: int | None
) -> None:
    """The code decides: what the host states is a hint, and 499 or 599 mean nothing to a client."""
    asked = link.ask()
    link.host.answer((await link.host.unit()).call, failure(code, stated))
    with pytest.raises(error) as caught:
        await asked
    assert getattr(caught.value, "status", None) == status
    assert (getattr(caught.value, "retry_after", None) is not None) == (status == 503)


async def test_a_fatal_failure_is_reported_before_its_unit_ends(link: Linked) -> None:
    """`on_retiring` comes first: the queue is closed before the permit would go to the next unit."""
    order = []
    link.link._on_retiring = lambda: order.append("retiring")

    async def ask() -> None:
        try:
            await link.ask()
        except HostDied:
            order.append("ended")

    asked = asyncio.get_running_loop().create_task(ask())
    unit = await link.host.unit()
    link.host.answer(unit.call, failure("fatal", 503, fatal=True))
    await asked
    assert order == ["retiring", "ended"]


async def test_a_client_that_leaves_is_told_to_the_host_once(link: Linked) -> None:
    """The cancel names the call; the entry stays until the answer comes, which is then dropped."""
    asked = link.ask()
    unit = await link.host.unit()
    asked.cancel()
    assert await link.host.cancelled() == unit.call
    assert link.link.statistics().outstanding == 1
    assert link.link.statistics().cancelling == 1
    assert link.scheduler.statistics().running == 1
    link.host.tell(CancelAnswer(outcome="running"), unit.call)
    following = link.ask()
    link.host.answer(unit.call)
    unit = await link.host.unit()
    link.host.answer(unit.call)
    assert (await following).values == {"call": unit.call}
    assert link.link.statistics().outstanding == link.link.statistics().cancelling == 0
    assert link.link.statistics().late == 0, "it was waited for: dropped by the scheduler, not late"
    assert link.scheduler.statistics().dropped_results == 1
    assert link.host.cancels.empty()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_a_unit_that_does_not_fit_the_wire_was_not_sent(link: Linked) -> None:
    """The error is where the mistake is; nothing is left in the table, and the next unit goes."""
    with pytest.raises(InternalError, match="does not fit the wire"):
        await link.ask(payload={"document": 2**70})
    assert link.link.statistics().outstanding == 0
    following = link.ask()
    unit = await link.host.unit()
    link.host.answer(unit.call)
    await following


async def test_a_refused_send_is_an_error_and_leaves_nothing(link: Linked) -> None:
    """The socket says no: 503, not dispatched, permit free, table empty."""

    def refuse(frames: object) -> None:
        raise zmq.Again

    class Full:
        send = staticmethod(refuse)

        def close(self) -> None: ...

    real, link.link._data = link.link._data, Full()  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        await link.ask()
    link.link._data = real
    statistics = link.scheduler.statistics()
    assert (statistics.running, statistics.dispatched, statistics.failed) == (0, 0, 1)
    assert link.link.statistics().outstanding == 0
    following = link.ask()
    link.host.answer((await link.host.unit()).call)
    await following


async def test_the_end_fails_what_is_out_and_only_that(link: Linked) -> None:
    """The running unit ends at once, dispatched; a second end and a later send are misuse."""
    asked = link.ask()
    await link.host.unit()
    link.link.end(reason="it died", retry_after=3)
    with pytest.raises(HostDied) as caught:
        await asked
    assert caught.value.dispatched is True
    assert caught.value.retry_after == 3
    assert caught.value.status == 503
    assert link.link.statistics().outstanding == 0
    with pytest.raises(Misuse):
        link.link.end(reason="again", retry_after=1)
    with pytest.raises(Misuse):
        await link.ask()


async def test_the_end_gives_back_what_the_host_had_not_taken(link: Linked) -> None:
    """Call 1 was taken and fails; call 2, of another queue, was not and waits again; another front's say nothing."""
    other = SerialScheduler("other")
    taken = link.ask()
    await link.host.unit()
    sent = asyncio.get_running_loop().create_task(other.run(lambda dispatch: link.link.send(dispatch, {}, None)))
    await link.host.unit()
    for scheduler in (link.scheduler, other):
        scheduler.suspend()
    link.link.end(reason="it died", retry_after=3, taken={"front-1": 1, "front-0": 7})
    with pytest.raises(HostDied) as caught:
        await taken
    assert caught.value.dispatched is True
    assert (other.statistics().waiting, other.statistics().running) == (1, 0)
    assert link.link.statistics().outstanding == 0
    other.fail_waiting(lambda: HostDied("no more", dispatched=False, retry_after=1))
    with pytest.raises(HostDied, match="was not started"):
        await sent


async def test_a_client_that_leaves_after_the_end_tells_nobody(link: Linked) -> None:
    """Death and cancellation in the same tick: one end, no message to a closed socket."""
    asked = link.ask()
    await link.host.unit()
    link.link.end(reason="it died", retry_after=1)
    asked.cancel()
    with pytest.raises((asyncio.CancelledError, HostDied)):
        await asked
    assert link.scheduler.statistics().running == 0


async def test_control_messages_are_heard_and_strange_ones_counted(link: Linked) -> None:
    """A report of idleness is passed on, a busy one is not, another incarnation is refused, BYE is harmless."""
    link.host.tell(Status(report={"busy": True}))
    link.host.tell(Bye(reason="going"))
    link.host._control.send([b"front-1", *encode(Status(report={"busy": False}), incarnation="0-old")])
    link.host._control.send([b"front-1", b"garbage"])
    link.host.idle()
    await until(lambda: link.idles)
    assert link.idles == 1
    assert link.link.statistics().refused == 2


async def test_of_a_report_what_cannot_be_passed_on_is_left_out(link: Linked) -> None:
    """Whatever a host reports of itself, the front can tell the supervisor: numbers, short texts, yes and no."""
    await until(lambda: bool(link.welcomes))
    nested: dict[str, Any] = {}
    for _ in range(13):
        nested = {"deeper": nested}
    many = {f"n{number}": number for number in range(200)}
    strange = {"blob": b"x" * 10, "nested": nested, "long": "x" * 1000, "list": [1], "busy_s": 0.5, "state": "ready"}
    link.host.tell(Status(report={"busy": False, **strange, **many}))
    await until(lambda: "state" in link.link.report)
    kept = dict(link.link.report)
    assert {key: kept.pop(key) for key in ("busy", "busy_s", "state")} == {
        "busy": False,
        "busy_s": 0.5,
        "state": "ready",
    }
    assert set(kept) <= set(many)
    encode(Status(report={"models": {"m": {"replicas": [{"host": link.link.report}]}}}), incarnation="x")


async def test_a_host_that_is_idle_while_it_owes_an_answer_is_asked_for_it(link: Linked) -> None:
    """The question follows the unit on its own lane, so the host's word about the call is the last one."""
    asked = link.ask()
    unit = await link.host.unit()
    link.host.idle()
    async with asyncio.timeout(GUARD_S):
        assert await link.host.owed.get() == [unit.call]
    link.host.answer(unit.call, failure("lost", 503))
    with pytest.raises(Unavailable):
        await asked


async def test_a_host_that_owes_nothing_is_not_asked(link: Linked) -> None:
    """An idle report is the usual thing."""
    link.host.idle()
    await until(lambda: link.idles == 1)
    following = link.ask()
    link.host.answer((await link.host.unit()).call)
    await following
    assert link.host.owed.empty()


async def test_a_host_cannot_fill_the_log(link: Linked, caplog: pytest.LogCaptureFixture) -> None:
    """Of a thousand replies that nobody asked for, one a second is logged; all count, and the honest one comes."""
    asked = link.ask()
    unit = await link.host.unit()
    for sent in range(1000):
        link.host.answer(unit.call + 1 + sent)
        if sent % 100 == 99:  # below the bound of the socket
            await until(lambda sent=sent: link.link.statistics().unknown == sent + 1)  # type: ignore[misc]
    link.host.answer(unit.call)
    assert (await asked).values == {"call": unit.call}
    assert len([record for record in caplog.records if "which was never made" in record.getMessage()]) < 100
