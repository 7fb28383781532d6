"""The front's side of one host incarnation: two sockets, and the units that are in the host's hands.

The question it answers: whose is this reply? A unit is in `_calls` from the moment its frame is sent until
the host has answered or is known dead, and exactly one of the two ends it. One that a dead host is known not
to have taken does not end: it is requeued. A reply that matches no entry is late (its call ended a
moment ago) or unknown: counted, logged, dropped, never given to anyone else.

Death is not inferred here: not from silence, not from a broken connection. The supervisor knows the process
handle and says HOST_DOWN; the deployment then calls `end`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import zmq

from frontend import limits
from frontend.errors import (
    HostDied,
    HostDiedAgain,
    HostLost,
    InternalError,
    Misuse,
    Unavailable,
)
from frontend.observation.muffled import Muffled
from frontend.runtime.dispatch import Dispatch
from frontend.serving.failures import reported
from frontend.serving.overdue import OverdueWatch
from protocol import batches
from protocol.curve import Security
from protocol.errors import LimitExceeded, ProtocolError
from protocol.frames import decode, encode
from protocol.messages import (
    Cancel,
    CancelAnswer,
    Evict,
    Execute,
    Failure,
    Hello,
    Lane,
    Message,
    Owed,
    Progress,
    Ready,
    Result,
    Status,
    Welcome,
)
from protocol.retention import Keep
from protocol.tensors import Buffer
from protocol.transport import monitor
from protocol.transport.loop import dial

RECENT_CALLS = 1024
"""Ids of ended calls that are remembered, so that a late reply is told from an unknown one in the log."""

MAX_REQUEUED = 2
"""How often a unit goes back to its queue. What kills a host while it is received, for want of memory as a rule, looks
as if it had only been on its way; it must not use up the restarts of a model, which are 5 by default."""

MAX_BATCHES = 4
"""Batches whose own calls are remembered: one is executed, one is staged, and the others are over."""

_DATA: Final = Lane.DATA  # see `frontend.runtime.admission`

log = logging.getLogger("framehost.hostlink")


class Outputs(NamedTuple):
    """What the executor returned for one unit, and how long it took inside the executor, in microseconds."""

    values: dict[str, Any]
    elapsed_us: int


class Keeping(Protocol):
    """What a unit's request may keep in its host."""

    @property
    def keep(self) -> Keep:
        """With which the unit is sent."""
        ...

    def told(self, fields: Mapping[str, Any] | None, incarnation: str) -> None:
        """A unit has ended, and the host `incarnation` says what it holds."""
        ...

    def failed(self) -> None:
        """A unit has failed."""
        ...


