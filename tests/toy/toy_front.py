"""The toy family in the front: uniform probabilities, and a unit per entry of the state's "units"."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from toy_family import OPTIONS

from frontend.errors import InternalError, TokensExceeded
from frontend.families.base import AssetError, Decision, Prepared, Processor
from frontend.requests.answers import choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, DecisionRequest, Noul
from protocol.payloads import TextRequest


class ToyProcessor(Processor):
    """`state` is free text, or {"op": ..., ...} as `toy_host` describes, or {"units": [state, ...]}.

    Two texts are special: "refuse me" is refused, "hang the front" never leaves this process's event loop.
    """

    OPTIONS = OPTIONS

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        super().__init__(facts, options, path)
        if self.options["fail"] == "processor":
            raise RuntimeError("the toy's processor cannot be made")
        if self.options["fail"] == "refused" and facts:
            raise AssetError("the toy's front refuses what its host brings")

    def prepare(self, request: DecisionRequest) -> Prepared:
        while request.state == "hang the front":
            pass
        if request.state == "refuse me":
            raise TokensExceeded("the toy refuses this state")
        units = (
            request.state["units"] if isinstance(request.state, dict) and "units" in request.state else [request.state]
        )
        payloads = tuple(TextRequest(json.dumps(unit).encode()) for unit in units)
        cost = sum(len(payload.document) for payload in payloads)
        return Prepared(payloads, cost=cost, work=cost, context=request.questions)

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        answers = []
        for question in prepared.context:  # type: ignore[attr-defined]
            if isinstance(question, Choice):
                answers.append(
                    (question.id, choice_answer(question, [1 / len(question.options)] * len(question.options)))
                )
            elif isinstance(question, Noul):
                answers.append((question.id, noul_answer(question, 0.5)))
            else:
                answers.append((question.id, score_answer(question, [1 / len(question.levels)] * len(question.levels))))
        last = outputs[-1]
        if not isinstance(last, dict) or "pid" not in last:
            raise InternalError("the toy's output is not one of its own")
        return Decision(tuple(answers), input_tokens=len(outputs), extras={"x_toy": last})
