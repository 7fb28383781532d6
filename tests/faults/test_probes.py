"""An orchestrator probes from the first moment: a long load is not a death, a dead front is not ready."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import psutil

from tests.process.harness import GUARD_S, Framehost, configuration, running


class Probe:
    """The health address of a server."""

    def __init__(self, server: Framehost) -> None:
        address = server.line("probes are answered at http://").split("http://")[1]
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=GUARD_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def codes(self) -> list[int]:
        """Of live, started, ready."""
        return [self.ask(path)[0] for path in ("/livez", "/startupz", "/readyz")]


def test_probes_tell_loading_from_ready_and_from_a_front_that_is_gone(runtime: Path) -> None:
    """Live from the first moment; started with the port; ready with a model and a front; live to the end."""
    gate, until = runtime / "gate", runtime / "until"
    config = configuration(runtime / "c.toml", {"toy": {"gate": gate}}, health="127.0.0.1:0")
    with running(runtime, config=config, wait=False) as server:
        probe = Probe(server)
        server.line("toy", "loading")
        server.wait(lambda: probe.ask("/startupz")[1].get("progress") == 0.5, "the progress")
        assert probe.codes() == [200, 503, 503]
        status, body = probe.ask("/startupz")
        assert (status, body["status"], body["models"]) == (503, "starting", {"loading": 1})
        assert "toy" not in json.dumps(body)
        gate.touch()
        server.opened()
        assert probe.codes() == [200, 200, 200]
        assert server.status()["health"] == f"http://127.0.0.1:{probe.port}"
        front = server.front_pid()
        psutil.Process(front).kill()
        server.line("[front]", "ended")
        server.wait(lambda: probe.ask("/readyz")[0] == 200, "the next front")
        gate.unlink()
        psutil.Process(server.host()["pid"]).kill()
        server.wait(lambda: probe.codes() == [200, 200, 503], "the host is gone and the next one loads")
        gate.touch()
        server.wait(lambda: probe.ask("/readyz")[0] == 200, "ready again")
        server.soon({"op": "wait", "until": str(until)})
        server.running()
        server.process.terminate()
        server.line("stopping")
        assert probe.codes() == [200, 200, 503]
        until.touch()
        assert server.wait_exit() == 0


def test_a_health_address_that_is_taken_stops_the_start(runtime: Path) -> None:
    """Two servers must not answer for each other: exit status 3, and the address is named."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(runtime, wait=False, arguments=["--health", f"127.0.0.1:{port}"]) as server:
            assert server.wait_exit() == 3
            assert "the health address" in server.log()
            assert str(port) in server.log()
