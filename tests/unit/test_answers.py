"""`frontend.requests.answers`: the numeric contract of every answer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.requests.answers import (
    AnswerError,
    ChoiceAnswer,
    NoulAnswer,
    ScoreAnswer,
    choice_answer,
    choice_confidence,
    expected_score,
    normalise,
    noul_answer,
    score_answer,
    score_confidence,
    softmax,
    tempered,
    winner,
)
from frontend.requests.questions import Choice, Noul, Score

BOUNDED = settings(max_examples=300, derandomize=True, deadline=None)
LOGITS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=255)
WEIGHTS = st.lists(st.floats(min_value=0, max_value=1.7e308), min_size=1, max_size=255).filter(any)


def choice(count: int) -> Choice:
    return Choice("q", None, tuple((f"o{index}", None) for index in range(count)))


def score(count: int) -> Score:
    return Score("q", None, tuple(f"l{index}" for index in range(count)))


def check_distribution(values: Sequence[float]) -> None:
    assert all(0.0 <= value <= 1.0 for value in values)
    assert abs(math.fsum(values) - 1.0) <= 1e-12
    assert abs(sum(values) - 1.0) <= 1e-12  # as a client adds them


@given(LOGITS, st.floats(min_value=0.05, max_value=20))
@BOUNDED
def test_softmax_is_a_distribution(logits: list[float], temperature: float) -> None:
    """Any finite logits give probabilities within [0, 1] that sum to 1 within 1e-12, best logit first."""
    values = softmax(logits, temperature)
    check_distribution(values)
    assert values[logits.index(max(logits))] == max(values)


def test_softmax_is_exact_where_the_result_is_known() -> None:
    """Differences of logits are log odds; the temperature divides them; a shift changes nothing."""
    assert softmax([math.log(3), 0.0]) == pytest.approx((0.75, 0.25), abs=1e-15)
    assert softmax([2 * math.log(3), 0.0], 2.0) == pytest.approx((0.75, 0.25), abs=1e-15)
    assert softmax([1000.0, 1000.0]) == (0.5, 0.5)
    assert softmax([1e308, -1e308]) == (1.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(bad: float) -> None:
    """One bad logit refuses the answer: nothing non-finite can be serialised later."""
    with pytest.raises(AnswerError):
        softmax([0.0, bad])


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_must_be_finite_and_positive(temperature: float) -> None:
    """A broken calibration is an error and not a division by zero."""
    with pytest.raises(AnswerError):
        softmax([0.0, 1.0], temperature)
    with pytest.raises(AnswerError):
        softmax([])


@given(WEIGHTS)
@BOUNDED
def test_normalise_is_a_distribution(weights: list[float]) -> None:
    """Any non-negative finite weights that are not all zero, up to the largest double."""
    check_distribution(normalise(weights))


@pytest.mark.parametrize("bad", [[], [0.0, 0.0], [0.5, -1e-9], [0.5, math.nan], [math.inf, 0.5], [-math.inf, 1.0]])
def test_what_is_no_distribution_is_refused(bad: list[float]) -> None:
    """Empty, all zero, negative, NaN or infinite."""
    with pytest.raises(AnswerError):
        normalise(bad)


@pytest.mark.parametrize(
    ("count", "best", "expected"), [(3, 0.61, 0.42), (4, 0.40, 0.20), (5, 0.74, 0.67), (3, 0.84, 0.76)]
)
def test_published_choice_confidences(count: int, best: float, expected: float) -> None:
    """The hosted service's published examples, to its two decimals (its inputs are rounded as well)."""
    values = [best] + [(1 - best) / (count - 1)] * (count - 1)
    assert choice_confidence(values) == pytest.approx(expected, abs=0.0075)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.95, 0.05], 0.90),
        ([0, 0.57, 0.43], 0.35),
        ([0, 0.74, 0.26], 0.61),
        ([0, 0.91, 0.09], 0.87),
        ([0, 0.48, 0.52, 0], 0.52),
        ([0, 0, 0.86, 0.14, 0], 0.89),
    ],
)
def test_published_score_confidences(values: list[float], expected: float) -> None:
    """The hosted service's published examples, to its two decimals (its inputs are rounded as well)."""
    assert score_confidence(values) == pytest.approx(expected, abs=0.0075)


