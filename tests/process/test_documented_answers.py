"""What the documents say of models: every example is answered as it is meant, every figure is what comes out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import models
from tests.helpers.minilm import fetch_minilm
from tests.process.conftest import short_directory
from tests.process.harness import ROOT, Framehost, running

STATE = "I was charged twice. Please give me my money back!"
TEAM = {"type": "choice", "criteria": {"billing": "a charge or a refund", "bug": "something is broken"}}
REFUND = {"type": "noul", "criteria": {"true": "money back", "false": "a question"}}
NAMES = {"type": "choice", "criteria": {"billing": None, "bug": None}}

EXAMPLES: list[tuple[str, Any, dict[str, Any]]] = [
    ("## typesafe-sdk (Python)", STATE, {"team": TEAM}),
    ("## @typesafe-ai/sdk (JavaScript)", STATE, {"refund": REFUND}),
    ("## Vercel AI SDK", [{"type": "text", "text": STATE}], {"refund": REFUND}),
    ("## openai (Python)", STATE, {"team": TEAM}),
    ("## google-genai (Python)", STATE, {"refund": REFUND}),
    ("## openrouter (Python)", STATE, {"refund": {**REFUND, "criteria": {"true": "money back", "false": "no"}}}),
    ("## pydantic-ai", STATE, {"team": NAMES}),
]
"""A section of docs/clients.md, and what its client asks there."""

MEANT = {"team": "billing", "refund": True, "harm": 2}
"""What anybody would answer, by question id."""


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    """Both small models, the default one first."""
    fetch_minilm()
    with short_directory() as directory, running(directory, *models.SERVED.values()) as started:
        yield started


def section(heading: str) -> str:
    """The part of docs/clients.md below a heading."""
    _, found, rest = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8").partition(f"{heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def curls() -> list[tuple[str, dict[str, Any]]]:
    """The body of each curl command of README and docs that asks a question."""
    found = []
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```[a-z]*\n(curl .*?)\n```", document.read_text(encoding="utf-8"), re.DOTALL):
            words = shlex.split(block.replace("\\\n", " "), comments=True)
            if "-d" in words and "questions" in (body := words[words.index("-d") + 1]):
                found.append((document.name, json.loads(body)))
    return found


def assert_meant(server: Framehost, state: Any, questions: dict[str, Any], model: str = "minilm") -> None:
    answer = server.post({"model": model, "state": state, "questions": questions})
    assert answer.status == 200, answer
    for name, found in answer.json["answers"].items():
        meant = MEANT[name]
        if found["type"] == "noul":
            sure = found["noul"] if meant else 1.0 - found["noul"]
        else:
            sure = found["probabilities"][str(meant)]
        assert sure > 0.8, (name, found)


@pytest.mark.parametrize(("heading", "state", "questions"), EXAMPLES, ids=[heading for heading, *_ in EXAMPLES])
def test_what_the_clients_ask_is_answered_as_it_is_meant(
    server: Framehost, heading: str, state: Any, questions: dict[str, Any]
) -> None:
    """With more than 0.8; and the texts that are asked here are those of the document."""
    text = section(heading)
    assert STATE in text
    for question in questions.values():
        for name, described in question["criteria"].items():
            assert (name if described is None else described) in text
    assert_meant(server, state, questions)


def test_every_curl_is_answered_as_it_is_meant(server: Framehost) -> None:
    """README's and those of the documents, as they stand there, by the default model."""
    found = curls()
    assert {name for name, _ in found} >= {"README.md", "clients.md"}
    for _, body in found:
        assert_meant(server, body["state"], body["questions"])


@pytest.mark.parametrize("name", models.SETS)
def test_the_figures_of_the_models_are_what_comes_out(server: Framehost, name: str) -> None:
    """`make models` writes others. Winners are the same on every processor, numbers to three digits."""
    measured = json.loads(models.FILE.read_text(encoding="utf-8"))["sets"][name]
    found = models.evaluated(server.url, name)
    for model in models.SERVED:
        ours, theirs = found["models"][model], measured["models"][model]
        assert (ours["right"], ours["expected"]) == (theirs["right"], theirs["expected"])
        assert [one["line"] for one in ours["wrong"]] == [one["line"] for one in theirs["wrong"]]
        for figure in ("brier", "log_loss"):
            assert ours[figure] == pytest.approx(theirs[figure], abs=1e-3)
        for check in ("turned", "accompanied"):
            assert ours[check]["winners"] == theirs[check]["winners"] == 0
        assert ours["unanswered"] == {}
    (pair,) = found["pairs"]
    assert pair["first_alone"] > pair["second_alone"], "the default is the better one"
