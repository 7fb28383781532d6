"""What makes a folder a sentence encoder of the sentence-transformers layout, checked without loading it.

    modules.json               the model in the folder itself, then a pooling, then perhaps a normalisation
    1_Pooling/config.json      how the tokens' vectors become one: mean or first token
    sentence_bert_config.json  how many tokens a text may have
    config.json, model.safetensors, tokenizer.json

What would change the vectors and is not done here (dense layers, other poolings, prompts before every text, other
similarities than the cosine, code of the checkpoint's own) is refused with its file and key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from executor_host import checkpoints
from executor_host.errors import ConfigurationError
from protocol.contracts.embedding import SENTENCE, TOKENIZER, text_tokens

CONFIG: Final = "config.json"
MODULES: Final = "modules.json"
SIMILARITY: Final = "config_sentence_transformers.json"
WEIGHTS: Final = "model.safetensors"

REDIRECTING: Final = ("model.safetensors.index.json", "adapter_config.json")
"""Files that make the loading library take other weights than the hashed ones, or more."""

RELEASED: Final = {"53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db": "all-MiniLM-L6-v2"}
"""Published models by the sha256 of their weights."""

Pooling = Literal["mean", "cls"]

_FLAGS: Final[dict[str, Pooling]] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    files: Mapping[str, str]
    """sha256 of everything that was read, by its path in the folder."""
    name: str
    """The published model's, else the folder's."""
    architecture: str
    """As `config.json` names it: `bert`."""
    pooling: Pooling
    text_tokens: int
    """Of the longest text, special tokens included."""
    parameters: int


def verify(path: str | None, *, max_tokens: int | None, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder. Reads every byte once.

    `max_tokens` replaces the folder's own limit. `progress`: called with the fraction done and a note. Raises
    `ConfigurationError` for what is missing, cut short, or not done here.
    """
    folder = checkpoints.folder(path, "embedding", "a sentence encoder")
    for name in REDIRECTING:
        if (folder / name).exists():
            raise ConfigurationError(f"{name} lies beside the weights and would have others loaded; remove it")
    for name in (MODULES, CONFIG, TOKENIZER, WEIGHTS):
        if not (folder / name).is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
    architecture = _architecture(checkpoints.read_json(folder / CONFIG))
    pooling_file = f"{_pooling_folder(folder)}/{CONFIG}"
    pooling = _pooling(checkpoints.read_json(folder / pooling_file), pooling_file)
    found = [CONFIG, MODULES, TOKENIZER, WEIGHTS, pooling_file]
    if (folder / SIMILARITY).is_file():
        _check_similarity(checkpoints.read_json(folder / SIMILARITY))
        found.append(SIMILARITY)
    sentence: Mapping[str, Any] = {}
    if (folder / SENTENCE).is_file():
        sentence = checkpoints.read_json(folder / SENTENCE)
        found.append(SENTENCE)
    with checkpoints.agreed():
        longest = text_tokens(sentence, max_tokens)
    tensors = checkpoints.safetensors_table(folder / WEIGHTS)
    files = checkpoints.hashed({name: folder / name for name in sorted(found)}, progress)
    return Checkpoint(
        path=folder,
        files=files,
        name=RELEASED.get(files[WEIGHTS], folder.resolve().name),
        architecture=architecture,
        pooling=pooling,
        text_tokens=longest,
        parameters=checkpoints.parameters(tensors),
    )


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a verified folder is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, max_tokens=None, progress=progress)
    return [
        f"{checkpoint.name}, {checkpoint.architecture}, {checkpoint.parameters:,} parameters",
        f"{checkpoint.pooling} pooling, {checkpoint.text_tokens} tokens of a text",
        f"weights sha256 {checkpoint.files[WEIGHTS]}",
    ]


def _architecture(config: Mapping[str, Any]) -> str:
    kind = checkpoints.text(config, CONFIG, "model_type")
    if config.get("is_encoder_decoder", False) is not False:
        raise ConfigurationError(f"{CONFIG}: is_encoder_decoder: a model with a decoder is not served as an encoder")
    if config.get("auto_map") is not None:
        raise ConfigurationError(f"{CONFIG}: auto_map: code of a checkpoint's own is never run")
    if config.get("quantization_config") is not None:
        raise ConfigurationError(f"{CONFIG}: quantization_config: quantized weights are not served")
    return kind


def _pooling_folder(folder: Path) -> str:
    """Where the pooling's configuration is, from a `modules.json` that lists what is done here and nothing else."""
    modules = checkpoints.read_json_list(folder / MODULES)
    kinds, places = [], []
    for module in modules:
        kind, place = (module.get(key) for key in ("type", "path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(place, str):
            raise ConfigurationError(f"{MODULES}: an entry is not an object with a type and a path")
        kinds.append(kind.rpartition(".")[2])
        places.append(place)
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConfigurationError(
            f"{MODULES}: the modules are {', '.join(kinds) or 'none'}; Transformer, Pooling and perhaps Normalize "
            "are expected"
        )
    if places[0] != "" or Path(places[1]).name != places[1]:
        raise ConfigurationError(f"{MODULES}: the model is in {places[0]!r} and its pooling in {places[1]!r}")
    if not (folder / places[1] / CONFIG).is_file():
        raise ConfigurationError(f"{places[1]}/{CONFIG} is missing in {folder}")
    return places[1]


def _pooling(config: Mapping[str, Any], name: str) -> Pooling:
    """Newer files name the mode, older ones have a flag for each."""
    mode = config.get("pooling_mode")
    if mode is None:
        on = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        mode = _FLAGS.get(on[0]) if len(on) == 1 else None
        if mode is None:
            raise ConfigurationError(f"{name}: the poolings are {', '.join(on) or 'none'}; {' or '.join(_FLAGS)} alone")
    for known in _FLAGS.values():
        if mode == known:
            return known
    raise ConfigurationError(f"{name}: pooling_mode is {mode!r}; {' or '.join(_FLAGS.values())} is expected")


def _check_similarity(config: Mapping[str, Any]) -> None:
    if config.get("similarity_fn_name") not in (None, "cosine"):
        raise ConfigurationError(f"{SIMILARITY}: similarity_fn_name is {config['similarity_fn_name']!r}, not 'cosine'")
    if config.get("default_prompt_name") is not None:
        raise ConfigurationError(f"{SIMILARITY}: default_prompt_name: prompts before every text are not supported")
