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

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from executor_host import checkpoints, devices
from executor_host.backbones import qwen3_5
from executor_host.errors import (
    ConfigurationError,
    ExecutionFailed,
    NonFinite,
)
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.decider import checkpoint as released
from protocol.contracts import decider as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

HEAD_ROWS: Final = 256
"""The label rows and one of zeros: a size that matrix kernels like. Always all of them, so that a
row's logits do not depend on how many options its neighbours have."""

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class DeciderExecutor(Executor):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._graphs: bool = self.options["graphs"]
        execution = self.options["execution"]
        if self._graphs and execution == "auto":
            execution = "packed"
        self._settings = qwen3_5.Settings(
            execution=execution,
            max_rows=self.options["batch_rows"],
            max_tokens=self.options["batch_tokens"],
            graphs=self._graphs,
        )
        self._checkpoint: released.Checkpoint | None = None
        self._backbone: qwen3_5.Qwen35 | None = None
        self._head: Any = None

    def __repr__(self) -> str:
        return f"<DeciderExecutor {self._backbone or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the folder, loads the weights. Raises `ConfigurationError`: torch missing, no such device, or a
        folder that is not a checkpoint of this family (decider_checkpoint.py)."""
        torch, _ = qwen3_5.libraries()
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])
        checkpoint = released.verify(
            self.path,
            claimed=self.options["revision"] is not None,
            progress=lambda fraction, note: progress(_HASHED * fraction, note),
        )
        progress(_HASHED, f"reading {checkpoints.amount(checkpoints.weight_bytes(checkpoint.path))} of weights")
        backbone = qwen3_5.load(checkpoint.path, device=device, dtype=dtype, settings=self._settings)
        with torch.inference_mode():
            head = torch.zeros(HEAD_ROWS, backbone.hidden_size, dtype=backbone.dtype, device=backbone.device)
            head[: len(checkpoint.labels)] = backbone.embeddings(checkpoint.labels)
        self._checkpoint, self._backbone, self._head = checkpoint, backbone, head
        progress(1.0, "loaded")
        digest = checkpoint.files["model.safetensors"]
        return {
            "identity": contract.identity(
                checkpoint.files,
                dtype,
                device,
                self._settings.execution,
                self._settings.max_rows,
                self._settings.max_tokens,
            ),
            "name": contract.MODEL_ID,
            "sha256": digest,
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "released": checkpoint.released,
            "checkpoint_revision": contract.REVISION if checkpoint.released else None,
            "dtype": dtype,
            "device": device,
            "execution": self._settings.execution,
            "graphs": self._graphs,
            "parameters": checkpoint.parameters,
            "limits": {
                "row_tokens": contract.MAX_ROW_TOKENS,
                "state_tokens": contract.MAX_STATE_TOKENS,
                "rows": contract.MAX_ROWS,
                "tokens": contract.MAX_TOKENS,
                "options": contract.LABELS,
                "batch_rows": self._settings.max_rows,
                "batch_tokens": self._settings.max_tokens,
            },
            "label_ids": list(checkpoint.labels),
            "temperatures": asdict(checkpoint.temperatures),
        }

    def warm_up(self) -> None:
        """One request with every kind of row: a choice, a noul, and a score with its levels, over a short state."""
        checkpoint = self._checkpoint
        if checkpoint is None:
            raise ConfigurationError("the warm-up comes after the load")
        request = _example(checkpoint)
        with warming_up():
            for _ in range(2 if self._graphs else 1):  # the second one replays what the first one recorded
                output = self.execute(request, WarmUpCall())
        logits = output["logits"]
        if output["counts"].tolist() != request.candidates.tolist() or len(logits) != request.candidates.sum():
            raise ConfigurationError("the warm-up decision has the wrong number of logits")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The logits of a `RowsRequest`, as

            logits      float32 [sum of candidates], row after row, raw
            counts      int32 [rows], how many of them each row has: the candidates asked for
            execution   "rows", "packed" or "shared": what was done
            processed   tokens the model read, padding not counted; at most the tokens of all rows
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        In bfloat16 a logit is rounded to bfloat16, then widened. Raises `NonFinite`; `Abandoned`, looked for before
        each pass of the model; `protocol.errors.Malformed` for rows this model has no tokens or labels for, or that
        are beyond its limits; `FatalExecutionError` when the device failed. The device has finished on return and on
        every error.
        """
        backbone = self._backbone
        if backbone is None:
            raise ExecutionFailed("the model is not loaded")
        request = _checked(payload, backbone.vocabulary)
        rows = np.split(request.tokens, np.cumsum(request.lengths)[:-1])
        with devices.settled(backbone.device.type, backbone.synchronize):
            reading = backbone.read(rows, request.questions.tolist(), lambda: check(call))
            logits = self._project(reading.hidden)
        chosen = np.arange(HEAD_ROWS) < request.candidates[:, None]
        # A hidden value that is no number makes every logit of its row none, so these are all there is to look at.
        if not np.isfinite(logits[chosen]).all():
            raise NonFinite("the model's logits are not finite")
        return {
            "logits": logits[chosen],
            "counts": request.candidates.astype(np.int32),
            "execution": reading.execution,
            "processed": reading.processed,
            "statistics": backbone.statistics(),
        }

    def close(self) -> None:
        """Drops the model."""
        if self._backbone is not None:
            self._backbone.close()
        self._backbone = self._head = None

    def _project(self, hidden: Any) -> np.ndarray[Any, Any]:
        """The logits [rows, HEAD_ROWS] of hidden states [rows, size], in float32 on the CPU."""
        import torch

        with torch.inference_mode():
            logits: np.ndarray[Any, Any] = torch.nn.functional.linear(hidden, self._head).float().cpu().numpy()
        return logits


def _checked(payload: object, vocabulary: int) -> RowsRequest:
    """The request, of which `RowsRequest.from_wire` has checked everything but what only the model knows."""
    if not isinstance(payload, RowsRequest):
        raise ExecutionFailed(f"a rows request is expected, not {type(payload).__name__}")
    if int(payload.tokens.max()) >= vocabulary:
        raise Malformed(f"a token is below {vocabulary}, the size of this model's vocabulary")
    if int(payload.candidates.max()) > contract.LABELS:
        raise Malformed(f"a row has at most {contract.LABELS} candidates")
    if int(payload.lengths.max()) > contract.MAX_ROW_TOKENS:
        raise Malformed(f"a row has at most {contract.MAX_ROW_TOKENS} tokens")
    if payload.rows > contract.MAX_ROWS or len(payload.tokens) > contract.MAX_TOKENS:
        raise Malformed(f"a request has at most {contract.MAX_ROWS} rows and {contract.MAX_TOKENS} tokens")
    return payload


def _example(checkpoint: released.Checkpoint) -> RowsRequest:
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
