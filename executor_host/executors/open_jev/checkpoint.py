"""What makes a folder an Open-Jev checkpoint, checked before anything large is loaded.

Two layouts are served, told apart by the file that only they have:

    open_jev_export.json   a merged export: the text model in one folder with tokenizer, head and calibration in the
                           manifest. The manifest is written last, so a folder without it is an export that was
                           never finished, or the plain base model, and is refused.
    model.json             a LoRA checkpoint: adapter/, head.pt, temperature.json. The base model lies in another
                           folder, and the adapter is merged into it when it is loaded (open_jev_merge.py).

The released checkpoints are known by base model, revisions and sizes; others are refused unless the operator asks
for them. Files must not change while the host lives; they are hashed once, before anything loads them.

It is a long file because both layouts end in one description of a checkpoint, and their rules are read together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones import lora
from executor_host.backbones.qwen3_5_config import CONFIG, check_layers, text_config
from executor_host.errors import ConfigurationError
from protocol.contracts.open_jev import (
    MANIFEST,
    MODEL,
    RELEASES,
    SIZES,
    TEMPERATURE,
    TOKENIZER,
    Terms,
    read_export,
    read_lora,
)

HEAD: Final = "head.pt"
ADAPTER: Final = "adapter"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

MAX_HEAD_BYTES: Final = 16 * 1024 * 1024
"""Of head.pt. The released ones have some 20 kB."""

TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj")
"""Modules that have an adapter: those of them that a layer has."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter whose form was checked."""

    weights: Path
    rank: int
    scaling: float
    """What the product of the two matrices is multiplied by."""
    modules: tuple[str, ...]
    """Of the text model, as `layers.0.linear_attn.out_proj`."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    weights: Path
    """The folder whose `config.json` and tensors are loaded: the export's own, or the base model's."""
    tokenizer: Path
    adapter: Adapter | None
    """To be merged into the weights; None for an export."""
    terms: Terms
    released: bool
    """Whether base model, revisions and sizes are those of `RELEASES`."""
    head_weight: NDArray[np.float32]
    head_bias: np.float32
    files: Mapping[str, str]
    """sha256 by name. Where two folders have the same name, it is the one that is read."""


def verify(
    path: str | None,
    *,
    base: str | None,
    max_length: int | None,
    unreleased: bool,
    progress: Callable[[float, str], None],
) -> Checkpoint:
    """The checkpoint in a folder, a LoRA checkpoint with the base model in `base`. Reads every byte once.

    `unreleased`: whether other revisions and sizes than the released ones will do. `progress`: called with the
    fraction of all bytes and a note. Raises `ConfigurationError`, which names the file and the key.
    """
    folder = checkpoints.folder(path, "open-jev")
    if (folder / MANIFEST).is_file():
        if base is not None:
            raise ConfigurationError(f"{path} is a merged export; the option 'base' is for LoRA checkpoints")
        return _export(folder, max_length, unreleased, progress)
    if (folder / MODEL).is_file():
        if base is None:
            raise ConfigurationError(f"{path} is a LoRA checkpoint; the option 'base' names its base model's folder")
        if not Path(base).is_dir():
            raise ConfigurationError(f"the option 'base': {base} is not a folder")
        return _lora(folder, Path(base), max_length, unreleased, progress)
    raise ConfigurationError(
        f"{MANIFEST} is missing in {path}, and so is {MODEL}: an export that was not finished, or another model"
    )


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a checkpoint is, line by line, for people. Raises as `verify`; of a LoRA checkpoint what can be said without
    its base model, which is not known here, and without reading `head.pt`, which needs a device library."""
    if path is not None and not (Path(path) / MANIFEST).is_file() and (Path(path) / MODEL).is_file():
        return _inspect_lora(Path(path))
    checkpoint = verify(path, base=None, max_length=None, unreleased=True, progress=progress)
    lines = [
        f"merged export for {checkpoint.terms.model_id} at {checkpoint.terms.base_revision}",
        f"temperature {checkpoint.terms.temperature!r}, prompts of at most {checkpoint.terms.max_length} tokens",
    ]
    if checkpoint.released and checkpoint.terms.release is not None:
        lines.append(f"says it is the released {checkpoint.terms.release.alias}, and has its sizes")
    else:
        lines.append("not a released checkpoint: it is served with the option 'unreleased'")
    return lines


