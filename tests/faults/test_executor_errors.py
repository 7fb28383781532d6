"""The executor fails, lies, refuses or is on fire. The client is told the right thing and the next request works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.conftest import short_directory
from tests.process.harness import Framehost, running, tagged


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory) as server:
        yield server


def the_next_works(server: Framehost, host: int) -> None:
    """On the very same host, with nothing left of the request before."""
    answer = server.decide({"tag": "next"})
    assert answer.status == 200
    assert answer.json["x_toy"]["tag"] == "next"
    assert answer.json["x_toy"]["pid"] == host
    server.wait(server.idle, "idle")


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        ({"op": "raise"}, 500, "internal_error"),
        ({"op": "lie", "how": "nan"}, 500, "internal_error"),
        ({"op": "lie", "how": "huge"}, 500, "internal_error"),
        ({"op": "lie", "how": "foreign"}, 500, "internal_error"),
        ({"op": "lie", "how": "unpackable"}, 500, "internal_error"),
        ({"op": "lie", "how": "deep"}, 500, "internal_error"),
        ({"op": "lie", "how": "nothing"}, 500, "internal_error"),
        ({"op": "refuse"}, 400, "max_tokens_exceeded"),
        ("refuse me", 400, "max_tokens_exceeded"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_a_failed_execution_is_typed_and_the_host_lives_on(
    server: Framehost, state: Any, status: int, word: str
) -> None:
    """A bug, a result that is none, bad input: one typed error without our insides; the next request is served."""
    host = server.host()["pid"]
    answer = server.decide(state)
    assert answer.status == status
    assert answer.json["detail"]["error_type"] == word
    assert "retry-after" not in answer.headers
    assert answer.headers["x-request-id"]
    for inside in (b"secret", b"Traceback", b".py", b"RuntimeError"):
        assert inside not in answer.body
    the_next_works(server, host)


def test_the_reason_of_a_failure_is_in_the_log(server: Framehost) -> None:
    """What the client is not told, the operator is: the trace of the exception, with its model."""
    server.decide({"op": "raise"})
    server.line("toy", "RuntimeError: a secret of our insides")


def test_a_fatal_error_retires_the_host(runtime: Path) -> None:
    """The device is not to be trusted: 503 with Retry-After, the queue goes on with the next incarnation."""
    mark, hold = runtime / "mark", runtime / "hold"
    with running(runtime) as server:
        before = server.host()["pid"]
        first = server.soon({"op": "wait", "until": str(hold)})
        server.running()
        fatal = server.soon({"op": "fatal", "tag": "fatal", "mark": str(mark)})
        server.queued(1)
        waiting = server.soon({"tag": "b", "mark": str(mark)})
        server.queued(2)
        hold.touch()
        assert first.result(30).status == 200
        answer = fatal.result(30)
        assert answer.status == 503
        assert answer.json["detail"]["error_type"] == "service_unavailable"
        assert 1 <= int(answer.headers["retry-after"]) <= 5
        assert b"on fire" not in answer.body
        after = waiting.result(30)
        assert after.status == 200
        assert after.json["x_toy"]["pid"] != before
        assert tagged(mark) == ["fatal", "b"]
        assert server.host()["restarts"] == 1
        assert "retired" in server.host()["last_death"]
        assert "on fire" in server.host()["last_death"]
        server.wait(server.idle, "idle")


def test_a_frail_family_retires_on_any_error_but_not_on_bad_input(runtime: Path) -> None:
    """Where the family's contract says so, an ordinary exception is a death too; input errors never are."""
    with running(runtime, "toy=frail") as server:
        before = server.host()["pid"]
        assert server.decide({"op": "refuse"}).status == 400
        assert server.decide("x").json["x_toy"]["pid"] == before
        for _ in range(2):
            answer = server.decide({"op": "raise"})
            assert answer.status == 500
            assert "retry-after" not in answer.headers, "trying again is no use"
            assert b"secret" not in answer.body
            server.line("ended: exit status 67 (retired)")
            server.wait(lambda: server.get("/health").status == 200, "ready again")
        before = server.host()["pid"]
        answer = server.decide({"op": "raise"})
        assert (answer.status, answer.json["detail"][0]["type"]) == (422, "poisoned")
        assert server.host()["pid"] == before, "the third host never gets it"
        assert server.status()["front"]["poisoned"]["refused"] == 1
        answer = server.decide("x")
        assert answer.status == 200
        assert answer.json["x_toy"]["pid"] == before
        server.wait(server.idle, "idle")


# Requests of several units


