"""The log line of a request: logfmt, one key and value per thing to search for. No text of the client's is in it
but the request id, and that only if it was sane; of an API key it has the name."""

from __future__ import annotations

import json

from frontend.observation.record import RequestRecord


def line(record: RequestRecord, status: int) -> str:
    """The line of an ended request. Times are in milliseconds; a part that it did not get to is not there."""
    parts = (
        ("upload_ms", record.uploaded_s),
        ("load_ms", record.loaded_s),
        ("prepare_ms", record.prepared_s),
        ("queue_ms", record.queued_s),
        ("execute_ms", record.executed_s),
        ("finish_ms", record.finished_s),
        ("total_ms", record.total_s),
    )
    fields = [
        f"request_id={_quoted(record.request_id)}",
        f"outcome={record.state.value}",
        f"status={status}",
        f"dialect={record.dialect}",
        f"model={_quoted(record.model)}",
        *(f"{name}={value * 1e3:.3f}" for name, value in parts if value is not None),
    ]
    if record.account is not None:
        fields.append(f"key={_quoted(record.account.name)}")
    if record.input_tokens:
        fields.append(f"input_tokens={record.input_tokens}")
    return " ".join(fields)


def denied(request_id: str, status: int, reason: str, peer: str | None) -> str:
    """The line of a request that was refused before the upload. `peer` is the address it came from: the client has
    no name here, and what it sent as a key is in no log."""
    fields = [f"request_id={_quoted(request_id)}", "outcome=denied", f"status={status}", f"reason={reason}"]
    if peer is not None:
        fields.append(f"peer={_quoted(peer)}")
    return " ".join(fields)


def _quoted(text: str) -> str:
    """`text` as logfmt has it: quoted where a bare word would end early or be no value."""
    return (
        text if text.isprintable() and text and not set(text) & set(' "=\\') else json.dumps(text, ensure_ascii=False)
    )
