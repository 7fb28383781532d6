"""`framehost swap`, `load`, `unload` and `budget`: what an operator does to the models of a running server."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from frontend.cli.control_client import NotRunning, connected, port_number
from frontend.cli.terminal import visible
from protocol.messages import Order, Outcome, Progress

STATUS = {"done": 0, "failed": 1, "conflict": 1, "unknown": 2, "invalid": 2}
"""Exit statuses by how the order ended; the last two are mistakes in what was typed."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, which ends the command and not the order."""

EXIT = "Exit status: 0 done; 1 not done, and why; 2 a mistake in the arguments; 130 interrupted."


def add_to(commands: Any) -> None:
    """Add the commands' parsers."""
    swap = commands.add_parser(
        "swap",
        help="replace a model of a running server",
        description="Make a name mean another checkpoint, while the server goes on answering. "
        f"Ends when the former model's processes are gone and their memory is back. {EXIT}",
    )
    swap.add_argument("model", metavar="NAME=FAMILY[:PATH]", help="the name, and what it is to mean")
    swap.add_argument(
        "--cancel", action="store_true", help="give up what a swap of NAME, which is then all that is said, is loading"
    )
    swap.add_argument(
        "--back",
        action="store_true",
        help="go back to what NAME, which is then all that is said, meant before its last swap",
    )
    swap.add_argument(
        "--mode", choices=("start-first", "stop-first"), default="start-first",
        help="whether the new one is started beside the old one, or only after it is gone (default start-first)",
    )  # fmt: skip
    swap.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE",
        help="an option of the family, the value as in JSON or a plain text; without any, those of now are kept "
        "when the family stays",
    )  # fmt: skip
    swap.set_defaults(run=run_swap)
    load = commands.add_parser(
        "load", help="start a model's hosts", description=f"Start the hosts of a model that has none. {EXIT}"
    )
    unload = commands.add_parser(
        "unload",
        help="stop a model's hosts",
        description="Let a model's hosts finish what they have and stop them; the next request that needs them has "
        f"them started again. Hosts that are loading are ended, and so is the `load` that waits for them. {EXIT}",
    )
    for parser in (load, unload):
        parser.add_argument("model", metavar="NAME")
        parser.set_defaults(run=run_order)
    budget = commands.add_parser(
        "budget",
        help="bound what stays on a device between requests",
        description="Bound what models and conversations keep on a device between requests. It holds at once: "
        f"what is idle is given up, prefixes first. {EXIT}",
    )
    budget.add_argument("model", metavar="DEVICE", help="as `framehost status` names it: cpu, cuda:0")
    budget.add_argument(
        "size", metavar="BYTES", type=_size, help="a number, or `default`: what the models' options say"
    )
    budget.set_defaults(run=run_budget)
    reload = commands.add_parser(
        "reload",
        help="have a running server read its configuration file again",
        description="Read the configuration file of a running server again and apply what has changed in it: models "
        "that have become others are swapped, the new one beside the old one. What takes effect with the next start "
        f"alone is named. A file that is wrong changes nothing. SIGHUP does the same. {EXIT}",
    )
    reload.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    reload.set_defaults(run=run_reload)
    for parser in (swap, load, unload, budget, reload):
        parser.add_argument("--port", type=port_number, default=8080, help="the port it serves (default 8080)")


def run_swap(arguments: argparse.Namespace) -> int:
    """Order a swap, show each step, and return the exit status."""
    if arguments.cancel:
        return carry_out(arguments.port, Order(action="cancel", model=arguments.model, settings={}))
    if arguments.back:
        settings: dict[str, Any] = {"back": True, "mode": arguments.mode}
        return carry_out(arguments.port, Order(action="swap", model=arguments.model, settings=settings))
    name, equals, rest = arguments.model.partition("=")
    family, _, path = rest.partition(":")
    if not (name and equals and family):
        print(f"framehost: {arguments.model}: expected NAME=FAMILY or NAME=FAMILY:PATH", file=sys.stderr)
        return STATUS["invalid"]
    settings = {"family": family, "mode": arguments.mode}
    if path:
        settings["path"] = path
    if arguments.option:
        settings["options"] = dict(map(_option, arguments.option))
    return carry_out(arguments.port, Order(action="swap", model=name, settings=settings))


def run_order(arguments: argparse.Namespace) -> int:
    """Order a load or an unload, and return the exit status."""
    return carry_out(arguments.port, Order(action=arguments.command, model=arguments.model, settings={}))


def run_budget(arguments: argparse.Namespace) -> int:
    """Order a budget, and return the exit status."""
    return carry_out(arguments.port, Order(action="budget", model=arguments.model, settings={"bytes": arguments.size}))


def run_reload(arguments: argparse.Namespace) -> int:
    """Order a reload, show each step, and return the exit status."""
    settings = {"dry_run": True} if arguments.dry_run else {}
    return carry_out(arguments.port, Order(action="reload", model="server", settings=settings))


def _size(text: str) -> int | None:
    if text == "default":
        return None
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of bytes, or default")
    return int(text)


def carry_out(port: int, order: Order) -> int:
    """Give an order to the supervisor behind `port`, print what it says until it is done, return the exit status."""
    given = received = False
    try:
        with connected(port) as supervisor:
            supervisor.say(order)
            given = True
            # That it was received is told at once; how it ended, when it has.
            while not isinstance(message := supervisor.hear(patient=received), Outcome):
                received = True
                if isinstance(message, Progress) and message.note:
                    print(visible(message.note), flush=True)
    except NotRunning as error:
        later = f"; the {order.action} may be carried out when it goes on" if given and not received else ""
        print(f"framehost: {visible(str(error))}{later}", file=sys.stderr)
        return STATUS["failed"]
    except KeyboardInterrupt:
        then = f"the {order.action} of {order.model} goes on in the server" if given else "nothing was ordered"
        print(f"framehost: interrupted; {then}", file=sys.stderr)
        return INTERRUPTED
    if message.code == "done":
        print(visible(message.message))
        if "gap_s" in message.report:
            print(f"{message.report['total_s']:.2f} s; newcomers waited {message.report['gap_s']:.2f} s")
    else:
        print(f"framehost: {visible(message.message)}", file=sys.stderr)
    return STATUS[message.code]


def _option(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
