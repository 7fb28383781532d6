"""Parity and warm latency of the Qwen3.5 backbone on a CUDA machine, with random weights at the published shapes.

    python -m benchmarks.gpu [--shapes 2b,4b,27b] [--device cuda] [--dtype bfloat16] [--repeats N] [--seconds S]
                             [--json FILE]
    python -m benchmarks.gpu --shapes tiny --device cpu      # does it work

Needs this repository and framehost[torch] with a CUDA build of torch; no checkpoint, no network, nothing else. The
judge is plain transformers: every row by itself through its own forward, without a cache. Each way of reading is
compared with it, in hidden states and in the probabilities of a random head of 26 labels, and timed against it. Exit
status: 0 everything agrees, 1 something does not or could not run, 2 cannot measure here.

The weights are random, so a probability says how far two ways of reading are apart and nothing else. Rounding grows
from layer to layer in a random model as it need not in a trained one: where bfloat16 misses its gate, --dtype float32
tells rounding from a mistake. `control` is how far the judge itself moves when all but the end of each row is another
text, which is what a lost prefix would look like. A difference of more than half of it is BLIND: within the gate, and
yet not to be told from that.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import qwen
from executor_host import devices
from executor_host.backbones import packing, prefix
from executor_host.backbones.loading import KERNEL_PACKAGES, prepare
from executor_host.backbones.qwen3_5 import PASS_PADDING, Qwen35, Settings
from executor_host.errors import ConfigurationError

SHAPES: Final = {
    "tiny": qwen.Shape(64, 96, 4, 4, 2, 32, 2, 2, 16, 1024),
    "2b": qwen.Shape(2048, 6144, 24, 8, 2, 256, 16, 16, 128, 248_320),
    "4b": qwen.Shape(2560, 9216, 32, 16, 4, 256, 16, 32, 128, 248_320),
    "27b": qwen.Shape(5120, 17_408, 64, 24, 4, 256, 16, 48, 128, 248_320),
}
"""Of the text models; the 27B's output head is not part of the backbone."""


class Workload(NamedTuple):
    """Rows of one request."""

    name: str
    shared: int
    ends: tuple[int, ...]


_TEN = (37, 41, 33, 46, 38, 42, 35, 44, 39, 40)
_MIXED = (40, 61, 25, 90, 33, 130, 52, 47)

WORKLOADS: Final = (
    Workload("one candidate, 150 tokens", 0, (150,)),
    Workload("10 rows on 2,400 shared", 2400, _TEN),
    # Packing joins no two rows of the other two: 4,096 tokens are the most for a group.
    Workload("8 mixed rows on 200 shared", 200, _MIXED),
)
TINY_WORKLOADS: Final = (
    WORKLOADS[0],
    Workload("10 rows on 192 shared", 192, _TEN),
    Workload("4 mixed rows on 100 shared", 100, _MIXED[:4]),
)

GATES: Final = {"bfloat16": 0.02, "float32": 0.001}
"""Of a probability. The first is the published native worker's own."""

LABELS: Final = 26
LOGIT_SCALE: Final = 2.0 / 0.2
"""Logits of about 2 from hidden states of about 0.2, at any width."""

KEPT: Final = 32
"""Tokens at the end of a row that the control leaves as they are."""

SPARE: Final = 6 << 30
"""Memory that a shape needs beside its weights: activations, states, recordings."""

LEAST_REPEATS: Final = 3

Read = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One way of reading one workload."""

    shape: str
    workload: str
    mode: str
    problem: str | None = None
    """Why there are no figures, or why they are not to be trusted."""
    median_ms: float = 0.0
    low_ms: float = 0.0
    high_ms: float = 0.0
    repeats: int = 0
    speed_up: float = 0.0
    """Over plain transformers, within each repeat."""
    hidden: float = 0.0
    """Most that a value of a hidden state differs from plain transformers."""
    probability: float = 0.0
    control: float = 0.0
    gate: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether the run says 1."""
        return self.problem is not None

    def cells(self) -> list[str]:
        """For the table."""
        if not self.repeats:
            return [self.shape, self.workload, self.mode, "", "", "", "", "", f"{self.problem}"]
        return [
            self.shape,
            self.workload,
            self.mode,
            f"{self.median_ms:.2f} ({self.low_ms:.2f}..{self.high_ms:.2f})",
            f"{self.speed_up:.2f}",
            f"{self.hidden:.1e}",
            f"{self.probability:.1e}",
            f"{self.control:.1e}",
            self.problem or "ok",
        ]


