"""What the layers of a model's cache hold of some tokens: taken out of the cache, put back, and what it costs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class Unkeepable(ValueError):
    """The model's cache has a layer whose state cannot be taken out of it and put back."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one layer holds of one node: `shell` is the layer without its tensors.

    Tensors of an attention layer are [1, heads, tokens of the node, size] each; of another layer they are whatever it
    carries after the node's last token.
    """

    shell: Any
    tensors: tuple[Any, ...]
    grows: bool
    """Whether the layer's state is that of all pieces of the path one after the other, and not the last one's alone."""


def taken(layer: Any, before: int) -> Piece:
    """What `layer` of a cache has got since its first `before` tokens, or carries now; copied."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

    shell = copy.copy(layer)
    if type(layer) is DynamicLayer:
        shell.keys = shell.values = None
        return Piece(shell, tuple(whole[:, :, before:].clone() for whole in (layer.keys, layer.values)), grows=True)
    if type(layer) is DynamicSlidingWindowLayer:
        shell.keys = shell.values = None
        return Piece(shell, (layer.keys.clone(), layer.values.clone()), grows=False)
    if type(layer) is LinearAttentionLayer:
        # The tables of flags are written by the layer itself, so each copy has its own.
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                setattr(shell, name, dict(value))
        tensors = tuple(state.clone() for state in _states(layer))
        shell.conv_states = dict.fromkeys(layer.conv_states)
        shell.recurrent_states = dict.fromkeys(layer.recurrent_states)
        return Piece(shell, tensors, grows=False)
    raise Unkeepable(f"the state of a {type(layer).__name__} cannot be kept between requests")


def restored(pieces: Sequence[Piece]) -> Any:
    """A layer of a cache from what the nodes of a path hold of it."""
    import torch

    last = pieces[-1]
    layer = copy.copy(last.shell)
    if hasattr(last.shell, "keys"):
        if last.grows:
            layer.keys, layer.values = (torch.cat([piece.tensors[side] for piece in pieces], dim=-2) for side in (0, 1))
        else:
            layer.keys, layer.values = (tensor.clone() for tensor in last.tensors)
        return layer
    for name, value in vars(last.shell).items():
        if isinstance(value, dict):
            setattr(layer, name, dict(value))
    tensors = iter(last.tensors)
    for table, flags in (
        (layer.conv_states, layer.is_conv_states_initialized),
        (layer.recurrent_states, layer.is_recurrent_states_initialized),
    ):
        for index in table:
            if flags[index]:
                table[index] = next(tensors).clone()
    return layer


def _states(layer: Any) -> list[Any]:
    """The tensors of a linear-attention layer that it has made, in the order in which they are put back."""
    return [
        table[index]
        for table, flags in (
            (layer.conv_states, layer.is_conv_states_initialized),
            (layer.recurrent_states, layer.is_recurrent_states_initialized),
        )
        for index in table
        if flags[index]
    ]


def cost(layer: Any, tokens: int) -> tuple[int, int]:
    """Of a layer that has read `tokens`, 1 or more: bytes of each of them, and bytes of its state at most, which every
    node has once."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    size = sum(tensor.nbytes for tensor in taken(layer, 0).tensors)
    if type(layer) is DynamicLayer:
        return -(-size // tokens), 0
    if type(layer) is DynamicSlidingWindowLayer:
        return 0, -(-size // layer.keys.shape[-2]) * layer.sliding_window
    return 0, size
