"""More models than may be loaded at once: whoever is asked for takes the room of the idle, and of nobody else."""

from __future__ import annotations

from pathlib import Path

import psutil

from frontend.cli.status import render
from protocol.messages import Progress
from tests.process.harness import GUARD_S, Framehost, configuration, running


def states(server: Framehost) -> dict[str, str]:
    """Where the hosts of each model are."""
    return {host["model"]: host["state"] for host in server.status()["hosts"]}


def started(server: Framehost, model: str) -> int:
    """How many hosts of a model have become ready so far."""
    return sum(f"[{model}@" in line and "] ready in" in line for line in server.lines)


def test_the_least_recently_used_makes_room(runtime: Path) -> None:
    """Three models and room for two: the one that was used longest ago goes, its process is gone before the next
    one starts, and a later request brings it back."""
    models = {"a": {}, "b": {}, "c": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=2)) as server:
        assert states(server) == {"a": "ready", "b": "ready", "c": "absent"}
        assert server.get("/health").json["models"] == {"a": "ready", "b": "ready", "c": "absent"}
        pid = server.host("a")["pid"]
        assert server.decide("x", model="b").status == 200
        answer = server.decide("x", model="c")
        assert answer.status == 200
        assert "load;dur=" in answer.headers["server-timing"]
        assert 'framehost_request_load_seconds_count{model="c"} 1.0' in server.get("/metrics").body.decode()
        assert states(server) == {"a": "absent", "b": "ready", "c": "ready"}
        gone = next(i for i, line in enumerate(server.lines) if "a@1 was unloaded" in line)
        loading = next(i for i, line in enumerate(server.lines) if "[c@3" in line)
        assert gone < loading, "started only when the room was there"
        assert not psutil.pid_exists(pid)
        assert server.decide("x", model="a").status == 200
        assert states(server) == {"a": "ready", "b": "absent", "c": "ready"}
        assert server.status()["front"]["requests"]["ended"] == {"answered": 3}
        # An operator's wish makes room in the same way.
        assert server.order("load", "b").code == "done"
        assert states(server) == {"a": "ready", "b": "ready", "c": "absent"}


