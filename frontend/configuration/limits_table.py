"""The limits of the main port in the configuration: `[server.limits]`, and two keys of `[server]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frontend.configuration.toml_file import Schema, TomlDocument
from frontend.limits import CEILING_OF_MAX_DEPTH, DEFAULTS, ServerLimits

CEILINGS: Final = {
    "uploads": (100_000, "uploads in progress"),
    "upload_bytes": (2**40, "bytes"),
    "depth": (CEILING_OF_MAX_DEPTH, "objects and arrays inside each other"),
    "questions": (10_000, "questions of one request"),
    "question_id_chars": (100_000, "characters"),
    "options": (10_000, "options of a choice"),
    "option_name_chars": (100_000, "characters"),
    "levels": (1_000, "levels of a score"),
}
"""What each may be at most, and in words what it counts. The smallest is 1; for the depth 4, which every request has:
itself, its questions, one of them, its criteria. A family's own limits stay what they are: a model that reads letters
A to Z is not asked about 27 options."""

LEAST_DEPTH: Final = 4

SCHEMA: Final[Schema] = {
    key: ((int,), f"{what}, {LEAST_DEPTH if key == 'depth' else 1} to {most}") for key, (most, what) in CEILINGS.items()
}


def read(server: Mapping[str, Any], timeout_s: float, source: TomlDocument) -> ServerLimits:
    """The limits that `[server]` sets; of its keys, `max_body` has been checked. Raises `ConfigurationError`."""
    where = ("server", "limits")
    table = server.get("limits", {})
    source.only(table, SCHEMA, where)
    for key, value in table.items():
        least = LEAST_DEPTH if key == "depth" else 1
        if not least <= value <= CEILINGS[key][0]:
            source.fail((*where, key), f"{value} is not {SCHEMA[key][1]}")
    body = server.get("max_body", DEFAULTS.max_body_bytes)
    # A body above the default budget of all uploads was asked for: then the budget grows with it.
    together = table.get("upload_bytes", max(DEFAULTS.ingress_bytes, body))
    if together < body:
        source.fail((*where, "upload_bytes"), f"{together} is less than one body may have (max_body is {body})")
    return ServerLimits(
        max_body_bytes=body,
        request_timeout_s=timeout_s,
        ingress_requests=table.get("uploads", DEFAULTS.ingress_requests),
        ingress_bytes=together,
        **{key: value for key, value in table.items() if key not in ("uploads", "upload_bytes")},
    )
