"""`framehost batch`: a file of requests to a file of answers, a line each, in order; a rerun goes on where it stopped.

    in.jsonl ──▶ reader ──▶ workers (a connection each, retries) ──▶ answers in the order of their lines ──▶ out.jsonl
                   ▲                                                                  │
                   └────────── at most `WINDOW` lines per worker ahead of the writer ─┘

What is read is in `batch_input.py`; what is written, and compared on a rerun, in `batch_output.py`. The standard
library alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from frontend.cli import client
from frontend.cli.batch_input import Line, Source
from frontend.cli.batch_output import Output, Replacement, Written, identities, rendered
from frontend.cli.client import UsageError
from frontend.cli.progress import ProgressBar
from frontend.cli.sender import Outcome, Sender, Stopped, Target
from frontend.cli.terminal import visible

WINDOW = 8
"""Lines that may be read ahead of the first unanswered one, for each worker: a slow answer does not idle the others."""

MAX_CONCURRENCY = 256

EXIT_REFUSED = 1
"""Every line has its line, and some of these are errors; or the weights were replaced meanwhile."""
EXIT_USAGE = 2
EXIT_STOPPED = 3
"""It ended before the last line; the same command goes on there."""
EXIT_INTERRUPTED = 130


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    batch = commands.add_parser(
        "batch",
        help="ask a running server about every line of a file",
        description="Ask a running server about every line of a JSONL file, or every row of a CSV file, and write a "
        "line for each, in order. A line is a request body; with --questions it may be a state alone. A line's id is "
        "copied to its answer. Run the same command again and it goes on where it stopped; an output of other "
        "requests, questions or weights is not touched. Exit status: 0 every line is answered; 1 some lines are "
        "errors, or the model's weights were replaced meanwhile; 2 a mistake in the options or the files, and nothing "
        "was written; 3 it stopped before the last line; 130 interrupted.",
    )
    batch.add_argument(
        "input", metavar="IN", help="the requests: JSONL, or with a name that ends in .csv rows; - for standard input"
    )
    batch.add_argument(
        "output", metavar="OUT.jsonl", help="the answers; what is there already is kept; - for standard output"
    )
    again = batch.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="begin anew, whatever the output holds")
    again.add_argument("--retry-errors", action="store_true", help="ask again about the lines that are errors, too")
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
        target = Target.of(arguments.url, client.headers(arguments.key_file), arguments.timeout, arguments.retry)
        with closing(Source(arguments.input, _defaults(arguments))) as source:
            total = source.count()
            with closing(Output(arguments.output, source, overwrite=arguments.overwrite)) as output:
                job = Job(target, arguments.concurrency, source, total)
                return job.retry(output) if arguments.retry_errors else job.go_on(output)
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


class Job:
    """All lines of one input, asked at one server."""

    def __init__(self, target: Target, workers: int, source: Source, total: int) -> None:
        """`total`: requests in `source`."""
        self._target, self._workers, self._source, self._total = target, workers, source, total
        self._identities = identities(target)

    def go_on(self, output: Output) -> int:
        """Answer the lines that `output` does not have; the exit status."""
        errors = done = 0
        for written in output.found(self._source, self._identities):
            errors, done = errors + written.failed, done + 1
        return self._answer(((line, None) for line in islice(self._source.lines(), done, None)), output, done, errors)

    def retry(self, output: Output) -> int:
        """Answer the lines that `output` does not have or has an error for; the exit status.

        The file is replaced in one step at the end, also by less than all: what was not asked again stays as it is.
        """
        found = output.found(self._source, self._identities, renewed=True)
        with closing(output.replacement()) as replacement:
            lines = ((line, next(found, None)) for line in self._source.lines())
            status = self._answer(lines, replacement, 0, 0)
            rest = output.found(self._source, self._identities, renewed=True)
            for written in islice(rest, replacement.lines, None):
                replacement.write(written.raw)
            replacement.commit()
        return status

    def _answer(
        self, lines: Iterable[tuple[Line, Written | None]], output: Output | Replacement, done: int, errors: int
    ) -> int:
        """Write a line for each of `lines`: the one that was written before, if that was an answer."""
        sender = Sender(self._target, self._workers)
        bar = ProgressBar(sys.stderr, self._total, done)
        status = 0
        try:
            for (line, written), outcome in sender.in_order(map(_asked, lines), ahead=WINDOW):
                output.write(rendered(line, outcome, self._identities) if written is None else written.raw)
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
        written_so_far = f"{done} of {self._total} lines are written"
        if status:
            return _say(f"{why}; {written_so_far}, and the same command goes on there", status)
        if done != self._total:
            return _say(f"{written_so_far}: the input was changed meanwhile", EXIT_STOPPED)
        now = identities(self._target)
        replaced = [name for name, identity in self._identities.items() if now.get(name, identity) != identity]
        if replaced:
            why = f"{replaced[0]} was given other weights meanwhile, and some answers may be theirs"
            return _say(f"{written_so_far}; {why}", EXIT_REFUSED)
        if errors:
            return _say(f"{written_so_far}, {errors} of them errors", EXIT_REFUSED)
        return _say(written_so_far, 0)


def _asked(
    item: tuple[Line, Written | None],
) -> tuple[tuple[Line, Written | None], bytes | Outcome]:
    """What to ask for a line, or the outcome that it has already; with the line, and what is to be written again."""
    line, written = item
    if written is None or written.failed:
        return (line, None), line.request
    return item, Outcome(200, None, None)


def _say(text: str, status: int) -> int:
    print(f"framehost batch: {visible(text)}", file=sys.stderr)
    return status
