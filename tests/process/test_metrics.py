"""What the metrics and the log of a real server say after its processes have died and a unit has failed."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.process.harness import Framehost, configuration, running


def sample(server: Framehost, name: str, **labels: str) -> float:
    """One number of a scrape."""
    text = server.get("/metrics").body.decode()
    (value,) = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return value


def test_restarts_are_the_supervisors_and_outlive_a_front(runtime: Path) -> None:
    """One host and one front have died: the new front says so, and counts its own requests from none."""
    with running(runtime) as server:
        assert server.decide("x").status == 200
        assert sample(server, "framehost_host_restarts_total", model="toy", replica="0") == 0
        assert sample(server, "framehost_host_resident_memory_bytes", model="toy", replica="0") > 2**20
        psutil.Process(server.host()["pid"]).kill()
        server.wait(lambda: server.host()["restarts"] == 1 and server.host()["state"] == "ready", "a second host")
        psutil.Process(server.front_pid()).kill()
        assert server.decide("x").status == 200
        assert sample(server, "framehost_front_restarts_total") == 1
        assert sample(server, "framehost_host_restarts_total", model="toy", replica="0") == 1
        labels = {"model": "toy", "dialect": "systemone", "outcome": "answered", "status": "200"}
        assert sample(server, "framehost_requests_total", **labels) == 1
        server.wait(lambda: b"framehost_host_busy_seconds" in server.get("/metrics").body, "the host has answered")


def test_a_failed_unit_has_its_requests_id_in_the_hosts_log(runtime: Path) -> None:
    """The line before the trace names it, and the front's line of the request has the same."""
    with running(runtime, arguments=["--access-log"]) as server:
        assert server.decide({"op": "raise"}, x_request_id="find-me").status == 500
        assert server.line("toy", "request find-me failed (executor_error)")
        assert "status=500 dialect=systemone model=toy" in server.line("framehost.access", "request_id=find-me")


class Collector(BaseHTTPRequestHandler):
    """Keeps what is sent to it."""

    received: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        self.received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_spans_reach_a_collector_at_the_latest_with_the_stop(runtime: Path) -> None:
    """The environment says where it is; what had not been sent is sent at the end."""
    Collector.received = []
    config = configuration(runtime / "c.toml", {"toy": {}}, tracing=True)
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        with running(runtime, config=config, environment=environment) as server:
            assert server.decide("x", x_request_id="find-me").status == 200
            assert server.stop() == 0
        collector.shutdown()
    ((path, body),) = Collector.received
    assert path == "/v1/traces"
    assert b"find-me" in body
