"""The cua-s1 family in the host: the prompt of one question in, the hidden state of its last token out.

The front renders and tokenizes, and multiplies the state with the 26 letter rows of the tied embedding, which it is
given with the facts: what is asked of the device is one unpadded pass per question, and nothing else. The adapter
is merged when the weights are loaded (cua_s1_adapter.py), or has been before (cua_s1_checkpoint.py).

One unit is one question. An error of an execution does not retire the host; one of the device does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones import loading, packing, qwen3_5
from executor_host.errors import NonFinite
from executor_host.executors.cua_s1 import adapter as adapters
from executor_host.executors.cua_s1 import checkpoint as released
from executor_host.executors.cua_s1.checkpoint import Checkpoint
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import agreement
from protocol.contracts import cua_s1 as contract
from protocol.errors import Malformed
from protocol.payloads import PromptRequest

WARM_UP: Final = contract.CHAT.format(
    system=contract.SYSTEM,
    user=contract.USER.format(
        goal="Goal: Close it.\n\n",
        state="Dialog: Update installed.",
        options='A. Decision "OK" -> select\nB. Decision "Wait" -> select',
    ),
)
"""The family's warm-up request as the front renders it; a test compares the two."""


Result: TypeAlias = tuple[NDArray[np.float32], qwen3_5.Reading]
"""The last state [hidden size], and what was read for it."""


class CuaS1Executor(TorchExecutor[Checkpoint, qwen3_5.Qwen35, PromptRequest, Result]):
    """`path`: the folder of a base model or of a merged export."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = PromptRequest

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._settings = self._on("cpu")
        self._rows: NDArray[np.float32] | None = None

    def libraries(self) -> None:
        """As `TorchExecutor`."""
        loading.libraries()

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        claimed = self.options["revision"] is not None
        return released.verify(self.path, self.options["adapter"], claimed=claimed, progress=progress)

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> qwen3_5.Qwen35:
        """The backbone, into which an adapter is merged, and the rows of the letters."""
        adapter = checkpoint.adapter
        self._settings = self._on(device)
        backbone = qwen3_5.load(
            checkpoint.path,
            device=device,
            dtype=dtype,
            settings=self._settings,
            adapt=None if adapter is None else lambda text: adapters.merge(text, adapter),
        )
        self._rows = backbone.embeddings(contract.LETTER_IDS).float().cpu().numpy()
        self.max_units = backbone.joint_units
        return backbone

    def _on(self, device: str) -> qwen3_5.Settings:
        """A request is one row, so "packed" is that row alone, and those of a batch together."""
        options = {**self.options, "execution": "auto"}
        return qwen3_5.settings_of(options, packing.MAX_ROWS, packing.MAX_TOKENS, device=device, auto="packed")

    def facts(self, checkpoint: Checkpoint, model: qwen3_5.Qwen35, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and `released`; `letters`, the rows of A to Z {ids, rows: float32 [26, hidden size],
        sha256 of their bytes}."""
        rows = self._rows
        assert rows is not None
        return {
            "identity": contract.identity(checkpoints.combined(checkpoint.files), dtype, device)
            + agreement.kept(model.segment),
            "name": contract.MODEL_ID,
            "sha256": checkpoints.combined(checkpoints.of_weights(checkpoint.files)),
            "form": "merged" if checkpoint.adapter is None else "adapter",
            "released": checkpoint.released,
            "checkpoint_revision": contract.REVISION if checkpoint.released else None,
            "graphs": self._settings.graphs,
            "parameters": checkpoint.parameters,
            "limits": {"prompt_tokens": contract.MAX_PROMPT_TOKENS, "options": len(contract.LETTERS)},
            "letters": {
                "ids": list(contract.LETTER_IDS),
                "rows": rows,
                "sha256": hashlib.sha256(rows.astype("<f4").tobytes()).hexdigest(),
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[PromptRequest]:
        """One real decision between two options; where passes are recorded it comes twice: the second one replays what
        the first one recorded."""
        encoder = checkpoints.tokenizer(checkpoint.path / contract.TOKENIZER)
        tokens = np.array(encoder.encode(WARM_UP, add_special_tokens=False).ids, np.int32)
        return [PromptRequest(tokens)] * (2 if self._settings.graphs else 1)

    def fits(self, example: PromptRequest, output: Mapping[str, Any]) -> bool:
        """The logits of the two letters are numbers. Raises `NonFinite` otherwise."""
        assert self._rows is not None
        with np.errstate(over="ignore", invalid="ignore"):
            logits = (self._rows[:2].astype(np.float64) * output["hidden"]).sum(axis=1)
        if not np.isfinite(logits).all():
            raise NonFinite("its logits are not finite")
        return True

    def accept(
        self, payload: PromptRequest, checkpoint: Checkpoint, model: qwen3_5.Qwen35, look: Callable[[], None]
    ) -> PromptRequest:
        """What `PromptRequest.from_wire` has checked, but for what only the model knows."""
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if len(payload.tokens) > contract.MAX_PROMPT_TOKENS:
            raise Malformed(f"a prompt has at most {contract.MAX_PROMPT_TOKENS} tokens")
        return payload

    def run(self, request: PromptRequest, model: qwen3_5.Qwen35, look: Callable[[], None]) -> Result:
        """One pass of the model."""
        reading = model.read([request.tokens], [0], look)
        return reading.hidden[0].float().cpu().numpy(), reading

    def run_many(self, requests: Sequence[PromptRequest], model: qwen3_5.Qwen35) -> Sequence[Result]:
        """The prompts of all together."""
        return [
            (reading.hidden[0].float().cpu().numpy(), reading)
            for reading in model.read_many([([request.tokens], [0]) for request in requests])
        ]

    def outputs(self, request: PromptRequest, result: Result, model: qwen3_5.Qwen35) -> dict[str, Any]:
        """The state after a `PromptRequest`, as

            hidden      float32 [hidden size], after the final norm; in bfloat16 widened from that
            processed   tokens the model read: those of the prompt
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        Whether it is finite is for the caller. Raises `Abandoned`, looked for before the pass of the model;
        `protocol.errors.Malformed` for tokens this model lacks or too many of them; `FatalExecutionError` when the
        device failed. The device has finished on return and on every error.
        """
        hidden, reading = result
        return {"hidden": hidden, "processed": reading.processed, "statistics": model.statistics()}

    def close(self) -> None:
        """Drops the model and the letters."""
        super().close()
        self._rows = None
