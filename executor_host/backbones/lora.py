"""LoRA adapters of Qwen3.5's text model, as PEFT writes them: checked tensor by tensor, merged at load.

    W' = dtype(float32(W) + s B A)        A [rank, in], B [out, rank]; s is alpha / rank, B A in float32

for whichever of the layers' projections the adapter is made for. The sum is rounded once, to the dtype that the model
computes in, and not at all in float32: PEFT's plain merge. Its `safe_merge`, with which some families were published,
rounds the product to that dtype first: W' = W + dtype(s B A).

Done here and not with PEFT, which only warns about tensors it cannot place, attaches what is left, and goes on. Here
every tensor must have its place, and every place that `target_modules` names its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
FILES: Final = (CONFIG, WEIGHTS)

MAX_RANK: Final = 4_096
MAX_ALPHA: Final = 65_536

MIXERS: Final[Mapping[str, tuple[str, ...]]] = {
    "full_attention": tuple([f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")]),
    "linear_attention": tuple(
        [f"linear_attn.{name}" for name in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")]
    ),
}
FEED_FORWARD: Final = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
"""Projections of a layer, by the kind of its mixer, and of every layer."""

OFF: Final = (
    "use_dora",
    "use_rslora",
    "use_qalora",
    "lora_bias",
    "fan_in_fan_out",
    "rank_pattern",
    "alpha_pattern",
    "modules_to_save",
    "layers_to_transform",
    "layers_pattern",
    "layer_replication",
    "target_parameters",
    "exclude_modules",
    "trainable_token_indices",
)
"""Keys that must be absent, null, false or empty: with them it is merged in another way, or is more than an adapter."""

_KEY: Final = re.compile(
    r"(base_model\.model\.(?:model\.)?(?:language_model\.)?)(layers\.\d+\.[a-z_.]+)\.lora_([AB])\.weight"
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose form was checked."""

    weights: Path
    prefix: str
    """Of the names of its tensors, before the module."""
    rank: int
    scaling: float
    """What the product of the two matrices is multiplied by."""
    modules: tuple[str, ...]
    """Of the text model, as `layers.0.linear_attn.out_proj`, in order."""


def read(folder: Path, kinds: Sequence[str]) -> Adapter:
    """The adapter in a folder, for a text model whose layers have mixers of these `kinds`.

    Raises `ConfigurationError` naming file and key for whatever is missing, foreign, or would be merged otherwise.
    """
    rank, scaling, targets = settings(folder)
    if not (folder / WEIGHTS).is_file():
        raise ConfigurationError(f"{WEIGHTS} is missing in {folder}")
    places = [f"layers.{layer}.{name}" for layer, kind in enumerate(kinds) for name in (*MIXERS[kind], *FEED_FORWARD)]
    modules = [place for place in places if place.rpartition(".")[2] in targets]
    unknown = targets - {module.rpartition(".")[2] for module in modules}
    if unknown or not modules:
        name = min(unknown, default=None)
        raise ConfigurationError(f"{CONFIG}: target_modules has {name!r}, which is no projection of this model")
    tensors = checkpoints.safetensors_table(folder / WEIGHTS)
    found: dict[tuple[str, str], str] = {}
    prefixes = set()
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None or match[2] not in modules:
            raise ConfigurationError(f"{WEIGHTS}: {key} has no place in this model")
        if tensor.dtype not in ("F32", "BF16", "F16") or len(tensor.shape) != 2:
            raise ConfigurationError(f"{WEIGHTS}: {key} is {tensor.dtype} {list(tensor.shape)}")
        if tensor.shape[0 if match[3] == "A" else 1] != rank:
            raise ConfigurationError(f"{WEIGHTS}: {key} is {list(tensor.shape)}, and {CONFIG}: r is {rank}")
        prefixes.add(match[1])
        found[match[2], match[3]] = key
    for module in modules:
        for side in "AB":
            if (module, side) not in found:
                raise ConfigurationError(f"{WEIGHTS}: lora_{side} of {module} is missing")
    if len(prefixes) != 1 or len(found) != len(tensors):
        raise ConfigurationError(f"{WEIGHTS}: its tensors are named in several ways")
    return Adapter(folder / WEIGHTS, prefixes.pop(), rank, scaling, tuple(modules))


def settings(folder: Path) -> tuple[int, float, frozenset[str]]:
    """Rank, scaling and the names of the projections that an adapter's configuration says. Raises as `read`."""
    if not (folder / CONFIG).is_file():
        raise ConfigurationError(f"{CONFIG} is missing in {folder}")
    config = checkpoints.read_json(folder / CONFIG)
    if config.get("peft_type") != "LORA":
        raise ConfigurationError(f"{CONFIG}: peft_type is {config.get('peft_type')!r}, not 'LORA'")
    if config.get("bias", "none") not in (None, "none"):
        raise ConfigurationError(f"{CONFIG}: bias is {config['bias']!r}, not 'none'")
    for key in OFF:
        if config.get(key):
            raise ConfigurationError(f"{CONFIG}: {key} is {config[key]!r}; a plain adapter is merged here")
    rank = checkpoints.count(config, CONFIG, "r", MAX_RANK)
    alpha = checkpoints.count(config, CONFIG, "lora_alpha", MAX_ALPHA)
    modules = config.get("target_modules")
    if not isinstance(modules, list) or not modules or not all(isinstance(name, str) for name in modules):
        raise ConfigurationError(f"{CONFIG}: target_modules is {modules!r}; a list of names is expected")
    return rank, alpha / rank, frozenset([name.rpartition(".")[2] for name in modules])


def merge(model: Any, adapter: Adapter, *, safe: bool = False) -> None:
    """Adds the adapter to the weights of a `Qwen3_5TextModel` on the CPU, in place and in their dtype. `safe`: as
    PEFT's `safe_merge` does.

    Raises `ConfigurationError` for a shape that does not fit, and for a sum that is not finite.
    """
    import torch
    from safetensors import safe_open

    with torch.no_grad(), safe_open(adapter.weights, framework="pt", device="cpu") as tensors:
        for module in adapter.modules:
            weight = model.get_submodule(module).weight
            down, up = (tensors.get_tensor(f"{adapter.prefix}{module}.lora_{side}.weight").float() for side in "AB")
            if (up.shape[0], down.shape[1]) != tuple(weight.shape):
                raise ConfigurationError(
                    f"{WEIGHTS}: {module} is {list(up.shape)} x {list(down.shape)} for a weight {list(weight.shape)}"
                )
            product = (up @ down) * adapter.scaling
            merged = weight + product.to(weight.dtype) if safe else weight.float() + product
            if not bool(torch.isfinite(merged).all()):
                raise ConfigurationError(f"{WEIGHTS}: {module} is not finite when it is merged")
            weight.copy_(merged.to(weight.dtype))
