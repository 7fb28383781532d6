"""Measure framehost against `transformers serve`: the same chat model on the same machine, in one run.

    python -m benchmarks.decisions [--tiny] [--rounds N] [--budget S] [--seconds S] [--json FILE] [--markdown]
    python -m benchmarks.decisions --from FILE [--markdown]

1 to 16 questions about a state of 128 and of 1,024 tokens, at 1 and at 8 connections. The model is a causal chat model
with random weights, written to a temporary folder. Both servers are started once; each row is measured on one and then
on the other, in an order that turns from round to round; ratios are taken within a round, medians over the rounds. A
row whose next round would not fit into the budget has fewer of them. How many threads torch uses is up to
OMP_NUM_THREADS, for both alike. Exit status: 0 measured, 1 a server failed or the two disagree, 2 cannot measure here.
A goal that is missed is printed, it does not fail the run.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.util
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, request, servers
from benchmarks.servers import HOST, ROOT, Running, ServerFailed, Target
from benchmarks.tables import draw

QUESTIONS: Final = (1, 4, 8, 16)
STATES: Final = (128, 1024)
CONNECTIONS: Final = (1, 8)

SIZES: Final[dict[str, Any]] = {
    "hidden_size": 384,
    "intermediate_size": 1152,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 16_384,
}
"""20.5 million parameters, 6.3 of them embeddings."""
TINY: Final[dict[str, Any]] = {}

SHORT_GOAL: Final = 1.0
MANY_GOAL: Final = 4.0
"""Requests a second over those of `transformers serve`: with one question about the short state, and with 8 about the
long one."""

TOLERANCE: Final = 1e-4
"""Of a probability, between the two servers."""

PATIENCE_S: Final = 600.0
"""For one answer, of which the slowest here takes a minute, and for a start."""

WORDS: Final = "The customer was charged twice for one order last week and asks for the money back. "
ASKED: Final[tuple[dict[str, Any], ...]] = (
    {"type": "noul", "instructions": "Is the money asked back by the customer?"},
    {"type": "choice", "instructions": "Which team should answer?", "criteria": {"billing": "a charge", "login": None}},
    {"type": "score", "instructions": "How urgent is it?", "criteria": ["can wait", "this week", "today"]},
)

SUBJECTS: Final = (
    "order", "charge", "refund", "account", "delivery", "invoice", "card", "support",
    "price", "return", "address", "password", "contract", "product", "complaint", "thanks",
)  # fmt: skip
"""The first word of each question, so that no two of a request share more than the state."""

OURS, THEIRS = "framehost", "transformers serve"


@dataclass(frozen=True, slots=True)
class Sample:
    """One server under one load."""

    requests_per_s: float
    p50_ms: float
    cpu_s: float
    """Processor time of the server per request."""
    others: float
    """Cores that others took."""


@dataclass(slots=True)
class Row:
    """So many questions about a state of so many tokens, at so many connections."""

    state: int
    questions: int
    connections: int
    rounds: list[dict[str, Sample]] = field(default_factory=list)
    """By server."""

    def ratio(self, what: str) -> float:
        """How many times better framehost is: above 1 is better, whatever is compared."""
        over = [(getattr(round_[OURS], what), getattr(round_[THEIRS], what)) for round_ in self.rounds]
        return statistics.median(a / b if what == "requests_per_s" else b / a for a, b in over)

    def median(self, server: str, what: str) -> float:
        return statistics.median(getattr(round_[server], what) for round_ in self.rounds)

    @property
    def others(self) -> float:
        return statistics.median(sample.others for round_ in self.rounds for sample in round_.values())

    @property
    def noisy(self) -> bool:
        """Whether others took much in half of the samples or more."""
        return self.others > machine.NOISE_CORES


class Disagreement(Exception):
    """The two servers gave different answers."""


class Bench:
    """One run."""

    def __init__(self, folder: Path, running: dict[str, Running], seconds: float) -> None:
        self._running = running
        self._seconds = seconds
        self.rows = [
            Row(state, questions, connections)
            for state in STATES
            for questions in QUESTIONS
            for connections in CONNECTIONS
        ]
        texts = {tokens: _text(folder, tokens) for tokens in STATES}
        self._bodies = {
            (state, questions): json.dumps(
                {
                    "state": texts[state],
                    "questions": {f"q{index}": _question(index) for index in range(questions)},
                }
            ).encode()
            for state in STATES
            for questions in QUESTIONS
        }

    def run(self, rounds: int, budget_s: float) -> None:
        """Up to `rounds` rounds, of each row at least one. Raises `Disagreement`, `ServerFailed`."""
        started = time.perf_counter()
        for body in self._bodies.values():
            self._compare(body)
        costs = [0.0] * len(self.rows)
        for number in range(rounds):
            for index, row in enumerate(self.rows):
                begin = time.perf_counter()
                if number and begin - started + costs[index] > budget_s:
                    continue
                order = (OURS, THEIRS) if (number + index) % 2 == 0 else (THEIRS, OURS)
                row.rounds.append({server: self._measure(server, row) for server in order})
                costs[index] = time.perf_counter() - begin
                rates = " and ".join(f"{row.rounds[-1][server].requests_per_s:.2f}" for server in (OURS, THEIRS))
                name = f"{row.questions:2} questions about {row.state:4} c={row.connections}"
                print(f"round {number + 1}  {name}:  {rates} requests/s", file=sys.stderr, flush=True)

    def _compare(self, body: bytes) -> None:
        """Warms both up, and looks whether they say the same."""
        ours, theirs = (json.loads(_ask(self._running[server], body)) for server in (OURS, THEIRS))
        if ours["usage"] != theirs["usage"]:
            raise Disagreement(f"usage: {ours['usage']} and {theirs['usage']}")
        for name, answer in ours["answers"].items():
            expected = theirs["answers"][name]
            for key in ("noul", "score", "confidence"):
                if key in answer and not abs(answer[key] - expected[key]) <= TOLERANCE:
                    raise Disagreement(f"{key} of {name}: {answer[key]} and {expected[key]}")

    def _measure(self, server: str, row: Row) -> Sample:
        """Keep-alive connections that each send the next request when they have their answer, at least one each."""
        running, body = self._running[server], self._bodies[row.state, row.questions]
        latencies: list[float] = []
        failures: list[BaseException] = []
        meter = machine.Meter(running.process.pid, time.perf_counter())
        begin = time.perf_counter()

        def client() -> None:
            connection = http.client.HTTPConnection(HOST, running.port, timeout=PATIENCE_S)
            try:
                while True:
                    sent = time.perf_counter()
                    _ask(running, body, connection)
                    latencies.append(time.perf_counter() - sent)
                    if time.perf_counter() - begin >= self._seconds:
                        return
            except (OSError, http.client.HTTPException, ServerFailed) as error:
                failures.append(error)
            finally:
                connection.close()

        clients = [threading.Thread(target=client) for _ in range(row.connections)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        wall = time.perf_counter() - begin
        if failures:
            raise ServerFailed(f"{server}: {failures[0]}")
        shares = meter.read(time.perf_counter())
        return Sample(
            requests_per_s=len(latencies) / wall,
            p50_ms=statistics.median(latencies) * 1e3,
            cpu_s=shares.server * wall / len(latencies),
            others=shares.others + shares.stolen,
        )


def _ask(running: Running, body: bytes, connection: http.client.HTTPConnection | None = None) -> bytes:
    own = connection or http.client.HTTPConnection(HOST, running.port, timeout=PATIENCE_S)
    try:
        own.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})
        response = own.getresponse()
        content = response.read()
        if response.status != 200:
            raise ServerFailed(f"{running.target.name}: {response.status} {content[:300]!r}")
        return content
    finally:
        if connection is None:
            own.close()


def _question(index: int) -> dict[str, Any]:
    asked = ASKED[index % len(ASKED)]
    return {**asked, "instructions": f"{SUBJECTS[index]}: {asked['instructions']}"}


def _text(folder: Path, tokens: int) -> str:
    """A text of about so many tokens."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoding = encoder.encode(WORDS * (tokens // 8 + 1), add_special_tokens=False)
    return (WORDS * (tokens // 8 + 1))[: encoding.offsets[tokens - 1][1]]


def render(document: dict[str, Any], *, markdown: bool) -> str:
    """The tables and what became of the goals, of what `main` writes into a file."""
    rows = [
        Row(
            row["state"],
            row["questions"],
            row["connections"],
            [{server: Sample(**sample) for server, sample in round_.items()} for round_ in row["rounds"]],
        )
        for row in document["rows"]
    ]
    head = ["state", "questions", "connections", "framehost req/s", "p50 ms", "transformers req/s", "p50 ms"]
    table = [[*head, "requests x", "p50 x", "CPU x", "rounds", "others"]]
    table += [
        [
            f"{row.state:,}",
            str(row.questions),
            str(row.connections),
            f"{row.median(OURS, 'requests_per_s'):.2f}",
            f"{row.median(OURS, 'p50_ms'):,.0f}",
            f"{row.median(THEIRS, 'requests_per_s'):.2f}",
            f"{row.median(THEIRS, 'p50_ms'):,.0f}",
            f"{row.ratio('requests_per_s'):.2f}",
            f"{row.ratio('p50_ms'):.2f}",
            f"{row.ratio('cpu_s'):.2f}",
            str(len(row.rounds)),
            f"{row.others:.2f}" + (" NOISY" if row.noisy else ""),
        ]
        for row in rows
    ]
    lines = [draw(table, markdown=markdown)]
    lines += ["", *(_goal(rows, state, questions, goal) for state, questions, goal in _GOALS)]
    noisy = sum(row.noisy for row in rows)
    if noisy:
        lines.append(f"{noisy} of {len(rows)} rows are NOISY: others took more than {machine.NOISE_CORES} cores")
    return "\n".join([*document["about"], "", *lines])


_GOALS: Final = ((STATES[0], QUESTIONS[0], SHORT_GOAL), (STATES[-1], 8, MANY_GOAL))


def _goal(rows: Sequence[Row], state: int, questions: int, goal: float) -> str:
    ratios = [(row.connections, row) for row in rows if (row.state, row.questions) == (state, questions)]
    found = ", ".join(
        f"{row.ratio('requests_per_s'):.2f} at {connections} (CPU {row.ratio('cpu_s'):.2f})"
        for connections, row in ratios
    )
    met = all(row.ratio("requests_per_s") >= goal for _, row in ratios)
    what = f"{questions} question(s) about {state:,} tokens, requests x >= {goal:g}"
    return f"goal: {what}: {found}: {'yes' if met else 'NO'}"


def _targets(folder: Path, config: Path) -> tuple[Target, Target]:
    programs = Path(sys.executable)
    serve = (str(programs.with_name("framehost")), "serve", "--config", str(config), "--port")
    config.write_text(
        f"[server]\nrequest_timeout = {PATIENCE_S}\n"
        # All clients ask the same, and the other server executes each of them.
        f"[models.chat]\nfamily = 'transformers'\npath = {json.dumps(str(folder))}\njoin = false\n"
        "[models.chat.options]\ndevice = 'cpu'\ndtype = 'float32'\n"
    )
    first = json.dumps({name: value for name, value in request.REQUEST.items() if name != "model"}).encode()
    theirs = (str(programs.with_name("transformers")), "serve", str(folder), "--host", HOST)
    return (
        Target(OURS, OURS, serve, first=first),
        Target("transformers", THEIRS, (*theirs, "--device", "cpu", "--dtype", "float32", "--port"), first=first),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.decisions", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tiny", action="store_true", help="a tiny model and one round: does it work, not how fast")
    parser.add_argument("--rounds", type=int, default=3, help="at most (default %(default)s)")
    parser.add_argument("--budget", type=float, default=600.0, metavar="S", help="seconds (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of load per row and server (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every sample there")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument(
        "--from", dest="samples", metavar="FILE", type=Path, help="measure nothing, report a --json file"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("at least one round")
    return arguments


def main() -> int:
    """Measure and print; returns the exit status."""
    arguments = _arguments()
    if arguments.samples:
        print(render(json.loads(arguments.samples.read_text()), markdown=arguments.markdown))
        return 0
    absent = [name for name in ("torch", "transformers", "fastapi", "uvicorn") if not importlib.util.find_spec(name)]
    if absent:
        print(f"this needs framehost[torch] and transformers[serving]: {', '.join(absent)} missing", file=sys.stderr)
        return 2
    # So that every `finally` runs: a benchmark that is stopped stops its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["HF_HUB_OFFLINE"] = "1"
    rounds, seconds = (1, 0.2) if arguments.tiny else (arguments.rounds, arguments.seconds)
    with tempfile.TemporaryDirectory(prefix="bench") as directory:
        folder = _write_model(Path(directory) / "chat", TINY if arguments.tiny else SIZES)
        ours, theirs = _targets(folder, Path(directory) / "c.toml")
        try:
            with (
                servers.started(ours, Path(directory), PATIENCE_S) as first,
                servers.started(theirs, Path(directory), PATIENCE_S) as second,
            ):
                bench = Bench(folder, {OURS: first, THEIRS: second}, seconds)
                bench.run(rounds, arguments.budget)
        except (ServerFailed, Disagreement) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    document = {"about": _about(), "rows": [asdict(row) for row in bench.rows]}
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    print(render(document, markdown=arguments.markdown))
    return 0


def _write_model(folder: Path, sizes: dict[str, Any]) -> Path:
    sys.path.insert(0, str(ROOT))
    from tests.helpers import tiny_transformers

    return tiny_transformers.write_chat(folder, **sizes)


def _about() -> list[str]:
    from importlib.metadata import version

    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "uvicorn", "aiohttp"))
    return [machine.describe(), f"{libraries}; float32 on the CPU, OMP_NUM_THREADS {threads}"]


if __name__ == "__main__":
    sys.exit(main())
