"""The nimble family in the host: rows of tokens in, the raw logits of their codes out.

The front renders and tokenizes; every row ends where the model answers, and what its last hidden state is multiplied
with are the output rows of the first `n` codes, n being the row's options. The rows of a request have nearly everything
in common, so on a CPU it is read once (backbones/qwen3_5.py). The temperature is told with the facts; it and everything
after it are the front's.

One unit is one complete request. An error of an execution does not retire the host, unless it is one of the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones import loading, qwen3_5
from executor_host.errors import NonFinite
from executor_host.executors.nimble import checkpoint as folders
from executor_host.executors.nimble import model as nimble_model
from executor_host.executors.nimble.checkpoint import Checkpoint
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import nimble as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

Result: TypeAlias = tuple[NDArray[np.float32], qwen3_5.Reading]
"""Logits [rows, codes], and what was read for them."""


class NimbleExecutor(TorchExecutor[Checkpoint, qwen3_5.Qwen35, RowsRequest, Result]):
    """`path`: the folder of a merged checkpoint, or of a LoRA one whose base model is in the folder `base`."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = RowsRequest

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._settings = _settings(self.options, "cpu")
        self._head: Any = None

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`. A licence that forbids commercial use is said in the log."""
        found = folders.verify(
            self.path, base=self.options["base"], unreleased=self.options["unreleased"], progress=progress
        )
        if contract.non_commercial(found.licence):
            print(f"{found.path}: {folders.licence_note(found.licence)}", file=sys.stderr, flush=True)
        return found

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> qwen3_5.Qwen35:
        """The backbone, into which an adapter is merged, and the rows of the codes."""
        self._settings = _settings(self.options, device)
        backbone = nimble_model.load(checkpoint, device=device, dtype=dtype, settings=self._settings)
        self._head = nimble_model.code_rows(checkpoint, backbone)
        self.max_units = backbone.joint_units
        return backbone

    def facts(self, checkpoint: Checkpoint, model: qwen3_5.Qwen35, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and the temperature, which the front divides by."""
        adapter, release, longest = checkpoint.adapter, checkpoint.release, self.options["max_length"]
        return {
            "identity": contract.identity(checkpoint.files, dtype, device, self._settings.execution, longest)
            + agreement.kept(model.segment),
            "name": contract.MODEL_ID,
            "sha256": checkpoints.combined(checkpoints.of_weights(checkpoint.files)),
            "model_id": checkpoint.schema.model,
            "base_revision": checkpoint.schema.revision,
            "task": checkpoint.schema.task,
            "release": None if release is None else asdict(release),
            "temperature": checkpoint.temperature,
            "licence": checkpoint.licence,
            "layout": "merged" if adapter is None else "lora",
            "merged_modules": 0 if adapter is None else len(adapter.modules),
            "execution": self._settings.execution,
            "graphs": self._settings.graphs,
            "parameters": model.parameters,
            "limits": {
                "row_tokens": longest,
                "rows": contract.MAX_QUESTIONS,
                "tokens": contract.MAX_QUESTIONS * longest,
                "options": len(checkpoint.codes.names),
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[RowsRequest]:
        """A request of two questions, once; where passes are recorded it comes twice: the second one replays what the
        first one recorded. One with a long state besides, which is read once for both."""
        short, long = (_example(checkpoint, words) for words in (1, 12))
        return [short, short, long] if self._settings.graphs else [short, long]

    def fits(self, example: RowsRequest, output: Mapping[str, Any]) -> bool:
        """A logit per option."""
        return bool(output["counts"].tolist() == example.candidates.tolist())

    def accept(
        self, payload: RowsRequest, checkpoint: Checkpoint, model: qwen3_5.Qwen35, look: Callable[[], None]
    ) -> RowsRequest:
        """What `RowsRequest.from_wire` has checked, but for what only the model knows."""
        longest = self.options["max_length"]
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if int(payload.candidates.max()) > len(checkpoint.codes.names):
            raise Malformed(f"a row has at most {len(checkpoint.codes.names)} options")
        if int(payload.lengths.max()) > longest or payload.rows > contract.MAX_QUESTIONS:
            raise Malformed(f"a row has at most {longest} tokens, and a request {contract.MAX_QUESTIONS} rows")
        return payload

    def run(self, request: RowsRequest, model: qwen3_5.Qwen35, look: Callable[[], None]) -> Result:
        """The rows through the model, their last states through the rows of the codes."""
        reading = model.read(*request.split(), look, request.shared)
        return self._project(reading.hidden), reading

    def run_many(self, requests: Sequence[RowsRequest], model: qwen3_5.Qwen35) -> Sequence[Result]:
        """The rows of all together, as far as they share nothing; each one's states through the codes' rows alone, in
        the shape that they have without company."""
        return [
            (self._project(reading.hidden), reading)
            for reading in model.read_many([request.split() for request in requests])
        ]

    def outputs(self, request: RowsRequest, result: Result, model: qwen3_5.Qwen35) -> dict[str, Any]:
        """The logits of a `RowsRequest`, as

            logits      float32 [sum of candidates], row after row, raw
            counts      int32 [rows], how many of them each row has
            execution   "rows", "packed", "shared" or "kept": what was done
            processed   tokens the model read, padding not counted; at most the tokens of all rows
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        Raises `NonFinite`.
        """
        logits, reading = result
        chosen = np.arange(logits.shape[1]) < request.candidates[:, None]
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
        """Drops the model and the rows of the codes."""
        super().close()
        self._head = None

    def _project(self, hidden: Any) -> NDArray[np.float32]:
        """The logits [rows, codes] of hidden states [rows, size], in float32 on the CPU. Always of all codes, so that a
        row's logits do not depend on how many options its neighbours have."""
        import torch

        with torch.inference_mode():
            logits: NDArray[np.float32] = torch.nn.functional.linear(hidden.float(), self._head).cpu().numpy()
        return logits


def _settings(options: Mapping[str, Any], device: str) -> qwen3_5.Settings:
    """On a CPU `auto` reads what the rows share once."""
    return qwen3_5.settings_of(options, *contract.BATCH, device=device, auto="shared")


def _example(checkpoint: Checkpoint, times: int) -> RowsRequest:
    """The warm-up's rows, in the family's own words."""
    encoder = checkpoints.tokenizer(checkpoint.path / contract.TOKENIZER)
    state = "The customer was charged twice for one order and asks for the money back. " * times
    start = contract.CHAT.format(system=contract.SYSTEM) + f'{{"context": "{state}", "schema": []}}{contract.ASKED}'
    rows = [
        encoder.encode(f'{start} "{name}"{contract.TAIL}', add_special_tokens=False).ids for name in ("team", "refund")
    ]
    return RowsRequest(
        tokens=np.array([token for row in rows for token in row], np.int32),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.array([3, 2], np.int32),
        questions=np.arange(2, dtype=np.int32),
    )
