"""How many threads a host computes with, and how they wait: variables that its libraries read when they are loaded.

Threads of OpenMP and of OpenBLAS wait for work by turning round and round, which takes the processor from a thread that
has work. On two cores beside one busy process that costs a factor of ten and more (docs/benchmarks.md), so they are
told to sleep, and there are no more of them than processors for each host.

| variable | read by | |
| --- | --- | --- |
| `OMP_NUM_THREADS`, `MKL_NUM_THREADS`, `OPENBLAS_NUM_THREADS` | torch, MKL, numpy | how many |
| `OMP_WAIT_POLICY=PASSIVE` | GNU's and LLVM's OpenMP | wait asleep |
| `KMP_BLOCKTIME=0` | Intel's OpenMP | milliseconds to turn before that |
| `OPENBLAS_THREAD_TIMEOUT=4` | OpenBLAS | 2^4 cycles to turn before that, its least; its default is 2^28 |
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

COUNTS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
WAITING: Final = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}

CGROUPS: Final = Path("/sys/fs/cgroup")
OURS: Final = Path("/proc/self/cgroup")


def share(hosts: int, environment: Mapping[str, str], processors: int) -> int:
    """Threads of a host whose model names none: what `OMP_NUM_THREADS` in the server's environment says, else
    an equal share of the processors for each of the `hosts` of this machine, at least 1."""
    given = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a number for each level of nesting
    if given.isascii() and given.isdecimal() and int(given) > 0:
        return int(given)
    return max(1, processors // max(1, hosts))


def variables(configured: int | None, share: int | None, environment: Mapping[str, str]) -> dict[str, str]:
    """What to set for a host: what its model says, else its `share`; None: how many is left to who places the host.
    How its threads wait is left alone where the environment of the server, or of `framehost host`, says it.

    numpy's OpenBLAS has one thread: at the end of every product its threads wait for each other by turning round,
    whatever they are told, and a default model that starts beside other work took four times the processor time with
    two of them. Who computes with numpy gives each thread texts of its own (executors/embedding/numpy_encoder.py).
    """
    threads = configured or share
    waiting = {name: value for name, value in WAITING.items() if name not in environment}
    counts = {} if threads is None else dict.fromkeys(COUNTS, str(threads))
    return {**counts, "OPENBLAS_NUM_THREADS": "1", **waiting}


def processors(ours: Path = OURS, cgroups: Path = CGROUPS) -> int:
    """How many processors this process may use: those of its affinity, or fewer when a quota of its control group, or
    of one above it, allows less time. A quota of 1.5 is 1: a second thread would be stopped half of the time."""
    allowed = len(os.sched_getaffinity(0))
    quota = min(_quotas(ours, cgroups), default=math.inf)
    return max(1, min(allowed, math.floor(quota))) if math.isfinite(quota) else allowed


def _quotas(ours: Path, cgroups: Path) -> list[float]:
    """Every quota that holds for us, in processors: of version 2 (`cpu.max`) and of version 1 (`cpu.cfs_quota_us`)."""
    found = []
    for line in _text(ours).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups if not controllers else cgroups / controllers
        if controllers and not root.is_dir():
            root = cgroups / "cpu"
        # In a container the path is that of the machine, and what is mounted is our own group.
        inner = root / place.strip("/")
        groups = [inner, *inner.parents] if inner.is_dir() else [root]
        for group in groups[: groups.index(root) + 1]:
            if not controllers:
                limit, _, period = _text(group / "cpu.max").strip().partition(" ")
            else:
                limit, period = (_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
            if limit.isdecimal() and period.isdecimal() and int(period):
                found.append(int(limit) / int(period))
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
