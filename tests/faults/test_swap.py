"""A model is replaced under load. Nobody's request fails for it, and a replacement that fails changes nothing."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from protocol.messages import Progress
from tests.process.harness import GUARD_S, QUESTION, alive, configuration, running, tagged

CONNECTIONS = 64
SWAPS = 20


class Load:
    """Clients that ask over and over, each on a connection of its own, until told to stop."""

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.answered: list[float] = []
        """When each 200 arrived."""
        self.wrong: list[Any] = []
        """Everything else."""
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        body = json.dumps({"state": "x", "questions": QUESTION})
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=GUARD_S)
        while not self._over.is_set():
            try:
                connection.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(error)
                return
            with self._lock:
                if response.status == 200:
                    self.answered.append(time.monotonic())
                else:
                    self.wrong.append((response.status, text))
        connection.close()

    def stop(self) -> float:
        """End it; the longest time between two answers, in seconds."""
        self._over.set()
        for thread in self._threads:
            thread.join(GUARD_S)
        times = sorted(self.answered)
        return max((later - sooner for sooner, later in itertools.pairwise(times)), default=0.0)


def test_no_request_fails_while_the_model_is_swapped_again_and_again(runtime: Path) -> None:
    """64 connections, 20 swaps, the real default model: every answer is 200, and every former process is gone."""
    with running(runtime, "sparrow=sparrow") as server:
        load = Load(server.port, CONNECTIONS)
        for number in range(SWAPS):
            pid = server.host()["pid"]
            outcome = server.order("swap", "sparrow", family="sparrow")
            assert outcome.code == "done", outcome
            assert not psutil.pid_exists(pid), "success is told when the former process is gone"
            (host,) = server.status()["hosts"]
            assert (host["deployment"], host["role"]) == (f"sparrow@{number + 2}", "current")
        gap = load.stop()
        assert load.wrong == []
        assert len(load.answered) > CONNECTIONS
        print(f"{len(load.answered)} answers over {SWAPS} swaps, the longest gap between two: {gap * 1e3:.0f} ms")
        server.wait(server.idle, "idle")
        assert server.status()["front"]["others"] == []


def test_what_was_prepared_for_the_former_runs_there_and_newcomers_on_the_new(runtime: Path) -> None:
    """The switch waits for nobody: one that runs and one that waits finish on the old host, which then goes."""
    until = runtime / "until"
    with running(runtime) as server:
        old = server.host()["pid"]
        running_there = server.soon({"op": "wait", "until": str(until)})
        server.running()
        waiting_there = server.soon({"op": "echo"})
        server.queued(1)
        swap = server.command("swap", "toy=toy", "--option", "identity=another")
        server.wait(lambda: server.model()["id"] == "toy@2", "the front takes newcomers to the new one")
        newcomer = server.decide({"op": "echo"})
        assert newcomer.status == 200
        new = newcomer.json["x_toy"]["pid"]
        assert new != old
        assert swap.poll() is None, "the old one has work: the swap is not over"
        (retired,) = server.status()["front"]["others"]
        assert (retired["id"], retired["role"], retired["requests"]) == ("toy@1", "retired", 2)
        until.touch()
        assert running_there.result(30).json["x_toy"]["pid"] == old
        assert waiting_there.result(30).json["x_toy"]["pid"] == old
        out, err = swap.communicate(timeout=GUARD_S)
        assert (swap.returncode, err) == (0, "")
        assert "toy means toy@2, toy@1 and its" in out
        assert not psutil.pid_exists(old)
        assert server.model()["identity"] == "another"


@pytest.mark.parametrize("fail", ["load", "warm_up", "configuration", "exit"])
def test_a_successor_that_cannot_be_started_leaves_the_former_untouched(runtime: Path, fail: str) -> None:
    """Start-first: it says why, at once and without trying again; the old host has not noticed."""
    with running(runtime) as server:
        before = server.host()
        status, told = server.swap("toy=toy", "--option", f"fail={fail}")
        assert status == 1
        assert "toy@2 could not be started" in told
        assert "toy@1 has not been touched and serves on" in told
        tries = [line for line in server.lines if line.startswith("[toy@2") and "ended:" in line]
        assert len(tries) == 1, "it was given one try"
        (after,) = server.status()["hosts"]
        assert (after["pid"], after["restarts"], after["deployment"]) == (before["pid"], 0, "toy@1")
        assert server.decide("x").json["x_toy"]["pid"] == before["pid"]
        # A name that could not be moved can be moved still.
        assert server.swap("toy=toy")[0] == 0
        assert server.host()["deployment"] == "toy@3"


def test_stop_first_lets_newcomers_wait_and_never_has_two_hosts(runtime: Path) -> None:
    """What is queued finishes on the old one, which is gone before the new one starts; who came meanwhile is served
    by the new one."""
    until, gate, mark = runtime / "until", runtime / "gate", runtime / "mark"
    with running(runtime) as server:
        old = server.host()["pid"]
        first = server.soon({"op": "wait", "until": str(until), "tag": "first", "mark": str(mark)})
        server.running()
        queued = server.soon({"op": "echo", "tag": "queued", "mark": str(mark)})
        server.queued(1)
        swap = server.command("swap", "toy=toy", "--mode", "stop-first", "--option", f"gate={gate}")
        server.wait(lambda: server.model()["role"] == "held", "the front has newcomers wait")
        newcomers = [server.soon({"op": "echo", "tag": "new", "mark": str(mark)}) for _ in range(3)]
        server.wait(lambda: server.status()["front"]["requests"]["open"] == 5, "they have arrived")
        assert server.model()["scheduler"]["waiting"] == 1, "they are not queued at the old one"
        late = server.decide("x", x_framehost_timeout_ms="50")
        assert late.status == 504, "waiting has the request's own deadline"
        assert "were over while it waited for the end of the swap of 'toy'" in late.json["detail"]["message"]
        assert server.get("/health").status == 200, "the old one still works"
        until.touch()
        assert [request.result(30).json["x_toy"]["pid"] for request in (first, queued)] == [old, old]
        server.line("toy@1 is gone; starting toy@2")
        assert not psutil.pid_exists(old)
        server.wait(lambda: len(server.status()["hosts"]) == 2, "the new one loads")
        assert [host["pid"] for host in server.status()["hosts"] if host["deployment"] == "toy@1"] == [0]
        assert not any(request.done() for request in newcomers)
        gate.touch()
        answers = [request.result(30) for request in newcomers]
        assert {answer.json["x_toy"]["pid"] for answer in answers} == {server.host()["pid"]}
        assert all("load;dur=" in answer.headers["server-timing"] for answer in answers), "what they waited for is told"
        assert "load;dur=" not in server.decide("x").headers["server-timing"]
        out, _ = swap.communicate(timeout=GUARD_S)
        assert swap.returncode == 0
        assert "newcomers waited" in out
        assert tagged(mark) == ["first", "queued", "new", "new", "new"]
        server.wait(server.idle, "idle")


def test_when_the_successor_of_a_stopped_model_fails_the_former_is_started_again(runtime: Path) -> None:
    """Stop-first: who waited is served by the old checkpoint, in a new process and in the room that was its own,
    whoever else waits for room; the operator hears of the gap."""
    gate = runtime / "gate"
    models = {"toy": {}, "other": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=1)) as server:
        old = server.host("toy")["pid"]
        swap = server.command("swap", "toy=toy", "--mode", "stop-first", "--option", f"gate={gate}")
        server.line("starting toy@3")
        waiter, other = server.soon({"op": "echo"}, model="toy"), server.soon("x", model="other")
        server.wait(lambda: server.status()["front"]["requests"]["open"] == 2, "they have arrived")
        server.wait(lambda: server.model("other")["waiting_for_host"] == 1, "it waits for room")
        successor = server.wait(
            lambda: next((host["pid"] for host in server.status()["hosts"] if host["deployment"] == "toy@3"), 0),
            "a pid",
        )
        psutil.Process(successor).kill()
        answer = waiter.result(30)
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] not in (old, successor)
        _, err = swap.communicate(timeout=GUARD_S)
        assert swap.returncode == 1
        assert "toy@3 could not be started: killed by SIGKILL" in err
        assert "toy@1 serves again; newcomers waited" in err
        assert other.result(30).status == 200
        server.line("[other@2", "ready in")
        assert [line.split()[0] for line in server.lines if "] ready in" in line] == ["[toy@1", "[toy@1", "[other@2"]
        assert [host["deployment"] for host in server.status()["hosts"]] == ["toy@1", "other@2"]
        assert server.host("toy")["role"] == "current"


def test_a_second_swap_of_the_same_name_is_refused_while_the_first_runs(runtime: Path) -> None:
    """One at a time, and the refusal says so; another name can be swapped meanwhile."""
    gate = runtime / "gate"
    with running(runtime, "one=toy", "two=toy") as server:
        first = server.command("swap", "one=toy", "--option", f"gate={gate}")
        server.line("starting one@3")
        server.line("[one@3", "loading")
        (pid,) = (host["pid"] for host in server.status()["hosts"] if host["deployment"] == "one@3")
        status, told = server.swap("one=toy")
        assert status == 1
        assert f"'one' is being swapped already: one@3 is loading in pid {pid}; " in told
        assert "framehost swap --cancel one gives it up" in told
        assert server.swap("two=toy")[0] == 0
        gate.touch()
        first.communicate(timeout=GUARD_S)
        assert first.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nobody=toy"], "there is no model 'nobody'; models here: toy"),
        (["toy=nothing"], "nothing"),
        (["toy=toy", "--option", "colour=red"], "there is no option 'colour'"),
        (["toy=toy", "--option", "fail=1"], "the option 'fail' is 1; it is a text"),
        (["toy=toy", "--option", 'identity="a\\u0000b"'], "the option 'identity' is 'a\\x00b'; it is a text"),
        (["toy=sparrow", "--option", "truncate=maybe"], "the option 'truncate' is 'maybe'; it is true or false"),
        (["toy"], "expected NAME=FAMILY"),
        (["toy=sparrow:/nowhere"], "/nowhere"),
    ],
    ids=["name", "family", "option", "type", "NUL", "switch", "form", "path"],
)
def test_a_swap_that_makes_no_sense_starts_nothing(runtime: Path, arguments: list[str], told: str) -> None:
    """Refused before anything is touched, with what is wrong."""
    with running(runtime) as server:
        status, printed = server.swap(*arguments)
        assert status == 2
        assert told in printed
        assert len(server.status()["hosts"]) == 1


@pytest.mark.parametrize("mode", ["start-first", "stop-first"])
def test_a_front_that_dies_in_the_middle_of_a_swap_is_told_all_of_it(runtime: Path, mode: str) -> None:
    """The swap goes on, the next front knows which name means what, and the clients are served."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--mode", mode, "--option", f"gate={gate}")
        server.line("starting toy@2")
        old = server.front_pid()
        psutil.Process(old).kill()
        server.wait(lambda: server.status()["front_process"]["serving"] and server.front_pid() != old, "a new front")
        waiter = server.soon({"op": "echo"})
        server.wait(lambda: server.status()["front"]["requests"]["open"] == 1 or waiter.done(), "it has arrived")
        gate.touch()
        assert waiter.result(30).status == 200
        assert swap.communicate(timeout=GUARD_S)[1] == ""
        assert swap.returncode == 0
        (host,) = server.status()["hosts"]
        assert (host["deployment"], host["role"]) == ("toy@2", "current")
        assert server.decide({"op": "echo"}).json["x_toy"]["pid"] == host["pid"]


