"""The unit payloads that the built-in families send: one frozen type each, shared by processor and executor.

A payload type has `to_wire()`, the map that becomes EXECUTE's payload, and `from_wire(fields)`, which
raises `Malformed` when the map is not that of this type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from protocol.errors import Malformed
from protocol.tensors import Blob


class Payload(Protocol):
    """What a family's payload type offers to the wire."""

    def to_wire(self) -> dict[str, Any]:
        """The fields, as msgpack values, arrays and blobs."""
        ...

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """The payload of the received fields; `Malformed` when they are not of this type."""
        ...


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A whole request as one UTF-8 JSON buffer, for families whose host reads text itself.

    `document` is `{"state": ..., "questions": [{"type", "instructions", "criteria"}, ...]}`. Question ids
    are not in it, so they cannot reach the model. JSON and not msgpack, because integers beyond 64 bits
    are legal in a state.
    """

    document: bytes

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
