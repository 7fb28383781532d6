"""Local processes: started from the supervisor's main thread, in groups of their own, with their output read.

Everything a child writes is read for as long as it lives, so that it can never block on a full pipe, passed
on with a prefix, and the tail is kept: a crashed process says why in its last lines or nowhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle

TAIL_BYTES = 64 * 1024
"""How much of a process's output is kept for its death report."""

LINE_BYTES = 8 * 1024
"""A longer line is passed on in pieces; a child that never writes a newline must not fill our memory."""

OUTPUT_AFTER_EXIT_S = 0.5
"""How long the output is still read after the process has ended: a grandchild may hold the pipe open for ever."""

ROOT = Path(__file__).resolve().parents[2]
"""Where our packages are; first on every child's path, so that nothing shadows them there."""


class Tail:
    """The last bytes of an endless stream, in bounded memory."""

    def __init__(self, limit: int = TAIL_BYTES) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def text(self) -> str:
        """The tail, undecodable bytes replaced."""
        return bytes(self._data[-self._limit :]).decode("utf-8", "replace").strip()


class LocalProcess(ProcessHandle):
    """A child of this process."""

    def __init__(self, process: asyncio.subprocess.Process, guard: int, say: Callable[[str], None]) -> None:
        self._process = process
        self._guard = guard
        self._say = say
        self._tail = Tail()
        assert process.stdout is not None
        self._pump = asyncio.get_running_loop().create_task(self._read(process.stdout))

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> ProcessExit:
        returncode = await self._process.wait()
        await asyncio.wait([self._pump], timeout=OUTPUT_AFTER_EXIT_S)
        self._pump.cancel()
        if self._guard >= 0:
            os.close(self._guard)
            self._guard = -1
        # Whatever it started and left behind is in its group; a group without members is fine.
        self._signal_group(signal.SIGKILL)
        return ProcessExit.of(returncode)

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        if self._process.returncode is None:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def last_words(self) -> str:
        return self._tail.text()

    def describe(self) -> str:
        return f"local process {self._process.pid}"

    async def _read(self, stream: asyncio.StreamReader) -> None:
        pending = b""
        while chunk := await stream.read(LINE_BYTES):
            self._tail.add(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > LINE_BYTES:
                lines.append(pending)
                pending = b""
            for line in lines:
                self._say(line.decode("utf-8", "replace").rstrip("\r"))
        if pending:
            self._say(pending.decode("utf-8", "replace"))


async def start_process(
    module: str, arguments: Sequence[str], *, say: Callable[[str], None], descriptors: Sequence[int] = ()
) -> LocalProcess:
    """Start one of our modules as a guarded child; `say` gets each line of its output.

    Main thread only: the kernel's parent-death signal fires when the *thread* that started the child ends.
    Inherits `descriptors` under the same numbers. Raises `OSError` when nothing could be started.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread: the parent-death signal is bound to it")
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH", ""))))
    environment["PYTHONUNBUFFERED"] = "1"
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "executor_host.launch.child",
            str(os.getpid()), str(read_end), module, *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(read_end, *descriptors),
            process_group=0,
            env=environment,
        )  # fmt: skip
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return LocalProcess(process, write_end, say)


class LocalLauncher(HostLauncher):
    """Starts hosts as children of this process."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        """`say(source, line)` gets every line of output."""
        self._say = say

    async def start(self, spec: HostSpec) -> ProcessHandle:
        source = f"{spec.deployment} {spec.incarnation}"
        return await start_process("executor_host.main", spec.arguments(), say=lambda line: self._say(source, line))
