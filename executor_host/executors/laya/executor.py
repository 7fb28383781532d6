"""The laya family in the host: a padded batch of marked rows in, the raw logits of all options and actions out.

The front renders, tokenizes, cuts and pads. Temperatures and everything after them are the front's.

One unit is one complete request: encoder, decision layers, scorer, action head, and the copy back. Any error of an
execution retires the host (`Family.retire_on_error`): a device that ran out of memory is given to a new process
rather than left for the CPU. A payload that is not one for this model is a mistake of the sender, and does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.errors import NonFinite
from executor_host.executors.laya import checkpoint as folders
from executor_host.executors.laya import model as laya_model
from executor_host.executors.laya import warm_up as laya_warm_up
from executor_host.executors.laya.checkpoint import Checkpoint
from executor_host.executors.laya.model import LayaModel
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import laya as contract
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest

Result: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Logits [sum of counts] and action logits [rows, 2]."""


class LayaExecutor(TorchExecutor[Checkpoint, LayaModel, MarkedRowsRequest, Result]):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = MarkedRowsRequest
    REPEATS: ClassVar[int] = laya_warm_up.TIMES
    max_units = 32

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(self.path, progress=progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> LayaModel:
        """As `TorchExecutor`."""
        return laya_model.load(checkpoint, device=device, dtype=dtype)

    def facts(self, checkpoint: Checkpoint, model: LayaModel, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, which of the published checkpoints it is like, and whether the tokenizer is the English
        one's."""
        return {
            "identity": contract.identity(checkpoint.files, dtype, device),
            "name": contract.MODEL_ID,
            "sha256": checkpoint.files[checkpoints.WEIGHTS],
            "variant": checkpoint.variant.name,
            "known_tokenizer": checkpoint.known_tokenizer,
            "parameters": checkpoint.parameters,
            "limits": {
                "rows": contract.MAX_ROWS,
                "row_tokens": checkpoint.config.row_tokens,
                "markers": contract.MAX_MARKERS,
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[MarkedRowsRequest]:
        """Every request of warm_up.py."""
        return laya_warm_up.requests(
            checkpoint.path / contract.TOKENIZER, checkpoint.special, checkpoint.config.row_tokens
        )

    def fits(self, example: MarkedRowsRequest, output: Mapping[str, Any]) -> bool:
        """A logit per option, a row of actions per question."""
        return len(output["logits"]) == len(example.markers) and len(output["action"]) == example.rows

    def accept(
        self, payload: MarkedRowsRequest, checkpoint: Checkpoint, model: LayaModel, look: Callable[[], None]
    ) -> MarkedRowsRequest:
        """What `MarkedRowsRequest.from_wire` has checked, but for what only the model knows."""
        if int(payload.tokens.max()) >= checkpoint.vocabulary:
            raise Malformed(f"a token is below {checkpoint.vocabulary}, the size of this model's vocabulary")
        if int(payload.kinds.max()) >= len(contract.KINDS):
            raise Malformed(f"a kind is below {len(contract.KINDS)}")
        rows, width = payload.tokens.shape
        most = checkpoint.config.row_tokens
        if rows > contract.MAX_ROWS or width > most or len(payload.markers) > contract.MAX_MARKERS:
            raise Malformed(
                f"a request has at most {contract.MAX_ROWS} rows of {most} tokens and {contract.MAX_MARKERS} markers"
            )
        return payload

    def run(self, request: MarkedRowsRequest, model: LayaModel, look: Callable[[], None]) -> Result:
        """One pass of the model."""
        look()
        return self.run_many((request,), model)[0]

    def run_many(self, requests: Sequence[MarkedRowsRequest], model: LayaModel) -> Sequence[Result]:
        """One pass of the model over the rows of all. Nothing looks across rows, and what pads a row is masked."""
        lengths = np.concatenate([request.lengths[: request.rows] for request in requests])
        counts = np.concatenate([request.counts[: request.rows] for request in requests])
        kinds = np.concatenate([request.kinds[: request.rows] for request in requests])
        # Rows without tokens, and the columns that no row reaches, are there for devices that replay a recorded size.
        tokens = np.zeros((len(lengths), int(lengths.max())), np.int32)
        start = 0
        for request in requests:
            width = min(tokens.shape[1], request.tokens.shape[1])
            tokens[start : start + request.rows, :width] = request.tokens[: request.rows, :width]
            start += request.rows
        marked = np.arange(int(counts.max())) < counts[:, None]
        markers = np.zeros(marked.shape, np.int64)
        markers[marked] = np.concatenate([request.markers for request in requests])
        logits, action = model.read(tokens, lengths, kinds, markers, marked)
        ends = np.cumsum([request.rows for request in requests])[:-1]
        return [
            (own[there], acts)
            for own, there, acts in zip(
                np.split(logits, ends), np.split(marked, ends), np.split(action, ends), strict=True
            )
        ]

    def outputs(self, request: MarkedRowsRequest, result: Result, model: LayaModel) -> dict[str, Any]:
        """The logits of a `MarkedRowsRequest`, as

        logits     float32 [sum of counts], question after question, raw
        counts     int32 [questions], how many of them each has
        action     float32 [questions, 2], raw; the first is to act
        processed  tokens the model read, padding not counted
        """
        logits, action = result
        if not (np.isfinite(logits).all() and np.isfinite(action).all()):
            raise NonFinite("the model's logits are not finite")
        return {
            "logits": logits,
            "counts": request.counts[: request.rows].astype(np.int32),
            "action": action,
            "processed": int(request.lengths.sum()),
        }
