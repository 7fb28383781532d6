"""Nothing grows: after thousands of requests with every kind of end, an idle server is an idle server."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

import psutil

from tests.process.harness import QUESTION, Framehost, configuration, running

REQUESTS = 2_000
WORKERS = 16
KILL_AT = (500, 1_200)


def ask(server: Framehost, connection: HTTPConnection, kind: str, number: int) -> int:
    """One request of a kind over a kept connection; its status, 0 when the client left."""
    state: object = {"tag": str(number)}
    headers = {"Content-Type": "application/json"}
    if kind == "expired":
        state, headers["x-framehost-timeout-ms"] = {"op": "hold_gil", "seconds": 0.002}, "1"
    elif kind == "failed":
        state = {"op": "raise"}
    elif kind == "refused":
        state = {"op": "refuse"}
    elif kind == "units":
        state = {"units": [{"tag": str(number)}] * 3}
    elif kind == "gone":
        server.open_request({"op": "hold_gil", "seconds": 0.002}).close()
        return 0
    body = b"{" if kind == "invalid" else json.dumps({"state": state, "questions": QUESTION}).encode()
    connection.request("POST", "/v1/systemone", body, headers)
    response = connection.getresponse()
    content = response.read()
    if kind == "ok" and response.status == 200:
        assert json.loads(content)["x_toy"]["tag"] == str(number), "an answer of somebody else"
    return response.status


EXPECTED = {
    "ok": {200, 503},
    "units": {200, 503},
    "expired": {504, 200, 503},
    "failed": {500, 503},
    "refused": {400, 503},
    "invalid": {422},
    "gone": {0},
}


def test_two_thousand_mixed_requests_leave_nothing(runtime: Path) -> None:
    """Answered, cancelled, expired, failed, refused, and the host killed twice: then everything is at zero."""
    random.seed(7)
    weights = {"ok": 60, "units": 8, "expired": 8, "failed": 6, "refused": 5, "invalid": 5, "gone": 8}
    kinds = random.choices(list(weights), list(weights.values()), k=REQUESTS)
    config = configuration(runtime / "c.toml", {"toy": {}}, restarts=10)
    with running(runtime, config=config) as server:
        front = psutil.Process(server.front_pid())
        numbers = iter(range(REQUESTS))
        lock, statuses = threading.Lock(), Counter[tuple[str, int]]()
        wrong: list[tuple[str, object]] = []

        def work() -> None:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
            try:
                while True:
                    with lock:
                        number = next(numbers, None)
                        if number in KILL_AT:
                            psutil.Process(server.host()["pid"]).kill()
                    if number is None:
                        return
                    kind = kinds[number]
                    status = ask(server, connection, kind, number)
                    with lock:
                        statuses[kind, status] += 1
                        if status not in EXPECTED[kind]:
                            wrong.append((kind, status))
            except BaseException as error:
                wrong.append(("a client", repr(error)))
            finally:
                connection.close()

        workers = [threading.Thread(target=work) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not wrong, (wrong[:5], statuses)
        assert statuses["ok", 200] > REQUESTS // 4, statuses
        assert server.host()["restarts"] == len(KILL_AT)

        server.wait(server.idle, "idle")
        report = server.status()["front"]
        # A client that leaves fast enough was never a request.
        assert 0 <= REQUESTS - sum(report["requests"]["ended"].values()) <= kinds.count("gone")
        model = report["models"]["toy"]
        scheduler = model["scheduler"]
        assert not scheduler["suspended"]
        assert not scheduler["held_for_earlier_front"]
        assert scheduler["abandoned"] == 0
        assert model["link"]["outstanding"] == model["link"]["cancelling"] == 0
        assert model["link"]["unknown"] == 0
        assert all(layer["overage_requests"] == layer["overage_cost"] == 0 for layer in model["admissions"])
        server.wait(lambda: front.num_fds() < 60, "the descriptors of all connections are closed")
        assert server.decide({"tag": "after"}).json["x_toy"]["tag"] == "after"
        assert server.stop() == 0
