"""`framehost check`: say what is wrong with a configuration file without starting anything."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from frontend.cli import config
from protocol.exits import ServeExit


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    check = commands.add_parser(
        "check", help="check a configuration file", description="Check a configuration file and start nothing."
    )
    check.add_argument("--config", required=True, metavar="FILE")
    check.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what the file configures, or the file, line and key of what is wrong."""
    try:
        configuration = config.load(Path(arguments.config))
    except config.ConfigurationError as error:
        print(f"framehost: {error}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    print(f"{arguments.config}: listens on {configuration.host} port {configuration.port}")
    for model in configuration.models:
        bounds = f"max_requests {model.max_requests or 'none'}, max_cost {model.max_cost or 'none'}"
        mark = " (default)" if model.name == configuration.default else ""
        print(f"  {model.name}{mark}: {model.family}, {model.path or 'bundled weights'}, {bounds}")
    return 0
