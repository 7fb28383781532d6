"""`temperature` of a model, from the configuration to the answer, in one piece and as events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.process.harness import running, streamed

QUESTIONS = {
    "team": {"type": "choice", "criteria": {"billing": "a charge or a refund", "bug": "something is broken"}},
    "refund": {"type": "noul", "criteria": {"true": "money back", "false": "a question"}},
    "harm": {"type": "score", "criteria": ["small: a question", "large: money was lost"]},
}


def probabilities(answers: dict[str, Any]) -> list[float]:
    return [
        *answers["team"]["probabilities"].values(),
        answers["refund"]["noul"],
        *answers["harm"]["probabilities"].values(),
    ]


def test_a_temperature_is_applied_to_every_answer(runtime: Path) -> None:
    """Two models with the same weights, one at 2: the odds of its answers are the square roots of the other's."""
    config = runtime / "c.toml"
    config.write_text(
        '[models.plain]\nfamily = "sparrow"\n\n[models.cool]\nfamily = "sparrow"\ntemperature = 2.0\n', encoding="utf-8"
    )
    with running(runtime, config=config) as server:
        body = {"state": "I was charged twice", "questions": QUESTIONS}
        plain, cool = (server.post({**body, "model": name}) for name in ("plain", "cool"))
        assert plain.status == cool.status == 200
        for sure, less in zip(*(probabilities(one.json["answers"]) for one in (plain, cool)), strict=True):
            assert less / (1 - less) == pytest.approx((sure / (1 - sure)) ** 0.5)
        events = streamed(server.post({**body, "model": "cool"}, accept="text/event-stream"))
        told = {data["id"]: data["answer"] for name, data in events if name == "answer"}
        assert told == cool.json["answers"]
