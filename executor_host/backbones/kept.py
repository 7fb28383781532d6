"""States of token prefixes that are kept between requests, so that a text that comes again is read once.

    root ── [0, S) ── [S, 2S) ── [2S, 2S + r)        r < S: the rest of a prefix
                 └─── [S, 2S) of another text

A prefix is read in fixed segments of S tokens from position 0 on, and then its rest, whether anything of it is kept or
not. So every pass has the same shapes and the same inputs on a hit as on a miss, and the numbers are equal bit for bit.
A node of the tree holds what its segment has added to the attention layers, and all of what the other layers carry
(recurrent states, convolutions, windows): these belong to the node, and never to the request that came last.

The least recently used nodes go first when the budget is spent. A node that a request goes on from stays with that
request, and is only no longer found by others. What a conversation has read last is pinned: it stays until the
conversation goes on or is dropped, and is bounded by the front's budget of the device instead of by this one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host.backbones import pieces
from executor_host.backbones.pieces import Piece
from protocol.retention import Cost, Held

SEGMENT_TOKENS: Final = {"cuda": 512, "cpu": 128}
"""S by kind of device: a CPU gains nothing from wider passes; on a GPU a pass of fewer tokens is mostly launches."""


@dataclass(slots=True)
class Node:
    """The model after the tokens of the path from the root to here."""

    parent: Node | None
    key: bytes
    """The ids of this node's own tokens, as int64: what is compared is the tokens, not a digest of them."""
    tokens: int
    """Of the whole path."""
    layers: tuple[Piece, ...]
    """One for each layer of the model."""
    size: int
    """Bytes of the pieces, and of `hidden`."""
    hidden: Any = None
    """What reading this node's own tokens has returned: hidden states [tokens, size] where all positions are read."""
    children: dict[bytes, Node] = field(default_factory=dict)
    found: bool = True
    """Whether the tree still has it."""
    pins: int = 0
    """How many conversations go on from here, or from below."""

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


@dataclass(slots=True)
class _Turn:
    found: int = 0
    node: Node | None = None
    """The longest prefix that was read."""


