"""BERT's forward in numpy, for sentence encoders on a CPU: no torch, loaded in a moment.

    tokens ─▶ word + position + type, normalised ─▶ layers ─▶ pooled
    layer:    x ─▶ q, k, v ─▶ attention ─▶ + x, normalised ─▶ wide, GELU, narrow ─▶ + , normalised

Devlin et al. 2018, arXiv 1810.04805, as transformers computes it in float32; the vectors are equal within 1e-6 or so.
The rows of a pass lie one after the other, without padding: only the attention, which is within a text, is padded.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError
from executor_host.executors.embedding.cache import Vectors
from executor_host.executors.embedding.checkpoint import CONFIG, WEIGHTS, Checkpoint, Pooling

ARCHITECTURE: Final = "bert"

PASS_TOKENS: Final = 2_048
"""Most tokens of one pass: the widest activation of a model of 22 million parameters takes 12 MB, and products of
matrices are not faster beyond some hundred rows (measured)."""

SHARE_TOKENS: Final = 64
"""Fewer are not worth a thread of their own: handing them over takes as long as reading one or two."""

GELU_ROWS: Final = 64
"""Rows that are put through GELU at a time, so that its intermediate results stay in the processor's cache."""

MAX_LAYERS: Final = 128
MAX_SIZE: Final = 65_536
"""Of any width that a configuration names: far above every model there is."""

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Array
    bias: Array

    def __call__(self, x: Array, epsilon: np.float32) -> Array:
        x = x - x.mean(axis=1, keepdims=True)
        scale: Array = 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1]) + epsilon)
        x *= scale[:, None]
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Array
    """[in, out]"""
    bias: Array

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.weight
        y += self.bias
        return y


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: _Linear
    """Queries, keys and values side by side: one product instead of three. Queries are scaled already."""
    out: _Linear
    out_norm: _Norm
    wide: _Linear
    narrow: _Linear
    narrow_norm: _Norm


