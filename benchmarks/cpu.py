"""What a request costs in processor time, in two checkouts side by side: did a change make it cheaper?

    python -m benchmarks.cpu OLD [--model NAME=FAMILY[:PATH]] [--pairs N] [--requests N] [--connections N,...] [--floor]

OLD is another checkout of this repository; the code of this one is compared with it. Both servers run at once and are
loaded in turn, for a fraction of a second each, in an order that changes from pair to pair.

Requests per second say nothing on a machine that others use, too. Processor time, as the kernel counts it for the
threads of a server, has nobody else's work in it, but whoever shares a core and its caches still makes it longer: so
turns are short and many, a ratio is taken within a pair, and beside the median the tenth percentile is told, which is
what the quieter moments took. Exit status: 0 measured, 2 a server failed.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks import machine, request, servers
from benchmarks.processes import role, tree
from benchmarks.servers import HOST, ROOT, Running, ServerFailed, Target

WARM_UP_REQUESTS = 1_000
TURN_REQUESTS = 200
"""A tenth of a second. At least this many per connection are sent in one turn: `PER_CONNECTION`."""

PER_CONNECTION = 8
TIMEOUT_S = 60.0
ALL = "all"
ROLES = (ALL, "front", "host", "supervisor", "other")

Samples = Sequence[Mapping[str, float]]
"""Microseconds of a request by role, one map for each turn."""


class Client:
    """A closed loop over kept-alive connections: each sends its next request when it has its answer."""

    def __init__(self, server: Running, connections: int) -> None:
        self._server = server
        self._request = (
            f"POST {server.target.path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(request.BODY)}\r\n\r\n"
        ).encode() + request.BODY
        self._selector = selectors.DefaultSelector()
        for _ in range(connections):
            opened = socket.create_connection((HOST, server.port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(opened, selectors.EVENT_READ, bytearray())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def send(self, count: int) -> None:
        """Have `count` requests answered. Raises `ServerFailed` for anything but an answer."""
        keys = list(self._selector.get_map().values())
        unsent = count - len(keys)
        for key in keys:
            key.fileobj.sendall(self._request)  # type: ignore[union-attr]
        unanswered = count
        while unanswered:
            events = self._selector.select(TIMEOUT_S)
            if not events:
                raise ServerFailed(f"{self._server.target.name} has not answered for {TIMEOUT_S:g} s")
            for key, _ in events:
                opened: socket.socket = key.fileobj  # type: ignore[assignment]
                received: bytearray = key.data
                received += opened.recv(1 << 16)
                if not _complete(received):
                    continue
                received.clear()
                unanswered -= 1
                if unsent > 0:
                    unsent -= 1
                    opened.sendall(self._request)


def _complete(received: bytearray) -> bool:
    """Whether a whole answer is there."""
    if received and not received.startswith(b"HTTP/1.1 200 "):
        raise ServerFailed(f"not an answer: {bytes(received[:300])!r}")
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return False
    length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
    return len(body) == int(length)


def used_us(pid: int) -> dict[str, float]:
    """Processor time of a tree so far, in microseconds, by what its processes are; without threads that have ended."""
    used: dict[str, float] = defaultdict(float)
    for member in tree(pid):
        for thread in Path(f"/proc/{member}/task").iterdir():
            microseconds = int((thread / "schedstat").read_text().split()[0]) / 1e3
            used[role(member, pid)] += microseconds
            used[ALL] += microseconds
    return used


def turn(client: Client, server: Running, requests: int) -> dict[str, float]:
    """Microseconds of processor time that one request takes now, by role."""
    before = used_us(server.process.pid)
    client.send(requests)
    after = used_us(server.process.pid)
    return {name: (value - before[name]) / requests for name, value in after.items()}


def measure(running: Sequence[Running], connections: int, pairs: int, requests: int) -> list[Samples]:
    """The samples of each server, pair by pair."""
    samples: list[list[Mapping[str, float]]] = [[] for _ in running]
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(server, connections)) for server in running]
        for client in clients:
            client.send(WARM_UP_REQUESTS)
        for pair in range(pairs):
            order = range(len(running)) if pair % 2 == 0 else reversed(range(len(running)))
            for index in order:
                samples[index].append(turn(clients[index], running[index], requests))
    return list(samples)


def rows(connections: int, old: Samples, new: Samples, floor: Samples) -> list[str]:
    """The lines of the table."""
    lines = []
    for name in ROLES:
        before, after, bare = ([sample.get(name, 0.0) for sample in side] for side in (old, new, floor))
        if not any(before):
            continue
        ratios = statistics.quantiles([b / a for a, b in zip(before, after, strict=True) if a], n=4)
        quiet = _tenth(after) / _tenth(before) if _tenth(before) else 1.0
        lines.append(
            f"| {connections} | {name} | {statistics.median(before):.0f} | {statistics.median(after):.0f} | "
            f"{ratios[1]:.3f} ({ratios[0]:.2f}..{ratios[2]:.2f}) | {_tenth(before):.0f} | {_tenth(after):.0f} | "
            f"{quiet:.3f} | {_both(bare) if name == ALL and bare else ''} |"
        )
    return lines


def _tenth(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10)[0]


def _both(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f}, quiet {_tenth(values):.0f}"


def _target(name: str, root: Path, model: str) -> Target:
    command = (sys.executable, "-P", "-m", "executor_host.supervision.entry", "serve", "--model", model, "--port")
    return Target(name, name, command, root=root)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.cpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("old", type=Path, metavar="OLD", help="the checkout to compare this one with")
    parser.add_argument("--model", default="toy=toy:noop", help="as for `framehost serve` (default %(default)s)")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--requests", type=int, default=TURN_REQUESTS, help="of one turn (default %(default)s)")
    parser.add_argument("--connections", default="1,64", metavar="N,...")
    parser.add_argument("--floor", action="store_true", help="load the one-outstanding floor on uvloop in turn, too")
    return parser.parse_args()


def main() -> int:
    """Run the comparison; returns the exit status."""
    arguments = _arguments()
    targets = [
        _target("old", arguments.old.resolve(), arguments.model),
        _target("new", ROOT, arguments.model),
        *(target for target in servers.TARGETS if arguments.floor and target.name == "floor-one-uv"),
    ]
    lines = []
    try:
        with tempfile.TemporaryDirectory(prefix="framehost-cpu-") as directory, ExitStack() as stack:
            running = []
            for target in targets:
                home = Path(directory) / target.name
                home.mkdir()
                running.append(stack.enter_context(servers.started(target, home)))
            for connections in map(int, arguments.connections.split(",")):
                requests = max(arguments.requests, connections * PER_CONNECTION)
                old, new, *floor = measure(running, connections, arguments.pairs, requests)
                lines += rows(connections, old, new, floor[0] if floor else ())
    except (OSError, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{machine.describe()}. {arguments.pairs} pairs; microseconds of processor time per request.\n")
    print("| connections | process | old | new | new / old (quartiles) | old quiet | new quiet | new / old | floor |")
    print("|---|---|---|---|---|---|---|---|---|")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
