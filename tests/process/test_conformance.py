"""The field's conformance suite against the embedded model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.process.harness import GUARD_S, running

NOT_APPLICABLE = {"auth.bearer", "auth.missing", "auth.invalid"}
"""Checks that need a server with keys; docs/conformance.md lists them."""


def test_jevcompat_finds_nothing(runtime: Path, tmp_path: Path) -> None:
    """`jevcompat test` passes every MUST and every SHOULD that applies to a server without keys."""
    report = tmp_path / "report.json"
    with running(runtime, "sparrow=sparrow") as server:
        suite = Path(sys.executable).with_name("jevcompat")
        run = subprocess.run(
            [suite, "test", server.url, "--json", report], capture_output=True, text=True, timeout=2 * GUARD_S
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert server.idle()
    results = json.loads(report.read_text())["results"]
    outcomes = Counter((entry["level"], entry["status"]) for entry in results if entry["id"] not in NOT_APPLICABLE)
    assert outcomes == {("MUST", "pass"): 32, ("SHOULD", "pass"): 13}
