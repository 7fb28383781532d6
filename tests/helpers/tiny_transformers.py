"""Checkpoints that transformers itself can decide with, random and small enough to load in a second.

    write_chat(folder)      a causal chat model: a tokenizer, a chat template, nothing about decisions
    write_labels(folder)    a causal model with `decision.json` and a template of its own
    write_head(folder)      a decision model (`JevForDecision`), as `save_pretrained` writes it
    write_shipped(folder)   the same kind of head, shipped next to the weights of the model that it reads
    write_readout(folder)   such a head without a bias
    write_judge(folder)     such a head in the layout of JEV

Everything is float32. The weights are large enough that a change in the first tokens moves the logits, which are
about 1, by some 0.05; rounding moves them by some 1e-6.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LABELS_TEMPLATE = (
    "<|im_start|>{{ state if state is string else state|tojson }}\n"
    "{{ question.type }}: {{ question.instructions if question.instructions is string "
    "else question.instructions|tojson }}\n"
    "{% for option in question.options %}"
    "{{ question.labels[loop.index0] }}) {{ option }}: "
    "{% set text = question.descriptions[loop.index0] %}{{ text if text is string else text|tojson }}\n"
    "{% endfor %}Answer:"
)

DECISION: dict[str, Any] = {
    "labels": {"noul": ["No", "Yes"], "choice": list("ABCDEFGHIJ"), "score": list("0123456789")},
    "temperature": {"choice": 1.5, "noul": 0.75, "score": 2},
    "noul_options": ["false", "true"],
}

HEAD_TEMPLATE = (
    "[kind] {{ question.type }}\n[state] {{ state if state is string else state|tojson }}\n"
    "[question] {{ question.instructions|tojson }}\n"
    "{% for option in question.options %}{{ option }}: {{ question.descriptions[loop.index0]|tojson }}\n{% endfor %}"
    "[decision]:<|mark|>"
)
"""The kind of a question stands before the state, so only questions of one kind share it."""

TOGETHER_TEMPLATE = (
    "[state] {{ state|tojson }}\n"
    "{% for question in questions %}[question] {{ question.name }}: {{ question.instructions|tojson }}"
    "{% for option in question.options %} {{ option }}{% endfor %}:<|mark|>\n{% endfor %}"
)
"""One prompt for all questions, each read at a mark of its own."""

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}

WORDS = (
    "state question options system user assistant: You answer. The customer was charged twice for one order and asks"
    " for the money back. Which team? billing login Answer with the letter of the option that fits best only. Yes No"
    ' level choice noul score true false {"items": [1, 2], "text": "value"}\n\n'
)


def write_chat(folder: Path, *, seed: int = 0, tied: bool = True, **sizes: Any) -> Path:
    """A Llama chat model. `sizes` change its configuration."""
    import transformers

    words = tokenizer(folder, chat_template=CHAT_TEMPLATE)
    config = transformers.LlamaConfig(
        **{**SIZES, "vocab_size": len(words), "tie_word_embeddings": tied, **sizes},
    )
    save(transformers.LlamaForCausalLM(config), folder, seed)
    return folder


def write_labels(folder: Path, *, seed: int = 1, **sizes: Any) -> Path:
    """A Qwen2 with labels, temperatures and a template of its own instead of a chat template."""
    import transformers

    words = tokenizer(folder)
    config = transformers.Qwen2Config(**{**SIZES, "vocab_size": len(words), "use_sliding_window": False, **sizes})
    save(transformers.Qwen2ForCausalLM(config), folder, seed)
    (folder / "decision.json").write_text(json.dumps(DECISION), encoding="utf-8")
    (folder / "decision_template.jinja").write_text(LABELS_TEMPLATE, encoding="utf-8")
    return folder


def write_head(folder: Path, *, seed: int = 2, template: str = HEAD_TEMPLATE, **sizes: Any) -> Path:
    """A decision model on a Qwen2: the scores are capped softly and begin at another row for each type."""
    import transformers
    from transformers.decision import DecisionConfig

    words = tokenizer(folder)
    text = transformers.Qwen2Config(**{**SIZES, "vocab_size": len(words), "use_sliding_window": False, **sizes})
    config = transformers.JevConfig(hidden_size=text.hidden_size, text_config=text.to_dict(), softcap=5.0)
    model = transformers.JevForDecision(config)
    model.decision_config = DecisionConfig(chat_template=template, temperature={"score": 1.25})
    save(model, folder, seed)
    return folder


def write_shipped(folder: Path, *, seed: int = 3) -> Path:
    """A Qwen2 with `decision_config.json` and `head.safetensors` beside it, in the layout of vLLM's decision models."""
    hidden = _write_read_model(folder, seed)
    codes = list("ABCDEFGH")
    write_json(folder / "decision_config.json", {"codes": codes, "temperature": 1.5, "prompt": "d3"})
    return _write_head(folder / "head.safetensors", len(codes), hidden, "proj.weight", "proj.bias")


