"""What makes a folder a Clef checkpoint (Cloudflare/clef, Cloudflare/clef-flash), checked without loading it.

    config.json, weights        a Qwen3.5 model with an LM head of its own, in one file or in shards with an index
    tokenizer.json
    joint_head_config.json      the sizes of the joint head
    joint_head.safetensors      its tensors

Both sizes are one family: what differs is in the configurations. The published folders also have the original's
program (joint_schema_model.py), which is neither needed nor run. Files must not change while the host lives; they
are hashed once, before anything loads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from executor_host import checkpoints
from executor_host.backbones.qwen3_5_config import CONFIG, check_layers, text_config
from executor_host.errors import ConfigurationError

TOKENIZER: Final = "tokenizer.json"
HEAD_CONFIG: Final = "joint_head_config.json"
HEAD: Final = "joint_head.safetensors"
ADAPTER_CONFIG: Final = "adapter_config.json"

LM_HEAD: Final = "lm_head.weight"
EMBEDDING: Final = "model.language_model.embed_tokens.weight"

MARKERS: Final = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
"""What the prompt needs as one token each."""

_SIZES: Final = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


@dataclass(frozen=True, slots=True)
class Release:
    """A published checkpoint."""

    name: str
    revision: str
    sizes: tuple[int, ...]
    """Of the text model, as `_SIZES` names them."""
    head_sha256: str | None
    """Of `HEAD` at the revision; None where it is not known."""


RELEASES: Final = (
    Release(
        "clef-flash",
        "17f0b0ad64efb65d273590632833508766b2aae6",
        (4096, 12288, 32, 16, 4),
        "19cdcec8c81dc9212be320fff47462ab342fbc1278be4368fb3da71241cf5ba0",
    ),
    Release("clef", "2f3de3dd85f379784083b0814d997ab627200f0c", (5120, 17408, 64, 24, 4), None),
)


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The joint head's configuration."""

    hidden_size: int
    width: int
    routing_layers: int
    layers: int
    heads: int
    feedforward: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    files: Mapping[str, str]
    """sha256 by name."""
    head: HeadSizes
    release: Release | None
    """The release whose sizes this has."""
    parameters: int
    """Of the text model, the LM head and the joint head; a vision tower is not loaded."""

    @property
    def name(self) -> str:
        """The release's, or the family's."""
        return "clef" if self.release is None else self.release.name

    @property
    def revision(self) -> str | None:
        """The released revision, where its head is known to be this one. The weights beside it are not known."""
        known = self.release is not None and self.files[HEAD] == self.release.head_sha256
        return self.release.revision if known and self.release is not None else None


