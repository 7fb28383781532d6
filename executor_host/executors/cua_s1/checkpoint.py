"""What makes a folder a Cua-S1 checkpoint, checked without loading it. There are two forms:

    base model + adapter   config.json, tokenizer.json, weights of Qwen3.5-4B; in `text` (or elsewhere) the adapter
    merged export          the same files with the adapter merged into the weights, and cua_s1_export.json

A base model without an adapter is refused: it loads without a complaint and answers something else. The weights
are one file or shards with an index; an index may name only files beside it.

Files must not change while the host lives; they are hashed once, before anything loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError
from executor_host.executors.cua_s1 import adapter as adapters
from protocol.contracts.cua_s1 import ADAPTER, LETTER_IDS, MARKER, MODEL_ID, TOKENIZER, check_tokens

RELEASED: Final = {
    "config.json": (3_161, "ddc63e1c717afa86c865bb5e01313d89d72bb53b97ad4a8a03ba8510c0621670"),
    "tokenizer.json": (12_807_982, "5f9e4d4901a92b997e463c1f46055088b6cca5ca61a6522d1b9f64c4bb81cb42"),
    f"text/{adapters.CONFIG}": (1_091, "c246fce1fe1d44160ae5f246f9881dfeabb4fcd67fe4a777cef10a1dbcf16540"),
    f"text/{adapters.WEIGHTS}": (84_968_408, "9b59c5aed96171a50b26526613766bbf44347a5c7af70f81efe6bcc6e9dbfb0e"),
}
"""Size in bytes and sha256 of what is known of the adapter at `REVISION` and of its base (Qwen/Qwen3.5-4B at
851bf6e806efd8d0a36b00ddf55e13ccb7b8cd0a). The base's weights are not among them."""

FORMAT: Final = "cua-s1-text-merged/1"

