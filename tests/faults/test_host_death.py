"""A host dies. What was in its hands fails at once, what waits goes on, and everybody learns why."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.process.harness import Framehost, alive, configuration, running, tagged


def gated(runtime: Path, **models: str) -> tuple[Path, Path]:
    """A configuration whose toy loads only while the gate file is there, and the gate, open."""
    gate = runtime / "gate"
    gate.touch()
    models = models or {"toy": "toy"}
    fields = {name: {"family": family, "gate": gate} for name, family in models.items()}
    return configuration(runtime / "c.toml", fields), gate


def kill_host(server: Framehost, model: str | None = None) -> int:
    pid = int(server.host(model)["pid"])
    psutil.Process(pid).kill()
    return pid


def stop_host(server: Framehost) -> psutil.Process:
    """Stop the idle host, so that it takes nothing of what is sent to it from now."""
    host = psutil.Process(int(server.host()["pid"]))
    host.suspend()
    server.wait(lambda: host.status() == psutil.STATUS_STOPPED, "the host is stopped")
    return host


def test_what_runs_fails_before_the_next_host_is_ready_and_what_waits_is_answered_by_it(runtime: Path) -> None:
    """SIGKILL: 503 with Retry-After for the dispatched one, the queue goes on in order, nothing runs twice."""
    config, gate = gated(runtime)
    mark, never = runtime / "mark", runtime / "never"
    with running(runtime, config=config) as server:
        first = server.soon({"op": "wait", "until": str(never), "tag": "a", "mark": str(mark)})
        server.running()
        waiting = []
        for number, tag in enumerate("bcd", 1):
            waiting.append(server.soon({"op": "echo", "tag": tag, "mark": str(mark)}))
            server.queued(number)
        gate.unlink()
        died = kill_host(server)
        answer = first.result(30)
        # No host can have become ready: the gate is closed.
        assert answer.status == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert answer.json["detail"]["error_type"] == "service_unavailable"
        assert "toy" in answer.json["detail"]["message"]
        assert "was being executed" in answer.json["detail"]["message"]
        assert answer.headers["x-request-id"]
        server.queued(3)
        assert tagged(mark) == ["a"]
        gate.touch()
        answers = [request.result(30) for request in waiting]
        assert [answer.status for answer in answers] == [200, 200, 200]
        pids = {answer.json["x_toy"]["pid"] for answer in answers}
        assert len(pids) == 1
        assert died not in pids
        assert tagged(mark) == ["a", "b", "c", "d"], "first come first served, each exactly once"
        server.wait(server.idle, "idle")


def test_what_a_dead_host_had_not_taken_is_answered_by_the_next_in_its_order(runtime: Path) -> None:
    """Sent to a host that never saw it: 200 from the next one, executed once, and before what was queued behind it."""
    mark = runtime / "mark"
    with running(runtime) as server:
        assert server.decide({"tag": "before", "mark": str(mark)}).status == 200
        died = stop_host(server)
        first = server.soon({"tag": "a", "mark": str(mark)})
        server.running()
        second = server.soon({"tag": "b", "mark": str(mark)})
        server.queued(1)
        died.kill()
        answers = [first.result(30), second.result(30)]
        assert [answer.status for answer in answers] == [200, 200]
        assert {answer.json["x_toy"]["pid"] for answer in answers} == {server.host()["pid"]} != {died.pid}
        assert tagged(mark) == ["before", "a", "b"], "each exactly once, first come first served"
        assert server.model()["scheduler"]["requeued"] == 1
        server.wait(server.idle, "idle")


def test_what_a_new_front_sends_is_not_taken_for_what_its_predecessor_sent(runtime: Path) -> None:
    """Each front counts from 1: the first call of the second front, untaken, is answered though the first front's call
    of that number was taken; the next one is taken by the next host, and is not sent again when that dies."""
    mark, never = runtime / "mark", str(runtime / "never")
    with running(runtime) as server:
        for tag in ("one", "two"):
            assert server.decide({"tag": tag, "mark": str(mark)}).status == 200
        old = server.front_pid()
        psutil.Process(old).kill()

        def has_the_host() -> bool:
            front = server.status()["front"]
            return bool(front and front["pid"] != old and front["models"]["toy"]["availability"] == "ready")

        server.wait(has_the_host, "a new front over the same host")
        died = stop_host(server)
        request = server.soon({"tag": "a", "mark": str(mark)})
        server.running()
        died.kill()
        assert request.result(30).status == 200
        request = server.soon({"op": "wait", "until": never, "tag": "b", "mark": str(mark)})
        server.wait(lambda: tagged(mark)[-1] == "b", "it runs")
        kill_host(server)
        assert request.result(30).status == 503
        assert tagged(mark) == ["one", "two", "a", "b"]


def test_a_client_may_leave_a_unit_that_its_host_had_not_taken(runtime: Path) -> None:
    """Before the death or after it: whoever leaves takes the unit along, and nothing is left of it."""
    config, gate = gated(runtime)
    mark = runtime / "mark"
    with running(runtime, config=config) as server:
        died = stop_host(server)
        leaver = server.open_request({"tag": "before", "mark": str(mark)})
        server.running()
        leaver.close()
        server.wait(lambda: server.model()["scheduler"]["abandoned"] == 1, "it has left")
        died.kill()
        server.wait(lambda: server.model()["scheduler"]["withdrawn"] == 1, "the unit is withdrawn")
        server.wait(lambda: server.model()["availability"] == "ready", "the next host")
        died = stop_host(server)
        leaver = server.open_request({"tag": "after", "mark": str(mark)})
        server.running()
        gate.unlink()
        died.kill()
        server.queued(1)
        leaver.close()
        server.wait(lambda: server.model()["scheduler"]["withdrawn"] == 2, "the unit is withdrawn")
        gate.touch()
        assert server.decide({"tag": "next", "mark": str(mark)}).status == 200
        assert tagged(mark) == ["next"]
        server.wait(server.idle, "idle")


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        ({"op": "abort", "words": "the matrix is singular"}, "SIGABRT"),
        ({"op": "exit", "status": 3}, "exit status 3"),
        ({"op": "null"}, "SIGSEGV"),
    ],
    ids=["abort", "exit", "null"],
)
def test_a_crash_in_the_executor_is_reported_with_its_last_words(
    runtime: Path, state: dict[str, str], ended: str
) -> None:
    """No handler runs in the host, so the outside tells: how it ended, what it last said, and the next one serves."""
    config, gate = gated(runtime)
    mark = runtime / "mark"
    with running(runtime, config=config) as server:
        # The gate holds the next incarnation back, so that the queue is there when the crash comes.
        hold = runtime / "hold"
        before = server.soon({"op": "wait", "until": str(hold)})
        server.running()
        crash = server.soon({**state, "tag": "crash", "mark": str(mark)})
        server.queued(1)
        waiting = []
        for number, tag in enumerate("bc", 2):
            waiting.append(server.soon({"tag": tag, "mark": str(mark)}))
            server.queued(number)
        gate.unlink()
        hold.touch()
        assert before.result(30).status == 200
        answer = crash.result(30)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) >= 1
        server.queued(2)
        gate.touch()
        assert [request.result(30).status for request in waiting] == [200, 200]
        assert tagged(mark) == ["crash", "b", "c"]
        assert ended in server.host()["last_death"]
        assert ended in server.model()["last_death"], "the front knows as well"
        server.line("toy", ended)
        if "words" in state:
            assert state["words"] in server.host()["last_death"]
            server.line(state["words"])
        assert server.host()["restarts"] == 1
        server.wait(server.idle, "idle")


def test_an_exit_while_loading_is_a_death_with_its_words(runtime: Path) -> None:
    """A child that ends in loading is noticed by its handle; nobody waits for a handshake that cannot come."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "exit"}}, restarts=0)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == 4
        assert "last words of a toy that exits while it loads" in server.log()
        assert "exit status 3" in server.log()


