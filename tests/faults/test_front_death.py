"""The front dies. Its hosts stay warm, the port stays ours, and the next front takes over what is there."""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.process.harness import Framehost, configuration, received, running, tagged


def kill_front(server: Framehost) -> int:
    """SIGKILL the front and wait until the supervisor has seen it."""
    pid = server.front_pid()
    psutil.Process(pid).kill()
    server.line("[front]", "ended: killed by SIGKILL")
    return pid


def serving_again(server: Framehost, old: int) -> None:
    def fact() -> bool:
        process = server.status()["front_process"]
        return bool(process["pid"] != old and process["serving"])

    server.wait(fact, "a new front serves")


def test_a_killed_front_is_replaced_over_warm_hosts(runtime: Path) -> None:
    """The port answers again with the very same hosts: no model was loaded twice."""
    until = runtime / "until"
    with running(runtime, "one=toy", "two=toy") as server:
        before = {host["model"]: host["pid"] for host in server.status()["hosts"]}
        lost = server.open_request({"op": "wait", "until": str(until)}, model="one")
        server.running("one")
        old = kill_front(server)
        assert received(lost) == b"", "a client of the dead front is not left waiting"
        until.touch()
        serving_again(server, old)
        answer = server.decide("x", model="one")
        assert answer.status == 200
        assert {host["model"]: host["pid"] for host in server.status()["hosts"]} == before
        assert server.status()["front_process"]["restarts"] == 1
        assert "SIGKILL" in server.status()["front_process"]["last_death"]
        assert server.get("/health").json == {"status": "ok", "models": {"one": "ready", "two": "ready"}}


def test_a_client_that_comes_while_there_is_no_front_is_served_by_the_next(runtime: Path) -> None:
    """The listening socket outlives the front: a connection made in between waits in its backlog."""
    with running(runtime) as server:
        old = server.front_pid()
        # A stopped process accepts nothing: this connection is in the backlog when the front is killed.
        psutil.Process(old).suspend()
        request = server.soon({"tag": "between"})
        server.wait(lambda: backlog(server.port) == 1, "the connection is in the backlog")
        psutil.Process(old).kill()
        answer = request.result(30)
        assert answer.status == 200
        assert answer.json["x_toy"]["tag"] == "between"
        assert server.front_pid() != old


def backlog(port: int) -> int:
    """How many connections wait to be accepted on the port: the receive queue of its listening socket."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1].split(":")[1], 16) == port and fields[3] == "0A":
            return int(fields[4].split(":")[1], 16)
    return -1


def test_the_unit_of_a_dead_front_keeps_the_host_until_it_ends(runtime: Path) -> None:
    """An orphan holds the permit: the new front's first unit is not sent before the old one has ended."""
    mark, until = runtime / "mark", runtime / "until"
    with running(runtime) as server:
        host = server.host()["pid"]
        lost = server.open_request({"op": "wait", "until": str(until), "tag": "old", "mark": str(mark)})
        server.wait(lambda: tagged(mark) == ["old"], "the old unit runs")
        old = kill_front(server)
        lost.close()
        serving_again(server, old)
        new = server.soon({"tag": "new", "mark": str(mark)})
        server.queued(1)
        scheduler = server.model()["scheduler"]
        assert scheduler["held_for_earlier_front"]
        assert scheduler["running"] == 0
        assert scheduler["dispatched"] == 0
        assert server.model()["link"]["outstanding"] == 0, "nothing was sent ahead"
        assert server.get("/health").json["status"] == "ok"
        until.touch()
        answer = new.result(30)
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] == host
        assert tagged(mark) == ["old", "new"]
        scheduler = server.model()["scheduler"]
        assert not scheduler["held_for_earlier_front"]
        assert server.model()["link"]["unknown"] == 0, "the old answer reached nobody"
        server.wait(server.idle, "idle")


def test_an_orphan_whose_host_dies_gives_the_permit_back(runtime: Path) -> None:
    """Front and host die one after the other: what waits goes on with the next host."""
    mark = runtime / "mark"
    with running(runtime) as server:
        lost = server.open_request({"op": "wait", "until": "never", "tag": "old", "mark": str(mark)})
        server.wait(lambda: tagged(mark) == ["old"], "the old unit runs")
        old = kill_front(server)
        lost.close()
        serving_again(server, old)
        new = server.soon({"tag": "new", "mark": str(mark)})
        server.queued(1)
        psutil.Process(server.host()["pid"]).kill()
        assert new.result(30).status == 200
        assert tagged(mark) == ["old", "new"]
        server.wait(server.idle, "idle")


def test_a_front_that_comes_while_a_host_is_down_learns_of_both(runtime: Path) -> None:
    """Both are killed at once: the new front is told of the death it has not seen and of the host that follows."""
    with running(runtime) as server:
        old = server.front_pid()
        psutil.Process(server.host()["pid"]).kill()
        psutil.Process(old).kill()
        serving_again(server, old)
        server.wait(lambda: server.get("/health").status == 200, "ready again")
        assert server.decide({"tag": "new"}).json["x_toy"]["tag"] == "new"
        assert server.stop() == 0


def test_a_front_that_keeps_dying_ends_the_server(runtime: Path) -> None:
    """The front's restarts are budgeted too, and the exit status says that it was the front."""
    config = configuration(runtime / "c.toml", {"toy": {}}, restarts=1)
    with running(runtime, config=config) as server:
        old = kill_front(server)
        serving_again(server, old)
        psutil.Process(server.front_pid()).kill()
        assert server.wait_exit() == 5
        assert "the frontend ended: killed by SIGKILL" in server.log()
