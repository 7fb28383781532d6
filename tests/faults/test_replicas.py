"""Several hosts of one model: each has its own queue, the least loaded one is asked, and one death is one death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from tests.process.harness import Framehost, configuration, running


def replicas(server: Framehost) -> list[dict[str, Any]]:
    """The front's view of each replica."""
    found: list[dict[str, Any]] = server.model("toy")["replicas"]
    return found


def waiting(server: Framehost) -> list[int]:
    return [replica["scheduler"]["waiting"] for replica in replicas(server)]


def busy(server: Framehost) -> list[int]:
    return [replica["scheduler"]["running"] for replica in replicas(server)]


def test_requests_go_to_the_least_loaded_and_a_death_is_the_affair_of_one(runtime: Path) -> None:
    """Two work at once; when one is killed its unit fails and its queue waits for its next incarnation, while the
    other goes on and takes all newcomers."""
    until, gate = runtime / "until", runtime / "gate"
    gate.touch()
    config = configuration(runtime / "c.toml", {"toy": {"replicas": 2, "gate": gate}})
    with running(runtime, config=config) as server:
        hosts = server.status()["hosts"]
        assert [(host["deployment"], host["replica"], host["state"]) for host in hosts] == [
            ("toy@1", 0, "ready"),
            ("toy@1", 1, "ready"),
        ]
        pids = [host["pid"] for host in hosts]
        work = [server.soon({"op": "wait", "until": str(until)}) for _ in range(2)]
        server.wait(lambda: busy(server) == [1, 1], "one unit at each")
        queued = [server.soon({"op": "echo"}) for _ in range(2)]
        server.wait(lambda: waiting(server) == [1, 1], "one behind each")
        gate.unlink()
        psutil.Process(pids[0]).kill()
        server.line("[toy@1", "ended: killed by SIGKILL")
        server.wait(lambda: replicas(server)[0]["availability"] == "restarting", "one is gone")
        assert busy(server) == [0, 1]
        assert waiting(server) == [1, 1], "its queue keeps its place"
        assert server.get("/health").json["models"] == {"toy": "ready"}, "one that is ready is enough"
        newcomer = server.soon({"op": "echo"})
        server.wait(lambda: waiting(server) == [1, 2], "newcomers go to the living one, however short the other queue")
        until.touch()
        assert newcomer.result(30).json["x_toy"]["pid"] == pids[1]
        assert sorted(request.result(30).status for request in work) == [200, 503]
        server.wait(lambda: sum(waiting(server)) == 1, "the queue of the dead one waits")
        gate.touch()
        assert {request.result(30).status for request in queued} == {200}
        assert {request.result(30).json["x_toy"]["pid"] for request in queued} - {pids[1]} != set()
        server.wait(server.idle, "idle")
        assert server.host("toy")["restarts"] == 1


def test_all_units_of_a_request_go_to_one_replica_and_equals_take_turns(runtime: Path) -> None:
    """A family's second unit may count on what its host did with the first; idle replicas share the work."""
    with running(runtime, config=configuration(runtime / "c.toml", {"toy": {"replicas": 2}})) as server:
        calls = [server.decide({"units": [{"op": "echo"}] * 3}).json["x_toy"]["calls"] for _ in range(4)]
        # Each host counts what it has executed, its warm-up excepted: three at each, then six.
        assert calls == [3, 3, 6, 6]


def test_replicas_are_swapped_together(runtime: Path) -> None:
    """The new deployment has as many; all old processes are gone."""
    with running(runtime, config=configuration(runtime / "c.toml", {"toy": {"replicas": 2}})) as server:
        old = [host["pid"] for host in server.status()["hosts"]]
        status, told = server.swap("toy=toy")
        assert status == 0, told
        assert not any(map(psutil.pid_exists, old))
        assert {(host["deployment"], host["replica"]) for host in server.status()["hosts"]} == {
            ("toy@2", 0),
            ("toy@2", 1),
        }
        assert server.decide("x").status == 200


def test_a_spare_takes_over_from_a_host_that_dies_and_another_one_is_loaded(runtime: Path) -> None:
    """It was loaded and warm before: the queue goes on with it, and what is loaded then is the next spare. Its load
    hangs here, and nobody waits for it."""
    gate = runtime / "gate"
    gate.touch()
    config = configuration(runtime / "c.toml", {"toy": {"spare": True, "gate": gate}})
    with running(runtime, config=config) as server:

        def hosts() -> dict[bool, dict[str, Any]]:
            return {host["spare"]: host for host in server.status()["hosts"]}

        server.wait(lambda: hosts()[True]["state"] == "ready", "the spare is warm")
        old, spare = hosts()[False]["pid"], hosts()[True]["pid"]
        gate.unlink()
        for _ in range(2):
            assert server.decide("x").json["x_toy"]["pid"] == old
        running_unit = server.soon({"op": "wait", "until": "never"})
        server.running()
        queued = server.soon("x")
        server.queued(1)
        psutil.Process(old).kill()
        assert running_unit.result(30).status == 503
        assert queued.result(30).json["x_toy"]["pid"] == spare
        server.wait(lambda: hosts()[True]["state"] == "loading", "the next spare loads")
        assert (hosts()[False]["restarts"], hosts()[True]["restarts"]) == (1, 0), "counted for the replica"
        gate.touch()
        server.wait(lambda: hosts()[True]["state"] == "ready", "the next spare is warm")
        third = hosts()[True]["pid"]
        psutil.Process(third).kill()
        server.wait(lambda: hosts()[True]["pid"] not in (0, third), "a spare that dies is replaced")
        assert server.decide("x").json["x_toy"]["pid"] == spare, "and the front never hears of it"
        assert server.stop() == 0
