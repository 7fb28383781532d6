"""The audit log of a real server: its lines are in the file when the server has stopped."""

from __future__ import annotations

import json
from pathlib import Path

from tests.process.harness import configuration, running


def test_a_server_that_stops_has_noted_what_it_answered(runtime: Path) -> None:
    """In the file of the configuration, a line each."""
    file = runtime / "audit.jsonl"
    with running(runtime, config=configuration(runtime / "c.toml", {"toy": {}}, audit=str(file))) as server:
        assert server.decide("a secret").status == 200
        assert server.decide("another secret").status == 200
        assert server.stop() == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["model"] for line in lines] == ["toy", "toy"]
    assert len({line["digest"] for line in lines}) == 2
    assert "secret" not in file.read_text()
