"""A process that cannot be started, or a front that cannot do what it was told: tried again, then told loudly."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

from tests.process.harness import configuration, running


def test_a_cleaned_runtime_directory_does_not_end_the_server(runtime: Path) -> None:
    """Cleaners of temporary folders take sockets away; the next incarnation makes what it needs."""
    with running(runtime) as server:
        host = server.host()["pid"]
        place = next(runtime.glob("framehost-*")) / str(server.port)
        for entry in place.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
        os.kill(host, signal.SIGKILL)
        server.wait(lambda: server.decide("again").status == 200, "another incarnation answers")


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


def test_a_processor_that_cannot_be_made_ends_the_server(runtime: Path) -> None:
    """The port must not stay closed for ever while everything looks ready: exit status 5, and the reason in the log."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "processor"}}, restarts=1)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 5
        assert "the toy's processor cannot be made" in server.log()
        assert "restarts = 1" in server.log()
