"""The decider family in the host: rows of tokens in, the raw logits of their labels out (Mapika/decider-2b v11).

The front renders and tokenizes; every row ends with the `(` of its answer slot. The model reads the rows
(backbones/qwen3_5.py), and the hidden state of each row's last token is multiplied by the first `n` label rows
of the tied head, n being the row's options. Temperatures and everything after them are the front's.

One unit is one complete request: all its rows, and the projection. The contract retires the host on any error
of an execution (`Family.retire_on_error`); a payload that is not one for this model is a mistake of the sender,
and does not.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host.backbones import loading, qwen3_5
from executor_host.errors import NonFinite
from executor_host.executors.decider import checkpoint as released
from executor_host.executors.decider.checkpoint import Checkpoint
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import decider as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

HEAD_ROWS: Final = 256
"""The label rows and one of zeros: a size that matrix kernels like. Always all of them, so that a
row's logits do not depend on how many options its neighbours have."""

Result: TypeAlias = tuple[NDArray[np.float32], qwen3_5.Reading]
"""Logits [rows, HEAD_ROWS], and what was read for them."""


class DeciderExecutor(TorchExecutor[Checkpoint, qwen3_5.Qwen35, RowsRequest, Result]):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = RowsRequest

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._settings = self._on("cpu")
        self._head: Any = None

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return released.verify(self.path, claimed=self.options["revision"] is not None, progress=progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> qwen3_5.Qwen35:
        """The backbone, and the head of the labels' rows."""
        import torch

        self._settings = self._on(device)
        backbone = qwen3_5.load(checkpoint.path, device=device, dtype=dtype, settings=self._settings)
        with torch.inference_mode():
            head = torch.zeros(HEAD_ROWS, backbone.hidden_size, dtype=backbone.dtype, device=backbone.device)
            head[: len(checkpoint.labels)] = backbone.embeddings(checkpoint.labels)
        self._head = head
        self.max_units = backbone.joint_units
        return backbone

    def _on(self, device: str) -> qwen3_5.Settings:
        """How rows are read on a device of this name."""
        rows, tokens = self.options["batch_rows"], self.options["batch_tokens"]
        return qwen3_5.settings_of(self.options, rows, tokens, device=device)

    def facts(self, checkpoint: Checkpoint, model: qwen3_5.Qwen35, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and labels and temperatures, which the front has from the same files."""
        how = self._settings
        return {
            "identity": contract.identity(checkpoint.files, dtype, device, how.execution, how.max_rows, how.max_tokens)
            + agreement.kept(model.segment),
            "name": contract.MODEL_ID,
            "sha256": checkpoint.files["model.safetensors"],
            "released": checkpoint.released,
            "checkpoint_revision": contract.REVISION if checkpoint.released else None,
            "execution": how.execution,
            "graphs": how.graphs,
            "parameters": checkpoint.parameters,
            "limits": {
                "row_tokens": contract.MAX_ROW_TOKENS,
                "state_tokens": contract.MAX_STATE_TOKENS,
                "rows": contract.MAX_ROWS,
                "tokens": contract.MAX_TOKENS,
                "options": contract.LABELS,
                "batch_rows": how.max_rows,
                "batch_tokens": how.max_tokens,
            },
            "label_ids": list(checkpoint.labels),
            "temperatures": asdict(checkpoint.temperatures),
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[RowsRequest]:
        """One request with every kind of row: a choice, a noul, and a score with its levels, over a short state. Where
        passes are recorded it comes twice: the second one replays what the first one recorded."""
        return [_example(checkpoint)] * (2 if self._settings.graphs else 1)

    def fits(self, example: RowsRequest, output: Mapping[str, Any]) -> bool:
        """A logit per candidate."""
        counts = output["counts"].tolist()
        return bool(counts == example.candidates.tolist() and len(output["logits"]) == example.candidates.sum())

    def accept(
        self, payload: RowsRequest, checkpoint: Checkpoint, model: qwen3_5.Qwen35, look: Callable[[], None]
    ) -> RowsRequest:
        """What `RowsRequest.from_wire` has checked, but for what only the model knows."""
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if int(payload.candidates.max()) > contract.LABELS:
            raise Malformed(f"a row has at most {contract.LABELS} candidates")
        if int(payload.lengths.max()) > contract.MAX_ROW_TOKENS:
            raise Malformed(f"a row has at most {contract.MAX_ROW_TOKENS} tokens")
        if payload.rows > contract.MAX_ROWS or len(payload.tokens) > contract.MAX_TOKENS:
            raise Malformed(f"a request has at most {contract.MAX_ROWS} rows and {contract.MAX_TOKENS} tokens")
        return payload

    def run(self, request: RowsRequest, model: qwen3_5.Qwen35, look: Callable[[], None]) -> Result:
        """The rows through the model, their last states through the head."""
        reading = model.read(*request.split(), look, request.shared)
        return self._project(reading.hidden), reading

    def run_many(self, requests: Sequence[RowsRequest], model: qwen3_5.Qwen35) -> Sequence[Result]:
        """The rows of all together, as far as they share nothing; each one's states through the head alone, in the
        shape that they have without company."""
        return [
            (self._project(reading.hidden), reading)
            for reading in model.read_many([request.split() for request in requests])
        ]

    def outputs(self, request: RowsRequest, result: Result, model: qwen3_5.Qwen35) -> dict[str, Any]:
        """The logits of a `RowsRequest`, as

            logits      float32 [sum of candidates], row after row, raw
            counts      int32 [rows], how many of them each row has: the candidates asked for
            execution   "rows", "packed", "shared" or "kept": what was done
            processed   tokens the model read, padding not counted; at most the tokens of all rows
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        In bfloat16 a logit is rounded to bfloat16, then widened. Raises `NonFinite`; `Abandoned`, looked for before
        each pass of the model; `protocol.errors.Malformed` for rows this model has no tokens or labels for, or that
        are beyond its limits; `FatalExecutionError` when the device failed. The device has finished on return and on
        every error.
        """
        logits, reading = result
        chosen = np.arange(HEAD_ROWS) < request.candidates[:, None]
        # A hidden value that is no number makes every logit of its row none, so these are all there is to look at.
        if not np.isfinite(logits[chosen]).all():
            raise NonFinite("the model's logits are not finite")
        return {
            "logits": logits[chosen],
            "counts": request.candidates.astype(np.int32),
            "execution": reading.execution,
            "processed": reading.processed,
            "statistics": model.statistics(),
        }

    def close(self) -> None:
        """Drops the model and the head."""
        super().close()
        self._head = None

    def _project(self, hidden: Any) -> NDArray[np.float32]:
        """The logits [rows, HEAD_ROWS] of hidden states [rows, size], in float32 on the CPU."""
        import torch

        with torch.inference_mode():
            logits: NDArray[np.float32] = torch.nn.functional.linear(hidden, self._head).float().cpu().numpy()
        return logits


def _example(checkpoint: Checkpoint) -> RowsRequest:
    """The warm-up's rows, in the family's own words."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(checkpoint.path / contract.TOKENIZER))
    state = "Context:\nThe customer was charged twice for one order and asks for the money back."
    levels = [
        f"How urgent is it?\nProposed answer: {level}\nDoes the proposed answer fit?" for level in ("low", "high")
    ]
    asked = [
        (0, "Which team?", ("billing: charges", "login: passwords")),
        (1, "Does the customer want a refund?", ("no", "yes")),
        *((2, level, ("no", "yes")) for level in levels),
    ]
    rows = []
    for _, question, options in asked:
        lines = "".join(f"\n({label}) {option}" for label, option in zip("AB", options, strict=True))
        text = f"\n\nQuestion: {question}\nOptions:{lines}\nAnswer: ("
        rows.append([token for part in (state, text) for token in encoder.encode(part, add_special_tokens=False).ids])
    return RowsRequest(
        tokens=np.array([token for row in rows for token in row], np.int32),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.array([len(options) for _, _, options in asked], np.int32),
        questions=np.array([question for question, _, _ in asked], np.int32),
    )
