"""The open-jev family in the host: one row of tokens per candidate in, one raw score per candidate out.

The front renders and tokenizes. The model reads every row (backbones/qwen3_5.py), and the final-norm hidden state
of its last token is put through a scalar head on the CPU: products and their sum in float64, rounded to float32,
then the bias is added in float32. Temperatures and everything after them are the front's.

One unit is one complete request: every candidate's forward, and the head. An error of an execution does not retire
the host, unless it is one of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.backbones import qwen3_5
from executor_host.errors import (
    ConfigurationError,
    ExecutionFailed,
    NonFinite,
)
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.open_jev import checkpoint as folders
from executor_host.executors.open_jev import merge as open_jev_merge
from protocol.contracts import open_jev as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

PACKED_ROWS: Final = 16
PACKED_TOKENS: Final = 4096
"""Most candidates and tokens of a group that is read together. A longer candidate is read alone."""

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class OpenJevExecutor(Executor):
    """`path`: the folder of a merged export, or of a LoRA checkpoint whose base model is in the folder `base`."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._graphs: bool = self.options["graphs"]
        self._checkpoint: folders.Checkpoint | None = None
        self._backbone: qwen3_5.Qwen35 | None = None

    def __repr__(self) -> str:
        return f"<OpenJevExecutor {self._backbone or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the folders, loads the weights, merges an adapter. Raises `ConfigurationError`: torch missing, no
        such device, or a folder that is not a checkpoint of this family (open_jev_checkpoint.py)."""
        qwen3_5.libraries()
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])
        checkpoint = folders.verify(
            self.path,
            base=self.options["base"],
            max_length=self.options["max_length"],
            unreleased=self.options["unreleased"],
            progress=lambda fraction, note: progress(_HASHED * fraction, note),
        )
        progress(_HASHED, f"reading {checkpoints.amount(checkpoints.weight_bytes(checkpoint.path))} of weights")
        execution = self.options["execution"]
        if execution == "auto":
            release = checkpoint.terms.release
            execution = "packed" if release is not None and release.packed else "rows"
        settings = qwen3_5.Settings(
            execution=execution, max_rows=PACKED_ROWS, max_tokens=PACKED_TOKENS, graphs=self._graphs
        )
        backbone = open_jev_merge.load(checkpoint, device=device, dtype=dtype, settings=settings)
        self._checkpoint, self._backbone = checkpoint, backbone
        progress(1.0, "loaded")
        release = checkpoint.terms.release
        name = release.alias if release is not None and checkpoint.released else "open-jev"
        digest = "+".join(checkpoint.files[file] for file in sorted(checkpoint.files))
        return {
            "identity": contract.identity(
                name,
                checkpoint.files,
                dtype,
                device,
                execution,
                (PACKED_ROWS, PACKED_TOKENS),
                checkpoint.terms.max_length,
            ),
            "name": name,
            "sha256": _combined(digest),
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "released": checkpoint.released,
            "model_id": checkpoint.terms.model_id,
            "base_revision": checkpoint.terms.base_revision,
            "checkpoint_revision": checkpoint.terms.checkpoint_revision,
            "layout": "export" if checkpoint.adapter is None else "lora",
            "merged_modules": 0 if checkpoint.adapter is None else len(checkpoint.adapter.modules),
            "temperature": checkpoint.terms.temperature,
            "dtype": dtype,
            "device": device,
            "execution": execution,
            "graphs": self._graphs,
            "parameters": backbone.parameters,
            "limits": {
                "row_tokens": checkpoint.terms.max_length,
                "rows": contract.MAX_ROWS,
                "tokens": contract.MAX_TOKENS,
                "batch_rows": PACKED_ROWS,
                "batch_tokens": PACKED_TOKENS,
            },
        }

    def warm_up(self) -> None:
        """One choice between two candidates."""
        checkpoint = self._checkpoint
        if checkpoint is None:
            raise ConfigurationError("the warm-up comes after the load")
        request = _example(checkpoint)
        with warming_up():
            for _ in range(2 if self._graphs else 1):  # the second one replays what the first one recorded
                output = self.execute(request, WarmUpCall())
        if len(output["logits"]) != request.rows:
            raise ConfigurationError("the warm-up decision has the wrong number of scores")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The scores of a `RowsRequest` whose rows have one candidate each, as

            logits      float32 [rows], raw
            execution   "rows", "packed" or "shared": what was done
            processed   tokens the model read, padding not counted; at most the tokens of all rows
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        Raises `NonFinite`; `Abandoned`, looked for before each pass of the model; `protocol.errors.Malformed` for
        rows this model has no tokens for, or that are beyond its limits; `FatalExecutionError` when the device
        failed. The device has finished on return and on every error.
        """
        backbone, checkpoint = self._backbone, self._checkpoint
        if backbone is None or checkpoint is None:
            raise ExecutionFailed("the model is not loaded")
        request = _checked(payload, backbone.vocabulary, checkpoint.terms.max_length)
        rows = np.split(request.tokens, np.cumsum(request.lengths, dtype=np.int64)[:-1])
        with devices.settled(backbone.device.type, backbone.synchronize):
            reading = backbone.read(rows, request.questions.tolist(), lambda: check(call))
            hidden: NDArray[np.float32] = reading.hidden.float().cpu().numpy()
        return {
            "logits": scores(hidden, checkpoint.head_weight, checkpoint.head_bias),
            "execution": reading.execution,
            "processed": reading.processed,
            "statistics": backbone.statistics(),
        }

    def close(self) -> None:
        """Drops the model."""
        if self._backbone is not None:
            self._backbone.close()
        self._backbone = None


