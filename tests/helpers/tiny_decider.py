"""A Decider checkpoint with random weights, small enough to load in a second, in the layout of the released one.

`write(folder)` makes `config.json`, `decider_config.json`, `tokenizer.json`, `tokenizer_config.json` and
`model.safetensors`, whose keys, dtype and tying are the released ones, so that nothing about loading it is special.
`write_texts` makes all but the weights, without torch.

The scale of the weights is chosen so that comparing within 1e-5 means something: a change in the first tokens moves
logits, which are about 1, by some 0.05, and float32 rounding moves them by some 3e-6. Larger weights make a random
model chaotic: rounding differences of other matrix shapes grow from layer to layer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

SKIPPED = 11
"""Every so many pairs of letters are not taught to the tokenizer, so that the rule for labels has gaps to find."""

CALIBRATION: dict[str, Any] = {
    "version": "2b-v11",
    "layout": "plain",
    "max_options": 255,
    "max_state_tokens": 32768,
    "isolated_levels": True,
    "neutralize_none": False,
    "temperature": "1.25",
    "temperature_by_type": {"choice": 1.164, "noul": 1.624, "score": 1.124},
}

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}

WORDS = (
    "Context: The customer was charged twice for one order and asks for the money back. "
    "Question: Which team should answer? Options: (A) billing (B) login Answer: ( "
    'Proposed answer: low Does the proposed answer fit? no yes {"items": [1, 2], "text": "value"} '
)


def write(folder: Path, *, seed: int = 0, weights: str = "BF16", **config: Any) -> Path:
    """A whole checkpoint in `folder`, made if need be; returns it. `config` changes `config.json` and the model.

    `weights`: the dtype the tensors are stored in, as safetensors spells it.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    document = write_texts(folder, **config)
    torch.manual_seed(seed)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**document))
    dtype = {"BF16": torch.bfloat16, "F32": torch.float32}[weights]
    tensors = {}
    for name, parameter in model.named_parameters():
        if name == "lm_head.weight":
            continue  # tied
        value = parameter.detach()
        if value.ndim > 1:
            value = torch.randn_like(value) * (0.5 if "embed" in name else 0.5 * value.shape[-1] ** -0.5)
        elif name == "model.norm.weight":
            value = torch.full_like(value, -0.8)  # added to 1
        tensors["model.language_model." + name.removeprefix("model.")] = value.to(dtype).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_texts(folder: Path, **config: Any) -> dict[str, Any]:
    """Everything but the weights; returns what is in `config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[0],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
    }
    document = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "vocab_size": tokenizer.get_vocab_size(with_added_tokens=True),
        "max_position_embeddings": 65536,
        "rms_norm_eps": 1e-6,
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
    document.setdefault(
        "layer_types",
        [
            "linear_attention" if (layer + 1) % 4 else "full_attention"
            for layer in range(int(document["num_hidden_layers"]))
        ],
    )
    for name, content in (
        ("config.json", document),
        ("tokenizer_config.json", settings),
        ("decider_config.json", CALIBRATION),
    ):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return document


def _tokenizer() -> Any:
    """A byte-level BPE tokenizer that has learned most pairs of capital letters and a few words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    letters = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
    pairs = [first + second for first in letters for second in letters]
    taught = [pair for index, pair in enumerate(pairs) if index % SKIPPED]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + 256 + len(taught) + 160,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text for text in taught for _ in range(200)] + [WORDS] * 100, trainer)
    return tokenizer