def test_a_front_that_dies_while_the_former_finishes_does_not_hang_the_swap(runtime: Path) -> None:
    """The requests died with the front; the next one has none for the retired deployment and says so."""
    until = runtime / "until"
    with running(runtime) as server:
        server.open_request({"op": "wait", "until": str(until)})
        server.running()
        swap = server.command("swap", "toy=toy")
        server.line("toy means toy@2 now")
        psutil.Process(server.front_pid()).kill()
        until.touch()
        assert swap.communicate(timeout=GUARD_S)[1] == ""
        assert swap.returncode == 0
        assert server.decide("x").status == 200


def test_the_former_host_may_die_while_its_successor_loads(runtime: Path) -> None:
    """Its restart and the swap do not know of each other; what waited for it is served."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--option", f"gate={gate}")
        server.line("starting toy@2")
        psutil.Process(server.host()["pid"]).kill()
        server.wait(lambda: server.model()["last_death"], "the front knows, and sends a dead host nothing")
        assert server.decide({"op": "echo"}).status == 200
        gate.touch()
        assert swap.communicate(timeout=GUARD_S)[1] == ""
        assert swap.returncode == 0


@pytest.mark.parametrize("mode", ["start-first", "stop-first"])
def test_a_stop_in_the_middle_of_a_swap_leaves_nothing_behind(runtime: Path, mode: str) -> None:
    """Exit status 0, every process gone, and the operator who swaps is told."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--mode", mode, "--option", f"gate={gate}")
        server.line("[toy@2", "loading")
        everyone = server.family()
        assert server.stop() == 0
        assert not any(map(alive, everyone))
        _, err = swap.communicate(timeout=GUARD_S)
        assert swap.returncode == 1
        assert "the server is stopping" in err


