"""The measures, on numbers that a reader can follow, and against their definitions on random ones."""

from __future__ import annotations

import math
import random

import pytest

from frontend.cli.evaluation import measures
from frontend.cli.evaluation.measures import Judged


def judged(*probabilities: float, expected: int = 0) -> Judged:
    return Judged(1, "q", tuple(map(str, range(len(probabilities)))), probabilities, expected)


def random_answers(count: int, seed: int = 7) -> list[Judged]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        weights = [chance.random() ** 3 for _ in range(3)]
        values = [weight / sum(weights) for weight in weights]
        made.append(judged(*values, expected=chance.choices(range(3), values)[0]))
    return made


def test_the_interval_is_wilsons() -> None:
    """10 of 20: the published value 0.299 to 0.701; it stays within 0 and 1, and is wide where there is little."""
    assert measures.interval(10, 20) == pytest.approx((0.2993, 0.7007), abs=1e-4)
    assert measures.interval(0, 10)[0] == 0.0
    assert measures.interval(10, 10)[1] == pytest.approx(1.0)
    assert measures.interval(10, 10)[0] == pytest.approx(0.7225, abs=1e-4)
    assert measures.interval(0, 0) == (0.0, 1.0)


def test_the_first_of_the_most_probable_wins() -> None:
    """As everywhere in framehost: a tie goes to the first."""
    assert judged(0.4, 0.4, 0.2).top == 0
    assert judged(0.2, 0.4, 0.4, expected=1).right


def test_brier_and_log_loss() -> None:
    """Certain and right is 0; certain and wrong is 2, and a finite log loss."""
    assert measures.brier([judged(1.0, 0.0)]) == 0.0
    assert measures.brier([judged(0.0, 1.0)]) == 2.0
    assert measures.brier([judged(0.7, 0.2, 0.1)]) == pytest.approx(0.09 + 0.04 + 0.01)
    assert measures.log_loss([judged(0.5, 0.5), judged(0.25, 0.75)]) == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert measures.log_loss([judged(0.0, 1.0)]) == pytest.approx(-math.log(measures.LEAST))


def test_the_calibration_error() -> None:
    """Four answers at 0.85 of which two are right, one certain and right: (4 x 0.35 + 0) / 5."""
    answers = [*[judged(0.85, 0.15)] * 2, *[judged(0.85, 0.15, expected=1)] * 2, judged(1.0, 0.0)]
    assert measures.calibration_error(answers) == pytest.approx(0.28)
    filled = {place: one.count for place, one in enumerate(measures.bins(answers)) if one.count}
    assert filled == {8: 4, 9: 1}, "1 is in the last tenth"


def test_coverage_and_the_threshold_for_a_precision() -> None:
    """The least probability from which on enough are right; answers of the same probability go together."""
    answers = [judged(0.9, 0.1), judged(0.8, 0.2), judged(0.8, 0.2, expected=1), judged(0.6, 0.4), judged(0.55, 0.45)]
    assert measures.at_least(answers, 0.8) == (3, 2)
    assert measures.at_least(answers, 0.95) == (0, 0)
    assert measures.threshold_for(answers, 0.8) == 0.55, "4 of 5"
    assert measures.threshold_for(answers, 0.9) == 0.9
    assert measures.threshold_for([judged(0.9, 0.1, expected=1)], 0.5) is None


def test_the_paired_comparison() -> None:
    """12 against 0 is 2 x 2^-12 by chance; no difference is 1; a draw of differences is 1."""
    assert measures.paired([True] * 20, [True] * 8 + [False] * 12) == (12, 0, pytest.approx(2 / 2**12))
    assert measures.paired([True, False], [True, False]) == (0, 0, 1.0)
    assert measures.paired([True, False], [False, True]) == (1, 1, 1.0)


def test_a_temperature_divides_logits() -> None:
    """p^(1/T) normalised is the softmax of the same logits over T; 1 changes nothing; zeros stay finite."""
    logits = (0.3, 2.0, -1.0)
    soft = [math.exp(x) for x in logits]
    cool = [math.exp(x / 2.5) for x in logits]
    found = measures.tempered([x / sum(soft) for x in soft], 2.5)
    assert found == pytest.approx([x / sum(cool) for x in cool])
    assert measures.tempered((0.25, 0.75), 1.0) == (0.25, 0.75)
    assert measures.tempered((0.0, 1.0), 3.0)[0] < 1e-4


@pytest.mark.parametrize("truth", [0.4, 1.0, 3.0])
def test_the_fitted_temperature_is_found(truth: float) -> None:
    """Answers that were drawn from their probabilities need 1; made sharper or flatter, they need that undone; and
    no neighbour has a smaller loss."""
    answers = [
        Judged(one.line, one.question, one.names, measures.tempered(one.probabilities, 1 / truth), one.expected)
        for one in random_answers(4_000)
    ]
    fitted = measures.fitted_temperature(answers)
    assert fitted == pytest.approx(truth, rel=0.08)
    least = measures.log_loss(answers, fitted)
    assert least <= min(measures.log_loss(answers, fitted * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_a_temperature_stays_in_its_range() -> None:
    """Where every answer is right, lower is better until the loss is 0; where all are wrong, it ends at its bound."""
    assert measures.TEMPERATURES[0] <= measures.fitted_temperature([judged(0.9, 0.1)] * 3) < 0.07
    assert measures.fitted_temperature([judged(0.1, 0.9)] * 3) == pytest.approx(measures.TEMPERATURES[1], rel=1e-3)
