"""A process that cannot be started, or a front that cannot do what it was told: tried again, then told loudly."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from executor_host.supervision.directory import AlreadyRunning, RuntimeDirectory
from tests.process.harness import configuration, running


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
        assert server.wait_exit() == 4
        assert "the toy's processor cannot be made" in server.log()
