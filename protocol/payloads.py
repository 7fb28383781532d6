"""The unit payloads that the built-in families send: one frozen type each, shared by processor and executor.

A payload type has `to_wire()`, the map that becomes EXECUTE's payload, and `from_wire(fields)`, which
raises `Malformed` when the map is not that of this type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from protocol.errors import Malformed
from protocol.tensors import Blob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


TEMPLATE_TOKENS: Final = 1024
"""Of what a chat template puts around a text. Those of the families have some hundred at most."""


class Payload(Protocol):
    """What a family's payload type offers to the wire."""

    def to_wire(self) -> dict[str, Any]:
        """The fields, as msgpack values, arrays and blobs."""
        ...

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The payload of the received fields; `Malformed` when they are not of this type."""
        ...


class Keepable(Payload, Protocol):
    """A payload whose text a host may keep."""

    def longest(self) -> int:
        """Tokens of its longest row, or more: of a text that the host reads, its bytes."""
        ...


class Batchable(Payload, Protocol):
    """A payload that says what it is to a batch. Of other types a unit is sent alone."""

    def extent(self) -> tuple[str, int, int]:
        """With what it may be sent together (units of equal words may), how many rows of a joint pass are its own, and
        how many tokens its longest row has: all rows of a pass are as long as the longest."""
        ...


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A whole request as one UTF-8 JSON buffer, for families whose host reads text itself.

    `document` is `{"state": ..., "questions": [{"type", "instructions", "criteria"}, ...]}`. Question ids
    are not in it, so they cannot reach the model, except where the model reads them by its contract: then each
    question has an `id`, too. JSON and not msgpack, because integers beyond 64 bits are legal in a state.
    """

    document: bytes

    def extent(self) -> tuple[str, int, int]:
        """A document by itself: an executor of text reads one after the other, and bytes are counted anyway."""
        return "text", 1, 1

    def longest(self) -> int:
        """Its bytes, of which no tokenizer makes more tokens, and what a template puts around it."""
        return len(self.document) + TEMPLATE_TOKENS

    def to_wire(self) -> dict[str, Any]:
        """One blob, out of band when it is large."""
        return {"document": Blob(self.document)}

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The request; the document is not parsed here."""
        document = fields.get("document")
        if len(fields) != 1 or not isinstance(document, (bytes, memoryview)):
            raise Malformed("a text request is one document")
        return cls(bytes(document))


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A whole request as token rows, for families whose front tokenizes: every row is read once, at its end.

    The rows lie one after the other in `tokens`, unpadded. Row r is answered with the logits of the first
    `candidates[r]` labels of the checkpoint, at the position of the row's last token. Question ids are not in
    it; `questions` says only which rows belong together, for an executor that shares their common prefix.

    The arrays may be views on a received frame: they are read, never written.
    """

    tokens: NDArray[np.int32]
    """[total] token ids, 0 or above."""

    lengths: NDArray[np.int32]
    """[rows] tokens of each row, 1 or more; they sum to `total`. At least one row."""

    candidates: NDArray[np.int32]
    """[rows] how many labels each row chooses among, 1 or more."""

    questions: NDArray[np.int32]
    """[rows] index of the question each row belongs to: 0 first, then the same or one more."""

    shared: int = 0
    """With how many tokens all rows begin that rows of other requests may begin with, too: those of the state. For
    families that keep prefixes; 0 where that is not known."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.lengths)

    def extent(self) -> tuple[str, int, int]:
        """All of its tokens as one row: they travel unpadded, and their reader packs rows of like length."""
        return "rows", 1, len(self.tokens)

    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(self.lengths.max())

    def split(self) -> tuple[list[NDArray[np.int32]], list[int]]:
        """The rows, and the question of each."""
        ends = self.lengths.cumsum().tolist()
        rows = [self.tokens[end - length : end] for end, length in zip(ends, self.lengths.tolist(), strict=True)]
        return rows, self.questions.tolist()

    def to_wire(self) -> dict[str, Any]:
        """Four arrays, out of band when they are large, and a number."""
        return {
            "tokens": self.tokens,
            "lengths": self.lengths,
            "candidates": self.candidates,
            "questions": self.questions,
            "shared": self.shared,
        }

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The rows, checked against each other; `Malformed` says which of the promises above is broken."""
        import numpy as np

        arrays = ("tokens", "lengths", "candidates", "questions")
        if fields.keys() != {*arrays, "shared"}:
            raise Malformed("a rows request is tokens, lengths, candidates, questions and shared")
        for name in arrays:
            value = fields[name]
            if not (isinstance(value, np.ndarray) and value.dtype == np.int32 and value.ndim == 1):
                raise Malformed(f"the {name} of a rows request are one line of int32")
        tokens, lengths, candidates, questions = (fields[name] for name in arrays)
        shared = fields["shared"]
        if not len(lengths) == len(candidates) == len(questions) >= 1:
            raise Malformed("a rows request has one length, candidate count and question for each of its rows")
        if lengths.min() < 1 or int(lengths.sum(dtype=np.int64)) != len(tokens):
            raise Malformed("the lengths of the rows are 1 or more and sum to the tokens")
        if tokens.min() < 0 or candidates.min() < 1:
            raise Malformed("a token is 0 or above and a row has 1 candidate or more")
        steps = np.diff(questions.astype(np.int64))
        if questions[0] != 0 or not bool(((steps == 0) | (steps == 1)).all()):
            raise Malformed("the rows of a question lie together and the questions are counted from 0")
        if type(shared) is not int or not 0 <= shared <= int(lengths.min()):
            raise Malformed("what the rows of a request share is 0 tokens or more, and no row has fewer")
        if shared:
            starts = np.cumsum(lengths, dtype=np.int64)[:-1].tolist()
            if not all(np.array_equal(tokens[start : start + shared], tokens[:shared]) for start in starts):
                raise Malformed("the rows of a request begin with the tokens that they are said to share")
        return cls(tokens, lengths, candidates, questions, shared)


