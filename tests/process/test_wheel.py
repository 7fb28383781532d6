"""The wheel that an installation is made from, which a checkout and an editable installation never see."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.process.harness import ROOT


def test_an_installed_framehost_has_everything_it_starts(tmp_path: Path) -> None:
    """The command of a built wheel runs from its own files, and the page's files are in it."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [sys.executable, "-m", "pip", "wheel", *quiet, "--wheel-dir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("framehost-*.whl")
    folder = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    run = subprocess.run(
        [sys.executable, "-m", "executor_host.supervision.entry", "serve", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "--config" in run.stdout
    assert list((folder / "frontend").rglob("*.html"))
