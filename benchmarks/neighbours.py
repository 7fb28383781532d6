"""What a model's neighbours cost it: two models at once, and one busy core beside it, each against the quiet one.

    python -m benchmarks.neighbours [--seconds 10]

The default model is served twice under two names and asked by eight connections, each time about another state, so that
every request is computed. All three measurements are of the same servers in the same run: the ratios are what is of
interest, and they say nothing on a machine that is busy otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import machine, servers

CONNECTIONS: Final = 8
MODELS: Final = ("first", "second")
CRITERIA: Final = {"billing": "a charge or a refund", "bug": "something is broken", "sales": "prices and plans"}
BUSY: Final = "while True: pass"


def asked(port: int, model: str, seconds: float) -> list[float]:
    """The seconds that each request took, of `CONNECTIONS` connections for `seconds`."""
    numbers, took = itertools.count(), list[float]()
    until = time.monotonic() + seconds

    def work() -> None:
        with contextlib.closing(http.client.HTTPConnection(servers.HOST, port, timeout=60)) as connection:
            while time.monotonic() < until:
                state = f"Order {next(numbers)}: I was charged twice, please give me my money back"
                question = {"type": "choice", "criteria": CRITERIA}
                body = json.dumps({"model": model, "state": state, "questions": {"team": question}}).encode()
                begun = time.perf_counter()
                connection.request("POST", "/v1/systemone", body)
                response = connection.getresponse()
                content = response.read()
                took.append(time.perf_counter() - begun)
                if response.status != 200:
                    raise servers.ServerFailed(f"status {response.status}: {content[:300]!r}")

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


@contextlib.contextmanager
def neighbour(port: int, seconds: float, kind: str) -> Iterator[None]:
    """Somebody else on the machine: nobody, the other model with as many connections, or a process that never waits."""
    if kind == "quiet":
        yield
    elif kind == "two models at once":
        other = threading.Thread(target=asked, args=(port, MODELS[1], seconds))
        other.start()
        yield
        other.join()
    else:
        busy = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            yield
        finally:
            busy.kill()
            busy.wait()


def main() -> int:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    program = str(Path(sys.executable).with_name("framehost"))
    options = tuple(part for name in MODELS for part in ("--model", f"{name}=embedding:minilm"))
    target = servers.Target("neighbours", "the default model, twice", (program, "serve", *options, "--port"))
    rows = []
    with tempfile.TemporaryDirectory(prefix="fh-") as directory, servers.started(target, Path(directory)) as server:
        for model in MODELS:
            asked(server.port, model, 1.0)
        for kind in ("quiet", "two models at once", "one busy core beside it"):
            with neighbour(server.port, seconds, kind):
                took = asked(server.port, MODELS[0], seconds)
            rows.append((kind, len(took) / seconds, statistics.median(took) * 1000.0))
    print(machine.describe())
    print("| beside it | requests/s | p50 | p50, times the quiet one |\n| --- | --- | --- | --- |")
    for kind, rate, median in rows:
        print(f"| {kind} | {rate:.0f} | {median:.1f} ms | {median / rows[0][2]:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
