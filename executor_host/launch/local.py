"""Local processes: started from the supervisor's main thread, in groups of their own, with their output read.

Everything a child writes is read for as long as it lives (`output.py`), so that it can never block on a full pipe for
longer than a moment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from executor_host.host.taken import TakenPage
from executor_host.launch import threads
from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle
from executor_host.launch.output import Output
from executor_host.launch.reaper import Reaper

STARTED: set[int] = set()
"""The process ids of children that have not been waited for; see `orphans`."""

OUTPUT_AFTER_EXIT_S = 0.5
"""How long the output is still read after the process has ended: a grandchild may hold the pipe open for ever."""

ROOT = Path(__file__).resolve().parents[2]
"""Where our packages are; first on every child's path, so that nothing shadows them there."""


class LocalProcess(ProcessHandle):
    """A child of this process."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        output: Output,
        guard: int,
        reaper: Reaper | None,
        page: TakenPage | None,
    ) -> None:
        self._reaper = reaper
        self._page = page
        self._taken: dict[str, int] | None = None
        self._transport = transport
        self._output = output
        self._guard = guard
        self._pid = transport.get_pid()
        STARTED.add(self._pid)
        if reaper is not None:
            reaper.add(self._pid)

    @property
    def pid(self) -> int:
        return self._pid

    async def wait(self) -> ProcessExit:
        await self._output.exited.wait()
        STARTED.discard(self._pid)
        if self._page is not None:
            self._taken = self._page.read()
            self._page.close()
            self._page = None
        # Whatever it started and left behind is in its group; a group without members is fine.
        self._signal_group(signal.SIGKILL)
        if self._reaper is not None:
            self._reaper.remove(self._pid)
            self._reaper = None
        try:
            async with asyncio.timeout(OUTPUT_AFTER_EXIT_S):
                await self._output.ended.wait()
        except TimeoutError:
            pass
        self._transport.close()
        if self._guard >= 0:
            os.close(self._guard)
            self._guard = -1
        returncode = self._transport.get_returncode()
        assert returncode is not None
        return ProcessExit.of(returncode)

    def send_signal(self, number: signal.Signals) -> None:
        # Not by the transport: its look whether the process still runs can take the exit status away from asyncio.
        if not self._output.exited.is_set():
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        if not self._output.exited.is_set():
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def last_words(self) -> str:
        return self._output.tail.text()

    def describe(self) -> str:
        return f"local process {self._pid}"

    def taken(self) -> dict[str, int] | None:
        return self._taken


async def start_process(
    module: str,
    arguments: Sequence[str],
    *,
    say: Callable[[str], None],
    descriptors: Sequence[int] = (),
    hidden: Collection[str] = (),
    variables: Mapping[str, str] | None = None,
    reaper: Reaper | None = None,
    page: TakenPage | None = None,
) -> LocalProcess:
    """Start one of our modules as a guarded child; `say` gets each line of its output.

    Main thread only: the kernel's parent-death signal fires when the *thread* that started the child ends.
    Inherits `descriptors` under the same numbers, and the environment without the variables `hidden`, with `variables`
    set. Raises `OSError` when nothing could be started. `reaper`: who ends what the child starts, should we be killed.
    `page`: where a host says what it has taken; closed when the child has ended, and by the caller when none was
    started.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread: the parent-death signal is bound to it")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH", ""))))
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(variables or {})
    read_end, write_end = os.pipe()
    try:
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            lambda: Output(say, asyncio.get_running_loop()),
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
    return LocalProcess(transport, output, write_end, reaper, page)


class LocalLauncher(HostLauncher):
    """Starts hosts as children of this process."""

    def __init__(self, say: Callable[[str, str], None], hidden: Collection[str] = (), share: int = 1) -> None:
        """`say(source, line)` gets every line of output; `hidden` are variables of the environment not for hosts;
        `share`: threads of a host whose model does not say how many."""
        self._say = say
        self._share = share
        self._hidden = hidden
        self._reaper: Reaper | None = None

    async def start(self, spec: HostSpec) -> ProcessHandle:
        if self._reaper is None:
            self._reaper = Reaper()
        source = f"{spec.deployment.id} {spec.incarnation}"
        count = spec.deployment.threads or self._share
        page = TakenPage()
        try:
            process = await start_process(
                "executor_host.main",
                [*spec.arguments(), "--taken", str(page.descriptor)],
                variables=threads.variables(spec.deployment.threads, self._share, os.environ),
                say=lambda line: self._say(source, line),
                descriptors=[page.descriptor],
                hidden=self._hidden,
                reaper=self._reaper,
                page=page,
            )
        except BaseException:
            page.close()
            raise
        process.threads = count
        return process

    def close(self) -> None:
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None
