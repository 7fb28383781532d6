"""A sentence encoder that transformers loads, on its device: rows of tokens in, one pooled vector of each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import devices
from executor_host.errors import ConfigurationError
from executor_host.executors.embedding import checkpoint as folders
from executor_host.executors.embedding.cache import Vectors

Rows: TypeAlias = Sequence[NDArray[np.int32]]

PASS_TOKENS: Final = 8_192
"""Most tokens of one pass, padding included: 50 MB for the widest activation of a model of 22 million parameters, in
float32."""


class Encoder:
    """One loaded checkpoint. Not safe for more than one thread."""

    backend: ClassVar[str] = "torch"
    pass_tokens: ClassVar[int] = PASS_TOKENS

    def __init__(self, model: Any, pooling: folders.Pooling) -> None:
        """`model`: an encoder on its device, without gradients."""
        self._model = model
        self._pooling: folders.Pooling = pooling
        self.device = model.device

    def __repr__(self) -> str:
        return f"<Encoder {type(self._model).__name__} on {self.device}>"

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return int(self._model.get_input_embeddings().weight.shape[0])

    @property
    def parameters(self) -> int:
        """Parameters."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def read(self, rows: Rows) -> Vectors:
        """The pooled vectors [rows, size], as they come, of one pass over rows that are padded on the right, where the
        mask keeps the padding from mattering."""
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

    def close(self) -> None:
        """Drops the model."""
        self._model = None


def load(checkpoint: folders.Checkpoint, *, device: str, dtype: str) -> Encoder:
    """The encoder of a verified checkpoint, without the pooling layer of some architectures, which is not asked here.

    Raises `ConfigurationError`: torch missing, no such device, or weights that do not fit the configuration.
    """
    target = devices.find(device)
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
            raise ConfigurationError(f"{folders.WEIGHTS} does not fit {folders.CONFIG}: {first} is {what}")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return Encoder(model.eval().requires_grad_(False).to(target), checkpoint.pooling)
