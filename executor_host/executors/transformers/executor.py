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
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError, ExecutionFailed, InputRefused, NonFinite
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.transformers import checkpoint as transformers_checkpoint
from executor_host.executors.transformers.model import EXAMPLE, EXAMPLE_STATE, Model, Prompt, load
from protocol.contracts import transformers as contract
from protocol.payloads import TextRequest

MAX_SHOWN_CHARS: Final = 200
"""Of what transformers says about a question."""

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class TransformersExecutor(Executor):
    """`path`: the folder of a checkpoint, or a GGUF file."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._limit = 0
        self._model: Model | None = None

    def __repr__(self) -> str:
        return f"<TransformersExecutor {self._model or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the files, loads the model, and compares ways of reading it (transformers_model.py).

        Raises `ConfigurationError`: torch missing, no such device, or not a checkpoint that can be decided with.
        """
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])
        checkpoint = transformers_checkpoint.verify(
            self.path, lambda fraction, note: progress(_HASHED * fraction, note)
        )
        progress(_HASHED, "loading")
        model = load(checkpoint, device=device, dtype=dtype, execution=self.options["execution"])
        most = contract.DEFAULT_MAX_TOKENS
        limit: int = self.options["max_tokens"] or min(most, model.context or most)
        if limit > (model.context or limit):
            raise ConfigurationError(f"the option 'max_tokens' is {limit}; this model reads at most {model.context}")
        self._model, self._limit = model, limit
        progress(1.0, "loaded")
        digest, version = checkpoints.combined(checkpoint.files), importlib.metadata.version("transformers")
        return {
            "identity": contract.identity(checkpoint.name, digest, version, model.dtype, device, model.execution),
            "name": checkpoint.name,
            "sha256": digest,
            "files": dict(checkpoint.files),
            "kind": model.kind,
            "dtype": model.dtype,
            "device": device,
            "execution": model.execution,
            "label_rows": model.label_rows,
            "parameters": model.parameters,
            "limits": {
                "prompt_tokens": limit,
                "tokens": contract.MAX_TOKENS,
                "options": {kind: len(labels) for kind, labels in model.labels.items()},
            },
            "questions_together": model.together,
            "transformers": version,
        }

    def warm_up(self) -> None:
        """One request with every type of question that the model has labels for."""
        model = self._model
        if model is None:
            raise ConfigurationError("the warm-up comes after the load")
        questions = [
            {"id": name, **fields} for name, fields in EXAMPLE.items() if len(model.labels[fields["type"]]) > 1
        ]
        document = json.dumps({"state": EXAMPLE_STATE, "questions": questions}).encode()
        with warming_up():
            output = self.execute(TextRequest(document), WarmUpCall())
        if output["counts"] != [2] * len(questions) or len(output["scores"]) != 2 * len(questions):
            raise ConfigurationError("the warm-up decision has the wrong number of scores")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The scores of a `TextRequest`, as

            scores     float64 [sum of counts], question after question: log-probabilities up to a constant
            counts     of each question, how many: its options or levels in request order; [no, yes] for a noul
            tokens     of all prompts, as transformers counts them
            processed  tokens the model read
            projected  products of a hidden state and a row of the head
            execution  "rows" or "shared": what was done

        A question with one option or level has one score, 0, and a prompt of nothing else is not read. Raises
        `InputRefused` for what the model's labels, its template or the limits have no room for, `NonFinite`,
        `Abandoned`, looked for before each prompt is written and before each pass of the model, and
        `FatalExecutionError` when the device failed. The device has finished on return and on every error.
        """
        model = self._model
        if model is None:
            raise ExecutionFailed("the model is not loaded")
        state, questions = _read(payload)
        prompts = self._prompts(model, state, questions, call)
        written = [prompt for prompt in prompts if any(len(question.options) > 1 for question in prompt.questions)]
        with devices.settled(model.device.type, lambda: devices.synchronize(model.device)):
            scores = model.score(written, lambda: check(call))
        found: dict[str, list[float]] = {}
        for prompt, values in zip(written, scores.values, strict=True):
            for question, score in zip(prompt.questions, values, strict=True):
                named = dict(zip(question.options, score.tolist(), strict=True))
                found[question.name] = [named[option] for option in _order(question)]
        answers = [found.get(question["id"], [0.0]) for question in questions]
        flat = np.array([score for answer in answers for score in answer], np.float64)
        if not np.isfinite(flat).all():
            raise NonFinite("the model's scores are not finite")
        return {
            "scores": flat,
            "counts": [len(answer) for answer in answers],
            "tokens": sum(len(prompt.row.tokens) for prompt in prompts),
            "processed": scores.processed,
            "projected": scores.projected,
            "execution": "shared" if scores.shared else "rows",
        }

    def close(self) -> None:
        """Drops the model."""
        self._model = None

    def _prompts(self, model: Model, state: Any, questions: list[dict[str, Any]], call: Call) -> list[Prompt]:
        """The prompts of a request, counted as they are written: what is too long ends there."""
        groups = [questions] if model.together else [[question] for question in questions]
        prompts: list[Prompt] = []
        total = 0
        for group in groups:
            check(call)
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
                if length > self._limit:
                    message = f"{what}: the prompt has {length} tokens; the limit is {self._limit}"
                    raise InputRefused(400, "max_tokens_exceeded", where, message)
                if total > contract.MAX_TOKENS:
                    message = f"more than {contract.MAX_TOKENS} tokens in all prompts; that is the limit of one request"
                    raise InputRefused(413, "request_too_large", ("questions",), message)
                if int(prompt.row.tokens.max()) >= model.vocabulary:
                    message = f"{what}: the prompt has a token that the model has no embedding for"
                    raise InputRefused(400, "api_usage_error", where, message)
            prompts += written
        return prompts


def inspect(path: str | None, progress: Progress) -> list[str]:
    """What a checkpoint is, line by line, for people. Raises `ConfigurationError` for what cannot be one."""
    return transformers_checkpoint.inspect(path, progress)


_FIELDS: Final = frozenset({"id", "type", "instructions", "criteria"})


def _read(payload: object) -> tuple[Any, list[dict[str, Any]]]:
    """State and questions. The front has validated them; what is checked is that it did."""
    if not isinstance(payload, TextRequest):
        raise ExecutionFailed(f"a text request is expected, not {type(payload).__name__}")
    try:
        document = json.loads(payload.document)
        state, questions = document["state"], document["questions"]
        if not questions or not all(question.keys() == _FIELDS for question in questions):
            raise ValueError("questions of another form")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ExecutionFailed("the document is not a request of this family") from error
    return state, questions


def _fields(question: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in question.items() if name != "id"}


def _order(question: Any) -> list[str]:
    """The options as they are answered: in request order, the sides of a noul as [no, yes]."""
    return ["false", "true"] if question.type == "noul" else question.options


def _short(error: Exception) -> str:
    """The first line of an error, cut: the words of a library may repeat what a client sent."""
    return str(error).partition("\n")[0][:MAX_SHOWN_CHARS]
