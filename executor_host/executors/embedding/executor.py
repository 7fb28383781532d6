"""The embedding family in the host: rows of tokens in, the cosine of each text with the state out.

The front renders and tokenizes; row 0 is the state, and after it come the texts of each question. An encoder that
transformers loads reads them, the vectors of a text's tokens become one (their mean, or the first), and everything
after the cosines is the front's. One unit is one complete request.

What is read in one pass decides the last bits of a vector (1e-7, measured), so a pass never mixes what need not come
together again: the state is read alone, and a question's texts only with each other. Vectors of a state or of a
question's texts are then a function of these texts, whatever else a request asks and whatever is cached. Reading the
states of several requests in one pass would be 4 times as fast at 16 short ones (CPU, measured), and their answers
would depend on who else was asking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.backbones import packing
from executor_host.errors import ConfigurationError, ExecutionFailed, FatalExecutionError, NonFinite
from executor_host.executors.base import Call, Executor, Progress, WarmUpCall, check
from executor_host.executors.embedding import checkpoint as folders
from executor_host.executors.embedding.cache import EmbeddingCache, Vectors
from protocol.contracts import embedding as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest

Rows: TypeAlias = Sequence[NDArray[np.int32]]

PASS_ROWS: Final = 64
PASS_TOKENS: Final = 8_192
"""Most texts and tokens of one pass, padding included: 50 MB for the widest activation of a model of 22 million
parameters, in float32."""
PASS_PADDING: Final = 64
"""Padding that one text may add to a pass: a pass of its own costs about as much as 30 tokens on a CPU (measured)
and more on a GPU."""

_HASHED: Final = 0.5
"""Of the progress: reading the weights once to hash them takes about as long as loading them."""


class EmbeddingExecutor(Executor):
    """`path`: the folder of a sentence encoder (embedding_checkpoint.py)."""

    OPTIONS = contract.OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._cache = EmbeddingCache(self.options["cache_mb"] << 20)
        self._checkpoint: folders.Checkpoint | None = None
        self._model: Any = None
        self._processed = 0

    def __repr__(self) -> str:
        loaded = "not loaded" if self._checkpoint is None else self._checkpoint.name
        return f"<EmbeddingExecutor {loaded} {self._cache!r}>"

    def load(self, progress: Progress) -> Mapping[str, object]:
        """Hashes the folder and loads the weights. Raises `ConfigurationError`: torch missing, no such device, a
        folder that is no sentence encoder, or weights that do not fit its configuration."""
        name, dtype = devices.placement(self.options["device"], self.options["dtype"])
        device = devices.find(name)
        checkpoint = folders.verify(
            self.path,
            max_tokens=self.options["max_tokens"],
            progress=lambda fraction, note: progress(_HASHED * fraction, note),
        )
        progress(_HASHED, "loading")
        self._model = _load(checkpoint, dtype).to(device)
        self._checkpoint = checkpoint
        progress(1.0, "loaded")
        digest = checkpoints.combined(checkpoint.files)
        return {
            "identity": contract.identity(
                checkpoint.name, digest, dtype, name, checkpoint.pooling, checkpoint.text_tokens
            ),
            "name": checkpoint.name,
            "sha256": checkpoint.files[folders.WEIGHTS],
            "files": dict(checkpoint.files),
            "folder": str(checkpoint.path),
            "architecture": checkpoint.architecture,
            "pooling": checkpoint.pooling,
            "dtype": dtype,
            "device": name,
            "parameters": sum(parameter.numel() for parameter in self._model.parameters()),
            "limits": {
                "text_tokens": checkpoint.text_tokens,
                "tokens": contract.MAX_TOKENS,
                "cache_bytes": self._cache.max_bytes,
            },
        }

    def warm_up(self) -> None:
        """One decision between a short text and one of the most tokens a text may have."""
        if self._checkpoint is None:
            raise ConfigurationError("the warm-up comes after the load")
        short, longest = min(8, self._checkpoint.text_tokens), self._checkpoint.text_tokens
        lengths = np.array([longest, short, longest], np.int32)
        request = RowsRequest(
            tokens=np.resize(np.arange(min(100, self._vocabulary), dtype=np.int32), int(lengths.sum())),
            lengths=lengths,
            candidates=np.ones(3, np.int32),
            questions=np.array([0, 1, 1], np.int32),
        )
        try:
            self.execute(request, WarmUpCall())
        except FatalExecutionError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"the warm-up decision, with texts of {longest} tokens, failed: {type(error).__name__}: {error}"
            ) from error

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        """What a `RowsRequest` asks whose question 0 is the state, in one row, and whose rows have one candidate each:

            cosines     float32 [rows - 1], of each text after the state
            processed   tokens the model read now, padding and what was cached not counted
            statistics  counts of this host since its start, and what the cache holds

        Raises `NonFinite`; `Abandoned`, looked for before each pass of the model; `protocol.errors.Malformed` for
        rows this model has no tokens for, or that are beyond its limits; `FatalExecutionError` when the device
        failed. The device has finished on return and on every error.
        """
        checkpoint = self._checkpoint
        if checkpoint is None:
            raise ExecutionFailed("the model is not loaded")
        request = _checked(payload, self._vocabulary, checkpoint.text_tokens)
        rows = np.split(request.tokens, np.cumsum(request.lengths, dtype=np.int64)[:-1])
        starts = np.flatnonzero(np.diff(request.questions)) + 1
        before = self._processed
        with devices.settled(self._model.device.type, lambda: devices.synchronize(self._model.device)):
            (state,), *groups = [
                self._embedded([rows[index] for index in group], lambda: check(call))
                for group in np.split(np.arange(request.rows), starts)
            ]
        return {
            "cosines": np.concatenate([cosines(state, group) for group in groups] or [np.zeros(0, np.float32)]),
            "processed": self._processed - before,
            "statistics": {"processed_tokens": self._processed, **self._cache.statistics()},
        }

    def close(self) -> None:
        """Drops the model."""
        self._model = self._checkpoint = None

    @property
    def _vocabulary(self) -> int:
        return int(self._model.get_input_embeddings().weight.shape[0])

    def _embedded(self, rows: Rows, check: Callable[[], None]) -> Vectors:
        """The vectors [rows, size] of these texts, of length 1 each: what is kept of them, else what is read now."""
        key = self._cache.key(rows)
        found = self._cache.get(key)
        if found is None:
            found = unit(self._read(rows, check))
            self._cache.put(key, found)
        return found

    def _read(self, rows: Rows, check: Callable[[], None]) -> Vectors:
        """The pooled vectors [rows, size], as they come. Texts of similar length go through the model together."""
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        vectors: list[Vectors | None] = [None] * len(rows)
        for group in packing.groups(
            [len(rows[index]) for index in order],
            max_rows=PASS_ROWS,
            max_tokens=None,
            max_padded=PASS_TOKENS,
            max_padding=PASS_PADDING,
        ):
            check()
            members = [order[place] for place in group]
            for index, vector in zip(members, self._pass([rows[index] for index in members]), strict=True):
                vectors[index] = vector
        self._processed += sum(map(len, rows))
        return np.stack([vector for vector in vectors if vector is not None])

    def _pass(self, rows: Rows) -> Vectors:
        """One pass of the model over rows that are padded on the right, where the mask keeps them from mattering."""
        import torch

        assert self._checkpoint is not None
        longest = max(map(len, rows))
        tokens = np.full((len(rows), longest), self._model.config.pad_token_id or 0, np.int64)
        mask = np.zeros((len(rows), longest), np.int64)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = row
            mask[place, : len(row)] = 1
        with torch.inference_mode():
            seen = torch.from_numpy(mask).to(self._model.device)
            hidden = self._model(
                input_ids=torch.from_numpy(tokens).to(self._model.device), attention_mask=seen
            ).last_hidden_state.float()
            if self._checkpoint.pooling == "cls":
                pooled = hidden[:, 0]
            else:
                weight = seen[..., None].float()
                pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
            found: Vectors = pooled.cpu().numpy()
        return found


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


def _load(checkpoint: folders.Checkpoint, dtype: str) -> Any:
    """The encoder, without gradients and without the pooling layer of some architectures, which nobody asks here."""
    torch = devices.torch_library()
    try:
        import transformers
    except ImportError as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # which lists the weights of that layer as left over
    try:
        model, report = transformers.AutoModel.from_pretrained(
            checkpoint.path,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError, ImportError) as error:
        raise ConfigurationError(f"the checkpoint cannot be loaded: {error}") from error
    missing = [name for name in map(str, report["missing_keys"]) if not name.startswith("pooler.")]
    for what, names in (
        ("missing", missing),
        ("of another shape", report["mismatched_keys"]),
        ("wrong", report["error_msgs"]),
    ):
        if names:
            first = min(map(str, names))
            raise ConfigurationError(f"{folders.WEIGHTS} does not fit {folders.CONFIG}: {first} is {what}")
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model.eval().requires_grad_(False)


def _checked(payload: object, vocabulary: int, text_tokens: int) -> RowsRequest:
    """The request, of which `RowsRequest.from_wire` has checked everything but what only the model knows."""
    if not isinstance(payload, RowsRequest):
        raise ExecutionFailed(f"a rows request is expected, not {type(payload).__name__}")
    if int(payload.tokens.max()) >= vocabulary:
        raise Malformed(f"a token is below {vocabulary}, the size of this model's vocabulary")
    if int(payload.candidates.max()) > 1:
        raise Malformed("a row of this family is one text")
    if payload.rows > 1 and int(payload.questions[1]) == 0:
        raise Malformed("question 0 of this family is the state, in one row")
    if int(payload.lengths.max()) > text_tokens:
        raise Malformed(f"a row has at most {text_tokens} tokens")
    if len(payload.tokens) > contract.MAX_TOKENS:
        raise Malformed(f"a request has at most {contract.MAX_TOKENS} tokens")
    return payload
