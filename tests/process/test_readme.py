"""README.md shows what the default model answers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import readme
from tests.helpers.minilm import fetch_minilm
from tests.process.harness import GUARD_S, Framehost

TEXT = readme.README.read_text(encoding="utf-8")
MEASURED = json.loads(readme.FILE.read_text(encoding="utf-8"))


def test_the_default_model_answers_what_readme_shows(runtime: Path) -> None:
    """`make serve`, then the two commands as they stand there; `make readme` writes the answers of another model."""
    fetch_minilm()
    server = Framehost(["serve", "--port", "0"], runtime)
    try:
        answer = server.opened().post(readme.request(TEXT))
        assert answer.status == 200
        assert answer.json == close_to(MEASURED["answer"])
        said = subprocess.run(
            [sys.executable, "-m", "executor_host.supervision.entry", *readme.command(TEXT), "--url", server.url],
            capture_output=True,
            text=True,
            timeout=GUARD_S,
        )
        assert (said.returncode, said.stdout) == (0, MEASURED["decide"])
    finally:
        server.close()


def close_to(value: Any) -> Any:
    """The same, but for the last digits of numbers: other processors add in another order."""
    if isinstance(value, float):
        return pytest.approx(value, abs=1e-6)
    if isinstance(value, dict):
        return {key: close_to(entry) for key, entry in value.items()}
    return value


def test_numbers_are_compared() -> None:
    """`close_to` lets no other answer through."""
    assert close_to({"a": {"b": 0.5}}) == {"a": {"b": 0.5 + 1e-8}}
    assert close_to({"a": {"b": 0.5}}) != {"a": {"b": 0.51}}
    assert close_to({"a": {"b": 0.5}}) != {"a": {"b": math.nan}}
