"""The supervisor dies without a word. Nothing of ours outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from executor_host.launch import reaper
from tests.process.harness import ROOT, Framehost, alive, configuration, running, tagged, wait_for


def all_of(server: Framehost) -> list[psutil.Process]:
    """Every process of the server, enumerated while it lives: supervisor, front and hosts."""
    family = server.family()
    known = {server.process.pid, server.front_pid(), *(host["pid"] for host in server.status()["hosts"])}
    assert known <= {process.pid for process in family}
    return family


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"op": "wait", "until": "never"},
        {"op": "spin", "until": "never"},
        {"op": "hold_gil", "seconds": 1000},
    ],
    ids=["idle", "waiting", "spinning", "holding the interpreter lock"],
)
def test_nothing_outlives_a_killed_supervisor(runtime: Path, state: dict[str, object] | None) -> None:
    """Front and hosts end with it, also in the middle of a C call that never lets another thread run."""
    mark = runtime / "mark"
    with running(runtime, "one=toy", "two=toy") as server:
        if state is not None:
            server.soon({**state, "mark": str(mark), "tag": "a"}, model="one").add_done_callback(lambda _: None)
            server.wait(lambda: tagged(mark) == ["a"], "the unit runs")
        family = all_of(server)
        assert len(family) == 5, "supervisor, front, two hosts, and who ends what they have started"
        server.process.kill()
        server.wait(lambda: not any(map(alive, family)), "nothing is left")


def test_what_an_executor_has_started_ends_with_a_killed_supervisor(runtime: Path) -> None:
    """The host has no moment left to see to it; the reaper has."""
    with running(runtime) as server:
        child = psutil.Process(server.decide({"op": "child"}).json["x_toy"]["child"])
        family = all_of(server)
        assert child in family
        server.process.kill()
        server.wait(lambda: not any(map(alive, family)), "nothing is left")


def test_a_reaper_kills_only_groups_that_have_not_ended() -> None:
    """What was taken off its list may be a stranger's number by now; what is on it may be gone."""
    strangers = [subprocess.Popen(["sleep", "1000"], process_group=0) for _ in range(2)]
    try:
        listed, ended = (process.pid for process in strangers)
        told = f"+{ended}\n+{listed}\n-{ended}\n+{2**22 + 1}\n".encode()
        subprocess.run([sys.executable, "-I", "-S", reaper.__file__], input=told, check=True, timeout=30)
        assert strangers[0].wait(30) == -9
        assert strangers[1].poll() is None
    finally:
        for process in strangers:
            process.kill()
            process.wait(30)


def test_nothing_outlives_a_supervisor_that_is_killed_while_a_host_loads(runtime: Path) -> None:
    """The guards are armed before the first line of a host's own code."""
    config = configuration(runtime / "c.toml", {"toy": {"gate": runtime / "never"}})
    with running(runtime, config=config, wait=False) as server:
        server.line("toy", "loading")
        family = server.family()
        server.process.kill()
        server.wait(lambda: not any(map(alive, family)), "nothing is left")


def test_the_next_start_finds_a_clean_place(runtime: Path) -> None:
    """The sockets of a killed server do not get in the way of the next one on its port, and are removed."""
    with running(runtime) as server:
        port = server.port
        server.process.kill()
    place = next(runtime.glob("framehost-*")) / str(port)
    left = [path for path in place.rglob("*") if path.is_socket()]
    assert left, "a killed supervisor cannot clean up"
    with running(runtime, arguments=["--port", str(port)]) as server:
        assert server.port == port
        assert server.decide("hello").status == 200
        assert not any(path.exists() for path in left)
        assert server.stop() == 0
    assert not place.exists()


def test_a_child_whose_parent_died_before_the_guard_was_armed_ends_itself() -> None:
    """The kernel's signal cannot be armed in retrospect, so the parent's pid is compared afterwards."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    guard, held = os.pipe()  # held open: the other guard has no reason to act
    child = subprocess.run(
        [sys.executable, "-m", "executor_host.launch.child", gone.stdout.decode().strip(), str(guard), "this"],
        cwd=ROOT,
        capture_output=True,
        pass_fds=(guard,),
        timeout=30,
    )
    os.close(guard)
    os.close(held)
    assert child.returncode == 68
    assert child.stdout == b""


def test_a_closed_guard_pipe_ends_a_child_and_its_group() -> None:
    """The second guard: end of file on the pipe ends the process and what it started, on any system."""
    code = (
        "import os, subprocess, sys\n"
        "from executor_host.launch import child\n"
        "child.arm(os.getppid(), int(sys.argv[1]))\n"
        "grandchild = subprocess.Popen(['sleep', '1000'])\n"
        "print(grandchild.pid, flush=True)\n"
        "grandchild.wait()\n"
    )
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(read_end)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        pass_fds=(read_end,),
        process_group=0,
    ) as process:
        os.close(read_end)
        assert process.stdout is not None
        grandchild = psutil.Process(int(process.stdout.readline()))
        assert alive(grandchild)
        os.close(write_end)
        assert process.wait(30) == -9
        wait_for(lambda: not alive(grandchild), "the end of the grandchild")
