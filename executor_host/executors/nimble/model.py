"""The Nimble network: the text model of Qwen3.5 with its adapter merged, and of its output rows those of the codes.

    W' = bfloat16(W + bfloat16(s B A))        B A in float32 on the CPU, W as bfloat16

This is what PEFT's `merge_and_unload(safe_merge=True)` gives for a bfloat16 model, bit for bit, with which the family
makes merged checkpoints: so a LoRA checkpoint answers as they do. Only then is the model moved to its device and dtype.

The last hidden state of a row and the rows of the codes are multiplied in float32, whatever the model computes in.
"""

from __future__ import annotations

import re
from typing import Any, Final

from executor_host import devices
from executor_host.backbones import loading, lora, qwen3_5
from executor_host.errors import ConfigurationError
from executor_host.executors.nimble.checkpoint import HEAD, Checkpoint

_LEFT_OUT: Final = re.compile(r"(model\.)?(visual|mtp)\.|lm_head\.")
"""Tensors of a base model that are no part of the text model: they may be there, and are not loaded."""


def load(checkpoint: Checkpoint, *, device: str, dtype: str, settings: qwen3_5.Settings) -> qwen3_5.Qwen35:
    """The text model of a verified checkpoint on a device. Raises `ConfigurationError` as `qwen3_5.load` does."""
    torch, transformers, target = loading.prepare(device)
    text = loading.from_folder(
        transformers.Qwen3_5TextModel,
        checkpoint.weights,
        torch.bfloat16,
        lambda name: _LEFT_OUT.match(name) is not None,
    )
    if checkpoint.adapter is not None:
        lora.merge(text, checkpoint.adapter, safe=True)
    text = devices.placed(text, target, getattr(torch, dtype)).eval().requires_grad_(False)
    for name, parameter in text.named_parameters():
        # A parameter that was never filled, or lies elsewhere, answers all the same, and wrongly.
        if parameter.device.type != target.type:
            raise ConfigurationError(f"the checkpoint cannot be loaded: {name} is on {parameter.device}")
    return qwen3_5.Qwen35(text, settings)


def code_rows(checkpoint: Checkpoint, model: qwen3_5.Qwen35) -> Any:
    """The output rows [codes, hidden size] of the codes, float32 on the model's device."""
    import torch
    from safetensors import safe_open

    tokens = checkpoint.codes.tokens
    if checkpoint.head is None:
        return model.embeddings(tokens).float()
    with safe_open(checkpoint.head, framework="pt", device="cpu") as tensors:
        rows = tensors.get_slice(HEAD)
        found = torch.stack([rows[token] for token in tokens]).float()
    if not bool(torch.isfinite(found).all()):
        raise ConfigurationError(f"{HEAD}: the rows of the codes are not finite")
    return found.to(model.device)
