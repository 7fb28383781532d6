"""A host that Ray places. Skipped where Ray is not installed: it is an extra, and `make test-extra` installs it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from protocol.exits import ServeExit
from protocol.transport import keys
from tests.process.harness import running

pytest.importorskip("ray")


@pytest.mark.timeout(300)
def test_a_host_that_ray_places_serves_dies_and_comes_back(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers like any other; when its actor is killed the request gets 503 and the next actor is placed; a stop
    takes everything along that Ray has started."""
    monkeypatch.setattr("tests.process.harness.GUARD_S", 120.0)
    keys.create(runtime, "server")
    file = runtime / "framehost.toml"
    file.write_text(
        f"""
[hosts]
listen = "127.0.0.1:0"
key = "{runtime / "server.key_secret"}"
[models.judge]
family = "toy"
[models.judge.ray]
address = "local"
num_cpus = 1
"""
    )
    # Ray's own processes warn about themselves.
    with running(runtime, config=file, environment={"PYTHONWARNINGS": "default"}) as server:
        before = server.host("judge")["incarnation"]
        actor = server.decide({"tag": "a"}).json["x_toy"]["pid"]
        until = runtime / "until"
        lost = server.soon({"op": "wait", "until": str(until)})
        server.running()
        os.kill(actor, signal.SIGKILL)
        assert lost.result(120).status == 503
        server.wait(lambda: server.host("judge")["incarnation"] != before, "the next actor")
        server.wait(lambda: server.decide({"tag": "b"}).status == 200, "an answer")
        family = server.family()
        assert server.stop() == ServeExit.CLEAN
        server.wait(lambda: not any(process.is_running() for process in family), "the end of everything")
