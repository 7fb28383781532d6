"""Rows of token ids through any causal model of transformers: what the rows share is read once.

The model's own forward does everything; what is decided here is which tokens go through it together, and from which
state (prefix.py, packing.py). A state is the model's own cache. What leaves a pass are the model's numbers at the
positions that were asked for, and no others. Rows go on from a state in one of two ways:

    packed   their ends stand one after the other in a single row, each hidden from the others by the mask: no
             padding, and the state is not copied. For models whose layers all attend to everything before.
    forked   their ends are rows of a batch, padded on the right, and each has a copy of the state. For all others:
             layers that carry a state of their own, windows.

Padding needs no mask: a causal model reads every row before its padding, so what the padding holds cannot reach a
number that is asked for. All of that needs a model that reads from left to right and takes positions as they are given.
Not every model does, so `Reader` is told which way to take, and the caller has compared them
(executors/transformers_model.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host.backbones import forks, packing, prefix
from executor_host.backbones.kept import SEGMENT_TOKENS, KeptPrefixes
from executor_host.backbones.qwen3_5 import FORK_BYTES, PASS_PADDING, SUFFIX_TOKENS

Tokens: TypeAlias = NDArray[np.int64]

Way: TypeAlias = Literal["alone", "forked", "packed"]
"""How rows are read: every one by itself, as transformers does it, or from shared states."""

PACKED_TOKENS: Final = {"cuda": 4096, "cpu": 512}
"""Row ends that are packed into one pass. Every end is compared with all others there, only to be hidden from them, so
more than what fills the device is work for nothing."""


class Forward(Protocol):
    """The model: [rows, length] ids and [rows, n] indexes of them to [rows, n, numbers].

    With a `cache`, the ids follow the tokens in it, which is extended by them. n is 0 for a state alone. `layout` holds
    `attention_mask` [1, 1, length, all], True where an id sees a token, and `position_ids` [1, length] where the ids
    are not simply one text; it is empty otherwise.
    """

    def __call__(self, tokens: Any, wanted: Any, cache: Any, layout: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt: its ids, one or more, and the ascending positions in it whose numbers are wanted, one or more."""

    tokens: Tokens
    positions: Tokens


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out of the rows of one request."""

    numbers: list[Any]
    """Of each row, torch [positions, numbers] of the model's dtype, on its device."""
    processed: int
    """Tokens the model read, padding not counted."""
    shared: bool
    """Whether anything was read once for several rows."""


@dataclass(frozen=True, slots=True)
class _State:
    """The model after some tokens."""

    cache: Any
    tokens: int
    bytes: int
    """Of the cache, for one row."""


