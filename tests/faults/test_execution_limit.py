"""A host hangs. After its limit its stacks are taken, it is killed, and the queue goes on with the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.harness import Framehost, configuration, received, running, tagged

LIMIT_S = 1.5


def limited(runtime: Path, **fields: Any) -> Path:
    return configuration(runtime / "c.toml", {"toy": {"execution_limit": LIMIT_S, **fields}})


@pytest.mark.parametrize(
    ("state", "traced"),
    [
        ({"op": "backtrack"}, True),
        ({"op": "wait", "until": "never"}, True),
        ({"op": "deaf", "until": "never"}, False),
    ],
    ids=["holding the interpreter lock", "sleeping", "ignoring every signal"],
)
def test_a_unit_beyond_the_limit_costs_its_own_request_and_no_other(
    runtime: Path, state: dict[str, Any], traced: bool
) -> None:
    """503 at the kill for the one that was executing; the queue is answered in order by the next incarnation, and
    the death report says why and where the host was."""
    mark = runtime / "mark"
    with running(runtime, config=limited(runtime)) as server:
        stuck = server.soon({**state, "tag": "a", "mark": str(mark)})
        server.wait(lambda: tagged(mark) == ["a"], "the unit runs")
        old = server.host()["pid"]
        waiting = []
        for number, tag in enumerate("bc", 1):
            waiting.append(server.soon({"tag": tag, "mark": str(mark)}))
            server.queued(number)
        answer = stuck.result(30)
        assert answer.status == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert "was being executed" in answer.json["detail"]["message"]
        answers = [request.result(30) for request in waiting]
        assert [answer.status for answer in answers] == [200, 200]
        assert old not in {answer.json["x_toy"]["pid"] for answer in answers}
        assert tagged(mark) == ["a", "b", "c"], "nothing ran twice"
        death = server.host()["last_death"]
        assert "killed by SIGKILL by framehost" in death
        assert "execution limit is 1.5 s" in death
        if traced:
            assert "in execute" in death
            assert "toy_host.py" in death
        else:
            assert "stacks did not come" in death
        assert server.model()["last_death"] == death, "the front knows as well"
        assert server.host()["restarts"] == 1
        server.wait(server.idle, "idle")


def test_a_stopped_host_is_ended_after_the_limit(runtime: Path) -> None:
    """SIGSTOP: it can neither answer nor show its stacks, and SIGKILL still ends it. A unit that it held gets 503; one
    that it never took is answered by the next."""
    mark = runtime / "mark"
    with running(runtime, config=limited(runtime)) as server:
        host = psutil.Process(server.host()["pid"])
        held = server.soon({"op": "wait", "until": "never", "tag": "a", "mark": str(mark)})
        server.wait(lambda: tagged(mark) == ["a"], "the unit runs")
        host.suspend()
        assert held.result(30).status == 503
        server.line("it is stopped (SIGSTOP")
        server.wait(lambda: server.model()["availability"] == "ready", "the next one")
        idle = psutil.Process(server.host()["pid"])
        idle.suspend()
        server.wait(lambda: idle.status() == psutil.STATUS_STOPPED, "it is stopped")
        answer = server.decide({"tag": "b", "mark": str(mark)})
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] not in (host.pid, idle.pid)
        assert tagged(mark) == ["a", "b"]
        assert "execution limit" in server.host()["last_death"]


def test_the_unit_of_a_dead_front_has_a_limit_too(runtime: Path) -> None:
    """The next front finds the host at work for nobody, and counts from then."""
    mark = runtime / "mark"
    with running(runtime, config=limited(runtime)) as server:
        orphan(server, mark, {"op": "wait", "until": "never"})
        answer = server.decide({"tag": "new", "mark": str(mark)})
        assert answer.status == 200
        assert tagged(mark) == ["old", "new"]
        assert "execution limit" in server.host()["last_death"]


def test_a_host_that_cannot_say_hello_to_a_new_front_is_ended(runtime: Path) -> None:
    """The unit of the dead front holds the interpreter lock, so the next front is not even welcomed."""
    mark = runtime / "mark"
    with running(runtime, config=limited(runtime)) as server:
        orphan(server, mark, {"op": "backtrack"})
        server.line("execution limit is")
        server.wait(lambda: server.get("/health").status == 200, "the next incarnation is ready")
        assert server.decide({"tag": "new"}).status == 200
        assert server.host()["restarts"] == 1


def orphan(server: Framehost, mark: Path, state: dict[str, Any]) -> None:
    """Have a unit run whose front is dead, and wait for the next front."""
    lost = server.open_request({**state, "tag": "old", "mark": str(mark)})
    server.wait(lambda: tagged(mark) == ["old"], "the old unit runs")
    old = server.front_pid()
    psutil.Process(old).kill()
    assert received(lost) == b""

    def serves() -> bool:
        process = server.status()["front_process"]
        return bool(process["pid"] != old and process["serving"])

    server.wait(serves, "a new front serves")


def test_a_load_that_hangs_ends_at_its_limit_and_says_where(runtime: Path) -> None:
    """Only with a load_limit: the stacks are taken, the host is killed, and the restart policy decides."""
    gate = runtime / "gate"
    config = configuration(runtime / "c.toml", {"toy": {"gate": gate, "load_limit": 4}, "other": {}}, restarts=0)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 4
        assert "it was not ready within its load limit of 4 s" in server.log()
        assert "in load" in server.log()
        assert "serving" not in server.log()
        final = "could not be started: killed by SIGKILL by framehost: it was not ready within its load limit of 4 s"
        assert any(line.endswith(final) for line in server.lines), "no line of the stacks is in the reason"
