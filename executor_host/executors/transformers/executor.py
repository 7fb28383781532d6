"""The transformers family in the host: a whole request as text in, one score per option out.

Everything is done here, the reading of the text included: prompts, labels and temperatures by transformers' own code
(its package `decision`), tokens through the model by ours (transformers_model.py, backbones/causal.py). Normalising and
everything after it are the front's.

One unit is one complete request. Questions are prompts of their own, unless the checkpoint's template writes all of
them into one.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from executor_host import checkpoints
from executor_host.errors import ConfigurationError, InputRefused, NonFinite
from executor_host.executors import documents
from executor_host.executors.torch_executor import TorchExecutor
from executor_host.executors.transformers import checkpoint as folders
from executor_host.executors.transformers.checkpoint import Checkpoint
from executor_host.executors.transformers.model import EXAMPLE, EXAMPLE_STATE, Model, Prompt, Scores, load
from protocol.contracts import agreement
from protocol.contracts import transformers as contract
from protocol.payloads import TextRequest

MAX_SHOWN_CHARS: Final = 200
"""Of what transformers says about a question."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the model reads it."""

    questions: list[dict[str, Any]]
    prompts: list[Prompt]

    @property
    def written(self) -> list[Prompt]:
        """The prompts that are read: those with a question that has something to choose."""
        return [prompt for prompt in self.prompts if any(len(question.options) > 1 for question in prompt.questions)]


