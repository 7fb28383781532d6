"""A connection of the data lane breaks, with a unit or an answer in it; host, control lane and lease are fine.

A real host in a thread and the front's link, with a wire between them that the test cuts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import zmq

from executor_host.executors.base import Call, Executor, Progress
from executor_host.host.shared_state import SharedState
from executor_host.main import Host, Place
from frontend.errors import Unavailable
from frontend.runtime.scheduler import SerialScheduler
from frontend.serving.hostlink import HostLink, Outputs
from protocol import families
from protocol.curve import Security
from protocol.exits import HostExit
from protocol.transport import authentication, keys
from tests.helpers.fake_host import GUARD_S, until, zmq_context

LEASE_S = 60.0
"""Longer than the test: nothing here is found out by a silence."""


class Reader(Executor):
    """Answers with what it was sent, when it may."""

    def __init__(self) -> None:
        super().__init__(None, {})
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def load(self, progress: Progress) -> Mapping[str, object]:
        return {}

    def warm_up(self) -> None:
        pass

    def execute(self, payload: Any, call: Call) -> dict[str, Any]:
        self.begun.set()
        assert self.may_end.wait(GUARD_S)
        return {"read": bytes(payload.document)}


class Wire:
    """Between front and host: passes bytes on, or swallows those of one direction, until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallows_units = self.swallows_answers = False
        self.connections = self.swallowed = 0

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self.connections += 1
        self._writers += [writer, back]
        for source, sink, units in ((reader, back, True), (there, writer, False)):
            task = asyncio.create_task(self._pass_on(source, sink, units))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, units: bool) -> None:
        try:
            while data := await source.read(65536):
                if self.swallows_units if units else self.swallows_answers:
                    self.swallowed += len(data)
                else:
                    sink.write(data)
        except ConnectionError:
            pass

    def cut(self) -> None:
        """Reset both ends of every connection; the next one passes everything on."""
        self.swallows_units = self.swallows_answers = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def close(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)


class Remote:
    """A host on "another machine", and a front that is linked to it through a wire."""

    executor: Reader
    shared_state: SharedState
    wire: Wire
    link: HostLink
    scheduler: SerialScheduler

    def ask(self, text: bytes) -> asyncio.Task[Outputs]:
        async def run() -> Outputs:
            async with asyncio.timeout(GUARD_S):
                return await self.scheduler.run(
                    lambda dispatch: self.link.send(dispatch, {"document": text}, budget_ms=None)
                )

        return asyncio.create_task(run())


@pytest.fixture
async def remote() -> AsyncIterator[Remote]:
    made, loop = Remote(), asyncio.get_running_loop()
    front, host_keys = keys.pair(), keys.pair()
    made.executor, made.shared_state = Reader(), SharedState("1-cc")
    with zmq_context() as context, zmq_context() as host_context:
        authenticator = authentication.in_thread(host_context, keys.Allowed([front.public]))
        anywhere = "tcp://127.0.0.1:0"
        place = Place(anywhere, anywhere, Security(host_keys, LEASE_S))
        host = Host(families.BUILT_IN["clef"], made.executor, made.shared_state, host_context, place)
        ended: list[HostExit] = []
        thread = threading.Thread(target=lambda: ended.append(host.run()))
        thread.start()
        await until(lambda: made.shared_state.machine.state.value == "ready", "readiness")
        made.wire = Wire(int(host._data.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0").rpartition(":")[2]))
        welcomed = asyncio.Event()
        made.scheduler = SerialScheduler("m")
        made.link = HostLink(
            loop,
            context,
            incarnation="1-cc",
            control=host.control,
            data=f"tcp://127.0.0.1:{await made.wire.open()}",
            epoch="front-1",
            pid=1,
            on_welcome=lambda _: welcomed.set(),
            on_idle=lambda: None,
            on_retiring=lambda: None,
            security=Security(front, LEASE_S, server=host_keys.public),
        )
        async with asyncio.timeout(GUARD_S):
            await welcomed.wait()
        await until(lambda: made.link._connected, "the data lane")
        try:
            yield made
        finally:
            made.executor.may_end.set()
            made.link.end(reason="the test is over", retry_after=1)
            made.shared_state.request_drain()
            await asyncio.to_thread(thread.join, GUARD_S)
            authenticator.stop()
            await made.wire.close()
    assert ended == [HostExit.CLEAN]


async def test_an_answer_that_is_lost_with_its_connection_is_sent_again(remote: Remote) -> None:
    """The host has sent it and knows of nothing; the front asks when the connection is back, and the queue goes on."""
    asked = remote.ask(b"one")
    await until(remote.executor.begun.is_set, "the execution")
    remote.wire.swallows_answers = True
    remote.executor.may_end.set()
    await until(lambda: remote.wire.swallowed, "the answer")
    remote.wire.cut()
    assert (await asked).values == {"read": b"one"}
    assert (await remote.ask(b"two")).values == {"read": b"two"}
    assert remote.wire.connections == 2
    assert remote.shared_state.executed == 2, "nothing was executed twice"


async def test_a_connection_that_breaks_while_the_unit_is_executed_loses_nothing(remote: Remote) -> None:
    """The answer goes over the next connection, or is asked for on it."""
    asked = remote.ask(b"one")
    await until(remote.executor.begun.is_set, "the execution")
    remote.wire.cut()
    await until(lambda: remote.wire.connections == 2, "the next connection")
    remote.executor.may_end.set()
    assert (await asked).values == {"read": b"one"}
    assert remote.shared_state.executed == 1


async def test_a_unit_that_is_lost_with_its_connection_ends_at_once(remote: Remote) -> None:
    """503: the host has never seen it, and the model does not stand still for its execution limit."""
    remote.executor.may_end.set()
    remote.wire.swallows_units = True
    asked = remote.ask(b"one")
    await until(lambda: remote.wire.swallowed, "the sending")
    remote.wire.cut()
    with pytest.raises(Unavailable, match="lost"):
        await asked
    assert remote.shared_state.executed == 0
    assert (await remote.ask(b"two")).values == {"read": b"two"}