def test_a_kill_without_a_reason_says_what_usually_does_that(runtime: Path) -> None:
    """A SIGKILL leaves no trace but the signal: the report names it and the usual suspect."""
    with running(runtime) as server:
        kill_host(server)
        server.line("ended: killed by SIGKILL", "out-of-memory killer or an operator", "MiB resident when last seen")
        server.wait(lambda: server.host()["state"] == "ready", "a new host")
        assert "SIGKILL" in server.host()["last_death"]


def test_a_death_touches_no_other_model(runtime: Path) -> None:
    """One host is killed; the running request of another model ends normally on the same process."""
    until = runtime / "until"
    with running(runtime, "one=toy", "two=toy") as server:
        two = server.host("two")["pid"]
        request = server.soon({"op": "wait", "until": str(until)}, model="two")
        server.running("two")
        kill_host(server, "one")
        server.line("one", "ended: killed by SIGKILL")
        server.wait(lambda: server.host("one")["state"] == "ready", "one is back")
        assert server.decide({"tag": "new"}, model="one").json["x_toy"]["tag"] == "new"
        until.touch()
        answer = request.result(30)
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] == two == server.host("two")["pid"]
        assert server.host("two")["restarts"] == 0


def test_another_identity_does_not_inherit_the_queue(runtime: Path) -> None:
    """What was prepared for one model never runs on another: its requests end with 503, not dispatched."""
    gate, mark = runtime / "gate", runtime / "mark"
    gate.touch()
    config = configuration(runtime / "c.toml", {"toy": {"gate": gate, "identity": "toy-{pid}"}})
    with running(runtime, config=config) as server:
        first = server.soon({"op": "wait", "until": str(runtime / "never")})
        server.running()
        second = server.soon({"tag": "b", "mark": str(mark)})
        server.queued(1)
        gate.unlink()
        kill_host(server)
        assert first.result(30).status == 503
        gate.touch()
        answer = second.result(30)
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert "replaced" in answer.json["detail"]["message"]
        assert "not started" in answer.json["detail"]["message"]
        assert tagged(mark) == []
        assert server.decide({"tag": "c", "mark": str(mark)}).status == 200
        assert tagged(mark) == ["c"]
        server.wait(server.idle, "idle")


