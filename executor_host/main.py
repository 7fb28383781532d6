"""One loaded model in one process: load, warm up with a real decision, then receive, execute, send.

    python -m executor_host.main --deployment NAME --incarnation ID --directory DIR --family F
                                 [--path PATH] [--options JSON] [--taken DESCRIPTOR]

Everything that touches the device happens on this, the main thread. The control thread (control.py)
answers questions meanwhile. The data socket is bound only after the warm-up, so that nothing can be sent
to a host that cannot work yet. The host has no queue: the front keeps one unit here at a time.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import zmq

from executor_host import devices
from executor_host.errors import Abandoned, ConfigurationError, FatalExecutionError, HostError, InputRefused
from executor_host.executors.base import Executor
from executor_host.host.control import ControlLane
from executor_host.host.shared_state import Board
from executor_host.host.taken import TakenUnits
from protocol import addresses, families
from protocol.curve import Security
from protocol.errors import FAILURES, Malformed, ProtocolError, StaleIncarnation
from protocol.exits import HostExit
from protocol.frames import Envelope, decode, encode
from protocol.messages import Execute, Failure, Lane, Message, Progress, Ready, Result, Status
from protocol.payloads import Payload
from protocol.states import HostEvent
from protocol.tensors import Blob
from protocol.transport.calls import receive, send
from protocol.transport.sockets import LAST_ANSWERS_MS, address_of, router
from protocol.transport.waiting import Waiting, clear

MAX_NOTE_CHARS = 200
"""Of an executor's progress note; it is one line on a terminal."""

DEVICE_INTERVAL_S = 1.0
"""The memory a device holds is looked at this often at most, after an answer has left: it costs some 0.1 ms."""

_DATA: Final = Lane.DATA
"""A name of the module: Python 3.11 looks a member up in its enum five times as slowly, and every unit would."""


class UnitCall:
    """What an executor may ask about the unit it is executing."""

    __slots__ = ("_board", "_deadline", "_key")

    def __init__(self, board: Board, key: tuple[str, int], budget_ms: int | None) -> None:
        self._board = board
        self._key = key
        self._deadline = None if budget_ms is None else time.monotonic() + budget_ms / 1000

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more. Stopping early is allowed, never required."""
        return self._board.cancelled == self._key

    @property
    def remaining_ms(self) -> int | None:
        """Milliseconds until the caller gives up, at least 0; None without a deadline."""
        return None if self._deadline is None else max(0, int((self._deadline - time.monotonic()) * 1000))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host listens, and what it shares with a front that cannot read its checkpoint."""

    control: str
    data: str
    security: Security | None = None
    """None for sockets in a directory that is the server's own."""
    assets: Mapping[str, Blob] = field(default_factory=dict)
    """Files of the checkpoint by name; they travel with the facts."""