def _inspect_lora(folder: Path) -> list[str]:
    terms = _lora_terms(folder)
    _adapter_config(folder, terms)
    tensors = checkpoints.safetensors_table(_required(folder / ADAPTER, ADAPTER_WEIGHTS))
    size = checkpoints.parameters(tensors)
    _required(folder, HEAD)
    lines = [
        f"LoRA checkpoint for {terms.model_id} at {terms.base_revision}: rank {terms.rank}, {size:,} parameters",
        f"temperature {terms.temperature!r}",
        "it is served with the option 'base', the folder of its base model, and compared with it then",
    ]
    if terms.release is None or terms.base_revision != terms.release.base_revision:
        lines.append("not for a released base model: it is served with the option 'unreleased'")
    return lines


def _export(
    folder: Path, max_length: int | None, unreleased: bool, progress: Callable[[float, str], None]
) -> Checkpoint:
    manifest = checkpoints.read_json(folder / MANIFEST)
    with checkpoints.agreed():
        terms = read_export(manifest)
    _check_release(terms, MANIFEST, unreleased)
    config = text_config(folder / CONFIG)
    sizes = _sizes(config, terms, unreleased)
    head = manifest.get("head_weight")
    if not isinstance(head, list) or len(head) != sizes[0]:
        found = len(head) if isinstance(head, list) else type(head).__name__
        raise ConfigurationError(f"{MANIFEST}: head_weight is {found}; {sizes[0]} numbers are needed")
    weight = np.array([_float32(value, f"head_weight[{index}]") for index, value in enumerate(head)], np.float32)
    bias = np.float32(_float32(manifest.get("head_bias"), "head_bias"))
    files = [folder / name for name in (MANIFEST, CONFIG, TOKENIZER)]
    return Checkpoint(
        path=folder,
        weights=folder,
        tokenizer=_tokenizer(folder / TOKENIZER, config),
        adapter=None,
        terms=replace(terms, max_length=max_length or terms.max_length),
        released=_is_release(terms, sizes),
        head_weight=weight,
        head_bias=bias,
        files=_hashed([*files, *_shards(folder)], progress),
    )


