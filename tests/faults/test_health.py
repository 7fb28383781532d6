"""Live, ready, and what they are when the model is busy, loading, restarting or dead."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from frontend.cli.status import NotRunning
from tests.process.harness import Framehost, configuration, running, tagged


def test_probes_answer_while_the_executor_holds_the_interpreter_lock(runtime: Path) -> None:
    """Liveness, readiness and status are answered before the busy request is; nobody is declared dead."""
    mark = runtime / "mark"
    with running(runtime) as server:
        host = server.host()["pid"]
        busy = server.soon({"op": "hold_gil", "seconds": 3, "tag": "a", "mark": str(mark)})
        server.wait(lambda: tagged(mark) == ["a"], "the lock is held")
        alive, ready, one = server.get("/healthz"), server.get("/health"), server.get("/health?model=toy")
        running_now = server.model()["scheduler"]["running"]
        assert not busy.done(), "all of this was answered while the executor held the lock"
        assert alive.status == ready.status == one.status == 200
        assert ready.json == {"status": "ok", "models": {"toy": "ready"}}
        assert running_now == 1
        assert busy.result(30).status == 200
        assert server.host()["pid"] == host
        assert server.host()["restarts"] == 0


def supervisor_port(server: Framehost) -> int:
    """The port of a server that has not opened it yet: from the name of its runtime directory."""
    return int(next(next(server.runtime.glob("framehost-*")).iterdir()).name)


def test_the_port_is_closed_until_every_model_is_warm(runtime: Path) -> None:
    """Connecting is refused while a host loads, also when another one is ready; then everything answers."""
    gate = runtime / "gate"
    config = configuration(runtime / "c.toml", {"quick": {}, "slow": {"gate": gate}})
    with running(runtime, config=config, wait=False) as server:
        server.line("quick", "ready in")
        server.line("slow", "loading")
        port = supervisor_port(server)
        server.url = f"http://127.0.0.1:{port}"
        server.wait(
            lambda: (
                (server.status()["front"] or {"models": {}})["models"].get("quick", {}).get("availability") == "ready"
            ),
            "the front knows one host",
        )
        # A front that was told to open has done so by now: it has answered twice since it learnt of the host.
        assert not server.status()["front_process"]["serving"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        states = {host["model"]: host["state"] for host in server.status()["hosts"]}
        assert states == {"quick": "ready", "slow": "loading"}
        gate.touch()
        server.opened()
        assert server.port == port
        warm = {"status": "ok", "models": {"quick": "ready", "slow": "ready"}}
        server.wait(lambda: server.get("/health").json == warm, "both have said hello to the front")
        assert server.decide("x", model="slow").status == 200


def test_a_port_that_opens_with_the_first_model_answers_for_it_while_others_load(runtime: Path) -> None:
    """Who asks another one waits for it."""
    gate = runtime / "gate"
    config = configuration(runtime / "c.toml", {"quick": {}, "slow": {"gate": gate}}, open="first")
    with running(runtime, config=config) as server:
        assert server.decide("x", model="quick").status == 200
        assert server.get("/health").json == {"status": "degraded", "models": {"quick": "ready", "slow": "loading"}}
        waiting = server.soon("x", model="slow")
        server.wait(lambda: server.model("slow")["waiting_for_host"] == 1, "it waits for the host")
        gate.touch()
        assert waiting.result().status == 200


def test_a_failing_first_decision_is_a_failed_start(runtime: Path) -> None:
    """A warm-up that fails is a death with the restart policy, never a port that opens."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "warm_up"}}, restarts=0)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 4
        assert "the toy's first decision failed" in server.log()
        assert "serving" not in server.log()


def test_a_start_that_fails_once_and_then_works_needs_no_help(runtime: Path) -> None:
    """The failure is not latched: the second incarnation loads and the port opens."""
    there = runtime / "there"
    config = configuration(runtime / "c.toml", {"toy": {"fail": f"until:{there}"}})
    with running(runtime, config=config, wait=False) as server:
        server.line("cannot start: the toy cannot be loaded yet")
        there.touch()
        server.opened()
        assert server.decide("x").status == 200
        assert server.host()["restarts"] >= 1


def test_one_model_down_is_degraded_and_two_are_unavailable(runtime: Path) -> None:
    """Readiness follows the hosts by itself; liveness does not depend on any of them."""
    gates = {name: runtime / name for name in ("one", "two")}
    for gate in gates.values():
        gate.touch()
    config = configuration(runtime / "c.toml", {name: {"gate": gate} for name, gate in gates.items()})
    with running(runtime, config=config) as server:

        def states() -> dict[str, str]:
            found: dict[str, str] = server.get("/health").json["models"]
            return found

        gates["one"].unlink()
        psutil.Process(server.host("one")["pid"]).kill()
        server.wait(lambda: states()["one"] == "restarting", "health knows")
        answer = server.get("/health")
        assert answer.status == 200
        assert answer.json == {"status": "degraded", "models": {"one": "restarting", "two": "ready"}}
        assert server.get("/health?model=one").status == 503
        assert server.get("/health?model=two").status == 200
        assert server.get("/healthz").status == 200
        assert server.decide("x", model="two").status == 200
        gates["two"].unlink()
        psutil.Process(server.host("two")["pid"]).kill()
        server.wait(lambda: states()["two"] == "restarting", "health knows")
        answer = server.get("/health")
        assert answer.status == 503
        assert answer.json["status"] == "unavailable"
        assert int(answer.headers["retry-after"]) >= 1
        assert server.get("/healthz").status == 200
        for gate in gates.values():
            gate.touch()
        server.wait(lambda: server.get("/health").json["status"] == "ok", "both are back")
        assert server.decide("x", model="one").status == 200


def test_status_answers_while_the_server_loads_and_says_when_there_is_none(runtime: Path) -> None:
    """The command line never needs the port: it asks the supervisor, and names what to start when there is none."""
    with running(runtime) as server:
        assert server.status()["hosts"][0]["model"] == "toy"
        assert server.stop() == 0
        with pytest.raises(NotRunning, match="framehost serve"):
            server.status()
