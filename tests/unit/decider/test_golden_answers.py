"""Logits to answers, against the published vectors, in both profiles."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.errors import InternalError
from frontend.families.decider import finishing, native
from frontend.families.decider.rendering import Rendered, question
from frontend.families.logits import softmax32
from frontend.requests.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer
from frontend.requests.questions import Choice, Noul, Question, Score
from tests.unit.decider.helpers import GOLDEN, TEMPERATURES

np = pytest.importorskip("numpy")

LEVELS = "levels"


def rendered_of(vector: dict[str, Any]) -> Rendered:
    """The question behind a published vector."""
    kind = vector["answer"]["type"]
    if kind == "choice":
        return question("q", {"instructions": "i", "criteria": [str(i) for i in range(vector["options"])]})
    if kind == "score":
        return question("q", {"type": "score", "instructions": "i", "criteria": vector[LEVELS]})
    return question("q", {"type": "noul", "instructions": "i"})


@pytest.mark.parametrize("vector", GOLDEN["answers"], ids=lambda vector: vector["name"])
def test_native_answers_are_the_published_ones(vector: dict[str, Any]) -> None:
    """From logits, every field after rounding; the float32 probabilities within 2 units of the last place."""
    rendered = rendered_of(vector)
    temperature = getattr(TEMPERATURES, rendered.kind)
    for row, published in zip(vector["logits"], vector["probabilities"], strict=True):
        np.testing.assert_array_max_ulp(
            np.array(softmax32(row, temperature), np.float32), np.array(published, np.float32), maxulp=2
        )
    ((_, answer),) = native.answers([rendered], vector["logits"], TEMPERATURES)
    assert answer.to_json() == vector["answer"]
    assert native.answer(rendered, vector["probabilities"]).to_json() == vector["answer"]


LOGITS = [[0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5][i % 7] for i in range(255)]


@pytest.mark.parametrize(
    ("logits", "expected"),
    [(LOGITS, ("6", 0.0029, 0.0069, 0.0158)), ([0.5] * 255, ("0", 0.0, 0.0039, 0.0))],
    ids=["cycle", "uniform"],
)
def test_255_options(logits: list[float], expected: tuple[object, ...]) -> None:
    """The two large choices whose answers are published in part."""
    rendered = rendered_of({"answer": {"type": "choice"}, "options": 255})
    ((_, answer),) = native.answers([rendered], [logits], TEMPERATURES)
    found = answer.to_json()
    assert tuple(found[name] for name in ("choice", "confidence", "x_p_max", "certainty")) == expected


@pytest.mark.parametrize(
    ("values", "choice", "score", "certainty"),
    [
        ([0.7, 0.2, 0.1], 0.55, 0.4, 0.2702),
        ([0.4, 0.4, 0.2], 0.1, 0.0, 0.0398),
        ([0.1, 0.8, 0.05, 0.05], 0.7333, 0.75, 0.489),
    ],
)
def test_confidences(values: list[float], choice: float, score: float, certainty: float) -> None:
    """The three measures of one distribution."""
    measures = (native.choice_confidence, native.score_confidence, native.certainty)
    assert tuple(round(measure(values), 4) for measure in measures) == (choice, score, certainty)


def test_rounding_is_of_the_binary_value() -> None:
    """Half of a unit is decided by what the float64 really is, and exact halves go to the even digit."""
    answer = native.Score(2.675, ("a", "b"), (0.03125, 0.96875), (0.00005, 1.0), 1.00015)
    found = answer.to_json()
    assert (found["score"], found["probabilities"]["0"]) == (2.67, 0.0312)
    assert found["level_fit"]["0"] == round(0.00005, 4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["choice", "noul", "score"])
def test_logits_that_are_not_finite_are_an_internal_error(bad: float, kind: str) -> None:
    """In both profiles, in every kind of question, in every place."""
    asked, rendered = pair(kind, 2)
    rows = [[0.0, 1.0] for _ in range(2 if kind == "score" else 1)]
    for place in range(2):
        rows[-1] = [0.0, 1.0]
        rows[-1][place] = bad
        with pytest.raises(InternalError):
            finishing.answers([asked], rows, TEMPERATURES)
        with pytest.raises(InternalError):
            native.answers([rendered], rows, TEMPERATURES)


def pair(kind: str, count: int) -> tuple[Question, Rendered]:
    """The same question for the one profile and for the other."""
    names = [f"o{i}" for i in range(count)]
    if kind == "choice":
        asked: Question = Choice("q", "i", tuple((name, None) for name in names))
    elif kind == "score":
        asked = Score("q", "i", tuple(names))
    else:
        asked = Noul("q", "i", None)
    criteria = None if kind == "noul" else names
    return asked, question("q", {"type": kind, "instructions": "i", "criteria": criteria})


def bfloat(value: float) -> float:
    """`value` cut to bfloat16, which is what logits are made of."""
    return float(struct.unpack("<f", b"\0\0" + struct.pack("<f", value)[2:])[0])


LOGIT = st.floats(-12, 12, width=32).map(bfloat)


@given(st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_two_profiles_agree(data: st.DataObject) -> None:
    """Within 1e-6 before rounding, for logits within 12 of zero, where float32 keeps that much."""
    kind = data.draw(st.sampled_from(["choice", "noul", "score"]))
    count = 2 if kind == "noul" else data.draw(st.integers(2, 10 if kind == "score" else 30))
    asked, rendered = pair(kind, count)
    width, height = (2, count) if kind == "score" else (count, 1)
    rows = [data.draw(st.lists(LOGIT, min_size=width, max_size=width)) for _ in range(height)]
    ((_, exact),) = finishing.answers([asked], rows, TEMPERATURES)
    ((_, single),) = native.answers([rendered], rows, TEMPERATURES)
    if isinstance(exact, NoulAnswer):
        assert isinstance(single, native.Noul)
        assert exact.noul == pytest.approx(single.noul, abs=1e-6)
        return
    assert isinstance(single, (native.Choice, native.Score))
    if isinstance(exact, ChoiceAnswer):
        values = [value for _, value in exact.probabilities]
        confidence = native.choice_confidence(single.probabilities)
    else:
        assert isinstance(exact, ScoreAnswer)
        assert isinstance(single, native.Score)
        values = list(exact.probabilities)
        assert exact.score == pytest.approx(single.score, abs=9e-6)  # nine levels of 1e-6
        # The mode of a tie within float32 may be another one, and the spread is around it.
        assert abs(math.fsum(values) - 1.0) <= 1e-12
        confidence = native.score_confidence(single.probabilities)
    assert values == pytest.approx(single.probabilities, abs=1e-6)
    ordered = sorted(values)
    if ordered[-1] - ordered[-2] > 2e-6:
        assert exact.confidence == pytest.approx(confidence, abs=2e-5)


def test_a_score_that_nothing_fits_is_still_a_distribution() -> None:
    """Where float32 has only zeros left, the System One answer still compares the levels."""
    asked, rendered = pair("score", 3)
    rows = [[1000.0, -1000.0], [1000.0, -900.0], [1000.0, -1000.0]]
    ((_, exact),) = finishing.answers([asked], rows, TEMPERATURES)
    assert isinstance(exact, ScoreAnswer)
    assert exact.probabilities == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)
    ((_, single),) = native.answers([rendered], rows, TEMPERATURES)
    assert json.dumps(single.to_json()["probabilities"]) == '{"0": 0.0, "1": 0.0, "2": 0.0}'