@dataclass(frozen=True, slots=True)
class MarkedRowsRequest:
    """A whole request as padded token rows with marked positions, for families that read a question at its options.

    Row r is one question; every marked position of it is one of its options. Rows of length 0 come last: they are
    padding of the batch, and nothing is answered for them.

    The arrays may be views on a received frame: they are read, never written.
    """

    tokens: NDArray[np.int32]
    """[rows, width] token ids, 0 or above; at least one row and column. What is beyond a row's length is padding."""

    lengths: NDArray[np.int32]
    """[rows] tokens of each row, at most `width`; at least the first is above 0."""

    kinds: NDArray[np.int32]
    """[rows] the type of each question, by the family's numbers."""

    markers: NDArray[np.int32]
    """[sum of counts] marked positions, row after row, each below its row's length."""

    counts: NDArray[np.int32]
    """[rows] how many positions of each row are marked: 1 or more, 0 for a row of length 0."""

    @property
    def rows(self) -> int:
        """How many rows are questions."""
        return int((self.lengths > 0).sum())

    def extent(self) -> tuple[str, int, int]:
        """Its rows that are questions, and the longest of them."""
        return "marked rows", self.rows, int(self.lengths.max())

    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(self.lengths.max())

    def to_wire(self) -> dict[str, Any]:
        """Five arrays, out of band when they are large."""
        return {
            "tokens": self.tokens,
            "lengths": self.lengths,
            "kinds": self.kinds,
            "markers": self.markers,
            "counts": self.counts,
        }

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The rows, checked against each other; `Malformed` says which of the promises above is broken."""
        import numpy as np

        if fields.keys() != {"tokens", "lengths", "kinds", "markers", "counts"}:
            raise Malformed("a marked rows request is tokens, lengths, kinds, markers and counts")
        for name, value in fields.items():
            dimensions = 2 if name == "tokens" else 1
            if not (isinstance(value, np.ndarray) and value.dtype == np.int32 and value.ndim == dimensions):
                raise Malformed(f"the {name} of a marked rows request are int32 in {dimensions} dimensions")
        tokens, lengths, kinds, markers, counts = (
            fields[name] for name in ("tokens", "lengths", "kinds", "markers", "counts")
        )
        rows, width = tokens.shape
        if not rows == len(lengths) == len(kinds) == len(counts) >= 1:
            raise Malformed("a marked rows request has one length, kind and count for each of its rows")
        real = lengths > 0
        if lengths.min() < 0 or lengths.max() > width or not real[0] or bool((real[1:] & ~real[:-1]).any()):
            raise Malformed("a row has at most as many tokens as there are columns, and rows without any come last")
        if tokens.min() < 0 or kinds.min() < 0:
            raise Malformed("a token and a kind are 0 or above")
        if counts.min() < 0 or not np.array_equal(counts > 0, real) or counts.sum(dtype=np.int64) != len(markers):
            raise Malformed("the counts are 1 or more where there are tokens, 0 elsewhere, and sum to the markers")
        if markers.min() < 0 or bool((markers >= np.repeat(lengths, counts)).any()):
            raise Malformed("a marked position is within its row")
        return cls(tokens, lengths, kinds, markers, counts)


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One prompt as token ids, for families that read one question at a time: the model reads it to its end.

    The array may be a view on a received frame: it is read, never written.
    """

    tokens: NDArray[np.int32]
    """[length] token ids, 0 or above; at least one."""

    def extent(self) -> tuple[str, int, int]:
        """One row."""
        return "prompt", 1, len(self.tokens)

    def longest(self) -> int:
        """Its tokens."""
        return len(self.tokens)

    def to_wire(self) -> dict[str, Any]:
        """One array, out of band when it is large."""
        return {"tokens": self.tokens}

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The prompt; `Malformed` when it is not one line of ids."""
        import numpy as np

        tokens = fields.get("tokens")
        if len(fields) != 1 or not (isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.ndim == 1):
            raise Malformed("a prompt request is one line of int32 tokens")
        if not len(tokens) or tokens.min() < 0:
            raise Malformed("a prompt has a token or more, and a token is 0 or above")
        return cls(tokens)
