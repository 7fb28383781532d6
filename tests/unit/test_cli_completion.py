"""`framehost completion`: what the shells are taught is what the parser has."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

import supervisor
from frontend.cli.completion import SHELLS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert supervisor.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_every_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that are added later: nothing is listed by hand."""
    made = script(shell, capsys)
    (commands,) = [action for action in supervisor.parser()._actions if isinstance(action, argparse._SubParsersAction)]
    assert commands.choices.keys() >= {"serve", "decide", "batch", "status", "check", "completion"}
    assert [name for name in commands.choices if name not in made] == []


def completed(made: str, line: str, folder: Path) -> set[str]:
    """What bash offers at the end of `line`."""
    words = line.split(" ")
    code = (
        f"{made}\n"
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}\n"
        f"_shtab_framehost; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ended = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=30, cwd=folder)
    assert ended.stderr == ""
    return set(ended.stdout.split())


def test_bash_completes_commands_options_words_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As a person's tabulator key does."""
    made = script("bash", capsys)
    (tmp_path / "requests.jsonl").touch()
    assert completed(made, "framehost ba", tmp_path) == {"batch"}
    assert completed(made, "framehost batch --con", tmp_path) == {"--concurrency"}
    assert completed(made, "framehost completion f", tmp_path) == {"fish"}
    assert completed(made, "framehost batch req", tmp_path) == {"requests.jsonl"}
    assert completed(made, "framehost decide --state-file req", tmp_path) == {"requests.jsonl"}
