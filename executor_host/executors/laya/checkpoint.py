"""What makes a folder a Laya checkpoint (one of the three of convaiinnovations/laya, and their like), checked without
loading it.

    rl_agent_config.json        lengths and calibration, which the front uses, and how many decision layers there are
    encoder/config.json         the encoder, a ModernBERT
    model.safetensors           encoder, decision layers, type embedding, scorer, action head; no tensor more or less
    tokenizer/tokenizer.json
    tokenizer/tokenizer_config.json    which of its tokens begin, end, pad and mark

Files must not change while the host lives; they are hashed once, before anything loads them.

Source: the family's published package, laya 0.3.20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError
from protocol.contracts import laya as contract
from protocol.contracts.laya import CONFIG, FRONT_FILES, KINDS, MODEL_ID, ROLES, TOKENIZER

ENCODER: Final = "encoder/config.json"
FILES: Final = (*FRONT_FILES, ENCODER, checkpoints.WEIGHTS)

RELEASED_TOKENIZER: Final = "6c8aaa9a542084f2457eab775d4eeb51f92a70c0fd9de28d5edb0ddec3c08d30"
"""sha256 of the English checkpoint's. Of its weights none is published."""

ACTIONS: Final = 2
FEATURES: Final = 4
ACTION_SIZE: Final = 256
"""What the action head chooses among, what it is told besides the hidden state, its width."""

LOCAL_ATTENTION: Final = 128
FULL_ATTENTION_EVERY: Final = 3
THETAS: Final[Mapping[str, float]] = {"full_attention": 160_000.0, "sliding_attention": 10_000.0}
"""Of ModernBERT, where a configuration does not say otherwise: reach of the local layers, every which layer is not
local, and the base of the rotary embedding of each kind of layer."""

MOST: Final = 1_000_000
"""Of any size in a configuration."""

DTYPES: Final = ("F16", "F32", "BF16")
UNUSED: Final = "temperature"
"""A tensor that checkpoints carry and nothing reads."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified folder."""

    path: Path
    files: Mapping[str, str]
    """sha256 of each of `FILES`."""
    encoder: Mapping[str, Any]
    """What encoder/config.json says, with every setting that this family fixes or derives."""
    head_layers: int
    config: contract.Config
    special: contract.Special
    vocabulary: int
    parameters: int
    dtype: str
    """Of most tensors, as safetensors spells it."""

    @property
    def known_tokenizer(self) -> bool:
        """Whether its tokens are the released English checkpoint's."""
        return self.files[TOKENIZER] == RELEASED_TOKENIZER

    @property
    def variant(self) -> contract.Variant:
        """Which of the published checkpoints it is like."""
        return contract.variant(self.config, self.special)


def verify(path: str | None, *, progress: Callable[[float, str], None]) -> Checkpoint:
    """The checkpoint in a folder. Reads every byte once: 846 MB of the released model.

    `progress`: called with the fraction of all bytes and a note that names a file. Raises `ConfigurationError` for
    what is missing, of another form, or cut short.
    """
    folder = checkpoints.folder(path, "laya")
    for name in FILES:
        if not (folder / name).is_file():
            raise ConfigurationError(f"{name} is missing in {path}")
    document = checkpoints.read_json(folder / CONFIG)
    with checkpoints.agreed(CONFIG):
        config = contract.read_config(document)
    head_layers = checkpoints.count(document, CONFIG, "head_layers", MOST)
    encoder = _check_encoder(checkpoints.read_json(folder / ENCODER))
    tensors = checkpoints.safetensors_table(folder / checkpoints.WEIGHTS)
    _check_tensors(tensors, expected_tensors(encoder, head_layers))
    special = _special(folder, encoder["vocab_size"])
    files = checkpoints.hashed({name: folder / name for name in FILES}, progress)
    used = {name: tensor for name, tensor in tensors.items() if name != UNUSED}
    dtypes = [tensor.dtype for tensor in used.values()]
    return Checkpoint(
        path=folder,
        files=files,
        encoder=encoder,
        head_layers=head_layers,
        config=config,
        special=special,
        vocabulary=encoder["vocab_size"],
        parameters=checkpoints.parameters(used),
        dtype=max(set(dtypes), key=dtypes.count),
    )


