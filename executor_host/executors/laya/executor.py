"""The laya family in the host: a padded batch of marked rows in, the raw logits of all options and actions out.

The front renders, tokenizes, cuts and pads. Temperatures and everything after them are the front's.

One unit is one complete request: encoder, decision layers, scorer, action head, and the copy back. Any error of an
execution retires the host (`Family.retire_on_error`): a device that ran out of memory is given to a new process
rather than left for the CPU. A payload that is not one for this model is a mistake of the sender, and does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError, ExecutionFailed, NonFinite
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.laya import checkpoint as folders
from executor_host.executors.laya import model as laya_model
from executor_host.executors.laya import warm_up as laya_warm_up
from protocol.contracts import laya as contract
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class LayaExecutor(Executor):
    """`path`: the folder of a checkpoint."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._checkpoint: folders.Checkpoint | None = None
        self._model: laya_model.LayaModel | None = None

    def __repr__(self) -> str:
        return f"<LayaExecutor {self._model or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the folder, loads the weights. Raises `ConfigurationError`: torch missing, no such device, or a
        folder that is not a checkpoint of this family (laya_checkpoint.py)."""
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])

        checkpoint = folders.verify(self.path, progress=lambda fraction, note: progress(_HASHED * fraction, note))
        progress(_HASHED, f"reading {checkpoints.amount(checkpoints.weight_bytes(checkpoint.path))} of weights")
        self._model = laya_model.load(checkpoint, device=device, dtype=dtype)
        self._checkpoint = checkpoint
        progress(1.0, "loaded")
        return {
            "identity": contract.identity(checkpoint.files, dtype, device),
            "name": contract.MODEL_ID,
            "sha256": checkpoint.files[checkpoints.WEIGHTS],
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "known_tokenizer": checkpoint.known_tokenizer,
            "dtype": dtype,
            "device": device,
            "parameters": checkpoint.parameters,
            "limits": {
                "rows": contract.MAX_ROWS,
                "row_tokens": contract.MAX_ROW_TOKENS,
                "markers": contract.MAX_MARKERS,
            },
        }

    def warm_up(self) -> None:
        """Every request of laya_warm_up.py, each twice."""
        if self._checkpoint is None:
            raise ConfigurationError("the warm-up comes after the load")
        with warming_up():
            for request in laya_warm_up.requests(self._checkpoint.path / contract.TOKENIZER):
                for _ in range(laya_warm_up.TIMES):
                    output = self.execute(request, WarmUpCall())
                if len(output["logits"]) != len(request.markers) or len(output["action"]) != request.rows:
                    raise ConfigurationError("the warm-up decision has the wrong number of logits")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The logits of a `MarkedRowsRequest`, as

            logits     float32 [sum of counts], question after question, raw
            counts     int32 [questions], how many of them each has
            action     float32 [questions, 2], raw; the first is to act
            processed  tokens the model read, padding not counted

        Raises `NonFinite`; `Abandoned`, looked for before the pass of the model; `protocol.errors.Malformed` for
        rows this model has no tokens or types for, or that are beyond its limits; `FatalExecutionError` when the
        device failed. The device has finished on return and on every error.
        """
        model, checkpoint = self._model, self._checkpoint
        if model is None or checkpoint is None:
            raise ExecutionFailed("the model is not loaded")
        request = _checked(payload, checkpoint.vocabulary)
        rows = request.rows
        lengths, counts = request.lengths[:rows], request.counts[:rows]
        # Rows without tokens, and the columns that no row reaches, are there for devices that replay a recorded size.
        tokens = request.tokens[:rows, : int(lengths.max())]
        marked = np.arange(int(counts.max())) < counts[:, None]
        markers = np.zeros(marked.shape, np.int64)
        markers[marked] = request.markers
        check(call)
        with devices.settled(model.device.type, model.synchronize):
            logits, action = model.read(tokens, lengths, request.kinds[:rows], markers, marked)
        found = logits[marked]
        if not (np.isfinite(found).all() and np.isfinite(action).all()):
            raise NonFinite("the model's logits are not finite")
        return {
            "logits": found,
            "counts": counts.astype(np.int32),
            "action": action,
            "processed": int(lengths.sum()),
        }

    def close(self) -> None:
        """Drops the model."""
        self._model = None


def _checked(payload: object, vocabulary: int) -> MarkedRowsRequest:
    """The request, of which `MarkedRowsRequest.from_wire` has checked everything but what only the model knows."""
    if not isinstance(payload, MarkedRowsRequest):
        raise ExecutionFailed(f"a marked rows request is expected, not {type(payload).__name__}")
    if int(payload.tokens.max()) >= vocabulary:
        raise Malformed(f"a token is below {vocabulary}, the size of this model's vocabulary")
    if int(payload.kinds.max()) >= len(contract.KINDS):
        raise Malformed(f"a kind is below {len(contract.KINDS)}")
    rows, width = payload.tokens.shape
    if rows > contract.MAX_ROWS or width > contract.MAX_ROW_TOKENS or len(payload.markers) > contract.MAX_MARKERS:
        raise Malformed(
            f"a request has at most {contract.MAX_ROWS} rows of {contract.MAX_ROW_TOKENS} tokens"
            f" and {contract.MAX_MARKERS} markers"
        )
    return payload
