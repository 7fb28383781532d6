"""`framehost batch`: a file of requests to a file of answers, a line each, in order; a rerun goes on where it stopped.

    in.jsonl ──▶ reader ──▶ workers (a connection each, retries) ──▶ answers in the order of their lines ──▶ out.jsonl
                   ▲                                                                  │
                   └────────── at most `WINDOW` lines per worker ahead of the writer ─┘

A line is written when all before it have been, so the file is at any moment the answers of the first so many lines;
that is what a rerun relies on, and why nothing else is remembered anywhere. The standard library alone.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from frontend.cli import client
from frontend.cli.client import UsageError
from frontend.cli.progress import ProgressBar
from frontend.cli.sender import Outcome, Sender, Stopped, Target
from frontend.cli.terminal import visible

WINDOW = 8
"""Lines that may be read ahead of the first unanswered one, for each worker: a slow answer does not idle the others."""

MAX_CONCURRENCY = 256

BEGIN = b'{"line":'
"""How every line of an output begins. What begins otherwise was not written here and is not touched."""

EXIT_REFUSED = 1
"""Every line has its line, and some of these are errors."""
EXIT_USAGE = 2
EXIT_STOPPED = 3
"""It ended before the last line; the same command goes on there."""
EXIT_INTERRUPTED = 130


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    batch = commands.add_parser(
        "batch",
        help="ask a running server about every line of a file",
        description="Ask a running server about every line of a JSONL file and write a line for each, in order. A line "
        "is a request body; with --questions it may be a state alone. Run the same command again and it goes on where "
        "it stopped. Exit status: 0 every line is answered; 1 some lines are errors; 2 a mistake in the options or "
        "the files, and nothing was written; 3 it stopped before the last line; 130 interrupted.",
    )
    batch.add_argument("input", metavar="IN.jsonl", help="the requests, a JSON object in each line")
    batch.add_argument("output", metavar="OUT.jsonl", help="the answers; what is there already is kept")
    batch.add_argument(
        "--concurrency", type=_concurrency, default=8, metavar="N", help="requests at a time (default %(default)s)"
    )
    batch.add_argument("--questions", metavar="FILE", help="a JSON object: the questions of lines that have none")
    batch.add_argument("--model", default=None, help="the model of lines that name none")
    batch.add_argument(
        "--retry", type=client.seconds, default=120.0, metavar="S",
        help="how long a line is tried again while the server is busy or away (default %(default)s)",
    )  # fmt: skip
    client.add_options(batch)
    batch.set_defaults(run=run)


def _concurrency(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MAX_CONCURRENCY):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_CONCURRENCY}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Answer what has no answer yet; the exit status says how that went."""
    try:
        defaults = _defaults(arguments)
        target = Target.of(arguments.url, client.headers(arguments.key_file), arguments.timeout, arguments.retry)
        source = Path(arguments.input)
        if not stat.S_ISREG(source.stat().st_mode):
            raise UsageError(f"{source}: not a file; the lines are read more than once, to go on where it stopped")
        total = sum(1 for _ in _lines(source))
        with closing(Output(Path(arguments.output))) as output:
            done, errors = output.resume(source)
            requests = (
                _request(number, line, defaults) for number, line in itertools.islice(_lines(source), done, None)
            )
            return _answer(Sender(target, arguments.concurrency), requests, output, done, errors, total)
    except (UsageError, OSError) as error:
        return _say(client.told(error), EXIT_USAGE)
    except UnicodeError:
        return _say("the options have to be UTF-8 text", EXIT_USAGE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _defaults(arguments: argparse.Namespace) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if arguments.questions is not None:
        try:
            defaults["questions"] = json.loads(Path(arguments.questions).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{arguments.questions}: not JSON: {error}") from None
        if not isinstance(defaults["questions"], dict):
            raise UsageError(f"{arguments.questions}: a JSON object is expected: a question by each id")
    if arguments.model is not None:
        defaults["model"] = arguments.model
    return defaults


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The requests of a file with the numbers of their lines. Blank lines are none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


class Output:
    """The file of answers. Each line is handed to the system whole, and nothing is kept back."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError`, and `UsageError` when it is no file or another batch is writing it."""
        self._path = path
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: not a file; what cannot be read again cannot be continued")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise UsageError(f"{path}: another batch is writing it") from None

    def resume(self, source: Path) -> tuple[int, int]:
        """How many requests of `source` have their line, and how many of these are errors. Cuts off a torn line.

        Raises `UsageError` when the file holds something else, and leaves it as it was.
        """
        if self._path.samefile(source):
            raise UsageError(f"{self._path}: the output is the input")
        end = done = errors = 0
        requests = _lines(source)
        with self._path.open("rb") as written:
            for line in written:
                if not line.endswith(b"\n") and line[: len(BEGIN)] == BEGIN[: len(line)]:
                    break
                number, _ = next(requests, (0, b""))
                try:
                    document = json.loads(line)
                    answered = document["line"]
                except (ValueError, LookupError, TypeError, RecursionError):
                    answered = None
                if answered != number or not number:
                    raise UsageError(
                        f"{self._path}: line {done + 1} is no answer to a line of {source}; give another output"
                    )
                done, errors, end = done + 1, errors + ("error" in document), end + len(line)
        os.ftruncate(self._file, end)
        return done, errors

    def write(self, line: bytes) -> None:
        """Append a line. After an `OSError` the file may end in a part of it, which `resume` cuts off."""
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        os.close(self._file)


def _answer(
    sender: Sender,
    requests: Iterator[tuple[int, bytes | Outcome]],
    output: Output,
    done: int,
    errors: int,
    total: int,
) -> int:
    bar = ProgressBar(sys.stderr, total, done)
    status = 0
    try:
        for number, outcome in sender.in_order(requests, ahead=WINDOW):
            output.write(_line(number, outcome))
            errors += outcome.error is not None
            done += 1
            bar.advance(failed=outcome.error is not None)
    except (Stopped, OSError) as error:
        status, why = EXIT_STOPPED, client.told(error)
    except KeyboardInterrupt:
        status, why = EXIT_INTERRUPTED, "interrupted"
    finally:
        sender.stop()
        bar.close()
    if status:
        return _say(f"{why}; {done} of {total} lines are written, and the same command goes on there", status)
    if done != total:
        return _say(f"{done} of {total} lines are written: the input was changed meanwhile", EXIT_STOPPED)
    if errors:
        return _say(f"{done} of {total} lines are written, {errors} of them errors", EXIT_REFUSED)
    return _say(f"{done} of {total} lines are written", 0)


def _request(number: int, line: bytes, defaults: dict[str, Any]) -> tuple[int, bytes | Outcome]:
    """The body of a line's request, or the outcome of a line that is none.

    Without defaults a line is sent as it is: what is wrong with it, the server says best.
    """
    if not defaults:
        return number, line
    try:
        content = json.loads(line, object_pairs_hook=_distinct)
        if isinstance(content, dict) and not ("questions" in defaults and {"state", "questions"}.isdisjoint(content)):
            body = {**defaults, **content}
        elif "questions" in defaults:
            body = {**defaults, "state": content}
        else:
            return number, Outcome(None, None, "the line is not a JSON object")
        return number, json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # UnicodeError, for half of a surrogate pair, is one
        return number, Outcome(None, None, f"the line is not JSON text: {error}")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all there. The server would refuse the line; here one would be lost in silence."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _line(number: int, outcome: Outcome) -> bytes:
    """The output line of an outcome."""
    line: dict[str, Any] = {"line": number, "status": outcome.status}
    if outcome.error is None:
        line["response"] = outcome.response
    else:
        line["error"] = outcome.error
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def _say(text: str, status: int) -> int:
    print(f"framehost batch: {visible(text)}", file=sys.stderr)
    return status
