"""`framehost completion`: print what teaches a shell the commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "fish")
FILES = frozenset({"FILE", "PATH", "IN", "OUT.jsonl", "GOLD.jsonl"})
"""Metavars of arguments that name a file."""


def add_to(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the command's parser. `parser`: the whole command line, as it is when the command runs."""
    completion = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a completion script. For this session of bash: source <(framehost completion bash)",
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")
    completion.set_defaults(run=functools.partial(run, parser=parser))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the script."""
    import shtab  # no other command needs it

    for action in _actions(parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
