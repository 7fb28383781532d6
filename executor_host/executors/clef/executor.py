"""The clef family in the host: a whole request as text in, one logit per option out (Cloudflare Clef and Clef-flash).

One unit is one complete request, which is one sequence: its questions are decided together and are never split.

    document ─▶ clef_encoding: tokens, spans ─▶ backbones/qwen3_5.py: one pass ─▶ clef_head: logits ─▶ request order

Softmax, answers and rounding are the front's. An error of an execution retires the host (`Family.retire_on_error`);
an input that this model cannot be asked does not, and neither does a payload that is none of this family's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones import loading, qwen3_5
from executor_host.backbones.kept import KeptPrefixes
from executor_host.errors import NonFinite
from executor_host.executors import documents
from executor_host.executors.clef import checkpoint as folders
from executor_host.executors.clef import encoding
from executor_host.executors.clef.checkpoint import Checkpoint
from executor_host.executors.clef.encoding import Encoded
from executor_host.executors.clef.head import JointHead
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import clef as contract
from protocol.payloads import TextRequest

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


@dataclass(frozen=True, slots=True)
class ClefModel:
    """The loaded parts, all on one device."""

    backbone: qwen3_5.Qwen35
    head: JointHead
    tokenizer: Any

    @property
    def device(self) -> Any:
        """The torch device."""
        return self.backbone.device

    @property
    def kept(self) -> KeptPrefixes | None:
        """What is kept between requests; None when nothing is."""
        return self.backbone.kept

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens of the tokenizer's own."""
        return [each.ids for each in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def close(self) -> None:
        """Drops the backbone."""
        self.backbone.close()


class ClefExecutor(TorchExecutor[Checkpoint, ClefModel, Encoded, NDArray[np.float32]]):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = TextRequest

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(self.path, progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> ClefModel:
        """Backbone, LM head and joint head."""
        import torch
        from safetensors.torch import load_file

        model, target = loading.causal_lm(checkpoint.path, device=device, dtype=dtype)
        placed = {"device": target, "dtype": getattr(torch, dtype)}
        head = JointHead(
            checkpoint.head,
            {name: tensor.to(**placed) for name, tensor in load_file(checkpoint.path / folders.HEAD).items()},
            model.lm_head.weight.to(target),
        )
        settings = qwen3_5.Settings(
            execution="rows",
            kept_bytes=self.options["prefix_cache_mb"] << 20,
            segment=self.options["prefix_segment"],
            every_position=True,
        )
        backbone = qwen3_5.Qwen35(model.model.to(target), settings)
        return ClefModel(backbone, head, checkpoints.tokenizer(checkpoint.path / folders.TOKENIZER))

    def facts(self, checkpoint: Checkpoint, model: ClefModel, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and the released revision where it is known."""
        longest, truncate = self.options["max_length"], self.options["truncate"]
        digest = checkpoints.combined(checkpoint.files)
        return {
            "identity": contract.identity(checkpoint.name, digest, dtype, device, longest, truncate)
            + agreement.kept(model.backbone.segment),
            "name": checkpoint.name,
            "sha256": checkpoints.combined(checkpoints.of_weights(checkpoint.files)),
            "checkpoint_revision": checkpoint.revision,
            "parameters": checkpoint.parameters,
            "limits": {"tokens": longest},
            "truncate": truncate,
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[TextRequest]:
        """One request with every type of question."""
        yield TextRequest(json.dumps(WARM_UP).encode())

    def fits(self, example: TextRequest, output: Mapping[str, Any]) -> bool:
        """Two options, two sides, three levels."""
        return output["counts"].tolist() == [2, 2, 3] and len(output["logits"]) == 7

    def accept(
        self, payload: TextRequest, checkpoint: Checkpoint, model: ClefModel, look: Callable[[], None]
    ) -> Encoded:
        """The one sequence of the request. Raises `Malformed` for a document that is none of this family's, and
        `InputRefused` as `encoding.encode`."""
        state, questions = documents.read(payload, ids=True)
        look()
        longest, truncate = self.options["max_length"], self.options["truncate"]
        return encoding.encode(state, questions, model.tokenize, max_length=longest, truncate=truncate)

    def run(self, request: Encoded, model: ClefModel, look: Callable[[], None]) -> NDArray[np.float32]:
        """The logits in reading order."""
        hidden = model.backbone.read_all(request.tokens, look, request.state_end)
        look()
        found: NDArray[np.float32] = model.head.logits(hidden, request.tokens, request.fields).float().cpu().numpy()
        return found

    def outputs(self, request: Encoded, result: NDArray[np.float32], model: ClefModel) -> dict[str, Any]:
        """The logits of a `TextRequest`, whose questions have an `id`, as

            logits      float32 [options of all questions], raw, question after question in request order; a choice's
                        options as sent, a noul's as [true, false]
            counts      int32 [questions], how many of them each has
            tokens      what the model read
            truncated   None, or {"kept", "total"}: tokens of a state that was cut
            statistics  of kept prefixes since the start of this host (backbones/kept.py), where there are any

        In bfloat16 a logit is rounded to bfloat16, then widened. Raises `InputRefused` (clef_encoding.py); `NonFinite`;
        `Abandoned`, looked for before the encoding, before the pass of the model and after it;
        `protocol.errors.Malformed` for a document that is no request of this family; `FatalExecutionError` when the
        device failed. The device has finished on return and on every error.
        """
        if not np.isfinite(result).all():
            raise NonFinite("the model's logits are not finite")
        cut = request.kept < request.total
        return {
            "logits": result[request.request_order],
            "counts": np.array([len(field.options) for field in request.fields], np.int32),
            "tokens": len(request.tokens),
            "truncated": {"kept": request.kept, "total": request.total} if cut else None,
            **({} if model.backbone.segment is None else {"statistics": model.backbone.statistics()}),
        }