class Host:
    """The main thread's side of one incarnation."""

    def __init__(
        self,
        family: families.Family,
        executor: Executor,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        place: Place,
        taken: TakenUnits | None = None,
    ) -> None:
        """Binds the control lane; raises `zmq.ZMQError` when that is not possible. `context` stays the caller's.
        `taken`: where it is noted which units were taken; None when nobody could read it."""
        self._family = family
        self._executor = executor
        self._board = board
        self._payload: type[Payload] = families.resolve(family.payload)
        self._context = context
        self._place = place
        self._taken = taken
        self._control = ControlLane(context, place.control, board, place.security)
        self._looked = 0.0
        self.trouble = ""
        """Why it could not start, once that is so."""

    @property
    def control(self) -> str:
        """Where the control lane can be dialled."""
        return self._control.address

    def run(self) -> HostExit:
        """Load, warm up, serve until asked to stop; returns the exit status. Never raises."""
        self._control.start()
        self._board.advance(HostEvent.WELCOME)
        status = self._load()
        if status is None:
            status = self._serve()
        self._control.stop(status.name.lower())
        self._executor.close()
        return status

    def _load(self) -> HostExit | None:
        """None when the host is ready; otherwise why it is not."""
        board, executor = self._board, self._executor
        board.announce(Progress(stage="loading", fraction=0.0))
        try:
            facts = executor.load(self._progress)
        except ConfigurationError as error:
            return self._cannot_start(HostExit.CONFIGURATION, error, tell_trace=False)
        except Exception as error:
            return self._cannot_start(HostExit.LOAD_FAILED, error)
        board.advance(HostEvent.LOADED)
        board.announce(Progress(stage="warming", fraction=None))
        try:
            executor.warm_up()
        except ConfigurationError as error:
            return self._cannot_start(HostExit.CONFIGURATION, error, tell_trace=False)
        except Exception as error:
            return self._cannot_start(HostExit.WARM_UP_FAILED, error)
        if board.drain_wanted:
            return HostExit.CLEAN
        self._data = router(self._context, self._place.data, self._place.security, linger_ms=LAST_ANSWERS_MS)
        board.advance(HostEvent.READY)
        shared = {"assets": dict(self._place.assets)} if self._place.assets else {}
        board.announce(Ready(address=address_of(self._data), facts={**facts, **shared}))
        self._look_at_the_device()
        return None

    def _progress(self, fraction: float, note: str) -> None:
        """An executor's progress, held to what the wire allows: a rounding error must not end a load."""
        within = min(max(fraction, 0.0), 1.0) if fraction == fraction else None  # NaN is no place
        self._board.announce(Progress(stage="loading", fraction=within, note=note[:MAX_NOTE_CHARS]))

    def _cannot_start(self, status: HostExit, error: Exception, *, tell_trace: bool = True) -> HostExit:
        if tell_trace:
            traceback.print_exception(error)
        text = self.trouble = str(error) or type(error).__name__
        print(f"cannot start: {text}", file=sys.stderr, flush=True)
        self._board.announce(_failure("executor_error", text[:1000], fatal=True, dispatched=False))
        return status

    def _serve(self) -> HostExit:
        data, board = self._data, self._board
        waiting = Waiting(data, board.main_wake)
        while not board.drain_wanted:
            for ready in waiting.ready():
                if ready == board.main_wake:
                    clear(board.main_wake)
                    continue
                peer, *frames = receive(data)
                if not self._handle(peer, frames):
                    data.close()
                    return HostExit.RETIRED
        board.advance(HostEvent.DRAIN)
        data.close()
        return HostExit.CLEAN

    def _handle(self, peer: bytes, frames: list[bytes]) -> bool:
        """Answer one frame list; False when the host must retire after the answer."""
        board = self._board
        try:
            envelope = decode(frames, lane=_DATA, incarnation=board.incarnation)
        except ProtocolError as error:
            board.stale += 1
            code = "stale_incarnation" if isinstance(error, StaleIncarnation) else "protocol"
            self._reply(peer, error.call, _failure(code, str(error), dispatched=False))
            return True
        if self._taken is not None:
            # Before anything else: a death from here on is one with this unit in our hands.
            self._taken.note(peer, envelope.call)
        key = (peer.decode("ascii", "replace"), envelope.call)
        board.busy_since = time.monotonic()
        board.busy = key
        try:
            answer = self._execute(envelope, key)
        finally:
            board.busy = None
            board.cancelled = None
        # The answer leaves before anything else is done: the front sends the next unit when it has it.
        self._reply(peer, envelope.call, answer)
        if board.idle_wanted:
            board.idle_wanted = False
            board.announce(Status(report=board.report()))
        if time.monotonic() - self._looked > DEVICE_INTERVAL_S:
            self._look_at_the_device()
        return not (isinstance(answer, Failure) and answer.fatal)

    def _look_at_the_device(self) -> None:
        self._looked = time.monotonic()
        self._board.device_bytes = devices.memory_bytes()

    def _execute(self, envelope: Envelope, key: tuple[str, int]) -> Message:
        board = self._board
        message = envelope.message
        assert isinstance(message, Execute)
        if board.drain_wanted:
            return _failure("draining", "the model is being stopped", dispatched=False)
        if envelope.budget_ms == 0:
            return _failure("expired", "the request's time was up before its unit could start", dispatched=False)
        call = UnitCall(board, key, envelope.budget_ms)
        started = time.perf_counter_ns()
        try:
            outputs = self._executor.execute(self._payload.from_wire(message.payload), call)
            result = Result(outputs=outputs, elapsed_us=(time.perf_counter_ns() - started) // 1000)
        except InputRefused as error:
            return Failure(
                code="input",
                status=error.status,
                error_type=error.code,
                where=list(error.where),
                message=error.message,
            )
        except Malformed as error:
            return _failure("protocol", str(error), dispatched=False)
        except Abandoned as error:
            over = call.remaining_ms == 0 and not call.cancelled
            return _failure("expired" if over else error.failure, error.message)
        except FatalExecutionError as error:
            return self._failed(message, error, error.failure, "the device failed; the model is being restarted")
        except HostError as error:
            return self._failed(message, error, error.failure, error.message)
        except Exception as error:
            # The client is told nothing of our insides.
            return self._failed(message, error, "executor_error", "the model failed on this request")
        board.executed += 1
        return result

    def _failed(self, unit: Execute, error: Exception, code: str, message: str) -> Failure:
        """An execution went wrong: the trace goes to the log, and the family's rule says what follows."""
        print(f"request {unit.request} failed ({code}):", file=sys.stderr, flush=True)
        traceback.print_exception(error)
        self._board.failed += 1
        if self._family.retire_on_error and not FAILURES[code].retire:
            return _failure(code, "execution failed; the model is being restarted", fatal=True)
        return _failure(code, message, fatal=FAILURES[code].retire)

    def _reply(self, peer: bytes, call: int, message: Message) -> None:
        try:
            frames = encode(message, incarnation=self._board.incarnation, call=call)
        except ProtocolError as error:
            print(f"data: a result cannot travel: {error}", file=sys.stderr, flush=True)
            self._board.failed += 1
            frames = encode(
                _failure("too_large", "the result is outside the limits of the wire"),
                incarnation=self._board.incarnation,
                call=call,
            )
        try:
            send(self._data, [peer, *frames])
        except zmq.ZMQError:
            # Its front is gone; the next one never hears of this call (decision: replies to another epoch are dropped).
            self._board.undeliverable += 1


def _failure(code: str, message: str, *, dispatched: bool = True, fatal: bool = False) -> Failure:
    kind = FAILURES[code]
    return Failure(
        code=code,
        status=kind.status,
        error_type=kind.error_type,
        message=message,
        dispatched=dispatched,
        fatal=fatal,
    )


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="executor_host", description="One executor host; started by the supervisor.")
    parser.add_argument("--deployment", required=True)
    parser.add_argument("--incarnation", required=True)
    parser.add_argument("--directory", required=True, help="a fresh directory for this incarnation's sockets")
    parser.add_argument("--family", required=True)
    parser.add_argument("--path", default=None)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--taken", type=int, default=None, help="descriptor of the page for taken units")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run a host until it ends; returns a `HostExit`."""
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    faulthandler.enable()
    # For people: `kill -USR1` prints every thread's stack into the server's log.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    board = Board(arguments.incarnation)
    signal.signal(signal.SIGTERM, lambda *_: board.request_drain())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        family = families.find(arguments.family)
        executor: Executor = families.resolve(family.executor)(arguments.path, arguments.options)
    except (ConfigurationError, families.UnknownFamily) as error:
        print(f"cannot start: {error}", file=sys.stderr, flush=True)
        return HostExit.CONFIGURATION
    place = Place(addresses.control(arguments.directory), addresses.data(arguments.directory))
    taken = None if arguments.taken is None else TakenUnits(arguments.taken)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        return Host(family, executor, board, context, place, taken).run()
    finally:
        context.destroy(linger=None)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter teardown: device libraries are known to crash there, after the work is done and answered.
    os._exit(status)
