"""Compares responses of a main port with what its document at /openapi.json says of them."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web
from jsonschema import Draft202012Validator

from frontend.http import names, openapi
from frontend.serving.server import Server


class Declared:
    """Looks at every response of an application; what the document does not have is in `problems`.

    Statuses, headers that are required, media types, and the bodies of JSON.
    """

    def __init__(self, server: Server, application: web.Application) -> None:
        self.document = openapi.describe(
            server.limits, keys=server.keys is not None, names_checked=application.get(names.CHECKED, False)
        )
        self.problems: list[str] = []
        application.on_response_prepare.append(self._look)

    async def _look(self, request: web.Request, response: web.StreamResponse) -> None:
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical.rstrip("/") or "/"
        operation = self.document["paths"].get(path, {}).get(request.method.lower())
        if operation is not None:
            problem = self._problem(operation, response)
            if problem:
                self.problems.append(f"{request.method} {path}: {problem}")

    def _problem(self, operation: dict[str, Any], response: web.StreamResponse) -> str:
        declared = operation["responses"].get(str(response.status))
        if declared is None:
            return f"{response.status} is not declared"
        for name, header in declared["headers"].items():
            required = self._resolved(header).get("required", False)
            if required and name not in response.headers:
                return f"{response.status} has no header {name}"
        content = declared["content"].get(response.content_type)
        if content is None:
            return f"{response.status} with {response.content_type} is not declared"
        if response.content_type != "application/json" or not isinstance(response, web.Response):
            return ""
        assert isinstance(response.body, bytes)
        schema = {**content["schema"], "components": self.document["components"]}
        found = next(Draft202012Validator(schema).iter_errors(json.loads(response.body)), None)
        return "" if found is None else f"{response.status}: {found.message}"

    def _resolved(self, header: dict[str, Any]) -> dict[str, Any]:
        name = header["$ref"].removeprefix("#/components/headers/")
        resolved: dict[str, Any] = self.document["components"]["headers"][name]
        return resolved
