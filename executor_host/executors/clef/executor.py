"""The clef family in the host: a whole request as text in, one logit per option out (Cloudflare Clef and Clef-flash).

One unit is one complete request, which is one sequence: its questions are decided together and are never split.

    document ─▶ clef_encoding: tokens, spans ─▶ backbones/qwen3_5.py: one pass ─▶ clef_head: logits ─▶ request order

Softmax, answers and rounding are the front's. An error of an execution retires the host (`Family.retire_on_error`);
an input that this model cannot be asked does not, and neither does a payload that is none of this family's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from executor_host import checkpoints, devices
from executor_host.backbones import qwen3_5
from executor_host.errors import ConfigurationError, ExecutionFailed, NonFinite
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.clef import checkpoint as folders
from executor_host.executors.clef import encoding
from executor_host.executors.clef.head import JointHead
from protocol.contracts import clef as contract
from protocol.errors import Malformed
from protocol.payloads import TextRequest

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""

WARM_UP: Final[Mapping[str, Any]] = {
    "state": {"message": "I was charged twice for one order. Please send the money back.", "attempts": 2},
    "questions": [
        {
            "id": "team",
            "type": "choice",
            "instructions": "Which team should answer?",
            "criteria": {"login": "Passwords and access.", "billing": "Charges and refunds."},
        },
        {"id": "refund", "type": "noul", "instructions": "Is the money asked back?", "criteria": None},
        {"id": "urgency", "type": "score", "instructions": None, "criteria": ["can wait", "this week", "today"]},
    ],
}


class ClefExecutor(Executor):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._max_length: int = self.options["max_length"]
        self._truncate: bool = self.options["truncate"]
        self._tokenizer: Any = None
        self._backbone: qwen3_5.Qwen35 | None = None
        self._head: JointHead | None = None

    def __repr__(self) -> str:
        return f"<ClefExecutor {self._backbone or 'not loaded'} max_length={self._max_length}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the folder, loads backbone, LM head and joint head. Raises `ConfigurationError`: torch missing, no
        such device, or a folder that is not a checkpoint of this family (clef_checkpoint.py)."""
        torch, _ = qwen3_5.libraries()
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])
        checkpoint = folders.verify(self.path, lambda fraction, note: progress(_HASHED * fraction, note))
        progress(_HASHED, "loading")
        from safetensors.torch import load_file

        model, target = qwen3_5.causal_lm(checkpoint.path, device=device, dtype=dtype)
        placed = {"device": target, "dtype": getattr(torch, dtype)}
        self._head = JointHead(
            checkpoint.head,
            {name: tensor.to(**placed) for name, tensor in load_file(checkpoint.path / folders.HEAD).items()},
            model.lm_head.weight.to(target),
        )
        self._backbone = qwen3_5.Qwen35(model.model.to(target), qwen3_5.Settings(execution="rows"))
        self._tokenizer = checkpoints.tokenizer(checkpoint.path / folders.TOKENIZER)
        progress(1.0, "loaded")
        weights = {name: digest for name, digest in checkpoint.files.items() if name.endswith(".safetensors")}
        return {
            "identity": contract.identity(
                checkpoint.name,
                checkpoints.combined(checkpoint.files),
                dtype,
                device,
                self._max_length,
                self._truncate,
            ),
            "name": checkpoint.name,
            "sha256": checkpoints.combined(weights),
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "checkpoint_revision": checkpoint.revision,
            "dtype": dtype,
            "device": device,
            "parameters": checkpoint.parameters,
            "limits": {"tokens": self._max_length},
            "truncate": self._truncate,
        }

    def warm_up(self) -> None:
        """One request with every type of question."""
        request = TextRequest(json.dumps(WARM_UP).encode())
        with warming_up():
            output = self.execute(request, WarmUpCall())
        if output["counts"].tolist() != [2, 2, 3] or len(output["logits"]) != 7:
            raise ConfigurationError("the warm-up decision has the wrong number of logits")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The logits of a `TextRequest`, whose questions have an `id`, as

            logits      float32 [options of all questions], raw, question after question in request order; a choice's
                        options as sent, a noul's as [true, false]
            counts      int32 [questions], how many of them each has
            tokens      what the model read
            truncated   None, or {"kept", "total"}: tokens of a state that was cut

        In bfloat16 a logit is rounded to bfloat16, then widened. Raises `InputRefused` (clef_encoding.py); `NonFinite`;
        `Abandoned`, looked for before the encoding, before the pass of the model and after it;
        `protocol.errors.Malformed` for a document that is no request of this family; `FatalExecutionError` when the
        device failed. The device has finished on return and on every error.
        """
        backbone, head = self._backbone, self._head
        if backbone is None or head is None:
            raise ExecutionFailed("the model is not loaded")
        state, questions = _read(payload)
        check(call)
        encoded = encoding.encode(
            state, questions, self._tokenize, max_length=self._max_length, truncate=self._truncate
        )
        with devices.settled(backbone.device.type, backbone.synchronize):
            hidden = backbone.read_all(encoded.tokens, lambda: check(call))
            check(call)
            found = head.logits(hidden, encoded.tokens, encoded.fields).float().cpu().numpy()
        if not np.isfinite(found).all():
            raise NonFinite("the model's logits are not finite")
        cut = encoded.kept < encoded.total
        return {
            "logits": found[encoded.request_order],
            "counts": np.array([len(field.options) for field in encoded.fields], np.int32),
            "tokens": len(encoded.tokens),
            "truncated": {"kept": encoded.kept, "total": encoded.total} if cut else None,
        }

    def close(self) -> None:
        """Drops the model."""
        if self._backbone is not None:
            self._backbone.close()
        self._backbone = self._head = self._tokenizer = None

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


_CRITERIA: Final[dict[str, tuple[type, ...]]] = {"choice": (dict,), "score": (list,), "noul": (dict, type(None))}


def _read(payload: object) -> tuple[object, list[dict[str, Any]]]:
    """State and questions. The front has validated them; what is checked is that it did."""
    if not isinstance(payload, TextRequest):
        raise ExecutionFailed(f"a text request is expected, not {type(payload).__name__}")
    try:
        document = json.loads(payload.document)
        state, questions = document["state"], document["questions"]
        if not questions:
            raise ValueError("no questions")
        for question in questions:
            criteria, expected = question["criteria"], _CRITERIA[question["type"]]
            if not isinstance(question["id"], str) or not isinstance(criteria, expected):
                raise ValueError("a field of the wrong kind")
            if question["type"] != "noul" and not criteria:
                raise ValueError("no options")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed("the document is not a request of this family") from error
    return state, questions
