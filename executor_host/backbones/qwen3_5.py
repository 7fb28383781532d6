"""Prefill with the text model of Qwen3.5: rows of token ids in, the last token's final-norm hidden state of each out.

The forward is that of transformers (`qwen3_5_text`); what is decided here is which tokens go through it together.

    rows     every row alone
    packed   neighbouring rows together, padded on the right (packing.py)
    shared   what the rows have in common is read once, its state is copied to the branches, and the rows'
             own ends are read from there (prefix.py); rows that share nothing run alone
    auto     shared where the published thresholds are reached, packed otherwise; on a GPU rows (`settings_of`)
    kept     with memory for it: the prefix of every request is read in fixed segments, and is kept for the next one
             (kept.py); the rows' own ends are read from there, as in shared

Padding needs no mask. Of four layers three are linear attention, which carries a state and a short convolution
from left to right, and one is causal attention: none of them looks to the right, so a padded row's real tokens
are read exactly as without the padding. The states *after* padding would be wrong, and are never used: states
are taken from single, unpadded rows only.

Logits are not made here. No position but the last of each row leaves a pass, except through `read_all`.

Source: the family's published runtime, decider-ai 1.8.1; transformers 5.24 for the model and its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from executor_host.backbones import forks, last_layer, loading, packing, prefix
from executor_host.backbones.graphs import CudaRecorder, Graphs
from executor_host.backbones.kept import SEGMENT_TOKENS, KeptPrefixes
from executor_host.errors import ConfigurationError

Execution: TypeAlias = Literal["rows", "packed", "shared", "auto"]

EXECUTIONS: Final[tuple[str, ...]] = get_args(Execution)

FORK_BYTES: Final = {"cuda": 8 << 30, "cpu": 2 << 30}
"""Memory for copies of a shared state. On a GPU also at most half of what is free (the reference's own
bounds); on a CPU it is shared with the front and everything else, so less."""

SUFFIX_TOKENS: Final = {"cuda": 65_536, "cpu": 8_192}
"""Row ends read in one pass, padding included. The GPU figure is the reference's; a CPU gains nothing from wide
passes, and 8,192 tokens of the widest activation are 200 MB in float32."""

PASS_PADDING: Final = {"cuda": 512, "cpu": 64}
"""Padding that one row may add to a pass: more, and a pass of its own is cheaper. 512 is what the reference's cost
model takes a pass on a GPU for; on a CPU, where nothing waits for a launch, one chunk of the linear layers."""

RECORDED_TOKENS: Final = 8_192
"""Passes of more tokens, padding included, are not recorded as CUDA graphs: launching is no part of their time."""

JOINT_UNITS: Final = 32
"""Requests whose rows are read together; `max_rows` and `max_tokens` bound the passes."""

ALL: Final = "all"
"""Of a pass: every position is read."""

Tokens: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the rows of a request are executed."""

    execution: Execution = "auto"
    max_rows: int = packing.MAX_ROWS
    max_tokens: int = packing.MAX_TOKENS
    graphs: bool = False
    """Record and replay the passes of rows without a state; CUDA only."""
    fork_bytes: int | None = None
    """Memory for copies of a shared state; None: that of the device in `FORK_BYTES`."""
    suffix_tokens: int | None = None
    """Row ends in one pass; None: that of the device in `SUFFIX_TOKENS`."""
    kept_bytes: int = 0
    """Memory for prefixes that are kept between requests; 0: none are, and `execution` says how rows are read."""
    segment: int | None = None
    """Tokens of a segment of a kept prefix; None: that of the device in `SEGMENT_TOKENS`."""
    every_position: bool = False
    """Whether what is kept is for `read_all`, which needs the hidden states of a prefix as well."""


