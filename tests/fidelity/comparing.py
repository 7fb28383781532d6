"""One family's served answers beside those of its reference: what is compared, and the row of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.fidelity.requests import Shape, generated
from tests.process.conftest import short_directory
from tests.process.harness import running

WITHIN = 1e-5
"""Of a probability, in float32 on a CPU."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a reference says of one request."""

    probabilities: Mapping[str, Sequence[float]]
    """By question, one per option, level or side (false first)."""
    tokens: int
    """That its usage counts."""


class Judge(Protocol):
    """The public implementation of a family, or its contract written once more, around one checkpoint."""

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        """What it says of a request."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """A checkpoint, how it is served, and who judges."""

    path: Path | None
    options: Mapping[str, Any]
    judge: Judge


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the table."""

    name: str
    family: str
    against: str
    """The reference, in words."""
    shape: Shape
    make: Callable[[Path], Made]
    """Writes the checkpoint into a folder."""


@dataclass(slots=True)
class Row:
    """What was found."""

    subject: Subject
    requests: int = 0
    questions: int = 0
    largest: float = 0.0
    """Difference of a probability."""
    winners: list[int] = field(default_factory=list)
    """Seeds of requests with an option that wins here, and is behind in the reference by more than `WITHIN`."""
    tokens: list[int] = field(default_factory=list)
    """Seeds of requests whose tokens are counted differently."""

    @property
    def passed(self) -> bool:
        """Whether nothing is said differently."""
        return self.largest <= WITHIN and not self.winners and not self.tokens

    def add(self, seed: int, answers: Mapping[str, Any], tokens: int, expected: Expected) -> None:
        """Compare the answers to one request."""
        assert list(answers) == list(expected.probabilities), f"seed {seed}: other questions"
        self.requests += 1
        self.questions += len(answers)
        for name, answer in answers.items():
            ours, theirs = probabilities(answer), list(expected.probabilities[name])
            assert len(ours) == len(theirs), (
                f"seed {seed}: question {name!r} has {len(ours)} answers, not {len(theirs)}"
            )
            self.largest = max(self.largest, *(abs(mine - other) for mine, other in zip(ours, theirs, strict=True)))
            if theirs[ours.index(max(ours))] < max(theirs) - WITHIN:
                self.winners.append(seed)
        if tokens != expected.tokens:
            self.tokens.append(seed)

    def line(self) -> str:
        """As the document has it."""
        cells = (
            f"`{self.subject.family}`{self.subject.name.removeprefix(self.subject.family)}",
            self.subject.against,
            str(self.requests),
            str(self.questions),
            f"{self.largest:.1e}",
            str(len(self.winners)),
            str(len(self.tokens)),
        )
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| family | reference | requests | questions | largest difference | other winners | other token counts |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def probabilities(answer: Mapping[str, Any]) -> list[float]:
    """Of an answer in the shape of System One, one per option, level or side (false first)."""
    if answer["type"] == "noul":
        return [1.0 - answer["noul"], answer["noul"]]
    return list(answer["probabilities"].values())


def compare(subject: Subject, seeds: Sequence[int]) -> Row:
    """Serve the subject's checkpoint, ask it over HTTP, and ask its judge. Raises `AssertionError` for a request that
    is not answered."""
    row = Row(subject)
    with short_directory() as directory:
        made = subject.make(directory / "model")
        config = directory / "framehost.toml"
        config.write_text(_configuration(subject, made), encoding="utf-8")
        with running(directory, config=config) as server:
            for seed in seeds:
                state, questions = generated(seed, subject.shape)
                answer = server.post({"model": "model", "state": state, "questions": questions})
                assert answer.status == 200, f"{subject.name}, seed {seed}: {answer.status} {answer.json}"
                body = answer.json
                expected = made.judge.answer(state, questions)
                row.add(seed, body["answers"], body["usage"]["input_tokens"], expected)
    return row


def _configuration(subject: Subject, made: Made) -> str:
    lines = ["[models.model]", f"family = {json.dumps(subject.family)}"]
    if made.path is not None:
        lines.append(f"path = {json.dumps(str(made.path))}")
    lines += ["[models.model.options]", *(f"{key} = {json.dumps(value)}" for key, value in made.options.items())]
    return "\n".join(lines) + "\n"
