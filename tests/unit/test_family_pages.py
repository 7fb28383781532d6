"""docs/families: a page per family, whose tables, limits and fields are those of the program."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from frontend.configuration import load
from frontend.families.native import OVERLOADED, TIMED_OUT, UNAVAILABLE, HostView, NativeProfile
from protocol import families
from tests.helpers import family_pages
from tests.helpers.family_pages import FOLDER

NAMES = list(families.BUILT_IN)
MODELS = (FOLDER.parent / "models.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_every_family_has_a_page() -> None:
    """And no page is of a family that there is not."""
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_are_those_of_the_program(name: str) -> None:
    """Defaults and options. `python -m tests.helpers.family_pages` writes them."""
    assert page(name) == family_pages.made(page(name), families.find(name))


def test_the_page_of_all_options_is_that_of_the_program() -> None:
    """Every option of every family has a row that names the family."""
    text = family_pages.OPTIONS.read_text(encoding="utf-8")
    assert text == family_pages.made_options(text)
    for family in families.BUILT_IN.values():
        for option in family.options.options:
            assert re.search(rf"^\| `{option.name}` \| [^|]*\[{family.name}\]", text, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_a_configuration(name: str, tmp_path: Path) -> None:
    """Of a model of this family, accepted as it stands but for the folder."""
    (sample,) = re.findall(r"```toml\n(.*?)```", page(name), re.DOTALL)
    assert [model["family"] for model in tomllib.loads(sample)["models"].values()] == [name]
    file = tmp_path / "framehost.toml"
    file.write_text(re.sub(r'^path = "models/.*"', f'path = "{tmp_path}"', sample, flags=re.MULTILINE))
    load.load(file)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_was_verified_against_is_told_in_one_way(name: str) -> None:
    """As in the table of docs/models.md."""
    (row,) = re.findall(rf"^\| `{name}` \|.*$", MODELS, re.MULTILINE)
    verified = row.strip("| ").split(" | ")[-1]
    assert f"\n## Verified against\n\n{verified}\n" in page(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_native_listener_is_described(name: str) -> None:
    """Its body limit, the error field, every field of its health, and what overload and deadline are answered with."""
    reference = families.find(name).native
    (text,) = re.findall(r"\n## Native listener\n\n(.*?)(?=\n## )", page(name), re.DOTALL)
    if not reference:
        assert text.startswith("None")
        return
    cls: type[NativeProfile] = families.resolve(reference)
    profile = cls(cast("Any", SimpleNamespace(model_id="m")))
    ready = set(profile.health(HostView(ready=True)))
    told = re.findall(r"^Health fields: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert len(told) == 1
    assert set(re.findall(r"`([a-z_]+)`", told[0])) == ready
    assert f"{cls.MAX_BODY_BYTES >> 20} MiB" in text
    assert f"`{cls.ERROR_FIELD}`" in text
    assert f"{cls.TOO_COSTLY} when it can never fit" in text
    for words in (OVERLOADED, TIMED_OUT, UNAVAILABLE, cls.FAILED):
        assert f"`{words}`" in text