def test_ten_requests_for_an_absent_model_start_it_once(runtime: Path) -> None:
    """They wait together, unprepared, and are all answered by the one host."""
    gate = runtime / "gate"
    models = {"a": {}, "late": {"resident": False, "gate": gate}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        ten = [server.soon({"op": "echo"}, model="late") for _ in range(10)]
        server.wait(lambda: server.model("late")["waiting_for_host"] == 10, "ten wait")
        assert server.model("late")["scheduler"]["waiting"] == 0, "nothing is prepared or queued"
        gate.touch()
        assert {request.result(30).json["x_toy"]["pid"] for request in ten} == {server.host("late")["pid"]}
        assert started(server, "late") == 1
        server.wait(server.idle, "idle")


def test_a_stop_answers_who_waits_for_an_absent_model(runtime: Path) -> None:
    """A host that loads is not waited for: 503 at once for who waits for it, and the stop is clean."""
    models = {"a": {}, "late": {"resident": False, "gate": runtime / "gate"}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        waiter = server.soon({"op": "echo"}, model="late")
        server.line("[late@2", "loading")
        server.wait(lambda: server.model("late")["waiting_for_host"] == 1, "it waits")
        assert server.stop() == 0
        answer = waiter.result(GUARD_S)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        assert "the server is stopping and loads no models" in answer.json["detail"]["message"]


def test_a_bad_request_starts_nothing(runtime: Path) -> None:
    """An absent model's processor validates first: 400 or 422, and no host was started for it."""
    models = {"a": {}, "absent": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        assert server.decide("refuse me", model="absent").status == 400
        assert server.post({"model": "absent", "state": 5, "questions": {}}).status == 422
        assert states(server)["absent"] == "absent"
        assert render(server.status()).count("loaded in") == 1, "what has not been loaded took no time"
        assert not any("[absent@" in line for line in server.lines)


def test_a_busy_model_is_never_evicted(runtime: Path) -> None:
    """Without turns: who waits for its room gets 503 with Retry-After when its time is over; it is answered when the
    room comes."""
    until = runtime / "until"
    models = {"busy": {}, "other": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=1, turn=0)) as server:
        pid = server.host("busy")["pid"]
        work = server.soon({"op": "wait", "until": str(until)}, model="busy")
        server.running("busy")
        late = server.decide("x", model="other", x_framehost_timeout_ms="100")
        assert late.status == 503
        assert 1 <= int(late.headers["retry-after"]) <= 5
        assert "could not be loaded within the request's time" in late.json["detail"]["message"]
        waits = server.soon("x", model="other")
        server.wait(lambda: server.model("other")["waiting_for_host"] == 1, "it waits")
        assert server.host("busy")["pid"] == pid
        assert server.host("busy")["state"] == "ready"
        until.touch()
        assert work.result(30).json["x_toy"]["pid"] == pid
        assert waits.result(30).status == 200
        assert states(server) == {"busy": "absent", "other": "ready"}


def test_a_pinned_model_stays_and_a_kept_alive_one_goes(runtime: Path) -> None:
    """keep_alive unloads what has been idle for that long, and never what is pinned; the next request loads it."""
    models = {"pinned": {"pin": True, "keep_alive": 0.2}, "brief": {"keep_alive": 0.2}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        server.line("brief@2 was unloaded")
        assert states(server) == {"pinned": "ready", "brief": "absent"}
        assert server.decide("x", model="brief").status == 200
        assert started(server, "pinned") == 1


def test_a_model_that_cannot_be_loaded_is_said_to_be_so_and_can_be_tried_again(runtime: Path) -> None:
    """On demand or not, a load that fails for good ends whoever waits; the others are served; an operator insists."""
    file = runtime / "file"
    models = {"a": {}, "sick": {"resident": False, "fail": f"until:{file}"}}
    with running(runtime, config=configuration(runtime / "c.toml", models, restarts=0)) as server:
        answer = server.decide("x", model="sick")
        assert answer.status == 503
        assert "'sick' has failed" in answer.json["detail"]["message"]
        assert server.decide("x", model="sick").status == 503
        assert server.decide("x", model="a").status == 200
        assert states(server)["sick"] == "failed"
        with server.command("load", "sick") as load:
            assert "could not be loaded" in load.communicate(timeout=GUARD_S)[1]
        assert load.returncode == 1
        file.touch()
        with server.command("load", "sick") as load:
            assert load.communicate(timeout=GUARD_S) == ("sick@2 is loaded\n", "")
        server.wait(lambda: server.model("sick")["availability"] == "ready", "the front knows, too")
        assert server.decide("x", model="sick").status == 200


def test_a_model_that_does_not_fit_is_refused_at_once(runtime: Path) -> None:
    """Larger than all the room: 503 that says so, without waiting and without unloading anybody."""
    checkpoint = runtime / "big"
    checkpoint.write_bytes(b"x" * 2**20)
    models = {"a": {}, "big": {"resident": False, "path": str(checkpoint)}}
    config = configuration(runtime / "c.toml", models, max_resident_bytes=2**20 - 1)
    with running(runtime, config=config) as server:
        answer = server.decide("x", model="big")
        assert answer.status == 503
        assert "max_resident_bytes" in answer.json["detail"]["message"]
        assert states(server)["a"] == "ready"


def test_an_operator_unloads_and_loads(runtime: Path) -> None:
    """What runs and what is queued finishes first; the process is gone when the command is done."""
    until = runtime / "until"
    with running(runtime) as server:
        pid = server.host()["pid"]
        work = server.soon({"op": "wait", "until": str(until)})
        server.running()
        queued = server.soon({"op": "echo"})
        server.queued(1)
        unload = server.command("unload", "toy")
        server.wait(lambda: not server.model()["present"], "it is to leave")
        newcomer = server.soon("x")
        server.wait(lambda: server.model()["waiting_for_host"] == 1, "who comes now waits for the next host")
        until.touch()
        assert [request.result(30).json["x_toy"]["pid"] for request in (work, queued)] == [pid, pid]
        assert unload.communicate(timeout=GUARD_S) == ("toy@1 is unloaded\n", "")
        assert not psutil.pid_exists(pid)
        assert newcomer.result(30).status == 200
        with server.command("load", "toy") as load:
            assert load.communicate(timeout=GUARD_S) == ("toy@1 is loaded already\n", "")


def test_an_operator_ends_a_load_that_hangs(runtime: Path) -> None:
    """`unload` ends its process; the `load` that waits for it says so and fails. A request that waits is no order: it
    has the model started again."""
    gate = runtime / "gate"
    models = {"a": {}, "late": {"resident": False, "gate": gate}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        load = server.command("load", "late")
        server.line("[late@2 3-", "loading")
        pid = server.host("late")["pid"]
        told = server.order("load", "late")
        assert (told.code, f"late@2 is loading in pid {pid}; framehost unload late ends it" in told.message) == (
            "conflict",
            True,
        )
        assert server.order("unload", "late").message == "late@2 is unloaded"
        assert not psutil.pid_exists(pid)
        assert load.communicate(timeout=GUARD_S) == (
            "",
            "framehost: late@2 could not be loaded: an operator has unloaded it\n",
        )
        assert load.returncode == 1
        assert states(server) == {"a": "ready", "late": "absent"}
        waits = server.soon("x", model="late")
        server.line("[late@2 4-", "loading")
        assert server.order("unload", "late").code == "done"
        server.line("[late@2 5-", "loading")
        gate.touch()
        assert waits.result(GUARD_S).status == 200


def test_an_operator_ends_a_load_that_waits_for_room(runtime: Path) -> None:
    """Nothing of it has been started, and nothing will be: the order to load it fails at once."""
    models = {"busy": {}, "late": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=1)) as server:
        server.soon({"op": "wait", "until": "never"}, model="busy")
        server.running("busy")
        assert isinstance(server.first_answer("load", "late"), Progress)
        assert server.order("unload", "late").message == "late@2 has no hosts"
        server.line("load of late: late@2 could not be loaded: an operator has unloaded it")
        assert server.order("load", "busy").message == "busy@1 is loaded already"
        assert states(server) == {"busy": "ready", "late": "absent"}


def test_a_front_that_dies_while_room_is_made_does_not_hang_it(runtime: Path) -> None:
    """The next front has no request for the one that leaves, and asks again for whoever is wanted."""
    models = {"a": {}, "b": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=1)) as server:
        until = runtime / "until"
        server.open_request({"op": "wait", "until": str(until)}, model="a")
        server.running("a")
        unload = server.command("unload", "a")
        server.wait(lambda: not server.model("a")["present"], "it is to leave")
        old = server.front_pid()
        psutil.Process(old).kill()
        until.touch()
        assert unload.communicate(timeout=GUARD_S) == ("a@1 is unloaded\n", "")
        server.wait(lambda: server.status()["front_process"]["serving"] and server.front_pid() != old, "a new front")
        assert server.decide("x", model="b").status == 200
        assert server.decide("x", model="a").status == 200


def test_a_swap_that_has_no_room_beside_the_former_says_so(runtime: Path) -> None:
    """Start-first needs room for both: refused at once, nothing touched; stop-first needs none."""
    config = configuration(runtime / "c.toml", {"toy": {}}, max_resident=1)
    with running(runtime, config=config) as server:
        status, told = server.swap("toy=toy")
        assert status == 1
        assert "max_resident" in told
        assert server.decide("x").status == 200
        assert server.swap("toy=toy", "--mode", "stop-first")[0] == 0
        assert server.decide("x").status == 200


def test_the_room_that_a_swap_makes_is_not_taken_by_who_waits_for_room(runtime: Path) -> None:
    """At the limit, stop-first: the successor has the room of the former, and the other model's request waits on."""
    until = runtime / "until"
    models = {"a": {}, "b": {"resident": False}}
    with running(runtime, config=configuration(runtime / "c.toml", models, max_resident=1)) as server:
        work = server.soon({"op": "wait", "until": str(until)}, model="a")
        server.running("a")
        swap = server.command("swap", "a=toy", "--mode", "stop-first")
        server.line("newcomers wait")
        waits = server.soon("x", model="b")
        server.wait(lambda: server.model("b")["waiting_for_host"] == 1, "it waits")
        until.touch()
        assert work.result(GUARD_S).status == 200
        assert swap.communicate(timeout=GUARD_S)[1] == ""
        assert waits.result(GUARD_S).status == 200
        server.line("[b@2", "ready in")
        ready = [line.split()[0] for line in server.lines if "] ready in" in line]
        assert ready == ["[a@1", "[a@3", "[b@2"]


def test_an_absent_model_can_be_swapped_and_who_waits_goes_along(runtime: Path) -> None:
    """A request that waits for a host of the former is answered by the new one."""
    gate = runtime / "gate"
    models = {"a": {}, "toy": {"resident": False, "gate": gate}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        waits = server.soon("x", model="toy")
        server.wait(lambda: server.model("toy")["waiting_for_host"] == 1, "it waits")
        status, told = server.swap("toy=toy", "--option", "identity=new")
        assert status == 0, told
        assert waits.result(30).status == 200
        assert server.model("toy")["identity"] == "new"


def test_a_model_that_is_unloaded_while_it_loads_is_loaded_again_whatever_the_front_knows(runtime: Path) -> None:
    """Unloaded in the middle of its load, and then the front dies: the next one is told the truth, and whoever asks has
    the model loaded and is answered, and is not told "restarting" for ever."""
    gate = runtime / "gate"
    models = {"a": {}, "late": {"resident": False, "gate": gate}}
    with running(runtime, config=configuration(runtime / "c.toml", models)) as server:
        assert isinstance(server.first_answer("load", "late"), Progress)
        server.line("[late@2", "loading")
        assert server.order("unload", "late").code == "done"
        old = server.front_pid()
        psutil.Process(old).kill()
        server.wait(lambda: server.status()["front_process"]["pid"] != old, "a new front")
        server.wait(lambda: server.status()["front_process"]["serving"], "which serves")
        assert states(server)["late"] == "absent"
        again = server.soon("x", model="late")
        server.wait(lambda: server.model("late")["waiting_for_host"] == 1, "it waits")
        gate.touch()
        assert again.result(GUARD_S).status == 200
