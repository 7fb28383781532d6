"""The page for people at /, and what it shows of the processes at /status.

The page is three files without a build step and without anything from elsewhere; the policy it is sent with forbids
the browser everything that it does not do. With API keys the page itself needs none, and asks for one: what it shows
comes from routes that do. Nothing at /status is secret to a client that may ask: states, counts and how processes
ended, no output of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web

from frontend.http import routes
from frontend.runtime.admission import AdmissionStatistics
from frontend.serving.statistics import DeploymentStatistics

STATIC: Final = Path(__file__).with_name("static")

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: scripts, styles and requests of this origin alone; no frames around it or in it."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # An operator who updates the server is to see its page, and not the one of the last version.
    hdrs.CACHE_CONTROL: "no-cache",
}

SERVICE: Final = {
    "service": "framehost",
    "decisions": "POST /v1/systemone",
    "also": [
        "POST /v1/decisions",
        "GET /v1/models",
        "GET /health",
        "GET /healthz",
        "GET /status",
        "GET /metrics",
        "GET /openapi.json",
    ],
}
"""What / says to a program."""


def _file(name: str, content_type: str) -> routes.Handler:
    content = (STATIC / name).read_bytes()

    async def send(request: web.Request) -> web.Response:
        return routes.respond(request, content, content_type, headers=HEADERS)

    return send


script = _file("page.js", "text/javascript; charset=utf-8")
style = _file("page.css", "text/css; charset=utf-8")
_page = _file("page.html", "text/html; charset=utf-8")


async def index(request: web.Request) -> web.StreamResponse:
    """GET /: the page for a browser, a few words of JSON for a program."""
    if "text/html" in request.headers.get(hdrs.ACCEPT, ""):
        response = await _page(request)
    else:
        response = routes.json_response(request, SERVICE)
    response.headers[hdrs.VARY] = hdrs.ACCEPT
    return response


async def status(request: web.Request) -> web.Response:
    """GET /status: models, hosts, queues and recent deaths, for the page and for programs. Asks no host."""
    server = request.app[routes.SERVER]
    report = await server.ask_supervisor()
    deployments = [deployment.statistics() for deployment in server.deployments.values()]
    hosts: list[Mapping[str, Any]] = [] if report is None else report["hosts"]
    document = {
        "status": server.health()[1]["status"],
        "uptime_s": 0.0 if report is None else report["uptime_s"],
        "default": server.default,
        "requests": {
            "open": server.requests.statistics().open,
            "ended": server.requests.statistics().ended,
        },
        "ingress": _bound(server.ingress.statistics()),
        "front_restarts": 0 if report is None else report["front_process"]["restarts"],
        "models": [_model(deployment, hosts) for deployment in deployments],
        "deaths": [] if report is None else list(reversed(report["deaths"])),
    }
    return routes.json_response(request, document)


def _model(statistics: DeploymentStatistics, hosts: list[Mapping[str, Any]]) -> dict[str, Any]:
    scheduler = statistics.scheduler
    return {
        "name": statistics.name,
        "family": statistics.family,
        "state": statistics.availability,
        "queue": {
            "waiting": scheduler.waiting,
            "running": scheduler.running,
            "abandoned": scheduler.abandoned,
        },
        "completed": scheduler.completed,
        "failed": scheduler.failed,
        "bounds": [
            {**_bound(layer), "name": layer.name.removeprefix(f"{statistics.name} ")} for layer in statistics.admissions
        ],
        "hosts": [_host(host) for host in hosts if host["model"] == statistics.name],
    }


def _bound(layer: AdmissionStatistics) -> dict[str, Any]:
    cost = layer.cost is not None
    return {
        "name": layer.name,
        "used": layer.held if cost else layer.outstanding,
        "limit": layer.cost if cost else layer.requests,
        "refused": layer.rejected,
    }


def _host(host: Mapping[str, Any]) -> dict[str, Any]:
    progress = host["progress"]
    return {
        "replica": host["replica"],
        "role": host["role"],
        "state": host["state"],
        "rss_bytes": host["rss_bytes"],
        "restarts": host["restarts"],
        "load_s": host["load_s"],
        "progress": None if progress is None else {"stage": progress[0], "fraction": progress[1]},
    }
