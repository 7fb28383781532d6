"""What was sent to the executor, executed, and what is answered for each: alone, or several in one pass.

    read ─▶ may it begin? ─▶ execute alone ───────────────▶ RESULT or FAILURE
            cancelled,       execute_many ─▶ one for each
            expired,                       ─▶ raised: in halves, until the culprit stands alone
            draining

A unit is answered exactly once, whatever became of its neighbours. Nothing here knows of sockets.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from executor_host.errors import Abandoned, DeviceMemory, FatalExecutionError, HostError, InputRefused
from executor_host.executors.base import Executor, Kept
from executor_host.host.shared_state import Key, SharedState
from protocol import families
from protocol.errors import FAILURES, Malformed, ProtocolError
from protocol.frames import Envelope
from protocol.messages import Evict, Execute, Failure, Message, Result
from protocol.payloads import Payload
from protocol.retention import Keep

NOTHING: Final = Keep("", 0)
"""What stays of a unit that says nothing about it."""

_NOT_BEGUN: Final = "the model is being restarted; this unit was not begun"


class UnitCall:
    """What an executor may ask about a unit that it is executing."""

    __slots__ = ("_deadline", "_key", "_shared_state")

    def __init__(self, shared_state: SharedState, key: Key, budget_ms: int | None) -> None:
        self._shared_state = shared_state
        self._key = key
        self._deadline = None if budget_ms is None else time.monotonic() + budget_ms / 1000

    @property
    def cancelled(self) -> bool:
        """Whether no caller waits for the answer any more. Stopping early is allowed, never required."""
        return self._key in self._shared_state.cancelled

    @property
    def remaining_ms(self) -> int | None:
        """Milliseconds until the caller gives up, at least 0; None without a deadline."""
        return None if self._deadline is None else max(0, int((self._deadline - time.monotonic()) * 1000))


class Unit(NamedTuple):
    """One that may begin."""

    request: str
    payload: object
    call: UnitCall
    keep: Keep | None = None


class Units:
    """Executes what the data lane brings. Main thread only."""

    def __init__(self, family: families.Family, executor: Executor, shared_state: SharedState) -> None:
        self._family = family
        self._executor = executor
        self._shared_state = shared_state
        self._payload: type[Payload] = families.resolve(family.payload)
        self._short = False
        """Whether the last unit that was executed found no memory."""

    def execute(self, peer: bytes, envelope: Envelope) -> Message:
        """The answer to one unit of the front with the identity `peer`."""
        key = (peer.decode("ascii", "replace"), envelope.call)
        shared_state = self._shared_state
        shared_state.begin((key,))
        try:
            unit = self._begun(key, envelope)
            return unit if isinstance(unit, Failure) else self._alone(unit, 1)
        finally:
            shared_state.end((key,))

    def execute_batch(
        self, peer: bytes, parts: Sequence[Envelope | ProtocolError]
    ) -> Iterator[list[tuple[int, Message]]]:
        """The answers to the parts of one batch, by their calls: as many at once as the executor takes in one pass.

        A part that is no message is answered with what is wrong with it. After a fatal failure nothing more is begun.
        """
        epoch = peer.decode("ascii", "replace")
        shared_state, most = self._shared_state, max(1, self._executor.max_units)
        if self._executor.kept is not None:
            most = 1
        retiring = False
        for start in range(0, len(parts), most):
            group = parts[start : start + most]
            keys = [(epoch, part.call) for part in group]
            shared_state.begin(keys)
            try:
                answers = [_not_begun()] * len(group) if retiring else self._group(keys, group)
            finally:
                shared_state.end(keys)
            retiring = retiring or any(is_fatal(answer) for answer in answers)
            yield [(part.call, answer) for part, answer in zip(group, answers, strict=True)]

    def _group(self, keys: Sequence[Key], parts: Sequence[Envelope | ProtocolError]) -> list[Message]:
        answers: dict[int, Message] = {}
        units: dict[int, Unit] = {}
        for at, (key, part) in enumerate(zip(keys, parts, strict=True)):
            if isinstance(part, ProtocolError):
                self._shared_state.stale += 1
                answers[at] = failure("protocol", str(part), dispatched=False)
                continue
            unit = self._begun(key, part)
            if isinstance(unit, Failure):
                answers[at] = unit
            else:
                units[at] = unit
        if units:
            answers.update(zip(units, self._together(list(units.values()), 1), strict=True))
        return [answers[at] for at in range(len(parts))]

    def _begun(self, key: Key, envelope: Envelope) -> Unit | Failure:
        """The unit of one EXECUTE, or why it does not begin."""
        shared_state, budget_ms = self._shared_state, envelope.budget_ms
        message = envelope.message
        if not isinstance(message, Execute):
            return failure("protocol", f"{type(message).__name__} is nothing to execute", dispatched=False)
        if key in shared_state.cancelled:
            return failure("cancelled", "the call was cancelled before it began", dispatched=False)
        if shared_state.drain_wanted:
            return failure("draining", "the model is being stopped", dispatched=False)
        if budget_ms is not None:
            if message.sent_ms:
                budget_ms -= shared_state.ages.age_ms(key[0], message.sent_ms)
            if budget_ms <= 0:
                return failure("expired", "the request's time was up before its unit could start", dispatched=False)
        try:
            payload = self._payload.from_wire(message.payload)
            keep = None if message.keep is None else Keep.from_wire(message.keep)
        except Malformed as error:
            return failure("protocol", str(error), dispatched=False)
        return Unit(message.request, payload, UnitCall(shared_state, key, budget_ms), keep)

    def _alone(self, unit: Unit, times: int) -> Message:
        started = time.perf_counter_ns()
        try:
            kept = self._executor.kept
            if kept is None:
                return self._result(self._executor.execute(unit.payload, unit.call), started)
            return self._keeping(kept, unit, started)
        except Exception as error:
            return self._reported(unit, error, times)

    def _keeping(self, kept: Kept, unit: Unit, started: int) -> Result:
        """As `_alone`, of an executor that keeps prefixes. What fails pins nothing."""
        keep = unit.keep or NOTHING
        conversation = None
        kept.allow(keep.prefixes)
        kept.begin_turn()
        try:
            outputs = self._executor.execute(unit.payload, unit.call)
            conversation = keep.conversation
        finally:
            held = kept.end_turn(conversation)
        if conversation:
            self._shared_state.held[conversation] = [held.tokens, held.bytes]
        return self._result(outputs, started, held.to_wire())

    def evict(self, message: Evict) -> None:
        """Give up what the front says."""
        kept = self._executor.kept
        if kept is not None:
            kept.allow(message.prefixes)
            kept.drop(message.conversations)
        for conversation in message.conversations:
            self._shared_state.held.pop(conversation, None)

    def _together(self, units: Sequence[Unit], times: int) -> list[Message]:
        """One answer for each unit, which are executed for the `times`-th time."""
        if len(units) == 1:
            return [self._alone(units[0], times)]
        started = time.perf_counter_ns()
        try:
            outcomes = self._executor.execute_many([unit.payload for unit in units], [unit.call for unit in units])
            if len(outcomes) != len(units):
                raise RuntimeError(f"{len(outcomes)} outcomes for {len(units)} units")
        except Exception as error:
            short = isinstance(error, DeviceMemory) and not self._family.retire_on_error
            if isinstance(error, FatalExecutionError) and not short:
                return [self._reported(unit, error, times) for unit in units]
            if short:  # half as many need half as much
                self._relieve(error)
            half = len(units) // 2
            print(f"a batch of {len(units)} failed; each half is executed alone: {error}", file=sys.stderr, flush=True)
            first = self._together(units[:half], times + 1)
            if any(map(is_fatal, first)):
                return [*first, *[_not_begun()] * (len(units) - half)]
            return [*first, *self._together(units[half:], times + 1)]
        return [
            self._reported(unit, outcome, times) if isinstance(outcome, Exception) else self._result(outcome, started)
            for unit, outcome in zip(units, outcomes, strict=True)
        ]

    def _result(self, outputs: Mapping[str, Any], started: int, held: dict[str, Any] | None = None) -> Result:
        elapsed_us = (time.perf_counter_ns() - started) // 1000
        result = Result(outputs=dict(outputs), elapsed_us=elapsed_us, held=held)
        self._shared_state.executed += 1
        self._short = False
        return result

    def _reported(self, unit: Unit, error: Exception, times: int) -> Failure:
        """What an error of the executor is for its unit."""
        if isinstance(error, InputRefused):
            return Failure(
                code="input",
                status=error.status,
                error_type=error.code,
                where=list(error.where),
                message=error.message,
            )
        if isinstance(error, Malformed):
            return failure("protocol", str(error), dispatched=False)
        if isinstance(error, Abandoned):
            over = unit.call.remaining_ms == 0 and not unit.call.cancelled
            return failure("expired" if over else error.failure, error.message)
        if isinstance(error, DeviceMemory):
            return self._short_of_memory(unit, error, times)
        if isinstance(error, FatalExecutionError):
            return self._failed(unit, error, error.failure, "the device failed; the model is being restarted", times)
        if isinstance(error, HostError):
            return self._failed(unit, error, error.failure, error.message, times)
        # The client is told nothing of our insides.
        return self._failed(unit, error, "executor_error", "the model failed on this request", times)

    def _short_of_memory(self, unit: Unit, error: DeviceMemory, times: int) -> Failure:
        """Once is the unit's bad luck, or its size; twice in a row, though all was freed, and the host is of no use."""
        again, self._short = self._short, True
        if again:
            message = "the device had no memory left twice in a row; the model is being restarted"
            return self._failed(unit, error, error.failure, message, times)
        answer = self._failed(
            unit, error, "out_of_memory", "the device had no memory left for this request; others may fit", times
        )
        if not answer.fatal:
            self._relieve(error)
        return answer

    def _relieve(self, error: BaseException) -> None:
        """Have the executor free what it can, the tensors of the frames that `error` has passed above all."""
        passed: BaseException | None = error
        while passed is not None:
            traceback.clear_frames(passed.__traceback__)
            passed = passed.__cause__ or passed.__context__
        self._executor.relieve()

    def _failed(self, unit: Unit, error: Exception, code: str, message: str, times: int) -> Failure:
        """An execution went wrong: the trace goes to the log, and the family's rule says what follows."""
        print(f"request {unit.request} failed ({code}):", file=sys.stderr, flush=True)
        traceback.print_exception(error)
        self._shared_state.failed += 1
        if self._family.retire_on_error and not FAILURES[code].retire:
            return failure(code, "execution failed; the model is being restarted", fatal=True)
        tried = f" (executed {times} times, the last time alone)" if times > 1 else ""
        return failure(code, f"{message}{tried}", fatal=FAILURES[code].retire)


def failure(code: str, message: str, *, dispatched: bool = True, fatal: bool = False) -> Failure:
    """A FAILURE with what goes with its code."""
    kind = FAILURES[code]
    return Failure(
        code=code,
        status=kind.status,
        error_type=kind.error_type,
        message=message,
        dispatched=dispatched,
        fatal=fatal,
    )


def is_fatal(answer: Message) -> bool:
    """Whether the host retires after `answer`."""
    return isinstance(answer, Failure) and answer.fatal


def _not_begun() -> Failure:
    return failure("draining", _NOT_BEGUN, dispatched=False)
