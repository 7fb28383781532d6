"""A Laya checkpoint with random weights, small enough to load in a second, in the layout of the released one.

`write(folder)` makes `rl_agent_config.json`, `encoder/config.json`, `tokenizer/tokenizer.json`,
`tokenizer/tokenizer_config.json` and `model.safetensors`, whose names, dtype and temperatures are the released ones,
the unused tensor included. `write_texts` makes all but the weights, without torch.

The scale of the weights is chosen so that comparing within 1e-5 means something: an option's words move its logit,
which is about 1, by some 0.3, and float32 rounding by some 1e-6.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SPECIAL = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
MANY_LANGUAGES = ("<bos>", "<eos>", "<pad>", "<mask>")
"""The same four of the multilingual checkpoint."""

CALIBRATION: dict[str, Any] = {
    "encoder": "answerdotai/ModernBERT-large",
    "max_len": 512,
    "head_max_len": 192,
    "head_layers": 2,
    "act_costs": {"escalate": 0.3},
    "amp_dtype": "bf16",
    "temperature": [1.6369030475616455, 1.2514300346374512, 1.983399510383606],
    "temperature_by_options": {
        "choice:2": 1.9063563346862793,
        "choice:3-5": 1.7601518630981445,
        "choice:6-10": 1.0000158548355103,
        "choice:11+": 0.10058280825614929,
        "score:3-5": 1.2514300346374512,
        "noul:2": 1.983399510383606,
    },
}

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
}

SIBLINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "typed-decisions": (
        {"max_len": 1024, "temperature": [1.2, 0.9, 2.5], "temperature_by_options": {"choice:11+": 1.4}},
        {},
    ),
    "multilingual": (
        {"max_len": 1024, "head_max_len": 256, "temperature": [7.0, 1.1, 0.8], "temperature_by_options": {}},
        {
            "intermediate_size": 80,
            "local_attention": 64,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 160000.0,
            "local_rope_theta": 160000.0,
        },
    ),
}
"""What is different in `CALIBRATION` and in the encoder's configuration. More is than in the released ones, so that
what is read of a checkpoint shows."""

WORDS = (
    "choice question: score question: noul question: Which team should handle this? billing: Charges and refunds "
    "technical: Software problems level 0: low level 1: high false: no, the statement does not hold true: yes, the "
    'statement holds The customer was charged twice for one order and asks for a refund. {"items": [1, 2], "text": 1} '
)


def write(
    folder: Path,
    *,
    seed: int = 0,
    head_layers: int = 2,
    poison: str = "",
    variant: str = "english",
    sizes: Mapping[str, Any] = SIZES,
) -> Path:
    """A whole checkpoint in `folder`, made if need be; returns it. `variant`: which of the three. `sizes`: those of its
    encoder.

    `poison`: a text of one token after which the model's numbers are none."""
    import torch
    from safetensors.torch import save_file

    from executor_host.executors.laya.checkpoint import expected_tensors

    document = write_texts(folder, head_layers=head_layers, variant=variant, sizes=sizes)
    generator = torch.Generator().manual_seed(seed)
    tensors = {"temperature": torch.ones(3)}
    for name, shape in expected_tensors(document, head_layers).items():
        value = torch.randn(*shape, generator=generator)
        if len(shape) > 1:
            value *= 1.0 if "emb" in name else shape[-1] ** -0.5
        elif name.endswith("bias"):
            value *= 0.1
        else:
            value = 1.0 + 0.1 * value  # of a norm
        tensors[name] = value
    if poison:
        tensors["encoder.embeddings.tok_embeddings.weight"][tokenizer().token_to_id(poison)] = torch.inf
    save_file({name: value.half().contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return folder


def write_texts(
    folder: Path,
    *,
    head_layers: int = 2,
    variant: str = "english",
    sizes: Mapping[str, Any] = SIZES,
    **calibration: Any,
) -> dict[str, Any]:
    """Everything but the weights; returns what is in `encoder/config.json`."""
    for name in ("encoder", "tokenizer"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    many = variant == "multilingual"
    words = multilingual_tokenizer() if many else tokenizer()
    words.save(str(folder / "tokenizer" / "tokenizer.json"))
    begin, end, padding, mask = special = MANY_LANGUAGES if many else SPECIAL
    ids = {text: words.token_to_id(text) for text in special}
    other_calibration, other_encoder = SIBLINGS.get(variant, ({}, {}))
    encoder = {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "vocab_size": words.get_vocab_size(with_added_tokens=True),
        "norm_eps": 1e-5,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "bos_token_id": ids[begin],
        "cls_token_id": ids[begin],
        "eos_token_id": ids[end],
        "sep_token_id": ids[end],
        "pad_token_id": ids[padding],
        "reference_compile": False,
        **sizes,
        **other_encoder,
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "cls_token": begin,
        "sep_token": end,
        "pad_token": padding,
        # As an object where the library has written it itself.
        "mask_token": {"__type": "AddedToken", "content": mask, "lstrip": True} if many else mask,
        "clean_up_tokenization_spaces": False,
    }
    for name, content in (
        ("rl_agent_config.json", {**CALIBRATION, **other_calibration, "head_layers": head_layers, **calibration}),
        ("encoder/config.json", encoder),
        ("tokenizer/tokenizer_config.json", settings),
    ):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return encoder


def tokenizer() -> Any:
    """A byte-level BPE tokenizer that knows a few words; its special tokens come last, as in the released one."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([WORDS] * 20, trainer)
    made.add_special_tokens(
        [AddedToken(text, special=True, normalized=False, lstrip=text == "[MASK]") for text in SPECIAL]
    )
    return made


def multilingual_tokenizer() -> Any:
    """A BPE tokenizer over characters, with bytes for those it does not know; its special tokens come first."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    special = [AddedToken(text, special=True, normalized=False) for text in ("<pad>", "<eos>", "<bos>", "<unk>")]
    special.append(AddedToken("<mask>", special=True, normalized=False, lstrip=True))
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    made.train_from_iterator([f"{word} " for word in WORDS.split()] * 20, trainer)
    document = json.loads(made.to_str())
    for byte in range(256):
        document["model"]["vocab"][f"<0x{byte:02X}>"] = len(document["model"]["vocab"])
    return Tokenizer.from_str(json.dumps(document))
