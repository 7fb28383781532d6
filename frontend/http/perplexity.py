"""Perplexity's dialect: System One bodies and answers on `/v1/decisions`, errors in the envelope of that route.

    {"error": {"message", "type", "code", "param"}, "detail": ...}

The original refuses fields that it does not know. Here they are ignored, as in every dialect of this server: the same
shape arrives from gateways that forward a System One body to this path with fields of their own.
"""

from __future__ import annotations

from typing import Final

from frontend.errors import RequestError
from frontend.http import openai, systemone
from frontend.http.dialect import Rendered

NAME: Final = "perplexity"

parse_request = systemone.parse_request
render = systemone.render


def render_error(error: RequestError) -> Rendered:
    """The envelope of the path, and what a System One client reads besides."""
    status, document, headers = openai.render_error(error)
    return status, {**document, "detail": systemone.detail(error)}, headers
