"""From samples to tables, ratios and goals. No measuring here, so that a report can be made from a file again.

Absolute numbers move by tens of percent between machines, and on one machine between minutes. A ratio of two
servers that were measured within the same seconds does less, so the goals are ratios, taken per pass and then
reduced to their median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.load import Load
from benchmarks.machine import Shares
from benchmarks.memory import Memory
from benchmarks.servers import TARGETS
from benchmarks.tables import Table, draw

CONNECTIONS = (1, 8, 64)
BUSY_LIMIT = 1000.0
"""Requests a second that one worker can answer when each takes 1 ms."""

LOOPS = {"": "asyncio's loop", "-uv": "uvloop"}
"""How the names of floors end -> their event loop. framehost's front runs on uvloop."""

ADDED_LATENCY_GOAL = 1.4
ONE_OUTSTANDING_GOAL = 0.7
PIPELINED_GOAL = 0.45
UTILISATION_GOAL = 0.80
MEMORY_GOAL_MIB = 110.0
START_GOAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the load generator."""

    target: str
    connections: int
    round: int
    load: Load
    shares: Shares


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server: seconds from its command to its first answer."""

    seconds: float
    noisy: bool


@dataclass(slots=True)
class Results:
    """Everything one run of the benchmark found out."""

    machine: str
    versions: str
    seconds: int
    samples: list[Sample] = field(default_factory=list)
    starts: dict[str, list[Start]] = field(default_factory=dict)
    memory: dict[str, list[dict[str, Memory]]] = field(default_factory=dict)
    pingpong_us: list[dict[str, float]] = field(default_factory=list)

    def of(self, target: str, connections: int) -> list[Sample]:
        """The samples of one row: the quiet ones if there are any, else all."""
        all_of_it = [s for s in self.samples if s.target == target and s.connections == connections]
        return [s for s in all_of_it if not s.shares.noisy] or all_of_it

    def start_times(self, target: str) -> list[float]:
        """Seconds of the quiet starts if there are any, else of all."""
        all_of_them = self.starts.get(target, [])
        return [s.seconds for s in all_of_them if not s.noisy] or [s.seconds for s in all_of_them]

    def document(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Results:
        """For --from: what `document` gave."""
        fields = dict(document)
        fields["samples"] = [
            Sample(**{**sample, "load": Load(**sample["load"]), "shares": Shares(**sample["shares"])})
            for sample in document["samples"]
        ]
        fields["starts"] = {name: [Start(**start) for start in each] for name, each in document["starts"].items()}
        fields["memory"] = {
            name: [{role: Memory(**memory) for role, memory in parts.items()} for parts in each]
            for name, each in document["memory"].items()
        }
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with its range."""

    median: float
    low: float
    high: float
    noisy: bool = False

    @classmethod
    def over(cls, values: Iterable[float], *, noisy: bool = False) -> Spread | None:
        """None when there is nothing to reduce."""
        known = list(values)
        return cls(statistics.median(known), min(known), max(known), noisy) if known else None

    def text(self, form: str) -> str:
        """`median (low..high)`, with a ~ when it comes from noisy passes."""
        return f"{'~' if self.noisy else ''}{self.median:{form}} ({self.low:{form}}..{self.high:{form}})"


class Paired(NamedTuple):
    """Values of several servers, one row per pass."""

    values: list[list[float]]
    quiet: bool


def load_table(results: Results) -> Table:
    """One line per server and number of connections."""
    head = ["server", "connections", "requests/s", "p50 ms", "p99 ms", "cores server/wrk", "others", "quiet"]
    rows = [head]
    for target in TARGETS:
        for connections in CONNECTIONS:
            samples = results.of(target.name, connections)
            if not samples:
                continue
            rate = Spread.over(s.load.requests_per_s for s in samples)
            p50 = Spread.over(s.load.p50_ms for s in samples)
            assert rate is not None
            assert p50 is not None
            measured = [s for s in results.samples if s.target == target.name and s.connections == connections]
            quiet = sum(not s.shares.noisy for s in measured)
            server = statistics.median(s.shares.server for s in samples)
            client = statistics.median(s.shares.client for s in samples)
            others = statistics.median(s.shares.others + s.shares.stolen for s in samples)
            rows.append(
                [
                    target.title,
                    str(connections),
                    rate.text(",.0f"),
                    p50.text(".2f"),
                    f"{statistics.median(s.load.p99_ms for s in samples):.2f}",
                    f"{server:.2f} / {client:.2f}",
                    f"{others:.2f}",
                    f"{quiet}/{len(measured)}" + ("" if quiet else " NOISY"),
                ]
            )
    return rows


def idle_table(results: Results) -> Table:
    """Memory and start-up."""
    rows = [["server", "start s", "processes", "RSS MiB", "PSS MiB", "PSS MiB of each part"]]
    for target in TARGETS:
        start = Spread.over(results.start_times(target.name))
        memory = results.memory.get(target.name)
        if start is None or not memory:
            continue
        total = [sum(parts.values(), Memory(0, 0.0, 0.0)) for parts in memory]
        parts = ", ".join(
            f"{role} {statistics.median(m[role].pss for m in memory):.0f}"
            for role in ("supervisor", "front", "host", "other")
            if all(role in m for m in memory)
        )
        rows.append(
            [
                target.title,
                start.text(".2f"),
                str(total[-1].processes),
                f"{statistics.median(m.rss for m in total):.0f}",
                f"{statistics.median(m.pss for m in total):.0f}",
                parts if "front" in parts else "",
            ]
        )
    return rows


def paired(results: Results, names: Sequence[str], connections: int, of: Callable[[Load], float]) -> Paired:
    """The values of several servers, pass by pass, and whether the passes were quiet for all of them.

    Never a quiet row of one pass beside a quiet row of another: between two passes the machine may have become
    half as fast. Without a pass that was quiet for all, every pass counts, and the ratio says so.
    """
    rounds: dict[int, dict[str, Sample]] = {}
    for sample in results.samples:
        if sample.connections == connections and sample.target in names:
            rounds.setdefault(sample.round, {})[sample.target] = sample
    complete = [found for found in rounds.values() if len(found) == len(names)]
    quiet = [found for found in complete if not any(sample.shares.noisy for sample in found.values())]
    values = [[of(found[name].load) for name in names] for found in quiet or complete]
    return Paired(values, quiet=bool(quiet))


def ratios(results: Results, top: str, bottom: str, connections: int, of: Callable[[Load], float]) -> Spread | None:
    """`top` / `bottom`, pass by pass."""
    found = paired(results, (top, bottom), connections, of)
    return Spread.over((above / below for above, below in found.values), noisy=not found.quiet)


def ratio_table(results: Results) -> Table:
    """framehost with the no-op model over each reference."""
    rows = [["framehost no-op over", "connections", "requests/s ratio", "p50 ratio"]]
    for bottom in (name + loop for loop in LOOPS for name in ("inline", "floor-pipelined", "floor-one")):
        for connections in CONNECTIONS:
            rate = ratios(results, "framehost-noop", bottom, connections, lambda load: load.requests_per_s)
            p50 = ratios(results, "framehost-noop", bottom, connections, lambda load: load.p50_ms)
            if rate is not None and p50 is not None:
                rows.append([bottom, str(connections), rate.text(".2f"), p50.text(".2f")])
    return rows


def _added_latency(results: Results, loop: str) -> Spread | None:
    """(framehost - inline) / (floor - inline) at one connection, by p50."""
    names = ("framehost-noop", f"inline{loop}", f"floor-one{loop}")
    found = paired(results, names, 1, lambda load: load.p50_ms)
    added = ((ours - inline) / (floor - inline) for ours, inline, floor in found.values if floor > inline)
    return Spread.over(added, noisy=not found.quiet)


def goal_table(results: Results) -> Table:
    """The goals, what was measured, and whether each is met."""
    rows = [["goal", "limit", "measured", "met"]]

    def add(what: str, spread: Spread | None, form: str, sign: str, limit: float, unit: str = "") -> None:
        if spread is not None:
            met = spread.median <= limit if sign == "<=" else spread.median >= limit
            rows.append([what, f"{sign} {limit:g}{unit}", spread.text(form) + unit, "yes" if met else "NO"])

    def rate(load: Load) -> float:
        return load.requests_per_s

    busy = results.of("framehost-1ms", 64)
    starts = results.starts.get("framehost-sparrow", [])
    for loop, name in LOOPS.items():
        add(
            f"1 connection: p50 added over inline / what the floor adds, floors on {name}",
            _added_latency(results, loop), ".2f", "<=", ADDED_LATENCY_GOAL,
        )  # fmt: skip
        p50 = ratios(results, "framehost-noop", f"floor-one{loop}", 1, lambda load: load.p50_ms)
        if p50 is not None:
            rows.append([f"the other reading: p50 / the floor's p50, floors on {name}", "", p50.text(".2f"), ""])
        add(
            f"64 connections: requests/s / the one-outstanding floor's, on {name}",
            ratios(results, "framehost-noop", f"floor-one{loop}", 64, rate), ".2f", ">=", ONE_OUTSTANDING_GOAL,
        )  # fmt: skip
        add(
            f"64 connections: requests/s / the pipelined floor's, on {name}",
            ratios(results, "framehost-noop", f"floor-pipelined{loop}", 64, rate), ".2f", ">=", PIPELINED_GOAL,
        )  # fmt: skip
    add(
        "executor utilisation, 1 ms model, 64 connections",
        Spread.over(
            (s.load.requests_per_s / BUSY_LIMIT for s in busy), noisy=any(s.shares.noisy for s in busy)
        ),
        ".2f", ">=", UTILISATION_GOAL,
    )  # fmt: skip
    add(
        "idle PSS of front + host, embedded model",
        Spread.over(m["front"].pss + m["host"].pss for m in results.memory.get("framehost-sparrow", ())),
        ".0f", "<=", MEMORY_GOAL_MIB, " MiB",
    )  # fmt: skip
    add(
        "`framehost serve` to the first answer, embedded model",
        Spread.over(results.start_times("framehost-sparrow"), noisy=all(start.noisy for start in starts)),
        ".2f", "<=", START_GOAL_S, " s",
    )  # fmt: skip
    return rows


def render(results: Results, *, markdown: bool) -> str:
    """The whole report."""
    rounds = len({sample.round for sample in results.samples})
    method = f"{rounds} passes of {results.seconds} s per row; medians over the quiet ones (lowest..highest)"
    tables = (load_table(results), idle_table(results), ratio_table(results), goal_table(results))
    blocks = [
        f"{results.machine}\n{results.versions}\n{method}",
        *(draw(table, markdown=markdown) for table in tables if len(table) > 1),
    ]
    trip = Spread.over(trips["p50_us"] for trips in results.pingpong_us)
    if trip is not None:
        p99 = statistics.median(trips["p99_us"] for trips in results.pingpong_us)
        blocks.append(
            f"bare ZeroMQ round trip between two processes, frames of the same sizes: p50 {trip.text('.0f')} us, "
            f"p99 {p99:.0f} us"
        )
    return "\n\n".join(blocks)
