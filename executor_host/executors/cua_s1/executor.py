"""The cua-s1 family in the host: the prompt of one question in, the hidden state of its last token out.

The front renders and tokenizes, and multiplies the state with the 26 letter rows of the tied embedding, which it is
given with the facts: what is asked of the device is one unpadded pass per question, and nothing else. The adapter
is merged when the weights are loaded (cua_s1_adapter.py), or has been before (cua_s1_checkpoint.py).

One unit is one question. An error of an execution does not retire the host; one of the device does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from executor_host import checkpoints, devices
from executor_host.backbones import qwen3_5
from executor_host.errors import ConfigurationError, ExecutionFailed
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check, warming_up
from executor_host.executors.cua_s1 import adapter as adapters
from executor_host.executors.cua_s1 import checkpoint as released
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

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class CuaS1Executor(Executor):
    """`path`: the folder of a base model or of a merged export."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        graphs: bool = self.options["graphs"]
        # A request is one row, so "packed" is that row alone, and the only one that is recorded.
        self._settings = qwen3_5.Settings(execution="packed" if graphs else "rows", max_rows=1, graphs=graphs)
        self._backbone: qwen3_5.Qwen35 | None = None
        self._rows: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def __repr__(self) -> str:
        return f"<CuaS1Executor {self._backbone or 'not loaded'}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the files, loads the weights, merges the adapter. Raises `ConfigurationError`: torch missing, no such
        device, or a folder that is not a checkpoint of this family.

        Besides what every family reports: `files`, sha256 by name; `released`; `letters`, the rows of A to Z
        {ids, rows: float32 [26, hidden size], sha256 of their bytes}.
        """
        qwen3_5.libraries()
        device, dtype = devices.placement(self.options["device"], self.options["dtype"])
        checkpoint = released.verify(
            self.path,
            self.options["adapter"],
            claimed=self.options["revision"] is not None,
            progress=lambda fraction, note: progress(_HASHED * fraction, note),
        )
        progress(_HASHED, f"reading {checkpoints.amount(checkpoints.weight_bytes(checkpoint.path))} of weights")
        adapter = checkpoint.adapter
        backbone = qwen3_5.load(
            checkpoint.path,
            device=device,
            dtype=dtype,
            settings=self._settings,
            adapt=None if adapter is None else lambda text: adapters.merge(text, adapter),
        )
        rows = backbone.embeddings(contract.LETTER_IDS).float().cpu().numpy()
        self._backbone, self._rows = backbone, rows
        progress(1.0, "loaded")
        return {
            "identity": contract.identity(checkpoints.combined(checkpoint.files), dtype, device),
            "name": contract.MODEL_ID,
            "sha256": checkpoints.combined(
                {name: digest for name, digest in checkpoint.files.items() if _holds_weights(name)}
            ),
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "form": "merged" if adapter is None else "adapter",
            "released": checkpoint.released,
            "checkpoint_revision": contract.REVISION if checkpoint.released else None,
            "dtype": dtype,
            "device": device,
            "graphs": self._settings.graphs,
            "parameters": checkpoint.parameters,
            "limits": {"prompt_tokens": contract.MAX_PROMPT_TOKENS, "options": len(contract.LETTERS)},
            "letters": {
                "ids": list(contract.LETTER_IDS),
                "rows": rows,
                "sha256": hashlib.sha256(rows.astype("<f4").tobytes()).hexdigest(),
            },
        }

    def warm_up(self) -> None:
        """One real decision between two options, letters included."""
        if self._rows is None or self.path is None:
            raise ConfigurationError("the warm-up comes after the load")
        from tokenizers import Tokenizer

        encoder = Tokenizer.from_file(f"{self.path}/{contract.TOKENIZER}")
        encoder.no_truncation()
        encoder.no_padding()
        tokens = np.array(encoder.encode(WARM_UP, add_special_tokens=False).ids, np.int32)
        with warming_up():
            for _ in range(2 if self._settings.graphs else 1):  # the second one replays what the first one recorded
                hidden = self.execute(PromptRequest(tokens), WarmUpCall())["hidden"]
        with np.errstate(over="ignore", invalid="ignore"):
            logits = (self._rows[:2].astype(np.float64) * hidden).sum(axis=1)
        if not np.isfinite(logits).all():
            raise ConfigurationError("the warm-up decision failed: its logits are not finite")

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """The state after a `PromptRequest`, as

            hidden      float32 [hidden size], after the final norm; in bfloat16 widened from that
            processed   tokens the model read: those of the prompt
            statistics  counts of this host since its start (backbones/qwen3_5.py)

        Whether it is finite is for whoever uses it. Raises `Abandoned`, looked for before the pass of the model;
        `protocol.errors.Malformed` for tokens this model lacks or too many of them; `FatalExecutionError` when the
        device failed. The device has finished on return and on every error.
        """
        backbone = self._backbone
        if backbone is None:
            raise ExecutionFailed("the model is not loaded")
        if not isinstance(payload, PromptRequest):
            raise ExecutionFailed(f"a prompt request is expected, not {type(payload).__name__}")
        if int(payload.tokens.max()) >= backbone.vocabulary:
            raise Malformed(f"a token is below {backbone.vocabulary}, the size of this model's vocabulary")
        if len(payload.tokens) > contract.MAX_PROMPT_TOKENS:
            raise Malformed(f"a prompt has at most {contract.MAX_PROMPT_TOKENS} tokens")
        with devices.settled(backbone.device.type, backbone.synchronize):
            reading = backbone.read([payload.tokens], [0], lambda: check(call))
            hidden = reading.hidden[0].float().cpu().numpy()
        return {"hidden": hidden, "processed": reading.processed, "statistics": backbone.statistics()}

    def close(self) -> None:
        """Drops the model."""
        if self._backbone is not None:
            self._backbone.close()
        self._backbone = self._rows = None


def _holds_weights(name: str) -> bool:
    return name.endswith(".safetensors")
