"""The transport alone: one ZeroMQ message there and one back between two processes, both blocking.

The frames have the sizes of framehost's (kind, header, body; a small unit out, a small result back). Printed
is one JSON line. Nothing that uses ZeroMQ for a request can add less than this to its latency.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zmq

KIND, HEADER = b"\x05", bytes(19)
UNIT, RESULT = bytes(160), bytes(40)


def answer(address: str) -> None:
    """The other process."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.bind(address)
    while True:
        peer, _, header, _ = socket.recv_multipart()
        socket.send_multipart((peer, KIND, header, RESULT))


def ask(seconds: float) -> dict[str, float]:
    """Microseconds per round trip."""
    with tempfile.TemporaryDirectory() as directory:
        address = f"ipc://{Path(directory) / 'ping'}"
        child = subprocess.Popen([sys.executable, "-m", "benchmarks.floor.pingpong", "--answer", address])
        try:
            socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
            socket.setsockopt(zmq.RECONNECT_IVL, 5)
            socket.connect(address)
            trips = []
            warm_at = None
            while warm_at is None or time.perf_counter() < warm_at + seconds:
                begin = time.perf_counter()
                socket.send_multipart((KIND, HEADER, UNIT))
                socket.recv_multipart()
                trips.append((time.perf_counter() - begin) * 1e6)
                if warm_at is None and len(trips) == 500:
                    trips.clear()
                    warm_at = time.perf_counter()
        finally:
            child.kill()
            child.wait()
    cuts = statistics.quantiles(trips, n=100)
    return {"trips": len(trips), "p50_us": cuts[49], "p99_us": cuts[98]}


def main() -> None:
    """Ask, or be the one who answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--answer", metavar="ADDRESS")
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    if arguments.answer:
        answer(arguments.answer)
    else:
        print(json.dumps(ask(arguments.seconds)))


if __name__ == "__main__":
    main()
