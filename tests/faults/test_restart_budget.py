"""Restarts are budgeted: N starts and then an exit status, or a model that is gone while the others serve."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.process.harness import Framehost, configuration, running


def test_a_model_that_never_loads_is_started_as_often_as_configured(runtime: Path) -> None:
    """The first start and two restarts, then exit status 4 with the model and its last words."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "load"}}, restarts=2)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 4
        assert sum("exit status 65 (load failed)" in line and "[toy@" in line for line in server.lines) == 3
        assert "model 'toy' could not be started" in server.log()
        assert "the toy cannot be loaded" in server.lines[-1] or "the toy cannot be loaded" in server.log()


def test_a_configuration_error_is_not_tried_twice(runtime: Path) -> None:
    """Starting again would fail again: one start, exit status 2, and the host's own words."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "configuration"}})
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 2
        assert sum("ended: " in line for line in server.lines) == 1
        assert "starting it again would not help" in server.log()
        assert "the toy's checkpoint is not a checkpoint" in server.log()


def test_one_model_that_cannot_start_stops_the_others_too(runtime: Path) -> None:
    """Every resident model is required before the port opens; a half server is never served."""
    config = configuration(runtime / "c.toml", {"good": {}, "bad": {"fail": "configuration"}})
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 2
        assert "model 'bad' could not be started" in server.log()
        assert "serving" not in server.log()


def died(server: Framehost, times: int) -> bool:
    return sum("ended: killed by SIGKILL" in line for line in server.lines) == times


def kill_host(server: Framehost, model: str) -> None:
    psutil.Process(server.host(model)["pid"]).kill()


def never_ready(runtime: Path) -> dict[str, Any]:
    """A model that is started by the first request, and hangs while it loads."""
    return {"resident": False, "gate": runtime / "never"}


def loading(server: Framehost, model: str) -> None:
    """Wait until a process of the model loads."""
    server.wait(lambda: server.host(model)["state"] == "loading", "it loads")


def test_a_spent_budget_ends_the_queue_and_leaves_the_other_model_alone(runtime: Path) -> None:
    """Requests that wait for a model that was never ready end with 503 at once, not at their deadline."""
    config = configuration(runtime / "c.toml", {"one": never_ready(runtime), "two": {}}, restarts=0)
    with running(runtime, config=config) as server:
        waiting = [server.soon({"tag": tag}, model="one") for tag in "ab"]
        loading(server, "one")
        kill_host(server, "one")
        answers = [request.result(30) for request in waiting]
        assert [answer.status for answer in answers] == [503, 503]
        assert all(answer.headers["retry-after"] for answer in answers)
        assert all("failed" in answer.json["detail"]["message"] for answer in answers)
        health = server.get("/health")
        assert health.status == 200
        assert health.json == {"status": "degraded", "models": {"one": "failed", "two": "ready"}}
        assert server.decide("x", model="two").status == 200
        newcomer = server.decide("x", model="one")
        assert newcomer.status == 503
        assert newcomer.headers["retry-after"] == "5", "as late as we may say: it will not be started again"
        assert "has failed and is not started again" in newcomer.json["detail"]["message"]
        assert server.host("one")["state"] == "failed"
        assert "SIGKILL" in server.host("one")["failed"]
        server.wait(server.idle, "idle")
        assert server.stop() == 0


def test_a_model_that_has_served_never_ends_the_server(runtime: Path) -> None:
    """Without a single restart it is replaced when it dies, and the queue goes on."""
    with running(runtime, config=configuration(runtime / "c.toml", {"one": {}}, restarts=0)) as server:
        for number in (1, 2, 3):
            # Not the same request again: one that ends hosts is refused.
            first = server.soon({"op": "wait", "until": "never", "tag": f"a{number}"})
            server.running("one")
            queued = server.soon({"tag": "b"})
            server.queued(1, "one")
            kill_host(server, "one")
            assert first.result(30).status == 503
            assert queued.result(60).status == 200
            assert died(server, number)
        assert server.host("one")["restarts"] == 3
        assert server.stop() == 0


def test_the_last_model_takes_the_server_along(runtime: Path) -> None:
    """With nothing that could ever serve the exit status is 4, so that whoever restarts on failure acts."""
    config = configuration(runtime / "c.toml", {"one": never_ready(runtime), "two": never_ready(runtime)}, restarts=0)
    with running(runtime, config=config) as server:
        waiting = [server.soon("x", model=model) for model in ("one", "two")]
        loading(server, "one")
        kill_host(server, "one")
        server.line("one", "not started again: restarts = ")
        server.wait(lambda: server.get("/health").json["models"]["one"] == "failed", "health knows")
        loading(server, "two")
        kill_host(server, "two")
        assert server.wait_exit() == 4
        assert [request.result(30).status for request in waiting] == [503, 503]
        assert "no model is left" in server.log()
        assert server.log().splitlines()[-1] == "[framehost] stopped: because of the failure above; exit status 4"


def test_a_front_that_replaces_another_knows_which_models_are_gone(runtime: Path) -> None:
    """A model whose budget is spent stays failed in the eyes of the next front."""
    config = configuration(runtime / "c.toml", {"one": never_ready(runtime), "two": {}}, restarts=1)
    with running(runtime, config=config) as server:
        waiting = server.soon("x", model="one")
        for number in (1, 2):
            loading(server, "one")
            kill_host(server, "one")
            server.wait(partial(died, server, number), "its end")
        assert waiting.result(30).status == 503
        server.wait(lambda: server.get("/health").json["models"]["one"] == "failed", "health knows")
        old = server.front_pid()
        psutil.Process(old).kill()
        server.wait(lambda: server.status()["front_process"]["pid"] != old, "a new front")
        server.wait(lambda: server.status()["front_process"]["serving"], "which serves")
        known = {"status": "degraded", "models": {"one": "failed", "two": "ready"}}
        server.wait(lambda: server.get("/health").json == known, "it knows both")
        answer = server.decide("x", model="one")
        assert answer.status == 503
        assert server.decide("x", model="two").status == 200
