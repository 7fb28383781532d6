"""What makes a folder a Nimble checkpoint, checked before anything large is loaded.

    schema_config.json        how it is asked: of all families only this one has it
    tokenizer.json            its tokens, the codes of the answers among them
    adapter_config.json       a LoRA checkpoint: adapter_model.safetensors beside it, and the base model (config.json,
                              weights) in another folder. Without it they are in this one, and READY.json, which is
                              written last and says whose adapter was merged
    temperature_config.json   the temperature of an adapter that is none of the published ones, if it has one
    README.md                 its licence, if it names one

Files must not change while the host lives; they are hashed once, before anything loads them.

Source: the family's published code, github.com/bespokelabsai/nimble.
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
from protocol.contracts import nimble as contract
from protocol.contracts.nimble import ADAPTER_CONFIG, CALIBRATION, CARD, READY, SCHEMA, TOKENIZER, Release, Schema

MOST: Final = 2**31
"""Of any size in a configuration."""

MAX_CARD_BYTES: Final = 65_536
"""Of a model card: its head is at its beginning."""

HEAD: Final = "lm_head.weight"
"""The rows that codes are read with, unless they are those of the embedding."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    weights: Path
    """The folder whose `config.json` and tensors are loaded: the base model's, or the same."""
    adapter: Adapter | None
    """To be merged into the weights; None for a merged checkpoint."""
    head: Path | None
    """The file with the tensor `HEAD`; None: the embedding is read instead."""
    schema: Schema
    codes: contract.Codes
    release: Release | None
    """The published adapter that it has, if it is one."""
    temperature: float
    licence: str | None
    files: Mapping[str, str]
    """sha256 by name. Where two folders have the same name, it is the one that is read."""


