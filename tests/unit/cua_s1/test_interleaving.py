"""The unit is one question: what concurrent requests, leaving clients, deadlines and bad numbers meet between two.

One deployment with the real front half, and a host that records what it is sent. The test answers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from frontend.errors import DeadlineExceeded, InternalError, RequestError, TokensExceeded
from frontend.families.base import Decision
from frontend.families.cua_s1.processor import CuaS1Processor
from frontend.http.systemone import parse_request
from frontend.observation.record import RequestTable
from frontend.runtime.context import ExecutionContext
from frontend.serving import pipeline
from frontend.serving.deployment import Deployment
from frontend.serving.replica import Availability
from frontend.serving.server import Server, ServerLimits
from protocol.frames import Envelope
from protocol.messages import Execute, Result
from protocol.payloads import PromptRequest
from protocol.states import RequestEvent
from tests.helpers.asking import Asking
from tests.helpers.fake_host import FakeHost, failure, until, zmq_context
from tests.unit.cua_s1.helpers import SIZE, choice, facts_of


class Bench:
    """A deployment, its host, and a clock that only the test moves."""

    def __init__(self, context: zmq.Context[Any], folder: Path, processor: CuaS1Processor, **bounds: int) -> None:
        loop = asyncio.get_running_loop()
        self.now = 1000.0
        self.table = RequestTable(lambda: self.now)
        self.processor = processor
        self.names: dict[bytes, str] = {}
        model = {"id": "m@1", "name": "m", "role": "current", "family": "cua-s1", "options": {}, "path": str(folder)}
        model |= {"max_requests": None, "max_cost": None, **bounds}
        self.deployment = Deployment(model, loop=loop, zmq_context=context, epoch="front-1")
        self.server = Server(loop, ServerLimits(), deployments={"m": self.deployment}, default="m")
        self.host = FakeHost(context)
        self.deployment.host_up(dataclasses.replace(self.host.up(), facts=facts_of(folder)))

    def ask(self, name: str, questions: int, *, deadline: float | None = None) -> asyncio.Task[Decision]:
        """A request whose units are called name0, name1, ..."""
        document = {
            "state": name,
            "questions": {f"{name}{index}": choice("a", f"{index}") for index in range(questions)},
        }
        request = parse_request(document)
        for index, unit in enumerate(self.processor.prepare(request).units):
            assert isinstance(unit, PromptRequest)
            self.names[unit.tokens.tobytes()] = f"{name}{index}"

        async def run() -> Decision:
            record = self.table.begin(name)
            event = RequestEvent.FAIL
            try:
                with (
                    ExecutionContext(clock=lambda: self.now, deadline=deadline, observer=record.observe) as context,
                    context.cancel_on_exit() as guard,
                ):
                    asking = Asking(request)
                    permit = asking.admit()
                    decision = await pipeline.resolved(self.server, asking, request, bytes(10), permit, context, record)
                    guard.disarm()
                    event = RequestEvent.ANSWER
                    return decision
            except asyncio.CancelledError:
                event = RequestEvent.CANCEL
                raise
            finally:
                record.end(event)

        return asyncio.get_running_loop().create_task(run())

    async def unit(self) -> tuple[str, Envelope]:
        """The next unit at the host, by its name."""
        envelope = await self.host.unit()
        assert isinstance(envelope.message, Execute)
        return self.names[envelope.message.payload["tokens"].tobytes()], envelope

    def answer(self, envelope: Envelope, *values: float) -> None:
        state = np.zeros(SIZE, np.float32)
        state[: len(values)] = values
        self.host.answer(envelope.call, Result(outputs={"hidden": state}, elapsed_us=1))

    async def waiting(self, number: int) -> None:
        await until(lambda: self.deployment.scheduler.statistics().waiting == number, f"{number} waiting")

    async def idle(self) -> None:
        """Nothing is held, queued or running, and nothing was sent."""

        def nothing() -> bool:
            statistics = self.deployment.statistics()
            held = [(layer.outstanding, layer.held) for layer in statistics.admissions]
            return (statistics.scheduler.waiting, statistics.scheduler.running) == (0, 0) and set(held) <= {(0, 0)}

        await until(nothing, "idle")
        assert self.host.units.empty()

    def close(self) -> None:
        self.deployment.close()
        self.host.close()
        self.server.metrics.close()
        self.server.pool.shutdown()
        self.server.parser.shutdown()


@pytest.fixture
async def bench(folder: Path, processor: CuaS1Processor) -> AsyncIterator[Bench]:
    with zmq_context() as context:
        made = Bench(context, folder, processor, max_requests=10, max_cost=100_000)
        await until(lambda: made.deployment.availability is Availability.READY, "ready")
        yield made
        made.close()


async def test_questions_of_concurrent_requests_take_turns(bench: Bench) -> None:
    """The permit is given back after each question, and who asked first for the next one gets it."""
    first, second, third = bench.ask("a", 3), bench.ask("b", 2), bench.ask("c", 1)
    await bench.waiting(2)
    order = []
    for _ in range(6):
        name, envelope = await bench.unit()
        order.append(name)
        assert bench.host.units.empty(), "one at a time"
        bench.answer(envelope, 2.0 if name.startswith("b") else 0.0, 1.5)
    assert order == ["a0", "b0", "c0", "a1", "b1", "a2"]
    one, two, three = await asyncio.gather(first, second, third)
    assert [name for name, _ in one.answers] == ["a0", "a1", "a2"]
    assert [answer.to_json()["choice"] for _, answer in one.answers] == ["0", "1", "2"]
    assert len(two.answers) == 2
    assert len(three.answers) == 1
    # Letter A looks at the first value once, B at the second twice: 2 against 3 for b, 0 against 3 for the others.
    confidences = [answer.to_json()["confidence"] for answers in (one, two) for _, answer in answers.answers]
    assert confidences[3:] == [pytest.approx(0.462117, abs=1e-6)] * 2
    await bench.idle()


async def test_a_client_that_leaves_asks_no_further_question(bench: Bench) -> None:
    """The running question keeps its permit to its end; the next one at the host is somebody else's."""
    leaving, other = bench.ask("a", 3), bench.ask("b", 1)
    name, envelope = await bench.unit()
    await bench.waiting(1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert await bench.host.cancelled() == envelope.call
    assert bench.host.units.empty()
    assert bench.deployment.scheduler.statistics().running == 1
    bench.answer(envelope)
    following, envelope = await bench.unit()
    assert (name, following) == ("a0", "b0")
    bench.answer(envelope)
    await other
    await bench.idle()


async def test_a_client_that_leaves_between_two_questions(bench: Bench) -> None:
    """Its waiting question is taken out of the queue and never sent."""
    leaving, other = bench.ask("a", 2), bench.ask("b", 1)
    _, envelope = await bench.unit()
    await bench.waiting(1)
    bench.answer(envelope)
    name, envelope = await bench.unit()
    assert name == "b0"
    await bench.waiting(1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await bench.waiting(0)
    bench.answer(envelope)
    await other
    await bench.idle()


async def test_a_deadline_between_two_questions(bench: Bench) -> None:
    """Checked before each question asks and again before it is sent."""
    asked = bench.ask("a", 3, deadline=bench.now + 10)
    _, envelope = await bench.unit()
    assert envelope.budget_ms == 10_000
    bench.now += 4
    bench.answer(envelope)
    name, envelope = await bench.unit()
    assert (name, envelope.budget_ms) == ("a1", 6_000)
    bench.now += 7
    bench.answer(envelope)
    with pytest.raises(DeadlineExceeded):
        await asked
    await bench.idle()


async def test_a_logit_that_is_none_ends_the_request_there(bench: Bench) -> None:
    """Before the second question asks. Others go on, and so does the host."""
    asked, other = bench.ask("a", 3), bench.ask("b", 1)
    _, envelope = await bench.unit()
    await bench.waiting(1)
    bench.answer(envelope, 0.0, float("nan"))
    with pytest.raises(InternalError, match="logit"):
        await asked
    name, envelope = await bench.unit()
    assert name == "b0"
    bench.answer(envelope)
    await other
    await bench.idle()


async def test_a_failure_at_a_later_question_fails_the_request(bench: Bench) -> None:
    """No partial answers."""
    asked = bench.ask("a", 3)
    _, envelope = await bench.unit()
    bench.answer(envelope)
    _, envelope = await bench.unit()
    bench.host.answer(envelope.call, failure())
    with pytest.raises(RequestError, match="it failed"):
        await asked
    await bench.idle()


async def test_a_prompt_that_is_too_long_stops_all_questions(bench: Bench) -> None:
    """Nothing was sent: all are tokenized first."""
    long = {"q": choice("a"), "r": choice("a", instructions="a b c d " * 9000)}
    request = parse_request({"state": "s", "questions": long})
    assert len(json.dumps(long)) < 100_000
    with ExecutionContext(clock=lambda: bench.now) as context:
        record = bench.table.begin("long")
        asking = Asking(request)
        permit = asking.admit()
        with pytest.raises(TokensExceeded, match="question 'r'"):
            await pipeline.resolved(bench.server, asking, request, bytes(10), permit, context, record)
        permit.release()
        record.end(RequestEvent.FAIL)
    await bench.idle()
