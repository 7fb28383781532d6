"""What must hold while a server is loaded: no gap between answers in a swap, no memory that is not given back.

    python -m benchmarks.holding [--requests N] [--rounds N] [--encoder FOLDER]

The longest gap between two answers while the model is replaced by a second host of itself, start-first, under 64
connections, beside the longest one in as long a time without a swap; and the front's resident memory after 1,000 and
after N requests. Exit status: 0 measured, 1 a server failed or answered wrongly.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import client, machine, memory, work
from benchmarks.processes import role, tree
from benchmarks.servers import Running, ServerFailed, Target, started
from benchmarks.tables import draw

CONNECTIONS: Final = 64
PROGRAM: Final = str(Path(sys.executable).with_name("framehost"))


async def gaps(server: Running, order: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """The longest gap between answers, in milliseconds: in a swap, and in as long a time after it."""
    over = asyncio.Event()
    bodies = itertools.cycle(work.distinct())
    load = asyncio.create_task(client.loop(server.port, CONNECTIONS, bodies, over.is_set))
    await asyncio.sleep(2)
    begun = time.monotonic()
    swap = await asyncio.create_subprocess_exec(*order, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = await swap.communicate()
    ended = time.monotonic()
    await asyncio.sleep(ended - begun)
    over.set()
    answered = sorted(at for at, _ in await load)
    if swap.returncode:
        raise ServerFailed(f"the swap failed: {said}")
    return _longest([at for at in answered if begun <= at <= ended]), _longest([at for at in answered if at > ended])


def _longest(answered: list[float]) -> float:
    return max(later - earlier for earlier, later in itertools.pairwise(answered)) * 1e3


def swapped(folder: Path, model: str, rounds: int) -> list[str]:
    """A row of the table: the median of the rounds."""
    family, _, path = model.partition(":")
    target = Target("swap", "framehost", (PROGRAM, "serve", "--model", f"m={model}", "--port"))
    with started(target, folder, 60.0) as server:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        order = [PROGRAM, "swap", f"m={family}" + (f":{path}" if path else ""), "--port", str(server.port)]
        found = [asyncio.run(gaps(server, order, environment)) for _ in range(rounds)]
    during, without = (statistics.median(side) for side in zip(*found, strict=True))
    medians = f"{during:.1f} ms, {without:.1f} ms after it"
    spread = f"({min(found)[0]:.1f} .. {max(found)[0]:.1f} ms)"
    said = "yes" if during <= 50 else "NO"
    return [
        f"start-first swap of {family}, longest gap between answers",
        str(CONNECTIONS),
        medians,
        spread,
        "≤ 50 ms",
        said,
    ]


def remembered(folder: Path, model: str, requests: int) -> list[str]:
    """A row of the table: what the front holds after `requests` more than after 1,000."""
    target = Target("memory", "framehost", (PROGRAM, "serve", "--model", f"m={model}", "--port"))
    with started(target, folder, 60.0) as server:
        (front,) = (pid for pid in tree(server.process.pid) if role(pid, server.process.pid) == "front")
        asyncio.run(_asked(server, 1_000))
        before = memory.of_process(front).rss
        asyncio.run(_asked(server, requests - 1_000))
        after = memory.of_process(front).rss
    said = "yes" if after - before <= 2 else "NO"
    medians = f"{before:.1f} MiB, then {after:.1f} MiB"
    title = f"front's memory after {requests:,} requests, beside after 1,000"
    return [title, str(CONNECTIONS), medians, f"+{after - before:.1f} MiB", "≤ +2 MiB", said]


async def _asked(server: Running, requests: int) -> None:
    bodies = itertools.cycle(work.distinct())
    numbers = itertools.count()
    await client.loop(server.port, CONNECTIONS, bodies, lambda: next(numbers) >= requests)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.holding", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(machine.describe(), flush=True)
    with tempfile.TemporaryDirectory(prefix="fh-") as folder:
        try:
            rows = [swapped(Path(folder), "sparrow", arguments.rounds)]
            rows.append(remembered(Path(folder), "sparrow", arguments.requests))
        except ServerFailed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    print(draw([["work", "connections", "medians", "difference", "aim", "met"], *rows], markdown=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
