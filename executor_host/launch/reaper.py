"""Takes what hosts have started along when the supervisor is killed: a small process that outlives it by a moment.

    python -I -S reaper.py < PIPE

A host dies with its parent by the kernel's signal, which leaves it no time to end what it has started itself (data
loaders, compilers). So the process groups of all children are told to this process through a pipe, and the end of
the pipe, which the supervisor's death makes, kills those that are still there. It imports nothing of ours and next
to nothing of Python's, and stands in a session of its own, so that no signal to a group reaches it.
"""

from __future__ import annotations

import os
import signal
import sys

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals to everything at once, as a system that shuts down sends them: the pipe says when it is time."""


def reap(descriptor: int) -> None:
    """Follow "+GROUP" and "-GROUP", a line each, to the end of the pipe; then kill the groups that are left."""
    groups: set[int] = set()
    with os.fdopen(descriptor, "rb") as lines:
        for line in lines:
            if line.startswith(b"+"):
                groups.add(int(line[1:]))
            else:
                groups.discard(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


class Reaper:
    """The supervisor's end. Its methods never raise for a reaper that has been killed: then there is none."""

    def __init__(self) -> None:
        """Start it. Raises `OSError` when that is not possible."""
        import subprocess  # not for the other end, which is to stay small

        read_end, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)  # one that is stopped must not stop us
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={},
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(read_end)

    def add(self, group: int) -> None:
        """From now on the group ends with the supervisor."""
        self._tell(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """The group has ended; its number may come to mean another one."""
        self._tell(b"-%d\n" % group)

    def _tell(self, line: bytes) -> None:
        try:
            os.write(self._pipe, line)
        except OSError:
            pass

    def close(self) -> None:
        """End it, after the groups have ended."""
        os.close(self._pipe)
        self._process.wait()


if __name__ == "__main__":
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    reap(sys.stdin.fileno())
