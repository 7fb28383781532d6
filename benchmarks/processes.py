"""Process trees: find them, count their CPU time, and leave none behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1
STOP_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Between fork and exec of a server: even a killed benchmark leaves no server on its port."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def tree(pid: int) -> list[int]:
    """`pid` and its descendants, parents first; empty when it is gone."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    if not _stat(pid):
        return []
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def role(pid: int, root: int) -> str:
    """What a process of framehost's tree under `root` is: supervisor, front, host, or other."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        command = b""
    if b"frontend.main" in command:
        return "front"
    if b"executor_host.main" in command:
        return "host"
    return "supervisor" if pid == root else "other"


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree so far, ended children that were waited for included."""
    total = 0
    for member in tree(pid):
        fields = _stat(member)
        if fields:
            total += sum(int(value) for value in fields[11:15])
    return total / TICKS


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server as an operator would, then kill what is left of its tree."""
    members = [(member, _started(member)) for member in tree(process.pid)]
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    deadline = time.monotonic() + 1.0
    for pid, started in members:
        # The start time tells a survivor from a stranger that was given the same number.
        while started and _started(pid) == started:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.01)


def _started(pid: int) -> str:
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: [0] state, [1] parent, [11:15] CPU ticks, [19] start."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text[text.rindex(")") + 2 :].split()