def test_a_newcomer_waits_for_a_host_that_comes_back_soon(runtime: Path) -> None:
    """A host that loads in a moment is waited for: the newcomer is answered by it."""
    config, gate = gated(runtime)
    with running(runtime, config=config) as server:
        gate.unlink()
        kill_host(server)
        server.line("ended: killed by")
        server.wait(lambda: server.model()["availability"] == "restarting", "the front knows")
        newcomer = server.soon({"tag": "new"})
        server.queued(1)
        gate.touch()
        assert newcomer.result(30).json["x_toy"]["tag"] == "new"


def test_the_host_takes_its_children_along(runtime: Path) -> None:
    """A background process of the executor, which also holds the host's output open, is gone with it."""
    with running(runtime) as server:
        child = server.decide({"op": "child"}).json["x_toy"]["child"]
        process = psutil.Process(child)
        assert process.is_running()
        kill_host(server)
        server.line("ended: killed by")
        server.wait(lambda: not alive(process), "the grandchild is gone")
        server.wait(lambda: "SIGKILL" in server.model()["last_death"], "the front knows")
        assert server.decide("next").status == 200


def test_signals_meant_for_people_do_not_end_a_host(runtime: Path) -> None:
    """A stray SIGINT or SIGUSR1 at a host changes nothing but the log."""
    with running(runtime) as server:
        pid = server.host()["pid"]
        psutil.Process(pid).send_signal(signal.SIGINT)
        psutil.Process(pid).send_signal(signal.SIGUSR1)
        server.line("most recent call first")
        assert server.decide("next").json["x_toy"]["pid"] == pid
