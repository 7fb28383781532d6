"""Open-Jev checkpoints with random weights, small enough to load in a second, in the layouts of the released ones.

    write_base(folder)    the base model: config with a vision tower around the text model, lm_head, mtp tensors
    write_lora(folder)    adapter/, head.pt, model.json, temperature.json
    write_texts(folder)   a merged export without weights, without torch

A merged export with weights is made of the first two by the code that makes real ones. The scale of the weights is
chosen so that comparing within 1e-5 means something: a candidate's words move its score, which is about 1, by some
0.05, and float32 rounding by some 1e-6.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MODEL_ID = "Qwen/Qwen3.8-27B"
BASE_REVISION = "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"
CHECKPOINT_REVISION = "28cf73067d5b337860bbef3c85b8b82ba8730956"
TEMPERATURE = 2.5343690298472983
RANK = 4

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
CHAT = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}

VISION: dict[str, Any] = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 4,
    "num_position_embeddings": 16,
}

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where the released tokenizers cut a text, in essence: a run of line breaks ends before a letter."""

WORDS = (
    "Context: The customer was charged twice for one order and asks for the money back. Question: Which team?"
    " Proposed answer: billing Is this proposed answer correct? Answer Yes or No. user assistant"
    ' Is the answer to this question yes? Yes means: No means: {"items": [1, 2], "text": "value"}\n\n'
)


def text_config(vocabulary: int) -> dict[str, Any]:
    """The text model's configuration."""
    return {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "vocab_size": vocabulary,
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
        "layer_types": [
            "linear_attention" if (layer + 1) % 4 else "full_attention" for layer in range(SIZES["num_hidden_layers"])
        ],
        **SIZES,
    }


def write_base(folder: Path, *, seed: int = 0, special: tuple[str, ...] = SPECIAL, words: Any = None) -> Path:
    """A base model as it is published: everything the text model does not need is there, too. `words`: its tokenizer,
    else the one of the tokens `special`."""
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer(special) if words is None else words
    words.save(str(folder / "tokenizer.json"))
    text = text_config(words.get_vocab_size(with_added_tokens=True))
    document = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": VISION,
    }
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(**document))
    tensors = {"mtp.norm.weight": torch.ones(SIZES["hidden_size"], dtype=torch.bfloat16)}
    for name, parameter in model.named_parameters():
        value = parameter.detach()
        if value.ndim > 1:
            value = torch.randn_like(value) * (0.5 if "embed" in name else 0.5 * value.shape[-1] ** -0.5)
        elif name == "model.language_model.norm.weight":
            value = torch.full_like(value, -0.8)  # added to 1
        tensors[name] = value.to(torch.bfloat16).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return folder


def write_lora(folder: Path, *, seed: int = 1, rank: int = RANK, model_id: str = MODEL_ID) -> Path:
    """An adapter large enough to matter, and a head, as training saves them."""
    import torch
    from safetensors.torch import save_file

    (folder / "adapter").mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    hidden, heads = SIZES["hidden_size"], SIZES["num_attention_heads"] * SIZES["head_dim"]
    keys = SIZES["num_key_value_heads"] * SIZES["head_dim"]
    linear = SIZES["linear_num_value_heads"] * SIZES["linear_value_head_dim"]
    mixed = 2 * SIZES["linear_num_key_heads"] * SIZES["linear_key_head_dim"] + linear
    tensors = {}
    for layer in range(SIZES["num_hidden_layers"]):
        if (layer + 1) % 4:
            shapes = {"linear_attn.in_proj_qkv": (mixed, hidden), "linear_attn.out_proj": (hidden, linear)}
        else:
            # The query projection has a gate beside each query.
            shapes = {
                "self_attn.q_proj": (2 * heads, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, heads),
            }
        for module, (rows, columns) in shapes.items():
            name = f"base_model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = random(rank, columns) * 0.2 * columns**-0.5
            tensors[f"{name}.lora_B.weight"] = random(rows, rank) * 0.5
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    torch.save({"weight": random(1, hidden) * 0.5, "bias": torch.tensor([0.25])}, folder / "head.pt")
    documents: dict[str, Any] = {
        "adapter/adapter_config.json": {
            "peft_type": "LORA",
            "base_model_name_or_path": model_id,
            "r": rank,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj"],
            "fan_in_fan_out": False,
            "use_rslora": False,
            "use_dora": False,
            "modules_to_save": None,
            "rank_pattern": {},
            "alpha_pattern": {},
            "inference_mode": True,
        },
        "model.json": {
            "model_id": model_id,
            "revision": BASE_REVISION,
            "max_length": 384,
            "lora_rank": rank,
            "method": "independent_candidate_lora_nll_brier",
        },
        "temperature.json": {"temperature": TEMPERATURE},
    }
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder


def write_texts(folder: Path, **fields: Any) -> Path:
    """What the front reads of a merged export. `fields` change the manifest. Without the package tokenizers there is
    only the file."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer().save(str(folder / "tokenizer.json"))
    except ImportError:
        (folder / "tokenizer.json").write_text("{}")
    manifest = {
        "format": "open-jev-text-merged/1",
        "model_id": MODEL_ID,
        "base_revision": BASE_REVISION,
        "checkpoint_revision": CHECKPOINT_REVISION,
        "temperature": TEMPERATURE,
        "max_length": 4096,
        "chat_prefix": CHAT[0],
        "chat_suffix": CHAT[1],
        "head_weight": [0.5] * SIZES["hidden_size"],
        "head_bias": 0.25,
        **fields,
    }
    (folder / "open_jev_export.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def tokenizer(special: tuple[str, ...] = SPECIAL) -> Any:
    """A byte-level BPE tokenizer that knows the words of the prompts and the chat's special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + 256 + 200,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([WORDS] * 20, trainer)
    return made
