"""The limits of the main port: `[server.limits]`, and two keys of `[server]`."""

from __future__ import annotations

from frontend.configuration.schema import Server
from frontend.configuration.toml_file import TomlDocument
from frontend.limits import DEFAULTS, ServerLimits


def server_limits(server: Server, source: TomlDocument) -> ServerLimits:
    """The limits that `[server]` sets. Raises `ConfigurationError` where there is no room for one body."""
    table, body = server.limits, server.max_body
    together = table.upload_bytes
    if together is None:
        # A body above the default budget of all uploads was asked for: then the budget grows with it.
        together = max(DEFAULTS.ingress_bytes, body)
    if together < body:
        key = ("server", "limits", "upload_bytes")
        source.fail(key, f"{together} is less than one body may have (max_body is {body})")
    return ServerLimits(
        max_body_bytes=body,
        request_timeout_s=server.request_timeout_s,
        ingress_requests=table.uploads,
        ingress_bytes=together,
        depth=table.depth,
        questions=table.questions,
        question_id_chars=table.question_id_chars,
        options=table.options,
        option_name_chars=table.option_name_chars,
        levels=table.levels,
    )