def settings_of(
    options: Mapping[str, Any], max_rows: int, max_tokens: int, *, device: str, auto: Execution = "auto"
) -> Settings:
    """The settings that a family's options `execution`, `graphs`, `prefix_cache_mb` and `prefix_segment` ask for on a
    device of this name.

    `auto`: what the family means by the execution `auto` on a CPU. On a GPU it is `rows`, each row in a pass of its
    own, until a card has shown that packed and shared passes answer the same there.
    """
    execution: Execution = options["execution"]
    if execution == "auto":
        execution = "rows" if device.partition(":")[0] == "cuda" else auto
    return Settings(
        execution=execution,
        max_rows=max_rows,
        max_tokens=max_tokens,
        graphs=options["graphs"],
        kept_bytes=options["prefix_cache_mb"] << 20,
        segment=options["prefix_segment"],
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out of the rows of one request."""

    hidden: Any
    """torch tensor [rows, hidden size] of the model's dtype, on its device."""
    execution: Execution | Literal["kept"]
    """What was done: never `auto`."""
    processed: int
    """Tokens read, padding not counted. Those of a kept prefix count once, whether they were read again or not: equal
    requests have equal readings."""


@dataclass(frozen=True, slots=True)
class _State:
    """The model after `tokens` tokens of one row: attention keys and values, recurrent and convolution states."""

    cache: Any
    tokens: int


class Qwen35:
    """A text model of the Qwen3.5 architecture on one device. One thread, like everything that owns a device."""

    def __init__(self, model: Any, settings: Settings) -> None:
        """`model`: a `Qwen3_5TextModel` on its device, without gradients, attending by SDPA.

        Raises `ConfigurationError` when the settings ask for what the device does not have.
        """
        self._model = model
        self._settings = settings
        self.device = model.embed_tokens.weight.device
        self.dtype = model.embed_tokens.weight.dtype
        kind = self.device.type
        self._fork_bytes = FORK_BYTES[kind] if settings.fork_bytes is None else settings.fork_bytes
        self._suffix_tokens = SUFFIX_TOKENS[kind] if settings.suffix_tokens is None else settings.suffix_tokens
        self._max_padding = PASS_PADDING[kind]
        self._shared_requests = self._auto_independent_requests = self._saved_tokens = 0
        self._kept: KeptPrefixes | None = None
        if settings.kept_bytes:
            segment = SEGMENT_TOKENS[kind] if settings.segment is None else settings.segment
            extend = self._extend_and_read if settings.every_position else self._extend
            self._kept = KeptPrefixes(settings.kept_bytes, segment, self._empty_cache, extend)
        self._graphs: Graphs | None = None
        if settings.graphs:
            if kind != "cuda":
                raise ConfigurationError("CUDA graphs need a CUDA device")
            self._graphs = Graphs(self._forward, CudaRecorder(self.device))

    def __repr__(self) -> str:
        return f"<Qwen35 {self._settings.execution} on {self.device} as {self.dtype} shared={self._shared_requests}>"

    @property
    def segment(self) -> int | None:
        """Tokens of a segment of kept prefixes; None when none are kept."""
        return None if self._kept is None else self._kept.segment

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return int(self._model.config.vocab_size)

    @property
    def hidden_size(self) -> int:
        """Values of one hidden state."""
        return int(self._model.config.hidden_size)

    @property
    def parameters(self) -> int:
        """Parameters, the tied embedding once."""
        return sum(parameter.numel() for parameter in self._model.parameters())

    def embeddings(self, tokens: Sequence[int]) -> Any:
        """Copies of the embedding rows [tokens, hidden size] of these ids: with tied weights, the head's rows."""
        import torch

        with torch.inference_mode():
            return self._model.embed_tokens.weight[torch.tensor(list(tokens), device=self.device)].clone()

    def statistics(self) -> dict[str, Any]:
        """Counts since the start, the warm-up included."""
        counts: dict[str, Any] = {
            "shared_requests": self._shared_requests,
            "auto_independent_requests": self._auto_independent_requests,
            "saved_tokens": self._saved_tokens,
        }
        if self._kept is not None:
            counts["kept"] = self._kept.statistics()
        if self._graphs is not None:
            counts["graph"] = self._graphs.statistics()
        return counts

    def read(
        self, rows: Sequence[Tokens], questions: Sequence[int], check: Callable[[], None], shared: int = 0
    ) -> Reading:
        """The last hidden state of every row, in order.

        `rows`: at least one, each one dimension of 1 or more ids below `vocabulary`. `questions`: of each row,
        equal for neighbours of the same question. `shared`: tokens with which all rows begin and other requests may
        begin, too, for kept prefixes; 0: what the rows have in common. `check` is called before every pass and ends
        the reading by raising. The device may still be working on the result on return. Equal rows are read once:
        their states are the same to the last bit, whatever they would have been read beside.
        """
        import torch

        distinct, places = packing.distinct(rows)
        if len(distinct) == len(rows):
            return self._read(rows, questions, check, shared)
        reading = self._read([rows[row] for row in distinct], [questions[row] for row in distinct], check, shared)
        with torch.inference_mode():
            return replace(reading, hidden=reading.hidden[torch.tensor(places, device=self.device)])

    def _read(
        self, rows: Sequence[Tokens], questions: Sequence[int], check: Callable[[], None], shared: int
    ) -> Reading:
        """As `read`, of rows that all differ."""
        import torch

        if self._kept is not None:
            with torch.inference_mode():
                return self._from_kept(self._kept, rows, questions, check, shared)
        settings = self._settings
        total = sum(map(len, rows))
        plan = prefix.plan(rows, questions) if settings.execution in ("shared", "auto") else None
        if plan is not None and settings.execution == "auto" and not plan.worthwhile:
            plan = None
        with torch.inference_mode():
            if plan is not None:
                hidden = self._shared(rows, plan, check)
                self._shared_requests += 1
                self._saved_tokens += plan.saved
                return Reading(torch.cat(hidden), "shared", plan.processed)
            if settings.execution == "auto":
                self._auto_independent_requests += 1
            packed = settings.execution in ("packed", "auto")
            hidden = self._independent(rows, check, max_rows=settings.max_rows if packed else 1)
            return Reading(torch.cat(hidden), "packed" if packed else "rows", total)

    @property
    def kept(self) -> KeptPrefixes | None:
        """What is kept between requests; None when nothing is."""
        return self._kept

    @property
    def joint_units(self) -> int:
        """How many requests `read_many` reads together: one where rows are read alone, by their mode or because
        prefixes are kept."""
        return JOINT_UNITS if self._kept is None and self._settings.execution in ("packed", "auto") else 1

    def read_many(self, requests: Sequence[tuple[Sequence[Tokens], Sequence[int]]]) -> list[Reading]:
        """As `read` of the rows and questions of each, in order, within 1e-5 in float32.

        Rows of requests whose own rows share nothing worth while go through the model together, those of like length
        beside each other; another request is read by itself.
        """
        import torch

        readings: dict[int, Reading] = {}
        joint: list[Tokens] = []
        for at, (rows, questions) in enumerate(requests):
            plan = prefix.plan(rows, questions) if self._settings.execution == "auto" else None
            if self.joint_units == 1 or (plan is not None and plan.worthwhile):
                readings[at] = self.read(rows, questions, lambda: None)
            else:
                joint += rows
        distinct, places = packing.distinct(joint)
        order = sorted(range(len(distinct)), key=lambda place: len(joint[distinct[place]]))
        at_once = [joint[distinct[place]] for place in order]
        with torch.inference_mode():
            hidden = self._independent(at_once, lambda: None, max_rows=self._settings.max_rows) if joint else []
            read = torch.cat(hidden)[np.argsort(order)[places]] if hidden else None
        start = 0
        for at, (rows, _) in enumerate(requests):
            if at not in readings:
                assert read is not None
                own, start = read[start : start + len(rows)], start + len(rows)
                total = sum(len(rows[row]) for row in packing.distinct(rows)[0])
                readings[at] = Reading(own, "packed", total)
                self._auto_independent_requests += self._settings.execution == "auto"
        return [readings[at] for at in range(len(requests))]

    def read_all(self, tokens: Tokens, check: Callable[[], None], shared: int = 0) -> Any:
        """The hidden states [length, hidden size] at every position of one row; the rest as `read`. In one pass, unless
        its first `shared` tokens are read as a kept prefix.

        The result is all that is held of the pass: the caller may hold 16,384 of them, and should hold them once.
        """
        import torch

        with torch.inference_mode():
            if self._kept is None or not shared:
                check()
                return self._pass(self._upload([tokens])[0], 0, None, ALL)[0]
            node = self._kept.read(tokens[:shared], check)
            check()
            rest = self._pass(self._upload([tokens[shared:]])[0], shared, self._kept.restore(node), ALL)[0]
            return torch.cat([*(step.hidden for step in node.path), rest])

    def relieve(self) -> None:
        """Gives up the recordings, which hold memory of their own; they are made again as rows come."""
        if self._graphs is not None:
            self._graphs.close()

    def close(self) -> None:
        """Drops the recordings and the model. May be called twice."""
        if self._graphs is not None:
            self._graphs.close()
        self._model = self._graphs = self._kept = None

    # Passes without a state

    def _independent(self, rows: Sequence[Tokens], check: Callable[[], None], *, max_rows: int) -> list[Any]:
        """Hidden states [rows of the group, size] of one group after the other."""
        hidden = []
        for group in packing.groups(
            [len(row) for row in rows],
            max_rows=max_rows,
            max_tokens=self._settings.max_tokens,
            max_padding=self._max_padding,
        ):
            check()
            members = [rows[row] for row in group]
            tokens, last = self._upload(members)
            if self._graphs is not None and tokens.numel() <= RECORDED_TOKENS:
                hidden.append(self._graphs.run(tuple(map(len, members)), tokens, last))
            else:
                hidden.append(self._forward(tokens, last))
        return hidden

    def _forward(self, tokens: Any, last: Any) -> Any:
        """[rows, length] ids and [rows] positions to [rows, size]. Copies nothing from the host, so that it can be
        recorded."""
        return self._pass(tokens, 0, None, last)[:, 0]

    # Passes from a state

    def _from_kept(
        self,
        prefixes: KeptPrefixes,
        rows: Sequence[Tokens],
        questions: Sequence[int],
        check: Callable[[], None],
        shared: int,
    ) -> Reading:
        """As `read`. What is kept, and how the rest is read, is a matter of these rows alone, and never of what is
        there already."""
        import torch

        shortest = min(map(len, rows)) - 1  # each row keeps an end to be read at
        if shared:
            length = min(shared, shortest)
        elif len(rows) > 1:
            length = prefix.common(rows)
        else:
            length = shortest - shortest % prefixes.segment
        plan = prefix.plan(rows, questions)
        branches = (prefix.Branch(range(len(rows)), 0),) if plan is None else plan.branches
        root = None
        if length:
            node = prefixes.read(rows[0][:length], check)
            root = _State(prefixes.restore(node), length)
        processed = sum(map(len, rows)) - (len(rows) - 1) * length
        for branch in branches:
            processed -= (len(branch.rows) - 1) * max(0, branch.prefix - length)
        hidden = self._branches(rows, branches, root, check)
        return Reading(torch.cat(hidden), "kept", processed)

    def _shared(self, rows: Sequence[Tokens], plan: prefix.Plan, check: Callable[[], None]) -> list[Any]:
        check()
        root = self._advance(None, rows[0][: plan.root]) if plan.root else None
        return self._branches(rows, plan.branches, root, check)

    def _branches(
        self, rows: Sequence[Tokens], branches: Sequence[prefix.Branch], root: _State | None, check: Callable[[], None]
    ) -> list[Any]:
        """Hidden states [rows of a group, size] of the rows of every branch, which go on from `root`."""
        hidden: list[Any] = []
        start = root.tokens if root else 0
        for branch in branches:
            members = [rows[row] for row in branch.rows]
            state = root
            if branch.prefix > start:
                check()
                state = self._advance(root, members[0][start : branch.prefix])
            if state is None:
                hidden += self._independent(members, check, max_rows=1)
                continue
            ends = [row[state.tokens :] for row in members]
            for chunk in packing.groups(
                [len(end) for end in ends],
                max_rows=self._forks(state.tokens, max(map(len, ends))),
                max_tokens=None,
                max_padded=self._suffix_tokens,
                max_padding=self._max_padding,
            ):
                check()
                tokens, last = self._upload([ends[end] for end in chunk])
                cache = forks.fork(state.cache, len(chunk))
                hidden.append(self._pass(tokens, state.tokens, cache, last)[:, 0])
                del cache  # before the next chunk makes its own
        return hidden

    def _advance(self, state: _State | None, tokens: Tokens) -> _State:
        """The state after `tokens` more tokens; the one given stays as it is."""
        if state is None:
            cache, before = self._empty_cache(), 0
        else:
            cache, before = forks.fork(state.cache, 1), state.tokens
        self._extend(cache, tokens, before)
        return _State(cache, before + len(tokens))

    def _empty_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._model.config)

    def _extend(self, cache: Any, tokens: NDArray[Any], before: int) -> None:
        """Have `cache`, which holds `before` tokens, hold `tokens` after them."""
        uploaded, _ = self._upload([tokens])
        self._pass(uploaded, before, cache, None)

    def _extend_and_read(self, cache: Any, tokens: NDArray[Any], before: int) -> Any:
        """As `_extend`; the hidden states [tokens, size]."""
        return self._pass(self._upload([tokens])[0], before, cache, ALL)[0]

    def _forks(self, tokens: int, longest: int) -> int:
        """How many rows may go on from a state of `tokens` tokens at a time, at least one.

        `longest`: tokens of the longest end.
        """
        budget = self._fork_bytes
        if self.device.type == "cuda":
            import torch

            free, _ = torch.cuda.mem_get_info(self.device)
            free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
            budget = min(budget, free // 2)
        return max(1, budget // forks.bytes_of(self._model.config, self.dtype.itemsize, tokens, longest))

    # What every pass does

    def _pass(self, tokens: Any, before: int, cache: Any, wanted: Any) -> Any:
        """Final-norm hidden states of tokens [rows, length] that follow `before` others, those in `cache`.

        `wanted`: the positions [rows] that are read, for [rows, 1, size]; None, when it is the cache alone that is
        wanted, for [rows, 0, size]; `ALL`, for [rows, length, size].
        """
        import torch

        model = self._model
        rows, length = tokens.shape
        # Without a state the attention is plainly causal, which needs no mask and has the fastest kernels. One
        # mask serves all rows: the rows' padding is on the right, where causality hides it.
        mask = None
        if before:
            mask = torch.ones(length, before + length, dtype=torch.bool, device=self.device).tril(before)[None, None]
        masks = {"full_attention": mask, "linear_attention": None}
        positions = torch.arange(before, before + length, device=self.device).expand(rows, -1)
        hidden = model.embed_tokens(tokens)
        rotary = model.rotary_emb(hidden, positions.expand(3, -1, -1))
        narrow = wanted is not ALL and model.config.layer_types[-1] == "full_attention"
        layers = list(zip(model.layers, model.config.layer_types, strict=True))
        for layer, kind in layers[:-1] if narrow else layers:
            hidden = layer(
                hidden,
                position_embeddings=rotary,
                attention_mask=masks[kind],
                position_ids=positions,
                cache=cache,
                use_cache=cache is not None,
            )
        if narrow:
            hidden = last_layer.forward(model.layers[-1], hidden, rotary, before, cache, wanted)
        elif wanted is None:
            hidden = hidden[:, :0]
        elif wanted is not ALL:
            hidden = hidden[torch.arange(rows, device=self.device), wanted][:, None]
        return model.norm(hidden)

    def _upload(self, rows: Sequence[Tokens]) -> tuple[Any, Any]:
        """Ids [rows, longest], padded on the right with 0, and the positions [rows] of the last tokens."""
        import torch

        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        tokens = np.zeros((len(rows), int(lengths.max())), dtype=np.int64)
        for index, row in enumerate(rows):
            tokens[index, : len(row)] = row
        return torch.from_numpy(tokens).to(self.device), torch.from_numpy(lengths - 1).to(self.device)


def load(
    path: Path, *, device: str, dtype: str, settings: Settings, adapt: Callable[[Any], None] | None = None
) -> Qwen35:
    """The text model of a causal-LM checkpoint with tied embeddings, in its released layout.

    `device`: `cpu`, `cuda` or `cuda:N`. `dtype`: `float32` or `bfloat16`. `adapt`: called once with the loaded
    `Qwen3_5TextModel`, still on the CPU, whose weights it may change in place. Nothing is downloaded and no code of
    the checkpoint is run. Raises `ConfigurationError`: torch or transformers missing, no such device, tensors
    missing, left over or of another shape.
    """
    model, target = loading.causal_lm(path, device=device, dtype=dtype)
    text = model.model
    if adapt is not None:
        adapt(text)
    return Qwen35(text.to(target), settings)
