"""One message out of a socket and one into it: the only place that uses parts of pyzmq that are not public.

They are the library's own calls, without the wrappers around them that serve subclasses and other calling styles, and
plain integers instead of flag enums. A message costs a third less with them; `python -m benchmarks.floor.pyzmq_calls`
measures both ways side by side, and docs/benchmarks.md has its figures. What would break with another version of the
library is this file, and its tests are `tests/unit/transport`.

Nothing here blocks, and nothing drops a message in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import zmq
import zmq.backend

from protocol.tensors import Buffer

_send, _recv = zmq.backend.Socket.send, zmq.backend.Socket.recv
_get: Callable[[zmq.Socket[bytes], int], int] = zmq.backend.Socket.get  # type: ignore[assignment] # of a number, a number
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)


def send(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """One message, now; raises `zmq.ZMQError` when its receiver is gone or does not read, or the socket is closed."""
    for frame in frames[:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], _NOBLOCK)


def send_and_look(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> bool:
    """As `send`; whether a message is there, of which sending may have swallowed the edge."""
    for frame in frames[:-1]:
        _send(socket, frame, _MORE)
    _send(socket, frames[-1], _NOBLOCK)
    return bool(_get(socket, _EVENTS) & _POLLIN)


def receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The frames of one whole message, on a ROUTER the peer's identity first; raises `zmq.Again` when there is none.

    A frame knows whether another one follows, so nothing is asked of the socket between them.
    """
    frame = _recv(socket, _NOBLOCK, False)
    frames = [frame.bytes]
    while frame.more:
        frame = _recv(socket, _NOBLOCK, False)
        frames.append(frame.bytes)
    return frames


def readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message is there. A tenth of the price of the exception for "nothing there"."""
    return bool(_get(socket, _EVENTS) & _POLLIN)
