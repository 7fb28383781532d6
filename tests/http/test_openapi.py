"""The document at /openapi.json says what this server does: its routes, its limits, whether it takes keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from aiohttp import web
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from frontend import errors
from frontend.configuration.keys import ApiKey, KeyRing
from frontend.errors import RequestError
from frontend.http import app, gemini, openai, openapi, openrouter, perplexity, systemone
from frontend.http.dialect import Dialect
from frontend.limits import ServerLimits
from tests.http.conftest import Edge, listening

KEY = "a-key-of-16-characters"


def ring() -> KeyRing:
    return KeyRing(None, [ApiKey("alice", hashlib.sha256(KEY.encode()).digest())])


async def fetched(edge: Edge) -> dict[str, Any]:
    asked = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: {KEY}\r\n\r\n"
    head, _, body = (await edge.ask(asked.encode())).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    document: dict[str, Any] = json.loads(body)
    return document


def routes_of(application: web.Application) -> set[tuple[str, str]]:
    """Path and method of every route but the refusals, the second spellings with a slash, and HEAD beside GET."""
    found = set()
    for route in application.router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if route.method not in ("*", "HEAD") and (path == "/" or not path.endswith("/")):
            found.add((path, route.method.lower()))
    return found


@pytest.mark.parametrize("keys", [None, ring()], ids=["no keys", "keys"])
async def test_every_route_is_described_and_nothing_else(keys: KeyRing | None) -> None:
    """The document is valid OpenAPI 3.1; its paths and methods are the application's, with the admin routes exactly
    where they are."""
    async with listening(ServerLimits(), keys=keys) as edge:
        document = await fetched(edge)
        described = {(path, method) for path, methods in document["paths"].items() for method in methods}
        assert described == routes_of(app.build(edge.server))
    validate(document)
    assert ("/admin/models/{name}/swap" in document["paths"]) is (keys is not None)


async def test_keys_are_described_where_there_are_any(edge: Edge) -> None:
    """Three ways to send one, 401 on every route that needs one, and none of that on a server without keys."""
    assert "securitySchemes" not in json.dumps(await fetched(edge))
    async with listening(ServerLimits(), keys=ring()) as keyed:
        document = await fetched(keyed)
    assert document["security"] == [{"bearer": []}, {"x-api-key": []}, {"x-goog-api-key": []}]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            is_open = operation.get("security") == []
            assert is_open is (path in app.access.OPEN), path
            assert ("401" in operation["responses"]) is not is_open, path


async def test_the_limits_are_those_of_the_server() -> None:
    """A generator of clients or of requests learns the numbers that this server has."""
    measures = ServerLimits(questions=3, question_id_chars=5, options=4, option_name_chars=7, levels=2)
    async with listening(measures) as edge:
        schemas = (await fetched(edge))["components"]["schemas"]
    questions = schemas["SystemOneRequest"]["properties"]["questions"]
    assert (questions["maxProperties"], questions["propertyNames"]["maxLength"]) == (3, 5)
    assert schemas["OpenAIRequest"]["properties"]["questions"]["maxItems"] == 3
    assert (schemas["Options"]["maxProperties"], schemas["Options"]["propertyNames"]["maxLength"]) == (4, 7)
    assert schemas["Levels"]["maxItems"] == 2
    assert schemas["Limits"]["examples"] == [measures.report()]
    assert openapi.describe(ServerLimits(), keys=False)["components"]["schemas"]["Levels"]["maxItems"] == 10


ERRORS: list[RequestError] = [
    errors.InvalidRequest.at(("state",), "it is not there", "missing"),
    errors.HostDied("the host died", dispatched=True, retry_after=1),
    errors.HostLost("the host is lost", dispatched=False, retry_after=9),
    *(
        kind("it is so")
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, RequestError)
        and not issubclass(kind, (errors.InvalidRequest, errors.HostDied, errors.Unauthenticated, errors.Forbidden))
    ),
]
"""One of each that a decision may end with. Keys are looked at before there is a dialect, and orders have none."""


@pytest.mark.parametrize(
    ("path", "dialects"),
    [
        ("/v1/systemone", [systemone]),
        ("/api/v1/systemone", [openrouter]),
        ("/v1/decisions", [openai, perplexity, gemini]),
        ("/v1beta/decisions", [gemini]),
    ],
)
def test_every_error_of_a_dialect_is_declared(path: str, dialects: list[Dialect]) -> None:
    """Whatever a decision ends with: status, headers and body are in the document, which has no status besides."""
    document = openapi.describe(ServerLimits(), keys=False)
    responses = document["paths"][path]["post"]["responses"]
    seen = {200, 417}  # the answer, and what HTTP has for an Expect
    for dialect in dialects:
        for error in ERRORS:
            status, body, headers = dialect.render_error(error)
            declared = responses[str(status)]
            assert set(headers) == {"Retry-After"} & {name.title() for name in declared["headers"]}
            schema = {**declared["content"]["application/json"]["schema"], "components": document["components"]}
            Draft202012Validator(schema).validate(body)
            seen.add(status)
    assert {str(status) for status in seen} == set(responses)


async def test_a_response_that_is_not_declared_is_noticed(edge: Edge) -> None:
    """The check behind every test of this folder sees a status and a body that the document does not have."""
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    del edge.declared.document["paths"]["/healthz"]["get"]["responses"]["200"]
    await edge.ask(request)
    assert edge.declared.problems == ["GET /healthz: 200 is not declared"]
    edge.declared.document["components"]["schemas"]["Health"]["required"] = ["colour"]
    await edge.ask(request.replace(b"healthz", b"health"))
    assert "'colour' is a required property" in edge.declared.problems[1]
    edge.declared.problems.clear()