@pytest.mark.parametrize("count", range(2, 256))
def test_uniform_is_no_confidence_and_one_hot_is_full(count: int) -> None:
    """For every number of candidates, and for both formulas."""
    uniform, certain = softmax([0.0] * count), normalise([0.0] * (count - 1) + [1.0])
    assert choice_confidence(uniform) == pytest.approx(0.0, abs=1e-9)
    assert score_confidence(uniform) == pytest.approx(0.0, abs=1e-9)
    assert choice_confidence(certain) == score_confidence(certain) == 1.0


@given(WEIGHTS)
@BOUNDED
def test_confidences_and_scores_stay_within_their_ranges(weights: list[float]) -> None:
    """Confidence within [0, 1] and score within [0, n-1], exactly and not nearly."""
    values = normalise(weights)
    assert 0.0 <= choice_confidence(values) <= 1.0
    assert 0.0 <= score_confidence(values) <= 1.0
    assert 0.0 <= expected_score(values) <= len(values) - 1


def test_the_score_is_clamped_after_the_sum() -> None:
    """Rounding may put the mean above the last level; a strict client refuses that."""
    assert 2 * (1 + 2**-52) > 2.0
    assert expected_score([0.0, 0.0, 1 + 2**-52]) == 2.0
    assert expected_score([1.0, -0.0, -1e-17]) == 0.0
    assert expected_score([0.25, 0.25, 0.5]) == 1.25


def test_score_confidence_follows_the_formula_and_not_the_spread() -> None:
    """1 - S/U around the most probable level: not the standard deviation that one package uses."""
    values = [0.1, 0.2, 0.6, 0.1]
    around = 0.1 * 2 + 0.2 * 1 + 0.1 * 1
    assert score_confidence(values) == pytest.approx(1 - around / 1.0, abs=1e-15)


def test_ties_go_to_the_first_option() -> None:
    """In request order, among exactly equal values, wherever they are."""
    assert choice_answer(choice(4), [0.1, 0.4, 0.4, 0.1]).choice == "o1"
    assert choice_answer(choice(2), [0.5, 0.5]).choice == "o0"
    assert choice_answer(choice(3), [3.0, 3.0, 3.0]).choice == "o0"


@given(WEIGHTS)
@BOUNDED
def test_the_chosen_option_is_the_first_best_of_those_shown(weights: list[float]) -> None:
    """The choice agrees with the probabilities in the same answer, also where normalising makes a tie."""
    answer = choice_answer(choice(len(weights)), weights).to_json()
    shown = answer["probabilities"]
    assert answer["choice"] == max(shown, key=lambda name: shown[name])
    check_distribution(list(shown.values()))


def test_a_choice_answer_has_the_shape_of_the_dialect() -> None:
    """Names byte for byte in request order, nothing rounded, nothing else."""
    question = Choice("q", "?", (("한글 😀", "x"), ("10", None), ("2", {"a": 1}), ("__proto__", None)))
    answer = choice_answer(question, [1 / 3, 1 / 6, 1 / 6, 1 / 3]).to_json()
    assert list(answer) == ["type", "choice", "probabilities", "confidence"]
    assert list(answer["probabilities"]) == ["한글 😀", "10", "2", "__proto__"]
    assert answer["probabilities"]["10"] == pytest.approx(1 / 6, abs=1e-15)
    assert answer["choice"] == "한글 😀"


def test_a_score_answer_echoes_its_levels_unchanged() -> None:
    """Strings as sent, structured levels as they are, keys counted from 0, never null."""
    levels = ("low ", {"level": "mid", "sla": [1, None]}, ["high"])
    answer = score_answer(Score("q", None, levels), [0.25, 0.25, 0.5]).to_json()
    assert list(answer) == ["type", "score", "legend", "probabilities", "confidence"]
    assert answer["legend"] == {"0": "low ", "1": {"level": "mid", "sla": [1, None]}, "2": ["high"]}
    assert answer["legend"]["1"] is levels[1]
    assert answer["probabilities"] == {"0": 0.25, "1": 0.25, "2": 0.5}
    assert answer["score"] == 1.25


