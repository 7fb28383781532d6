"""Random Qwen3.5 text models and rows of random tokens: what the benchmarks of the backbone read.

Nothing is downloaded and nothing is written: a model is built on its device, in its dtype. Its numbers mean nothing,
and take as long as any others. The weights are scaled so that the hidden states stay about as large from layer to
layer; larger ones would make a random model chaotic, and rounding would look like a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = list[NDArray[np.int32]]


class Shape(NamedTuple):
    """Sizes of a text model; every fourth layer is full attention."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head_dim: int
    linear_key_heads: int
    linear_value_heads: int
    linear_head_dim: int
    vocabulary: int

    def config(self) -> Any:
        """As transformers wants it."""
        from transformers import Qwen3_5TextConfig

        pairs = self.head_dim // 8  # a quarter of the head is rotated
        first = -(-pairs // 3)
        second = -(-(pairs - first) // 2)
        return Qwen3_5TextConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.key_value_heads,
            head_dim=self.head_dim,
            linear_num_key_heads=self.linear_key_heads,
            linear_num_value_heads=self.linear_value_heads,
            linear_key_head_dim=self.linear_head_dim,
            linear_value_head_dim=self.linear_head_dim,
            linear_conv_kernel_dim=4,
            max_position_embeddings=65_536,
            tie_word_embeddings=True,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10_000_000.0,
                "partial_rotary_factor": 0.25,
                "mrope_section": [first, second, pairs - first - second],
                "mrope_interleaved": True,
            },
        )


def parameters(shape: Shape) -> int:
    """Parameters of a text model of this shape, without building it."""
    import torch
    from transformers import Qwen3_5TextModel

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Qwen3_5TextModel(shape.config()).parameters())


def build(shape: Shape, *, device: Any = "cpu", dtype: str = "float32", seed: int = 0) -> Any:
    """A `Qwen3_5TextModel` with random weights, without gradients, attending by SDPA."""
    import torch
    from transformers import Qwen3_5TextModel

    torch.manual_seed(seed)
    with torch.device(device):
        model = Qwen3_5TextModel._from_config(
            shape.config(), dtype=getattr(torch, dtype), attn_implementation="sdpa"
        ).eval()
    model.requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            scale = 0.5 if "embed" in name else 0.5 * parameter.shape[-1] ** -0.5
            parameter.normal_(0.0, scale)
        elif name == "norm.weight":
            parameter.fill_(-0.8)  # added to 1
    return model


def request(shape: Shape, shared: int, ends: Sequence[int], *, seed: int = 0) -> Rows:
    """One row per end: `shared` tokens that are the same in all rows, then so many of its own."""
    random = np.random.default_rng(seed)
    start = random.integers(0, shape.vocabulary, shared).astype(np.int32)
    return [np.concatenate([start, random.integers(0, shape.vocabulary, end).astype(np.int32)]) for end in ends]
