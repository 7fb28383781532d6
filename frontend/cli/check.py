"""`framehost check`: say what is wrong with a configuration file or a checkpoint without starting anything."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from frontend.cli.terminal import visible
from frontend.configuration import fetched
from frontend.configuration import load as config
from frontend.configuration.model import exposed
from frontend.configuration.toml_file import ConfigurationError
from protocol import families
from protocol.exits import ServeExit
from protocol.models import NamedModel
from protocol.options import written

Report = Callable[[float, str], None]


class Findings(Protocol):
    """What is known of a checkpoint: what is wrong with it, or else what it is."""

    @property
    def family(self) -> str: ...

    @property
    def lines(self) -> tuple[str, ...]: ...

    @property
    def problem(self) -> str: ...


Examine = Callable[[str, str | None, Report], Findings]
"""Checks a path as a checkpoint of a family, or of the one it finds. The caller's: the host's half knows how."""


KeyProblem = Callable[[Path, Path | None], str]
"""What is wrong with the key files for hosts on other machines. The caller's, too."""


def add_to(commands: Any, examine: Examine, key_problem: KeyProblem) -> None:
    """Add the command's parser."""
    check = commands.add_parser(
        "check",
        help="check a configuration file or a checkpoint",
        description="Check a configuration file or a checkpoint and start nothing. "
        "Exit status: 0 it is right; 2 something is wrong.",
    )
    what = check.add_mutually_exclusive_group(required=True)
    what.add_argument("path", nargs="?", metavar="PATH", help="a checkpoint: a folder or a file")
    what.add_argument("--config", metavar="FILE", help="a configuration file")
    check.add_argument("--family", metavar="NAME", help="the checkpoint's family (default: by the names of its files)")
    check.add_argument("--insecure", action="store_true", help="as `serve --insecure`: allow any address")
    check.set_defaults(run=functools.partial(run, examine=examine, key_problem=key_problem))


def run(arguments: argparse.Namespace, examine: Examine, key_problem: KeyProblem) -> int:
    """Print what was found, or the one thing that is wrong and where."""
    if arguments.path is None:
        if arguments.family is not None:
            return _wrong("--family goes with the path of a checkpoint, not with --config")
        return _configuration(arguments.config, key_problem, insecure=arguments.insecure)
    return _checkpoint(arguments.path, arguments.family, examine)


def _checkpoint(path: str, family: str | None, examine: Examine) -> int:
    try:
        path = fetched.located(path, family)
    except fetched.NotFetched as error:
        return _wrong(str(error))
    watched = sys.stderr.isatty()

    def progress(fraction: float, note: str) -> None:
        if watched:
            print(f"\r\x1b[K{fraction:4.0%} {note}", end="", file=sys.stderr, flush=True)

    findings = examine(path, family, progress)
    if watched:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if findings.problem:
        return _wrong(f"{path}: {findings.problem}")
    _show(f"{path}: a checkpoint of the family {findings.family}")
    for line in findings.lines:
        _show(f"  {line}")
    return 0


def _configuration(file: str, key_problem: KeyProblem, *, insecure: bool) -> int:
    try:
        configuration = config.load(Path(file))
    except ConfigurationError as error:
        return _wrong(str(error))
    if not insecure and (problem := exposed(configuration)) is not None:
        return _wrong(f"{file}: {problem}")
    hosts = configuration.hosts
    if hosts is not None and (problem := key_problem(hosts.key, hosts.allow)):
        return _wrong(f"{file}: [hosts]: {problem}")
    _show(f"{file}: listens on {configuration.host} port {configuration.port}")
    for model in configuration.models:
        bounds = f"max_requests {model.max_requests or 'none'}, max_cost {model.max_cost or 'none'}"
        mark = " (default)" if model.name == configuration.default else ""
        native = f", native dialect on {model.native.listen}" if model.native else ""
        limits = f"execution_limit {_seconds(model.execution_limit_s)}, load_limit {_seconds(model.load_limit_s)}"
        _show(f"  {model.name}{mark}: {model.family}, {_weights(model)}, {bounds}, {limits}{native}")
        for line in _options(model):
            _show(f"    {line}")
    return 0


def _show(line: str) -> None:
    """One line, whatever is in a name or a path of the file that it tells of."""
    print(visible(line))


def _wrong(text: str) -> int:
    """The one thing that is wrong, and the exit status."""
    print(f"framehost: {visible(text)}", file=sys.stderr)
    return ServeExit.CONFIGURATION


def _options(model: NamedModel) -> list[str]:
    """Every option of the model's family: the value, whether it is the default, and what else it may be."""
    table = families.find(model.family).options
    values = table.complete(model.options)
    lines = []
    for option in table.options:
        value = values[option.name]
        shown = option.shown_default if value is None else written(value)
        default = "the default" if option.name not in model.options else f"default {option.shown_default}"
        lines.append(f"{option.name} = {shown} ({default}; {option.expected})")
    return lines


def _weights(model: NamedModel) -> str:
    if model.path is not None:
        return model.path
    return "weights where its hosts are" if model.remote else "weights that come with it"


def _seconds(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:g} s"