class TransformersExecutor(TorchExecutor[Checkpoint, Model, Asked, Scores]):
    """`path`: the folder of a checkpoint, or a GGUF file."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = TextRequest

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(self.path, progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> Model:
        """The model, with what it can do otherwise than transformers does."""
        model = load(
            checkpoint,
            device=device,
            dtype=dtype,
            execution=self.options["execution"],
            kept_bytes=self.options["prefix_cache_mb"] << 20,
            segment=self.options["prefix_segment"],
        )
        limit = self._limit(model)
        if limit > (model.context or limit):
            raise ConfigurationError(f"the option 'max_tokens' is {limit}; this model reads at most {model.context}")
        return model

    def facts(self, checkpoint: Checkpoint, model: Model, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and what the model is asked with."""
        digest, version = checkpoints.combined(checkpoint.files), importlib.metadata.version("transformers")
        return {
            "identity": contract.identity(checkpoint.name, digest, version, model.dtype, device, model.execution)
            + agreement.kept(None if model.kept is None else model.kept.segment),
            "name": checkpoint.name,
            "sha256": digest,
            "kind": model.kind,
            "dtype": model.dtype,
            "execution": model.execution,
            "label_rows": model.label_rows,
            "parameters": model.parameters,
            "limits": {
                "prompt_tokens": self._limit(model),
                "tokens": contract.MAX_TOKENS,
                "options": {kind: len(labels) for kind, labels in model.labels.items()},
            },
            "questions_together": model.together,
            "transformers": version,
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[TextRequest]:
        """One request with every type of question that the model has labels for."""
        assert self._model is not None
        labels = self._model.labels
        questions = [{"id": name, **fields} for name, fields in EXAMPLE.items() if len(labels[fields["type"]]) > 1]
        yield TextRequest(json.dumps({"state": EXAMPLE_STATE, "questions": questions}).encode())

    def fits(self, example: TextRequest, output: Mapping[str, Any]) -> bool:
        """Two scores for each of its questions."""
        asked = len(json.loads(example.document)["questions"])
        return output["counts"] == [2] * asked and len(output["scores"]) == 2 * asked

    def accept(self, payload: TextRequest, checkpoint: Checkpoint, model: Model, look: Callable[[], None]) -> Asked:
        """The prompts of the request. Raises `InputRefused` for what the model's labels, its template or the limits
        have no room for."""
        state, questions = documents.read(payload, ids=True)
        return Asked(questions, self._prompts(model, state, questions, look))

    def run(self, request: Asked, model: Model, look: Callable[[], None]) -> Scores:
        """The scores of the prompts that are read."""
        return model.score(request.written, look)

    def outputs(self, request: Asked, result: Scores, model: Model) -> dict[str, Any]:
        """The scores of a `TextRequest`, as

            scores     float64 [sum of counts], question after question: log-probabilities up to a constant
            counts     of each question, how many: its options or levels in request order; [no, yes] for a noul
            tokens     of all prompts, as transformers counts them
            processed  tokens the model read
            projected  products of a hidden state and a row of the head
            execution  "rows" or "shared": what was done
            statistics of kept prefixes since the start of this host (backbones/kept.py), where there are any

        A question with one option or level has one score, 0, and a prompt of nothing else is not read. Raises
        `InputRefused` for what the model's labels, its template or the limits have no room for, `NonFinite`,
        `Abandoned`, looked for before each prompt is written and before each pass of the model, and
        `FatalExecutionError` when the device failed. The device has finished on return and on every error.
        """
        found: dict[str, list[float]] = {}
        for prompt, values in zip(request.written, result.values, strict=True):
            for question, score in zip(prompt.questions, values, strict=True):
                named = dict(zip(question.options, score.tolist(), strict=True))
                found[question.name] = [named[option] for option in _order(question)]
        answers = [found.get(question["id"], [0.0]) for question in request.questions]
        flat = np.array([score for answer in answers for score in answer], np.float64)
        if not np.isfinite(flat).all():
            raise NonFinite("the model's scores are not finite")
        return {
            "scores": flat,
            "counts": [len(answer) for answer in answers],
            "tokens": sum(len(prompt.row.tokens) for prompt in request.prompts),
            "processed": result.processed,
            "projected": result.projected,
            "execution": "shared" if result.shared else "rows",
            **({} if model.kept is None else {"statistics": {"kept": model.kept.statistics()}}),
        }

    def _limit(self, model: Model) -> int:
        """Most tokens of one prompt."""
        most = contract.DEFAULT_MAX_TOKENS
        limit: int = self.options["max_tokens"] or min(most, model.context or most)
        return limit

    def _prompts(
        self, model: Model, state: Any, questions: list[dict[str, Any]], look: Callable[[], None]
    ) -> list[Prompt]:
        """The prompts of a request, counted as they are written: what is too long ends there."""
        limit = self._limit(model)
        groups = [questions] if model.together else [[question] for question in questions]
        prompts: list[Prompt] = []
        total = 0
        for group in groups:
            look()
            only = None if model.together else group[0]["id"]
            where = ("questions",) if only is None else ("questions", only)
            what = "the questions" if only is None else f"question {_short(only)!r}"
            asked = {question["id"]: _fields(question) for question in group}
            try:
                model.parse(asked)
            except ValueError as error:
                raise InputRefused(422, "invalid_request", where, f"{what}: {_short(error)}") from error
            try:
                written = model.prepare(state, asked)
            except Exception as error:  # a template raises whatever its filters raise; the warm-up's went through
                message = f"{what}: the model's template has no words for it: {_short(error)}"
                raise InputRefused(400, "api_usage_error", where, message) from error
            for prompt in written:
                length = len(prompt.row.tokens)
                total += length
                if length > limit:
                    message = f"{what}: the prompt has {length} tokens; the limit is {limit}"
                    raise InputRefused(400, "max_tokens_exceeded", where, message)
                if total > contract.MAX_TOKENS:
                    message = f"more than {contract.MAX_TOKENS} tokens in all prompts; that is the limit of one request"
                    raise InputRefused(413, "request_too_large", ("questions",), message)
                if int(prompt.row.tokens.max()) >= model.vocabulary:
                    message = f"{what}: the prompt has a token that the model has no embedding for"
                    raise InputRefused(400, "api_usage_error", where, message)
            prompts += written
        return prompts


def _fields(question: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in question.items() if name != "id"}


def _order(question: Any) -> list[str]:
    """The options as they are answered: in request order, the sides of a noul as [no, yes]."""
    return ["false", "true"] if question.type == "noul" else question.options


def _short(error: Exception) -> str:
    """The first line of an error, cut: the words of a library may repeat what a client sent."""
    return str(error).partition("\n")[0][:MAX_SHOWN_CHARS]
