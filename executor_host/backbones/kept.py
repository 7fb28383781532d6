"""States of token prefixes that are kept between requests, so that a text that comes again is read once.

    root ── [0, S) ── [S, 2S) ── [2S, 2S + r)        r < S: the rest of a prefix
                 └─── [S, 2S) of another text

A prefix is read in fixed segments of S tokens from position 0 on, and then its rest, whether anything of it is kept or
not. So every pass has the same shapes and the same inputs on a hit as on a miss, and the numbers are equal bit for bit.
A node of the tree holds what its segment has added to the attention layers, and all of what the other layers carry
(recurrent states, convolutions, windows): these belong to the node, and never to the request that came last.

The least recently used nodes go first when the budget is spent. A node that a request goes on from stays with that
request, and is only no longer found by others.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SEGMENT_TOKENS: Final = {"cuda": 512, "cpu": 128}
"""S by kind of device: a CPU gains nothing from wider passes; on a GPU a pass of fewer tokens is mostly launches."""


class Unkeepable(ValueError):
    """The model's cache has a layer whose state cannot be taken out of it and put back."""


@dataclass(slots=True)
class Node:
    """The model after the tokens of the path from the root to here."""

    parent: Node | None
    key: bytes
    """The ids of this node's own tokens, as int64: what is compared is the tokens, not a digest of them."""
    tokens: int
    """Of the whole path."""
    pieces: tuple[_Piece, ...]
    """One for each layer."""
    size: int
    """Bytes of the pieces, and of `hidden`."""
    hidden: Any = None
    """What reading this node's own tokens has returned: hidden states [tokens, size] where all positions are read."""
    children: dict[bytes, Node] = field(default_factory=dict)
    found: bool = True
    """Whether the tree still has it."""

    def __repr__(self) -> str:
        return f"<Node of {self.tokens} tokens, {self.size} bytes>"

    @property
    def path(self) -> list[Node]:
        """From the first segment to this one; the root is none."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


@dataclass(slots=True)
class _Counts:
    hits: int = 0
    misses: int = 0
    kept_tokens: int = 0
    evicted: int = 0


class KeptPrefixes:
    """The tree of one model on one device. One thread, like everything that owns a device."""

    def __init__(
        self,
        limit: int,
        segment: int,
        make_cache: Callable[[], Any],
        advance: Callable[[Any, NDArray[Any], int], Any],
    ) -> None:
        """`limit`: bytes of all nodes together. `segment`: S, in tokens. `make_cache`: an empty cache of the model.

        `advance(cache, tokens, before)` runs the model over `tokens` (one dimension) that follow the `before` tokens in
        `cache`, and extends that cache; what it returns, a tensor or None, is kept with them. Raises `ValueError` for a
        limit or a segment below 1.
        """
        if limit < 1 or segment < 1:
            raise ValueError("kept prefixes need at least a byte and a token")
        self.limit = limit
        self.segment = segment
        self._make_cache = make_cache
        self._advance = advance
        self._root = Node(None, b"", 0, (), 0)
        self._nodes: OrderedDict[int, Node] = OrderedDict()
        """By `id`, the least recently used first. A parent is used whenever its child is, and after it: so the first
        one never has children."""
        self._bytes = 0
        self._counts = _Counts()

    def __repr__(self) -> str:
        return f"<KeptPrefixes {len(self._nodes)} nodes, {self._bytes} of {self.limit} bytes>"

    def statistics(self) -> dict[str, int]:
        """Counts since the start: prefixes that were found whole (`hits`) or not (`misses`), tokens that were not read
        again, nodes that were given up; and what is held now."""
        counts = self._counts
        return {
            "hits": counts.hits,
            "misses": counts.misses,
            "kept_tokens": counts.kept_tokens,
            "evicted": counts.evicted,
            "nodes": len(self._nodes),
            "bytes": self._bytes,
            "limit_bytes": self.limit,
        }

    def read(self, tokens: NDArray[Any], check: Callable[[], None]) -> Node:
        """The node of the model after `tokens`, one dimension, 1 or more ids; what is missing of it is read.

        `check` is called before every pass and ends the reading by raising; the segments that were read until then are
        kept. When a pass raises, nothing of that pass is kept.
        """
        ids = np.ascontiguousarray(tokens, np.int64)
        node = self._root
        cache: Any = None
        found = 0
        for start in range(0, len(ids), self.segment):
            part = ids[start : start + self.segment]
            key = part.tobytes()
            child = node.children.get(key)
            if child is None:
                check()
                if cache is None:
                    cache = self.restore(node)
                hidden = self._advance(cache, part, start)
                child = self._keep(node, key, start + len(part), cache, hidden)
            else:
                found += len(part)
            node = child
        self._use(node)
        self._make_room()
        self._counts.kept_tokens += found
        if found == len(ids):
            self._counts.hits += 1
        else:
            self._counts.misses += 1
        return node

    def restore(self, node: Node) -> Any:
        """A cache of the model in the state of `node`, for one row; it shares no memory with what is kept."""
        cache = self._make_cache()
        path = node.path
        if path:
            cache.layers = [_restored([step.pieces[layer] for step in path]) for layer in range(len(node.pieces))]
        return cache

    def clear(self) -> None:
        """Give up everything that is kept."""
        for node in self._nodes.values():
            node.found = False
        self._root.children.clear()
        self._nodes.clear()
        self._bytes = 0

    def _keep(self, parent: Node, key: bytes, tokens: int, cache: Any, hidden: Any) -> Node:
        pieces = tuple(_piece(layer, parent.tokens) for layer in cache.layers)
        size = sum(tensor.nbytes for piece in pieces for tensor in piece.tensors)
        size += 0 if hidden is None else hidden.nbytes
        node = Node(parent, key, tokens, pieces, size, hidden, found=parent is self._root or parent.found)
        if node.found:
            parent.children[key] = node
            self._nodes[id(node)] = node
            self._bytes += size
        return node

    def _use(self, node: Node) -> None:
        for step in reversed(node.path):
            if step.found:
                self._nodes.move_to_end(id(step))

    def _make_room(self) -> None:
        while self._bytes > self.limit:
            _, node = self._nodes.popitem(last=False)
            assert node.parent is not None
            del node.parent.children[node.key]
            node.found = False
            self._bytes -= node.size
            self._counts.evicted += 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one layer holds of one node: `shell` is the layer without its tensors.

    Tensors of an attention layer are [1, heads, tokens of the node, size] each; of another layer they are whatever it
    carries after the node's last token.
    """

    shell: Any
    tensors: tuple[Any, ...]
    grows: bool
    """Whether the layer's state is that of all pieces of the path one after the other, and not the last one's alone."""


def _piece(layer: Any, before: int) -> _Piece:
    """What `layer` of a cache has got since its first `before` tokens, or carries now; copied."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, LinearAttentionLayer

    shell = copy.copy(layer)
    if type(layer) is DynamicLayer:
        shell.keys = shell.values = None
        return _Piece(shell, tuple(whole[:, :, before:].clone() for whole in (layer.keys, layer.values)), grows=True)
    if type(layer) is DynamicSlidingWindowLayer:
        shell.keys = shell.values = None
        return _Piece(shell, (layer.keys.clone(), layer.values.clone()), grows=False)
    if type(layer) is LinearAttentionLayer:
        # The tables of flags are written by the layer itself, so each copy has its own.
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                setattr(shell, name, dict(value))
        tensors = tuple(state.clone() for state in _states(layer))
        shell.conv_states = dict.fromkeys(layer.conv_states)
        shell.recurrent_states = dict.fromkeys(layer.recurrent_states)
        return _Piece(shell, tensors, grows=False)
    raise Unkeepable(f"the state of a {type(layer).__name__} cannot be kept between requests")


def _restored(pieces: Sequence[_Piece]) -> Any:
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
