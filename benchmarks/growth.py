"""How requests a second and the slowest hundredth grow with what is asked, drawn: docs/images/growth.png.

    python -m benchmarks.growth [--seconds S] [--tiny] [--out FILE]

The embedded model `sparrow`, every request another state, over connections, questions, and length of the state; and
what it takes to leave the middle of a queue, over its depth, in microseconds of this process. One turn for each point,
so neighbours differ by what else the machine does; the shape is what counts. Exit status: 0 measured, 1 server failed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import client, machine, work
from benchmarks.servers import ROOT, ServerFailed, Target, started
from benchmarks.tables import draw
from frontend.runtime.context import ExecutionContext
from frontend.runtime.scheduler import SerialScheduler

CONNECTIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUESTIONS: Final = (1, 2, 4, 8, 16, 32, 64)
LENGTHS: Final = (64, 128, 256, 512, 1024, 2048, 4096)
"""Characters of a state."""
DEPTHS: Final = (0, 10, 100, 1_000, 10_000)
TRIES: Final = 50
OUT: Final = ROOT / "docs" / "images" / "growth.png"

Series = list[tuple[int, float, float]]
"""What grows, requests a second, p99 in milliseconds."""


def bodies(questions: int, length: int) -> Iterator[bytes]:
    """Requests of so many questions about different states of so many characters, without end."""
    question = {"type": "choice", "criteria": {"billing": "a charge or an invoice", "login": "cannot log in"}}
    asked = {f"q{number}": {**question, "instructions": f"Which team, {number}?"} for number in range(questions)}
    for number in itertools.count():
        state = f"{number} {work.SENTENCE * (length // len(work.SENTENCE) + 1)}"[:length]
        yield json.dumps({"state": state, "questions": asked}).encode()


def measured(seconds: int, folder: Path, points: dict[str, Sequence[int]]) -> dict[str, Series]:
    """A series for each thing that grows. Raises `ServerFailed`."""
    file = folder / "framehost.toml"
    file.write_text('[models.m]\nfamily = "sparrow"\n[models.m.options]\ntruncate = true\n')
    command = (str(Path(sys.executable).with_name("framehost")), "serve", "--config", str(file), "--port")
    found: dict[str, Series] = {name: [] for name in points}
    with started(Target("growth", "framehost", command), folder, 60.0) as server:
        for name, values in points.items():
            for value in values:
                asked = bodies(
                    questions=value if name == "questions" else 1,
                    length=value if name == "characters of the state" else 64,
                )
                connections = value if name == "connections" else 16
                begun = time.monotonic()
                until = begun + 1 + seconds
                load = client.loop(server.port, connections, asked, lambda until=until: time.monotonic() >= until)  # type: ignore[misc]
                took = sorted(took for at, took in asyncio.run(load) if at > begun + 1)
                found[name].append((value, len(took) / seconds, took[int(len(took) * 0.99)] * 1e3))
                print(f"{name} {value}: {found[name][-1][1]:.0f}/s", file=sys.stderr)
    return found


async def leaving(depth: int) -> float:
    """Microseconds for one caller in the middle of a queue of `depth` others to leave it: the median of `TRIES`."""
    loop = asyncio.get_running_loop()
    scheduler = SerialScheduler("model")
    scheduler.suspend()

    async def wait() -> None:
        with ExecutionContext(clock=loop.time) as context:
            await scheduler.run_with_context(context, lambda dispatch: None)

    before = [asyncio.create_task(wait()) for _ in range(depth // 2)]
    await asyncio.sleep(0)
    middle = [asyncio.create_task(wait()) for _ in range(TRIES)]
    await asyncio.sleep(0)
    after = [asyncio.create_task(wait()) for _ in range(depth - depth // 2)]
    await asyncio.sleep(0)
    took = []
    for task in middle:
        begun = time.perf_counter()
        task.cancel()
        await asyncio.wait((task,))
        took.append((time.perf_counter() - begun) * 1e6)
    for task in (*before, *after):
        task.cancel()
    await asyncio.gather(*before, *after, return_exceptions=True)
    return statistics.median(took)


def drawn(series: dict[str, Series], depths: list[tuple[int, float]], out: Path) -> None:
    """Four panels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    flat: list[Any] = list(panels.flat)
    for panel, (name, points) in zip(flat, series.items(), strict=False):
        values, rates, tails = zip(*points, strict=True)
        panel.plot(values, rates, "o-", color="tab:blue", label="requests/s")
        panel.set(xscale="log", xlabel=name, ylabel="requests/s", ylim=(0, None))
        other = panel.twinx()
        other.plot(values, tails, "s--", color="tab:red", label="p99")
        other.set(ylabel="p99, ms", ylim=(0, None))
        panel.set_xticks(values, [f"{value:,}" for value in values])
        panel.minorticks_off()
        panel.legend(loc="upper left")
        other.legend(loc="upper right")
    depth, took = zip(*depths, strict=True)
    flat[3].plot([max(1, value) for value in depth], took, "o-", color="tab:blue")
    flat[3].set(xscale="log", xlabel="units that wait", ylabel="leaving the middle, µs", ylim=(0, None))
    figure.suptitle(f"framehost, sparrow, {machine.describe()}", fontsize=10)
    figure.savefig(out, dpi=110, metadata={"Software": None})


def main() -> int:
    """Measure and draw; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=2, help="of load for each point")
    parser.add_argument("--tiny", action="store_true", help="the ends only, one second each: does it work")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    points = {"connections": CONNECTIONS, "questions": QUESTIONS, "characters of the state": LENGTHS}
    if arguments.tiny:
        points = {name: (values[0], values[-1]) for name, values in points.items()}
        arguments.seconds = 1
    asyncio.run(leaving(10))  # what is done for the first time takes longer
    depths = [(depth, asyncio.run(leaving(depth))) for depth in DEPTHS]
    with tempfile.TemporaryDirectory(prefix="fh-") as folder:
        try:
            series = measured(arguments.seconds, Path(folder), points)
        except ServerFailed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    drawn(series, depths, arguments.out)
    rows = [
        [name, f"{value:,}", f"{rate:.0f}", f"{tail:.1f}"] for name, at in series.items() for value, rate, tail in at
    ]
    print(draw([["what", "how much", "requests/s", "p99 ms"], *rows], markdown=False))
    print(
        draw(
            [["units that wait", "leaving the middle, µs"], *[[f"{d:,}", f"{t:.1f}"] for d, t in depths]],
            markdown=False,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