def verify(
    path: str | None, *, base: str | None, unreleased: bool, progress: Callable[[float, str], None]
) -> Checkpoint:
    """The checkpoint in a folder, a LoRA checkpoint with the base model in `base`. Reads every byte once.

    `unreleased`: as `contract.read_schema`. `progress`: called with the fraction of all bytes and a note. Raises
    `ConfigurationError`, which names file and key.
    """
    folder = checkpoints.folder(path, "nimble")
    schema = _schema(folder, unreleased)
    adapted = (folder / ADAPTER_CONFIG).is_file()
    if adapted and base is None:
        raise ConfigurationError(f"{path} is a LoRA checkpoint; the option 'base' names its base model's folder")
    if not adapted and base is not None:
        raise ConfigurationError(f"{path} has no {ADAPTER_CONFIG}; the option 'base' is for LoRA checkpoints")
    weights = folder if base is None else Path(base)
    config = text_config(_required(weights, CONFIG))
    layers, vocabulary = (checkpoints.count(config, CONFIG, key, MOST) for key in ("num_hidden_layers", "vocab_size"))
    kinds = check_layers(config, layers)
    adapter = lora.read(folder, kinds) if adapted else None
    tensors, shards = checkpoints.weights(weights)
    head = _head(weights, config, tensors, shards)
    codes = _codes(_required(folder, TOKENIZER), schema, vocabulary)
    own = [SCHEMA, TOKENIZER, *(lora.FILES if adapted else (READY,)), *_calibrations(folder)]
    for name in own:
        _required(folder, name)
    paths = {**{name: folder / name for name in own}, **{name: weights / name for name in (CONFIG, *shards)}}
    files = checkpoints.hashed(paths, progress)
    release, temperature = _temperature(folder, files.get(lora.WEIGHTS))
    licence = _licence(folder, release)
    return Checkpoint(folder, weights, adapter, head, schema, codes, release, temperature, licence, files)


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a checkpoint is, line by line, for people; of a LoRA checkpoint without its base model, which is not known
    here. Raises as `verify`, but for the code that the prompts were trained with, which is told."""
    folder = checkpoints.folder(path, "nimble")
    schema = _schema(folder, unreleased=True)
    adapted = (folder / ADAPTER_CONFIG).is_file()
    if adapted:
        rank, scaling, targets = lora.settings(folder)
        table = checkpoints.safetensors_table(_required(folder, lora.WEIGHTS))
        codes = _codes(_required(folder, TOKENIZER), schema, MOST)
        names = [SCHEMA, TOKENIZER, *lora.FILES, *_calibrations(folder)]
        files = checkpoints.hashed({name: folder / name for name in names}, progress)
        release, temperature = _temperature(folder, files[lora.WEIGHTS])
        lines = [
            f"LoRA checkpoint of rank {rank}, scaled by {scaling:g}, {checkpoints.parameters(table):,} parameters",
            f"for {', '.join(sorted(targets))} of {schema.model} at {schema.revision}",
            "it is served with the option 'base', the folder of its base model",
        ]
    else:
        whole = verify(path, base=None, unreleased=True, progress=progress)
        release, temperature, codes = whole.release, whole.temperature, whole.codes
        tensors, _ = checkpoints.weights(folder)
        lines = [
            f"merged checkpoint of {schema.model} at {schema.revision}, {checkpoints.parameters(tensors):,} parameters"
        ]
    fitted = "" if release is not None and temperature != contract.UNFITTED else ", unfitted"
    lines.append(
        f"{schema.task}, {len(codes.names)} codes, temperature {temperature!r}{fitted if temperature == 1 else ''}"
    )
    lines.append(f"the adapter is {release.name}" if release else "the adapter is none of the published ones")
    lines.append(licence_note(_licence(folder, release)))
    try:
        _schema(folder, unreleased=False)
    except ConfigurationError:
        lines.append("trained with other code for its prompts: it is served with the option 'unreleased'")
    return lines


def licence_note(licence: str | None) -> str:
    """What is said of a licence, to people."""
    if licence is None:
        return f"{CARD} names no licence"
    return f"licence {licence}" + (": no commercial use" if contract.non_commercial(licence) else "")


def _schema(folder: Path, unreleased: bool) -> Schema:
    document = checkpoints.read_json(_required(folder, SCHEMA))
    with checkpoints.agreed():
        return contract.read_schema(document, unreleased=unreleased)


def _codes(file: Path, schema: Schema, vocabulary: int) -> contract.Codes:
    """The tokenizer's codes; its tokens are the model's."""
    tokenizer: Any = checkpoints.tokenizer(file)
    special = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
    with checkpoints.agreed():
        codes = contract.read_codes(
            tokenizer.get_vocab(with_added_tokens=True),
            lambda texts: [one.ids for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)],
            special,
        )
        contract.check_codes(schema, codes)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size > vocabulary:
        raise ConfigurationError(f"{TOKENIZER} has {size} tokens; {CONFIG}: vocab_size is {vocabulary}")
    return codes


def _head(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Any], shards: list[str]) -> Path | None:
    """Where the output rows are; None where the embedding is tied to them."""
    if HEAD not in tensors:
        if config.get("tie_word_embeddings") is True:
            return None
        raise ConfigurationError(f"{HEAD} is missing in {folder}, and tie_word_embeddings is not true in {CONFIG}")
    shape = [checkpoints.count(config, CONFIG, key, MOST) for key in ("vocab_size", "hidden_size")]
    if list(tensors[HEAD].shape) != shape:
        raise ConfigurationError(f"{HEAD} is {list(tensors[HEAD].shape)}; {CONFIG} says {shape}")
    for name in shards:
        if name.endswith(".safetensors") and HEAD in checkpoints.safetensors_table(folder / name):
            return folder / name
    raise ConfigurationError(f"{HEAD} is missing in {folder}")


def _calibrations(folder: Path) -> list[str]:
    return [name for name in (CALIBRATION,) if (folder / name).is_file()]


def _temperature(folder: Path, adapter: str | None) -> tuple[Release | None, float]:
    """The published adapter of a checkpoint, and its temperature. `adapter`: the sha256 of a LoRA checkpoint's own."""
    if adapter is not None:
        release = contract.RELEASES.get(adapter)
    else:
        ready = checkpoints.read_json(_required(folder, READY))
        release, digest = contract.release_of(ready), ready.get("adapter_sha256")
        adapter = digest if isinstance(digest, str) else None
    if not _calibrations(folder):
        return release, contract.UNFITTED if release is None else release.temperature
    with checkpoints.agreed():
        told = contract.read_calibration(checkpoints.read_json(folder / CALIBRATION), adapter)
    return release, told if release is None else release.temperature


def _licence(folder: Path, release: Release | None) -> str | None:
    if release is not None:
        return release.licence
    try:
        with (folder / CARD).open("rb") as file:
            return contract.licence_of(file.read(MAX_CARD_BYTES).decode(errors="replace"))
    except OSError:
        return None


def _required(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        why = ": a merge that was not finished, or by other means than the family's" if name == READY else ""
        raise ConfigurationError(f"{name} is missing in {folder}{why}")
    return file
