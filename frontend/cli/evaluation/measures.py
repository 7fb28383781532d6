"""What judged answers say of a model: plain numbers from plain numbers. Pure, the standard library alone.

| measure | of n answers with probabilities p over their candidates, y the right one |
| --- | --- |
| accuracy | the share whose most probable candidate is y; its interval is Wilson's (1927), 95 % |
| Brier | mean of sum_i (p_i - [i = y])^2, 0 to 2 (Brier 1950, for several candidates) |
| log loss | mean of -ln p_y |
| calibration error | sum over ten bins of the winning probability of (share of answers) x abs(accuracy - mean of p) |
| coverage at t | the share of answers whose winning probability is at least t, and how many of these are right |
| paired | what one is right on and the other is not; p is McNemar's, two-sided and exact |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, fsum, log, sqrt
from typing import Final

Z_95: Final = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""

BINS: Final = 10
LEAST: Final = 1e-15
"""A probability of the right answer below this counts as this: an impossible one would make every mean infinite."""

TEMPERATURES: Final = (0.05, 20.0)
"""Between which a temperature is looked for: beyond them answers are all certain, or all the same."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer beside the right one."""

    line: int
    question: str
    names: tuple[str, ...]
    """Of its candidates."""
    probabilities: tuple[float, ...]
    expected: int

    @property
    def top(self) -> int:
        """The first of the most probable candidates."""
        return self.probabilities.index(max(self.probabilities))

    @property
    def sure(self) -> float:
        """The winner's probability."""
        return max(self.probabilities)

    @property
    def right(self) -> bool:
        """Whether the most probable candidate is the expected one."""
        return self.top == self.expected


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose winning probability lies in one tenth of 0 to 1."""

    count: int
    accuracy: float
    sure: float
    """Their mean winning probability."""


def interval(right: int, count: int) -> tuple[float, float]:
    """Between which two shares the true one lies, at 95 %, when `right` of `count` were. Wilson (1927)."""
    if not count:
        return 0.0, 1.0
    share, square = right / count, Z_95 * Z_95
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = Z_95 * sqrt(share * (1 - share) / count + square / (4 * count * count)) / (1 + square / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def brier(answers: Sequence[Judged]) -> float:
    """0 for certain and right, 2 for certain and wrong. At least one answer."""
    return fsum(
        (p - (place == one.expected)) ** 2 for one in answers for place, p in enumerate(one.probabilities)
    ) / len(answers)


def log_loss(answers: Sequence[Judged], temperature: float = 1.0) -> float:
    """In nats; with a temperature, of the probabilities that it would give. At least one answer."""
    return fsum(-log(max(tempered(one.probabilities, temperature)[one.expected], LEAST)) for one in answers) / len(
        answers
    )


def bins(answers: Sequence[Judged]) -> tuple[Bin, ...]:
    """The `BINS` tenths of the winning probability; 1 belongs to the last."""
    groups: list[list[Judged]] = [[] for _ in range(BINS)]
    for one in answers:
        groups[min(BINS - 1, int(one.sure * BINS))].append(one)
    return tuple(
        Bin(len(group), sum(one.right for one in group) / len(group), fsum(one.sure for one in group) / len(group))
        if group
        else Bin(0, 0.0, 0.0)
        for group in groups
    )


def calibration_error(answers: Sequence[Judged]) -> float:
    """How far accuracy and probability are apart, on average. At least one answer."""
    return fsum(one.count * abs(one.accuracy - one.sure) for one in bins(answers)) / len(answers)


def at_least(answers: Sequence[Judged], threshold: float) -> tuple[int, int]:
    """How many answers are as sure as that, and how many of these are right."""
    kept = [one for one in answers if one.sure >= threshold]
    return len(kept), sum(one.right for one in kept)


def threshold_for(answers: Sequence[Judged], precision: float) -> float | None:
    """The least winning probability from which on a share of `precision` is right; None when there is none."""
    ranked = sorted(answers, key=lambda one: -one.sure)
    found, right = None, 0
    for place, one in enumerate(ranked):
        right += one.right
        last_of_its_probability = place + 1 == len(ranked) or ranked[place + 1].sure < one.sure
        if last_of_its_probability and right >= precision * (place + 1):
            found = one.sure
    return found


def paired(first: Sequence[bool], second: Sequence[bool]) -> tuple[int, int, float]:
    """What `first` alone is right on, what `second` alone is, and the p-value of the two being as good.

    McNemar's test, exact: of so many differences, how often would one side win as many by chance.
    """
    alone = sum(a and not b for a, b in zip(first, second, strict=True))
    other = sum(b and not a for a, b in zip(first, second, strict=True))
    differences = alone + other
    tail = sum(comb(differences, wins) for wins in range(min(alone, other) + 1))
    return alone, other, min(1.0, tail / 2 ** (differences - 1)) if differences else 1.0


def tempered(probabilities: Sequence[float], temperature: float) -> tuple[float, ...]:
    """The probabilities that logits divided by `temperature` would give: p^(1/T), normalised."""
    if temperature == 1.0:
        return tuple(probabilities)
    logs = [log(max(p, LEAST)) / temperature for p in probabilities]
    top = max(logs)
    weights = [exp(value - top) for value in logs]
    total = fsum(weights)
    return tuple([weight / total for weight in weights])


def fitted_temperature(answers: Sequence[Judged]) -> float:
    """The temperature with the least log loss on these answers, within `TEMPERATURES`.

    The loss is convex in 1/T, so a golden-section search over it finds the one minimum; to 1e-6 of the range.
    """
    low, high = 1.0 / TEMPERATURES[1], 1.0 / TEMPERATURES[0]
    golden = (sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = log_loss(answers, 1.0 / left), log_loss(answers, 1.0 / right)
    while high - low > 1e-6 * high:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = log_loss(answers, 1.0 / left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = log_loss(answers, 1.0 / right)
    return 2.0 / (low + high)