class NumpyEncoder:
    """A loaded model. Called by one thread at a time."""

    backend: ClassVar[str] = "numpy"
    pass_tokens: ClassVar[int] = PASS_TOKENS
    device: ClassVar[devices.Cpu] = devices.Cpu()

    def __init__(self, checkpoint: Checkpoint, threads: int = 1) -> None:
        """Reads the weights of a model that is not `unsuited`. `threads`: among how many the rows of a pass are
        divided. Raises `ConfigurationError` for weights that do not fit `config.json`."""
        config = checkpoints.read_json(checkpoint.path / CONFIG)
        size = checkpoints.count(config, CONFIG, "hidden_size", MAX_SIZE)
        wide = checkpoints.count(config, CONFIG, "intermediate_size", MAX_SIZE)
        self._heads = checkpoints.count(config, CONFIG, "num_attention_heads", size)
        if size % self._heads:
            raise ConfigurationError(f"{CONFIG}: {size} numbers of a token are not divided by {self._heads} heads")
        epsilon = config.get("layer_norm_eps", 1e-12)
        if not isinstance(epsilon, int | float) or not 0.0 <= epsilon <= 1.0:
            raise ConfigurationError(f"{CONFIG}: layer_norm_eps is {epsilon!r}; a small number is expected")
        self._epsilon = np.float32(epsilon)
        self._pooling: Pooling = checkpoint.pooling
        weights = _Weights(checkpoint.path / WEIGHTS)
        words = weights.table("embeddings.word_embeddings.weight", size)
        positions = weights.table("embeddings.position_embeddings.weight", size)
        types = weights.table("embeddings.token_type_embeddings.weight", size)
        if len(positions) < checkpoint.text_tokens:
            raise ConfigurationError(
                f"{CONFIG}: the model has places for {len(positions)} tokens, "
                f"and texts of {checkpoint.text_tokens} are allowed"
            )
        self._words, self._positions = words, positions + types[0]
        self._norm = weights.norm("embeddings.LayerNorm", size)
        scale = np.float32((size // self._heads) ** -0.5)
        self._layers = [
            weights.layer(f"encoder.layer.{number}", size, wide, scale)
            for number in range(checkpoints.count(config, CONFIG, "num_hidden_layers", MAX_LAYERS))
        ]
        self.parameters = weights.read
        self._threads = threads
        self._others = ThreadPoolExecutor(threads - 1, "encoder") if threads > 1 else None

    def __repr__(self) -> str:
        return f"<NumpyEncoder {len(self._layers)} layers>"

    @property
    def vocabulary(self) -> int:
        """Token ids are below this."""
        return len(self._words)

    def close(self) -> None:
        """Drops the weights."""
        if self._others is not None:
            self._others.shutdown()
        self._layers = []

    def read(self, rows: Sequence[NDArray[np.int32]]) -> Vectors:
        """One pass: a vector for each row of tokens, [rows, size], as it comes.

        Each thread has a part of the rows to itself, so none waits for another before the end: numpy lets the
        interpreter go in every step that takes long.
        """
        parts = shares([len(row) for row in rows], self._threads) if self._others is not None else [range(len(rows))]
        if self._others is None or len(parts) == 1:
            return self._read(rows)
        others = [self._others.submit(self._read, [rows[row] for row in part]) for part in parts[1:]]
        mine = self._read([rows[row] for row in parts[0]])
        return np.concatenate([mine, *(other.result() for other in others)])

    def _read(self, rows: Sequence[NDArray[np.int32]]) -> Vectors:
        lengths = np.array([len(row) for row in rows])
        starts = np.cumsum(lengths) - lengths
        x = self._words[np.concatenate(rows)]
        x += self._positions[np.concatenate([np.arange(length) for length in lengths])]
        x = self._norm(x, self._epsilon)
        seen = None if (lengths == lengths[0]).all() else np.arange(lengths.max()) < lengths[:, None]
        for layer in self._layers:
            x = layer.out_norm(x + layer.out(self._attention(layer.qkv(x), len(rows), seen)), self._epsilon)
            x = layer.narrow_norm(x + layer.narrow(gelu(layer.wide(x))), self._epsilon)
        if self._pooling == "cls":
            first: Vectors = x[starts]
            return first
        mean: Vectors = np.add.reduceat(x, starts, axis=0)
        mean /= lengths[:, None]
        return mean

    def _attention(self, qkv: Array, rows: int, seen: NDArray[np.bool_] | None) -> Array:
        """Each token's mean of the values of its text [tokens, size]. `seen` [rows, longest]: where there is a token,
        None when all rows have the same length."""
        if seen is not None:
            padded = np.zeros((*seen.shape, qkv.shape[1]), np.float32)
            padded[seen] = qkv
            qkv = padded
        # [3, rows, heads, tokens, numbers of a head]
        q, k, v = qkv.reshape(rows, -1, 3, self._heads, qkv.shape[-1] // (3 * self._heads)).transpose(2, 0, 3, 1, 4)
        scores = q @ k.transpose(0, 1, 3, 2)
        if seen is not None:
            scores += np.where(seen, np.float32(0.0), np.float32(-np.inf))[:, None, None, :]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed: Array = (scores @ v).transpose(0, 2, 1, 3).reshape(*qkv.shape[:-1], -1)
        if seen is not None:
            return mixed[seen]
        return mixed.reshape(-1, mixed.shape[-1])


def shares(lengths: Sequence[int], threads: int) -> list[range]:
    """The rows of a pass, in order, divided so that at most `threads` have about as many tokens each, and no fewer than
    `SHARE_TOKENS`."""
    total = sum(lengths)
    number = max(1, min(threads, len(lengths), total // SHARE_TOKENS))
    ends, read = [0], 0
    for row, length in enumerate(lengths):
        read += length
        if len(ends) < number and read * number >= total * len(ends):
            ends.append(row + 1)
    ends += [len(lengths)] if ends[-1] < len(lengths) else []
    return [range(begin, end) for begin, end in itertools.pairwise(ends)]


def unsuited(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Why a model is not one that is computed here, in words; None when it is."""
    if architecture != ARCHITECTURE:
        return f"model_type is {architecture!r}, not {ARCHITECTURE!r}"
    for key, expected in (("hidden_act", "gelu"), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(key, expected) != expected:
            return f"{key} is {config[key]!r}, not {expected!r}"
    return None


def gelu(x: Array) -> Array:
    """x times the part of a normal distribution below x, computed in place and returned.

    With erfc by Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26, whose error is below 1.5e-7:
    max(x, 0) - abs(x) / 2 * erfc(abs(x) / sqrt(2)).
    """
    for start in range(0, len(x), GELU_ROWS):
        part = x[start : start + GELU_ROWS]
        size = np.abs(part)
        t = size * np.float32(0.3275911 / np.sqrt(2.0))
        t += np.float32(1.0)
        np.reciprocal(t, out=t)
        tail = t * np.float32(1.061405429)
        for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            tail += np.float32(factor)
            tail *= t
        np.multiply(part, part, out=t)
        t *= np.float32(-0.5)
        tail *= np.exp(t, out=t)
        tail *= size
        tail *= np.float32(0.5)
        np.maximum(part, 0.0, out=part)
        part -= tail
    return x


class _Weights:
    """The tensors of a safetensors file, in float32."""

    _TYPES: ClassVar[dict[str, str]] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}

    def __init__(self, path: Path) -> None:
        self._tensors = checkpoints.safetensors_table(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        (length,) = struct.unpack("<Q", content[:8])
        self._places = json.loads(content[8 : 8 + length])
        self._data = memoryview(content)[8 + length :]
        # Models that were saved with a head on top have all names below the encoder's own.
        self._prefix = "bert." if "bert.embeddings.word_embeddings.weight" in self._tensors else ""
        self.read = 0
        """Numbers that were taken."""

    def table(self, name: str, size: int) -> Array:
        """A matrix of any number of rows."""
        tensor = self._tensors.get(self._prefix + name)
        rows = tensor.shape[0] if tensor is not None and tensor.shape else 0
        return self._tensor(name, (rows, size))

    def norm(self, name: str, size: int) -> _Norm:
        """Weight and bias of a normalisation."""
        return _Norm(self._tensor(f"{name}.weight", (size,)), self._tensor(f"{name}.bias", (size,)))

    def linear(self, name: str, into: int, out: int) -> _Linear:
        """Weight and bias of a linear layer."""
        return _Linear(self._tensor(f"{name}.weight", (out, into)).T, self._tensor(f"{name}.bias", (out,)))

    def layer(self, name: str, size: int, wide: int, scale: np.float32) -> _Layer:
        """One layer; `scale` is that of the queries."""
        q, k, v = (self.linear(f"{name}.attention.self.{part}", size, size) for part in ("query", "key", "value"))
        qkv = _Linear(
            np.concatenate([q.weight * scale, k.weight, v.weight], axis=1),
            np.concatenate([q.bias * scale, k.bias, v.bias]),
        )
        return _Layer(
            qkv=qkv,
            out=self.linear(f"{name}.attention.output.dense", size, size),
            out_norm=self.norm(f"{name}.attention.output.LayerNorm", size),
            wide=self.linear(f"{name}.intermediate.dense", size, wide),
            narrow=self.linear(f"{name}.output.dense", wide, size),
            narrow_norm=self.norm(f"{name}.output.LayerNorm", size),
        )

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Array:
        tensor = self._tensors.get(self._prefix + name)
        if tensor is None:
            raise ConfigurationError(f"{WEIGHTS} does not fit {CONFIG}: {name} is missing")
        if tensor.shape != shape:
            raise ConfigurationError(
                f"{WEIGHTS} does not fit {CONFIG}: {name} is of another shape, "
                f"{list(tensor.shape)} and not {list(shape)}"
            )
        kind = self._TYPES.get(tensor.dtype)
        if kind is None:
            raise ConfigurationError(f"{WEIGHTS}: {name} has the dtype {tensor.dtype}; F32, F16 or BF16 is expected")
        count = int(np.prod(shape))
        try:
            start, end = map(int, self._places[self._prefix + name]["data_offsets"])
            if start < 0:
                raise ValueError("it begins before the first byte")
            numbers = np.frombuffer(self._data[start:end], kind).reshape(shape)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{WEIGHTS}: the place of {name} in the file is wrong: {error}") from error
        if tensor.dtype == "BF16":
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        self.read += count
        return np.ascontiguousarray(numbers, np.float32)
