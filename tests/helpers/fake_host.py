"""A host that is two sockets of the test: it records what it is sent and answers what it is told to."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from protocol import addresses, batches
from protocol.frames import Envelope, decode, encode
from protocol.messages import (
    Cancel,
    Failure,
    Hello,
    HostDown,
    HostUp,
    Lane,
    Message,
    Owed,
    Ready,
    Result,
    Status,
    Welcome,
)
from protocol.transport import loop as sockets

GUARD_S = 20.0


class FakeHost:
    """One incarnation. It says WELCOME by itself unless `shy`, and nothing else."""

    def __init__(
        self, context: zmq.Context[Any], incarnation: str = "1-a", *, busy_epoch: str = "", shy: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        self.incarnation = incarnation
        self.busy_epoch = busy_epoch
        self.shy = shy
        self.units: asyncio.Queue[Envelope] = asyncio.Queue()
        self.batches: list[tuple[int, list[int]]] = []
        """The own call of each batch, and those of its units, which are in `units`, too."""
        self.owed: asyncio.Queue[list[int]] = asyncio.Queue()
        self.cancels: asyncio.Queue[int] = asyncio.Queue()
        self.hellos: asyncio.Queue[bytes] = asyncio.Queue()
        self._front = b""
        self._directory = Path(tempfile.mkdtemp(prefix="fh-"))
        self.control = addresses.control(self._directory)
        self.data = addresses.data(self._directory)
        self._control = sockets.listen(loop, context, self.control, self._on_control)
        self._data = sockets.listen(loop, context, self.data, self._on_data)

    def up(self, deployment: str = "m@1", identity: str = "same") -> HostUp:
        """What the supervisor would say of it."""
        return HostUp(
            deployment=deployment,
            replica=0,
            incarnation=self.incarnation,
            control=self.control,
            data=self.data,
            pid=os.getpid(),
            facts={"identity": identity},
        )

    def down(
        self,
        deployment: str = "m@1",
        *,
        will_restart: bool = True,
        retry_after_s: float = 0.5,
        taken: dict[str, int] | None = None,
    ) -> HostDown:
        """What the supervisor would say of its end."""
        return HostDown(
            deployment=deployment,
            replica=0,
            incarnation=self.incarnation,
            exit=None,
            signal="SIGKILL",
            last_words="killed by SIGKILL",
            will_restart=will_restart,
            retry_after_s=retry_after_s,
            taken=taken,
        )

    def _on_control(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        envelope = decode(rest, lane=Lane.CONTROL, incarnation=self.incarnation)
        if isinstance(envelope.message, Hello):
            self._front = peer
            self.hellos.put_nowait(peer)
            if not self.shy:
                self.welcome()
        elif isinstance(envelope.message, Cancel):
            self.cancels.put_nowait(envelope.call)

    def _on_data(self, frames: list[bytes]) -> None:
        if frames[1] == batches.KIND_BYTE:
            batch = batches.read(frames[1:], incarnation=self.incarnation)
            self.batches.append((batch.call, [part.call for part in batch.parts]))
            for part in batch.parts:
                assert isinstance(part, Envelope)
                self.units.put_nowait(part)
            return
        envelope = decode(frames[1:], lane=Lane.DATA, incarnation=self.incarnation)
        if isinstance(envelope.message, Owed):
            self.owed.put_nowait(envelope.message.calls)
        else:
            self.units.put_nowait(envelope)

    def welcome(self) -> None:
        self.tell(
            Welcome(
                role="host",
                pid=1,
                state="ready",
                busy_epoch=self.busy_epoch,
                busy_call=1 if self.busy_epoch else 0,
            )
        )
        self.tell(Ready(address=self.data, facts={}))

    def tell(self, message: Message, call: int = 0) -> None:
        """Send on the control lane."""
        self._control.send([self._front, *encode(message, incarnation=self.incarnation, call=call)])

    def idle(self) -> None:
        """Report that nothing is executed any more."""
        self.tell(Status(report={"busy": False}))

    def answer(self, call: int, message: Message | None = None, *, incarnation: str | None = None) -> None:
        """Reply to a call; a RESULT unless told otherwise."""
        reply = message or Result(outputs={"call": call}, elapsed_us=1)
        self.raw([bytes(frame) for frame in encode(reply, incarnation=incarnation or self.incarnation, call=call)])

    def answer_together(self, batch: int, answers: Sequence[tuple[int, Message]]) -> None:
        """Reply to several calls of a batch in one frame list."""
        parts = [batches.pack(message, call=call) for call, message in answers]
        frames = batches.join(parts, incarnation=self.incarnation, call=batch)
        self.raw([bytes(frame) for frame in frames])

    def raw(self, frames: list[bytes]) -> None:
        """Send any frames on the data lane."""
        self._data.send([self._front, *frames])

    async def unit(self) -> Envelope:
        """The next unit that was sent here."""
        async with asyncio.timeout(GUARD_S):
            return await self.units.get()

    async def cancelled(self) -> int:
        """The call of the next cancel."""
        async with asyncio.timeout(GUARD_S):
            return await self.cancels.get()

    def close(self) -> None:
        self._control.close()
        self._data.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def failure(code: str = "executor_error", status: int = 500, **fields: Any) -> Failure:
    return Failure(code=code, status=status, message="it failed", **fields)


async def until(fact: Callable[[], object], what: str = "the fact") -> None:
    """Let the loop turn until `fact()` is true; fails after the guard."""
    try:
        async with asyncio.timeout(GUARD_S):
            while not fact():
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


@contextmanager
def zmq_context() -> Iterator[zmq.Context[Any]]:
    """A context that is gone afterwards, whatever was left open in it."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)