HEAD: Final = ("shape", "rows", "read", "ms", "x plain", "hidden", "probability", "control", "agrees")


class Plain:
    """transformers alone: its own forward, a row at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._device = model.embed_tokens.weight.device

    def read(self, rows: qwen.Rows) -> Any:
        """Hidden states [rows, size] of the last tokens."""
        import torch

        with torch.inference_mode():
            states = [
                self._model(
                    input_ids=torch.from_numpy(row[None].astype(np.int64)).to(self._device), use_cache=False
                ).last_hidden_state[0, -1]
                for row in rows
            ]
            return torch.stack(states)


def measure(name: str, *, device: str, dtype: str, repeats: int, seconds: float) -> list[Line]:
    """All workloads of one shape. Raises whatever torch raises."""
    import torch

    shape = SHAPES[name]
    model = qwen.build(shape, device=device, dtype=dtype)
    head = torch.randn(shape.hidden, LABELS, generator=torch.Generator().manual_seed(1))
    head = (head * LOGIT_SCALE * shape.hidden**-0.5).to(device)
    plain = Plain(model)
    kind = torch.device(device).type
    readers = {
        "eager": Qwen35(model, Settings(execution="rows")),
        "packed": Qwen35(model, Settings(execution="packed")),
        "shared": Qwen35(model, Settings(execution="shared")),
    }
    if kind == "cuda":
        readers["replay"] = Qwen35(model, Settings(execution="packed", graphs=True))

    def probabilities(hidden: Any) -> Any:
        return torch.softmax(hidden.float() @ head, -1)

    def reading(reader: Qwen35, rows: qwen.Rows) -> Read:
        return lambda: reader.read(rows, range(len(rows)), lambda: None).hidden

    lines = []
    for workload in TINY_WORKLOADS if name == "tiny" else WORKLOADS:
        rows = qwen.request(shape, workload.shared, workload.ends)
        lengths = [len(row) for row in rows]
        modes: dict[str, Read] = {"plain": lambda rows=rows: plain.read(rows)}  # type: ignore[misc]
        for mode, reader in readers.items():
            if mode == "packed" and len(packing.groups(lengths, max_padding=PASS_PADDING[kind])) == len(rows):
                continue  # what eager does
            if mode == "shared" and prefix.plan(rows, range(len(rows))) is None:
                continue  # as well
            modes[mode] = reading(reader, rows)
        results = {mode: read() for mode, read in modes.items()}
        if "replay" in modes:  # the first reading of a recorded group was eager
            results["replay"] = modes["replay"]()
        control = _apart(probabilities(plain.read(_another(shape, rows))), probabilities(results["plain"]))
        times = _times(modes, lambda: devices.synchronize(readers["eager"].device), repeats, seconds)
        for mode, found in results.items():
            hidden = _apart(found.float(), results["plain"].float())
            probability = _apart(probabilities(found), probabilities(results["plain"]))
            gate = GATES[dtype]
            problem = None
            if mode == "replay" and not _replayed(readers[mode]):
                problem = "not replayed: see stderr"
            elif not probability <= gate:  # not a number, too
                problem = f"NO: above {gate}"
            elif probability > control / 2:
                problem = "BLIND: as far apart as another text"
            lines.append(
                Line(
                    shape=name,
                    workload=workload.name,
                    mode=mode,
                    problem=problem,
                    median_ms=statistics.median(times[mode]) * 1e3,
                    low_ms=min(times[mode]) * 1e3,
                    high_ms=max(times[mode]) * 1e3,
                    repeats=len(times[mode]),
                    speed_up=statistics.median(
                        judge / mine for judge, mine in zip(times["plain"], times[mode], strict=True)
                    ),
                    hidden=hidden,
                    probability=probability,
                    control=control,
                    gate=gate,
                )
            )
        if kind != "cuda":
            lines.append(Line(name, workload.name, "replay", "needs a CUDA device"))
    for reader in readers.values():
        reader.close()
    return lines


def _times(modes: dict[str, Read], synchronize: Callable[[], None], repeats: int, seconds: float) -> dict[str, Any]:
    """Seconds of each repeat, the modes in turn. Uploads are part of it, and so is waiting for the device."""
    times: dict[str, list[float]] = {mode: [] for mode in modes}
    order = list(modes)
    begin = time.perf_counter()
    for repeat in range(repeats):
        if repeat >= LEAST_REPEATS and time.perf_counter() - begin > seconds * len(modes):
            break
        turn = repeat % len(order)
        for mode in order[turn:] + order[:turn]:
            synchronize()
            start = time.perf_counter()
            modes[mode]()
            synchronize()
            times[mode].append(time.perf_counter() - start)
    return times


def _another(shape: qwen.Shape, rows: qwen.Rows) -> qwen.Rows:
    """The rows with other tokens before their ends."""
    return [np.concatenate([(row[:-KEPT] + 1) % shape.vocabulary, row[-KEPT:]]).astype(np.int32) for row in rows]


def _apart(first: Any, second: Any) -> float:
    return float((first - second).abs().max())


def _replayed(reader: Qwen35) -> bool:
    graph = reader.statistics()["graph"]
    return bool(graph["enabled"] and graph["replays"])


def missing(name: str, *, device: str, dtype: str) -> str | None:
    """Why there is no room for the shape on the device, if so."""
    import torch

    if torch.device(device).type != "cuda" or name == "tiny":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    needed = qwen.parameters(SHAPES[name]) * getattr(torch, dtype).itemsize + SPARE
    if needed <= free:
        return None
    return f"not run: needs {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free"


def describe(device: str, dtype: str) -> str:
    """What runs, in one line: the card, and what there is of libraries."""
    import torch
    import transformers

    found = torch.device(device)
    if found.type == "cuda":
        properties = torch.cuda.get_device_properties(found)
        card = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
    else:
        card = f"CPU, {torch.get_num_threads()} threads"
    kernels = [name for name in KERNEL_PACKAGES if importlib.util.find_spec(name) is not None]
    return (
        f"{card}; torch {torch.__version__}, transformers {transformers.__version__}, {dtype}, "
        f"kernels of the linear layers: {' and '.join(kernels) or 'torch'}"
    )


def render(lines: Sequence[Line]) -> str:
    """A Markdown table."""
    table = [HEAD, ("---",) * len(HEAD), *(line.cells() for line in lines)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shapes", default="2b,4b,27b", help=f"some of: {', '.join(SHAPES)} (default %(default)s)")
    parser.add_argument("--device", help="default: cuda; cpu for the tiny shape where there is none")
    parser.add_argument("--dtype", choices=tuple(GATES), help="default: bfloat16, on a CPU float32")
    parser.add_argument("--repeats", type=int, default=20, help="at most (default %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=4.0, metavar="S",
        help=f"for each way of reading each workload, after {LEAST_REPEATS} repeats (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every line there")
    arguments = parser.parse_args(argv)
    arguments.shapes = arguments.shapes.split(",")
    unknown = sorted(set(arguments.shapes) - set(SHAPES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(SHAPES)}")
    if arguments.repeats < 1:
        parser.error("at least one repeat")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    arguments = _arguments(argv)
    try:
        device = arguments.device or (devices.placement("auto", "auto")[0] if arguments.shapes == ["tiny"] else "cuda")
        torch, _, target = prepare(device)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    dtype = arguments.dtype or ("bfloat16" if target.type == "cuda" else "float32")
    described = describe(device, dtype)
    print(f"{described}\n", flush=True)
    lines: list[Line] = []
    failed = False
    for name in arguments.shapes:
        problem = missing(name, device=device, dtype=dtype)
        if problem is None:
            try:
                measured = measure(
                    name, device=device, dtype=dtype, repeats=arguments.repeats, seconds=arguments.seconds
                )
            except torch.OutOfMemoryError:
                problem = "not run: out of memory"
        if problem is not None:
            measured = [Line(name, "all", "all", problem)]
        lines += measured
        # A CPU has no replay, and says so; that is no failure.
        failed = failed or any(line.failed and (target.type == "cuda" or line.repeats) for line in measured)
        print(f"{name}: {'done' if problem is None else problem}", file=sys.stderr, flush=True)
        gc.collect()
        if target.type == "cuda":
            torch.cuda.empty_cache()
    print(render(lines))
    if arguments.json:
        document = {"ran": described, "lines": [asdict(line) for line in lines]}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
