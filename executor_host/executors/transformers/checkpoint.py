"""What makes a folder, or a GGUF file, one that transformers can decide with, checked without loading it.

Checked is what can be said from the files alone: that they are there, whole, and of a form that is loaded here
(safetensors or GGUF, a `tokenizer.json`, no code of their own). Whether transformers has the architecture is found out
by loading.

Files must not change while the host lives; they are hashed once, before anything loads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError
from executor_host.executors.transformers import heads

HEAD_MODELS: Final = ("jev",)
"""Model types that are decision models themselves."""

CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
CHAT_TEMPLATE: Final = "chat_template.jinja"

LABELS: Final = ("decision.json", "decision_template.jinja")

HASHED: Final = ("*.json", "*.jinja", "*.safetensors", "*.txt")
"""Files of a folder, and of its adapter's folder, that may be a part of the model."""

GGUF_MAGIC: Final = b"GGUF"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that was checked."""

    path: Path
    """The folder."""
    gguf: str
    """The GGUF file in it; "" when it is a folder of safetensors."""
    files: Mapping[str, str]
    """sha256 of each file, by its path in the folder."""
    kind: str
    """`head`, `labels`, `chat`, or `gguf`, which does not tell without being loaded."""
    model_type: str
    parameters: int
    """Of all weights files; 0 for GGUF."""
    unbiased: bool = False
    """Whether it has a head without a bias."""

    @property
    def name(self) -> str:
        """What to call it: the file's or the folder's own name."""
        return self.gguf or self.path.resolve().name


def verify(path: str | None, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint at `path`, a folder or a `.gguf` file. Reads every byte of it once.

    `progress`: called with the fraction done and a note. Raises `ConfigurationError` for what is missing, cut short, or
    in a form that is not loaded here.
    """
    if path is None:
        raise ConfigurationError("the transformers family needs the folder of a checkpoint, or a GGUF file")
    where = Path(path)
    if where.is_file():
        return _gguf(where, progress)
    if not where.is_dir():
        raise ConfigurationError(f"{path} is not a folder")
    if not (where / CONFIG).is_file() and (reason := checkpoints.no_model(where)):
        raise ConfigurationError(f"{CONFIG} is missing in {where}: {reason}")
    config = checkpoints.read_json(_there(where, CONFIG))
    model_type = checkpoints.text(config, CONFIG, "model_type")
    if config.get("auto_map") is not None:
        raise ConfigurationError(f"{CONFIG}: auto_map names code of the checkpoint, which is never run")
    tensors, _ = checkpoints.weights(where)
    parameters = checkpoints.parameters(tensors)
    head = "" if model_type in HEAD_MODELS else heads.shipped(where, config)
    if head:
        parameters += checkpoints.parameters(checkpoints.safetensors_table(where / head))
    if not (where / TOKENIZER).is_file():
        raise ConfigurationError(f"{TOKENIZER} is missing in {where}{_without_tokenizer(where, model_type)}")
    checkpoints.tokenizer(where / TOKENIZER)
    kind = "head" if head or model_type in HEAD_MODELS else _kind(where)
    if kind == "chat" and not _has_chat_template(where):
        raise ConfigurationError(
            "it has neither a chat template nor a decision template, so nothing can be asked; "
            + _without_template(config)
        )
    adapter = _adapter(where)
    folders = [where, *([where / adapter] if adapter else [])]
    found = sorted({file for folder in folders for pattern in HASHED for file in folder.glob(pattern)})
    files = checkpoints.hashed({file.relative_to(where).as_posix(): file for file in found}, progress)
    return Checkpoint(where, "", files, kind, model_type, parameters, unbiased=head == heads.READOUT)


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a checked folder or file is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, progress)
    what = {
        "head": "a decision model: its head scores the options",
        "labels": "a causal model with a decision config: the logits of its labels are read",
        "chat": "a causal chat model: the logits of the labels are read after transformers' own prompt",
        "gguf": "a GGUF file: what is in it is known when it is loaded",
    }[checkpoint.kind]
    size = f", {checkpoint.parameters:,} parameters" if checkpoint.parameters else ""
    return [f"{checkpoint.model_type}{size}", what, f"sha256 of all files {checkpoints.combined(checkpoint.files)}"]


def _gguf(file: Path, progress: Callable[[float, str], None]) -> Checkpoint:
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise ConfigurationError(f"{file.name} is not a GGUF file, and a checkpoint is a folder otherwise")
    files = checkpoints.hashed({file.name: file}, progress)
    return Checkpoint(file.parent, file.name, files, "gguf", "gguf", 0)


def _there(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise ConfigurationError(f"{name} is missing in {folder}")
    return folder / name


def _without_tokenizer(folder: Path, model_type: str) -> str:
    """What to do about a tokenizer that is not there."""
    if (folder / "preprocessor_config.json").is_file():
        return f": {model_type} reads images, and here a model reads text"
    return "; AutoTokenizer.from_pretrained of transformers reads older forms, and its save_pretrained writes this one"


def _without_template(config: Mapping[str, object]) -> str:
    """What to do about a model that nothing can be asked."""
    architectures = config.get("architectures")
    names = [str(name) for name in architectures] if isinstance(architectures, list) else []
    if names and not any(name.endswith(("ForCausalLM", "ForConditionalGeneration")) for name in names):
        return (
            f"{names[0]} is no chat model. A sentence encoder is one of the family embedding, and has a modules.json"
            " that names its pooling"
        )
    return f"a chat model's prompt is in {CHAT_TEMPLATE}"


def _kind(folder: Path) -> str:
    return "labels" if any((folder / name).is_file() for name in LABELS) else "chat"


def _adapter(folder: Path) -> str | None:
    """The folder of the adapter that is loaded onto the model, named where transformers looks."""
    for name, key, default in (
        ("decision.json", "adapter", None),
        ("judge_config.json", "adapter_subfolder", "adapter"),
    ):
        if (folder / name).is_file():
            adapter = checkpoints.read_json(folder / name).get(key, default)
            if adapter is None:
                return None
            if not isinstance(adapter, str) or ".." in Path(adapter).parts or not (folder / adapter).is_dir():
                raise ConfigurationError(f"{name}: {key} is {adapter!r}, and there is no such folder")
            return adapter
    return None


def _has_chat_template(folder: Path) -> bool:
    if (folder / CHAT_TEMPLATE).is_file() or (folder / "chat_template.json").is_file():
        return True
    settings = folder / "tokenizer_config.json"
    return settings.is_file() and bool(checkpoints.read_json(settings).get("chat_template"))
