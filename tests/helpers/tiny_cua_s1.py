"""Cua-S1 checkpoints with random weights, small enough to load in a second, in the layout of the released ones.

    write_base     Qwen3.5 as it is published: a multimodal config, shards with an index, tensors that text does not
                   need; BF16, tied
    write_adapter  the text adapter as PEFT saves it
    write_merged   the export of the two, with its marker
    write_texts    a folder without weights, for the front; needs no torch

The tokenizer is byte-level with its special tokens behind the vocabulary, so that A to Z are the tokens 32 to 57 as
in the released one. Weights have the scale of tiny_decider's, for the same reason; the adapter's is large enough to
be seen in every answer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.tiny_decider import SIZES

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")

RANK = 16
ALPHA = 32

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

ADAPTER_CONFIG: dict[str, Any] = {
    "base_model_name_or_path": "Qwen/Qwen3.5-4B",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_alpha": ALPHA,
    "lora_dropout": 0.0,
    "modules_to_save": None,
    "peft_type": "LORA",
    "r": RANK,
    "rank_pattern": {},
    "alpha_pattern": {},
    "target_modules": list(TARGETS),
    "task_type": "CAUSAL_LM",
    "use_dora": False,
    "use_rslora": False,
}

WORDS = (
    "You are a one-pass computer-use decision model. Goal: Close it. App: Cua Driver Task family: closed-candidate "
    'decision Accessibility tree: Options: A. Decision "OK" -> select Answer with a single letter. '
)


def write_texts(folder: Path, **config: Any) -> dict[str, Any]:
    """`config.json` and `tokenizer.json`; returns the text model's part of the former, in which `config` is."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    text = {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "vocab_size": tokenizer.get_vocab_size(with_added_tokens=True) + 3,  # more rows than tokens, as released
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "full_attention_interval": 4,
        "layer_types": ["linear_attention" if (layer + 1) % 4 else "full_attention" for layer in range(8)],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        **SIZES,
        **config,
    }
    document = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "text_config": text,
    }
    (folder / "config.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return text


def write_base(folder: Path, *, seed: int = 0, shards: int = 2) -> Path:
    """A base model. One shard is a single file without an index."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    text = write_texts(folder)
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**text))
    tensors: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        if name == "lm_head.weight":
            continue  # tied
        value = parameter.detach()
        if value.ndim > 1:
            value = torch.randn_like(value) * (0.5 if "embed" in name else 0.5 * value.shape[-1] ** -0.5)
        elif name == "model.norm.weight":
            value = torch.full_like(value, -0.8)  # added to 1
        tensors["model.language_model." + name.removeprefix("model.")] = value.to(torch.bfloat16).contiguous()
    tensors["model.visual.merger.linear_fc1.weight"] = torch.zeros(4, 4, dtype=torch.bfloat16)
    tensors["mtp.layers.0.mlp.up_proj.weight"] = torch.zeros(4, 4, dtype=torch.bfloat16)
    save(folder, tensors, shards=shards)
    return folder


def write_adapter(folder: Path, base: Path, *, seed: int = 1) -> Path:
    """The text adapter of the base model in `base`."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER_CONFIG, indent=2), encoding="utf-8")
    torch.manual_seed(seed)
    tensors = {}
    for name, weight in sorted(read(base).items()):
        if not name.startswith("model.language_model.layers.") or name.split(".")[-2] not in TARGETS:
            continue
        key = "base_model.model.model." + name.removeprefix("model.language_model.").removesuffix(".weight")
        rows, columns = weight.shape
        tensors[f"{key}.lora_A.weight"] = torch.randn(RANK, columns) * columns**-0.5
        tensors[f"{key}.lora_B.weight"] = torch.randn(rows, RANK) * 0.05
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def write_merged(folder: Path, base: Path, adapter: Path) -> Path:
    """The export: what an exporter does, in as few words."""
    import torch
    from safetensors.torch import load_file

    write_texts(folder)
    lora = load_file(adapter / "adapter_model.safetensors")
    tensors = {name: value for name, value in read(base).items() if name.startswith("model.language_model.")}
    for name in tensors:
        key = "base_model.model.model." + name.removeprefix("model.language_model.").removesuffix(".weight")
        if f"{key}.lora_A.weight" in lora:
            down, up = lora[f"{key}.lora_A.weight"], lora[f"{key}.lora_B.weight"]
            tensors[name] = (tensors[name].float() + ALPHA / RANK * (up @ down)).to(torch.bfloat16)
    save(folder, tensors, shards=1)
    mark(folder)
    return folder


def mark(folder: Path) -> None:
    """The marker of an export."""
    (folder / "cua_s1_export.json").write_text('{"format": "cua-s1-text-merged/1"}', encoding="utf-8")


def read(folder: Path) -> dict[str, Any]:
    """All tensors of a folder."""
    from safetensors.torch import load_file

    return {
        name: value for file in sorted(folder.glob("model*.safetensors")) for name, value in load_file(file).items()
    }


def save(folder: Path, tensors: dict[str, Any], *, shards: int) -> None:
    """Weights, in one file or in several with an index."""
    from safetensors.torch import save_file

    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    places = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[shard::shards]}
        save_file(part, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(value.nbytes for value in tensors.values())}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 120,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 50, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
