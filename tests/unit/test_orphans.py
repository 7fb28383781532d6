"""What process 1 inherits: played by a process that has asked the kernel for its orphans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ADOPTER = """
import ctypes, os, subprocess, sys
from executor_host.launch import orphans
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
own = subprocess.Popen(["true"])
code = "import os, sys; pid = os.fork() or os._exit(0); print(pid); sys.stdout.flush(); os._exit(0)"
orphan = int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
reaped = []
while not reaped:  # the orphan ends when it ends
    reaped = orphans.reap({own.pid})
assert reaped == [orphan], (reaped, orphan)
assert orphans.reap({own.pid}) == []
assert own.wait() == 0, "its status is still there for whoever started it"
"""


def test_dead_orphans_are_waited_for_and_our_own_children_are_left_alone() -> None:
    """A zombie that nobody else can wait for goes; the exit status of a child of ours is not taken away."""
    ended = subprocess.run(
        [sys.executable, "-c", ADOPTER], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
