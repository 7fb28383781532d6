"""The embedding family in the host: rows of tokens in, the cosine of each text with the state out.

The front renders and tokenizes; row 0 is the state, and after it come the texts of each question. An encoder
reads them (`numpy_encoder.py` a BERT on a CPU, `encoder.py` whatever transformers loads), the vectors of a text's
tokens become one (their mean, or the first), and everything after the cosines is the front's. One unit is one
complete request.

What is read in one pass decides the last bits of a vector (1e-7, measured), so a pass never mixes what need not come
together again: a question's texts are read only with each other, and the state of a request that comes alone is read
alone. Vectors are then a function of these texts, whatever else a request asks, and only such vectors are kept. The
states of a batch are read in one pass, 2 to 4 times as fast for short ones on a CPU: in company a cosine is within 1e-5
of what it is alone (a test), and nothing of that is kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.backbones import packing
from executor_host.errors import ConfigurationError, HostError, NonFinite
from executor_host.executors.embedding import checkpoint as folders
from executor_host.executors.embedding import encoder
from executor_host.executors.embedding.cache import EmbeddingCache, Vectors
from executor_host.executors.embedding.checkpoint import Checkpoint
from executor_host.executors.embedding.encoder import Encoder, Rows
from executor_host.executors.embedding.numpy_encoder import NumpyEncoder, unsuited
from executor_host.executors.torch_executor import TorchExecutor
from protocol.contracts import embedding as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

PASS_ROWS: Final = 64
"""Most texts of one pass; how many tokens it may have, the encoder says."""
PASS_PADDING: Final = 64
"""Padding that one text may add to a pass: a pass of its own costs about as much as 30 tokens on a CPU (measured)
and more on a GPU."""


AnyEncoder: TypeAlias = Encoder | NumpyEncoder
Result: TypeAlias = tuple[NDArray[np.float32], int]


class EmbeddingExecutor(TorchExecutor[Checkpoint, AnyEncoder, RowsRequest, Result]):
    """`path`: the folder of a sentence encoder."""

    OPTIONS = contract.OPTIONS
    PAYLOAD: ClassVar[type] = RowsRequest
    max_units = 32

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._cache = EmbeddingCache(self.options["cache_mb"] << 20)
        self._processed = 0

    def verify(self, progress: Callable[[float, str], None]) -> Checkpoint:
        """As `TorchExecutor`."""
        return folders.verify(self.path, max_tokens=self.options["max_tokens"], progress=progress)

    def libraries(self) -> None:
        """As `TorchExecutor`; torch only where it is asked for. Where it is needed after all, `build` says so."""
        if self.options["backend"] == "torch":
            super().libraries()

    def placement(self) -> tuple[str, str]:
        """As `TorchExecutor`, without importing torch where there is no GPU that it could use."""
        device, dtype = self.options["device"], self.options["dtype"]
        if self.options["backend"] != "torch" and device == "auto" and not devices.gpu():
            device = "cpu"
        return (device, dtype) if device == "cpu" else super().placement()

    def build(self, checkpoint: Checkpoint, device: str, dtype: str) -> AnyEncoder:
        """As `TorchExecutor`; numpy for a BERT in float32 on a CPU, unless torch is asked for."""
        backend = self.options["backend"]
        if backend != "torch" and (device, dtype) == ("cpu", "float32"):
            fault = unsuited(checkpoint.architecture, checkpoints.read_json(checkpoint.path / folders.CONFIG))
            if fault is None:
                return NumpyEncoder(checkpoint, _threads())
            if backend == "numpy":
                raise ConfigurationError(f"{folders.CONFIG}: {fault}, which the backend numpy reads; take torch")
        return encoder.load(checkpoint, device=device, dtype=dtype)

    def facts(self, checkpoint: Checkpoint, model: AnyEncoder, device: str, dtype: str) -> dict[str, object]:
        """As `TorchExecutor`, and what the folder is."""
        digest, longest = checkpoints.combined(checkpoint.files), checkpoint.text_tokens
        return {
            "identity": contract.identity(
                checkpoint.name, digest, dtype, device, checkpoint.pooling, longest, model.backend
            ),
            "name": checkpoint.name,
            "sha256": checkpoint.files[folders.WEIGHTS],
            "architecture": checkpoint.architecture,
            "pooling": checkpoint.pooling,
            "backend": model.backend,
            "parameters": model.parameters,
            "limits": {
                "text_tokens": longest,
                "tokens": contract.MAX_TOKENS,
                "cache_bytes": self._cache.max_bytes,
            },
        }

    def examples(self, checkpoint: Checkpoint) -> Iterable[RowsRequest]:
        """One decision between a short text and one of the most tokens a text may have."""
        assert self._model is not None
        short, longest = min(8, checkpoint.text_tokens), checkpoint.text_tokens
        lengths = np.array([longest, short, longest], np.int32)
        yield RowsRequest(
            tokens=np.resize(np.arange(min(100, self._model.vocabulary), dtype=np.int32), int(lengths.sum())),
            lengths=lengths,
            candidates=np.ones(3, np.int32),
            questions=np.array([0, 1, 1], np.int32),
        )

    def warm_up(self) -> None:
        """As `TorchExecutor`, whose error says how long the longest text was: more than the model has places for?"""
        try:
            super().warm_up()
        except ConfigurationError as error:
            longest = "" if self._checkpoint is None else f" (with texts of {self._checkpoint.text_tokens} tokens)"
            raise ConfigurationError(f"{error}{longest}") from error

    def fits(self, example: RowsRequest, output: Mapping[str, Any]) -> bool:
        """A cosine per text."""
        return len(output["cosines"]) == example.rows - 1

    def accept(
        self, payload: RowsRequest, checkpoint: Checkpoint, model: AnyEncoder, look: Callable[[], None]
    ) -> RowsRequest:
        """What `RowsRequest.from_wire` has checked, but for what only the model knows."""
        if int(payload.tokens.max()) >= model.vocabulary:
            raise Malformed(f"a token is below {model.vocabulary}, the size of this model's vocabulary")
        if int(payload.candidates.max()) > 1:
            raise Malformed("a row of this family is one text")
        if payload.rows > 1 and int(payload.questions[1]) == 0:
            raise Malformed("question 0 of this family is the state, in one row")
        if int(payload.lengths.max()) > checkpoint.text_tokens:
            raise Malformed(f"a row has at most {checkpoint.text_tokens} tokens")
        if len(payload.tokens) > contract.MAX_TOKENS:
            raise Malformed(f"a request has at most {contract.MAX_TOKENS} tokens")
        return payload

    def run(self, request: RowsRequest, model: AnyEncoder, look: Callable[[], None]) -> Result:
        """The cosines, and how many tokens were read for them."""
        before = self._processed
        state = self._embedded([_state(request)], model, look)
        return self._compared(state, request, model, look), self._processed - before

    def run_many(self, requests: Sequence[RowsRequest], model: AnyEncoder) -> Sequence[Result | HostError]:
        """The states of all in as few passes as they fit into; the texts of each question as when it is alone.

        A state that was read in company is not kept: what the cache holds is what a text gives alone, bit for bit.
        """
        states = [_state(request) for request in requests]
        keys = [self._cache.key([state]) for state in states]
        kept = {key: self._cache.get(key) for key in keys}
        missing = {key: state for key, state in zip(keys, states, strict=True) if kept[key] is None}
        together = {}
        if len(missing) > 1:
            together = dict(zip(missing, self._read(list(missing.values()), model, _go_on)[:, None], strict=True))
        results: list[Result | HostError] = []
        for request, state, key in zip(requests, states, keys, strict=True):
            before = self._processed
            read = len(missing.pop(key, ())) if together else 0
            try:
                vector = kept[key]
                if vector is None:
                    vector = unit(together[key]) if together else self._embedded([state], model, _go_on)
                found = self._compared(vector, request, model, _go_on)
            except NonFinite as error:
                results.append(error)
            else:
                results.append((found, read + self._processed - before))
        return results

    def _compared(
        self, state: Vectors, request: RowsRequest, model: AnyEncoder, look: Callable[[], None]
    ) -> NDArray[np.float32]:
        """The cosines of each text of the questions with the vector [1, size] of the state."""
        rows = np.split(request.tokens, np.cumsum(request.lengths, dtype=np.int64)[:-1])
        starts = np.flatnonzero(np.diff(request.questions)) + 1
        groups = [
            self._embedded([rows[index] for index in group], model, look)
            for group in np.split(np.arange(request.rows), starts)[1:]
        ]
        return np.concatenate([cosines(state, group) for group in groups] or [np.zeros(0, np.float32)])

    def outputs(self, request: RowsRequest, result: Result, model: AnyEncoder) -> dict[str, Any]:
        """What a `RowsRequest` asks whose question 0 is the state, in one row, and whose rows have one candidate each:

            cosines     float32 [rows - 1], of each text after the state
            processed   tokens the model read now, padding and what was cached not counted
            statistics  counts of this host since its start, and what the cache holds

        Raises `NonFinite`; `Abandoned`, looked for before each pass of the model; `protocol.errors.Malformed` for
        rows this model has no tokens for, or that are beyond its limits; `FatalExecutionError` when the device
        failed. The device has finished on return and on every error.
        """
        found, processed = result
        return {
            "cosines": found,
            "processed": processed,
            "statistics": {"processed_tokens": self._processed, **self._cache.statistics()},
        }

    def _embedded(self, rows: Rows, model: AnyEncoder, look: Callable[[], None]) -> Vectors:
        """The vectors [rows, size] of these texts, of length 1 each: what is kept of them, else what is read now."""
        key = self._cache.key(rows)
        found = self._cache.get(key)
        if found is None:
            found = unit(self._read(rows, model, look))
            self._cache.put(key, found)
        return found

    def _read(self, rows: Rows, model: AnyEncoder, look: Callable[[], None]) -> Vectors:
        """The pooled vectors [rows, size], as they come. Texts of similar length go through the model together."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        vectors: list[Vectors | None] = [None] * len(rows)
        for group in packing.groups(
            [len(rows[index]) for index in order],
            max_rows=PASS_ROWS,
            max_tokens=None,
            max_padded=model.pass_tokens,
            max_padding=PASS_PADDING,
        ):
            look()
            members = [order[place] for place in group]
            for index, vector in zip(members, model.read([rows[index] for index in members]), strict=True):
                vectors[index] = vector
        self._processed += sum(map(len, rows))
        return np.stack([vector for vector in vectors if vector is not None])


def _threads() -> int:
    """How many this process is to compute with: what its launcher has said (`launch.threads`)."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return max(1, int(said)) if said.isascii() and said.isdecimal() else 1


def _state(request: RowsRequest) -> NDArray[np.int32]:
    """The tokens of the state, which is the first row."""
    return request.tokens[: int(request.lengths[0])]


def _go_on() -> None:
    """In a joint pass no call leaves: its neighbours wait for it."""


def unit(vectors: Vectors) -> Vectors:
    """The same directions [rows, size] with a length of 1. Raises `NonFinite`, also for a vector of zeros."""
    wide = vectors.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths: NDArray[np.float64] = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    if not (np.isfinite(lengths).all() and (lengths > 0.0).all()):
        raise NonFinite("the model's vector of a text is not finite, or zero")
    scaled: NDArray[np.float64] = wide / lengths
    return scaled.astype(np.float32)


def cosines(state: Vectors, texts: Vectors) -> NDArray[np.float32]:
    """The cosine [texts] of each unit vector [texts, size] with that of the state [size]: products and their sum in
    float64, rounded to float32."""
    found: NDArray[np.float64] = (texts.astype(np.float64) * state.astype(np.float64)).sum(axis=1)
    return found.astype(np.float32)