CONFIG: Final = "config.json"
EMBEDDING: Final = "model.language_model.embed_tokens.weight"
Report = Callable[[float, str], None]
"""Called with the fraction of all bytes and a note that names the file."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    adapter: Path | None
    """The folder of the adapter that has to be merged; None for an export, which has it in."""
    files: Mapping[str, str]
    """sha256 by name; those of the adapter as `text/...` wherever they lie."""
    released: bool
    """Whether every file of `RELEASED` is the released one; never of an export."""
    parameters: int
    """Of the model once it is merged, without what text does not need."""


def verify(path: str | None, adapter: str | None, *, claimed: bool, progress: Report) -> Checkpoint:
    """The checkpoint in a folder, every byte of which is read once: 9 GB of the released model.

    `adapter`: the folder of the adapter, None for the usual place. `claimed`: whether it is said to be `REVISION`.
    Raises `ConfigurationError` naming file and key for what is missing, foreign, cut short, or not the released
    bytes where these are claimed.
    """
    folder = checkpoints.folder(path, "cua-s1")
    if (folder / adapters.CONFIG).exists():
        raise ConfigurationError(
            f"{adapters.CONFIG} lies beside the weights and would have others loaded; its place is the folder {ADAPTER}"
        )
    for name in (CONFIG, TOKENIZER):
        if not (folder / name).is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
    _check_config(checkpoints.read_json(folder / CONFIG))
    tensors, names = checkpoints.weights(folder)
    _check_tensors(tensors)
    beside = _adapter_of(folder, adapter)
    if beside is None and claimed:
        raise ConfigurationError(f"a merged export has no revision to compare with: {MARKER} is in {path}")
    paths = {name: folder / name for name in (CONFIG, TOKENIZER, *names)}
    if beside is not None:
        adapters.verify(beside, tensors)
        paths |= {f"{ADAPTER}/{name}": beside / name for name in adapters.FILES}
    _check_tokenizer(folder / TOKENIZER, tensors[EMBEDDING].shape[0])
    if claimed:
        for name, (size, _) in RELEASED.items():
            found = paths[name].stat().st_size
            if found != size:
                raise ConfigurationError(f"{name} has {found} bytes; the released file has {size}")
    files = checkpoints.hashed(paths, progress)
    released = all(files.get(name) == digest for name, (_, digest) in RELEASED.items())
    if claimed and not released:
        name = next(name for name, (_, digest) in RELEASED.items() if files[name] != digest)
        raise ConfigurationError(f"{name} is not the released file: its sha256 is {files[name]}")
    used = {name: tensor for name, tensor in tensors.items() if name.startswith("model.language_model.")}
    return Checkpoint(folder, beside, files, released, checkpoints.parameters(used))


def inspect(path: str, progress: Report) -> list[str]:
    """What to say to people of a folder, after `verify`, whose errors pass."""
    found = verify(path, None, claimed=False, progress=progress)
    form = "merged export" if found.adapter is None else f"base model with the adapter in {found.adapter}"
    return [
        f"{MODEL_ID}: {form}, {found.parameters:,} parameters",
        f"released files: {'yes' if found.released else 'no'}",
        *(f"{digest}  {name}" for name, digest in sorted(found.files.items())),
    ]


def _adapter_of(folder: Path, given: str | None) -> Path | None:
    """The folder of the adapter to merge, None for an export."""
    marker = folder / MARKER
    if marker.exists():
        document = checkpoints.read_json(marker)
        if document.get("format") != FORMAT:
            raise ConfigurationError(f"{MARKER}: format is {document.get('format')!r}, not {FORMAT!r}")
        if given is not None:
            raise ConfigurationError(f"{MARKER} says that the adapter is merged; it cannot be given once more")
        return None
    adapter = folder / ADAPTER if given is None else Path(given)
    if not adapter.is_dir():
        raise ConfigurationError(
            f"{folder} is no merged export (there is no {MARKER}), and there is no adapter in {adapter}"
        )
    return adapter


def _check_config(config: Mapping[str, Any]) -> None:
    """A Qwen3.5 text model, alone or within its multimodal one, with tied embeddings."""
    kind, text = config.get("model_type"), config
    if kind == "qwen3_5":
        text = config.get("text_config") or {}
        if not isinstance(text, dict):
            raise ConfigurationError(f"{CONFIG}: text_config is not an object")
        kind = text.get("model_type")
    if kind != "qwen3_5_text":
        raise ConfigurationError(f"{CONFIG}: model_type is {kind!r}; the text model of Qwen3.5 is needed")
    if text.get("tie_word_embeddings", config.get("tie_word_embeddings")) is not True:
        raise ConfigurationError(f"{CONFIG}: tie_word_embeddings is not true")
    for part in (config, text):
        if part.get("quantization_config") is not None:
            raise ConfigurationError(f"{CONFIG}: quantization_config: quantized weights are another model")


def _check_tensors(tensors: Mapping[str, checkpoints.Tensor]) -> None:
    embedding = tensors.get(EMBEDDING)
    if embedding is None or len(embedding.shape) != 2 or embedding.shape[0] <= LETTER_IDS[-1]:
        raise ConfigurationError(
            f"the weights: {EMBEDDING} is {'missing' if embedding is None else 'no table of tokens'}"
        )
    for name in tensors:
        if name.endswith("lm_head.weight"):
            # With tied embeddings there is none, and which of two would be read is up to the loading library.
            raise ConfigurationError(f"the weights: {name} beside tied embeddings")
    adapted = adapters.targets(tensors)
    if not adapted:
        raise ConfigurationError("the weights: there is no layer that the adapter belongs to")
    for name, tensor in ((EMBEDDING, embedding), *adapted.values()):
        if tensor.dtype != "BF16" or len(tensor.shape) != 2:
            raise ConfigurationError(f"the weights: {name} is {tensor.dtype} {list(tensor.shape)}, not a table of BF16")


def _check_tokenizer(file: Path, vocabulary: int) -> None:
    """The letters A to Z are the tokens 32 to 57, and what marks a chat is one token each."""
    encoder = checkpoints.tokenizer(file)
    with checkpoints.agreed(file.name):
        check_tokens(lambda texts: [encoder.encode(text, add_special_tokens=False).ids for text in texts])
    if encoder.get_vocab_size(with_added_tokens=True) > vocabulary:
        raise ConfigurationError(f"{file.name} has more tokens than the model's {vocabulary}")