def inspect(path: str | None, progress: Callable[[float, str], None]) -> list[str]:
    """What a verified folder is, line by line, for people. Raises as `verify`."""
    checkpoint = verify(path, progress=progress)
    layers = checkpoint.encoder["num_hidden_layers"]
    tokens = "is" if checkpoint.known_tokenizer else "is not"
    rows, head = checkpoint.config.row_tokens, checkpoint.config.head_tokens
    return [
        f"{MODEL_ID}, like the {checkpoint.variant.name} checkpoint: rows of {rows} tokens, {head} of head and options",
        f"{checkpoint.parameters:,} parameters in {checkpoint.dtype}",
        f"ModernBERT of {layers} layers, {checkpoint.head_layers} decision layers",
        f"the tokenizer {tokens} the released English checkpoint's",
    ]


def _check_encoder(config: Mapping[str, Any]) -> dict[str, Any]:
    """The encoder's configuration, complete: what a library would fill in differently by its version is said."""
    if config.get("model_type") != "modernbert":
        raise ConfigurationError(f"{ENCODER}: model_type is {config.get('model_type')!r}, not 'modernbert'")
    if config.get("quantization_config") is not None:
        raise ConfigurationError(f"{ENCODER}: quantized weights are another model")
    for key in ("attention_bias", "mlp_bias", "norm_bias"):
        if config.get(key, False) is not False:
            raise ConfigurationError(f"{ENCODER}: {key} is {config[key]!r}; this family has no biases")
    if config.get("hidden_activation", "gelu") != "gelu":
        raise ConfigurationError(f"{ENCODER}: hidden_activation is {config['hidden_activation']!r}, not 'gelu'")
    sizes = {
        key: checkpoints.count(config, ENCODER, key, MOST)
        for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    }
    if sizes["hidden_size"] % sizes["num_attention_heads"] or sizes["hidden_size"] % heads(sizes["hidden_size"]):
        raise ConfigurationError(f"{ENCODER}: hidden_size is no multiple of its attention heads")
    kinds = _layer_kinds(config, sizes["num_hidden_layers"])
    padding = config.get("pad_token_id")
    if padding is not None and not (type(padding) is int and 0 <= padding < sizes["vocab_size"]):
        raise ConfigurationError(f"{ENCODER}: pad_token_id is {padding!r}; the model has {sizes['vocab_size']} tokens")
    local = config.get("local_attention", LOCAL_ATTENTION)
    if type(local) is not int or not 2 <= local <= MOST:
        raise ConfigurationError(f"{ENCODER}: local_attention is {local!r}; 2 to {MOST} is expected")
    settings = {"layer_types": kinds, "local_attention": local, "pad_token_id": padding}
    return {**config, **sizes, **settings, "rope_parameters": _rotary(config)}


def _layer_kinds(config: Mapping[str, Any], layers: int) -> list[str]:
    """Of each layer whether it attends to everything: as `layer_types` says, else every so many, the first included."""
    every = config.get("global_attn_every_n_layers", FULL_ATTENTION_EVERY)
    if type(every) is not int or not 1 <= every <= MOST:
        raise ConfigurationError(f"{ENCODER}: global_attn_every_n_layers is {every!r}; 1 to {MOST} is expected")
    kinds = config.get("layer_types")
    if kinds is None:
        return ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in tuple(THETAS) for kind in kinds):
        raise ConfigurationError(
            f"{ENCODER}: layer_types is not one of {', '.join(THETAS)} for each of {layers} layers"
        )
    return list(kinds)


