"""Measure what reading a shared prefix once saves, on a random Qwen3.5 text model on the CPU.

    python -m benchmarks.prefix [--tiny] [--rounds N] [--budget S] [--threads N] [--markdown]

1 to 16 questions about one state, read row by row, packed, and with the state read once. The three are measured right
after one another, in an order that turns from round to round; times and ratios are medians over the rounds. A row whose
next round would not fit into the budget has fewer of them. Exit status: 0 measured, 1 the ways of reading disagree,
2 cannot measure here. A goal that is missed is printed, it does not fail the run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks import machine, qwen
from benchmarks.tables import draw
from executor_host.backbones import packing
from executor_host.backbones.loading import prepare
from executor_host.backbones.qwen3_5 import PASS_PADDING, Execution, Qwen35, Settings
from executor_host.errors import ConfigurationError

MODES: Final[tuple[Execution, ...]] = ("rows", "packed", "shared")
QUESTIONS: Final = (1, 2, 4, 8, 16)
STATES: Final = (512, 4096)
GOAL: Final = 0.85
"""Of the token ratio, which is the speed-up if reading a token always took the same time."""

SHAPE: Final = qwen.Shape(256, 768, 4, 4, 2, 64, 4, 4, 64, 131_072)
TINY: Final = qwen.Shape(64, 96, 4, 4, 2, 32, 2, 2, 16, 1024)
TINY_STATES: Final = (128, 320)
TINY_BUDGET_S: Final = 4.0

ENDS: Final = (41, 33, 47, 38, 29, 52, 35, 44)
"""Tokens of the questions' own ends, over and over."""

TOLERANCE: Final = 1e-4
"""Of final-norm hidden states, about 0.2 each, in float32."""

MEASURED_S: Final = 0.2
"""A measurement is repeated until it has taken so long: others are counted in hundredths of a second."""


@dataclass(slots=True)
class Row:
    """So many questions about a state of so many tokens."""

    state: int
    questions: int
    tokens: int
    """Of all rows."""
    processed: int = 0
    """Tokens read with the shared prefix."""
    packs: bool = True
    """Whether packing puts any two rows together; else it is what `rows` is, and is not measured."""
    seconds: list[dict[Execution, float]] = field(default_factory=list)
    """By mode, of each round."""
    cpu_seconds: list[dict[Execution, float]] = field(default_factory=list)
    """The same of processor time, of which others take less: caches, not turns."""
    others: list[float] = field(default_factory=list)
    """Cores that others took, of each round."""

    @property
    def token_ratio(self) -> float:
        """Tokens of all rows to tokens that are read."""
        return self.tokens / self.processed

    @property
    def noisy(self) -> bool:
        """Whether others took much in half of the rounds or more."""
        return statistics.median(self.others) > machine.NOISE_CORES

    def median(self, mode: Execution) -> float:
        """Seconds of one reading."""
        return statistics.median(seconds[mode] for seconds in self.seconds)

    def speed_up(self, mode: Execution) -> float:
        """Over `rows`, taken within each round."""
        return statistics.median(seconds["rows"] / seconds[mode] for seconds in self.seconds)

    @property
    def of_ratio(self) -> float:
        """The part of the token ratio that sharing reaches."""
        return self.speed_up("shared") / self.token_ratio

    @property
    def cpu_of_ratio(self) -> float:
        """The same by processor time."""
        return statistics.median(cpu["rows"] / cpu["shared"] for cpu in self.cpu_seconds) / self.token_ratio


class Disagreement(Exception):
    """Two ways of reading gave different hidden states."""


