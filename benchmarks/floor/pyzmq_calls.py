"""What a message costs with pyzmq's public calls, and with those that `protocol/transport/calls.py` uses instead.

    python -m benchmarks.floor.pyzmq_calls [--messages N] [--rounds N]

Both ways send a message of four frames from one socket to another of the same process and receive it there, in turn.
Printed is one JSON line: microseconds for each, of the fastest round, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence

import zmq

from protocol.transport import calls

FRAMES = (b"peer", b"\x05", bytes(19), bytes(160))

Send = Callable[[zmq.Socket[bytes], Sequence[bytes]], object]
Receive = Callable[[zmq.Socket[bytes]], object]


def public_send(socket: zmq.Socket[bytes], frames: Sequence[bytes]) -> None:
    """As the documentation of the library shows it."""
    socket.send_multipart(frames, zmq.NOBLOCK)


def public_receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    """As the documentation of the library shows it, with the look that a loop needs."""
    frames = socket.recv_multipart(zmq.NOBLOCK)
    socket.getsockopt(zmq.EVENTS)
    return frames


def own_receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The same with our calls."""
    frames = calls.receive(socket)
    calls.readable(socket)
    return frames


def measure(send: Send, receive: Receive, messages: int) -> float:
    """Microseconds of a message there, in one thread; the wait for the library's own thread is not counted."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    try:
        here.bind("inproc://calls")
        there.connect("inproc://calls")
        spent = 0
        for _ in range(messages):
            begin = time.perf_counter_ns()
            send(here, FRAMES)
            spent += time.perf_counter_ns() - begin
            there.poll()
            begin = time.perf_counter_ns()
            receive(there)
            spent += time.perf_counter_ns() - begin
    finally:
        here.close()
        there.close()
        context.term()
    return spent / messages / 1000


def main() -> None:
    """Measure both in turn, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    public, own = [], []
    for _ in range(arguments.rounds):
        public.append(measure(public_send, public_receive, arguments.messages))
        own.append(measure(calls.send, own_receive, arguments.messages))
    print(
        json.dumps(
            {
                "public_us": round(min(public), 2),
                "own_us": round(min(own), 2),
                "ratio": round(min(own) / min(public), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