def plain(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of a host's report can be passed on, whatever a host reports: numbers, short texts, yes and no."""
    return {
        key: value
        for key, value in itertools.islice(report.items(), limits.REPORT_ENTRIES)
        if len(key) <= limits.REPORT_TEXT_CHARS
        and (
            value is None
            or isinstance(value, (bool, int, float))
            or (isinstance(value, str) and len(value) <= limits.REPORT_TEXT_CHARS)
        )
    }


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Counts of one link. `outstanding` is now, the rest only grow. `owed_s`: for how long the host has owed the
    answer that is due next, to a unit or to HELLO, in seconds; 0 when it owes none."""

    outstanding: int
    cancelling: int
    replies: int
    late: int
    unknown: int
    refused: int
    owed_s: float


class HostLink:
    """One incarnation, dialled by one front.

    `on_welcome(Welcome)` comes once, when the host has answered: until then nothing may be sent. `on_idle()`
    comes whenever the host reports that it executes nothing. `on_retiring()` comes when a fatal failure
    arrived, before its unit ends: nothing may be sent any more. `watch` is told what the host owes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        incarnation: str,
        control: str,
        data: str,
        epoch: str,
        pid: int,
        on_welcome: Callable[[Welcome], None],
        on_idle: Callable[[], None],
        on_retiring: Callable[[], None],
        watch: OverdueWatch | None = None,
        security: Security | None = None,
    ) -> None:
        self.incarnation = incarnation
        self._epoch = epoch
        self._ids = itertools.count(1)
        self._calls: dict[int, Dispatch[Outputs]] = {}
        self._cancelling: set[int] = set()
        self._turns: dict[int, Keeping] = {}
        """By call, of units whose host keeps something of them."""
        self._recent: deque[int] = deque(maxlen=RECENT_CALLS)
        self._replies = self._late = self._unknown = self._refused = 0
        self._ended = False
        self._collected: list[tuple[Dispatch[Outputs], batches.Part]] = []
        """Units of the batch that is being put together, in the order of their calls."""
        self._batch = 0
        """The own call of that batch, below those of its units."""
        self._batches: dict[int, Sequence[int]] = {}
        """By its own call, the units of each batch in the host's hands: what is said of all of them is said of it."""
        self._loop = loop
        self._complain = Muffled(log, loop.time).warning
        self.report: Mapping[str, Any] = {}
        """What the host last said of itself."""
        self._on_welcome, self._on_idle, self._on_retiring = on_welcome, on_idle, on_retiring
        self._watch = watch or OverdueWatch(loop, None, lambda _: None)
        self._connected = False
        self._data = dial(
            loop,
            context,
            data,
            self._on_data,
            identity=epoch,
            security=security,
            # A connection between processes of one machine does not break.
            on_connection=None if security is None else self._on_connection,
        )
        try:
            self._control = dial(loop, context, control, self._on_control, identity=epoch, security=security)
        except (zmq.ZMQError, ValueError):
            self._data.close()
            raise
        self._tell(Hello(role="front", epoch=epoch, pid=pid, clock_ms=self._clock_ms()))
        self._watch.owed()

    # Units

    def send(
        self,
        dispatch: Dispatch[Outputs],
        payload: dict[str, Any],
        budget_ms: int | None,
        request_id: str = "",
        turn: Keeping | None = None,
    ) -> None:
        """Send one unit, for the host's log with the id of its request; its end comes from the host or from `end`.
        `turn`: what it may keep there.

        Called by the scheduler at the grant, so it must not wait. Raises `RequestError` when the unit does not
        fit the wire or the socket refuses it; then it was not sent.
        """
        if self._ended:
            raise Misuse(f"{self!r} has ended; nothing may be sent to it")
        call = next(self._ids)
        try:
            unit = self._execute(payload, request_id, turn)
            frames = encode(unit, incarnation=self.incarnation, call=call, budget_ms=budget_ms)
        except ProtocolError as error:
            raise InternalError(f"the prepared request does not fit the wire: {error}") from error
        self._transmit(frames)
        self._in_hand(call, dispatch)
        if turn is not None:
            self._turns[call] = turn

    def _execute(self, payload: dict[str, Any], request_id: str, turn: Keeping | None) -> Execute:
        keep = None if turn is None else turn.keep.to_wire()
        return Execute(payload=payload, request=request_id, sent_ms=self._clock_ms(), keep=keep)

    def collect(
        self,
        dispatch: Dispatch[Outputs],
        payload: dict[str, Any],
        budget_ms: int | None,
        request_id: str = "",
        turn: Keeping | None = None,
    ) -> None:
        """Take one unit into the batch that `flush` sends. Called by the scheduler at the grant, so it must not wait.

        Raises `RequestError` when the unit does not fit the wire: it is not in the batch, and its neighbours are.
        """
        if self._ended:
            raise Misuse(f"{self!r} has ended; nothing may be sent to it")
        if not self._collected:
            self._batch = next(self._ids)
        unit = self._execute(payload, request_id, turn)
        try:
            part = batches.pack(unit, call=next(self._ids), budget_ms=budget_ms)
        except ProtocolError as error:
            raise InternalError(f"the prepared request does not fit the wire: {error}") from error
        self._collected.append((dispatch, part))
        if turn is not None:
            self._turns[part.call] = turn

    def flush(self) -> None:
        """Send what was collected: as one frame list, a single unit as `send` would, and those that are too much for
        one frame list one after the other.

        Raises `Unavailable` when the socket refuses it; then none of the units that have no end yet was sent.
        """
        collected, self._collected = self._collected, []
        if len(collected) == 1:
            ((dispatch, part),) = collected
            self._transmit(batches.alone(part, incarnation=self.incarnation))
            self._in_hand(part.call, dispatch)
        elif collected:
            try:
                frames = batches.join([part for _, part in collected], incarnation=self.incarnation, call=self._batch)
            except LimitExceeded:
                self._send_one_by_one(collected)
                return
            self._transmit(frames)
            self._batches[self._batch] = [part.call for _, part in collected]
            if len(self._batches) > MAX_BATCHES:
                del self._batches[next(iter(self._batches))]
            for dispatch, part in collected:
                self._in_hand(part.call, dispatch)

    def _send_one_by_one(self, units: Sequence[tuple[Dispatch[Outputs], batches.Part]]) -> None:
        """Units that are too many bytes or frames for one frame list. The host reads them one after the other."""
        for dispatch, part in units:
            try:
                self._transmit(batches.alone(part, incarnation=self.incarnation))
            except Unavailable as error:
                dispatch.fail(error)
            else:
                self._in_hand(part.call, dispatch)

    def _transmit(self, frames: Sequence[Buffer]) -> None:
        try:
            self._data.send(frames)
        except zmq.ZMQError as error:
            raise Unavailable("the model's executor cannot be reached", retry_after=1) from error

    def _in_hand(self, call: int, dispatch: Dispatch[Outputs]) -> None:
        """A unit was sent: from now on its end comes from the host, or with it."""
        self._calls[call] = dispatch
        if len(self._calls) == 1:
            self._watch.owed()
        dispatch.on_abandoned(lambda: self._cancel(call))

    def _on_connection(self, event: monitor.Event) -> None:
        """The data lane to another machine: what was in it when it broke may be lost, in either direction."""
        if event == monitor.LET_IN:
            if self._connected:
                log.warning("host %s: the connection of the data lane broke and is there again", self.incarnation)
                self._ask_for_answers()
            self._connected = True

    def _ask_for_answers(self) -> None:
        """Have the host answer again what it owes us. Behind the units, so that it has seen them if it ever will."""
        if self._calls and not self._ended:
            try:
                self._data.send(encode(Owed(calls=list(self._calls)), incarnation=self.incarnation))
            except zmq.ZMQError:
                log.warning("host %s: the data lane refuses a question", self.incarnation)

    def _clock_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def evict(self, message: Evict) -> None:
        """Have the host give something up, before the units that are sent later."""
        if not self._ended:
            try:
                self._data.send(encode(message, incarnation=self.incarnation))
            except zmq.ZMQError:
                log.warning("host %s: the data lane refuses an EVICT", self.incarnation)

    def ask(self) -> None:
        """Ask the host how it is. Its control thread answers when it can, into `report`; no request waits."""
        self._tell(Status())

    def end(self, *, reason: str, retry_after: int, lost: bool = False, taken: Mapping[str, int] | None = None) -> None:
        """The process is known to be gone, or the connection to it (`lost`): end every unit it had, close the sockets.

        `taken`: by the epoch of each front, the last call that the host took; what was sent and not taken goes back
        to its queue, `MAX_REQUEUED` times. None, not known: all that was sent counts as taken. Second call: Misuse.
        """
        if self._ended:
            raise Misuse(f"{self!r} was ended before")
        self._ended = True
        self._watch.close()
        self._data.close()
        self._control.close()
        calls, self._calls = self._calls, {}
        self._cancelling.clear()
        self._turns.clear()
        last = None if taken is None else taken.get(self._epoch, 0)
        in_company = {call for together in self._batches.values() for call in together}
        for call, dispatch in calls.items():
            error = HostLost if lost else HostDied
            if last is not None and call > last:
                if dispatch.requeued < MAX_REQUEUED:
                    dispatch.requeue()
                    continue
                error = HostDiedAgain
            died = error(reason, dispatched=True, retry_after=retry_after)
            died.in_company = call in in_company
            dispatch.fail(died)

    def _cancel(self, call: int) -> None:
        if call in self._calls and not self._ended:
            self._cancelling.add(call)
            self._tell(Cancel(epoch=self._epoch), call)

    def _tell(self, message: Message, call: int = 0) -> None:
        try:
            self._control.send(encode(message, incarnation=self.incarnation, call=call))
        except zmq.ZMQError:
            log.warning("host %s: the control lane refuses %s", self.incarnation, type(message).__name__)

    # Replies

    def _on_data(self, frames: list[bytes]) -> None:
        if frames[0] == batches.KIND_BYTE:
            self._on_batch(frames)
            return
        try:
            envelope = decode(frames, lane=_DATA, incarnation=self.incarnation)
        except ProtocolError as error:
            self._unreadable(error)
            return
        self._answered(envelope.call, envelope.message)

    def _on_batch(self, frames: list[bytes]) -> None:
        try:
            batch = batches.read(frames, incarnation=self.incarnation)
        except ProtocolError as error:
            self._unreadable(error)
            return
        for part in batch.parts:
            if isinstance(part, ProtocolError):
                self._unreadable(part)
            else:
                self._answered(part.call, part.message)

    def _unreadable(self, error: ProtocolError) -> None:
        """The host sent something else than an answer. If that names calls of ours, they will get no other one."""
        self._refused += 1
        self._complain("host %s sent something else than a reply: %s", self.incarnation, error)
        for call in self._batches.get(error.call, (error.call,)):
            broken = self._take(call)
            self._turns.pop(call, None)
            if broken is not None:
                broken.fail(InternalError("the model's executor sent an answer that cannot be read"))

    def _answered(self, call: int, message: Message) -> None:
        if call in self._batches and isinstance(message, Failure):
            # It could not read the batch: every unit of it that has no answer yet has this one.
            for each in self._batches.pop(call):
                if each in self._calls:
                    self._answered(each, message)
            return
        dispatch = self._take(call)
        if dispatch is None:
            self._unmatched(call)
            return
        self._replies += 1
        turn = self._turns.pop(call, None) if self._turns else None
        if isinstance(message, Result):
            if turn is not None:
                turn.told(message.held, self.incarnation)
            dispatch.complete(Outputs(message.outputs, message.elapsed_us))
        elif isinstance(message, Failure):
            if turn is not None:
                turn.failed()
            if message.fatal:
                self._on_retiring()
            dispatch.fail(reported(message))
        else:
            dispatch.fail(InternalError("the model's executor sent an answer of the wrong kind"))

    def _take(self, call: int) -> Dispatch[Outputs] | None:
        """The unit that ends now. One that is behind it is the host's next from this moment."""
        dispatch = self._calls.pop(call, None)
        if dispatch is not None:
            self._recent.append(call)
            self._cancelling.discard(call)
            if self._calls:
                self._watch.owed()
            else:
                self._watch.answered()
        return dispatch

    def _unmatched(self, call: int) -> None:
        if call in self._recent:
            self._late += 1
            log.debug("host %s: late reply to call %d, dropped", self.incarnation, call)
        else:
            self._unknown += 1
            self._complain("host %s: reply to call %d, which was never made, dropped", self.incarnation, call)

    def _on_control(self, frames: list[bytes]) -> None:
        try:
            envelope = decode(frames, lane=Lane.CONTROL, incarnation=self.incarnation)
        except ProtocolError as error:
            self._refused += 1
            self._complain("host %s: control: %s", self.incarnation, error)
            return
        message = envelope.message
        if isinstance(message, Welcome):
            if message.busy_epoch in ("", self._epoch):
                self._watch.answered()
            # Else it is at work for an earlier front; how long already is not known, so we count from our HELLO.
            self._on_welcome(message)
        elif isinstance(message, Status) and message.report is not None:
            self.report = plain(message.report)
            if not message.report.get("busy"):
                if self._calls:
                    self._ask_for_answers()
                else:
                    self._watch.answered()
                self._on_idle()
        elif isinstance(message, CancelAnswer):
            if message.outcome == "not_begun":
                self._withdrawn(envelope.call)
        elif not isinstance(message, (Progress, Ready)):
            log.debug("host %s: %s", self.incarnation, message)

    def _withdrawn(self, call: int) -> None:
        """The host had been told in time: it does not begin with this unit. What it says on the data lane when it meets
        the frame comes late, and no client waits for that."""
        if call in self._cancelling:
            dispatch = self._take(call)
            self._turns.pop(call, None)
            if dispatch is not None:
                dispatch.withdraw()

    def statistics(self) -> LinkStatistics:
        """Counts, for status and tests."""
        return LinkStatistics(
            outstanding=len(self._calls),
            cancelling=len(self._cancelling),
            replies=self._replies,
            late=self._late,
            unknown=self._unknown,
            refused=self._refused,
            owed_s=round(self._watch.owed_s, 1),
        )

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        return f"<HostLink {self.incarnation} {state} outstanding={len(self._calls)}>"
