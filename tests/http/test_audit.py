"""What the audit log has of a request: who asked, which weights answered, what won; and nothing of the state."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from frontend.observation.audit import AuditLog
from tests.http.main_port import QUESTION, Main, main_port


async def test_an_answered_decision_has_a_line_without_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is of the body; a request that is refused has none."""
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    async with main_port(monkeypatch, audit=log) as main:
        body = json.dumps({"state": "a secret", "questions": QUESTION}).encode()
        response = await asked(main, body)
        assert (await main.post("cost:11")).status == 413
        samples = await main.scrape()
        assert ("framehost_audit_lines_total", "lost") in samples
        identity = main.deployment.identity
    log.close(60.0)
    text = file.read_text()
    (line,) = map(json.loads, text.splitlines())
    assert "secret" not in text
    assert line.pop("time") > 0
    yes = response["answers"]["q"]["noul"]
    assert line == {
        "request_id": "r-1",
        "key": None,
        "model": "m",
        "identity": identity,
        "digest": hashlib.sha256(body).hexdigest(),
        "answers": [{"id": "q", "winner": yes >= 0.5, "probability": max(yes, 1 - yes)}],
    }


async def asked(main: Main, body: bytes) -> dict[str, dict[str, dict[str, float]]]:
    headers = {"content-type": "application/json", "x-request-id": "r-1"}
    posted = asyncio.create_task(main.client.post(f"{main.url}/v1/systemone", data=body, headers=headers))
    main.host.answer((await main.host.unit()).call)
    response = await posted
    assert response.status == 200
    found: dict[str, dict[str, dict[str, float]]] = await response.json()
    return found


async def test_without_an_audit_log_nothing_is_counted(main: Main) -> None:
    """The metric is there all the same, so that an alert about it needs no case for that."""
    await main.answered()
    samples = await main.scrape()
    assert samples["framehost_audit_lines_total", "written"] == samples["framehost_audit_lines_total", "lost"] == 0
