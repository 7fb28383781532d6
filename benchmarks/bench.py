"""Measure framehost against what it is built from, in one run.

    python -m benchmarks.bench [--rounds N] [--passes N] [--seconds S] [--quick] [--only NAME,...]
                               [--json FILE] [--markdown]
    python -m benchmarks.bench --from FILE [--markdown]

Each round starts every server afresh, one after the other, and then goes twice through all numbers of
connections, loading each server in turn for a second: what is compared was measured close together. The order
turns with the passes and the rounds. Exit status: 0 measured, 1 a server failed or answered wrongly, 2 cannot
measure here. Goals that are missed are printed, they do not fail the run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import load, machine, memory, report, request, servers
from benchmarks.report import CONNECTIONS, Results, Sample, Start
from benchmarks.servers import ROOT, TARGETS, Running, ServerFailed, Target

WARM_UP_CONNECTIONS = 8
WARM_UP_S = 1
SETTLE_S = 0.5
"""After the first answer, before memory is read."""

MEMORY_OF = ("inline", "floor-one", "framehost-noop", "framehost-sparrow")
PINGPONG_S = 1.0
PASSES = 2
"""Times that each round goes through all rows. Many short samples compare better than few long ones, because the
machine changes its speed within seconds."""

PATIENCE_S = 60.0
LOOK_S = 0.2


class Bench:
    """One run."""

    def __init__(
        self, targets: Sequence[Target], seconds: int, passes: int, patience_s: float, directory: Path
    ) -> None:
        self.results = Results(machine.describe(), machine.versions(), seconds)
        self._targets = list(targets)
        self._directory = directory
        self._body = directory / "body.json"
        self._body.write_bytes(request.BODY)
        self._passes = passes
        self._patience_s = patience_s

    def round(self, number: int) -> None:
        """Memory of some servers alone, then all of them side by side, loaded in turn."""
        first = number % len(self._targets)
        order = self._targets[first:] + self._targets[:first]
        if number % 2:
            order.reverse()
        for target in order:
            if target.name in MEMORY_OF:
                self._weigh(target)
        with ExitStack() as stack:
            running = [stack.enter_context(self._started(target)) for target in order]
            for server in running:
                load.run(server.url, self._body, connections=WARM_UP_CONNECTIONS, seconds=WARM_UP_S)
            for turn in range(self._passes):
                for connections in CONNECTIONS:
                    for server in running if turn % 2 == 0 else running[::-1]:
                        self._measure(server, connections, number * self._passes + turn)
        self._pingpong()

    def _wait_for_quiet(self) -> None:
        """Give the rest of the machine a chance to finish what it does.

        The patience is the whole run's, for waiting and for measuring again: a machine that stays busy must
        not hold up the run for ever, and its rows are marked.
        """
        while self._patience_s > 0 and machine.others_now(LOOK_S) > machine.NOISE_CORES:
            self._patience_s -= LOOK_S

    @contextmanager
    def _started(self, target: Target) -> Iterator[Running]:
        self._wait_for_quiet()
        meter = machine.Meter(os.getpid(), time.perf_counter())
        with servers.started(target, self._directory) as server:
            noisy = meter.read(time.perf_counter()).noisy
            self.results.starts.setdefault(target.name, []).append(Start(server.start_s, noisy))
            yield server

    def _weigh(self, target: Target) -> None:
        with self._started(target) as server:
            time.sleep(SETTLE_S)
            self.results.memory.setdefault(target.name, []).append(memory.by_role(server.process.pid))

    def _measure(self, server: Running, connections: int, number: int) -> None:
        sample = self._sample(server, connections, number)
        if sample.shares.noisy and self._patience_s > 0:
            self._patience_s -= self.results.seconds
            second = self._sample(server, connections, number)
            sample = min(sample, second, key=lambda s: s.shares.others + s.shares.stolen)
        self.results.samples.append(sample)
        print(
            f"round {number + 1}  {server.target.name:20} c={connections:<3} {sample.load.requests_per_s:8.0f} req/s  "
            f"p50 {sample.load.p50_ms:7.2f} ms" + ("  noisy" if sample.shares.noisy else ""),
            file=sys.stderr,
            flush=True,
        )

    def _sample(self, server: Running, connections: int, number: int) -> Sample:
        self._wait_for_quiet()
        meter = machine.Meter(server.process.pid, time.perf_counter())
        try:
            measured = load.run(server.url, self._body, connections=connections, seconds=self.results.seconds)
        except load.LoadFailed as error:
            if server.process.poll() is not None:
                raise server.died() from error
            raise
        return Sample(server.target.name, connections, number, measured, meter.read(time.perf_counter()))

    def _pingpong(self) -> None:
        command = [sys.executable, "-m", "benchmarks.floor.pingpong", "--seconds", str(PINGPONG_S)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        self.results.pingpong_us.append(json.loads(done.stdout))


def _arguments() -> argparse.Namespace:
    names = [target.name for target in TARGETS]
    parser = argparse.ArgumentParser(prog="benchmarks.bench", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1, help="of load for each row in each pass")
    parser.add_argument("--passes", type=int, default=PASSES, help="of all rows in each round")
    parser.add_argument("--quick", action="store_true", help="one pass without patience: a smoke test, not a result")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, metavar="S",
        help="seconds that the whole run may wait or measure again while others use this machine (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--only", metavar="NAME,...", help=f"some of: {', '.join(names)}")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every sample there")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument(
        "--from", dest="samples", metavar="FILE", type=Path, help="measure nothing, report a --json file"
    )
    arguments = parser.parse_args()
    arguments.targets = TARGETS
    if arguments.only:
        wanted = arguments.only.split(",")
        unknown = sorted(set(wanted) - set(names))
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
        arguments.targets = [target for target in TARGETS if target.name in wanted]
    if arguments.quick:
        arguments.rounds, arguments.passes, arguments.patience = 1, 1, 0.0
    if min(arguments.rounds, arguments.passes, arguments.seconds) < 1:
        parser.error("at least one pass of one second")
    return arguments


def main() -> int:
    """Measure and print; returns the exit status."""
    arguments = _arguments()
    if arguments.samples:
        results = Results.of_document(json.loads(arguments.samples.read_text()))
        print(report.render(results, markdown=arguments.markdown))
        return 0
    problem = load.missing()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    # So that every `finally` runs: a benchmark that is stopped stops its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="bench") as directory:
        bench = Bench(arguments.targets, arguments.seconds, arguments.passes, arguments.patience, Path(directory))
        try:
            for number in range(arguments.rounds):
                bench.round(number)
        except (ServerFailed, load.LoadFailed) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    if arguments.json:
        arguments.json.write_text(json.dumps(bench.results.document(), indent=1) + "\n")
    print(report.render(bench.results, markdown=arguments.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
