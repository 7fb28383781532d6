"""What a processor of a third party may be, and what the type checker tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from frontend.families.base import Decision, Prepared, Processor
from frontend.requests.answers import Answer
from frontend.requests.questions import DecisionRequest
from protocol.options import Option, OptionTable


class Whole(Processor):
    """All of the seam, with the family's own options."""

    OPTIONS = OptionTable((Option("scale", float, 20.0, "what cosines are multiplied with", side="front"),))
    PREPARE_WEIGHT = 3

    def prepare(self, request: DecisionRequest) -> Prepared:
        return Prepared((request.state,), cost=1, work=1, context=request.questions)

    def absorb(self, prepared: Prepared, index: int, output: object) -> float:
        return 0.5  # narrower than the seam asks for

    def settled(self, prepared: Prepared, index: int, kept: object) -> list[tuple[str, Answer]]:
        return []

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        return Decision((), input_tokens=len(outputs))


made: Processor = Whole({}, {"scale": 1.0})
assert_type(Decision((), 0).usage, dict[str, int])


class Half(Processor):
    """Without `finish`."""

    def prepare(self, request: DecisionRequest) -> Prepared:
        raise NotImplementedError


Half({}, {})  # expect: abstract


class Other(Processor):
    """With other arguments and results than the front's."""

    def prepare(self, request: bytes) -> Prepared:  # expect: override
        raise NotImplementedError

    async def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:  # expect: override
        raise NotImplementedError


Prepared((), cost=1.5, work=1, context=None)  # expect: arg-type
Prepared((), cost=1, work=1, context=None).cost = 2  # expect: misc
Decision({"a": 0.5}, input_tokens=0)  # expect: arg-type