def write_readout(folder: Path, *, seed: int = 4, prompt: str | None = "d3") -> Path:
    """The same with `readout.safetensors`, the layout of d3 and pplx-decider: a head without a bias. Without a `prompt`
    it is pplx-decider's."""
    hidden = _write_read_model(folder, seed)
    codes = list("ABCDEFGH")
    named = {} if prompt is None else {"prompt": prompt}
    write_json(folder / "decision_config.json", {"codes": codes, "temperature": 0.8, **named})
    return _write_head(folder / "readout.safetensors", len(codes), hidden, "weight")


def write_judge(folder: Path, *, seed: int = 6) -> Path:
    """A Qwen2 with `judge_config.json`, `calibration.json` and `head.safetensors` beside it: JEV, already merged."""
    hidden = _write_read_model(folder, seed)
    slots = {
        "num_slots": 18,
        "verbalizers": list("NYabcdefghABCDEFGH"),
        "ranges": {"noul": [0, 2], "score": [2, 10], "choice": [10, 18]},
    }
    write_json(folder / "judge_config.json", {"slots": slots, "softcap": 5.0, "adapter_subfolder": None})
    write_json(folder / "calibration.json", {"per_kind": {"noul": 1.0, "score": 1.25, "choice": 0.75}})
    return _write_head(folder / "head.safetensors", 18, hidden, "proj.weight", "proj.bias")


def _write_read_model(folder: Path, seed: int) -> int:
    """The Qwen2 that a head reads; returns its hidden size. Seeds what is drawn next."""
    import torch
    import transformers

    words = tokenizer(folder)
    config = transformers.Qwen2Config(**SIZES, vocab_size=len(words), use_sliding_window=False)
    save(transformers.Qwen2ForCausalLM(config), folder, seed)
    torch.manual_seed(seed)
    return config.hidden_size


def _write_head(file: Path, rows: int, hidden: int, weight: str, bias: str = "") -> Path:
    """The tensors of a head in `file`; returns its folder."""
    import torch
    from safetensors.torch import save_file

    tensors = {weight: torch.randn(rows, hidden) * 0.2}
    if bias:
        tensors[bias] = torch.randn(rows)
    save_file(tensors, file, metadata={"format": "pt"})
    return file.parent


def write_json(file: Path, document: dict[str, Any]) -> None:
    """A JSON file."""
    file.write_text(json.dumps(document), encoding="utf-8")


def tokenizer(folder: Path, **settings: Any) -> Any:
    """A byte-level BPE tokenizer trained on a few words, saved into `folder`, made if need be."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(parents=True, exist_ok=True)
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + 256 + 300,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator([WORDS] * 50 + ["Yes", "No"] * 500, trainer)
    whole = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=SPECIAL[0], pad_token=SPECIAL[0], **settings
    )
    whole.save_pretrained(folder)
    return whole


def save(model: Any, folder: Path, seed: int) -> None:
    """Fill a model with random weights, and save it into `folder`."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                scale = 0.5 if "embed" in name else 0.7 * parameter.shape[-1] ** -0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
            elif name == "model.norm.weight":
                parameter.fill_(0.3)
    model.save_pretrained(folder)


def write_gguf(file: Path, *, seed: int = 5) -> Path:
    """A Llama chat model in one GGUF file, unquantized; its folder is made if need be."""
    import gguf
    import numpy as np

    words = json.loads(tokenizer(file.parent / "words").backend_tokenizer.to_str())["model"]
    texts = sorted(words["vocab"], key=words["vocab"].__getitem__)
    size, inner, heads = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["num_attention_heads"]
    keys = size // heads * SIZES["num_key_value_heads"]
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_context_length(SIZES["max_position_embeddings"])
    writer.add_embedding_length(size)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(SIZES["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(size // heads)
    writer.add_vocab_size(len(texts))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(texts)
    kinds = [gguf.TokenType.CONTROL if text in SPECIAL else gguf.TokenType.NORMAL for text in texts]
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in words["merges"]])
    writer.add_eos_token_id(words["vocab"][SPECIAL[0]])
    writer.add_chat_template(CHAT_TEMPLATE)
    shapes = {
        "attn_q": (size, size), "attn_k": (keys, size), "attn_v": (keys, size), "attn_output": (size, size),
        "ffn_gate": (inner, size), "ffn_up": (inner, size), "ffn_down": (size, inner),
    }  # fmt: skip
    generator = np.random.default_rng(seed)

    def add(name: str, *shape: int, scale: float) -> None:
        writer.add_tensor(name, (generator.standard_normal(shape) * scale).astype(np.float32))

    add("token_embd.weight", len(texts), size, scale=0.5)
    add("output.weight", len(texts), size, scale=0.7 * size**-0.5)
    writer.add_tensor("output_norm.weight", np.ones(size, np.float32))
    for layer in range(SIZES["num_hidden_layers"]):
        for name, shape in shapes.items():
            add(f"blk.{layer}.{name}.weight", *shape, scale=0.7 * shape[-1] ** -0.5)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(size, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
