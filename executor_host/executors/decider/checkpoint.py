"""What makes a folder a Decider checkpoint (Mapika/decider-2b v11 and its like), checked without loading it.

Two levels. Every folder must have the released *form*: the configuration, calibration, tokenizer and tensors
that the prompts and the arithmetic of this family are made for. A folder that claims to be the released
revision must also have the released *bytes*, so that its answers can be compared with anybody else's.

Files must not change while the host lives; they are hashed once, before anything loads them.

Source: the family's published runtime, decider-ai 1.8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.backbones.qwen3_5_config import check_layers
from executor_host.errors import ConfigurationError
from protocol.contracts import decider as contract

RELEASED: Final = {
    "config.json": (1_790, "6cb8daca9fb653c61485ff7452fc068bacd5c27cbee659ecd24b47186b0d1b52"),
    contract.CONFIG: (1_240, "6e4891f2754a1c18a10f8dadb0c04e439e7f79fab0333d56641491bd4a05e722"),
    contract.TOKENIZER: (19_989_325, "06b9509352d2af50381ab2247e083b80d32d5c0aba91c272ca9ff729b6a0e523"),
    "model.safetensors": (3_763_692_048, "acaef2228b134dcdc20cad4ee79219482c927ec819aa3687b9b8a575c338817f"),
}
"""Size in bytes and sha256 of the files of `REVISION`. Every checkpoint has files of these names."""

REDIRECTING: Final = ("model.safetensors.index.json", "adapter_config.json")
"""Files that make the loading library take other weights than the verified ones, or more."""

EMBEDDING: Final = "model.language_model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    files: Mapping[str, str]
    """sha256 of each of the required files."""
    released: bool
    """Whether all of them are those of `REVISION`."""
    temperatures: contract.Temperatures
    labels: tuple[int, ...]
    """Token ids of the labels A, B, ..., in order."""
    parameters: int


def verify(path: str | None, *, claimed: bool, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder. Reads every byte once: 3.8 GB of the released model.

    `claimed`: whether it is said to be `REVISION`. `progress`: called with the fraction of all bytes and a note.
    Raises `ConfigurationError` for what is missing, foreign, redirected, cut short, or not the released
    bytes where these are claimed.
    """
    folder = checkpoints.folder(path, "decider")
    for name in REDIRECTING:
        if (folder / name).exists():
            raise ConfigurationError(f"{name} lies beside the weights and would have others loaded; remove it")
    for name, (size, _) in RELEASED.items():
        file = folder / name
        if not file.is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
        if claimed and file.stat().st_size != size:
            raise ConfigurationError(f"{name} has {file.stat().st_size} bytes; the released file has {size}")
    vocabulary, hidden = _check_config(checkpoints.read_json(folder / "config.json"))
    config = checkpoints.read_json(folder / contract.CONFIG)
    with checkpoints.agreed(contract.CONFIG):
        temperatures = contract.read_config(config)
    tensors = checkpoints.safetensors_table(folder / "model.safetensors")
    _check_tensors(tensors, vocabulary, hidden)
    files = checkpoints.hashed({name: folder / name for name in RELEASED}, progress)
    for name, (_, digest) in RELEASED.items():
        if claimed and files[name] != digest:
            raise ConfigurationError(f"{name} is not the released file: its sha256 is {files[name]}, not {digest}")
    labels = label_tokens(folder / contract.TOKENIZER, vocabulary)
    released = all(files[name] == digest for name, (_, digest) in RELEASED.items())
    return Checkpoint(folder, files, released, temperatures, labels, checkpoints.parameters(tensors))


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a verified folder is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, claimed=False, progress=progress)
    other = [name for name, (_, digest) in RELEASED.items() if checkpoint.files[name] != digest]
    lines = [
        f"{contract.MODEL_ID}, {checkpoint.parameters:,} parameters, {len(checkpoint.labels)} labels",
        "temperatures " + ", ".join(f"{kind} {value:.4g}" for kind, value in asdict(checkpoint.temperatures).items()),
    ]
    if checkpoint.released:
        lines.append(f"the files are those of revision {contract.REVISION}")
    else:
        lines.append(f"not the released revision {contract.REVISION}: {', '.join(other)} differ")
    return lines


def label_tokens(tokenizer: Path, vocabulary: int) -> tuple[int, ...]:
    """The label tokens of a tokenizer, as `protocol.contracts.decider.labels`.

    Raises `ConfigurationError`: not a tokenizer, too few, two of them equal, or ids of `vocabulary` or above.
    """
    encoder = checkpoints.tokenizer(tokenizer)
    with checkpoints.agreed(tokenizer.name):
        _, found = contract.labels(lambda text: list(encoder.encode(text, add_special_tokens=False).ids))
    if encoder.get_vocab_size(with_added_tokens=True) > vocabulary:
        raise ConfigurationError(f"{tokenizer.name} has more tokens than the model's {vocabulary}")
    return found


def _check_config(config: Mapping[str, Any]) -> tuple[int, int]:
    """Vocabulary and hidden size of a model that this family's backbone reads."""
    expected = {"model_type": "qwen3_5_text", "tie_word_embeddings": True, "dtype": "bfloat16"}
    for key, value in expected.items():
        if type(config.get(key)) is not type(value) or config[key] != value:
            raise ConfigurationError(f"config.json: {key} is {config.get(key)!r}, not {value!r}")
    if config.get("quantization_config") is not None:
        raise ConfigurationError("config.json: quantized weights are another model")
    sizes = [config.get(key) for key in ("vocab_size", "hidden_size", "num_hidden_layers")]
    if not all(type(size) is int and size > 0 for size in sizes):
        raise ConfigurationError("config.json: vocab_size, hidden_size and num_hidden_layers are not all positive")
    vocabulary, hidden, layers = (int(size) for size in sizes if size is not None)
    check_layers(config, layers)
    return vocabulary, hidden


def _check_tensors(tensors: Mapping[str, checkpoints.Tensor], vocabulary: int, hidden: int) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype != "BF16":
            raise ConfigurationError(f"model.safetensors: {name} is {tensor.dtype}, not BF16")
        if name.endswith("lm_head.weight"):
            # With tied embeddings there is none, and which of two would be read is up to the loading library.
            raise ConfigurationError(f"model.safetensors: {name} beside tied embeddings")
    embedding = tensors.get(EMBEDDING)
    if embedding is None or embedding.shape != (vocabulary, hidden):
        found = "missing" if embedding is None else f"of shape {list(embedding.shape)}"
        raise ConfigurationError(f"model.safetensors: {EMBEDDING} is {found}; [{vocabulary}, {hidden}] is needed")
