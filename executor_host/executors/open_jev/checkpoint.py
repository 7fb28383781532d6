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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints
from executor_host.backbones.qwen3_5_config import CONFIG, check_layers, text_config
from executor_host.errors import ConfigurationError

MANIFEST: Final = "open_jev_export.json"
FORMAT: Final = "open-jev-text-merged/1"
MODEL: Final = "model.json"
TEMPERATURE: Final = "temperature.json"
HEAD: Final = "head.pt"
ADAPTER: Final = "adapter"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
TOKENIZER: Final = "tokenizer.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"

DEFAULT_MAX_LENGTH: Final = 4096
MAX_LENGTH: Final = 16_384
MAX_ROWS: Final = 65_536
MAX_TOKENS: Final = 16_777_216
"""Limits of one request; the front refuses what is beyond them. The last one is ours (rows.py of the front)."""

MAX_HEAD_BYTES: Final = 16 * 1024 * 1024
"""Of head.pt. The released ones have some 20 kB."""

TARGETS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj")
"""Modules that have an adapter: those of them that a layer has."""

_SIZES: Final = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
)


@dataclass(frozen=True, slots=True)
class Release:
    """A published checkpoint."""

    alias: str
    base_revision: str
    checkpoint_revision: str
    sizes: tuple[int, ...]
    """Of the text model, as `_SIZES` names them."""
    packed: bool
    """Whether reading the candidates of a request together was validated for it."""


RELEASES: Final[Mapping[str, Release]] = {
    "Qwen/Qwen3.8-27B": Release(
        "open-jev-27b-v1.1",
        "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
        "28cf73067d5b337860bbef3c85b8b82ba8730956",
        (5120, 17408, 64, 24, 4, 16, 48),
        packed=True,
    ),
    "Qwen/Qwen3.5-9B": Release(
        "open-jev-9b",
        "c202236235762e1c871ad0ccb60c8ee5ba337b9a",
        "47e966881e489511c0c7f5633a9e1960a676a551",
        (4096, 12288, 32, 16, 4, 16, 32),
        packed=False,
    ),
}
"""By base model."""


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
    model_id: str
    base_revision: str
    checkpoint_revision: str | None
    """None where the files do not say: a LoRA checkpoint knows only its base model's."""
    released: bool
    """Whether base model, revisions and sizes are those of `RELEASES`."""
    max_length: int
    temperature: float
    chat: tuple[str, str] | None
    """What stands around a prompt, where the checkpoint says it."""
    head_weight: NDArray[np.float32]
    head_bias: np.float32
    files: Mapping[str, str]
    """sha256 by name. Where two folders have the same name, it is the one that is read."""

    @property
    def release(self) -> Release | None:
        """The release whose base model this has, whether it is the released one or not."""
        return RELEASES.get(self.model_id)


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
        f"merged export for {checkpoint.model_id} at {checkpoint.base_revision}",
        f"temperature {checkpoint.temperature!r}, prompts of at most {checkpoint.max_length} tokens",
    ]
    if checkpoint.released and checkpoint.release is not None:
        lines.append(f"says it is the released {checkpoint.release.alias}, and has its sizes")
    else:
        lines.append("not a released checkpoint: it is served with the option 'unreleased'")
    return lines


def _inspect_lora(folder: Path) -> list[str]:
    model_id, revision, rank = _lora_model(folder)
    heat = temperature(checkpoints.read_json(_required(folder, TEMPERATURE)), TEMPERATURE)
    _adapter_config(folder, rank)
    tensors = checkpoints.safetensors_table(_required(folder / ADAPTER, ADAPTER_WEIGHTS))
    _required(folder, HEAD)
    lines = [
        f"LoRA checkpoint for {model_id} at {revision}: rank {rank}, {checkpoints.parameters(tensors):,} parameters",
        f"temperature {heat!r}",
        "it is served with the option 'base', the folder of its base model, and compared with it then",
    ]
    if model_id not in RELEASES or revision != RELEASES[model_id].base_revision:
        lines.append("not for a released base model: it is served with the option 'unreleased'")
    return lines


def _export(
    folder: Path, max_length: int | None, unreleased: bool, progress: Callable[[float, str], None]
) -> Checkpoint:
    manifest = checkpoints.read_json(folder / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise ConfigurationError(f"{MANIFEST}: format is {manifest.get('format')!r}, not {FORMAT!r}")
    model_id, base_revision, revision, prefix, suffix = (
        checkpoints.text(manifest, MANIFEST, key)
        for key in ("model_id", "base_revision", "checkpoint_revision", "chat_prefix", "chat_suffix")
    )
    _released(model_id, {"base_revision": base_revision, "checkpoint_revision": revision}, MANIFEST, unreleased)
    heat = temperature(manifest, MANIFEST)
    longest = checkpoints.count(manifest, MANIFEST, "max_length", MAX_LENGTH)
    config = text_config(folder / CONFIG)
    sizes = _sizes(config, model_id, unreleased)
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
        model_id=model_id,
        base_revision=base_revision,
        checkpoint_revision=revision,
        released=_is_release(model_id, sizes, base_revision, revision),
        max_length=max_length or longest,
        temperature=heat,
        chat=(prefix, suffix),
        head_weight=weight,
        head_bias=bias,
        files=_hashed([*files, *_shards(folder)], progress),
    )


