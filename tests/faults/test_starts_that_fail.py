"""A process that cannot be started, or a front that cannot do what it was told: tried again, then told loudly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from executor_host.supervision.directory import AlreadyRunning, RuntimeDirectory
from tests.process.harness import GUARD_S, ROOT, configuration, running


def take(path: Path, runtime: Path) -> None:
    """Remove a tree in one step: the server makes it anew while one file after the other is removed."""
    path.rename(runtime / "taken")
    shutil.rmtree(runtime / "taken")


def test_a_cleaned_runtime_directory_does_not_end_the_server(runtime: Path) -> None:
    """Cleaners of temporary folders and the end of a session take everything away: host and front are replaced, the
    commands find the server, and a second start is refused, as before."""
    with running(runtime) as server:
        ours = runtime / f"framehost-{os.getuid()}"
        first, before = server.host()["pid"], len(server.lines)
        take(ours, runtime)
        os.kill(first, signal.SIGKILL)  # before anybody has looked
        server.wait(lambda: server.decide("again").status == 200, "another host answers")
        server.line("was made anew", after=before)
        host, front = server.host()["pid"], server.front_pid()
        place = ours / str(server.port)
        launch = next(entry for entry in place.iterdir() if entry.is_dir())
        for taken in (launch, place, ours):
            before = len(server.lines)
            take(taken, runtime)
            server.line("was made anew", after=before)
            assert server.host()["pid"] == host
            with pytest.raises(AlreadyRunning):
                RuntimeDirectory(server.port, base=str(runtime))
        os.kill(front, signal.SIGKILL)
        server.line("ended", "its sockets were removed")  # it is alive, and nobody new could dial it
        server.wait(lambda: server.decide("again").status == 200, "another front and another host answer")
        assert server.front_pid() != front
        assert server.order("unload", "toy").code == "done"
        assert server.stop() == 0


def test_a_host_whose_sockets_go_while_it_loads_is_replaced_at_once(runtime: Path) -> None:
    """Nobody could dial it when it is ready: no minutes are spent on its load."""
    gate = runtime / "gate"
    config = configuration(runtime / "c.toml", {"toy": {"gate": gate}})
    with running(runtime, config=config, wait=False) as server:
        server.line("toy", "loading")
        take(next(runtime.glob("framehost-*")), runtime)
        server.line("ended", "its sockets were removed")
        gate.touch()
        assert server.opened().decide("x").status == 200


def test_a_directory_that_cannot_be_made_is_tried_again(runtime: Path) -> None:
    """Where a host cannot be started for now, the policy decides, and the server answers when it can be."""
    with running(runtime) as server:
        host = server.host()["pid"]
        place = next(runtime.glob("framehost-*")) / str(server.port)
        launch = next(entry for entry in place.iterdir() if entry.is_dir())
        aside = runtime / "aside"
        launch.rename(aside)
        launch.write_text("in the way")
        before = len(server.lines)
        os.kill(host, signal.SIGKILL)
        server.line("cannot start a host", after=before)
        launch.unlink()
        aside.rename(launch)
        server.wait(lambda: server.decide("again").status == 200, "it answers again")


def test_a_processor_that_cannot_be_made_fails_its_model(runtime: Path) -> None:
    """The host is refused and the model fails, as when it cannot be loaded: the reason is in the log, and no front has
    died of it."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "processor"}}, restarts=1)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 2
        assert "the front refuses it: its processor cannot be made: RuntimeError: the toy's" in server.log()


@pytest.mark.parametrize(
    ("fail", "told"),
    [
        ("refused", "the front refuses it: the toy's front refuses what its host brings"),
        ("facts", "cannot start: "),
    ],
)
def test_what_a_host_brings_and_nobody_can_use_ends_the_start_with_the_reason(
    runtime: Path, fail: str, told: str
) -> None:
    """Status 2, at once: another try would bring the same. It does not load for ever in silence."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": fail}})
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 2
        assert told in server.log()
        assert "model 'toy' could not be started" in server.log()
        assert sum("] ended: " in line for line in server.lines) == 1


def test_a_close_that_raises_changes_no_exit_status(runtime: Path) -> None:
    """The trace is in the log; the host ends as it was asked to, and the stop is clean."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "close"}})
    with running(runtime, config=config) as server:
        assert server.order("unload", "toy").code == "done"
        assert "the toy cannot be closed" in server.log()
        assert server.host()["last_death"] == ""
        assert server.stop() == 0


def test_a_server_with_closed_standard_streams_serves(runtime: Path) -> None:
    """`framehost serve <&- >&- 2>&-`: no socket of ours gets their numbers, and nobody dies of it."""
    code = (
        "import os, sys\n"
        "for number in (0, 1, 2): os.close(number)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'executor_host.supervision.entry', *sys.argv[1:]])\n"
    )
    with (
        running(runtime) as other,  # for its environment
        subprocess.Popen(
            [sys.executable, "-c", code, "serve", "--port", "0", "--model", "toy=toy"], cwd=ROOT, env=other.environment
        ) as process,
    ):
        try:
            url = other.wait(lambda: published(runtime, process.pid), "it says where it is")
            other.wait(lambda: healthy(url), "it serves")
            process.send_signal(signal.SIGTERM)
            assert process.wait(GUARD_S) == 0
        finally:
            process.kill()


def published(runtime: Path, pid: int) -> str:
    """Where the supervisor with this process id can be asked, "" while it does not say so."""
    for path in runtime.glob("framehost-*/*/supervisor.json"):
        found = json.loads(path.read_text())
        if found["pid"] == pid:
            return str(found["url"])
    return ""


def healthy(url: str) -> bool:
    """Whether it serves."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=GUARD_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_host_that_hangs_in_its_close_is_ended_and_replaced(runtime: Path) -> None:
    """It has reported a device error and cannot let go of the device: the supervisor knows from its BYE that it ends,
    and ends it with its stacks. Nobody waits for ever."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "hanging close"}})
    with running(runtime, config=config) as server:
        assert server.decide({"op": "fatal"}).status == 503
        assert server.decide("x").status == 200
        told = server.line(
            "ended: killed by SIGKILL by framehost: it said that it ends, and was still there 10 s later"
        )
        assert "starting again now" in told
        assert "in close" in server.host()["last_death"], "the stacks say where"
