"""The open-jev family in the host: one row of tokens per candidate in, one raw score per candidate out.

The front renders and tokenizes. The model reads every row (backbones/qwen3_5.py), and the final-norm hidden state
of its last token is put through a scalar head on the CPU: products and their sum in float64, rounded to float32,
then the bias is added in float32. Temperatures and everything after them are the front's.

One unit is one complete request: every candidate's forward, and the head. An error of an execution does not retire
the host, unless it is one of the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host.backbones import loading, qwen3_5
from executor_host.errors import NonFinite
from executor_host.executors.open_jev import checkpoint as folders
from executor_host.executors.open_jev import merge as open_jev_merge
from executor_host.executors.open_jev.checkpoint import Checkpoint
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import open_jev as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

PACKED_ROWS: Final = 16
PACKED_TOKENS: Final = 4096
"""Most candidates and tokens of a group that is read together. A longer candidate is read alone."""

Result: TypeAlias = tuple[NDArray[np.float32], qwen3_5.Reading]
"""Last states [rows, size], and what was read for them."""


class OpenJevExecutor(TorchExecutor[Checkpoint, qwen3_5.Qwen35, RowsRequest, Result]):
    """`path`: the folder of a merged export, or of a LoRA checkpoint whose base model is in the folder `base`."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = RowsRequest

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(
            self.path,
            base=self.options["base"],
            max_length=self.options["max_length"],
            unreleased=self.options["unreleased"],
            progress=progress,
        )

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> qwen3_5.Qwen35:
        """The backbone, into which an adapter is merged."""
        backbone = open_jev_merge.load(
            checkpoint, device=device, dtype=dtype, settings=self._settings(checkpoint, device)
        )
        self.max_units = backbone.joint_units
        return backbone

    def _settings(self, checkpoint: Checkpoint, device: str) -> qwen3_5.Settings:
        release = checkpoint.terms.release
        auto: qwen3_5.Execution = "packed" if release is not None and release.packed else "rows"
        return qwen3_5.settings_of(self.options, PACKED_ROWS, PACKED_TOKENS, device=device, auto=auto)

    def facts(self, checkpoint: Checkpoint, model: qwen3_5.Qwen35, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and what the checkpoint's documents say."""
        terms, execution = checkpoint.terms, self._settings(checkpoint, device).execution
        batch, adapter = (PACKED_ROWS, PACKED_TOKENS), checkpoint.adapter
        name = terms.release.alias if terms.release is not None and checkpoint.released else "open-jev"
        digests = "+".join(checkpoint.files[file] for file in sorted(checkpoint.files))
        return {
            "identity": contract.identity(name, checkpoint.files, dtype, device, execution, batch, terms.max_length)
            + agreement.kept(model.segment),
            "name": name,
            "sha256": hashlib.sha256(digests.encode()).hexdigest(),
            "released": checkpoint.released,
            "model_id": terms.model_id,
            "base_revision": terms.base_revision,
            "checkpoint_revision": terms.checkpoint_revision,
            "layout": "export" if adapter is None else "lora",
            "merged_modules": 0 if adapter is None else len(adapter.modules),
            "temperature": terms.temperature,
            "execution": execution,
            "graphs": self.options["graphs"],
            "parameters": model.parameters,
            "limits": {
                "row_tokens": terms.max_length,
                "rows": contract.MAX_ROWS,
                "tokens": contract.MAX_TOKENS,
                "batch_rows": PACKED_ROWS,
                "batch_tokens": PACKED_TOKENS,
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[RowsRequest]:
        """One choice between two candidates; where passes are recorded it comes twice: the second one replays what the
        first one recorded."""
        return [_example(checkpoint)] * (2 if self.options["graphs"] else 1)

    def fits(self, example: RowsRequest, output: Mapping[str, Any]) -> bool:
        """A score per candidate."""
        return len(output["logits"]) == example.rows

    def accept(
        self, payload: RowsRequest, checkpoint: Checkpoint, model: qwen3_5.Qwen35, look: Callable[[], None]
    ) -> RowsRequest:
        """What `RowsRequest.from_wire` has checked, but for what only the model knows."""
        longest = checkpoint.terms.max_length
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if int(payload.candidates.max()) > 1:
            raise Malformed("a row of this family is one candidate")
        if int(payload.lengths.max()) > longest:
            raise Malformed(f"a row has at most {longest} tokens")
        if payload.rows > contract.MAX_ROWS or len(payload.tokens) > contract.MAX_TOKENS:
            raise Malformed(f"a request has at most {contract.MAX_ROWS} rows and {contract.MAX_TOKENS} tokens")
        return payload

    def run(self, request: RowsRequest, model: qwen3_5.Qwen35, look: Callable[[], None]) -> Result:
        """The rows' last states."""
        reading = model.read(*request.split(), look, request.shared)
        return reading.hidden.float().cpu().numpy(), reading

    def run_many(self, requests: Sequence[RowsRequest], model: qwen3_5.Qwen35) -> Sequence[Result]:
        """The rows of all together, as far as they share nothing."""
        return [
            (reading.hidden.float().cpu().numpy(), reading)
            for reading in model.read_many([request.split() for request in requests])
        ]

    def outputs(self, request: RowsRequest, result: Result, model: qwen3_5.Qwen35) -> dict[str, Any]:
        """The scores of a `RowsRequest` whose rows have one candidate each, as

            logits      float32 [rows], raw
            execution   "rows", "packed", "shared" or "kept": what was done
            processed   tokens the model read, padding not counted; at most the tokens of all rows
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        Raises `NonFinite`; `Abandoned`, looked for before each pass of the model; `protocol.errors.Malformed` for
        rows this model has no tokens for, or that are beyond its limits; `FatalExecutionError` when the device
        failed. The device has finished on return and on every error.
        """
        hidden, reading = result
        assert self._checkpoint is not None
        return {
            "logits": scores(hidden, self._checkpoint.head_weight, self._checkpoint.head_bias),
            "execution": reading.execution,
            "processed": reading.processed,
            "statistics": model.statistics(),
        }


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


def _example(checkpoint: Checkpoint) -> RowsRequest:
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