def scores(hidden: NDArray[np.float32], weight: NDArray[np.float32], bias: np.float32) -> NDArray[np.float32]:
    """The scalar head [rows] of hidden states [rows, size]. Raises `NonFinite`.

    One row after the other, so that a score does not depend on how many others there are.
    """
    wide = weight.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        dots = np.array([np.sum(row.astype(np.float64) * wide) for row in hidden], np.float64)
        found = dots.astype(np.float32) + bias
    if not np.isfinite(found).all():
        raise NonFinite("the model's scores are not finite")
    return found


def _combined(digests: str) -> str:
    import hashlib

    return hashlib.sha256(digests.encode()).hexdigest()


def _checked(payload: object, vocabulary: int, max_length: int) -> RowsRequest:
    """The request, of which `RowsRequest.from_wire` has checked everything but what only the model knows."""
    if not isinstance(payload, RowsRequest):
        raise ExecutionFailed(f"a rows request is expected, not {type(payload).__name__}")
    if int(payload.tokens.max()) >= vocabulary:
        raise Malformed(f"a token is below {vocabulary}, the size of this model's vocabulary")
    if int(payload.candidates.max()) > 1:
        raise Malformed("a row of this family is one candidate")
    if int(payload.lengths.max()) > max_length:
        raise Malformed(f"a row has at most {max_length} tokens")
    if payload.rows > contract.MAX_ROWS or len(payload.tokens) > contract.MAX_TOKENS:
        raise Malformed(f"a request has at most {contract.MAX_ROWS} rows and {contract.MAX_TOKENS} tokens")
    return payload


def _example(checkpoint: folders.Checkpoint) -> RowsRequest:
    """The warm-up's rows."""
    from tokenizers import Tokenizer

    chat = checkpoint.terms.chat
    encoder = Tokenizer.from_file(str(checkpoint.tokenizer))
    texts = [
        f"{chat.prefix}Context:\nDialog: Update installed.\n\nQuestion: Close it.\nProposed answer: {option}\n"
        f"Is this proposed answer correct? Answer Yes or No.{chat.suffix}"
        for option in ("ok: OK", "wait: Wait")
    ]
    rows = [encoder.encode(text, add_special_tokens=False).ids for text in texts]
    return RowsRequest(
        tokens=np.array([token for row in rows for token in row], np.int32),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.ones(len(rows), np.int32),
        questions=np.zeros(len(rows), np.int32),
    )
