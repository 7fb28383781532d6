"""The event loop of the floors: the standard one, or the one that framehost's front uses.

Both are measured. Against the standard loop one sees what a user gains or loses who would have written the
plain split by hand; against the same loop one sees framehost's own work and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio

import uvloop


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option that `make` reads."""
    parser.add_argument("--uvloop", action="store_true")


def make(arguments: argparse.Namespace) -> asyncio.AbstractEventLoop:
    """A new loop of the chosen kind."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop() if arguments.uvloop else asyncio.new_event_loop()
    return loop
