"""mosec: a front in Rust, one worker in Python. `--work WORK --batch N --port PORT`."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.peers import arguments
from benchmarks.peers.work import loaded

arguments.find_packages()
import mosec.runtime  # noqa: E402
from mosec import Server, Worker  # noqa: E402

# It looks for its front only where an environment has its programs.
mosec.runtime.get_mosec_path = lambda: arguments.PACKAGES / "bin" / "mosec"

ASKED = arguments.parse()
# mosec reads the command line as well.
sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(ASKED.port), "--timeout", "60000", "--log-level", "warning"]


class Decisions(Worker):
    """The worker; a batch of one is no list there."""

    def __init__(self) -> None:
        self._decide = loaded(ASKED.work)

    def forward(self, data: Any) -> Any:
        return self._decide(data) if ASKED.batch > 1 else self._decide([data])[0]


if __name__ == "__main__":
    server = Server()
    # 2 ms is what its documentation waits for a batch to fill.
    server.append_worker(Decisions, num=1, max_batch_size=ASKED.batch, max_wait_time=2 if ASKED.batch > 1 else 0)
    server.run()
