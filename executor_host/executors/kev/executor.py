"""The kev family in the host: one marked row of tokens per question in, a logit per option out.

The front renders and tokenizes. The model reads every row (kev/model.py), what they share once, and its head points
from a row's end at the ends of its options. The head's temperature is applied here, because it lies in its file;
softmax and everything after it are the front's.

One unit is one complete request. An error of an execution does not retire the host, unless it is one of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones import causal, loading
from executor_host.errors import NonFinite
from executor_host.executors.kev import checkpoint as folders
from executor_host.executors.kev import model as kev_model
from executor_host.executors.kev.checkpoint import Checkpoint
from executor_host.executors.kev.model import KevModel
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import kev as contract
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest

Result: TypeAlias = tuple[NDArray[np.float32], int]
"""Logits [sum of counts], and tokens the model read for them."""


class KevExecutor(TorchExecutor[Checkpoint, KevModel, MarkedRowsRequest, Result]):
    """`path`: the folder of a merged checkpoint, or of a LoRA one whose base model is in the folder `base`."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = MarkedRowsRequest

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(self.path, base=self.options["base"], progress=progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> KevModel:
        """The backbone, into which an adapter is merged, and the head."""
        return kev_model.load(
            checkpoint,
            device=device,
            dtype=dtype,
            kept_bytes=self.options["prefix_cache_mb"] << 20,
            segment=self.options["prefix_segment"],
        )

    def facts(self, checkpoint: Checkpoint, model: KevModel, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and what `head.pt` says."""
        adapter, longest = checkpoint.adapter, self.options["max_length"]
        return {
            "identity": contract.identity(checkpoint.files, dtype, device, longest) + agreement.kept(model.segment),
            "name": contract.MODEL_ID,
            "sha256": checkpoints.combined(checkpoint.files),
            "model_id": checkpoint.head.base,
            "base_revision": checkpoint.head.base_revision,
            "temperature": checkpoint.head.temperature,
            "layout": "merged" if adapter is None else "lora",
            "merged_modules": 0 if adapter is None else len(adapter.modules),
            "parameters": model.parameters,
            "limits": {
                "row_tokens": longest,
                "rows": contract.MAX_QUESTIONS,
                "markers": contract.MAX_MARKERS,
                "tokens": contract.MAX_TOKENS,
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[MarkedRowsRequest]:
        """A short request of two questions, and one whose state is read once for both."""
        return [_example(checkpoint.delimiters, words) for words in (4, 200)]

    def fits(self, example: MarkedRowsRequest, output: Mapping[str, Any]) -> bool:
        """A logit per option."""
        return len(output["logits"]) == len(example.markers)

    def accept(
        self, payload: MarkedRowsRequest, checkpoint: Checkpoint, model: KevModel, look: Callable[[], None]
    ) -> MarkedRowsRequest:
        """What `MarkedRowsRequest.from_wire` has checked, but for what only the model knows."""
        longest = self.options["max_length"]
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if int(payload.lengths.max()) > longest or payload.tokens.size > contract.MAX_TOKENS:
            raise Malformed(f"a row has at most {longest} tokens, and all rows {contract.MAX_TOKENS}")
        if len(payload.lengths) > contract.MAX_QUESTIONS or len(payload.markers) > contract.MAX_MARKERS:
            raise Malformed(f"a request has at most {contract.MAX_QUESTIONS} rows and {contract.MAX_MARKERS} markers")
        for positions in _positions(payload):
            if bool((np.diff(positions) <= 0).any()):
                raise Malformed("the marked positions of a row ascend, and its last token is behind them")
        return payload

    def run(self, request: MarkedRowsRequest, model: KevModel, look: Callable[[], None]) -> Result:
        """One reading of all rows."""
        rows = [
            causal.Row(request.tokens[index, : request.lengths[index]].astype(np.int64), positions)
            for index, positions in enumerate(_positions(request))
        ]
        return model.read(rows, look)

    def outputs(self, request: MarkedRowsRequest, result: Result, model: KevModel) -> dict[str, Any]:
        """The logits of a `MarkedRowsRequest`, as

        logits      float32 [sum of counts], question after question, divided by the temperature
        counts      int32 [questions], how many of them each has
        processed   tokens the model read, padding not counted
        statistics  counts of this host since its start, where prefixes are kept
        """
        logits, processed = result
        if not np.isfinite(logits).all():
            raise NonFinite("the model's logits are not finite")
        return {
            "logits": logits,
            "counts": request.counts[: request.rows].astype(np.int32),
            "processed": processed,
            "statistics": model.statistics(),
        }


def _positions(request: MarkedRowsRequest) -> Sequence[NDArray[np.int64]]:
    """Of each row where it is read: its marks, and its last token."""
    ends = np.cumsum(request.counts[: request.rows], dtype=np.int64)
    marks = np.split(request.markers.astype(np.int64), ends[:-1])
    return [np.append(row, length - 1) for row, length in zip(marks, request.lengths.tolist(), strict=False)]


def _example(delimiters: contract.Delimiters, words: int) -> MarkedRowsRequest:
    """Two questions of two options behind a state of so many words, all of the same token: the model takes any."""
    word = 0
    option = [delimiters.option, word, delimiters.option_end]
    row = [delimiters.state, *[word] * words, delimiters.question, word, *option, *option, delimiters.decide]
    ends = [len(row) - 5, len(row) - 2]
    return MarkedRowsRequest(
        tokens=np.array([row, row], np.int32),
        lengths=np.full(2, len(row), np.int32),
        kinds=np.zeros(2, np.int32),
        markers=np.array(ends * 2, np.int32),
        counts=np.full(2, 2, np.int32),
    )
