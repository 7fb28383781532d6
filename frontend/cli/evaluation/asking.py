"""Puts every labelled case to a model, and some of them once more in another way that should change nothing.

    as it is         what is judged, and timed
    turned           the options of its choices in the reverse order: do other winners come out?
    accompanied      another question is asked with it: do its own answers change?

`Ask` is whatever sends a body and gives its outcome, so nothing here knows a socket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.cli.evaluation.gold import Case, candidates
from frontend.cli.evaluation.measures import Judged
from frontend.cli.sender import Outcome

Ask = Callable[[bytes], Outcome]

COMPANION: Final = "another question"
"""The id of the question that is asked beside a case's own."""

SLACK: Final = 1e-3
"""How far from 1 the probabilities of another server's answer may sum; some servers round them to four digits."""


class NoAnswer(ValueError):
    """What was said with status 200 is no answer to the question."""


@dataclass(frozen=True, slots=True)
class Change:
    """What asking in another way did to the answers."""

    compared: int
    winners: int
    """Answers with another winner."""
    largest: float
    """The largest difference of a candidate's probability."""


@dataclass(slots=True)
class Run:
    """What one model said to all cases."""

    model: str
    answers: dict[tuple[int, str], Judged] = field(default_factory=dict)
    """By line and question id."""
    unanswered: dict[int, str] = field(default_factory=dict)
    """What was said instead, by line."""
    expected: int = 0
    """How many answers the cases expect, those of unanswered lines included."""
    milliseconds: list[float] = field(default_factory=list)
    """From request to answer, of each line that was answered."""
    turned: Change | None = None
    accompanied: Change | None = None

    @property
    def judged(self) -> list[Judged]:
        """The answers, in order."""
        return list(self.answers.values())

    @property
    def right(self) -> int:
        """How many are."""
        return sum(one.right for one in self.answers.values())

    def is_right(self, key: tuple[int, str]) -> bool:
        """Whether that answer is; one that never came is not."""
        return key in self.answers and self.answers[key].right


def keys(cases: Iterable[Case]) -> list[tuple[int, str]]:
    """Line and id of each expected answer."""
    return [(case.line, name) for case in cases for name in case.expected]


def ask_all(
    model: str,
    cases: Sequence[Case],
    ask: Ask,
    clock: Callable[[], float],
    *,
    checks: bool,
    advance: Callable[[], None],
) -> Run:
    """Every case once, one after another, and with `checks` the two other ways.

    `clock`: seconds. `advance`: called after each request. What `ask` raises passes: a server that is gone is no
    property of a model.
    """
    run = Run(model, expected=len(keys(cases)))
    for case in cases:
        begun = clock()
        outcome = ask(_encoded(case.body, model))
        took = (clock() - begun) * 1000.0
        advance()
        try:
            found = dict(_judged(case, outcome))
        except NoAnswer as error:
            run.unanswered[case.line] = str(error)
            continue
        run.answers.update({(case.line, name): one for name, one in found.items()})
        run.milliseconds.append(took)
    if checks:
        run.turned = _compared(run, [(case, _turned(case)) for case in cases if _has_options(case)], ask, advance)
        run.accompanied = _compared(run, list(_accompanied(cases)), ask, advance)
    return run


def requests(cases: Sequence[Case], *, checks: bool) -> int:
    """How many requests `ask_all` sends at most."""
    if not checks:
        return len(cases)
    return len(cases) + sum(map(_has_options, cases)) + len(list(_accompanied(cases)))


def _compared(
    run: Run, pairs: Sequence[tuple[Case, Mapping[str, Any]]], ask: Ask, advance: Callable[[], None]
) -> Change:
    compared = winners = 0
    largest = 0.0
    for case, body in pairs:
        outcome = ask(_encoded(body, run.model))
        advance()
        try:
            found = dict(_judged(Case(case.line, body, case.expected), outcome, names_of=case))
        except NoAnswer:
            continue  # a request that is refused in this form, a second question for instance, compares nothing
        for name, one in found.items():
            before = run.answers.get((case.line, name))
            if before is None:
                continue
            compared += 1
            winners += one.top != before.top
            largest = max(largest, *(abs(a - b) for a, b in zip(one.probabilities, before.probabilities, strict=True)))
    return Change(compared, winners, largest)


def _has_options(case: Case) -> bool:
    return any(case.body["questions"][name]["type"] == "choice" for name in case.expected)


def _turned(case: Case) -> Mapping[str, Any]:
    questions = {
        name: {**question, "criteria": dict(reversed(list(question["criteria"].items())))}
        if question["type"] == "choice"
        else question
        for name, question in case.body["questions"].items()
    }
    return {**case.body, "questions": questions}


def _accompanied(cases: Sequence[Case]) -> Iterator[tuple[Case, Mapping[str, Any]]]:
    """Each case with the first question of the next one that asks something else in front of its own."""
    for place, case in enumerate(cases):
        own = list(case.body["questions"].values())
        for other in (*cases[place + 1 :], *cases[:place]):
            companion = next(iter(other.body["questions"].values()))
            if companion not in own:
                questions = {COMPANION: companion, **case.body["questions"]}
                yield case, {**case.body, "questions": questions}
                break


def _encoded(body: Mapping[str, Any], model: str) -> bytes:
    return json.dumps({**body, "model": model} if model else body, ensure_ascii=False).encode()


def _judged(case: Case, outcome: Outcome, names_of: Case | None = None) -> Iterator[tuple[str, Judged]]:
    """The expected answers out of a response, with the candidates as `names_of` has them. Raises `NoAnswer`."""
    if outcome.error is not None:
        raise NoAnswer(f"{outcome.status}: {outcome.error}")
    for name, expected in case.expected.items():
        names = candidates((names_of or case).body["questions"][name])
        try:
            values = _probabilities(outcome.response["answers"][name], names)
        except (LookupError, TypeError, ValueError) as error:
            raise NoAnswer(f"the answer to {name!r} has not the shape of System One: {error!r}") from None
        yield name, Judged(case.line, name, names, values, expected)


def _probabilities(answer: Mapping[str, Any], names: Sequence[str]) -> tuple[float, ...]:
    values: tuple[float, ...]
    if answer["type"] == "noul":
        yes = float(answer["noul"])
        values = (yes, 1.0 - yes)
    else:
        values = tuple([float(answer["probabilities"][name]) for name in names])
    if not all(0.0 <= value <= 1.0 for value in values) or abs(sum(values) - 1.0) > SLACK:
        raise ValueError("its numbers are no probabilities")
    return values