def _lora(
    folder: Path, base: Path, max_length: int | None, unreleased: bool, progress: Callable[[float, str], None]
) -> Checkpoint:
    model_id, revision, rank = _lora_model(folder)
    _released(model_id, {"revision": revision}, MODEL, unreleased)
    heat = temperature(checkpoints.read_json(_required(folder, TEMPERATURE)), TEMPERATURE)
    config = text_config(_required(base, CONFIG))
    sizes = _sizes(config, model_id, unreleased)
    adapter = _adapter(folder, rank, check_layers(config, sizes[2]))
    weight, bias = _head(_required(folder, HEAD), sizes[0])
    adapters = [folder / ADAPTER / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
    files = [folder / MODEL, folder / TEMPERATURE, folder / HEAD, *adapters, base / CONFIG, base / TOKENIZER]
    return Checkpoint(
        path=folder,
        weights=base,
        tokenizer=_tokenizer(base / TOKENIZER, config),
        adapter=adapter,
        model_id=model_id,
        base_revision=revision,
        checkpoint_revision=None,
        released=_is_release(model_id, sizes, revision, None),
        max_length=max_length or DEFAULT_MAX_LENGTH,
        temperature=heat,
        chat=None,
        head_weight=weight,
        head_bias=bias,
        files=_hashed([*files, *_shards(base)], progress),
    )


# Parts


def _lora_model(folder: Path) -> tuple[str, str, int]:
    """The base model of a LoRA checkpoint, its revision, and the rank of the adapter."""
    model = checkpoints.read_json(folder / MODEL)
    model_id, revision, _ = (checkpoints.text(model, MODEL, key) for key in ("model_id", "revision", "method"))
    checkpoints.count(model, MODEL, "max_length", 2**31)  # of the training, which is not what is served
    return model_id, revision, checkpoints.count(model, MODEL, "lora_rank", 4096)


def temperature(document: Mapping[str, Any], name: str) -> float:
    """The temperature: finite, above 0. Raises `ConfigurationError`."""
    value = document.get("temperature")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond every float
            number = math.inf
        if math.isfinite(number) and number > 0:
            return number
    raise ConfigurationError(f"{name}: temperature is {value!r}; a finite number above 0 is expected")


def _sizes(config: Mapping[str, Any], model_id: str, unreleased: bool) -> tuple[int, ...]:
    found = []
    for key in _SIZES:
        value = config.get(key)
        if type(value) is not int or value < 1:
            raise ConfigurationError(f"{CONFIG}: {key} is {value!r}; a number above 0 is expected")
        found.append(value)
    if not unreleased:
        for key, value, expected in zip(_SIZES, found, RELEASES[model_id].sizes, strict=True):
            if value != expected:
                raise ConfigurationError(f"{CONFIG}: {key} is {value}; the released model's is {expected}")
    check_layers(config, found[2])
    return tuple(found)


def _released(model_id: str, revisions: Mapping[str, str], name: str, unreleased: bool) -> None:
    """Refuses whatever is not a release, unless that was asked for."""
    if unreleased:
        return
    release = RELEASES.get(model_id)
    if release is None:
        known = " or ".join(RELEASES)
        raise ConfigurationError(f"{name}: model_id is {model_id!r}; {known} is released (the option 'unreleased')")
    for key, value in revisions.items():
        expected = release.checkpoint_revision if key == "checkpoint_revision" else release.base_revision
        if value != expected:
            raise ConfigurationError(f"{name}: {key} is {value!r}; the released one is {expected!r}")


def _is_release(model_id: str, sizes: tuple[int, ...], base_revision: str, revision: str | None) -> bool:
    release = RELEASES.get(model_id)
    return (
        release is not None
        and (sizes, base_revision) == (release.sizes, release.base_revision)
        and revision in (None, release.checkpoint_revision)
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
_ADAPTER_OFF: Final = (
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
"""Keys of an adapter whose values must be absent, null, false or empty: with them it is merged in another way."""


def _adapter_config(folder: Path, rank: int) -> Mapping[str, Any]:
    """The configuration of the adapter, which is merged in the one way that is known here."""
    name = f"{ADAPTER}/{ADAPTER_CONFIG}"
    config = checkpoints.read_json(_required(folder / ADAPTER, ADAPTER_CONFIG))
    for key, value in _ADAPTER.items():
        if config.get(key) != value:
            raise ConfigurationError(f"{name}: {key} is {config.get(key)!r}, not {value!r}")
    for key in _ADAPTER_OFF:
        if config.get(key):
            raise ConfigurationError(f"{name}: {key} is {config[key]!r}; this family's adapters have none")
    if checkpoints.count(config, name, "r", 4096) != rank:
        raise ConfigurationError(f"{name}: r is {config['r']}; {MODEL}: lora_rank is {rank}")
    if checkpoints.count(config, name, "lora_alpha", 8192) != 2 * rank:
        raise ConfigurationError(f"{name}: lora_alpha is {config['lora_alpha']}; twice the rank, {2 * rank}, is needed")
    return config


def _adapter(folder: Path, rank: int, kinds: list[str]) -> Adapter:
    config = _adapter_config(folder, rank)
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
