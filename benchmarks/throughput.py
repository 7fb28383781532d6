"""The table of docs/throughput.md: framehost beside its peers, and beside itself without what it does at once.

    python -m benchmarks.throughput [--rounds N] [--seconds S] [--only WORD,...] [--old CHECKOUT] [--tiny] [--write]

The servers of a row are started once and loaded in turn by wrk, in an order that turns from round to round; a ratio is
taken within a round, the median over the rounds is told, and what the rounds differed by. mosec and LitServe are
installed where `make bench` puts them; what their workers compute is framehost's own code (`benchmarks.peers.work`).
`--old`: another checkout, for the row that compares with it. `--tiny`: smallest models, one short round: does it work.
`--write`: into the document. Exit status: 0 measured, 1 a server failed or answered wrongly, 2 cannot measure here. A
goal that is missed is printed, it does not fail the run.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import re
import signal
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import holding, load, machine, work
from benchmarks.peers.arguments import PACKAGES
from benchmarks.servers import ROOT, Running, ServerFailed, Target, started
from benchmarks.tables import draw

DOCUMENT: Final = ROOT / "docs" / "throughput.md"
MARK: Final = re.compile(r"(?<=<!-- throughput -->\n).*?(?=<!-- end of throughput -->)", re.DOTALL)
OURS: Final = "framehost"
PATIENCE_S: Final = 180.0
SLOW_S: Final = 30

PROGRAM: Final = Path(sys.executable)


@dataclass(slots=True)
class Row:
    """One comparison: the same requests to each of `targets`, ours first."""

    title: str
    aim: float
    targets: list[Target]
    bodies: Path
    """The requests, one in each line."""
    connections: int
    measures: str = "requests_per_s"
    """A field of `load.Load`. Of a latency less is better."""
    slow: bool = False
    """Whether an answer takes seconds: `SLOW_S` of load in each of two rounds then."""
    rounds: list[dict[str, float]] = field(default_factory=list)

    @property
    def rising(self) -> bool:
        """Whether more is better."""
        return self.measures == "requests_per_s"

    def ratio(self, values: dict[str, float]) -> float:
        """Ours over the best of the others."""
        others = [value for name, value in values.items() if name != OURS]
        return values[OURS] / (max(others) if self.rising else min(others))

    @property
    def cells(self) -> list[str]:
        """What the table has of it."""
        ratios = sorted(map(self.ratio, self.rounds))
        found = statistics.median(ratios)
        sign = "≥" if self.rising else "≤"
        met = found >= self.aim if self.rising else found <= self.aim
        unit = "/s" if self.rising else " ms"
        medians = (
            f"{target.title} {statistics.median(values[target.name] for values in self.rounds):,.2f}{unit}"
            for target in self.targets
        )
        spread = f"{found:.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f})"
        said = "yes" if met else "NO"
        return [self.title, str(self.connections), "; ".join(medians), spread, f"{sign} {self.aim:g}", said]


HEAD: Final = ["work", "connections", "medians", "ratio or difference", "aim", "met"]


class Rows:
    """All of them, made in a folder that their models and requests lie in."""

    def __init__(self, folder: Path, *, tiny: bool, old: Path | None) -> None:
        self._folder = folder
        self._tiny = tiny
        self._numbers = 0
        self.all: dict[str, Row] = {}
        fixed = self._bodies("fixed", work.fixed())
        for name, connections, measures, aim, other in (
            ("no-op, mosec", 64, "requests_per_s", 1.2, self._peer("mosec", "noop")),
            ("no-op, bare pair", 64, "requests_per_s", 0.9, self._bare()),
            ("no-op, bare pair, alone", 1, "p50_ms", 1.4, self._bare()),
        ):
            title = f"no-op model, {'requests/s' if measures == 'requests_per_s' else 'p50'}, beside {other.title}"
            self.all[name] = Row(title, aim, [self._toy("toy:noop"), other], fixed, connections, measures)
        self.all["busy"] = Row(
            "model of 1 ms, not joined, beside what an executor that is never idle would do", 0.95,
            [self._served("toy", 'path = "busy=1"\nlook_ahead = true'), self._bare(busy=True)], fixed, 64,
        )  # fmt: skip
        distinct, repeats = self._bodies("distinct", work.distinct()), self._bodies("repeats", work.distinct(0.75))
        mixed = self._bodies("mixed", work.mixed())
        if old is not None:
            self.all["old"] = Row(
                "embedded model beside framehost before batches", 4.0,
                [self._served("sparrow", "join = false"), self._served("sparrow", "", old)], distinct, 64,
            )  # fmt: skip
        encoder = work.encoder(folder, tiny=tiny)
        for works, title in (
            ("torch", "all-MiniLM-L6-v2, batches of 32, beside mosec and LitServe with theirs, on transformers"),
            ("encoder", "the same, with framehost's own encoder in their workers"),
        ):
            peers = [self._peer(name, f"{works}={encoder}", 32) for name in PEERS]
            targets = [self._encoder(encoder, "join = false"), *peers]
            self.all[f"peers, {works}"] = Row(title, 1.15, targets, distinct, 64)
        unit_by_unit = "join = false\nbatch = { units = 1 }\nlook_ahead = false"
        self._on_and_off("batches", "all-MiniLM-L6-v2, batches on beside off", 1.0, encoder, distinct, 64,
                         "join = false", unit_by_unit)  # fmt: skip
        self._on_and_off("joining", "the same, 75 % repeats, joining on beside off", 1.0, encoder, repeats, 64,
                         "", "join = false")  # fmt: skip
        self._on_and_off("cache", "the same, 75 % repeats, answer cache on beside off", 2.5, encoder, repeats, 64,
                         "answer_cache_mb = 64", "join = false")  # fmt: skip
        self._on_and_off("tail", "the same, mixed lengths, p99, batches on beside off", 1.0, encoder, mixed, 8,
                         "join = false", unit_by_unit, "p99_ms")  # fmt: skip
        laya = work.laya(folder, tiny=tiny)
        keys = f'path = "{laya}"\njoin = false'
        self.all["laya"] = Row(
            "Laya at its released shape, batches on beside off", 1.5,
            [
                self._served("laya", f"{keys}\nbatch = {{ units = 16, tokens = 16384 }}"),
                self._served("laya", keys, None, "off"),
            ],
            self._bodies("short", work.short()), 16, slow=not tiny,
        )  # fmt: skip
        chat = work.chat(folder, tiny=tiny)
        theirs = self._transformers(chat)
        for connections in (1, 8):
            self.all[f"chat, {connections}"] = Row(
                "chat model of 20 M parameters, one short question, beside transformers serve", 1.2,
                [self._served("transformers", f'path = "{chat}"\njoin = false'), theirs],
                self._bodies("short", work.short()), connections,
            )  # fmt: skip
        keeping = "options = { prefix_cache_mb = 256 }"
        self.all["again"] = Row(
            "the same, kept prefixes on, a new question about the same 1,000 tokens, beside transformers serve", 10.0,
            [self._served("transformers", f'path = "{chat}"\njoin = false\n{keeping}'), theirs],
            self._bodies("again", work.again(128 if tiny else 1000)), 1,
        )  # fmt: skip

    def _on_and_off(
        self, name: str, title: str, aim: float, encoder: Path, bodies: Path, connections: int, on: str, off: str,
        measures: str = "requests_per_s",
    ) -> None:  # fmt: skip
        targets = [self._encoder(encoder, on), self._encoder(encoder, off, "off")]
        self.all[name] = Row(title, aim, targets, bodies, connections, measures)

    def _bodies(self, name: str, requests: list[bytes]) -> Path:
        file = self._folder / f"{name}.jsonl"
        file.write_bytes(b"\n".join(requests) + b"\n")
        return file

    def _peer(self, name: str, works: str, batch: int = 1) -> Target:
        command = (
            str(PROGRAM),
            "-m",
            f"benchmarks.peers.{name}_server",
            "--work",
            works,
            "--batch",
            str(batch),
            "--port",
        )
        return Target(name, PEERS[name], command, path="/inference" if name == "mosec" else "/v1/systemone")

    def _bare(self, *, busy: bool = False) -> Target:
        more = ("--busy-ms", "1") if busy else ()
        command = (str(PROGRAM), "-m", "benchmarks.floor.split", "--uvloop", "--window", "0", *more, "--port")
        return Target("bare", "bare aiohttp + ZeroMQ", command)

    def _toy(self, model: str) -> Target:
        return Target(OURS, OURS, (str(PROGRAM.with_name("framehost")), "serve", "--model", f"toy={model}", "--port"))

    def _encoder(self, folder: Path, keys: str, name: str = OURS) -> Target:
        return self._served("embedding", f'path = "{folder}"\n{keys}', None, name)

    def _served(self, family: str, keys: str, old: Path | None = None, name: str = OURS) -> Target:
        self._numbers += 1
        file = self._folder / f"{self._numbers}.toml"
        file.write_text(f'[server]\nrequest_timeout = {PATIENCE_S}\n[models.m]\nfamily = "{family}"\n{keys}\n')
        command = (str(PROGRAM), "-m", "executor_host.supervision.entry", "serve", "--config", str(file), "--port")
        if old is None:
            return Target(name, name, command)
        return Target("old", "before", command, root=old)

    def _transformers(self, folder: Path) -> Target:
        command = (
            str(PROGRAM.with_name("transformers")),
            "serve",
            str(folder),
            "--host",
            "127.0.0.1",
            "--device",
            "cpu",
        )
        return Target(
            "transformers", "transformers serve", (*command, "--dtype", "float32", "--port"), first=work.FIRST
        )


PEERS: Final = {"mosec": "mosec", "litserve": "LitServe"}


def measured(row: Row, rounds: int, seconds: int) -> None:
    """Fill `row.rounds`. The first round warms all up and is forgotten. Raises `ServerFailed`, `LoadFailed`."""
    if row.slow:
        rounds, seconds = 2, SLOW_S
    with tempfile.TemporaryDirectory(prefix="fh-") as folder, ExitStack() as stack:
        running = [stack.enter_context(started(target, Path(folder), PATIENCE_S)) for target in row.targets]
        for number in range(rounds + 1):
            found = {}
            for server in running if number % 2 else running[::-1]:
                found[server.target.name] = _load(row, server, number, seconds)
            if number:
                row.rounds.append({target.name: found[target.name] for target in row.targets})


def _load(row: Row, server: Running, number: int, seconds: int) -> float:
    # Each round asks what the server has not been asked yet.
    first = number * work.REQUESTS // 16
    try:
        done = load.run(server.url, row.bodies, connections=row.connections, seconds=seconds, first=first)
    except load.LoadFailed as error:
        if server.process.poll() is not None:
            raise server.died() from error
        raise
    return float(getattr(done, row.measures))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.throughput", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of load for each server in each round")
    parser.add_argument("--only", metavar="WORD,...", help="the rows whose names have one of these words in them")
    parser.add_argument("--old", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Measure and print; returns the exit status."""
    arguments = _arguments()
    problem = load.missing()
    if not PACKAGES.is_dir():
        problem = "the peers are not installed: make bench does that"
    if importlib.util.find_spec("transformers") is None:
        problem = "this needs framehost[torch] and transformers[serving]: make bench installs them"
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    # So that every `finally` runs: a benchmark that is stopped stops its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["HF_HUB_OFFLINE"] = "1"
    if arguments.tiny:
        arguments.rounds = arguments.seconds = 1
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        rows = Rows(Path(folder), tiny=arguments.tiny, old=arguments.old).all
        words = arguments.only.split(",") if arguments.only else [""]
        table = [HEAD]
        for name, row in rows.items():
            if not any(word in name for word in words):
                continue
            try:
                measured(row, arguments.rounds, arguments.seconds)
            except (ServerFailed, load.LoadFailed) as error:
                print(f"failed: {name}: {error}", file=sys.stderr)
                return 1
            table.append(row.cells)
            print(" | ".join(table[-1]), file=sys.stderr, flush=True)
        if not arguments.only:
            try:
                table.append(holding.swapped(Path(folder), "sparrow", arguments.rounds))
                table.append(holding.remembered(Path(folder), "sparrow", 2_000 if arguments.tiny else 100_000))
            except ServerFailed as error:
                print(f"failed: {error}", file=sys.stderr)
                return 1
    about = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine.describe()}. {machine.versions()}."
    print(about, draw(table, markdown=False), sep="\n\n")
    if arguments.write:
        text = DOCUMENT.read_text()
        DOCUMENT.write_text(MARK.sub(lambda _: f"{about}\n\n{draw(table, markdown=True)}\n", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
