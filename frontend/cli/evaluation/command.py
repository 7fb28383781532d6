"""`framehost eval`: how good models are at decisions whose right answers are known. The standard library alone.

gold file ──▶ cases ──▶ each model, one request after another ──▶ measures ──▶ tables, JSON, a diagram
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from frontend.cli import client
from frontend.cli.client import UsageError
from frontend.cli.evaluation import asking, diagram, gold, names, report
from frontend.cli.evaluation.asking import Run
from frontend.cli.progress import ProgressBar
from frontend.cli.sender import Stopped, Target, Worker
from frontend.cli.terminal import visible

EXIT_BELOW: Final = 1
"""A model answered no line, or is below --min-accuracy."""
EXIT_USAGE: Final = 2
EXIT_STOPPED: Final = 3
EXIT_INTERRUPTED: Final = 130


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    evaluate = commands.add_parser(
        "eval",
        help="measure models on decisions whose right answers are known",
        description="Ask a running server about every line of a JSONL file, a request body with the right answers in "
        '"expect", as {"team": "billing", "refund": true, "urgency": 2}, and say how good its models are. Exit status: '
        "0 measured; 1 a model answered no line, or is below --min-accuracy; 2 a mistake in the options or the file, "
        "or a model that the server has not; 3 it stopped before the end: no server, no valid key; 130 interrupted.",
    )
    evaluate.add_argument("gold", metavar="FILE", help="the labelled requests; two sets are in examples/")
    evaluate.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="a model; repeat it to compare (default: all)"
    )
    client.add_options(evaluate)
    evaluate.add_argument(
        "--retry", type=client.seconds, default=120.0, metavar="S",
        help="how long a line is tried again while the server is busy or away (default %(default)s)",
    )  # fmt: skip
    evaluate.add_argument(
        "--precision", type=_share, default=0.95, metavar="P",
        help="say from which probability on such a share of the answers is right (default %(default)s)",
    )  # fmt: skip
    evaluate.add_argument(
        "--min-accuracy", type=_share, metavar="A", help="exit with status 1 if a model is right less often, 0 to 1"
    )
    evaluate.add_argument("--fit", action="store_true", help="propose a temperature for each model")
    evaluate.add_argument("--no-checks", action="store_true", help="ask once; no other order, no other question beside")
    evaluate.add_argument("--wrong", type=int, default=5, metavar="N", help="wrong answers shown (default %(default)s)")
    evaluate.add_argument("--plot", metavar="OUT", help="draw a reliability diagram, as OUT.png (needs the extra plot)")
    evaluate.add_argument("--json", action="store_true", help="everything, for programs")
    evaluate.set_defaults(run=run)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share, 0 to 1")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Measure, print, and say by the exit status how it went."""
    try:
        if arguments.plot is not None:
            diagram.check(Path(arguments.plot))  # before minutes of asking that would end without it
        cases = gold.read(Path(arguments.gold))
        headers = client.headers(arguments.key_file)
        target = Target.of(arguments.url, headers, arguments.timeout, arguments.retry)
        models = names.chosen(arguments.url, headers, arguments.timeout, arguments.model)
        runs = _measured(target, models, cases, checks=not arguments.no_checks)
        found = report.document(runs, asking.keys(cases), arguments.precision, fit=arguments.fit)
        print(json.dumps(found) if arguments.json else report.render(found, most_wrong=max(0, arguments.wrong)))
        if arguments.plot is not None and any(one.answers for one in runs):
            diagram.draw(found, Path(arguments.plot))
    except (gold.GoldError, UsageError, diagram.NoPlot, OSError) as error:
        return _say(client.told(error), EXIT_USAGE)
    except Stopped as error:
        return _say(str(error), EXIT_STOPPED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    silent = [one.model for one in runs if not one.answers]
    low = [one.model for one in runs if one.answers and one.right < (arguments.min_accuracy or 0.0) * one.expected]
    faults = [f"no line was answered by {', '.join(silent)}"] if silent else []
    faults += [f"below {arguments.min_accuracy:.0%}: {', '.join(low)}"] if low else []
    return _say("; ".join(faults), EXIT_BELOW) if faults else 0


def _measured(target: Target, models: list[str], cases: tuple[gold.Case, ...], *, checks: bool) -> list[Run]:
    """Each model after the other, on one connection: what is timed is a lone request."""
    bar = ProgressBar(sys.stderr, len(models) * asking.requests(cases, checks=checks), 0)
    worker = Worker(target, threading.Event(), threading.Event())
    try:
        return [
            asking.ask_all(
                name, cases, worker.ask, time.perf_counter, checks=checks, advance=lambda: bar.advance(failed=False)
            )
            for name in models
        ]
    finally:
        worker.close()
        bar.close()


def _say(text: str, status: int) -> int:
    print(f"framehost eval: {visible(text)}", file=sys.stderr)
    return status
