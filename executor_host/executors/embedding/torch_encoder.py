"""Any encoder that transformers loads, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import devices
from executor_host.errors import ConfigurationError
from executor_host.executors.embedding.cache import Vectors
from executor_host.executors.embedding.checkpoint import CONFIG, WEIGHTS, Checkpoint

PASS_TOKENS: Final = 8_192
"""Most tokens of one pass, padding included: 50 MB for the widest activation of a model of 22 million parameters, in
float32."""


class TorchEncoder:
    """A loaded model on its device. One thread at a time."""

    backend: ClassVar[str] = "torch"
    max_pass_tokens: ClassVar[int] = PASS_TOKENS

    def __init__(self, checkpoint: Checkpoint, device: str, dtype: str) -> None:
        """`device` and `dtype` by name. Raises `ConfigurationError`: torch missing, no such device, or weights that do
        not fit their configuration."""
        found = devices.find(device)
        self.device = device
        self._model = _load(checkpoint, dtype).to(found)
        self._pooling = checkpoint.pooling
        self.parameters: int = sum(parameter.numel() for parameter in self._model.parameters())

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self._model.get_input_embeddings().weight.shape[0])

    @contextmanager
    def settled(self) -> Iterator[None]:
        """As `devices.settled`, of this model's device."""
        with devices.settled(self._model.device.type, lambda: devices.synchronize(self._model.device)):
            yield

    def pooled(self, rows: Sequence[NDArray[np.int32]]) -> Vectors:
        """One pass: a vector for each row of tokens, [rows, size], as it comes. The rows are padded on the right, where
        the mask keeps them from mattering."""
        import torch

        longest = max(map(len, rows))
        tokens = np.full((len(rows), longest), self._model.config.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = row
            mask[place, : len(row)] = 1
        with torch.inference_mode():
            seen = torch.from_numpy(mask).to(self._model.device)
            hidden = self._model(
                input_ids=torch.from_numpy(tokens).to(self._model.device), attention_mask=seen
            ).last_hidden_state.float()
            if self._pooling == "cls":
                pooled = hidden[:, 0]
            else:
                weight = seen[..., None].float()
                pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
            found: Vectors = pooled.cpu().numpy()
        return found


def _load(checkpoint: Checkpoint, dtype: str) -> Any:
    """The encoder, without gradients and without the pooling layer of some architectures, which nobody asks here."""
    torch = devices.torch_library()
    try:
        import transformers
    except ImportError as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # which lists the weights of that layer as left over
    try:
        model, report = transformers.AutoModel.from_pretrained(
            checkpoint.path,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError, ImportError) as error:
        raise ConfigurationError(f"the checkpoint cannot be loaded: {error}") from error
    missing = [name for name in map(str, report["missing_keys"]) if not name.startswith("pooler.")]
    for what, names in (
        ("missing", missing),
        ("of another shape", report["mismatched_keys"]),
        ("wrong", report["error_msgs"]),
    ):
        if names:
            first = min(map(str, names))
            raise ConfigurationError(f"{WEIGHTS} does not fit {CONFIG}: {first} is {what}")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model.eval().requires_grad_(False)
