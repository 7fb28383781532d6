"""`make test-js`: a framehost with the embedded model, and node's test runner in front of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.process.conftest import short_directory
from tests.process.harness import running

HERE = Path(__file__).parent


def main() -> int:
    """The exit status of the JavaScript tests."""
    with short_directory() as directory, running(directory, "sparrow=sparrow") as server:
        environment = {**os.environ, "FRAMEHOST_URL": server.url}
        return subprocess.run(["node", "--test", "clients.test.mjs"], cwd=HERE, env=environment, timeout=120).returncode


if __name__ == "__main__":
    sys.exit(main())
