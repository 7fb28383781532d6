"""The last layer of a Qwen3.5 text model, for the positions that are read and no others.

What leaves a pass is the state of one position of each row, so queries, gate, output projection and feed-forward of the
last layer are computed there alone; its keys and values are those of every position, because these are attended to.
Where nothing is read (a state is made to go on from) its keys and values are all there is to do.

The numbers are those of the whole layer up to the order of sums: within 1e-6 in float32 (tested).
"""

from __future__ import annotations

from typing import Any


def forward(layer: Any, hidden: Any, rotary: tuple[Any, Any], before: int, cache: Any, wanted: Any | None) -> Any:
    """The states [rows, 1, size] behind `layer`, a full attention of transformers' `qwen3_5`, at the positions `wanted`
    [rows]; None: no position is read, and the result is [rows, 0, size].

    `hidden` [rows, length, size] enters it, after `before` tokens that are in `cache`, which is extended. `rotary`:
    cosine and sine [rows, length, dimensions]. Nothing waits for the device.
    """
    import torch
    from transformers.models.qwen3_5.modeling_qwen3_5 import apply_rotary_pos_emb

    attention = layer.self_attn
    normed = layer.input_layernorm(hidden)
    heads = (*hidden.shape[:-1], -1, attention.head_dim)
    keys = attention.k_norm(attention.k_proj(normed).view(heads)).transpose(1, 2)
    values = attention.v_proj(normed).view(heads).transpose(1, 2)
    _, keys = apply_rotary_pos_emb(keys, keys, *rotary)
    if cache is not None:
        keys, values = cache.update(keys, values, attention.layer_idx)
    if wanted is None:
        return hidden[:, :0]

    rows = torch.arange(len(hidden), device=hidden.device)
    read = normed[rows, wanted][:, None]
    queries, gate = torch.chunk(attention.q_proj(read).view(len(hidden), 1, -1, attention.head_dim * 2), 2, dim=-1)
    queries = attention.q_norm(queries).transpose(1, 2)
    angles = [table.expand(len(hidden), -1, -1)[rows, wanted][:, None] for table in rotary]
    queries, _ = apply_rotary_pos_emb(queries, queries, *angles)
    # What is behind a row's position is its padding, or nothing: it is hidden as causality hides it.
    seen = torch.arange(keys.shape[2], device=hidden.device) <= (before + wanted)[:, None]
    mixed = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=seen[:, None, None], scale=attention.scaling, enable_gqa=True
    )
    mixed = mixed.transpose(1, 2).reshape(len(hidden), 1, -1) * torch.sigmoid(gate.reshape(len(hidden), 1, -1))
    states = hidden[rows, wanted][:, None] + attention.o_proj(mixed)
    return states + layer.mlp(layer.post_attention_layernorm(states))
