"""A family for tests of the front: units that are numbered documents, preparation that a test can hold back."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from frontend.families.base import AssetError, Decision, Prepared, Processor
from frontend.requests.answers import Answer, noul_answer
from frontend.requests.questions import DecisionRequest
from protocol.families import Family
from protocol.payloads import TextRequest

GATE = threading.Event()
"""`prepare` waits for it when the state is "held"."""

ENTERED = threading.Event()
"""Set by a `prepare` that waits."""


class FakeProcessor(Processor):
    """State "units:N" makes N units, "cost:N" costs N, "large" is finished in the pool, "held" waits for GATE.
    "early:N" makes N units, each of which settles the question of its index.

    A host whose identity is "foreign" is refused; of one that is "hostile" or "final" no processor can be made, and one
    that is "silent" has a file that cannot be read before GATE is set.
    """

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        super().__init__(facts, options, path)
        if facts.get("identity") == "foreign":
            raise AssetError("these are other weights")
        if facts.get("identity") == "hostile":
            raise ZeroDivisionError("not\nmine")
        if facts.get("identity") == "final":
            raise SystemExit(3)
        if facts.get("identity") == "silent":
            GATE.wait(20)

    def prepare(self, request: DecisionRequest) -> Prepared:
        state = str(request.state)
        if state == "held":
            ENTERED.set()
            assert GATE.wait(20)
        kind, _, number = state.partition(":")
        count = int(number) if kind in ("units", "early") else 1
        units = tuple(TextRequest(json.dumps([state, index]).encode()) for index in range(count))
        return Prepared(
            units,
            cost=int(number) if kind == "cost" else 1,
            work=2**20 if state == "large" else 1,
            context=(kind, request.questions),
        )

    def settled(self, prepared: Prepared, index: int, kept: object) -> Sequence[tuple[str, Answer]]:
        kind, questions = prepared.context  # type: ignore[misc]
        return ((questions[index].id, noul_answer(questions[index], 0.5)),) if kind == "early" else ()

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        _, questions = prepared.context  # type: ignore[misc]
        answers = tuple((question.id, noul_answer(question, 0.5)) for question in questions)
        return Decision(answers, len(outputs), extras={"x_all": list(outputs)})


FAKE = Family(
    name="fake",
    processor="tests.helpers.fake_family:FakeProcessor",
    executor="",
    payload="protocol.payloads:TextRequest",
)
