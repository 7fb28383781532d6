"""A Kev checkpoint with random weights, small enough to load in a second, in the layouts of the released ones.

`write(folder)` makes a LoRA checkpoint (`adapter_config.json`, `adapter_model.safetensors`, `head.pt`,
`training_config.json`) and its base model in `folder/base`; `write_merged` one that has its weights itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.helpers import tiny_open_jev
from tests.helpers.tiny_open_jev import SIZES

DELIMITERS = ("<|fim_prefix|>", "<|fim_middle|>", "<|box_start|>", "<|box_end|>", "<|fim_suffix|>")
SPECIAL = (*tiny_open_jev.SPECIAL, *DELIMITERS)

BASE = "Qwen/Qwen3.5-0.8B-Base"
TEMPERATURE = 2.35
RANK = 4
DIM = 32

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LINEAR_TARGETS = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")


def tokenizer() -> Any:
    """That of the tiny base models, with the delimiters."""
    return tiny_open_jev.tokenizer(SPECIAL)


def write(folder: Path, *, seed: int = 1, **fields: Any) -> Path:
    """A LoRA checkpoint in `folder`, its base model in `folder/base`; returns `folder`. `fields` change `head.pt`."""
    tiny_open_jev.write_base(folder / "base", special=SPECIAL)
    write_adapter(folder, seed=seed)
    write_head(folder, seed=seed, **fields)
    return folder


def write_merged(folder: Path, **fields: Any) -> Path:
    """A checkpoint whose weights need no adapter."""
    tiny_open_jev.write_base(folder, special=SPECIAL)
    write_head(folder, **fields)
    return folder


def unmerged(folder: Path, target: Path) -> Path:
    """The base model of the checkpoint in `folder` with its head and without its adapter, in `target`."""
    shutil.copytree(folder / "base", target)
    for name in ("head.pt", "training_config.json"):
        shutil.copy(folder / name, target)
    return target


def shapes() -> dict[str, tuple[int, int]]:
    """Rows and columns of every projection of the text model, by module."""
    hidden, middle = SIZES["hidden_size"], SIZES["intermediate_size"]
    heads, keys = (SIZES[name] * SIZES["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    values = SIZES["linear_num_value_heads"] * SIZES["linear_value_head_dim"]
    mixed = 2 * SIZES["linear_num_key_heads"] * SIZES["linear_key_head_dim"] + values
    full = {
        "q_proj": (2 * heads, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, heads),
    }
    linear = {
        "in_proj_qkv": (mixed, hidden),
        "in_proj_z": (values, hidden),
        "in_proj_a": (SIZES["linear_num_value_heads"], hidden),
        "in_proj_b": (SIZES["linear_num_value_heads"], hidden),
        "out_proj": (hidden, values),
    }
    forward = {"gate_proj": (middle, hidden), "up_proj": (middle, hidden), "down_proj": (hidden, middle)}
    found: dict[str, tuple[int, int]] = {}
    for layer in range(SIZES["num_hidden_layers"]):
        mixer, parts = ("linear_attn", linear) if (layer + 1) % 4 else ("self_attn", full)
        found |= {f"layers.{layer}.{mixer}.{name}": shape for name, shape in parts.items()}
        found |= {f"layers.{layer}.mlp.{name}": shape for name, shape in forward.items()}
    return found


def write_adapter(folder: Path, *, seed: int = 1, prefix: str = "base_model.model.") -> None:
    """An adapter of all projections, large enough to matter."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for module, (rows, columns) in shapes().items():
        tensors[f"{prefix}{module}.lora_A.weight"] = (
            torch.randn(RANK, columns, generator=generator) * 0.2 * columns**-0.5
        )
        tensors[f"{prefix}{module}.lora_B.weight"] = torch.randn(rows, RANK, generator=generator) * 0.5
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": BASE,
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.05,
        "bias": "none",
        "target_modules": [*LINEAR_TARGETS, *TARGETS],
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "trainable_token_indices": None,
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def write_head(folder: Path, *, seed: int = 1, **fields: Any) -> None:
    """`head.pt` and `training_config.json`."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    hidden = SIZES["hidden_size"]
    head = {
        "q.weight": random(DIM, hidden) * 0.6,
        "q.bias": random(DIM) * 0.1,
        "k.weight": random(DIM, hidden) * 0.6,
        "k.bias": random(DIM) * 0.1,
    }
    state = {
        "base": BASE,
        "base_revision": "9a45d25e",
        "head": head,
        "head_dim": DIM,
        "lora": RANK,
        "option_isolation": False,
        "special_embeddings": False,
        "weights_dtype": "fp32",
        "temperature": TEMPERATURE,
        "holdout": ["a", "b"],
        "args": {"lr": 1e-4},
        **fields,
    }
    torch.save(state, folder / "head.pt")
    (folder / "training_config.json").write_text(
        json.dumps({"args": {"head_dim": DIM, "lora": RANK}}), encoding="utf-8"
    )


def write_texts(folder: Path) -> Path:
    """What the front reads of a merged checkpoint. Without the package tokenizers there is only the file."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer().save(str(folder / "tokenizer.json"))
    except ImportError:
        (folder / "tokenizer.json").write_text("{}")
    return folder
