"""A Clef checkpoint with random weights, small enough to load in a second, in the layout of the released ones.

The base model is that of the Open-Jev helper, a vision tower around a text model with an LM head of its own, in two
shards with an index. The joint head is drawn so that its parts matter: a logit is about 1, and another instruction,
another neighbour or another id moves it by some 0.01 and more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from executor_host.executors.clef.checkpoint import HeadSizes, head_shapes
from tests.helpers import tiny_open_jev

HEAD = HeadSizes(
    hidden_size=tiny_open_jev.SIZES["hidden_size"], width=32, routing_layers=2, layers=2, heads=4, feedforward=48
)


def write(folder: Path, *, seed: int = 0, **head: Any) -> Path:
    """A whole checkpoint in `folder`, made if need be; returns it. `head` changes `joint_head_config.json` alone."""
    import torch
    from safetensors.torch import load_file, save_file

    tiny_open_jev.write_base(folder, seed=seed)
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    del tensors["mtp.norm.weight"]
    table = {name: f"model-{index % 2 + 1:05}-of-00002.safetensors" for index, name in enumerate(tensors)}
    for shard in sorted(set(table.values())):
        part = {name: tensor for name, tensor in tensors.items() if table[name] == shard}
        save_file(part, folder / shard, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    generator = torch.Generator().manual_seed(seed + 1)
    made = {}
    for name, shape in head_shapes(HEAD).items():
        value = torch.randn(shape, generator=generator)
        if len(shape) > 1:
            value *= shape[-1] ** -0.5
        elif name.endswith("weight"):
            value = 1 + 0.1 * value
        elif shape:
            value *= 0.1
        made[name] = value.to(torch.bfloat16)
    save_file(made, folder / "joint_head.safetensors")
    fields = {name: getattr(HEAD, name) for name in HeadSizes.__slots__}
    (folder / "joint_head_config.json").write_text(json.dumps({**fields, **head}))
    return folder
