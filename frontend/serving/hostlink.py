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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import zmq

from frontend.errors import (
    DeadlineExceeded,
    HostDied,
    HostDiedAgain,
    HostLost,
    HostRetires,
    InternalError,
    InvalidRequest,
    Misuse,
    RequestError,
    Unavailable,
)
from frontend.runtime.dispatch import Dispatch
from frontend.serving import reports
from frontend.serving.overdue import OverdueWatch
from protocol.curve import Security
from protocol.errors import FAILURES, ProtocolError
from protocol.frames import decode, encode
from protocol.messages import (
    Cancel,
    CancelAnswer,
    Execute,
    Failure,
    Hello,
    Lane,
    Message,
    Progress,
    Ready,
    Result,
    Status,
    Welcome,
)
from protocol.transport.loop import dial

RECENT_CALLS = 1024
"""Ids of ended calls that are remembered, so that a late reply is told from an unknown one in the log."""

MAX_REQUEUED = 2
"""How often a unit goes back to its queue. What kills a host while it is received, for want of memory as a rule, looks
as if it had only been on its way; it must not use up the restarts of a model, which are 5 by default."""

REFUSALS = frozenset({400, 413, 422})
"""What a host may choose from for an input that it refuses; another status is taken for 400."""

_DATA: Final = Lane.DATA  # see `frontend.runtime.admission`

log = logging.getLogger("framehost.hostlink")


class Outputs(NamedTuple):
    """What the executor returned for one unit, and how long it took inside the executor, in microseconds."""

    values: dict[str, Any]
    elapsed_us: int


