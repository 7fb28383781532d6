"""A process is there and does not answer: the front's loop stands still, a host's control thread hangs."""

from __future__ import annotations

import time
from pathlib import Path

from tests.faults.test_probes import Probe
from tests.process.harness import configuration, received, running, tagged


def test_a_front_whose_loop_stands_still_is_replaced_over_warm_hosts(runtime: Path) -> None:
    """It is unready soon; after front_limit its stacks are in the log, it is killed, and the next one serves with the
    same hosts. One that hangs, too, for which nobody has counted meanwhile, has its limit from then on."""
    mark = runtime / "mark"
    models = {"toy": {}, "stuck": {"execution_limit": 3}}
    config = configuration(runtime / "c.toml", models, front_limit=4, health="127.0.0.1:0")
    with running(runtime, config=config) as server:
        probe = Probe(server)
        host, stuck = server.host("toy")["pid"], server.host("stuck")["pid"]
        server.open_request({"op": "wait", "until": "never", "tag": "a", "mark": str(mark)}, model="stuck")
        server.wait(lambda: tagged(mark) == ["a"], "the unit runs")
        lost = server.open_request("hang the front", model="toy")
        server.wait(lambda: probe.codes() == [200, 200, 503], "it is not ready")
        assert "it is killed" not in server.log(), "nor is it ended yet"
        assert received(lost) == b"", "its client is not left waiting for ever"
        answer = server.decide("x", model="toy")
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] == host
        answer = server.decide({"tag": "b", "mark": str(mark)}, model="stuck")
        assert (answer.status, tagged(mark)) == (200, ["a", "b"])
        assert answer.json["x_toy"]["pid"] != stuck
        assert "its execution limit is 3 s" in server.host("stuck")["last_death"]
        death = server.status()["front_process"]["last_death"]
        assert "killed by SIGKILL by framehost: no answer for" in death
        assert "toy_front.py" in death
        assert "in prepare" in death


def test_a_wedged_control_thread_is_seen_and_costs_no_request_and_no_clean_stop(runtime: Path) -> None:
    """The data lane goes on, status says for how long the other one has been silent, and SIGTERM reaches the host."""
    closed = runtime / "closed"
    with running(runtime) as server:
        pid = server.host()["pid"]
        assert server.decide({"op": "wedge", "closed": str(closed)}).status == 200
        server.wait(lambda: server.host()["silent_s"] > 0.5, "the silence is seen")
        assert server.decide("x").json["x_toy"]["pid"] == pid
        assert server.stop() == 0
        assert closed.exists(), "the host ended by itself"


def test_what_was_frozen_for_longer_than_its_limits_goes_on_where_it_was(runtime: Path) -> None:
    """A paused container: every process stands still in the middle of a unit. After the thaw the unit is answered, and
    neither the host nor the front has been ended for what it could not do."""
    until = runtime / "until"
    config = configuration(runtime / "c.toml", {"toy": {"execution_limit": 5}}, front_limit=5)
    with running(runtime, config=config) as server:
        host, front = server.host()["pid"], server.front_pid()
        unit = server.soon({"op": "wait", "until": str(until)})
        server.running()
        frozen = time.monotonic()
        processes = server.family()
        for process in processes:
            process.suspend()
        server.wait(lambda: time.monotonic() - frozen > 8, "longer than the limits")
        for process in processes:
            process.resume()
        thawed = time.monotonic()
        server.wait(lambda: time.monotonic() - thawed > 1, "the watchers have looked")
        assert server.idle() is False, "they answer, and the unit runs"
        until.touch()
        assert unit.result(30).json["x_toy"]["pid"] == host
        assert (server.host()["pid"], server.front_pid()) == (host, front)
