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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import zmq

from executor_host import devices
from executor_host.errors import ConfigurationError
from executor_host.executors.base import Executor
from executor_host.host.control import ControlLane
from executor_host.host.shared_state import SharedState
from executor_host.host.taken import TakenUnits
from executor_host.host.units import Units, failure, is_fatal
from protocol import addresses, batches, families
from protocol.curve import Security
from protocol.errors import ProtocolError, StaleIncarnation
from protocol.exits import HostExit
from protocol.frames import decode, encode
from protocol.messages import Evict, Failure, Lane, Message, Owed, Progress, Ready, Status
from protocol.states import HostEvent
from protocol.tensors import Blob, Buffer
from protocol.transport.calls import receive, send
from protocol.transport.sockets import LAST_ANSWERS_MS, address_of, router
from protocol.transport.waiting import Waiting, clear

MAX_NOTE_CHARS = 200
"""Of an executor's progress note; it is one line on a terminal."""

DEVICE_INTERVAL_S = 1.0
"""The memory a device holds is looked at this often at most, after an answer has left: it costs some 0.1 ms."""

KEPT_ANSWERS: Final = 4
"""Frame lists. A front has at most one frame list executed, one staged, and their answers on the way."""

_DATA: Final = Lane.DATA
"""A name of the module: Python 3.11 looks a member up in its enum five times as slowly, and every unit would."""


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
        shared_state: SharedState,
        context: zmq.Context[zmq.Socket[bytes]],
        place: Place,
        taken: TakenUnits | None = None,
    ) -> None:
        """Binds the control lane; raises `zmq.ZMQError` when that is not possible. `context` stays the caller's.
        `taken`: where it is noted which units were taken; None when no process could read it."""
        self._family = family
        self._executor = executor
        self._shared_state = shared_state
        self._units = Units(family, executor, shared_state)
        self._context = context
        self._place = place
        self._taken = taken
        self._control = ControlLane(context, place.control, shared_state, place.security)
        self._looked = 0.0
        self._asker = b""
        """The front that was answered last."""
        self._kept: deque[tuple[Sequence[int], list[Buffer]]] = deque(maxlen=KEPT_ANSWERS)
        """What it was answered, with the calls: connections to another machine can break with answers in them."""
        self.trouble = ""
        """Why it could not start, once that is so."""

    @property
    def control(self) -> str:
        """Where the control lane can be dialled."""
        return self._control.address

    def run(self) -> HostExit:
        """Load, warm up, serve until asked to stop; returns the exit status. Never raises."""
        self._control.start()
        self._shared_state.advance(HostEvent.WELCOME)
        status = self._load()
        if status is None:
            status = self._serve()
        # Before the close, which may hang: then the supervisor ends this process.
        self._control.leave(status.name.lower())
        try:
            self._executor.close()
        except Exception as error:
            traceback.print_exception(error)  # for the log: how it ends has been decided
        self._control.stop()
        return status

    def _load(self) -> HostExit | None:
        """None when the host is ready; otherwise why it is not."""
        shared_state, executor = self._shared_state, self._executor
        shared_state.announce(Progress(stage="loading", fraction=0.0))
        try:
            facts = executor.load(self._progress)
        except ConfigurationError as error:
            return self._cannot_start(HostExit.CONFIGURATION, error, tell_trace=False)
        except Exception as error:
            return self._cannot_start(HostExit.LOAD_FAILED, error)
        shared_state.advance(HostEvent.LOADED)
        shared_state.announce(Progress(stage="warming", fraction=None))
        try:
            executor.warm_up()
            kept = executor.kept
            if kept is not None:
                facts = {**facts, "keeps": kept.cost().to_wire()}
                kept.clear()
        except ConfigurationError as error:
            return self._cannot_start(HostExit.CONFIGURATION, error, tell_trace=False)
        except Exception as error:
            return self._cannot_start(HostExit.WARM_UP_FAILED, error)
        if shared_state.drain_wanted:
            return HostExit.CLEAN
        self._data = router(self._context, self._place.data, self._place.security, linger_ms=LAST_ANSWERS_MS)
        shared = {"assets": dict(self._place.assets)} if self._place.assets else {}
        ready = Ready(address=address_of(self._data), facts={**facts, **shared})
        try:
            encode(ready, incarnation=shared_state.incarnation)
        except ProtocolError as error:
            self._data.close()
            return self._cannot_start(HostExit.CONFIGURATION, error, tell_trace=False)
        shared_state.advance(HostEvent.READY)
        shared_state.announce(ready)
        self._look_at_the_device()
        return None

    def _progress(self, fraction: float, note: str) -> None:
        """An executor's progress, held to what the wire allows: a rounding error must not end a load."""
        within = min(max(fraction, 0.0), 1.0) if fraction == fraction else None  # NaN is no place
        self._shared_state.announce(Progress(stage="loading", fraction=within, note=note[:MAX_NOTE_CHARS]))

    def _cannot_start(self, status: HostExit, error: Exception, *, tell_trace: bool = True) -> HostExit:
        if tell_trace:
            traceback.print_exception(error)
        text = self.trouble = str(error) or type(error).__name__
        print(f"cannot start: {text}", file=sys.stderr, flush=True)
        self._shared_state.announce(failure("executor_error", text[:1000], fatal=True, dispatched=False))
        return status

    def _serve(self) -> HostExit:
        data, shared_state = self._data, self._shared_state
        waiting = Waiting(data, shared_state.main_wake)
        while not shared_state.drain_wanted:
            for ready in waiting.ready():
                if ready == shared_state.main_wake:
                    clear(shared_state.main_wake)
                    continue
                peer, *frames = receive(data)
                if not self._handle(peer, frames):
                    data.close()
                    return HostExit.RETIRED
        shared_state.advance(HostEvent.DRAIN)
        data.close()
        return HostExit.CLEAN

    def _handle(self, peer: bytes, frames: list[bytes]) -> bool:
        """Answer one frame list; False when the host must retire after the answer."""
        if frames and frames[0] == batches.KIND_BYTE:
            return self._handle_batch(peer, frames)
        shared_state = self._shared_state
        try:
            envelope = decode(frames, lane=_DATA, incarnation=shared_state.incarnation)
        except ProtocolError as error:
            self._refuse(peer, error)
            return True
        if isinstance(envelope.message, Owed):
            self._answer_again(peer, envelope.message.calls)
            return True
        if isinstance(envelope.message, Evict):
            self._units.evict(envelope.message)
            return True
        if self._taken is not None:
            # Before anything else: a death from here on is one with this unit in our hands.
            self._taken.note(peer, envelope.call)
        answer = self._units.execute(peer, envelope)
        # The answer leaves before anything else is done: the front sends the next unit when it has it.
        self._reply(peer, envelope.call, answer)
        self._look_around()
        return not is_fatal(answer)

    def _handle_batch(self, peer: bytes, frames: list[bytes]) -> bool:
        """The same for the units of one batch."""
        shared_state = self._shared_state
        try:
            batch = batches.read(frames, incarnation=shared_state.incarnation)
        except ProtocolError as error:
            self._refuse(peer, error)
            return True
        if self._taken is not None:
            self._taken.note(peer, batch.parts[-1].call)
        fatal = False
        for answers in self._units.execute_batch(peer, batch.parts):
            self._reply_together(peer, batch.call, answers)
            fatal = fatal or any(is_fatal(answer) for _, answer in answers)
        self._look_around()
        return not fatal

    def _refuse(self, peer: bytes, error: ProtocolError) -> None:
        """Answer what could not be read."""
        self._shared_state.stale += 1
        code = "stale_incarnation" if isinstance(error, StaleIncarnation) else "protocol"
        self._reply(peer, error.call, failure(code, str(error), dispatched=False))

    def _look_around(self) -> None:
        """Between two units: what was asked for meanwhile."""
        shared_state = self._shared_state
        if shared_state.idle_wanted:
            shared_state.idle_wanted = False
            shared_state.announce(Status(report=shared_state.report()))
        if time.monotonic() - self._looked > DEVICE_INTERVAL_S:
            self._look_at_the_device()

    def _look_at_the_device(self) -> None:
        self._looked = time.monotonic()
        self._shared_state.device_bytes = devices.memory_bytes()

    def _reply(self, peer: bytes, call: int, message: Message) -> None:
        try:
            frames = encode(message, incarnation=self._shared_state.incarnation, call=call)
        except ProtocolError as error:
            frames = encode(self._too_large(error), incarnation=self._shared_state.incarnation, call=call)
        self._send(peer, (call,), frames)

    def _reply_together(self, peer: bytes, batch: int, answers: Sequence[tuple[int, Message]]) -> None:
        """The answers of one pass, as one frame list where they fit into one. `batch`: the own call of their batch."""
        if len(answers) == 1:
            self._reply(peer, *answers[0])
            return
        parts = []
        for call, message in answers:
            try:
                parts.append(batches.pack(message, call=call))
            except ProtocolError as error:
                parts.append(batches.pack(self._too_large(error), call=call))
        try:
            frames = batches.join(parts, incarnation=self._shared_state.incarnation, call=batch)
        except ProtocolError:
            for call, message in answers:
                self._reply(peer, call, message)
            return
        self._send(peer, [call for call, _ in answers], frames)

    def _too_large(self, error: ProtocolError) -> Failure:
        print(f"data: a result cannot travel: {error}", file=sys.stderr, flush=True)
        self._shared_state.failed += 1
        return failure("too_large", "the result is outside the limits of the wire")

    def _send(self, peer: bytes, calls: Sequence[int], frames: list[Buffer]) -> None:
        if peer != self._asker:
            # A front that is replaced does not ask again.
            self._asker = peer
            self._kept.clear()
        # What was sent may still be lost with its connection, and what cannot be sent now may be asked for later.
        self._kept.append((calls, frames))
        self._transmit(peer, frames)

    def _transmit(self, peer: bytes, frames: list[Buffer]) -> None:
        try:
            send(self._data, [peer, *frames])
        except zmq.ZMQError:
            # Its front is gone, or its connection: the same front asks for the answer when it is back, and the next
            # one never hears of this call (decision: replies to another epoch are dropped).
            self._shared_state.undeliverable += 1

    def _answer_again(self, peer: bytes, calls: Sequence[int]) -> None:
        """Send what the front says it has not got."""
        owed = set(calls)
        for answered, frames in tuple(self._kept) if peer == self._asker else ():
            if not owed.isdisjoint(answered):
                self._transmit(peer, frames)
                owed.difference_update(answered)
        for call in sorted(owed):
            lost = failure("lost", "the connection to the model's host broke and the unit or its answer is lost")
            self._transmit(peer, encode(lost, incarnation=self._shared_state.incarnation, call=call))


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
    shared_state = SharedState(arguments.incarnation)
    signal.signal(signal.SIGTERM, lambda *_: shared_state.request_drain())
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
        return Host(family, executor, shared_state, context, place, taken).run()
    finally:
        context.destroy(linger=None)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter teardown: device libraries are known to crash there, after the work is done and answered.
    os._exit(status)
