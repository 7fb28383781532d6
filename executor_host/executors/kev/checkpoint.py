"""What makes a folder a Kev checkpoint, checked before anything large is loaded.

    training_config.json    how large the head is; of families with a head.pt only this one has it
    head.pt                 the head, its temperature, and the name of the base model
    adapter_config.json     a LoRA checkpoint: adapter_model.safetensors beside it, and the base model (config.json,
                            weights, tokenizer.json) in another folder. Without it all of these are in this one.

Files must not change while the host lives; they are hashed once, before anything loads them.

Source: the family's published code, github.com/jaredpalmer/kev.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.backbones import lora
from executor_host.backbones.lora import Adapter
from executor_host.backbones.qwen3_5_config import CONFIG, check_layers, text_config
from executor_host.errors import ConfigurationError
from executor_host.executors.kev import head as heads
from executor_host.executors.kev.head import Head
from protocol.contracts import kev as contract
from protocol.contracts.kev import ADAPTER_CONFIG, HEAD, TOKENIZER, TRAINING

MOST: Final = 2**31
"""Of any size in a configuration."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    weights: Path
    """The folder whose `config.json`, tensors and tokenizer are loaded: the base model's, or the same."""
    adapter: Adapter | None
    """To be merged into the weights; None for a merged checkpoint."""
    head: Head
    delimiters: contract.Delimiters
    files: Mapping[str, str]
    """sha256 by name. Where two folders have the same name, it is the one that is read."""


def verify(path: str | None, *, base: str | None, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder, a LoRA checkpoint with the base model in `base`. Reads every byte once.

    `progress`: called with the fraction of all bytes and a note. Raises `ConfigurationError`, which names file and key.
    """
    folder, dim = _training(path)
    adapted = (folder / ADAPTER_CONFIG).is_file()
    if adapted and base is None:
        raise ConfigurationError(f"{path} is a LoRA checkpoint; the option 'base' names its base model's folder")
    if not adapted and base is not None:
        raise ConfigurationError(f"{path} has no {ADAPTER_CONFIG}; the option 'base' is for LoRA checkpoints")
    weights = folder if base is None else Path(base)
    for name in (CONFIG, TOKENIZER):
        if not (weights / name).is_file():
            raise ConfigurationError(f"{name} is missing in {weights}")
    config = text_config(weights / CONFIG)
    layers, hidden, vocabulary = (
        checkpoints.count(config, CONFIG, key, MOST) for key in ("num_hidden_layers", "hidden_size", "vocab_size")
    )
    adapter = lora.read(folder, check_layers(config, layers)) if adapted else None
    _, shards = checkpoints.weights(weights)
    delimiters = _delimiters(weights / TOKENIZER, vocabulary)
    head = heads.read(folder / HEAD, dim, hidden)
    own = {name: folder / name for name in (TRAINING, HEAD, *(lora.FILES if adapted else ()))}
    others = {name: weights / name for name in (CONFIG, TOKENIZER, *shards)}
    return Checkpoint(folder, weights, adapter, head, delimiters, checkpoints.hashed({**own, **others}, progress))


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a checkpoint is, line by line, for people, without reading `head.pt`, which needs a device library, and of a
    LoRA checkpoint without its base model, which is not known here. Raises as `verify`."""
    folder, dim = _training(path)
    if not (folder / ADAPTER_CONFIG).is_file():
        config = text_config(_required(folder, CONFIG))
        check_layers(config, layers := checkpoints.count(config, CONFIG, "num_hidden_layers", MOST))
        tensors, shards = checkpoints.weights(folder)
        _delimiters(_required(folder, TOKENIZER), checkpoints.count(config, CONFIG, "vocab_size", MOST))
        names = (TRAINING, HEAD, CONFIG, TOKENIZER, *shards)
        checkpoints.hashed({name: folder / name for name in names}, progress)
        whole = f"merged checkpoint of {layers} layers, {checkpoints.parameters(tensors):,} parameters"
        return [whole, f"a head of {dim} values, in {HEAD}"]
    rank, scaling, targets = lora.settings(folder)
    adapter = checkpoints.safetensors_table(_required(folder, lora.WEIGHTS))
    checkpoints.hashed({name: folder / name for name in (TRAINING, HEAD, *lora.FILES)}, progress)
    return [
        f"LoRA checkpoint of rank {rank}, scaled by {scaling:g}, {checkpoints.parameters(adapter):,} parameters",
        f"for {', '.join(sorted(targets))}",
        f"a head of {dim} values, in {HEAD}; it is served with the option 'base', the folder of its base model",
    ]


def _training(path: str | None) -> tuple[Path, int]:
    folder = checkpoints.folder(path, "kev")
    document = checkpoints.read_json(_required(folder, TRAINING))
    _required(folder, HEAD)
    with checkpoints.agreed():
        return folder, contract.read_training(document)


def _required(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise ConfigurationError(f"{name} is missing in {folder}")
    return file


def _delimiters(file: Path, vocabulary: int) -> contract.Delimiters:
    """The tokenizer's delimiters; its tokens are the model's."""
    tokenizer: Any = checkpoints.tokenizer(file)
    with checkpoints.agreed():
        found = contract.delimiters(
            lambda texts: [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        )
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size > vocabulary:
        raise ConfigurationError(f"{TOKENIZER} has {size} tokens; {CONFIG}: vocab_size is {vocabulary}")
    return found
