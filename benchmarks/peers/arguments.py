"""What every peer's server is started with."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

PACKAGES = Path(sys.prefix) / "peers"
"""Where `make bench` installs the peers, away from what framehost is tested with."""


def find_packages() -> None:
    """Make them importable, behind all others: what both need is the same."""
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))


def parse() -> argparse.Namespace:
    """`work`, `batch` and `port`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", default="noop")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--port", type=int, required=True)
    # A worker that is spawned has what mosec wants of the command line instead.
    said = os.environ.setdefault("BENCH_PEER", shlex.join(sys.argv[1:]))
    return parser.parse_args(shlex.split(said))
