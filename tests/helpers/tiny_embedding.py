"""A sentence encoder with random weights, small enough to load in a moment, in the layout of the published ones.

    write(folder)         everything: modules.json, the pooling, the tokenizer, a BERT with 2 layers
    write_texts(folder)   what the front reads of it, without torch

The published tokenizer files carry a truncation and a padding, which nobody may keep; so does this one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_SEQ_LENGTH = 24

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
}

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]

POOLING = {
    "word_embedding_dimension": SIZES["hidden_size"],
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}

WORDS = (
    "the customer was charged twice for one order and asks for the money back a charge an invoice or a refund an"
    " error a crash something is broken the user cannot log in small medium large none much yes no billing bug"
)


def write(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """A whole checkpoint; `config` changes its `config.json`. The weights are spread so that texts differ."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    write_texts(folder)
    vocabulary = tokenizer().get_vocab_size(with_added_tokens=True)
    document = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "pad_token_id": 0,
        "vocab_size": vocabulary,
        **SIZES,
        **config,
    }
    torch.manual_seed(seed)
    model = BertModel(BertConfig(**document))
    tensors = {
        # Larger than a model starts with, so that the words of a text and their order matter for its vector.
        name: (torch.randn_like(value) * (1.0 if "embeddings" in name else 0.3)).contiguous()
        if value.ndim > 1
        else value.contiguous()
        for name, value in ((name, parameter.detach()) for name, parameter in model.named_parameters())
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return folder


def write_texts(folder: Path) -> Path:
    """Everything but the model itself."""
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    words = tokenizer()
    words.enable_truncation(8)
    words.enable_padding(length=8)
    words.save(str(folder / "tokenizer.json"))
    for name, content in (
        ("modules.json", MODULES),
        ("1_Pooling/config.json", POOLING),
        ("sentence_bert_config.json", {"max_seq_length": MAX_SEQ_LENGTH, "do_lower_case": False}),
        ("config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.0.0"}}),
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 64}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder


def tokenizer() -> Any:
    """A word-piece tokenizer with the words of the tests, which puts a text between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'\"{}[]-_"
    words = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *dict.fromkeys(WORDS.split())]
    made = Tokenizer(
        models.WordPiece({word: index for index, word in enumerate(dict.fromkeys(words))}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(list(SPECIAL))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made
