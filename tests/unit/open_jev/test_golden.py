"""The published vectors: prompts, answers from logits in both profiles."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.errors import InternalError
from frontend.families.open_jev import finishing, grammar, native
from frontend.families.open_jev.rendering import prompts, question
from frontend.requests.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer
from tests.unit.open_jev.helpers import GOLDEN, TEMPERATURE, systemone


@pytest.mark.parametrize("vector", GOLDEN["prompts"], ids=lambda vector: vector["name"])
def test_published_prompts(vector: dict[str, Any]) -> None:
    """To the character: sorted keys in everything that is rendered, options in the order they were sent."""
    asked = grammar.parse(vector["request"], ())
    assert [prompts(asked.state, question) for question in asked.questions] == vector["prompts"]
    (name,) = vector["request"]["questions"]
    assert asked.questions[0].id == name
    if asked.questions[0].kind == "choice":
        assert list(asked.questions[0].names) == list(vector["request"]["questions"][name]["criteria"])


def test_descriptions_that_are_empty_are_descriptions() -> None:
    """Only null is none. A score's level numbers are not shown, and ids reach no prompt."""
    found = question("id-x", {"type": "choice", "instructions": "", "criteria": {"a": "", "b": None, "c": {}, "": []}})
    texts = prompts("s", found)
    options = [text.partition("Proposed answer: ")[2].partition("\nIs this")[0] for text in texts]
    assert options == ["a: ", "b", "c: {}", ": []"]
    assert not any("id-x" in text for text in texts)
    levels = prompts("s", question("q", {"type": "score", "instructions": "i", "criteria": ["low", "0: high"]}))
    assert ["Proposed answer: low\n" in levels[0], "Proposed answer: 0: high\n" in levels[1]] == [True, True]


def test_keys_are_sorted_by_code_point_at_every_level() -> None:
    """Not by UTF-16 unit, not by length, and not in what is a string already."""
    state = {"\ufb01": 1, "\U0001f600": {"b": [], "a": {"d": None, "c": True}}, "Z": "s", "a": '{"b": 1, "a": 2}'}
    found = prompts(state, question("q", {"type": "noul", "instructions": {"b": 1, "B": 2}}))[0]
    expected = (
        '{"Z": "s", "a": "{\\"b\\": 1, \\"a\\": 2}", "\ufb01": 1, "\U0001f600": {"a": {"c": true, "d": null}, "b": []}}'
    )
    assert found.startswith(f'Context:\n{expected}\n\nQuestion: {{"B": 2, "b": 1}}\n')


@pytest.mark.parametrize("vector", GOLDEN["answers"], ids=lambda vector: vector["name"])
def test_published_answers(vector: dict[str, Any]) -> None:
    """From logits, every field within 1e-12, in the order of the request; the System One profile has the same."""
    fields = {"instructions": "i", **vector["question"]}
    rendered = question("q", fields)
    found = native.answer(rendered, vector["logits"], TEMPERATURE)
    assert found == approximately(vector["answer"])
    assert list(found.get("probabilities", {})) == list(vector["answer"].get("probabilities", {}))
    logits = vector["logits"]
    scores = [logits[1] - logits[0]] if rendered.kind == "noul" else logits  # no has a score of 0
    assert native.answers([rendered], scores, TEMPERATURE)["q"] == approximately(vector["answer"])
    ((_, answer),) = finishing.answers([systemone("q", fields)], scores, TEMPERATURE)
    assert answer.to_json() == approximately(vector["answer"])


def approximately(answer: Any) -> Any:
    """The same with every number within 1e-12."""
    return {
        key: pytest.approx(value, abs=1e-12) if key in ("score", "confidence", "noul", "probabilities") else value
        for key, value in answer.items()
    }


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_temperatures_that_are_none(temperature: float) -> None:
    """Never an answer."""
    with pytest.raises(InternalError):
        native.answer(question("q", {"type": "noul", "instructions": "i"}), [0.0, 1.0], temperature)


@pytest.mark.parametrize("logits", [[0.0], [0.0, 1.0, 2.0], [0.0, math.nan], [math.inf, 0.0], []])
def test_logits_that_are_none(logits: list[float]) -> None:
    """Another number than the question's names, or one that is not finite."""
    with pytest.raises(InternalError):
        native.answer(question("q", {"type": "noul", "instructions": "i"}), logits, TEMPERATURE)


def test_scores_that_are_left_over() -> None:
    """As many as the candidates of all questions, no more and no fewer."""
    asked = [question(name, {"type": "noul", "instructions": "i"}) for name in "ab"]
    assert list(native.answers(asked, [0.0, 1.0], TEMPERATURE)) == ["a", "b"]
    for scores in ([0.0], [0.0] * 3):
        with pytest.raises(InternalError):
            native.answers(asked, scores, TEMPERATURE)


@given(st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_two_profiles_agree(data: st.DataObject) -> None:
    """Within 1e-6, and in fact within 1e-12: neither rounds, and both are float64."""
    kind = data.draw(st.sampled_from(["choice", "noul", "score"]))
    count = 1 if kind == "noul" else data.draw(st.integers(1 if kind == "choice" else 2, 10))
    criteria: Any = None
    if kind == "choice":
        criteria = {f"o{index}": None for index in range(count)}
    elif kind == "score":
        criteria = [f"l{index}" for index in range(count)]
    fields = {"type": kind, "instructions": "i", "criteria": criteria}
    scores = data.draw(st.lists(st.floats(-30, 30, width=32), min_size=count, max_size=count))
    temperature = data.draw(st.sampled_from([TEMPERATURE, 1.8969118766347646, 1.0]))
    single = native.answers([question("q", fields)], scores, temperature)["q"]
    ((_, exact),) = finishing.answers([systemone("q", fields)], scores, temperature)
    if isinstance(exact, NoulAnswer):
        assert exact.noul == pytest.approx(single["noul"], abs=1e-12)
        return
    assert isinstance(exact, (ChoiceAnswer, ScoreAnswer))
    values = list(exact.to_json()["probabilities"].values())
    assert values == pytest.approx(list(single["probabilities"].values()), abs=1e-12)
    assert abs(math.fsum(values) - 1.0) <= 1e-12
    assert exact.confidence == pytest.approx(single["confidence"], abs=1e-11) or tied(values)
    if isinstance(exact, ScoreAnswer):
        assert exact.score == pytest.approx(single["score"], abs=1e-11)
    json.dumps(single, allow_nan=False)


def tied(values: list[float]) -> bool:
    """Whether rounding could have decided which is the mode."""
    ordered = sorted(values)
    return ordered[-1] - ordered[-2] < 1e-12