def _lora(
    folder: Path, base: Path, max_length: int | None, unreleased: bool, progress: Callable[[float, str], None]
) -> Checkpoint:
    terms = _lora_terms(folder)
    _check_release(terms, MODEL, unreleased)
    config = text_config(_required(base, CONFIG))
    sizes = _sizes(config, terms, unreleased)
    adapter = _adapter(folder, terms, check_layers(config, sizes[2]))
    weight, bias = _head(_required(folder, HEAD), sizes[0])
    adapters = [folder / ADAPTER / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
    files = [folder / MODEL, folder / TEMPERATURE, folder / HEAD, *adapters, base / CONFIG, base / TOKENIZER]
    return Checkpoint(
        path=folder,
        weights=base,
        tokenizer=_tokenizer(base / TOKENIZER, config),
        adapter=adapter,
        terms=replace(terms, max_length=max_length or terms.max_length),
        released=_is_release(terms, sizes),
        head_weight=weight,
        head_bias=bias,
        files=_hashed([*files, *_shards(base)], progress),
    )


# Parts


def _lora_terms(folder: Path) -> Terms:
    """What the documents of a LoRA checkpoint say."""
    model = checkpoints.read_json(folder / MODEL)
    calibration = checkpoints.read_json(_required(folder, TEMPERATURE))
    with checkpoints.agreed():
        return read_lora(model, calibration)


def _sizes(config: Mapping[str, Any], terms: Terms, unreleased: bool) -> tuple[int, ...]:
    found = tuple([checkpoints.count(config, CONFIG, key, 2**31) for key in SIZES])
    if not unreleased and terms.release is not None:
        for key, value, expected in zip(SIZES, found, terms.release.sizes, strict=True):
            if value != expected:
                raise ConfigurationError(f"{CONFIG}: {key} is {value}; the released model's is {expected}")
    check_layers(config, found[2])
    return found


def _check_release(terms: Terms, name: str, unreleased: bool) -> None:
    """Refuses whatever is not a release, unless that was asked for. `name`: of the file that says what it is."""
    if unreleased:
        return
    release = terms.release
    if release is None:
        known = " or ".join(RELEASES)
        raise ConfigurationError(
            f"{name}: model_id is {terms.model_id!r}; {known} is released (the option 'unreleased')"
        )
    pairs = [("base_revision" if name == MANIFEST else "revision", terms.base_revision, release.base_revision)]
    if terms.checkpoint_revision is not None:
        pairs.append(("checkpoint_revision", terms.checkpoint_revision, release.checkpoint_revision))
    for key, value, expected in pairs:
        if value != expected:
            raise ConfigurationError(f"{name}: {key} is {value!r}; the released one is {expected!r}")


def _is_release(terms: Terms, sizes: tuple[int, ...]) -> bool:
    release = terms.release
    return (
        release is not None
        and (sizes, terms.base_revision) == (release.sizes, release.base_revision)
        and terms.checkpoint_revision in (None, release.checkpoint_revision)
    )


def _required(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise ConfigurationError(f"{name} is missing in {folder}")
    return file


def _shards(folder: Path) -> list[Path]:
    """The weights files, each of which has the size that its own table says."""
    if (folder / ADAPTER_CONFIG).exists():
        raise ConfigurationError(f"{ADAPTER_CONFIG} lies beside the weights and would change them; remove it")
    if not (folder / INDEX).is_file():
        found = [_required(folder, WEIGHTS)]
    else:
        if (folder / WEIGHTS).exists():
            raise ConfigurationError(f"{WEIGHTS} lies beside {INDEX}; which of them is the model is not said")
        table = checkpoints.read_json(folder / INDEX).get("weight_map")
        if not isinstance(table, dict) or not table or not all(isinstance(name, str) for name in table.values()):
            raise ConfigurationError(f"{INDEX}: weight_map is not an object of tensors and file names")
        names = sorted(set(table.values()))
        for name in names:
            if Path(name).name != name:
                raise ConfigurationError(f"{INDEX}: weight_map names {name!r}, which is not in the folder")
        found = [folder / INDEX, *(_required(folder, name) for name in names)]
    for file in found:
        if file.name == INDEX:
            continue
        for name, tensor in checkpoints.safetensors_table(file).items():
            if tensor.dtype not in ("BF16", "F32"):
                raise ConfigurationError(f"{file.name}: {name} is {tensor.dtype}, not BF16")
    return found


def _tokenizer(file: Path, config: Mapping[str, Any]) -> Path:
    _required(file.parent, file.name)
    size = checkpoints.tokenizer(file).get_vocab_size(with_added_tokens=True)
    vocabulary = checkpoints.count(config, CONFIG, "vocab_size", 2**31)
    if size > vocabulary:
        raise ConfigurationError(f"{file.name} has {size} tokens; {CONFIG}: vocab_size is {vocabulary}")
    return file


def _float32(value: object, key: str) -> float:
    """A finite number of the manifest's head, as float32 holds it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number: float = struct.unpack("<f", struct.pack("<f", value))[0]
        except (OverflowError, struct.error):
            number = math.inf
        if math.isfinite(number):
            return number
    raise ConfigurationError(f"{MANIFEST}: {key} is {value!r}; a finite number is expected")


def _head(file: Path, hidden: int) -> tuple[NDArray[np.float32], np.float32]:
    """Weight and bias of head.pt, which is read as tensors and nothing else."""
    import pickle

    import torch

    if file.stat().st_size > MAX_HEAD_BYTES:
        raise ConfigurationError(f"{HEAD} has {file.stat().st_size} bytes; at most {MAX_HEAD_BYTES} are read")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise ConfigurationError(f"{HEAD} cannot be read as tensors: {type(error).__name__}") from error
    if not isinstance(state, dict) or state.keys() != {"weight", "bias"}:
        raise ConfigurationError(f"{HEAD}: weight and bias are expected, and nothing else")
    for key, shape in (("weight", (1, hidden)), ("bias", (1,))):
        value = state[key]
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
            found = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigurationError(f"{HEAD}: {key} is {found}; {list(shape)} is needed")
        if value.dtype is not torch.float32 or not bool(torch.isfinite(value).all()):
            raise ConfigurationError(f"{HEAD}: {key} is not finite float32")
    return state["weight"].numpy().reshape(-1).copy(), np.float32(state["bias"].item())


_ADAPTER: Final[Mapping[str, object]] = {"peft_type": "LORA", "bias": "none"}


def _adapter_config(folder: Path, terms: Terms) -> Mapping[str, Any]:
    """The configuration of the adapter, which is merged in the one way that is known here."""
    name, rank = f"{ADAPTER}/{ADAPTER_CONFIG}", terms.rank
    assert rank is not None
    config = checkpoints.read_json(_required(folder / ADAPTER, ADAPTER_CONFIG))
    for key, value in _ADAPTER.items():
        if config.get(key) != value:
            raise ConfigurationError(f"{name}: {key} is {config.get(key)!r}, not {value!r}")
    for key in lora.OFF:
        if config.get(key):
            raise ConfigurationError(f"{name}: {key} is {config[key]!r}; this family's adapters have none")
    if checkpoints.count(config, name, "r", 4096) != rank:
        raise ConfigurationError(f"{name}: r is {config['r']}; {MODEL}: lora_rank is {rank}")
    if checkpoints.count(config, name, "lora_alpha", 8192) != 2 * rank:
        raise ConfigurationError(f"{name}: lora_alpha is {config['lora_alpha']}; twice the rank, {2 * rank}, is needed")
    return config


def _adapter(folder: Path, terms: Terms, kinds: list[str]) -> Adapter:
    config = _adapter_config(folder, terms)
    rank: int = config["r"]
    modules = tuple(
        module
        for layer, kind in enumerate(kinds)
        for module in (
            [f"layers.{layer}.self_attn.{part}" for part in TARGETS[:4]]
            if kind == "full_attention"
            else [f"layers.{layer}.linear_attn.{part}" for part in TARGETS[4:]]
        )
    )
    targets = config.get("target_modules")
    expected = sorted({module.rpartition(".")[2] for module in modules})
    if not isinstance(targets, list) or sorted(map(str, targets)) != expected:
        raise ConfigurationError(
            f"{ADAPTER}/{ADAPTER_CONFIG}: target_modules is {targets!r}; {', '.join(expected)} are needed"
        )
    weights = _required(folder / ADAPTER, ADAPTER_WEIGHTS)
    tensors = checkpoints.safetensors_table(weights)
    needed = {adapter_key(module, side) for module in modules for side in "AB"}
    for key in sorted(needed ^ tensors.keys()):
        raise ConfigurationError(f"{ADAPTER}/{ADAPTER_WEIGHTS}: {key} is {'missing' if key in needed else 'foreign'}")
    for key, tensor in tensors.items():
        if tensor.dtype not in ("F32", "BF16", "F16") or len(tensor.shape) != 2 or rank not in tensor.shape:
            raise ConfigurationError(f"{ADAPTER}/{ADAPTER_WEIGHTS}: {key} is {tensor.dtype} {list(tensor.shape)}")
    return Adapter(weights, rank, config["lora_alpha"] / config["r"], modules)


def adapter_key(module: str, side: str) -> str:
    """The tensor of one side, A or B, of a module's adapter."""
    return f"base_model.model.{module}.lora_{side}.weight"


def _hashed(files: list[Path], progress: Callable[[float, str], None]) -> dict[str, str]:
    """sha256 by file name, adapter files with their folder's."""
    beside = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
    return checkpoints.hashed(
        {f"{ADAPTER}/{file.name}" if file.name in beside else file.name: file for file in files}, progress
    )
