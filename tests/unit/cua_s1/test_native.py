"""The original's arithmetic and body, and how far the System One profile's are from them."""

from __future__ import annotations

import json
import random
from math import inf, log, nan
from typing import Any

import numpy as np
import pytest

from frontend.errors import InternalError
from frontend.families.cua_s1 import native
from frontend.requests.answers import choice_answer, softmax
from frontend.requests.questions import Choice


def question(count: int) -> Choice:
    return Choice("q", None, tuple([(f"o{index}", None) for index in range(count)]))


def test_published_probabilities() -> None:
    """float32 values, widened."""
    assert native.probabilities([1000.0, 1001.0]) == (0.2689414322376251, 0.7310585975646973)
    assert native.probabilities([0.0, 0.0]) == (0.5, 0.5)
    assert native.probabilities([42.0]) == (1.0,)
    assert native.probabilities([-3e38, 3e38]) == (0.0, 1.0)


def test_published_confidences() -> None:
    """Entropy over its maximum."""
    assert native.confidence((0.5, 0.5)) == 0.0
    assert native.confidence((1.0,)) == 1.0
    assert native.confidence((0.0, 1.0)) == 1.0
    entropy = -(0.12 * log(0.12) + 0.88 * log(0.88))
    assert native.confidence((0.12, 0.88)) == pytest.approx(1 - entropy / log(2), abs=1e-15)
    assert native.confidence((0.0024726232513785362, 0.9975274205207825)) == 0.9750249565060322
    assert native.confidence((0.25, 0.25, 0.25, 0.25)) == 0.0


def test_the_first_of_the_most_probable_is_chosen() -> None:
    """A tie is a tie of what is reported."""
    assert native.answer(question(2), [0.0, 0.0]).choice == "o0"
    assert native.answer(question(3), [1.0, 2.0, 2.0]).choice == "o1"
    assert native.answer(question(2), [0.0, 1e-9]).choice == "o0"
    assert native.answer(question(1), [42.0]).to_json() == {
        "type": "choice",
        "choice": "o0",
        "probabilities": {"o0": 1.0},
        "confidence": 1.0,
    }


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_numbers_that_are_none(bad: float) -> None:
    """No answer is made of them; nor of too few."""
    with pytest.raises(InternalError):
        native.answer(question(2), [0.0, bad])
    with pytest.raises(InternalError):
        native.answer(question(2), [0.0])


def test_the_body() -> None:
    """Order of questions and options is the request's, whatever their names are."""
    asked = [Choice("_sa", None, (("_sa_b", None), ("9", None))), Choice("a", None, (("x", None),))]
    body = native.body(asked, [[0.0, 0.0], [1.0]], 371)
    assert json.dumps(body, separators=(",", ":")) == (
        '{"model":"cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text","answers":{"_sa":{"type":"choice",'
        '"choice":"_sa_b","probabilities":{"_sa_b":0.5,"9":0.5},"confidence":0.0},"a":{"type":"choice","choice":"x",'
        '"probabilities":{"x":1.0},"confidence":1.0}},"usage":{"input_tokens":371,"output_tokens":0}}'
    )


def test_both_profiles_agree() -> None:
    """Before rounding within 1e-6, over logits of every spread; the confidences are different formulas."""
    chance = random.Random(7)
    for _ in range(500):
        count, spread = chance.randint(1, 26), chance.choice([0.01, 1.0, 10.0, 60.0])
        row: Any = np.array([chance.uniform(-spread, spread) for _ in range(count)], np.float32).tolist()
        ours, theirs = choice_answer(question(count), softmax(row)), native.answer(question(count), row)
        assert ours.choice == theirs.choice
        for (_, one), other in zip(ours.probabilities, theirs.probabilities, strict=True):
            assert abs(one - other) < 1e-6
        assert abs(sum(value for _, value in ours.probabilities) - 1) < 1e-12
        assert all(value == float(np.float32(value)) for value in theirs.probabilities)
