"""`framehost check --config` of a file that is not meant well: nothing in it reaches the terminal, nothing hangs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import supervisor
from protocol.exits import ServeExit


@pytest.mark.parametrize("command", ["check", "serve"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[models."a\\u001b[2J\\nb"]\nfamily = "sparrow"\n', "key models.a\\x1b[2J\\nb: a model name has"),
        ('[models.a]\nfamily = "spar\\u001brow"\n', "there is no model family 'spar\\x1brow'"),
        ('[server]\ndefault = "a"\n[server."\\u009b2J"]\n', "server"),
    ],
)
def test_what_a_file_says_moves_no_cursor(
    tmp_path: Path, command: str, text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters of its names and values are escaped; it stays one line."""
    file = tmp_path / "framehost.toml"
    file.write_text(text)
    assert supervisor.main([command, "--config", str(file)]) == ServeExit.CONFIGURATION
    said = capsys.readouterr().err
    assert shown in said
    assert said.rstrip("\n").isprintable()


def test_a_path_moves_no_cursor_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file that is right, on stdout."""
    file = tmp_path / "a\x1b[2J.toml"
    file.write_text('[models.a]\nfamily = "sparrow"\n')
    assert supervisor.main(["check", "--config", str(file)]) == 0
    said = capsys.readouterr().out
    assert "a\\x1b[2J.toml: listens on" in said
    assert "\x1b" not in said


def _read(path: Path) -> bytes:
    raise AssertionError(f"{path} was read")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_may_never_end_is_not_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe that nobody writes to would be waited for, for ever; a device may have no end."""
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / "pipe") if kind == "pipe" else os.devnull
    monkeypatch.setattr(Path, "read_bytes", _read)
    assert supervisor.main(["check", "--config", path]) == ServeExit.CONFIGURATION
    assert capsys.readouterr().err == f"framehost: {path}: cannot be read: not a regular file, and may never end\n"
