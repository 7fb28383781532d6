"""The parsers of `framehost host` and `framehost curve`; what they do is imported when they do it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from protocol.exits import ServeExit
from protocol.models import MAX_THREADS

CONNECT_TIMEOUT_S = 30.0
"""How long a host looks for its server. Both may be started at the same time, and a name may have to spread."""


def add_to(commands: Any) -> None:
    """Add both parsers."""
    _add_host(commands)
    _add_curve(commands)


def _add_host(commands: Any) -> None:
    host = commands.add_parser(
        "host",
        help="run one model's host that dials in at a server",
        description="Run one executor host that dials in at a server, on this machine or another.",
    )
    host.add_argument("--connect", required=True, metavar="tcp://ADDRESS:PORT", help="where the server takes hosts")
    host.add_argument("--model", required=True, metavar="NAME", help="the model to be, as the server calls it")
    host.add_argument("--family", required=True, metavar="NAME")
    host.add_argument("--path", help="the checkpoint on this machine (default: the path in the server's configuration)")
    host.add_argument("--key", required=True, metavar="FILE", help="this host's NAME.key_secret")
    host.add_argument("--server-key", required=True, metavar="FILE", help="the server's NAME.key")
    host.add_argument(
        "--bind",
        metavar="ADDRESS",
        help="where the server reaches this host (default: the address it dials from)",
    )
    host.add_argument("--ports", metavar="CONTROL,DATA", default="0,0", help="its two ports (default: any free ones)")
    host.add_argument(
        "--connect-timeout", type=float, default=CONNECT_TIMEOUT_S, metavar="SECONDS",
        help=f"how long to look for the server (default {CONNECT_TIMEOUT_S:g})",
    )  # fmt: skip
    host.add_argument(
        "--threads", type=_threads, metavar="N",
        help="how many it computes with (default: OMP_NUM_THREADS, else the processors that this process may use)",
    )  # fmt: skip
    host.set_defaults(run=_host)


def _host(arguments: argparse.Namespace) -> int:
    from executor_host.launch import threads

    # Before numpy and torch, whose libraries read them when they are loaded: the next import loads the first.
    share = threads.share(1, os.environ, threads.processors())
    os.environ.update(threads.variables(arguments.threads, share, os.environ))
    from executor_host import remote

    return remote.run(arguments)


def _threads(text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MAX_THREADS:
        return int(text)
    raise argparse.ArgumentTypeError(f"a number of threads is 1 to {MAX_THREADS}, not {text!r}")


def _add_curve(commands: Any) -> None:
    curve = commands.add_parser(
        "curve",
        help="make the keys of a server or a host that meet over a network",
        description="Make NAME.key, which the other side gets, and NAME.key_secret, which stays.",
    )
    curve.add_argument("name", metavar="NAME", help="of the two files; the machine's name, for example")
    curve.add_argument("--directory", metavar="DIR", default=".", help="where to put them (default: here)")
    curve.set_defaults(run=_curve)


def _curve(arguments: argparse.Namespace) -> int:
    from protocol.transport import keys

    try:
        public, secret = keys.create(Path(arguments.directory), arguments.name)
    except keys.KeyFileError as error:
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    print(f"{public}  give this to the other side")
    print(f"{secret}  keep this here; its owner alone can read it")
    return 0
