"""The text adapter of Cua-S1 (cua-ai/cua-s1-4b-0.2, folder `text`): checked tensor by tensor, merged at load.

    W' = bfloat16(float32(W) + 2 B A)        A [16, in], B [out, 16], both float32; 2 is alpha / rank

for the attention projections of the full-attention layers and all feed-forward projections; the linear-attention
mixers have none. The sum is rounded once, to what the base weights are stored in, whatever the model computes in:
so a base model with its adapter and the merged export of the two are the same model.

Done here and not with PEFT, which only warns about tensors it cannot place: with the adapter of the other
modality it attaches next to nothing and goes on. Here every tensor must have its place and every place its tensor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
FILES: Final = (CONFIG, WEIGHTS)

RANK: Final = 16
ALPHA: Final = 32

MODULES: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
VISION: Final = ("linear_fc1", "linear_fc2")
"""Modules that only the multimodal adapter has."""

FIXED: Final[Mapping[str, object]] = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA}

PLAIN: Final[Mapping[str, tuple[object, ...]]] = {
    "bias": (None, "none"),
    "fan_in_fan_out": (None, False),
    "use_rslora": (None, False),
    "use_dora": (None, False),
    "use_qalora": (None, False),
    "lora_bias": (None, False),
    "use_bdlora": (None, False),
    "alora_invocation_tokens": (None, []),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, [], {}),
    "layer_replication": (None, []),
    "target_parameters": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
}
"""Fields that would make it more than W + 2 B A, and the values with which they do not."""

_BASE: Final = re.compile(r"model\.language_model\.(layers\.\d+\.(?:self_attn|mlp)\.(\w+))\.weight")
_TEXT: Final = "base_model.model.model."


def targets(base: Mapping[str, checkpoints.Tensor]) -> dict[str, tuple[str, checkpoints.Tensor]]:
    """What is adapted of a base model: by module path within the text model, the tensor's name and description."""
    found = {}
    for name, tensor in base.items():
        match = _BASE.fullmatch(name)
        if match and match[2] in MODULES:
            found[match[1]] = (name, tensor)
    return found


def verify(folder: Path, base: Mapping[str, checkpoints.Tensor]) -> int:
    """Checks an adapter against the tensors of its base; returns how many parameters it has.

    Raises `ConfigurationError` naming file and key for whatever is missing, foreign, or would be merged otherwise.
    """
    for name in FILES:
        if not (folder / name).is_file():
            raise ConfigurationError(f"{name} is missing in {folder}")
    _check_config(checkpoints.read_json(folder / CONFIG))
    tensors = checkpoints.safetensors_table(folder / WEIGHTS)
    expected = {}
    for module, (_, weight) in targets(base).items():
        rows, columns = weight.shape
        expected[f"{_TEXT}{module}.lora_A.weight"] = (RANK, columns)
        expected[f"{_TEXT}{module}.lora_B.weight"] = (rows, RANK)
    for key in sorted(tensors.keys() - expected.keys()):
        if ".visual." in key or ".language_model." in key or any(name in key for name in VISION):
            raise ConfigurationError(f"{WEIGHTS}: {key} is of the multimodal adapter; this family takes the text one")
        raise ConfigurationError(f"{WEIGHTS}: {key} has no place in the base model")
    for key, shape in expected.items():
        tensor = tensors.get(key)
        if tensor is None:
            raise ConfigurationError(f"{WEIGHTS}: {key} is missing")
        if tensor.shape != shape:
            raise ConfigurationError(f"{WEIGHTS}: {key} has the shape {list(tensor.shape)}, not {list(shape)}")
        if tensor.dtype != "F32":
            raise ConfigurationError(f"{WEIGHTS}: {key} is {tensor.dtype}, not F32")
    return checkpoints.parameters(tensors)


def merge(text: Any, folder: Path) -> None:
    """Adds the adapter in `folder`, which `verify` has accepted, to a `Qwen3_5TextModel` on the CPU, in place.

    Raises `ConfigurationError` where a sum is not finite.
    """
    import torch
    from safetensors import safe_open

    with torch.inference_mode(), safe_open(folder / WEIGHTS, framework="pt") as tensors:
        down = ".lora_A.weight"
        for key in sorted(tensors.keys()):
            if not key.endswith(down):
                continue
            module = key.removesuffix(down)
            weight = text.get_submodule(module.removeprefix(_TEXT)).weight
            delta = tensors.get_tensor(f"{module}.lora_B.weight") @ tensors.get_tensor(key)
            merged = delta.mul_(ALPHA / RANK).add_(weight).to(torch.bfloat16)
            if not torch.isfinite(merged).all():
                raise ConfigurationError(f"{WEIGHTS}: {module} makes weights that are not finite")
            weight.copy_(merged)


def _check_config(config: Mapping[str, Any]) -> None:
    for key, value in FIXED.items():
        if type(config.get(key)) is not type(value) or config[key] != value:
            raise ConfigurationError(f"{CONFIG}: {key} is {config.get(key)!r}, not {value!r}")
    for key, allowed in PLAIN.items():
        if config.get(key) not in allowed:
            raise ConfigurationError(f"{CONFIG}: {key} is {config[key]!r}; this family takes a plain adapter")
    modules = config.get("target_modules")
    if isinstance(modules, str):
        # A pattern. What it has matched is in the weights; what it can match of the other modality is seen here.
        if any(name in modules for name in (*VISION, "visual")):
            raise ConfigurationError(f"{CONFIG}: target_modules is that of the multimodal adapter")
        return
    if not isinstance(modules, list) or not all(isinstance(name, str) for name in modules):
        raise ConfigurationError(f"{CONFIG}: target_modules is neither a list of names nor a pattern")
    names = {name.rpartition(".")[2] for name in modules}
    if not names.isdisjoint(VISION):
        raise ConfigurationError(
            f"{CONFIG}: target_modules has {min(names & set(VISION))}: this is the multimodal adapter, not the text one"
        )
    if names != set(MODULES):
        raise ConfigurationError(f"{CONFIG}: target_modules is {sorted(names)}, not {sorted(MODULES)}")
