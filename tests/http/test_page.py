"""What a program sees of the page: who gets it, who gets JSON, and what /status says without a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from frontend.http import access, page
from frontend.http.page import HEADERS
from tests.http.main_port import Main
from tests.http.test_metrics import REPORT


async def test_a_browser_gets_the_page_and_a_program_json(main: Main) -> None:
    """By what they accept; a cache is told so."""
    browser = await main.client.get(main.url, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert browser.headers["Content-Type"] == "text/html; charset=utf-8"
    assert HEADERS.items() <= dict(browser.headers).items()
    program = await main.client.get(main.url)
    assert (await program.json())["decisions"] == "POST /v1/systemone"
    assert program.headers["Vary"] == browser.headers["Vary"] == "Accept"
    assert (await main.client.post(main.url)).status == 405


async def test_status_shows_models_queues_bounds_hosts_and_deaths(main: Main) -> None:
    """And of a death how it was, not what the process had printed."""

    async def answer() -> Mapping[str, Any]:
        return REPORT

    main.server.ask_supervisor = answer
    running = asyncio.create_task(main.post("cost:2"))
    unit = await main.host.unit()
    document = await (await main.client.get(f"{main.url}/status")).json()
    (model,) = document["models"]
    assert (model["name"], model["family"], model["state"]) == ("m", "fake", "ready")
    assert model["queue"] == {"waiting": 0, "running": 1, "abandoned": 0}
    assert model["bounds"] == [
        {"name": "requests", "used": 1, "limit": 2, "refused": 0},
        {"name": "cost", "used": 2, "limit": 10, "refused": 0},
    ]
    assert [host["restarts"] for host in model["hosts"]] == [7, 0]
    assert document["deaths"] == [
        {"at": 2.0, "who": "front", "how": "exit status 1"},
        {"at": 1.0, "who": "m", "how": "killed by SIGKILL"},
    ], "the latest first"
    assert "secret words" not in str(document)
    main.host.answer(unit.call)
    await running


async def test_without_a_supervisor_status_shows_what_the_front_knows(main: Main) -> None:
    """A page that says less is better than one that fails."""
    document = await (await main.client.get(f"{main.url}/status")).json()
    assert document["status"] == "ok"
    assert document["models"][0]["hosts"] == document["deaths"] == []


async def test_the_files_of_the_page_need_no_key_and_what_it_shows_does() -> None:
    """Otherwise nobody could enter one, and anybody could look."""
    assert {"/", "/static/page.js", "/static/page.css"} <= access.OPEN
    assert access.OPEN.isdisjoint({"/status", "/metrics", "/v1/models", "/v1/systemone"})


def test_the_page_asks_beside_itself() -> None:
    """No address begins at the root: a proxy may have put the page below a path of its own."""
    for name in ("page.html", "page.js", "page.css"):
        text = (page.STATIC / name).read_text(encoding="utf-8")
        assert re.findall(r"""["'`(]/[a-z]\w*""", text) == [], name
