"""Copies of a transformers cache that several rows go on from.

Only what a pass writes in place is copied: the states of linear attentions. Keys and values are extended into new
tensors, so until then the rows can be views of the one there is. (Copying everything took 10 to 12 ms at 64 layers,
this takes 1.)
"""

from __future__ import annotations

import copy
from typing import Any


def fork(cache: Any, rows: int) -> Any:
    """A cache that holds the one row of `cache` so many times, and may be extended without changing it."""
    twin = copy.copy(cache)
    twin.layers = [_layer(layer, rows) for layer in cache.layers]
    return twin


def _layer(layer: Any, rows: int) -> Any:
    import torch
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

    if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer):
        twin = copy.copy(layer)
        if twin.is_initialized:
            twin.keys, twin.values = (tensor.expand(rows, -1, -1, -1) for tensor in (layer.keys, layer.values))
        return twin
    if type(layer) is LinearAttentionLayer:
        twin = copy.copy(layer)
        for name, table in vars(layer).items():
            if isinstance(table, dict):  # of states, or of flags that the layer writes itself
                setattr(twin, name, {key: _repeated(value, rows) for key, value in table.items()})
        return twin
    twin = copy.deepcopy(layer)  # others may be written in place
    if rows > 1:
        twin.reorder_cache(torch.zeros(rows, dtype=torch.int64))
    return twin


def _repeated(value: Any, rows: int) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.repeat(rows, *[1] * (value.dim() - 1)) if rows > 1 else value.clone()


def bytes_of(config: Any, size: int, tokens: int, longest: int) -> int:
    """Memory of one row that goes on from a state of `tokens` tokens by at most `longest`, in a Qwen3.5 of `config`
    whose values have `size` bytes. The keys and values of the state are views until the row's own are appended."""
    attention = config.layer_types.count("full_attention")
    linear = config.num_hidden_layers - attention
    keys_and_values = 2 * attention * config.num_key_value_heads * config.head_dim * (tokens + longest) * size
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    recurrent = values * config.linear_key_head_dim * 4
    convolution = (2 * keys + values) * config.linear_conv_kernel_dim * size
    return int(keys_and_values + linear * (recurrent + convolution))