class Bench:
    """One run."""

    def __init__(self, shape: qwen.Shape, states: Sequence[int], measured_s: float) -> None:
        model = qwen.build(shape)
        self._readers = {mode: Qwen35(model, Settings(execution=mode)) for mode in MODES}
        self._measured_s = measured_s
        self.parameters = self._readers["rows"].parameters
        self.rows: list[Row] = []
        self._requests: list[qwen.Rows] = []
        for state in states:
            for questions in QUESTIONS:
                ends = [ENDS[question % len(ENDS)] for question in range(questions)]
                request = qwen.request(shape, state, ends, seed=state + questions)
                lengths = [len(row) for row in request]
                row = Row(state, questions, sum(lengths))
                row.packs = len(packing.groups(lengths, max_padding=PASS_PADDING["cpu"])) < len(lengths)
                self.rows.append(row)
                self._requests.append(request)
        for mode in MODES:
            self._read(mode, self._requests[1])

    def run(self, rounds: int, budget_s: float) -> None:
        """Up to `rounds` rounds, of each row at least one. Raises `Disagreement`."""
        started = time.perf_counter()
        costs = [0.0] * len(self.rows)
        for number in range(rounds):
            for index, row in enumerate(self.rows):
                begin = time.perf_counter()
                if number and begin - started + costs[index] > budget_s:
                    continue
                self._measure(row, self._requests[index], number)
                costs[index] = time.perf_counter() - begin

    def _measure(self, row: Row, request: qwen.Rows, number: int) -> None:
        modes: list[Execution] = [mode for mode in MODES if mode != "packed" or row.packs]
        turn = number % len(modes)
        meter = machine.Meter(os.getpid(), time.perf_counter())
        seconds: dict[Execution, float] = {}
        cpu_seconds: dict[Execution, float] = {}
        hidden: dict[Execution, Any] = {}
        for mode in modes[turn:] + modes[:turn]:
            begin, cpu_begin, count = time.perf_counter(), time.process_time(), 0
            while not count or time.perf_counter() - begin < self._measured_s:
                reading = self._read(mode, request)
                count += 1
            seconds[mode] = (time.perf_counter() - begin) / count
            cpu_seconds[mode] = (time.process_time() - cpu_begin) / count
            hidden[mode] = reading.hidden
            if mode == "shared":
                row.processed = reading.processed
        shares = meter.read(time.perf_counter())
        row.others.append(shares.others + shares.stolen)
        seconds.setdefault("packed", seconds["rows"])
        row.seconds.append(seconds)
        row.cpu_seconds.append(cpu_seconds)
        for mode in modes[1:]:
            apart = float((hidden[mode] - hidden["rows"]).abs().max())
            if not apart <= TOLERANCE:
                raise Disagreement(f"{mode}: hidden states differ by {apart:.1e} ({row.state}, {row.questions})")

    def _read(self, mode: Execution, request: qwen.Rows) -> Any:
        return self._readers[mode].read(request, range(len(request)), lambda: None)


def render(rows: Sequence[Row], *, markdown: bool) -> str:
    """The table, then what became of the goal."""
    head = ["state", "questions", "tokens", "rows ms", "packed ms", "shared ms", "packed x", "shared x", "tokens x"]
    table = [[*head, "of tokens x", "by CPU", "rounds", "others"]]
    table += [
        [
            f"{row.state:,}",
            str(row.questions),
            f"{row.tokens:,}",
            f"{row.median('rows') * 1e3:,.0f}",
            f"{row.median('packed') * 1e3:,.0f}" if row.packs else "as rows",
            f"{row.median('shared') * 1e3:,.0f}",
            f"{row.speed_up('packed'):.2f}" if row.packs else "",
            f"{row.speed_up('shared'):.2f}",
            f"{row.token_ratio:.2f}",
            f"{row.of_ratio:.2f}",
            f"{row.cpu_of_ratio:.2f}",
            str(len(row.seconds)),
            f"{statistics.median(row.others):.2f}" + (" NOISY" if row.noisy else ""),
        ]
        for row in rows
    ]
    lines = [draw(table, markdown=markdown)]
    lines.append("")
    sharing = [row for row in rows if row.processed < row.tokens]
    for what, reached in (
        ("time", [row.of_ratio for row in sharing]),
        ("processor time", [row.cpu_of_ratio for row in sharing]),
    ):
        missed = [row for row, part in zip(sharing, reached, strict=True) if part < GOAL]
        met = len(sharing) - len(missed)
        lines.append(f"goal: speed-up by {what} at least {GOAL} of the token ratio: {met} of {len(sharing)} rows")
        lines += [f"  missed: state {row.state:,}, {row.questions} questions{' (noisy)' * row.noisy}" for row in missed]
    noisy = sum(row.noisy for row in rows)
    if noisy:
        lines.append(f"{noisy} of {len(rows)} rows are NOISY: others took more than {machine.NOISE_CORES} cores")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.prefix", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model, 10 seconds: does it work, not how fast")
    parser.add_argument("--rounds", type=int, default=5, help="at most (default %(default)s)")
    parser.add_argument("--budget", type=float, default=200.0, metavar="S", help="seconds (default %(default)s)")
    parser.add_argument("--threads", type=int, help="of torch (default: what OMP_NUM_THREADS or the machine says)")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or (arguments.threads is not None and arguments.threads < 1):
        parser.error("at least one round and one thread")
    return arguments


def main() -> int:
    """Measure and print; returns the exit status."""
    arguments = _arguments()
    try:
        torch, transformers, _ = prepare("cpu")
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    if arguments.tiny:
        bench = Bench(TINY, TINY_STATES, 0.02)
        budget = min(arguments.budget, TINY_BUDGET_S)
    else:
        bench = Bench(SHAPE, STATES, MEASURED_S)
        budget = arguments.budget
    print(machine.describe())
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads")
    print(f"{bench.parameters / 1e6:.1f} M parameters, float32, random\n", flush=True)
    try:
        bench.run(arguments.rounds, budget)
    except Disagreement as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(render(bench.rows, markdown=arguments.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
