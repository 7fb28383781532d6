"""The floor's worker: receive, decide, send, in the main thread, blocking."""

from __future__ import annotations

import sys

import msgpack
import zmq

from benchmarks.floor.work import decide


def main() -> None:
    """Work until terminated."""
    address, busy_s = sys.argv[1], float(sys.argv[2])
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, b"worker")
    socket.connect(address)
    socket.send(b"hello")
    while True:
        call, body = socket.recv_multipart()
        socket.send_multipart((call, msgpack.packb(decide(msgpack.unpackb(body), busy_s))))


if __name__ == "__main__":
    main()
