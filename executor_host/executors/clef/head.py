"""Clef's joint head: hidden states at every position in, one logit per option out.

    X = norm(H)                   [length, hidden]       in blocks of rows, of which only these remain:
      memory   M = X Wm           [length, width]
      question q, option c        means of X over their spans
      global   g                  the last row of X
    lexical    l                  means over the option spans of the LM head's rows, which are never multiplied

    options    R = Wc c + Wl l + Wq q, then the routing layers: options attend to M, never to each other
    fields     F = b + norm(sum of softmax(R b / sqrt(width)) R) + Wg g + type,  b = Wb q,
               then the field layers: fields attend to each other, and to M
    logit      prior + sigmoid(gate) joint
      prior    exp(min(a, ln 100)) cos(l, q + g)
      joint    exp(min(b, ln 100)) cos(F, norm(R)) + scorer(F, R, F R, |F - R|)

No attention is masked: positions, options and fields see all that they attend to. All norms are over the last
dimension with an epsilon of 1e-5, GELU is the exact one, and dropouts are of the training.

The hidden states of 16,384 tokens are 128 MiB at half precision, and nothing of their size is made here: blocks of
`BLOCK_ROWS` rows go through the norm and are forgotten.

Source: the published inference file of the model, joint_schema_model.py; that its answers are the same is tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host.executors.clef.checkpoint import HeadSizes
from executor_host.executors.clef.encoding import Field, Span

BLOCK_ROWS: Final = 1024
"""Rows of hidden states that are normalised together: 16 MiB in float32 of a hidden size of 4,096."""

MAX_SCALE: Final = math.log(100.0)
"""Of the two learned scales, as logarithms."""

Tensor: TypeAlias = Any


class JointHead:
    """The head's arithmetic, in the dtype and on the device of its tensors. Keeps nothing of a call."""

    def __init__(self, sizes: HeadSizes, tensors: Mapping[str, Tensor], vocabulary: Tensor) -> None:
        """`tensors`: by the names of `clef_checkpoint.head_shapes`. `vocabulary`: the LM head's rows [tokens, hidden
        size]. All of one dtype and on one device."""
        self._sizes = sizes
        self._tensors = dict(tensors)
        self._vocabulary = vocabulary

    def __repr__(self) -> str:
        return f"<JointHead {self._sizes}>"

    def logits(self, hidden: Tensor, tokens: NDArray[np.int32], fields: Sequence[Field]) -> Tensor:
        """[options] one logit per option, question after question, each in the order in which the model reads them.

        `hidden`: [length, hidden size] after the final norm. `tokens`: [length] what was read. `fields`: at least one;
        their spans lie within the length, one after the other as `clef_encoding` has them, and none is empty.
        """
        import torch

        counts = [len(field.options) for field in fields]
        with torch.inference_mode():
            device = hidden.device
            owner = torch.tensor([number for number, count in enumerate(counts) for _ in range(count)], device=device)
            memory, question, context, last = self._read(hidden, fields)
            lexical = self._lexical(tokens, [span for field in fields for span in field.options])
            option = (
                self._project("option_context", context)
                + self._project("option_lexical", lexical)
                + self._project("option_question", question)[owner]
            )
            for number in range(self._sizes.routing_layers):
                option = self._route(f"evidence_layers.{number}", option, memory)
            field = self._project("question", question)
            field = field + self._norm("option_summary_norm", self._summaries(field, option, counts))
            field = field + self._project("global", last)
            kinds = torch.tensor([each.kind for each in fields], device=device)
            field = field + self._tensors["type_embedding.weight"][kinds]
            for number in range(self._sizes.layers):
                field = self._decide(f"layers.{number}", field, memory)
            field, option = self._norm("field_norm", field), self._norm("option_norm", option)
            prior = self._prior(lexical, (question + last)[owner])
            return prior + torch.sigmoid(self._tensors["residual_gate"]) * self._joint(field[owner], option)

    def _prior(self, lexical: Tensor, anchor: Tensor) -> Tensor:
        """[options] how well an option's own words go with its question and the whole; both are [options, hidden]."""
        from torch.nn import functional

        words, whole = (functional.normalize(rows, dim=-1, eps=1e-12) for rows in (lexical, anchor))
        return self._scale("prior_logit_scale") * (words * whole).sum(-1)

    def _joint(self, field: Tensor, option: Tensor) -> Tensor:
        """[options] how well an option goes with its question's field; both are [options, width] and normed."""
        import torch
        from torch.nn import functional

        likeness = functional.cosine_similarity(field, option, dim=-1, eps=1e-8)
        features = torch.cat([field, option, field * option, (field - option).abs()], dim=-1)
        inner = functional.gelu(self._linear("residual_scorer.0", features))
        return self._scale("joint_logit_scale") * likeness + self._linear("residual_scorer.3", inner)[:, 0]

    # From positions to spans

    def _read(self, hidden: Tensor, fields: Sequence[Field]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of the normed states: the memory [length, width], the means over the spans of questions [questions, hidden
        size] and of options [options, hidden size], and the last row."""
        import torch

        length = len(hidden)
        memory = hidden.new_empty(length, self._sizes.width)
        sums = _Means([span for field in fields for span in (field.question, *field.options)], hidden)
        rows = hidden[:0]
        for start in range(0, length, BLOCK_ROWS):
            rows = self._norm("hidden_norm", hidden[start : start + BLOCK_ROWS])
            torch.matmul(rows, self._tensors["memory_projection.weight"].T, out=memory[start : start + len(rows)])
            sums.add(start, rows)
        asked = torch.tensor([place == 0 for field in fields for place in range(1 + len(field.options))])
        asked = asked.to(hidden.device)
        return memory, sums.means[asked], sums.means[~asked], rows[-1].clone()

    def _lexical(self, tokens: NDArray[np.int32], spans: Sequence[Span]) -> Tensor:
        """The mean [spans, hidden size] of the LM head's rows of each span's tokens."""
        import torch

        sums = _Means(spans, self._vocabulary)
        for start in range(0, len(tokens), BLOCK_ROWS):
            block = tokens[start : start + BLOCK_ROWS]
            if sums.meets(start, len(block)):
                ids = torch.from_numpy(block.astype(np.int64)).to(self._vocabulary.device)
                sums.add(start, self._vocabulary[ids])
        return sums.means

    # Layers

    def _route(self, name: str, option: Tensor, memory: Tensor) -> Tensor:
        """One routing layer: attention to the normed memory, then a feed-forward."""
        from torch.nn import functional

        known = self._norm(f"{name}.memory_norm", memory)
        option = option + self._attend(f"{name}.attention", self._norm(f"{name}.query_norm", option), known)
        inner = functional.gelu(self._linear(f"{name}.feedforward.0", self._norm(f"{name}.feedforward_norm", option)))
        return option + self._linear(f"{name}.feedforward.3", inner)

    def _decide(self, name: str, field: Tensor, memory: Tensor) -> Tensor:
        """One field layer: attention to all fields, attention to the memory, which is not normed, a feed-forward."""
        from torch.nn import functional

        normed = self._norm(f"{name}.norm1", field)
        field = field + self._attend(f"{name}.self_attn", normed, normed)
        field = field + self._attend(f"{name}.multihead_attn", self._norm(f"{name}.norm2", field), memory)
        inner = functional.gelu(self._linear(f"{name}.linear1", self._norm(f"{name}.norm3", field)))
        return field + self._linear(f"{name}.linear2", inner)

    def _summaries(self, field: Tensor, option: Tensor, counts: Sequence[int]) -> Tensor:
        """Of each question [questions, width]: its options, weighted by how well they go with its instructions."""
        import torch

        summaries = []
        for asked, mine in zip(field, torch.split(option, list(counts)), strict=True):
            weights = torch.softmax(mine @ asked / math.sqrt(self._sizes.width), dim=0)
            summaries.append(weights @ mine)
        return torch.stack(summaries)

    def _attend(self, name: str, queries: Tensor, known: Tensor) -> Tensor:
        """Multi-head attention without a mask, as torch packs it: [n, width] from [n, width] and [m, width]."""
        from torch.nn import functional

        width, heads = self._sizes.width, self._sizes.heads
        weights = self._tensors[f"{name}.in_proj_weight"].split(width)
        biases = self._tensors[f"{name}.in_proj_bias"].split(width)
        query, key, value = (
            functional.linear(rows, weight, bias).view(1, len(rows), heads, width // heads).transpose(1, 2)
            for rows, weight, bias in zip((queries, known, known), weights, biases, strict=True)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self._linear(f"{name}.out_proj", mixed.transpose(1, 2).reshape(len(queries), width))

    def _norm(self, name: str, rows: Tensor) -> Tensor:
        from torch.nn import functional

        weight, bias = self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"]
        return functional.layer_norm(rows, weight.shape, weight, bias, 1e-5)

    def _linear(self, name: str, rows: Tensor) -> Tensor:
        from torch.nn import functional

        return functional.linear(rows, self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"])

    def _project(self, name: str, rows: Tensor) -> Tensor:
        from torch.nn import functional

        return functional.linear(rows, self._tensors[f"{name}_projection.weight"])

    def _scale(self, name: str) -> Tensor:
        return self._tensors[name].clamp(max=MAX_SCALE).exp()


class _Means:
    """The means of rows over spans, from blocks of rows that come one after the other.

    Summed in float32 at least, as torch's own mean is, by a product with a matrix: the same sum in the same order
    every time, which adding rows by index is not on a GPU.
    """

    def __init__(self, spans: Sequence[Span], like: Tensor) -> None:
        """`spans`: in order, without overlap, none empty. `like`: has the dtype, device and size of the rows."""
        import torch

        self._spans = spans
        self._first, self._stop = np.array(spans, np.int64).T
        self._dtype = like.dtype
        wide = torch.promote_types(like.dtype, torch.float32)
        self._sums = torch.zeros(len(spans), like.shape[1], dtype=wide, device=like.device)

    def meets(self, start: int, count: int) -> slice | None:
        """Which spans have a row in a block, None when none has."""
        first = int(np.searchsorted(self._stop, start, side="right"))
        last = int(np.searchsorted(self._first, start + count, side="left"))
        return slice(first, last) if first < last else None

    def add(self, start: int, rows: Tensor) -> None:
        """A block [count, size] whose first row is row number `start`."""
        import torch

        met = self.meets(start, len(rows))
        if met is None:
            return
        shares = np.zeros((met.stop - met.start, len(rows)))
        for line, (first, stop) in enumerate(self._spans[met]):
            shares[line, max(first - start, 0) : stop - start] = 1.0 / (stop - first)
        weights = torch.from_numpy(shares).to(device=self._sums.device, dtype=self._sums.dtype)
        self._sums[met] += weights @ rows.to(self._sums.dtype)

    @property
    def means(self) -> Tensor:
        """[spans, size] in the rows' dtype."""
        return self._sums.to(self._dtype)