class KeptPrefixes:
    """The tree of one model on one device. One thread, like everything that owns a device."""

    def __init__(
        self,
        limit: int,
        segment: int,
        make_cache: Callable[[], Any],
        advance: Callable[[Any, NDArray[Any], int], Any],
    ) -> None:
        """`limit`: bytes of all nodes together that are not pinned. `segment`: S, in tokens. `make_cache`: an empty
        cache of the model.

        `advance(cache, tokens, before)` runs the model over `tokens` (one dimension) that follow the `before` tokens in
        `cache`, and extends that cache; what it returns, a tensor or None, is kept with them. Raises `ValueError` for a
        limit or a segment below 1.
        """
        if limit < 1 or segment < 1:
            raise ValueError("kept prefixes need at least a byte and a token")
        self.limit = limit
        self.segment = segment
        self._allowed: int | None = None
        """What the front lets this model have of the limit; None: all of it."""
        self._make_cache = make_cache
        self._advance = advance
        self._root = Node(None, b"", 0, (), 0)
        self._nodes: OrderedDict[int, Node] = OrderedDict()
        """By `id`, the least recently used first, those that are not pinned. A parent is used whenever its child is,
        and after it: so the first one never has children here."""
        self._bytes = 0
        self._conversations: dict[str, Node] = {}
        self._turn: _Turn | None = None
        self._counts = _Counts()

    def __repr__(self) -> str:
        return f"<KeptPrefixes {len(self._nodes)} nodes, {self._bytes} of {self.limit} bytes>"

    def statistics(self) -> dict[str, int]:
        """Counts since the start: prefixes that were found whole (`hits`) or not (`misses`), tokens that were not read
        again, nodes that were given up; and what is held now, the pinned not among it."""
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
        if self._turn is None:
            self._make_room()
        else:
            self._turn.found += found
            if self._turn.node is None or node.tokens > self._turn.node.tokens:
                self._turn.node = node
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
            cache.layers = [pieces.restored([step.layers[layer] for step in path]) for layer in range(len(node.layers))]
        return cache

    def cost(self) -> Cost:
        """What is kept of a text costs so much. Reads one segment; nothing of it is kept."""
        import torch

        with torch.inference_mode():
            cache = self._make_cache()
            hidden = self._advance(cache, np.zeros(self.segment, np.int64), 0)
        costs = [pieces.cost(layer, self.segment) for layer in cache.layers]
        own = 0 if hidden is None else -(-hidden.nbytes // self.segment)
        token_bytes, state_bytes = own + sum(token for token, _ in costs), sum(state for _, state in costs)
        return Cost(token_bytes, state_bytes, self.segment, self.limit)

    def clear(self) -> None:
        """Give up everything that is kept."""
        for node in self._nodes.values():
            node.found = False
        for leaf in self._conversations.values():
            for node in leaf.path:
                node.found = False
        self._root.children.clear()
        self._nodes.clear()
        self._conversations.clear()
        self._bytes = 0

    # Conversations

    def allow(self, prefixes: int) -> None:
        """What is not pinned may be so many bytes, and at most the limit; what is more is given up."""
        self._allowed = max(0, prefixes)
        self._make_room()

    def begin_turn(self) -> None:
        """What is read from now on is one turn, of a conversation or of none. Nothing is given up until its end."""
        self._turn = _Turn()

    def end_turn(self, conversation: str | None) -> Held:
        """The turn is over: pin the longest prefix that it has read for `conversation`, instead of what was pinned for
        it before. None or "": it was none's, or has failed; what a conversation had stays."""
        turn, self._turn = self._turn, None
        assert turn is not None, "a turn ends once"
        pinned = None
        if conversation and turn.node is not None:
            pinned = turn.node
            self._pin(pinned)
            self.drop([conversation])
            self._conversations[conversation] = pinned
        self._make_room()
        return self._held(pinned, turn.found)

    def drop(self, conversations: Iterable[str]) -> None:
        """Give up what is pinned for these and for no other. Those that are not known have nothing."""
        for name in conversations:
            node = self._conversations.pop(name, None)
            for step in reversed([] if node is None else node.path):
                step.pins -= 1
                if step.pins:
                    continue
                if step.children:
                    # Another text goes on from here: it is a prefix like others, used after that and before its own.
                    self._nodes[id(step)] = step
                    self._bytes += step.size
                else:
                    self._remove(step)
        self._make_room()

    def _held(self, node: Node | None, found: int) -> Held:
        size = 0 if node is None else sum(step.size for step in node.path)
        return Held(self._bytes, 0 if node is None else node.tokens, size, found)

    def _pin(self, node: Node) -> None:
        for step in node.path:
            if step.pins == 0 and self._nodes.pop(id(step), None) is not None:
                self._bytes -= step.size
            step.pins += 1

    # The tree

    def _keep(self, parent: Node, key: bytes, tokens: int, cache: Any, hidden: Any) -> Node:
        layers = tuple(pieces.taken(layer, parent.tokens) for layer in cache.layers)
        size = sum(tensor.nbytes for piece in layers for tensor in piece.tensors)
        size += 0 if hidden is None else hidden.nbytes
        node = Node(parent, key, tokens, layers, size, hidden)
        parent.children[key] = node
        self._nodes[id(node)] = node
        self._bytes += size
        return node

    def _use(self, node: Node) -> None:
        for step in reversed(node.path):
            if id(step) in self._nodes:
                self._nodes.move_to_end(id(step))

    def _make_room(self) -> None:
        most = self.limit if self._allowed is None else min(self.limit, self._allowed)
        while self._bytes > most:
            _, node = self._nodes.popitem(last=False)
            self._bytes -= node.size
            self._remove(node)
            self._counts.evicted += 1

    def _remove(self, node: Node) -> None:
        """It is not found any more."""
        assert node.parent is not None
        del node.parent.children[node.key]
        node.found = False
