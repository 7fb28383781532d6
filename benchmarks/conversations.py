"""Ten turns of a text that grows: with a conversation, without one, and asked of `transformers serve`.

    python -m benchmarks.conversations [--rounds N] [--tiny]

A chat model of 20 M random parameters; the state grows from about 200 tokens to about 4,000, and each turn asks one new
question about it. A and B alternate turn by turn; each round is another text. Prints the medians of each turn. Exit
status: 0 measured, 1 a server failed or answered wrongly.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, work
from benchmarks.servers import Running, ServerFailed, Target, started
from benchmarks.tables import draw

TURNS: Final = 10
GROWTH: Final = 18
"""Sentences that a turn adds to the `FIRST` ones."""

FIRST: Final = 9
TOKENS: Final = 22
"""Of a sentence, in the vocabulary of the model."""

KEEPING: Final = "options = { prefix_cache_mb = 512 }"
PATIENCE_S: Final = 600.0
HEAD: Final = ["turn", "tokens of the state", "conversation", "framehost", "transformers serve", "beside it"]


def state(number: int, turn: int) -> str:
    """The text of a conversation as far as it has got. Its beginning is its own: no other one shares it."""
    return f"Ticket {number}. " + work.SENTENCE * (FIRST + GROWTH * turn)


def asked(server: Running, body: dict[str, Any]) -> float:
    """Seconds of one request. Raises `ServerFailed` for any other answer than 200."""
    request = urllib.request.Request(
        f"{server.url}", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    begun = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            response.read()
    except OSError as error:
        raise ServerFailed(f"{server.target.name} did not answer: {error}") from error
    return time.perf_counter() - begun


def targets(folder: Path, chat: Path) -> list[Target]:
    """The server that keeps conversations, the one that keeps nothing, and the other one."""
    found = []
    for name, options in (("conversation", KEEPING), ("framehost", "")):
        file = folder / f"{name}.toml"
        model = f'[models.m]\nfamily = "transformers"\npath = "{chat}"\njoin = false\n{options}\n'
        file.write_text(f"[server]\nrequest_timeout = {PATIENCE_S}\n{model}")
        program = str(Path(sys.executable).with_name("framehost"))
        found.append(Target(name, name, (program, "serve", "--config", str(file), "--port")))
    program = str(Path(sys.executable).with_name("transformers"))
    options = ("--host", "127.0.0.1", "--device", "cpu", "--dtype", "float32", "--port")
    found.append(
        Target("transformers", "transformers serve", (program, "serve", str(chat), *options), first=work.FIRST)
    )
    return found


def measured(rounds: int, *, tiny: bool) -> list[list[str]]:
    """A row for each turn. Raises `ServerFailed`."""
    times: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="fh-") as name, ExitStack() as stack:
        folder = Path(name)
        running = [
            stack.enter_context(started(target, folder, PATIENCE_S))
            for target in targets(folder, work.chat(folder, tiny=tiny))
        ]
        for number in range(rounds + 1):  # the first warms all up
            for turn in range(TURNS):
                question = {"type": "noul", "instructions": f"{turn}: is the money asked back?"}
                body = {"state": state(number, turn), "questions": {"q": question}}
                for server in running if turn % 2 else running[::-1]:
                    session = {"x_session": f"c{number}"} if server.target.name == "conversation" else {}
                    seconds = asked(server, {**body, **session})
                    if number:
                        times.setdefault((server.target.name, turn), []).append(seconds)
    rows = []
    for turn in range(TURNS):
        kept, plain, theirs = (
            statistics.median(times[name, turn]) for name in ("conversation", "framehost", "transformers")
        )
        cells = [f"{seconds * 1e3:,.0f} ms" for seconds in (kept, plain, theirs)]
        rows.append([str(turn + 1), f"{TOKENS * (FIRST + GROWTH * turn):,}", *cells, f"{theirs / kept:.1f}x"])
    return rows


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conversations", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="conversations (default: %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="a model of a few thousand parameters, to try the command")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        table = [HEAD, *measured(arguments.rounds, tiny=arguments.tiny)]
    except ServerFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    print(f"{machine.describe()}. {machine.versions()}.", draw(table, markdown=True), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
