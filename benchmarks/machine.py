"""What the machine is, and who else used it while we measured.

The cores are shared with strangers: with whatever else runs here, and with whatever else runs on the
machine beneath a virtual one ("steal"). A row during which they took much is not wrong, but it is not ours.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import TICKS, cpu_seconds

NOISE_CORES = 0.10
"""A row is noisy when others took more than this many cores."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Cores used during a measurement, by whom."""

    server: float
    client: float
    others: float
    stolen: float

    @property
    def noisy(self) -> bool:
        """Whether the row should be read with care."""
        return self.others + self.stolen > NOISE_CORES


class Meter:
    """Counts CPU time between its creation and `read`."""

    def __init__(self, server: int, clock: float) -> None:
        self._server, self._clock = server, clock
        # Asked about ourselves, the tree is all there is of ours: what starts under us, and who loads it.
        self._alone = server == os.getpid()
        self._busy, self._stolen = _machine()
        self._of_server = cpu_seconds(server)
        self._of_client, self._of_us = _ours()

    def read(self, clock: float) -> Shares:
        """What everyone took since the start, in cores."""
        busy, stolen = _machine()
        client, us = _ours()
        server = cpu_seconds(self._server) - self._of_server
        wall = clock - self._clock
        mine = server + (0.0 if self._alone else client - self._of_client + us - self._of_us)
        return Shares(
            server=server / wall,
            client=(client - self._of_client) / wall,
            others=max(0.0, busy - self._busy - mine) / wall,
            stolen=(stolen - self._stolen) / wall,
        )


def others_now(seconds: float) -> float:
    """Cores that are in use while we do nothing but wait `seconds`."""
    begin = sum(_machine())
    time.sleep(seconds)
    return (sum(_machine()) - begin) / seconds


def _machine() -> tuple[float, float]:
    """Busy and stolen seconds of all cores since boot."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = values[:8]
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def _ours() -> tuple[float, float]:
    """CPU seconds of the clients that have ended, and of this process."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return children.ru_utime + children.ru_stime, own.ru_utime + own.ru_stime


def describe() -> str:
    """The machine in one line."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"


def versions() -> str:
    """What ran, in one line."""
    names = ("aiohttp", "uvloop", "pyzmq", "msgpack", "numpy", "sparrow-decider")
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    said = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False).stdout
    wrk = re.search(r"\d+(\.\d+)+", said)
    return f"Python {platform.python_version()}, {libraries}, wrk {wrk[0] if wrk else '?'}"