def _rotary(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rotary settings by kind of layer, in the words of transformers 5, from those or from the older ones."""
    given = config.get("rope_parameters") or {}
    if (
        config.get("rope_scaling") is not None
        or not isinstance(given, dict)
        or given.get("rope_type", "default") != "default"
    ):
        raise ConfigurationError(f"{ENCODER}: rope_scaling is set, or rope_parameters are not the default ones")
    older = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
    found = {}
    for kind, key in older.items():
        parameters = given.get(kind, {})
        if not isinstance(parameters, dict) or parameters.get("rope_type", "default") != "default":
            raise ConfigurationError(f"{ENCODER}: rope_parameters of {kind} are not the default ones")
        theta = parameters.get("rope_theta", given.get("rope_theta", config.get(key, THETAS[kind])))
        if not isinstance(theta, (int, float)) or isinstance(theta, bool) or not 1.0 < theta < 1e12:
            raise ConfigurationError(f"{ENCODER}: rope_theta of {kind} is {theta!r}")
        found[kind] = {"rope_type": "default", "rope_theta": float(theta)}
    return found


def heads(hidden: int) -> int:
    """Attention heads of a decision layer over hidden states of this size."""
    return max(1, hidden // 64)


def expected_tensors(encoder: Mapping[str, Any], head_layers: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, but the unused one."""
    hidden, middle = encoder["hidden_size"], encoder["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.embeddings.tok_embeddings.weight": (encoder["vocab_size"], hidden),
        "encoder.embeddings.norm.weight": (hidden,),
        "encoder.final_norm.weight": (hidden,),
        "type_emb.weight": (len(KINDS), hidden),
        "scorer.0.weight": (hidden,),
        "scorer.0.bias": (hidden,),
        "scorer.1.weight": (hidden, hidden),
        "scorer.1.bias": (hidden,),
        "scorer.3.weight": (1, hidden),
        "scorer.3.bias": (1,),
        "act_head.0.weight": (ACTION_SIZE, hidden + FEATURES),
        "act_head.0.bias": (ACTION_SIZE,),
        "act_head.2.weight": (ACTIONS, ACTION_SIZE),
        "act_head.2.bias": (ACTIONS,),
    }
    for layer in range(encoder["num_hidden_layers"]):
        name = f"encoder.layers.{layer}."
        if layer:  # the embeddings' norm stands before the first one
            shapes[name + "attn_norm.weight"] = (hidden,)
        shapes[name + "attn.Wqkv.weight"] = (3 * hidden, hidden)
        shapes[name + "attn.Wo.weight"] = (hidden, hidden)
        shapes[name + "mlp_norm.weight"] = (hidden,)
        shapes[name + "mlp.Wi.weight"] = (2 * middle, hidden)
        shapes[name + "mlp.Wo.weight"] = (hidden, middle)
    for layer in range(head_layers):
        name = f"head.layers.{layer}."
        shapes[name + "self_attn.in_proj_weight"] = (3 * hidden, hidden)
        shapes[name + "self_attn.in_proj_bias"] = (3 * hidden,)
        for part, rows, columns in (
            ("self_attn.out_proj", hidden, hidden),
            ("linear1", 4 * hidden, hidden),
            ("linear2", hidden, 4 * hidden),
        ):
            shapes[f"{name}{part}.weight"] = (rows, columns)
            shapes[f"{name}{part}.bias"] = (rows,)
        for norm in ("norm1", "norm2"):
            shapes[f"{name}{norm}.weight"] = shapes[f"{name}{norm}.bias"] = (hidden,)
    return shapes


def _check_tensors(tensors: Mapping[str, checkpoints.Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in expected.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != shape:
            found = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
            raise ConfigurationError(f"{checkpoints.WEIGHTS}: {name} is {found}; {list(shape)} is needed")
        if tensor.dtype not in DTYPES:
            raise ConfigurationError(f"{checkpoints.WEIGHTS}: {name} is {tensor.dtype}, not one of {', '.join(DTYPES)}")
    for name in tensors:
        if name not in expected and name != UNUSED:
            raise ConfigurationError(f"{checkpoints.WEIGHTS}: {name} is no tensor of this model")


def _special(folder: Path, vocabulary: int) -> contract.Special:
    """The tokenizer's special tokens; its tokens are the model's."""
    tokenizer = checkpoints.tokenizer(folder / TOKENIZER)
    with checkpoints.agreed():
        found = contract.special(
            checkpoints.read_json(folder / ROLES),
            lambda texts: [tokenizer.encode(text, add_special_tokens=False).ids for text in texts],
        )
    if tokenizer.get_vocab_size(with_added_tokens=True) > vocabulary:
        raise ConfigurationError(f"{TOKENIZER} has more tokens than the model's {vocabulary}")
    return found