def test_a_stop_answers_who_waits_for_the_end_of_a_swap(runtime: Path) -> None:
    """The swap is given up, so nobody will come for them: 503 at once, and they do not prolong the stop."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--mode", "stop-first", "--option", f"gate={gate}")
        server.line("[toy@2", "loading")
        waiter = server.soon({"op": "echo"})
        server.wait(lambda: server.status()["front"]["requests"]["open"] == 1, "it has arrived")
        assert server.stop() == 0
        answer = waiter.result(GUARD_S)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert "the server is stopping, and the swap is given up" in answer.json["detail"]["message"]
        swap.communicate(timeout=GUARD_S)
        assert swap.returncode == 1


@pytest.mark.parametrize("mode", ["start-first", "stop-first"])
def test_a_swap_whose_new_model_does_not_load_can_be_cancelled(runtime: Path, mode: str) -> None:
    """It ends as a swap that has failed: the name means what it meant, is served, and can be swapped again."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--mode", mode, "--option", f"gate={gate}")
        server.line("[toy@2", "loading")
        assert server.swap("toy", "--cancel") == (0, "the start of toy@2 is given up\n")
        _, err = swap.communicate(timeout=GUARD_S)
        assert swap.returncode == 1
        assert "toy@2 could not be started: killed by SIGKILL by framehost: an operator has cancelled the swap. " in err
        assert server.decide("x").status == 200
        status, told = server.swap("toy", "--cancel")
        assert (status, "no swap of 'toy' is loading a new model now" in told) == (1, True)
        assert server.swap("toy=toy", "--mode", mode, "--option", "gate=")[0] == 0


