"""First code of every process the supervisor starts: dies with its parent, then becomes what it is to be.

    python -m executor_host.launch.child PARENT_PID GUARD_FD MODULE [ARGUMENT ...]

Two guards, because each has a hole. The kernel's parent-death signal works even inside a C call that
never returns, but only on Linux, and it is lost if the parent dies before it is armed: hence the check of
the parent's pid afterwards. The pipe, whose other end only the parent holds, works everywhere and ends
the whole process group, but needs the interpreter to run a thread.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import threading

from protocol.exits import HostExit

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""


def arm(parent: int, guard: int) -> None:
    """Bind this process's life to `parent` and to the write end of the pipe behind descriptor `guard`."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(HostExit.PARENT_DIED)
    threading.Thread(target=_watch, args=(guard,), name="parent-guard", daemon=True).start()


def _watch(guard: int) -> None:
    """Wait for the end of file that the parent's death makes, then take the whole group along."""
    while os.read(guard, 1):
        pass
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(HostExit.PARENT_DIED)


def main() -> None:
    """Arm the guards and run the module named on the command line as if it were the program."""
    parent, guard, module, *arguments = sys.argv[1:]
    arm(int(parent), int(guard))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
