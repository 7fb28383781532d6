"""GET /v1/sessions and DELETE /v1/sessions/ID: a key's own conversations, what is held of them, and their end.

Where there are no keys, all conversations are everybody's who can connect, as everything else is.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from frontend.http import routes
from frontend.requests.questions import printable
from frontend.serving.conversations import Conversation
from frontend.serving.server import Server


async def listed(request: web.Request) -> web.Response:
    """The conversations of the request's key, the one that was used last at the end."""
    server = request.app[routes.SERVER]
    data = [_described(one, server) for one in _own(request, server)]
    return routes.json_response(request, {"object": "list", "data": data})


async def end(request: web.Request) -> web.Response:
    """Forget a conversation, with every model that has one of this name; what a turn of it holds goes with the turn."""
    server = request.app[routes.SERVER]
    name = request.match_info["name"].removesuffix("/")
    found = [one for one in _own(request, server) if one.id == name]
    if not found:
        return routes.plain_error(request, 404, "not_found_error", f"there is no session {printable(name)!r}")
    for one in found:
        server.devices.conversations.end(one)
    return routes.json_response(request, {"id": name, "object": "session", "deleted": True})


def _own(request: web.Request, server: Server) -> list[Conversation]:
    account = "" if server.keys is None else request[routes.ACCOUNT].name
    return server.devices.conversations.of(account)


def _described(one: Conversation, server: Server) -> dict[str, Any]:
    return {
        "id": one.id,
        "object": "session",
        "model": one.model,
        "turns": one.turns,
        "active": one.active,
        "idle_s": 0.0 if one.active else round(server.loop.time() - one.used, 3),
        "tokens": one.tokens,
        "bytes": one.bytes,
        "lost": one.lost if not one.tokens else "",
    }
