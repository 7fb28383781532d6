"""What a peer's worker computes: the same as framehost's host would, called in its own process.

    noop        the answers of the floors, at once
    busy=MS     the same after so many milliseconds of processor time
    encoder=DIR the decisions of the `embedding` family with the encoder in DIR, all of a batch in one pass

The family is framehost's own code on both sides, so that only the servers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.floor.work import decide

Decide = Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]
"""The answers to the requests of a batch, in their order."""


def loaded(work: str) -> Decide:
    """The work of this name, ready."""
    name, _, argument = work.partition("=")
    if name == "encoder":
        return _encoder(argument)
    busy_s = float(argument or 0) / 1000
    return lambda requests: [decide(request, busy_s) for request in requests]


def _encoder(folder: str) -> Decide:
    from executor_host.executors.base import WarmUpCall
    from executor_host.executors.embedding.executor import EmbeddingExecutor
    from frontend.families.embedding.processor import EmbeddingProcessor
    from frontend.http import systemone

    executor = EmbeddingExecutor(folder, {})
    facts = executor.load(lambda done, words: None)
    executor.warm_up()
    processor = EmbeddingProcessor(facts, {}, folder)

    def answered(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        parsed = [systemone.parse_request(request) for request in requests]
        prepared = [processor.prepare(request) for request in parsed]
        units = [each.units[0] for each in prepared]
        outputs = executor.execute_many(units, [WarmUpCall()] * len(units))
        return [
            systemone.render(request, "m", processor.finish(ready, [output]))
            for request, ready, output in zip(parsed, prepared, outputs, strict=True)
        ]

    return answered
