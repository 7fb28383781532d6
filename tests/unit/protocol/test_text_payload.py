"""The payload of the families whose host reads text itself."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import limits
from protocol.errors import Malformed
from protocol.messages import Execute
from protocol.payloads import TextRequest
from tests.unit.protocol.samples import there_and_back


@pytest.mark.parametrize("size", [0, 300, limits.OUT_OF_BAND_BYTES - 1, limits.OUT_OF_BAND_BYTES, 100_000])
def test_a_text_request_arrives_byte_for_byte(size: int) -> None:
    """Small and large documents alike come out as bytes."""
    request = TextRequest(b"\xff" * size)
    message = there_and_back(Execute(payload=request.to_wire())).message
    assert isinstance(message, Execute)
    got = TextRequest.from_wire(message.payload)
    assert got == request
    assert type(got.document) is bytes


@pytest.mark.parametrize(
    "fields",
    [{}, {"document": "text"}, {"document": None}, {"doc": b""}, {"document": b"", "more": 1}],
)
def test_other_fields_are_not_a_text_request(fields: dict[str, Any]) -> None:
    """One document of bytes, and nothing else."""
    with pytest.raises(Malformed):
        TextRequest.from_wire(fields)
