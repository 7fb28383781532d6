"""Where a command finds the supervisor, and what it says when it does not."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from frontend.cli import control_client
from protocol import addresses


def test_a_server_with_another_runtime_directory_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found where we look; where it usually is, a lock is held: the variable to set is named. Else the
    directory that was looked in is."""
    here, there = tmp_path / "here", tmp_path / "there"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(here))
    monkeypatch.setattr(control_client, "USUAL_BASES", (str(there),))
    place = addresses.runtime_directory(8080, base=str(there))
    place.mkdir(parents=True)
    with (place / addresses.LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(control_client.NotRunning, match=f"XDG_RUNTIME_DIR={there}"), control_client.connected(8080):
            pass
    with (
        pytest.raises(control_client.NotRunning, match=rf"looked in {here}.*framehost serve --port 8080"),
        control_client.connected(8080),
    ):
        pass
