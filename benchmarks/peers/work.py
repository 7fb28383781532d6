"""What a peer's worker computes: the same as framehost's host would, called in its own process.

    noop        the answers of the floors, at once
    busy=MS     the same after so many milliseconds of processor time
    encoder=DIR the decisions of the `embedding` family with the encoder in DIR, all of a batch in one pass

    torch=DIR   about the same decisions with transformers, as one writes it

With `encoder` the family is framehost's own code on both sides, so that only the servers differ.
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
    if name == "torch":
        return _torch_encoder(argument)
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


def _torch_encoder(folder: str) -> Decide:
    """As one writes it with transformers: the texts of a batch in one padded pass; options are kept."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    known: dict[str, Any] = {}

    @torch.inference_mode()
    def encoded(texts: Sequence[str]) -> Any:
        batch = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"][..., None]
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)

    def answered(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        states = encoded([request["state"] for request in requests])
        found = []
        for request, state in zip(requests, states, strict=True):
            answers: dict[str, Any] = {}
            for name, question in request["questions"].items():
                options = question.get("criteria") or {"false": "no", "true": question["instructions"]}
                new = [text for text in options.values() if text not in known]
                known.update(zip(new, encoded(new) if new else (), strict=True))
                vectors = torch.stack([known[text] for text in options.values()])
                values = torch.softmax(20 * (vectors @ state), 0).tolist()
                answers[name] = {"type": question["type"], "probabilities": dict(zip(options, values, strict=True))}
            found.append({"model": "m", "answers": answers, "usage": {"input_tokens": 1, "output_tokens": 0}})
        return found

    return answered
