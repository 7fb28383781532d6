"""What a `config.json` must say for its text model to be the one that the backbone reads. No device library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError

CONFIG: Final = "config.json"

FULL_ATTENTION_EVERY: Final = 4
"""Of so many layers the last is full attention, the others are linear attentions."""


def text_config(path: Path) -> Mapping[str, Any]:
    """The text model's part of a `config.json`, with or without a vision tower around it."""
    config = checkpoints.read_json(path)
    if config.get("quantization_config") is not None:
        raise ConfigurationError(f"{CONFIG}: quantization_config is set; the head was trained on the model as it is")
    inner = config
    if config.get("model_type") == "qwen3_5":
        inner = config.get("text_config")  # type: ignore[assignment]
        if not isinstance(inner, dict):
            raise ConfigurationError(f"{CONFIG}: text_config is not an object")
    if inner.get("model_type") != "qwen3_5_text":
        raise ConfigurationError(f"{CONFIG}: model_type is {inner.get('model_type')!r}, not 'qwen3_5_text'")
    dtype = config.get("dtype", inner.get("dtype", config.get("torch_dtype", inner.get("torch_dtype", "bfloat16"))))
    if dtype != "bfloat16":
        raise ConfigurationError(f"{CONFIG}: dtype is {dtype!r}, not 'bfloat16'")
    return inner


def check_layers(config: Mapping[str, Any], layers: int) -> list[str]:
    """What each of the layers of a text model's configuration is. Raises where it says something else."""
    kinds = ["linear_attention" if (layer + 1) % FULL_ATTENTION_EVERY else "full_attention" for layer in range(layers)]
    if config.get("layer_types") not in (None, kinds):
        raise ConfigurationError(f"{CONFIG}: layer_types is not three linear attentions before each full one")
    if config.get("full_attention_interval", FULL_ATTENTION_EVERY) != FULL_ATTENTION_EVERY:
        raise ConfigurationError(f"{CONFIG}: full_attention_interval is not {FULL_ATTENTION_EVERY}")
    return kinds
