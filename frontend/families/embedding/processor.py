"""The embedding family in the front: one request in, a token row per text out, cosines in, answers out.

    rendering   which texts, and from cosines to answers
    checkpoint  what the folder says

The unit is one whole request. Row 0 is the state; the texts of each question that the model is asked about follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded
from frontend.families import answering, measuring
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.embedding import rendering
from frontend.families.embedding.checkpoint import Checkpoint, Encoded, load
from frontend.families.embedding.rendering import Reading
from frontend.requests.questions import DecisionRequest
from protocol.contracts import embedding as contract
from protocol.contracts.embedding import MAX_TOKENS
from protocol.payloads import RowsRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BYTES_PER_COSINE: Final = 64
"""What `finish` does with one cosine takes about as long as reading this many bytes of JSON."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    readings: tuple[Reading, ...]
    kept: int
    total: int
    """Tokens of all rows, and what they were before a cut."""


class EmbeddingProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.embedding.executor`. One `RowsRequest` per request."""

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """Tokenizing reads about 2.5 MB/s and JSON 64 MB/s (measured)."""

    def read_checkpoint(self) -> Checkpoint:
        return load(self.path, self.options["max_tokens"])

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens.

        Raises `TokensExceeded` for a text above the model's tokens unless `truncate` is on, `InvalidRequest` for one
        that has no tokens at all, and `RequestTooLarge` above `MAX_TOKENS` in total.
        """
        readings = tuple([rendering.read(question) for question in request.questions])
        texts = [rendering.text(request.state), *(text for reading in readings for text in reading.texts)]
        encoded = self._encoded(readings, texts)
        kept, total = sum([len(one.ids) for one in encoded]), sum([one.total for one in encoded])
        for index, one in enumerate(encoded):
            if one.total > len(one.ids) and not self.options["truncate"]:
                raise TokensExceeded(
                    f"{_place(readings, index)} has {one.total} tokens; "
                    f"this model reads at most {self.checkpoint.text_tokens} of one text"
                )
            if not one.ids:
                loc = ("questions",) if index else ("state",)
                raise InvalidRequest.at(loc, f"{_place(readings, index)} has no token of this model", "value_error")
        if kept > MAX_TOKENS:
            raise RequestTooLarge(
                f"the request has {kept} tokens in {'the first ' if len(encoded) < len(texts) else ''}{len(encoded)} "
                f"texts; this model reads at most {MAX_TOKENS}"
            )
        groups = [0]
        for reading in readings:
            groups += [groups[-1] + 1] * len(reading.texts)
        payload = _payload(encoded, groups)
        work = BYTES_PER_COSINE * payload.rows
        return Prepared((payload,), cost=kept, work=work, context=_Context(readings, kept, total))

    def _encoded(self, readings: Sequence[Reading], texts: Sequence[str]) -> list[Encoded]:
        """The tokens of each text. What is too long by its characters alone never gets to the tokenizer, and of a
        request that is too long as a whole hardly more than it may have."""
        checkpoint, encoded, kept = self.checkpoint, list[Encoded](), 0
        some: list[str] = []
        waiting = 0
        for index, text in enumerate(texts):
            measured = measuring.shortened(text, checkpoint.text_chars)
            if len(measured) > checkpoint.text_chars:
                if not self.options["truncate"]:
                    raise TokensExceeded(
                        f"{_place(readings, index)} has {len(text)} characters; this model reads at most "
                        f"{checkpoint.text_tokens} tokens of one text, which are {checkpoint.text_chars} characters"
                    )
                measured = measured[:-1]
            some.append(measured)
            waiting += len(measured)
            if waiting >= measuring.CHUNK_CHARS or index == len(texts) - 1:
                encoded += checkpoint.encode(some)
                kept += sum([len(one.ids) for one in encoded[-len(some) :]])
                some, waiting = [], 0
                if kept > MAX_TOKENS:
                    break
        return encoded

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the one output `{"cosines": float32 [texts], ...}`."""
        context = context_of(prepared, _Context)
        found = _cosines(outputs, sum([len(reading.texts) for reading in context.readings]))
        scale: float = self.options["scale"]
        parts = answering.split(found, [len(reading.texts) for reading in context.readings])
        pairs = zip(context.readings, parts, strict=True)
        questions = [reading.question for reading in context.readings]
        answers = answering.answers(questions, pairs, lambda _, pair: rendering.answer(*pair, scale))
        extras: dict[str, object] = {}
        if weak := [reading.question.id for reading in context.readings if reading.weak]:
            extras["x_statement"] = weak
        if context.kept < context.total:
            extras["x_truncated"] = {"kept": context.kept, "total": context.total}
        return Decision(answers, input_tokens=context.kept, extras=extras)


def _place(readings: Sequence[Reading], row: int) -> str:
    """What the text of a row is called, for people."""
    places = (reading.place(index) for reading in readings for index in range(len(reading.texts)))
    return "the state" if row == 0 else next(islice(places, row - 1, None))


def _payload(encoded: Sequence[Encoded], groups: Sequence[int]) -> RowsRequest:
    import numpy as np

    rows: list[NDArray[np.int32]] = [np.array(one.ids, np.int32) for one in encoded]
    return RowsRequest(
        tokens=np.concatenate(rows),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.ones(len(rows), np.int32),
        questions=np.array(groups, np.int32),
    )


def _cosines(outputs: Sequence[object], count: int) -> list[float]:
    """The cosine of each text with the state, as the float64 of its float32. Whether they are finite is for code that
    uses them."""
    import numpy as np

    if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
        raise InternalError("the model's output is not one map")
    cosines = outputs[0].get("cosines")
    if not (isinstance(cosines, np.ndarray) and cosines.dtype == np.float32 and cosines.ndim == 1):
        raise InternalError("the model's cosines are not one line of float32")
    if len(cosines) != count:
        raise InternalError(f"the model gave {len(cosines)} cosines for {count} texts")
    found: list[float] = cosines.tolist()
    return found
