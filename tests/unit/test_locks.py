"""The lock files agree: what serving installs is installed in the same version for linting and for the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pins(name: str) -> dict[str, str]:
    """The version of each package in a lock file."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("requirements.lock", "requirements-lint.lock"),
        ("requirements.lock", "requirements-test.lock"),
        ("requirements-lint.lock", "requirements-test.lock"),
    ],
)
def test_a_larger_lock_has_all_of_a_smaller_one(smaller: str, larger: str) -> None:
    """Else installing one after the other would move a version; `make lock` resolves them all."""
    more = pins(larger)
    assert pins(smaller)
    assert {name: version for name, version in pins(smaller).items() if more.get(name) != version} == {}


def test_no_lock_has_torch() -> None:
    """It is a step of its own in the Makefile, so that `make serve` and `make lint` never download it."""
    for name in ("requirements.lock", "requirements-lint.lock", "requirements-test.lock"):
        assert "torch" not in pins(name), name


def test_a_first_start_says_what_is_installed_before_it_is_silent() -> None:
    """pip is quiet for minutes; a newcomer at `make serve` reads before that what is going on."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    install = next(index for index, line in enumerate(lines) if line.endswith("-r requirements.lock"))
    assert lines[install - 1].startswith('\t@echo "installing the packages of requirements.lock')