def verify(path: str | None, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder. Reads every byte once: 19 GB of clef-flash, 55 GB of clef.

    `progress`: called with the fraction of all bytes and a note that names the file. Raises `ConfigurationError`, which
    names the file and the key, for what is missing, foreign, redirected, cut short or does not fit together.
    """
    folder = checkpoints.folder(path, "clef")
    if (folder / ADAPTER_CONFIG).exists():
        raise ConfigurationError(f"{ADAPTER_CONFIG} lies beside the weights and would have others loaded; remove it")
    for name in (CONFIG, TOKENIZER, HEAD_CONFIG, HEAD):
        if not (folder / name).is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
    config = text_config(folder / CONFIG)
    vocabulary = checkpoints.count(config, CONFIG, "vocab_size", 2**31)
    sizes = tuple([checkpoints.count(config, CONFIG, key, 2**31) for key in _SIZES])
    check_layers(config, sizes[2])
    head = _head_sizes(folder / HEAD_CONFIG, sizes[0])
    head_tensors = checkpoints.safetensors_table(folder / HEAD)
    _check_head(head_tensors, head)
    tensors, names = checkpoints.weights(folder)
    for key in (EMBEDDING, LM_HEAD):
        tensor = tensors.get(key)
        if tensor is None or (tensor.dtype, tensor.shape) != ("BF16", (vocabulary, sizes[0])):
            found = "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            raise ConfigurationError(f"the weights: {key} is {found}; BF16 [{vocabulary}, {sizes[0]}] is needed")
    _check_tokenizer(folder / TOKENIZER, vocabulary)
    paths = {name: folder / name for name in (CONFIG, TOKENIZER, HEAD_CONFIG, HEAD, *names)}
    read = {key: tensor for key, tensor in tensors.items() if key.startswith(("model.language_model.", "lm_head."))}
    return Checkpoint(
        folder,
        checkpoints.hashed(paths, progress),
        head,
        next((release for release in RELEASES if release.sizes == sizes), None),
        checkpoints.parameters(read) + checkpoints.parameters(head_tensors),
    )


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a verified folder is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, progress)
    head = checkpoint.head
    lines = [
        f"{checkpoint.name}, {checkpoint.parameters:,} parameters",
        f"joint head of width {head.width}: {head.routing_layers} routing layers, {head.layers} field layers",
    ]
    if checkpoint.revision is not None:
        lines.append(f"the joint head is that of revision {checkpoint.revision}")
    elif checkpoint.release is not None:
        lines.append(f"has the sizes of the released {checkpoint.name}; whether it is that one is not known")
    else:
        lines.append("has not the sizes of a released checkpoint")
    return lines


def head_shapes(head: HeadSizes) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a joint head, in the order of the original's state dict."""
    hidden, width, inner = head.hidden_size, head.width, head.feedforward

    def norm(name: str, size: int = width) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (size,), f"{name}.bias": (size,)}

    def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    def attention(name: str) -> dict[str, tuple[int, ...]]:
        packed: dict[str, tuple[int, ...]] = {f"{name}.in_proj_weight": (3 * width, width)}
        return packed | {f"{name}.in_proj_bias": (3 * width,)} | linear(f"{name}.out_proj", width, width)

    shapes: dict[str, tuple[int, ...]] = {"prior_logit_scale": (), "joint_logit_scale": (), "residual_gate": ()}
    shapes |= norm("hidden_norm", hidden)
    for name in ("memory", "question", "option_question", "global", "option_context", "option_lexical"):
        shapes[f"{name}_projection.weight"] = (width, hidden)
    shapes["type_embedding.weight"] = (3, width)
    for number in range(head.routing_layers):
        layer = f"evidence_layers.{number}"
        shapes |= norm(f"{layer}.query_norm") | norm(f"{layer}.memory_norm") | attention(f"{layer}.attention")
        shapes |= norm(f"{layer}.feedforward_norm")
        shapes |= linear(f"{layer}.feedforward.0", inner, width) | linear(f"{layer}.feedforward.3", width, inner)
    shapes |= norm("option_summary_norm")
    for number in range(head.layers):
        layer = f"layers.{number}"
        shapes |= attention(f"{layer}.self_attn") | attention(f"{layer}.multihead_attn")
        shapes |= linear(f"{layer}.linear1", inner, width) | linear(f"{layer}.linear2", width, inner)
        for place in (1, 2, 3):
            shapes |= norm(f"{layer}.norm{place}")
    shapes |= norm("field_norm") | norm("option_norm")
    return shapes | linear("residual_scorer.0", width, 4 * width) | linear("residual_scorer.3", 1, width)


def _head_sizes(file: Path, hidden: int) -> HeadSizes:
    document = checkpoints.read_json(file)
    fields = HeadSizes.__slots__
    unknown = sorted(document.keys() - {*fields, "dropout"})
    if unknown:
        raise ConfigurationError(f"{file.name}: {unknown[0]} is not known; another head than this family's")
    dropout = document.get("dropout", 0)  # of the training
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not math.isfinite(dropout):
        raise ConfigurationError(f"{file.name}: dropout is {dropout!r}; a number is expected")
    head = HeadSizes(*(checkpoints.count(document, file.name, key, 2**20) for key in fields))
    if head.hidden_size != hidden:
        raise ConfigurationError(f"{file.name}: hidden_size is {head.hidden_size}; {CONFIG}: hidden_size is {hidden}")
    if head.width % head.heads:
        raise ConfigurationError(f"{file.name}: width is {head.width}, which {head.heads} heads do not divide")
    return head


def _check_head(tensors: Mapping[str, checkpoints.Tensor], head: HeadSizes) -> None:
    shapes = head_shapes(head)
    for key in sorted(shapes.keys() ^ tensors.keys()):
        raise ConfigurationError(f"{HEAD}: {key} is {'missing' if key in shapes else 'foreign'}")
    for key, tensor in tensors.items():
        if tensor.shape != shapes[key] or tensor.dtype not in ("BF16", "F32"):
            wanted = f"BF16 or F32 {list(shapes[key])}"
            raise ConfigurationError(f"{HEAD}: {key} is {tensor.dtype} {list(tensor.shape)}; {wanted} is needed")


def _check_tokenizer(file: Path, vocabulary: int) -> None:
    encoder = checkpoints.tokenizer(file)
    for marker in MARKERS:
        if len(encoder.encode(marker, add_special_tokens=False).ids) != 1:
            raise ConfigurationError(f"{file.name}: {marker} is not one token")
    last = max(encoder.get_vocab(with_added_tokens=True).values())
    if last >= vocabulary:
        raise ConfigurationError(f"{file.name} has the token {last}; {CONFIG}: vocab_size is {vocabulary}")