class HostFailure(RequestError):
    """Input that only the host could see is bad, with the status (of `REFUSALS`) and the word it chose."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.status = failure.status if failure.status in REFUSALS else 400  # type: ignore[misc]
        self.error_type = failure.error_type  # type: ignore[misc]
        self.where = tuple(failure.where)


def reported(failure: Failure) -> Exception:
    """What a failure that the host survives means for the request.

    Its status is a hint between the two processes: a client gets only those that it has been told of.
    """
    if failure.code == "input":
        if failure.status == InvalidRequest.status:
            # A body that fails validation has one shape in each dialect, whoever has found it.
            return InvalidRequest.at(tuple(failure.where), failure.message, failure.error_type)
        return HostFailure(failure)
    if failure.code == "expired":
        return DeadlineExceeded(failure.message)
    if FAILURES[failure.code].status == 503:
        return Unavailable(failure.message, retry_after=1)
    return InternalError(failure.message)


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
        self._recent: deque[int] = deque(maxlen=RECENT_CALLS)
        self._replies = self._late = self._unknown = self._refused = 0
        self._ended = False
        self.report: Mapping[str, Any] = {}
        """What the host last said of itself."""
        self._on_welcome, self._on_idle, self._on_retiring = on_welcome, on_idle, on_retiring
        self._watch = watch or OverdueWatch(loop, None, lambda _: None)
        self._data = dial(loop, context, data, self._on_data, identity=epoch, security=security)
        try:
            self._control = dial(loop, context, control, self._on_control, identity=epoch, security=security)
        except (zmq.ZMQError, ValueError):
            self._data.close()
            raise
        self._tell(Hello(role="front", epoch=epoch, pid=pid))
        self._watch.owed()

    # Units

    def send(
        self, dispatch: Dispatch[Outputs], payload: dict[str, Any], budget_ms: int | None, request_id: str = ""
    ) -> None:
        """Send one unit, for the host's log with the id of its request; its end comes from the host or from `end`.

        Called by the scheduler at the grant, so it must not wait. Raises `RequestError` when the unit does not
        fit the wire or the socket refuses it; then it was not sent.
        """
        if self._ended:
            raise Misuse(f"{self!r} has ended; nothing may be sent to it")
        call = next(self._ids)
        try:
            unit = Execute(payload=payload, request=request_id)
            frames = encode(unit, incarnation=self.incarnation, call=call, budget_ms=budget_ms)
            self._data.send(frames)
        except ProtocolError as error:
            raise InternalError(f"the prepared request does not fit the wire: {error}") from error
        except zmq.ZMQError as error:
            raise Unavailable("the model's executor cannot be reached", retry_after=1) from error
        self._calls[call] = dispatch
        if len(self._calls) == 1:
            self._watch.owed()
        dispatch.on_abandoned(lambda: self._cancel(call))

    def ask(self) -> None:
        """Ask the host how it is. Its control thread answers when it can, into `report`; nobody waits."""
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
        last = None if taken is None else taken.get(self._epoch, 0)
        for call, dispatch in calls.items():
            error = HostLost if lost else HostDied
            if last is not None and call > last:
                if dispatch.requeued < MAX_REQUEUED:
                    dispatch.requeue()
                    continue
                error = HostDiedAgain
            dispatch.fail(error(reason, dispatched=True, retry_after=retry_after))

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
        try:
            envelope = decode(frames, lane=_DATA, incarnation=self.incarnation)
        except ProtocolError as error:
            self._refused += 1
            log.warning("host %s sent something else than a reply: %s", self.incarnation, error)
            # If it names a call of ours, that call will get no other answer.
            broken = self._take(error.call)
            if broken is not None:
                self._recent.append(error.call)
                self._cancelling.discard(error.call)
                broken.fail(InternalError("the model's executor sent an answer that cannot be read"))
            return
        call, message = envelope.call, envelope.message
        dispatch = self._take(call)
        if dispatch is None:
            self._unmatched(call)
            return
        self._replies += 1
        self._recent.append(call)
        self._cancelling.discard(call)
        if isinstance(message, Result):
            dispatch.complete(Outputs(message.outputs, message.elapsed_us))
        elif isinstance(message, Failure):
            if message.fatal:
                self._on_retiring()
                if FAILURES[message.code].status == InternalError.status:
                    # The model failed on this very request: trying it again would end the next host.
                    dispatch.fail(HostRetires(message.message))
                else:
                    dispatch.fail(HostDied(message.message, dispatched=message.dispatched, retry_after=1))
            else:
                dispatch.fail(reported(message))
        else:
            dispatch.fail(InternalError("the model's executor sent an answer of the wrong kind"))

    def _take(self, call: int) -> Dispatch[Outputs] | None:
        """The unit that ends now. One that is behind it is the host's next from this moment."""
        dispatch = self._calls.pop(call, None)
        if dispatch is not None:
            if self._calls:
                self._watch.owed()
            else:
                self._watch.settled()
        return dispatch

    def _unmatched(self, call: int) -> None:
        if call in self._recent:
            self._late += 1
            log.debug("host %s: late reply to call %d, dropped", self.incarnation, call)
        else:
            self._unknown += 1
            log.warning("host %s: reply to call %d, which nobody made, dropped", self.incarnation, call)

    def _on_control(self, frames: list[bytes]) -> None:
        try:
            message = decode(frames, lane=Lane.CONTROL, incarnation=self.incarnation).message
        except ProtocolError as error:
            self._refused += 1
            log.warning("host %s: control: %s", self.incarnation, error)
            return
        if isinstance(message, Welcome):
            if message.busy_epoch in ("", self._epoch):
                self._watch.settled()
            # Else it is at work for an earlier front; how long already is not known, so we count from our HELLO.
            self._on_welcome(message)
        elif isinstance(message, Status) and message.report is not None:
            if not reports.fit(message.report):
                self._refused += 1
                log.warning("host %s: its report is not one that can be shown", self.incarnation)
                return
            self.report = message.report
            if not message.report.get("busy"):
                if not self._calls:
                    self._watch.settled()
                self._on_idle()
        elif not isinstance(message, (Progress, Ready, CancelAnswer)):
            log.debug("host %s: %s", self.incarnation, message)

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
