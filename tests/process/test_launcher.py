"""How children are started, read, signalled and waited for: the launcher alone, without a server around it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from executor_host.launch import local
from executor_host.launch.base import HostSpec, ProcessExit
from executor_host.launch.local import LocalLauncher, LocalProcess, start_process
from executor_host.launch.output import LINE_BYTES, TAIL_BYTES
from protocol.models import DeploymentSpec
from tests.process.harness import TOY, alive, wait_for


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOY))


async def noisy(lines: list[str], *arguments: str) -> LocalProcess:
    return await start_process("noisy", arguments, say=lines.append)


async def ended(process: LocalProcess) -> ProcessExit:
    async with asyncio.timeout(30):
        return await process.wait()


async def test_starting_from_another_thread_raises() -> None:
    """The parent-death signal is bound to the thread that starts the child, so only the main one may."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(noisy([], "exit", "0"))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert [type(error) for error in raised] == [RuntimeError]
    assert "main thread" in str(raised[0])


@pytest.mark.parametrize("status", [0, 3, 64])
async def test_the_exit_status_is_the_childs(status: int) -> None:
    """And asking twice gives the same."""
    process = await noisy([], "exit", str(status))
    assert await ended(process) == await ended(process) == ProcessExit(status, None)


async def test_thirty_children_leave_no_zombie_and_no_descriptor() -> None:
    """Each is waited for, and everything opened for it is closed."""
    me = psutil.Process()
    await ended(await noisy([], "exit", "0"))  # whatever is opened once and for all
    before, others = me.num_fds(), me.children()  # a test process has children of other tests' fixtures
    for _ in range(30):
        await ended(await noisy([], "exit", "0"))
    assert me.children() == others
    await asyncio.sleep(0)  # transports close their pipes in the next turn
    assert me.num_fds() <= before


async def test_ten_megabytes_without_a_newline_are_read_in_bounded_pieces() -> None:
    """The child never blocks on us for long, no line is longer than its limit, only the tail is kept, and what is too
    much for a log is counted."""
    lines: list[str] = []
    process = await noisy(lines, "megabytes", "10")
    assert await ended(process) == ProcessExit(0, None)
    assert max(map(len, lines)) <= LINE_BYTES
    left_out = [line for line in lines if "were left out here" in line]
    pieces = sum(int(line[1:].split()[0]) for line in left_out) + len(lines) - len(left_out)
    assert 10 * 2**20 // LINE_BYTES <= pieces <= 2 * 10 * 2**20 // LINE_BYTES
    assert len(process.last_words()) <= TAIL_BYTES
    assert process.last_words().endswith("the end")


async def test_output_that_is_no_text_is_shown_all_the_same() -> None:
    """Undecodable bytes are replaced, a carriage return is dropped, a missing newline loses nothing."""
    lines: list[str] = []
    process = await noisy(lines, "invalid")
    await ended(process)
    assert lines == ["caf\ufffd \ufffd\ufffd\x00", "no newline at the end"]


async def test_a_grandchild_that_holds_the_output_ends_with_the_child() -> None:
    """The end is the process's, not the pipe's, and its group goes with it."""
    lines: list[str] = []
    process = await noisy(lines, "child")
    assert await ended(process) == ProcessExit(0, None)
    grandchild = int(lines[0])
    wait_for(lambda: not psutil.pid_exists(grandchild) or not alive(psutil.Process(grandchild)), "its end")


async def test_a_grandchild_in_a_session_of_its_own_does_not_hold_up_the_end() -> None:
    """It left the group on purpose and still holds the pipe: the end of the child is known all the same."""
    lines: list[str] = []
    process = await noisy(lines, "child", "session")
    assert await ended(process) == ProcessExit(0, None)
    stray = psutil.Process(int(lines[0]))
    assert alive(stray)
    stray.kill()


async def test_kill_ends_it_and_signals_after_the_end_do_nothing() -> None:
    """Signals go to the process, kill to its group; afterwards both are harmless."""
    lines: list[str] = []
    process = await noisy(lines, "wait")
    while not lines:
        await asyncio.sleep(0)
    process.kill()
    assert await ended(process) == ProcessExit(None, signal.SIGKILL)
    process.kill()
    process.send_signal(signal.SIGTERM)
    assert str(process.pid) in process.describe()


async def test_a_cancelled_wait_loses_nothing() -> None:
    """The supervisor may stop waiting and ask again."""
    process = await noisy([], "wait")
    waiting = asyncio.create_task(process.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == ProcessExit(None, signal.SIGTERM)


async def test_a_host_runs_in_a_group_of_its_own_and_says_who_it_is(tmp_path: Path) -> None:
    """A terminal's Ctrl-C does not reach it; every line of it carries model and incarnation."""
    said: list[tuple[str, str]] = []
    launcher = LocalLauncher(lambda source, line: said.append((source, line)))
    deployment = DeploymentSpec(id="m@1", name="m", family="nobody knows", path=None, options={})
    spec = HostSpec(deployment, incarnation="1-a", directory=str(tmp_path))
    handle = await launcher.start(spec)
    assert os.getpgid(handle.pid) == handle.pid
    async with asyncio.timeout(30):
        assert (await handle.wait()).status == 64
    launcher.close()
    assert {source for source, _ in said} == {"m@1 1-a"}
    assert "no model family" in said[-1][1]
    assert handle.taken() is None, "it ended before it could take anything"
    assert pages() == []


def pages() -> list[str]:
    """The pages for taken units that this process holds open."""
    targets = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for target in targets if "framehost-taken" in target]


async def test_a_host_is_told_how_many_threads_to_compute_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its libraries are loaded: what its model says, else its share; and to sleep while they wait."""
    started: list[dict[str, str]] = []

    async def watched(*_: object, variables: dict[str, str], **__: object) -> LocalProcess:
        started.append(variables)
        raise OSError("no more processes")

    monkeypatch.setattr(local, "start_process", watched)
    launcher = LocalLauncher(lambda *_: None, share=3)
    for configured in (None, 5):
        deployment = DeploymentSpec(id="m@1", name="m", family="toy", threads=configured)
        with pytest.raises(OSError, match="no more"):
            await launcher.start(HostSpec(deployment, incarnation="1-a", directory=str(tmp_path)))
    launcher.close()
    assert [one["OMP_NUM_THREADS"] for one in started] == ["3", "5"]
    assert [one["OPENBLAS_NUM_THREADS"] for one in started] == ["1", "1"]


async def test_a_host_that_cannot_be_started_leaves_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page was made first; nobody will write to it."""
    made = []

    async def refuse(*_: object, **__: object) -> LocalProcess:
        made.extend(await asyncio.to_thread(pages))
        raise OSError("no more processes")

    monkeypatch.setattr(local, "start_process", refuse)
    launcher = LocalLauncher(lambda *_: None)
    deployment = DeploymentSpec(id="m@1", name="m", family="toy", path=None, options={})
    with pytest.raises(OSError, match="no more"):
        await launcher.start(HostSpec(deployment, incarnation="1-a", directory=str(tmp_path)))
    launcher.close()
    assert len(made) == 1
    assert pages() == []


async def test_the_environment_of_the_parent_does_not_shadow_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's `protocol` on PYTHONPATH is behind ours in every child."""
    (tmp_path / "protocol.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(TOY))))
    lines: list[str] = []
    process = await noisy(lines, "exit", "0")
    assert await ended(process) == ProcessExit(0, None), lines
