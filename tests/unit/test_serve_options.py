"""`framehost serve PATH` and `--option`: the configuration that they make, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import supervisor
from frontend.cli.serve import configured
from frontend.configuration.model import Configuration
from frontend.configuration.toml_file import ConfigurationError
from tests.helpers import tiny_decider


def made(*arguments: str) -> Configuration:
    return configured(supervisor.parser().parse_args(["serve", *arguments]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_decider.write(tmp_path / "judge-4b")


def test_a_path_is_a_model_of_the_family_that_its_files_tell(folder: Path) -> None:
    """Its name is that of the folder."""
    (model,) = made(str(folder), "--option", "truncate=true").models
    assert (model.name, model.family, model.path) == ("judge-4b", "decider", str(folder))
    assert model.options == {"truncate": True}


def test_options_are_of_the_model_that_they_name(folder: Path) -> None:
    """A path beside others; the value is JSON, or a text."""
    judge, other = made(str(folder), "--model", "b=sparrow", "--option", "judge-4b.device=cpu").models
    assert (judge.options, other.options) == ({"device": "cpu"}, {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "a=sparrow", "--model", "b=sparrow", "--option", "x=1"], "expected NAME.KEY=VALUE"),
        (["--model", "a=sparrow", "--option", "b.x=1"], "where NAME is a model: a"),
        (["--model", "a=sparrow", "--option", "x"], "expected NAME.KEY=VALUE"),
        (["--model", "a=sparrow", "--option", "no=1"], "no"),
        (["--config", "x.toml", "--option", "a.x=1"], "not both"),
        (["/no/such/folder"], "/no/such/folder cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], words: str) -> None:
    """With the words of a configuration file where it is an option's value."""
    with pytest.raises(ConfigurationError, match=words):
        made(*arguments)


def test_a_folder_that_does_not_tell_its_family_is_refused(tmp_path: Path) -> None:
    """As `framehost check` refuses it."""
    with pytest.raises(ConfigurationError, match=r"is no checkpoint|has no file that tells"):
        made(str(tmp_path))
