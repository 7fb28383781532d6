"""What every peer's server is started with."""

from __future__ import annotations

import argparse
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
    return parser.parse_known_args()[0]