def test_every_unit_has_the_main_thread(server: Framehost) -> None:
    """Also after one that failed, and the second of a request."""
    assert server.decide({"op": "raise", "tag": "once"}).status == 500
    answer = server.decide({"units": [{"tag": "one"}, {"tag": "two"}]})
    assert answer.json["x_toy"]["threads"] == ["MainThread"]


def units(mark: Path, *states: dict[str, Any]) -> dict[str, Any]:
    return {"units": [{"tag": str(number), "mark": str(mark), **state} for number, state in enumerate(states)]}


def test_a_request_of_several_units_is_answered_from_all_of_them(server: Framehost, runtime: Path) -> None:
    """Units run in order, others may come in between, and the permit is asked for anew each time."""
    mark, until = runtime / "mark", runtime / "until"
    several = server.soon(units(mark, {"op": "wait", "until": str(until)}, {}, {}))
    server.running()
    other = server.soon({"tag": "other", "mark": str(mark)})
    server.queued(1)
    until.touch()
    assert several.result(30).status == other.result(30).status == 200
    assert tagged(mark) == ["0", "other", "1", "2"]
    server.wait(server.idle, "idle")


def test_no_unit_follows_one_that_failed(server: Framehost, runtime: Path) -> None:
    """Failure at unit 1 of 4: one 500, no partial answer, and unit 2 is never started."""
    mark = runtime / "mark"
    answer = server.decide(units(mark, {}, {"op": "raise"}, {}, {}))
    assert answer.status == 500
    assert "answers" not in answer.json
    server.wait(server.idle, "idle")
    assert server.decide({"tag": "after", "mark": str(mark)}).status == 200
    assert tagged(mark) == ["0", "1", "after"]


def test_no_unit_follows_one_whose_client_has_left(server: Framehost, runtime: Path) -> None:
    """The running unit keeps the permit until it ends; then the next request, not the next unit, gets it."""
    mark, until, seen = runtime / "mark", runtime / "until", runtime / "seen"
    gone = server.open_request(units(mark, {}, {"op": "wait", "until": str(until), "seen": str(seen)}, {}, {}))
    server.wait(lambda: tagged(mark) == ["0", "1"], "unit 1 runs")
    gone.close()
    server.wait(lambda: tagged(seen) == ["1"], "the host knows")
    after = server.soon({"tag": "after", "mark": str(mark)})
    server.queued(1)
    assert server.model()["admissions"][0]["outstanding"] == 2, "the slot of the one that left is still taken"
    until.touch()
    assert after.result(30).status == 200
    assert tagged(mark) == ["0", "1", "after"]
    server.wait(server.idle, "idle")


def test_no_unit_follows_the_deadline(server: Framehost, runtime: Path) -> None:
    """The time is over while another request holds the executor between two units."""
    mark, first, second = runtime / "mark", runtime / "first", runtime / "second"
    several = server.soon(units(mark, {"op": "wait", "until": str(first)}, {}, {}), x_framehost_timeout_ms="700")
    server.running()
    other = server.soon({"op": "wait", "until": str(second), "tag": "other", "mark": str(mark)})
    server.queued(1)
    first.touch()
    answer = several.result(30)
    assert answer.status == 504
    second.touch()
    assert other.result(30).status == 200
    server.wait(server.idle, "idle")
    assert tagged(mark) == ["0", "other"]


def test_no_unit_follows_one_that_died_with_its_host(runtime: Path) -> None:
    """Host death at unit 1: 503, and the next incarnation is not given unit 2 of a request that has failed."""
    mark = runtime / "mark"
    with running(runtime) as server:
        several = server.soon(units(mark, {}, {"op": "wait", "until": "never"}, {}))
        server.wait(lambda: tagged(mark) == ["0", "1"], "unit 1 runs")
        psutil.Process(server.host()["pid"]).kill()
        assert several.result(30).status == 503
        server.wait(lambda: server.get("/health").status == 200, "ready again")
        assert server.decide({"tag": "after", "mark": str(mark)}).status == 200
        assert tagged(mark) == ["0", "1", "after"]
        server.wait(server.idle, "idle")


def test_input_that_only_the_host_can_refuse_is_no_failure(server: Framehost) -> None:
    """The client's fault is counted as one, whoever has found it: nobody is woken up for it."""
    before = server.status()["front"]["requests"]["ended"]
    assert server.decide({"op": "refuse"}).status == 400
    server.wait(server.idle, "idle")
    after = server.status()["front"]["requests"]["ended"]
    assert after.get("refused", 0) == before.get("refused", 0) + 1
    assert after.get("failed", 0) == before.get("failed", 0)