def test_a_noul_is_the_probability_of_yes_and_nothing_else() -> None:
    """Low when the answer is no; no confidence, no probabilities."""
    question = Noul("q", "?", None)
    assert noul_answer(question, 0.125).to_json() == {"type": "noul", "noul": 0.125}
    assert noul_answer(question, 1.0 + 1e-9).noul == 1.0
    assert noul_answer(question, -1e-9).noul == 0.0
    for bad in (math.nan, math.inf, 1.01, -0.01):
        with pytest.raises(AnswerError):
            noul_answer(question, bad)


def test_one_candidate_is_certain() -> None:
    """One option: p 1 and confidence 1. One level: score 0 besides."""
    assert choice_answer(choice(1), [0.3]).to_json() == {
        "type": "choice",
        "choice": "o0",
        "probabilities": {"o0": 1.0},
        "confidence": 1.0,
    }
    assert score_answer(score(1), [1.0]).to_json() == {
        "type": "score",
        "score": 0.0,
        "legend": {"0": "l0"},
        "probabilities": {"0": 1.0},
        "confidence": 1.0,
    }


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_probabilities_is_refused(count: int) -> None:
    """Two candidates take two numbers; nothing is padded or dropped."""
    with pytest.raises(AnswerError):
        choice_answer(choice(2), [1 / count] * count)
    with pytest.raises(AnswerError):
        score_answer(score(2), [1 / count] * count)


def test_answers_serialise_without_special_numbers() -> None:
    """An encoder that refuses NaN and infinities accepts every answer."""
    for answer in (
        choice_answer(choice(255), softmax([float(index) for index in range(255)])),
        score_answer(score(10), softmax([0.0] * 10)),
        noul_answer(Noul("q", "?", None), 0.0),
    ):
        assert json.loads(json.dumps(answer.to_json(), allow_nan=False)) == answer.to_json()


@pytest.mark.parametrize("temperature", [0.01, 0.5, 1.0, 2.5, 100.0])
def test_a_temperature_divides_the_logits(temperature: float) -> None:
    """Of every type: the answer of the softmax at that temperature; the winner stays, and 1 changes nothing at all."""
    logits = (0.3, 2.0, -1.0)
    plain, expected = softmax(logits), softmax(logits, temperature)
    choice = choice_answer(Choice("q", None, (("a", None), ("b", None), ("c", None))), plain)
    found = tempered(choice, temperature)
    assert isinstance(found, ChoiceAnswer)
    assert found.choice == "b"
    assert [value for _, value in found.probabilities] == pytest.approx(expected, abs=1e-12)
    assert found.confidence == pytest.approx(choice_confidence(expected), abs=1e-12)
    score = tempered(score_answer(Score("q", None, ("x", "y", "z")), plain), temperature)
    assert isinstance(score, ScoreAnswer)
    assert score.score == pytest.approx(expected_score(expected), abs=1e-12)
    assert score.levels == ("x", "y", "z")
    noul = tempered(NoulAnswer(softmax((0.0, 1.0))[1]), temperature)
    assert isinstance(noul, NoulAnswer)
    assert noul.noul == pytest.approx(softmax((0.0, 1.0), temperature)[1], abs=1e-12)
    if temperature == 1.0:
        assert found is choice


def test_a_temperature_leaves_what_is_certain() -> None:
    """No probability of 0 or 1 becomes anything else, and nothing overflows."""
    assert tempered(NoulAnswer(1.0), 0.01) == NoulAnswer(1.0)
    assert tempered(NoulAnswer(0.0), 100.0) == NoulAnswer(0.0)
    assert tempered(NoulAnswer(1e-300), 0.01) == NoulAnswer(0.0)


def test_the_winner_is_what_is_most_probable() -> None:
    """The first of equals; of a noul, true."""
    choice = ChoiceAnswer("b", (("a", 0.4), ("b", 0.6)), 0.2)
    assert winner(choice) == ("b", 0.6)
    assert winner(NoulAnswer(0.5)) == (True, 0.5)
    assert winner(NoulAnswer(0.25)) == (False, 0.75)
    assert winner(ScoreAnswer(0.8, ("x", "y", "z"), (0.4, 0.4, 0.2), 0.1)) == (0, 0.4)