def test_an_interrupted_swap_says_that_it_goes_on(runtime: Path) -> None:
    """Ctrl-C ends the command with 130 and one sentence, and not the order."""
    gate = runtime / "gate"
    with running(runtime) as server:
        swap = server.command("swap", "toy=toy", "--option", f"gate={gate}")
        assert swap.stdout is not None
        assert "starting toy@2" in swap.stdout.readline()
        swap.send_signal(signal.SIGINT)
        _, err = swap.communicate(timeout=GUARD_S)
        assert (swap.returncode, err) == (130, "framehost: interrupted; the swap of toy goes on in the server\n")
        gate.touch()
        server.line("swap of toy: toy means toy@2")


def test_an_order_is_acknowledged_before_it_is_done(runtime: Path) -> None:
    """Also a load without an end: whoever gave it knows at once that the supervisor has it."""
    models = {"a": {}, "late": {"resident": False, "gate": runtime / "gate"}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        assert server.first_answer("load", "late") == Progress(stage="load")


def test_an_order_to_a_stopped_supervisor_does_not_hang(runtime: Path) -> None:
    """A supervisor says at once that it has received an order; one that does not is told of."""
    with running(runtime) as server:
        server.process.send_signal(signal.SIGSTOP)
        try:
            status, told = server.swap("toy=toy")
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert status == 1
        assert "holds its lock and does not answer; the swap may be carried out when it goes on" in told


def test_a_swap_keeps_bounds_and_options_of_the_same_family(runtime: Path) -> None:
    """What is not said stays: the operator names a checkpoint, not the whole table of the configuration again."""
    config = configuration(runtime / "c.toml", {"toy": {"identity": "mine", "max_requests": 7}})
    with running(runtime, config=config) as server:
        assert server.swap("toy=toy")[0] == 0
        assert server.model()["identity"] == "mine"
        assert [bound["requests"] for bound in server.model()["admissions"]] == [7]


def test_operators_swap_load_and_unload_over_http(runtime: Path) -> None:
    """On the address that was configured and nowhere else; every refusal says what is wrong, and the clients of the
    model notice nothing."""
    config = configuration(runtime / "c.toml", {"toy": {}}, admin="127.0.0.1:0")
    with running(runtime, config=config) as server:
        admin = urlsplit(server.status()["admin"]).port

        def order(path: str, body: object = b"", method: str = "POST") -> tuple[int, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", admin or 0, timeout=GUARD_S)
            sent = body if isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.status, json.loads(response.read())
            connection.close()
            return answer

        status, done = order("/admin/models/toy/swap", {"family": "toy", "options": {"identity": "other"}})
        assert (status, done["outcome"], done["old"], done["new"]) == (200, "done", "toy@1", "toy@2")
        assert done["held_bytes"] == 0 < done["freed_bytes"]
        assert server.model()["identity"] == "other"
        for path, body, expected, told in [
            ("/admin/models/toy/cancel", b"", 409, "no swap of 'toy' is loading a new model now"),
            ("/admin/models/nobody/swap", {"family": "toy"}, 404, "there is no model 'nobody'"),
            ("/admin/models/toy/swap", {}, 422, "family is missing"),
            ("/admin/models/toy/swap", {"family": "toy", "colour": 1}, 422, "colour"),
            ("/admin/models/toy/swap", {"family": "toy", "mode": "now"}, 422, "now"),
            ("/admin/models/toy/swap", {"family": "toy", "options": {"identity": "a\0b"}}, 422, "without NUL"),
            ("/admin/models/toy/swap", [], 422, "not a JSON object"),
            ("/admin/models/toy/swap", b"{", 422, ""),
            (
                "/admin/models/toy/swap",
                {"family": "toy", "options": {"fail": "load"}},
                502,
                "toy@2 has not been touched",
            ),
            ("/admin/models/toy/load", {"family": "toy"}, 422, "takes no settings"),
            ("/admin/models/toy/eat", b"", 404, "there is no route"),
            ("/v1/systemone", b"{}", 404, "there is no route"),
        ]:
            status, answer = order(path, body)
            assert (status, told in answer["error"]["message"]) == (expected, True), (path, body, answer)
        assert order("/admin/models/toy/swap", method="GET")[0] == 405
        assert server.post(b"{}", "/admin/models/toy/swap").status == 404, "not on the main port"
        assert order("/admin/models/toy/unload") == (200, {"outcome": "done", "message": "toy@2 is unloaded"})
        assert order("/admin/models/toy/load") == (200, {"outcome": "done", "message": "toy@2 is loaded"})
        assert server.decide("x").status == 200


def test_a_successor_that_the_front_refuses_leaves_the_former_untouched(runtime: Path) -> None:
    """Its host is ready, and the front cannot prepare for it: ready means both. The reason is told, nobody notices."""
    with running(runtime) as server:
        before = server.host()["pid"]
        status, told = server.swap("toy=toy", "--option", "fail=refused")
        assert status == 1
        assert "toy@2 could not be started" in told
        assert "the front refuses it: the toy's front refuses what its host brings" in told
        assert "toy@1 has not been touched and serves on" in told
        assert server.decide("x").json["x_toy"]["pid"] == before
        assert [host["deployment"] for host in server.status()["hosts"]] == ["toy@1"]


def test_a_successor_of_which_one_replica_cannot_be_started_leaves_the_former_untouched(runtime: Path) -> None:
    """Half of its hosts are ready, and half is not enough: done means all."""
    config = configuration(runtime / "c.toml", {"toy": {"replicas": 2}})
    with running(runtime, config=config) as server:
        before = {host["pid"] for host in server.status()["hosts"]}
        status, told = server.swap("toy=toy", "--option", f"fail=second:{runtime / 'one'}")
        assert status == 1
        assert "the toy is loaded once already" in told
        assert "toy@1 has not been touched and serves on" in told
        assert {host["pid"] for host in server.status()["hosts"]} == before
        assert server.decide("x").json["x_toy"]["pid"] in before


def test_a_swap_is_gone_back_from(runtime: Path) -> None:
    """To the options of before, and back again; where there was no swap there is nothing to go back to."""
    with running(runtime, config=configuration(runtime / "c.toml", {"toy": {"identity": "one"}})) as server:
        assert server.swap("toy", "--back")[0] == 2
        assert server.swap("toy=toy", "--option", "identity=two")[0] == 0
        assert server.model("toy")["identity"] == "two"
        assert server.swap("toy", "--back")[0] == 0
        assert server.model("toy")["identity"] == "one"
        assert server.swap("toy", "--back")[0] == 0
        assert server.model("toy")["identity"] == "two"
        assert server.decide("x").status == 200
