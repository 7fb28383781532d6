"""What a changed configuration file changes in a running server, and what it leaves to the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend.configuration import load
from frontend.configuration.difference import Difference, difference

FILE = """
[server]
request_timeout = 20
kept_bytes = { cpu = 1000 }
[models.a]
family = "sparrow"
max_requests = 8
[models.b]
family = "sparrow"
"""


def found(tmp_path: Path, *changes: tuple[str, str]) -> Difference:
    """Of the file with these replacements."""
    file = tmp_path / "framehost.toml"
    file.write_text(FILE)
    before = load.load(file)
    text = FILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return difference(before, {model.name: model for model in before.models}, load.load(file))


def test_a_file_that_says_the_same_changes_nothing(tmp_path: Path) -> None:
    """A comment is no change."""
    assert found(tmp_path, ("[server]", "[server]  # mine")) == Difference((), None, None, ())


def test_a_model_with_other_keys_is_another_one(tmp_path: Path) -> None:
    """Its path, its options and its bounds; the others stay."""
    changed = found(tmp_path, ("max_requests = 8", "max_requests = 9\ntemperature = 2.0"))
    (model,) = changed.models
    assert (model.name, model.max_requests, model.temperature) == ("a", 9, 2.0)
    assert changed.steps == ["a: sparrow"]
    assert changed.later == ()


def test_what_devices_keep_holds_at_once(tmp_path: Path) -> None:
    """With or without another length of conversations."""
    changed = found(tmp_path, ("{ cpu = 1000 }", "{}\nsession_idle = 60"))
    assert (changed.kept_bytes, changed.session_idle_s, changed.models) == ({}, 60.0, ())
    assert changed.steps == ["kept_bytes: as the options of the models say", "session_idle: 60 s"]


@pytest.mark.parametrize(
    ("old", "new", "later"),
    [
        ("[server]", "[server]\nport = 9", ("port",)),
        ("[models.b]", "[models.c]", ("models.b, which is removed", "models.c, which is new")),
        ('[models.b]\nfamily = "sparrow"', '[models.b]\nfamily = "sparrow"\nresident = false', ("models.b.resident",)),
    ],
)
def test_what_needs_a_start_is_named_and_left_alone(tmp_path: Path, old: str, new: str, later: tuple[str, ...]) -> None:
    """Nothing else is done about it."""
    changed = found(tmp_path, (old, new))
    assert changed.later == later
    assert changed.models == ()
