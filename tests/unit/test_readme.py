"""README.md: short, with the answers and figures that `make readme` has written, and links that lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import readme
from frontend import limits
from protocol import families

ROOT = Path(__file__).resolve().parents[2]
TEXT = readme.README.read_text(encoding="utf-8")
MEASURED = json.loads(readme.FILE.read_text(encoding="utf-8"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def prose(text: str) -> str:
    """Without code, comments and the targets of links."""
    for pattern in (r"```.*?```", r"<!--.*?-->", r"`[^`]*`", r"\]\([^)]*\)"):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return text


def test_it_is_short() -> None:
    """What is longer belongs into docs/."""
    assert len(TEXT.splitlines()) <= 150


def test_the_answers_are_those_of_the_file() -> None:
    """`make readme` would change nothing but what it measures anew."""
    assert readme.written(TEXT, MEASURED) == TEXT
    other = MEASURED | {"decide": "x\n", "answer": MEASURED["answer"] | {"model": "other"}, "recovery_s": 77.0}
    written = readme.written(TEXT, other)
    assert "x\n```" in written
    assert '{"model": "other",' in written
    assert "77.0 s" in written


def test_every_figure_is_of_the_file() -> None:
    """A number with a unit in a sentence is a measurement, and measurements come from `docs/readme.json`."""
    units = r"(?:%|ms|µs|s|seconds?|[kMG]i?B|thousand|million|billion|times|x|requests|tokens|parameters)"
    found = re.findall(rf"(?<![\w.])(\d[\d.,]*[ -]?{units})(?!\w)", prose(TEXT))
    assert found == [f"{MEASURED['recovery_s']:.1f} s"]


def test_the_condition_of_its_promise_stands_where_the_promise_does() -> None:
    """A request after a death is answered where the host is back in time; in words, since figures are measurements."""
    words = {5.0: "five seconds"}[limits.RESTART_WAIT_S]
    for part in (TEXT.split("## Start")[0], TEXT.split("## Break it")[1].split("\n## ")[0]):
        assert f"within {words}" in " ".join(part.split())
        assert "503 with `Retry-After`" in " ".join(part.split())


def test_every_family_has_a_row() -> None:
    """With a link to its page."""
    table = TEXT.split("| family |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| \[`([a-z0-9-]+)`\]", table, re.MULTILINE)) == set(families.BUILT_IN)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    """Files that exist, and headings that are there."""
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), target
        if heading:
            assert heading in headings(file.read_text(encoding="utf-8")), target


def headings(text: str) -> set[str]:
    """The anchors of a document, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
