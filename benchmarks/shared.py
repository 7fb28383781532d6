"""What batches, look-ahead and shared work buy: framehost with and without each, in one run, round by round.

    python -m benchmarks.shared [--rounds 5] [--seconds 4] [--connections 64] [--encoder FOLDER] [--markdown]

Both servers of a row are started once and measured one after the other, in an order that turns from round to round;
ratios are taken within a round, medians over the rounds. States are short and all different, but where a row says
otherwise. The client is a process of its own that writes bytes and reads lengths; it takes its share of the same
cores. `--encoder`: the folder of a sentence encoder (`framehost fetch` prints where one is); without it the rows of the
embedding family are left out. Exit status: 0 measured, 1 a server failed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.servers import HOST, ROOT, Running, ServerFailed, Target, started
from benchmarks.tables import draw

WORDS: Final = "order refund charge login error broken cannot money twice small large none invoice late again".split()  # noqa: SIM905
QUESTIONS: Final = {
    "team": {"type": "choice", "criteria": {"billing": "a charge or an invoice", "login": "cannot log in"}},
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: keys of a model, with and without."""

    title: str
    family: str
    on: str
    off: str
    repeats: float = 0.0
    """The part of the requests whose state is one of eight."""


ROWS: Final = (
    Row("embedding, batch of 32", "embedding", "join = false", "join = false\nbatch = { units = 1 }"),
    Row("sparrow, batch of 32", "sparrow", "join = false", "join = false\nbatch = { units = 1 }"),
    Row(
        "sparrow, one unit, look-ahead", "sparrow", "join = false\nbatch = { units = 1 }\nlook_ahead = true",
        "join = false\nbatch = { units = 1 }",
    ),
    Row("embedding, 75 % repeats, joining", "embedding", "join = true", "join = false", 0.75),
    Row(
        "embedding, 75 % repeats, answer cache", "embedding", "join = true\nanswer_cache_mb = 64", "join = false", 0.75
    ),
)  # fmt: skip


def bodies(repeats: float, seed: int) -> Iterator[bytes]:
    """Requests without end."""
    choose = random.Random(seed)
    for number in itertools.count():
        again = choose.random() < repeats
        words = random.Random(choose.randrange(8) if again else seed * 10**9 + number).choices(WORDS, k=8)
        state = " ".join(words if again else [*words, str(number)])
        yield json.dumps({"model": "m", "state": state, "questions": QUESTIONS}).encode()


async def _client(port: int, source: Iterator[bytes], until: float, took: list[float]) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    while time.monotonic() < until:
        body = next(source)
        begun = time.monotonic()
        head = b"POST /v1/systemone HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        status, _, fields = answer.partition(b"\r\n")
        length = int(fields.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        content = await reader.readexactly(length)
        if b" 200 " not in status:
            raise SystemExit(f"{status!r}: {content[:300]!r}")
        took.append(time.monotonic() - begun)
    writer.close()


async def _load(port: int, connections: int, seconds: float, repeats: float, seed: int) -> list[float]:
    took: list[float] = []
    source, until = bodies(repeats, seed), time.monotonic() + seconds
    await asyncio.gather(*(_client(port, source, until, took) for _ in range(connections)))
    return took


def measured(server: Running, connections: int, seconds: float, repeats: float, seed: int) -> tuple[float, float]:
    """Requests a second, and the 99th percentile in milliseconds."""
    arguments = [str(part) for part in (server.port, connections, seconds, repeats, seed)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.shared", "--client", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds + 60,
    )  # fmt: skip
    if done.returncode:
        raise ServerFailed(f"{server.target.name}: {done.stdout}{done.stderr}")
    took = sorted(json.loads(done.stdout))
    return len(took) / seconds, took[int(len(took) * 0.99)] * 1e3


def target(directory: Path, name: str, row: Row, keys: str, encoder: str | None) -> Target:
    """A server of its own configuration."""
    file = directory / f"{name}.toml"
    path = f'path = "{encoder}"\n' if row.family == "embedding" else ""
    file.write_text(f'[models.m]\nfamily = "{row.family}"\n{path}{keys}\n')
    command = (str(Path(sys.executable).with_name("framehost")), "serve", "--config", str(file), "--port")
    return Target(name, row.title, command)


def compared(row: Row, arguments: argparse.Namespace) -> list[str]:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="fh-") as folder, ExitStack() as stack:
        directory = Path(folder)
        pair = [
            stack.enter_context(started(target(directory, name, row, keys, arguments.encoder), directory, 120.0))
            for name, keys in (("on", row.on), ("off", row.off))
        ]
        rounds = []
        for number in range(arguments.rounds + 1):
            found = {}
            for server in pair if number % 2 else pair[::-1]:
                found[server.target.name] = measured(
                    server, arguments.connections, arguments.seconds, row.repeats, number
                )
            if number:  # the first one warms both
                rounds.append((found["on"], found["off"]))
    ratios = sorted(on[0] / off[0] for on, off in rounds)
    tails = statistics.median(on[1] / off[1] for on, off in rounds)
    on, off = (statistics.median(pair[side][0] for pair in rounds) for side in (0, 1))
    spread = f"{ratios[0]:.2f} .. {ratios[-1]:.2f}"
    return [row.title, f"{on:.0f}", f"{off:.0f}", f"{statistics.median(ratios):.2f}", spread, f"{tails:.2f}"]


def main() -> int:
    if sys.argv[1:2] == ["--client"]:
        port, connections, seconds, repeats, seed = sys.argv[2:]
        print(json.dumps(asyncio.run(_load(int(port), int(connections), float(seconds), float(repeats), int(seed)))))
        return 0
    parser = argparse.ArgumentParser(prog="benchmarks.shared")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--encoder", default=None)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    print(machine.describe(), flush=True)
    table = [["what", "on, requests/s", "off, requests/s", "ratio", "of the rounds", "p99 ratio"]]
    for row in ROWS:
        if row.family == "embedding" and arguments.encoder is None:
            continue
        try:
            table.append(compared(row, arguments))
        except ServerFailed as error:
            print(error, file=sys.stderr)
            return 1
        print(" ".join(table[-1]), file=sys.stderr, flush=True)
    print(draw(table, markdown=arguments.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
