"""A family whose answers say what was executed, and for whom, so that a wrong one is seen."""

from __future__ import annotations

import json
from collections.abc import Sequence

from frontend.families.base import Decision, Prepared, Processor
from frontend.requests.answers import noul_answer
from frontend.requests.questions import DecisionRequest
from protocol.families import Family
from protocol.options import Option, OptionTable
from protocol.payloads import TextRequest

OPTIONS = OptionTable(
    (
        Option("fail", str, "", "how loading fails", side="both"),
        Option("identity", str, "one", "what the host calls its model", side="both"),
    )
)


class SimulatedProcessor(Processor):
    """A state is [number, units]; unit `index` of it is the document [number, index]."""

    OPTIONS = OPTIONS

    def prepare(self, request: DecisionRequest) -> Prepared:
        number, units = request.state  # type: ignore[misc]
        documents = tuple(TextRequest(json.dumps([number, index]).encode()) for index in range(units))
        return Prepared(documents, cost=units, work=1, context=(number, self.facts.get("identity"), request.questions))

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        number, identity, questions = prepared.context  # type: ignore[misc]
        for index, output in enumerate(outputs):
            if output != {"unit": [number, index], "identity": identity}:
                raise AssertionError(f"unit {index} of request {number} for {identity!r} was answered {output!r}")
        return Decision(tuple((question.id, noul_answer(question, 0.5)) for question in questions), len(outputs))


SIMULATED = Family(
    name="simulated",
    processor="tests.simulation.family:SimulatedProcessor",
    executor="",
    payload="protocol.payloads:TextRequest",
    options=OPTIONS,
)

SHARING = Family(
    name="simulated_sharing",
    processor="tests.simulation.family:SimulatedProcessor",
    executor="",
    payload="protocol.payloads:TextRequest",
    options=OPTIONS,
    pure=True,
)
"""The same, which says of itself that equal payloads have equal answers."""
