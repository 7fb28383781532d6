"""The Kev network: the text model of Qwen3.5, read at marks within each row, and the head over what is there.

What the rows of a request share, the state above all, is read once, and every row goes on from a copy of it
(backbones/causal.py); on a GPU each row is read alone, until a card has shown that the answers are the same there, but
where prefixes are kept. Nothing looks to the right in this architecture, so that is what each row read alone would be,
but for rounding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import devices
from executor_host.backbones import causal, loading, lora
from executor_host.backbones.kept import KeptPrefixes
from executor_host.errors import ConfigurationError
from executor_host.executors.kev.checkpoint import Checkpoint
from executor_host.executors.kev.head import Head

_LEFT_OUT: Final = re.compile(r"(model\.)?(visual|mtp)\.|lm_head\.")
"""Tensors of a base model that are no part of the text model: they may be there, and are not loaded."""


class KevModel:
    """One loaded checkpoint on its device. `load` makes it. Not safe for more than one thread."""

    def __init__(self, text: Any, head: Head, *, kept_bytes: int, segment: int | None) -> None:
        """`text`: a `Qwen3_5TextModel` on its device, without gradients. The others are as of `causal.Reader`."""
        self.device = text.embed_tokens.weight.device
        self._text = text
        self._head = {name: tensor.to(self.device) for name, tensor in head.tensors.items()}
        self._temperature = head.temperature
        self._full = text.config.layer_types.index("full_attention")
        self._reader = causal.Reader(
            self._forward,
            self._empty_cache,
            self.device,
            way=way_of(self.device.type, kept_bytes),
            kept_bytes=kept_bytes,
            segment=segment,
        )

    def __repr__(self) -> str:
        return f"<KevModel on {self.device} as {self._text.embed_tokens.weight.dtype}>"

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return int(self._text.config.vocab_size)

    @property
    def parameters(self) -> int:
        """Parameters of the text model, without the head."""
        return sum(parameter.numel() for parameter in self._text.parameters())

    @property
    def segment(self) -> int | None:
        """Tokens of a segment of kept prefixes; None when none are kept."""
        return None if self._reader.kept is None else self._reader.kept.segment

    def read(self, rows: Sequence[causal.Row], look: Callable[[], None]) -> tuple[NDArray[np.float32], int]:
        """The logits of all options, row after row, and the tokens the model read, padding not counted.

        The last position of a row is where it is decided, those before it are its options' ends. `look` is called
        before every pass. The device has finished on return.
        """
        import torch

        reading = self._reader.read(rows, look)
        with torch.inference_mode():
            logits = torch.cat([self._point(numbers.float()) for numbers in reading.numbers])
            return logits.cpu().numpy(), reading.processed

    @property
    def kept(self) -> KeptPrefixes | None:
        """What is kept between requests; None when nothing is."""
        return self._reader.kept

    def statistics(self) -> dict[str, Any]:
        """Counts since the start; empty while no prefixes are kept."""
        return {} if self.kept is None else {"kept": self.kept.statistics()}

    def close(self) -> None:
        """Drops the model."""
        self._text = self._reader = self._head = None  # type: ignore[assignment]

    def _point(self, hidden: Any) -> Any:
        """[options] logits of [options + 1, hidden size] states, of which the last is the row's end."""
        from torch.nn.functional import linear

        head = self._head
        query = linear(hidden[-1], head["q.weight"], head["q.bias"])
        keys = linear(hidden[:-1], head["k.weight"], head["k.bias"])
        return (keys @ query) * (1 / math.sqrt(len(query))) / self._temperature

    def _empty_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._text.config)

    def _forward(self, tokens: Any, wanted: Any, cache: Any, layout: Mapping[str, Any]) -> Any:
        """As `causal.Forward`: final-norm hidden states at the positions that are wanted."""
        import torch

        before = 0 if cache is None else int(cache.get_seq_length(self._full))
        length = tokens.shape[1]
        # Without a state the attention is plainly causal; one mask serves all rows, whose padding is on the right.
        mask = None
        if before:
            mask = torch.ones(length, before + length, dtype=torch.bool, device=self.device).tril(before)[None, None]
        hidden = self._text(
            input_ids=tokens,
            attention_mask={"full_attention": mask, "linear_attention": None},
            position_ids=torch.arange(before, before + length, device=self.device).expand(tokens.shape[0], -1),
            cache=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return hidden.gather(1, wanted[:, :, None].expand(-1, -1, hidden.shape[-1]))


def way_of(kind: str, kept_bytes: int) -> causal.Way:
    """How rows are read on a device of this kind, `cpu` or `cuda`. What is kept is gone on from, on any of them."""
    return "alone" if kind == "cuda" and not kept_bytes else "forked"


def load(
    checkpoint: Checkpoint, *, device: str, dtype: str, kept_bytes: int = 0, segment: int | None = None
) -> KevModel:
    """The model of a verified checkpoint, its adapter merged in the dtype it computes in. `device`: `cpu`, `cuda` or
    `cuda:N`. `dtype`: `float32` or `bfloat16`.

    Nothing is downloaded and no code of the checkpoint is run. Raises `ConfigurationError` as `qwen3_5.load` does.
    """
    torch, transformers, target = loading.prepare(device)
    text = loading.from_folder(
        transformers.Qwen3_5TextModel,
        checkpoint.weights,
        getattr(torch, dtype),
        lambda name: _LEFT_OUT.match(name) is not None,
    )
    if checkpoint.adapter is not None:
        lora.merge(text, checkpoint.adapter)
    text = devices.placed(text, target, getattr(torch, dtype)).eval().requires_grad_(False)
    for name, parameter in text.named_parameters():
        # A parameter that was never filled, or lies elsewhere, answers all the same, and wrongly.
        if parameter.device.type != target.type:
            raise ConfigurationError(f"the checkpoint cannot be loaded: {name} is on {parameter.device}")
    return KevModel(text, checkpoint.head, kept_bytes=kept_bytes, segment=segment)
