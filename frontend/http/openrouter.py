"""The OpenRouter dialect: System One bodies and answers, errors in the gateway's envelope.

    {"error": {"code": <status>, "message": ...}, "detail": ...}

The gateway's SDK raises a parse error of its own when `error` is missing. `detail` is there for the System One clients
that are pointed at these routes. A body that fails validation is 400 here, because 422 is no status of the gateway.

Fields of the gateway (`provider`, `session_id`, `trace`, `user`) mean nothing to a server with one provider and are
ignored like all others. It knows the models of System One by names with a prefix, so the prefix may be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from frontend.errors import RequestError
from frontend.http import systemone
from frontend.http.dialect import Rendered, retry_after, sentence
from frontend.limits import DEFAULTS, ServerLimits
from frontend.requests.questions import PREFIXES, DecisionRequest

NAME: Final = "openrouter"

PREFIX: Final = PREFIXES[NAME]

render = systemone.render


def parse_request(document: object, limits: ServerLimits = DEFAULTS) -> DecisionRequest:
    """As `systemone.parse_request`."""
    request = systemone.parse_request(document, limits)
    if request.model is not None and request.model.startswith(PREFIX):
        return replace(request, model=request.model.removeprefix(PREFIX))
    return request


def render_error(error: RequestError) -> Rendered:
    """Both shapes in one body."""
    status = 400 if error.status == 422 else error.status
    document = {"error": {"code": status, "message": sentence(error)}, "detail": systemone.detail(error)}
    return status, document, retry_after(error)
