"""`framehost swap`: make a name mean another checkpoint, while the server goes on answering."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from frontend.cli.line import NotRunning, line
from protocol.messages import Order, Outcome, Progress

STATUS = {"done": 0, "failed": 1, "conflict": 1, "unknown": 2, "invalid": 2}
"""Exit statuses by how the order ended; the last two are mistakes in what was typed."""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    swap = commands.add_parser(
        "swap",
        help="replace a model of a running server",
        description="Make a name mean another checkpoint, while the server goes on answering. "
        "Ends when the former model's processes are gone and their memory is back. "
        "Exit status: 0 done; 1 not done, and why; 2 a mistake in the arguments.",
    )
    swap.add_argument("model", metavar="NAME=FAMILY[:PATH]", help="the name, and what it is to mean")
    swap.add_argument(
        "--mode", choices=("start-first", "stop-first"), default="start-first",
        help="whether the new one is started beside the old one, or only after it is gone (default start-first)",
    )  # fmt: skip
    swap.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE",
        help="an option of the family, the value as in JSON or a plain text; without any, those of now are kept "
        "when the family stays",
    )  # fmt: skip
    swap.add_argument("--port", type=int, default=8080, help="the port it serves (default 8080)")
    swap.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Order it, show each step, and return the exit status."""
    name, equals, rest = arguments.model.partition("=")
    family, _, path = rest.partition(":")
    if not (name and equals and family):
        print(f"framehost: {arguments.model}: expected NAME=FAMILY or NAME=FAMILY:PATH", file=sys.stderr)
        return STATUS["invalid"]
    settings: dict[str, Any] = {"family": family, "mode": arguments.mode}
    if path:
        settings["path"] = path
    if arguments.option:
        settings["options"] = dict(map(_option, arguments.option))
    try:
        with line(arguments.port) as supervisor:
            supervisor.say(Order(action="swap", model=name, settings=settings))
            while not isinstance(message := supervisor.hear(patient=True), Outcome):
                if isinstance(message, Progress):
                    print(message.note, flush=True)
    except NotRunning as error:
        print(f"framehost: {error}", file=sys.stderr)
        return STATUS["failed"]
    if message.code == "done":
        print(message.message)
        print(f"{message.report['total_s']:.2f} s; newcomers waited {message.report['gap_s']:.2f} s")
    else:
        print(f"framehost: {message.message}", file=sys.stderr)
    return STATUS[message.code]


def _option(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
