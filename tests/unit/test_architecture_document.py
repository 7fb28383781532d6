"""docs/architecture.md, lives.md and tour.md name files that exist, few terms, the rooms and the bytes as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protocol.frames import encode
from protocol.messages import Execute
from tests.unit.test_layering import ROOMS

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = ARCHITECTURE.partition("## Glossary")[2]
MOST_TERMS = 40
"""What a newcomer can learn in an afternoon."""


@pytest.mark.parametrize("name", ["architecture.md", "lives.md", "tour.md"])
def test_every_file_that_is_named_exists(name: str) -> None:
    """With its whole path; a name alone is looked for in every room."""
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    sources = [path for top in ("protocol", "frontend", "executor_host") for path in (ROOT / top).rglob("*")]
    for named in re.findall(r"`([\w/]+\.py|\w+(?:/\w+)+/)`", text):
        whole = (ROOT / named).exists()
        assert whole or any(str(path).endswith(f"/{named}") for path in sources), named


def test_the_glossary_is_short_and_in_order() -> None:
    """Each term once, with a file to look at."""
    rows = re.findall(r"^\| ([a-z][\w -]*) \| (.+?) \| `([^`]+)` \|$", GLOSSARY, re.MULTILINE)
    terms = [term for term, _, _ in rows]
    assert len(terms) == GLOSSARY.count("\n| ") - 2, "every row has a term, a meaning and a file"
    assert len(terms) <= MOST_TERMS
    assert terms == sorted(set(terms))
    for _, _, file in rows:
        assert (ROOT / file).exists(), file


def test_the_rooms_of_the_front_are_drawn_from_the_top_to_the_bottom() -> None:
    """The picture has every room, and each to the left of those that it may import."""
    (line,) = re.findall(r"^frontend/ +(main ─▶ .*)$", ARCHITECTURE, re.MULTILINE)
    drawn = re.findall(r"[a-z]+", line)
    assert {*drawn, "cli"} == ROOMS["frontend"].keys()
    for room, below in ROOMS["frontend"].items():
        if room != "cli":
            assert all(drawn.index(room) < drawn.index(other) for other in below), room


def test_the_bytes_of_the_wire_are_drawn_as_they_are() -> None:
    """Kind and header in full, the body as far as it is drawn."""
    drawn = re.findall(r"^(?:frame (\d)   \w+)? +((?:[0-9a-f]{2} )+)", ARCHITECTURE, re.MULTILINE)
    frames: list[str] = []
    for number, text in drawn:
        frames += [""] if number else []
        frames[-1] += text
    sent = encode(Execute(payload={}, request="", sent_ms=1), incarnation="1-9f1c2ab4", call=7, budget_ms=30_000)
    kind, header, body = (bytes(frame).hex(" ") + " " for frame in sent)
    assert [kind, header] == frames[:2]
    assert body.startswith(frames[2])
