"""A Nimble checkpoint with random weights, small enough to load in a second, in the layouts of the released ones.

`write(folder)` makes a LoRA checkpoint (`adapter_config.json`, `adapter_model.safetensors`, `schema_config.json`,
`tokenizer.json`) and its base model in `folder/base`; `write_merged` one that has its weights itself, and `READY.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from tests.helpers import tiny_kev, tiny_open_jev

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
THINKING = ("<think>", "</think>")

BASE = "Qwen/Qwen3.5-9B"
BASE_REVISION = "c202236235762e1c871ad0ccb60c8ee5ba337b9a"
PROMPT_SHA256 = "a0a0f94d0f65e972bc20d088678ad3d595ff1c42b9c0d78f96034526303f63fc"
V1_ADAPTER = "ba7e28acb97f973e80fa51f3aa6fc6f75ea4081b89632ed45d8e5f3a1d7bfa6b"
TEMPERATURE = 2.179078721266035

OUTPUT = 16.0
"""How much larger than usual the output rows are."""

PAIRS = [first + second for first in "ABCDEFGHIJ" for second in ascii_uppercase]

WORDS = (
    "Classify the context using the supplied schema. Requested field: one-letter short codes choices description name"
    ' value code {"context": "The customer was charged twice for one order and asks for the money back.", "schema": ['
    '{"name": "team", "description": "Which team?", "choices": [{"code": "A", "value": false}]}]}\n\n'
)


def tokenizer() -> Any:
    """A byte-level BPE tokenizer with the chat's control tokens, of which those around thinking are not special, and
    more words of two capitals than there are codes."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(tiny_open_jev.PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + 256 + len(PAIRS) + 150,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*PAIRS * 50, *[WORDS] * 20], trainer)
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in THINKING])
    return made


def write(folder: Path, *, seed: int = 1, **fields: Any) -> Path:
    """A LoRA checkpoint in `folder`, its base model in `folder/base`; returns `folder`. `fields` change the schema."""
    words = tokenizer()
    _write_base(folder / "base", words)
    (folder / "base" / "tokenizer.json").unlink()  # the one that counts is the checkpoint's own
    tiny_kev.write_adapter(folder, seed=seed, prefix="base_model.model.model.language_model.")
    words.save(str(folder / "tokenizer.json"))
    write_schema(folder, **fields)
    return folder


def write_merged(folder: Path, *, ready: dict[str, Any] | None = None, **fields: Any) -> Path:
    """A checkpoint whose weights need no adapter. `ready`: what is in `READY.json` besides the base model."""
    _write_base(folder, tokenizer())
    write_schema(folder, **fields)
    document = {"base_model": BASE, "base_revision": BASE_REVISION, "precision": "bfloat16", **(ready or {})}
    (folder / "READY.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def _write_base(folder: Path, words: Any) -> None:
    """With output rows so large that comparing within 1e-5 means something: another state moves a probability by some
    0.005, though a thousand tokens stand between it and where the model answers."""
    from safetensors.torch import load_file, save_file

    tiny_open_jev.write_base(folder, words=words)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] *= OUTPUT
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_schema(folder: Path, **fields: Any) -> None:
    """`schema_config.json`, of the first task unless `fields` say otherwise; a field of None is left out."""
    document = {
        "task": "schema_candidate_classification_v1",
        "model": BASE,
        "revision": BASE_REVISION,
        "prompt_code_sha256": PROMPT_SHA256,
        "max_length": 2048,
        "lora_rank": 4,
        **fields,
    }
    text = json.dumps({key: value for key, value in document.items() if value is not None}, indent=2)
    (folder / "schema_config.json").write_text(text, encoding="utf-8")


def wide_fields(words: Any) -> dict[str, Any]:
    """What the schema of the second task has besides, for a tokenizer."""
    codes = [*ascii_uppercase, *sorted(PAIRS)][:255]
    return {
        "task": "schema_candidate_classification_v2",
        "max_length": 8192,
        "max_choices": 255,
        "candidate_encoding": "uppercase_single_token_v1",
        "candidate_codes": codes,
        "candidate_token_ids": [words.token_to_id(code) for code in codes],
        "prompt_source_sha256": {"parallel_schema.py": PROMPT_SHA256, "extended_schema.py": "0" * 64},
    }