class Reader:
    """Reads rows on one device. One thread, like everything that owns a device."""

    def __init__(
        self,
        forward: Forward,
        make_cache: Callable[[], Any],
        device: Any,
        *,
        way: Way,
        least: int | None = None,
        kept_bytes: int = 0,
        segment: int | None = None,
    ) -> None:
        """`make_cache`: an empty cache of the model. `least`: tokens that a state must save to be made; None: that of
        the device. `kept_bytes`: memory for prefixes that are kept between requests (kept.py), 0 for none; `segment`:
        tokens of a segment of theirs, None: that of the device. Raises `ValueError` for kept prefixes of a model whose
        rows are read `alone`, and `pieces.Unkeepable` at the first reading of a model that has such layers.
        """
        self._forward = forward
        self._make_cache = make_cache
        self._device = device
        self._way: Way = way
        self._padding = PASS_PADDING[device.type]
        # A state costs a pass of its own, and so does a row that is not padded into another one's pass.
        self._least = self._padding if least is None else least
        self._kept: KeptPrefixes | None = None
        if kept_bytes:
            if way == "alone":
                raise ValueError("a prefix can only be kept of a model that goes on from states")
            segment = SEGMENT_TOKENS[device.type] if segment is None else segment
            self._kept = KeptPrefixes(kept_bytes, segment, make_cache, self._extend)

    def __repr__(self) -> str:
        return f"<Reader {self._way} on {self._device}>"

    @property
    def kept(self) -> KeptPrefixes | None:
        """What is kept between requests; None when nothing is."""
        return self._kept

    def read(self, rows: Sequence[Row], check: Callable[[], None]) -> Reading:
        """The numbers of every row, in order.

        `check` is called before every pass and ends the reading by raising. The device may still be working on the
        result on return.
        """
        import torch

        lengths = [len(row.tokens) for row in rows]
        numbers: list[Any] = [None] * len(rows)
        with torch.inference_mode():
            if self._way == "alone":
                for index, row in enumerate(rows):
                    check()
                    numbers[index] = self._batch([row], 0, None)[0]
                return Reading(numbers, sum(lengths), shared=False)
            shareable = [row.tokens[: int(row.positions[0]) + 1] for row in rows]
            node = prefix.tree(shareable, lengths, self._least) if rows else prefix.Node(0, (), ())
            state = None
            if self._kept is not None and rows:
                length = _kept_length(node, shareable, self._kept.segment)
                if length:
                    kept_node = self._kept.read(rows[0].tokens[:length], check)
                    state = self._state(self._kept.restore(kept_node), length)
            self._read(node, state, rows, numbers, check)
        processed = node.tokens(lengths)
        return Reading(numbers, processed, shared=processed < sum(lengths))

    def _read(
        self,
        node: prefix.Node,
        state: _State | None,
        rows: Sequence[Row],
        numbers: list[Any],
        check: Callable[[], None],
    ) -> None:
        """Everything below `node`, which goes on from `state`, into `numbers`."""
        if node.prefix > (state.tokens if state else 0):
            check()
            state = self._advance(state, rows[_some_row(node)].tokens[: node.prefix])
        before = state.tokens if state else 0
        packed = state is not None and self._way == "packed"
        for group in packing.groups(
            [len(rows[row].tokens) - before for row in node.rows],
            max_rows=len(rows) if packed else self._forks(state),
            max_tokens=PACKED_TOKENS[self._device.type] if packed else None,
            max_padded=None if packed else SUFFIX_TOKENS[self._device.type],
            max_padding=None if packed else self._padding,
        ):
            check()
            members = [rows[node.rows[index]] for index in group]
            if state is not None and packed:
                found = self._line(members, state)
            else:
                found = self._batch(members, before, None if state is None else forks.fork(state.cache, len(members)))
            for index, values in zip(group, found, strict=True):
                numbers[node.rows[index]] = values
        for child in node.children:
            self._read(child, state, rows, numbers, check)

    def _advance(self, state: _State | None, tokens: Tokens) -> _State:
        """The state after `tokens`, which begin with those of `state`; that one stays as it is."""
        cache = self._make_cache() if state is None else forks.fork(state.cache, 1)
        before = 0 if state is None else state.tokens
        self._extend(cache, tokens[before:], before)
        return self._state(cache, len(tokens))

    def _extend(self, cache: Any, tokens: NDArray[Any], before: int) -> None:
        """Have `cache`, which holds `before` tokens, hold `tokens` after them."""
        import torch

        self._forward(self._upload(tokens[None]), torch.empty(1, 0, dtype=torch.int64, device=self._device), cache, {})

    def _state(self, cache: Any, tokens: int) -> _State:
        return _State(cache, tokens, sum(tensor.nbytes for layer in cache.layers for tensor in _tensors(layer)))

    def _forks(self, state: _State | None) -> int:
        """How many rows may go on from a state at a time; a copy exists twice while a row's end is appended to it."""
        budget = FORK_BYTES[self._device.type]
        if state is None or not state.bytes:
            return budget
        if self._device.type == "cuda":
            import torch

            free, _ = torch.cuda.mem_get_info(self._device)
            free += torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
            budget = min(budget, free // 2)
        return max(1, budget // (2 * state.bytes))

    def _batch(self, rows: Sequence[Row], before: int, cache: Any) -> list[Any]:
        """The numbers of each of `rows`, read from their token `before` on, as rows of one pass."""
        tokens = np.zeros((len(rows), max(len(row.tokens) for row in rows) - before), np.int64)
        wanted = np.zeros((len(rows), max(len(row.positions) for row in rows)), np.int64)
        for index, row in enumerate(rows):
            tokens[index, : len(row.tokens) - before] = row.tokens[before:]
            wanted[index, : len(row.positions)] = row.positions - before
        numbers = self._forward(self._upload(tokens), self._upload(wanted), cache, {})
        return [numbers[index, : len(row.positions)] for index, row in enumerate(rows)]

    def _line(self, rows: Sequence[Row], state: _State) -> list[Any]:
        """The numbers of each of `rows`, whose ends go on from `state` side by side in a single row."""
        before = state.tokens
        lengths = [len(row.tokens) - before for row in rows]
        starts = np.cumsum([0, *lengths[:-1]])
        owner = np.repeat(np.arange(len(rows)), lengths)
        places = np.concatenate([np.arange(before, before + length) for length in lengths])
        layout = {
            "attention_mask": _side_by_side(self._upload(owner), before)[None, None],
            "position_ids": self._upload(places[None]),
        }
        tokens = self._upload(np.concatenate([row.tokens[before:] for row in rows])[None])
        wanted = np.concatenate([row.positions - before + start for row, start in zip(rows, starts, strict=True)])
        numbers = self._forward(tokens, self._upload(wanted[None]), forks.fork(state.cache, 1), layout)[0]
        ends = np.cumsum([len(row.positions) for row in rows]).tolist()
        return [numbers[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _upload(self, values: NDArray[Any]) -> Any:
        import torch

        return torch.from_numpy(values).to(self._device)


def _side_by_side(owner: Any, before: int) -> Any:
    """The mask [tokens, before + tokens] of row ends that lie in one row: each token sees the state and, of its own
    row, those up to itself. `owner`: [tokens] the row of each. Made on its device: an upload would be of the square."""
    import torch

    own = (owner[:, None] == owner).tril()
    return torch.cat([own.new_ones(len(owner), before), own], dim=1)


def _kept_length(node: prefix.Node, shareable: Sequence[Tokens], segment: int) -> int:
    """How many tokens, with which all rows begin, are read as a kept prefix: what they share, or of a row that shares
    nothing as many whole segments as there are before its first position."""
    if len(shareable) == 1:
        before = len(shareable[0]) - 1
        return before - before % segment
    return node.prefix


def _some_row(node: prefix.Node) -> int:
    """A row that begins with the tokens of the node's state: any of those below it."""
    return node.rows[0] if node.rows else _some_row(node.children[0])


def _tensors(layer: Any) -> list[Any]:
    """Every tensor that a layer of a cache holds, also those in its lists and tables."""
    import torch

    found: list[Any] = []
    for value in vars(layer).values():
        members = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        found += [member for member in members if isinstance(member, torch.Tensor)]
    return found
