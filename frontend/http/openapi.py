"""GET /openapi.json: the main port described for programs, OpenAPI 3.1.

`openapi.json` beside this file has the schemas of bodies, and examples with what they are answered; this module has
the routes, their statuses and headers, and puts in what a running server knows: its limits, and whether there are
keys. A test compares all of it with what the server does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from frontend import limits
from frontend.http import access, admin, names, routes
from frontend.limits import ServerLimits

VERSION: Final = "1"
"""Of the routes and bodies, not of the program."""

DATA: Final = Path(__file__).with_name("openapi.json")

_DECISION_ERRORS: Final = {
    400: "Understood, and not possible here: an unknown model, images, a text above the model's tokens, a body that "
    "does not decompress. In dialects without 422 also a body that is not valid.",
    404: "There is no model of this name.",
    408: "No byte of the body came for 10 s.",
    413: "The body or the request is above a limit that waiting does not change.",
    415: "A Content-Encoding other than gzip, deflate, zstd and identity.",
    417: "An Expect other than 100-continue.",
    422: "The body is not a valid request: every fault with its place.",
    429: "A budget is in use.",
    500: "The model failed on this request.",
    503: "Loading, restarting or stopping, or the host died with this request.",
    504: "The request's own time was over.",
}
_ORDER_ERRORS: Final = {
    400: "The body does not decompress.",
    404: "There is no model of this name.",
    408: _DECISION_ERRORS[408],
    409: "Another order for this name is being carried out.",
    413: "The body is larger than settings can be.",
    415: "The body is not application/json, or compressed with something else.",
    417: _DECISION_ERRORS[417],
    422: "The settings make no sense.",
    429: "Too many uploads are in progress.",
    502: "The new host could not be started; the message says what serves now.",
    504: "The upload took too long.",
}
MISDIRECTED: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/api/v1/chat/completions",
)
"""Routes of language models, which say where to ask instead."""


async def document(request: web.Request) -> web.Response:
    """The document of the server that is asked."""
    server = request.app[routes.SERVER]
    described = describe(server.limits, keys=server.keys is not None, names_checked=request.app[names.CHECKED])
    return routes.json_response(request, described)


def describe(bounds: ServerLimits, *, keys: bool, names_checked: bool = False) -> dict[str, Any]:
    """The document of a server with these limits; `keys`: whether it has API keys, and with them admin routes;
    `names_checked`: whether it answers at names of its own alone."""
    paths = {
        "/v1/systemone": _decision("systemone", "SystemOneRequest", "SystemOneAnswer", "SystemOneError", events=True),
        "/systemone": _decision("systemone", "SystemOneRequest", "SystemOneAnswer", "SystemOneError", events=True),
        **{
            path: _decision("openrouter", "SystemOneRequest", "SystemOneAnswer", "OpenRouterError")
            for path in ("/api/v1/systemone", "/api/alpha/decisions", "/alpha/decisions")
        },
        **{path: _decision_by_shape() for path in ("/v1/decisions", "/decisions")},
        "/v1beta/decisions": _decision("gemini", "GeminiRequest", "GeminiAnswers", "GeminiError"),
        **{path: _misdirected() for path in MISDIRECTED},
        "/v1/models": _get("The models, in the shapes of two listings, and the limits of a request.", "Models"),
        "/v1/models/{name}": _model(),
        "/v1/sessions": _get("The conversations of the request's key, and what is held of them.", "Sessions"),
        "/v1/sessions/{name}": _session(),
        "/health": _health(),
        "/healthz": _get("Liveness: the loop turns.", "Alive"),
        "/status": _get("Models, hosts, queues and recent deaths.", "Status"),
        "/metrics": _file(
            "Counts, histograms and gauges for Prometheus.", "text/plain", "application/openmetrics-text"
        ),
        "/openapi.json": _get("This document.", None),
        "/static/page.js": _file("The page's script.", "text/javascript"),
        "/static/page.css": _file("The page's style.", "text/css"),
        "/": _index(),
        **({path: _order(path) for path, _ in admin.POST} if keys else {}),
    }
    for path, methods in paths.items() if keys else ():
        for operation in methods.values():
            if path in access.OPEN:
                operation["security"] = []
            else:
                operation["responses"]["401"] = _error("No API key, or one that is not valid.", ["Error"], 401)
    for methods in paths.values() if names_checked else ():
        for operation in methods.values():
            text = "The Host is no name of this server, or orders may not be given so."
            operation["responses"]["403"] = _error(text, ["Error"], 403)
    components: dict[str, Any] = {"schemas": _schemas(bounds), "headers": _HEADERS}
    if keys:
        components["securitySchemes"] = _SCHEMES
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "framehost",
            "version": VERSION,
            "description": "Typed questions about a state, answered with probabilities. Every path is also there with "
            "a slash at its end, every GET route also answers HEAD; any other method of a path is 405, any other path "
            "404. Request bodies may be compressed with gzip, deflate or zstd. Fields that are not named here are "
            "ignored in requests; new ones in answers begin with x_.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": components,
        **({"security": [{name: []} for name in _SCHEMES]} if keys else {}),
    }


_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "x-goog-api-key": {"type": "apiKey", "in": "header", "name": "x-goog-api-key"},
}

_HEADERS: Final = {
    "x-request-id": {
        "description": "The request's own id if it is sane, else one of this server.",
        "required": True,
        "schema": {"type": "string", "minLength": 1, "maxLength": limits.MAX_HEADER_REQUEST_ID},
    },
    "retry-after": {
        "description": "Whole seconds.",
        "required": True,
        "schema": {
            "type": "integer",
            "minimum": limits.RETRY_AFTER_SECONDS[0],
            "maximum": limits.RETRY_AFTER_SECONDS[1],
        },
    },
    "server-timing": {
        "description": "How long the upload, preparing, the queue, executing and finishing took.",
        "schema": {"type": "string"},
    },
    "www-authenticate": {"required": True, "schema": {"const": "Bearer"}},
}


@cache
def _data() -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads(DATA.read_bytes())
    return data


def examples(*dialects: str) -> dict[str, dict[str, Any]]:
    """By name, the request, the status and the response of each example."""
    return {name: example for dialect in dialects for name, example in _data()["examples"][dialect].items()}


def _schemas(bounds: ServerLimits) -> dict[str, Any]:
    schemas: dict[str, Any] = json.loads(json.dumps(_data()["schemas"]))  # a copy that may be changed
    for name in ("SystemOneRequest", "OpenAIRequest", "GeminiRequest"):
        questions = schemas[name]["properties"]["questions"]
        if questions["type"] == "array":
            questions["maxItems"] = bounds.questions
        else:
            questions["maxProperties"] = bounds.questions
            questions["propertyNames"]["maxLength"] = bounds.question_id_chars
    schemas["OpenAIName"]["maxLength"] = bounds.question_id_chars
    schemas["Options"] |= {"maxProperties": bounds.options, "propertyNames": {"maxLength": bounds.option_name_chars}}
    choices = schemas["OpenAIChoice"]["properties"]["choices"]
    choices["maxItems"] = bounds.options
    choices["items"]["properties"]["value"]["maxLength"] = bounds.option_name_chars
    schemas["Levels"]["maxItems"] = schemas["OpenAIScore"]["properties"]["levels"]["maxItems"] = bounds.levels
    schemas["Limits"] |= {"required": list(bounds.report()), "examples": [bounds.report()]}
    return schemas


def _decision(dialect: str, request: str, answer: str, error: str, *, events: bool = False) -> dict[str, Any]:
    return {"post": _decision_operation([dialect], [request], [answer], [error], events=events)}


def _decision_by_shape() -> dict[str, Any]:
    operation = _decision_operation(
        ["openai", "perplexity", "gemini"],
        ["OpenAIRequest", "SystemOneRequest", "GeminiRequest"],
        ["OpenAIAnswers", "SystemOneAnswer", "GeminiAnswers"],
        ["OpenAIError", "GeminiError"],
    )
    operation["description"] = (
        "Three dialects: an array of questions is OpenAI's; an object of questions is Gemini's beside `input`, and "
        "System One's otherwise, as Perplexity has it. Answers and errors are in the dialect of the question."
    )
    return {"post": operation}


def _decision_operation(
    dialects: list[str], requests: list[str], answers: list[str], errors: list[str], *, events: bool = False
) -> dict[str, Any]:
    shown = examples(*dialects)
    # A body that is not valid is 422 in System One alone; an unknown model is 404 in the dialects of /v1/decisions.
    absent = {404} if dialects == ["systemone"] else {404, 422} if dialects == ["openrouter"] else {422}
    responses = {"200": _ok(answers, events=events)}
    for status, text in _DECISION_ERRORS.items():
        if status not in absent:
            # What is no HTTP request to this route is refused before there is a dialect.
            responses[str(status)] = _error(text, ["Error"] if status == 417 else [*errors, "Error"], status)
    for name, example in shown.items():
        content = responses[str(example["status"])]["content"]["application/json"]
        content.setdefault("examples", {})[name] = {"value": example["response"]}
    return {
        "summary": "A decision",
        "tags": ["decisions"],
        "parameters": [
            {
                "name": routes.TIMEOUT_HEADER,
                "in": "header",
                "description": "Milliseconds for upload, queue and execution, at most the server's request timeout.",
                "schema": {"type": "integer", "minimum": 1},
            },
            {
                "name": "x-request-id",
                "in": "header",
                "description": "A label that comes back with the response, if it is sane.",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.:/+=-]+$"},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _any(requests),
                    "examples": {
                        name: {"summary": f"answered with {example['status']}", "value": example["request"]}
                        for name, example in shown.items()
                    },
                }
            },
        },
        "responses": responses,
    }


def _ok(answers: list[str], *, events: bool) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _any(answers)}}
    if events:
        content["text/event-stream"] = {"schema": _ref("Events")}
    return {"description": "The answers.", "headers": _headers("x-request-id", "server-timing"), "content": content}


def _misdirected() -> dict[str, Any]:
    return {
        "post": {
            "summary": "For clients of language models: says where decisions are asked",
            "tags": ["others"],
            "responses": {
                "400": _error("This is a server for decision models.", ["Error"], 400),
                "417": _error(_DECISION_ERRORS[417], ["Error"], 417),
            },
        }
    }


def _get(summary: str, schema: str | None) -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object"} if schema is None else _ref(schema)}}
    return _answered(summary, content)


def _file(summary: str, *media_types: str) -> dict[str, Any]:
    return _answered(summary, {kind: {"schema": {"type": "string"}} for kind in media_types})


def _answered(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "get": {
            "summary": summary,
            "tags": ["others"],
            "responses": {
                "200": {"description": summary, "headers": _headers("x-request-id"), "content": content},
                "417": _error(_DECISION_ERRORS[417], ["Error"], 417),
            },
        }
    }


def _model() -> dict[str, Any]:
    described = _get("One model; an alias is answered with what it means.", "Model")
    described["get"]["parameters"] = [_in_path("name")]
    described["get"]["responses"]["404"] = _error("There is no model of this name.", ["Error"], 404)
    return described


def _session() -> dict[str, Any]:
    summary = "Ends a conversation, with every model that has one of this name"
    content = {"application/json": {"schema": _ref("SessionEnded")}}
    described = {"delete": _answered(summary, content)["get"]}
    described["delete"]["parameters"] = [_in_path("name")]
    described["delete"]["responses"]["404"] = _error("There is no conversation of this name.", ["Error"], 404)
    return described


def _health() -> dict[str, Any]:
    described = _get("Readiness, from cached state: at least one model can answer.", "Health")
    described["get"]["parameters"] = [
        {"name": "model", "in": "query", "description": "Of one model alone.", "schema": {"type": "string"}}
    ]
    content = {"application/json": {"schema": _ref("Health")}}
    headers = _headers("x-request-id")
    described["get"]["responses"] |= {
        "404": {"description": "There is no model of this name.", "headers": headers, "content": content},
        "503": {
            "description": "No model can, or the server is stopping.",
            "headers": _headers("x-request-id", "retry-after"),
            "content": content,
        },
    }
    return described


def _index() -> dict[str, Any]:
    described = _get("A page for people to a browser, a few words to a program.", "Service")
    described["get"]["responses"]["200"]["content"]["text/html"] = {"schema": {"type": "string"}}
    return described


_SETTINGS: Final = {"swap": ("SwapSettings", True), "budget": ("Budget", True)}
"""Of the orders that have settings: their schema, and that there has to be a body."""


def _order(path: str) -> dict[str, Any]:
    action = path.rpartition("/")[2]
    schema, required = _SETTINGS.get(action, ("NoSettings", False))
    return {
        "post": {
            "summary": f"Order: {action}. The answer comes when it is done",
            "tags": ["admin"],
            "parameters": [_in_path("name")],
            "requestBody": {"required": required, "content": {"application/json": {"schema": _ref(schema)}}},
            "responses": {
                "200": {
                    "description": "It is done.",
                    "headers": _headers("x-request-id"),
                    "content": {"application/json": {"schema": _ref("Done")}},
                },
                "403": _error("The key may not give orders, or the web page may not.", ["Error"], 403),
                **{str(status): _error(text, ["Error"], status) for status, text in _ORDER_ERRORS.items()},
            },
        }
    }


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _error(text: str, schemas: list[str], status: int) -> dict[str, Any]:
    further = {401: ["www-authenticate"], 429: ["retry-after"], 503: ["retry-after"]}.get(status, [])
    return {
        "description": text,
        "headers": _headers("x-request-id", *further),
        "content": {"application/json": {"schema": _any(schemas)}},
    }


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _any(names: Iterable[str]) -> dict[str, Any]:
    references = [_ref(name) for name in names]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
