"""Time runs out: in the queue, in the executor, in the upload. The answer comes then, not when a slot frees."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import QUESTION, Framehost, running, tagged


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory) as server:
        yield server


def test_a_deadline_in_the_queue_is_answered_while_the_slot_is_held(server: Framehost, runtime: Path) -> None:
    """504 arrives while another still runs; the expired unit is never started, the one behind it is."""
    mark, until = runtime / "mark", runtime / "until"
    first = server.soon({"op": "wait", "until": str(until), "tag": "a", "mark": str(mark)})
    server.running()
    expired = server.decide({"tag": "b", "mark": str(mark)}, x_framehost_timeout_ms="50")
    assert expired.status == 504
    assert expired.json["detail"]["error_type"] == "timeout_error"
    assert "queued" in expired.json["detail"]["message"]
    assert "retry-after" not in expired.headers
    assert not first.done(), "nothing has ended: the file is not there"
    last = server.soon({"tag": "c", "mark": str(mark)})
    server.queued(1)
    until.touch()
    assert first.result(30).status == last.result(30).status == 200
    assert tagged(mark) == ["a", "c"]
    server.wait(server.idle, "idle")


def test_a_deadline_while_running_keeps_the_permit_until_the_end(server: Framehost, runtime: Path) -> None:
    """504 at once, the unit keeps its place in the host, the host is told, and the next answer is the right one."""
    mark, until, seen = runtime / "mark", runtime / "until", runtime / "seen"
    host = server.host()["pid"]
    expired = server.decide(
        {"op": "wait", "until": str(until), "tag": "a", "mark": str(mark), "seen": str(seen)},
        x_framehost_timeout_ms="300",
    )
    assert expired.status == 504
    if tagged(mark) != ["a"]:
        pytest.skip("this machine needs more than 300 ms to start a unit")
    assert "running" in expired.json["detail"]["message"]
    server.wait(lambda: tagged(seen) == ["a"], "the host knows that nobody waits")
    following = server.soon({"tag": "b", "mark": str(mark)})
    server.queued(1)
    scheduler = server.model()["scheduler"]
    assert scheduler["running"] == scheduler["abandoned"] == 1
    until.touch()
    answer = following.result(30)
    assert answer.json["x_toy"]["tag"] == "b"
    assert answer.json["x_toy"]["pid"] == host
    server.wait(server.idle, "idle")


def test_what_was_answered_while_the_host_stood_still_is_not_executed_afterwards(
    server: Framehost, runtime: Path
) -> None:
    """Its clients had their 504 in time; when the host goes on, their units have neither time nor anyone waiting."""
    mark = runtime / "mark"
    assert server.decide({"tag": "before", "mark": str(mark)}).status == 200
    host = server.host()["pid"]
    os.kill(host, signal.SIGSTOP)
    try:
        asked = [server.soon({"tag": "late", "mark": str(mark)}, x_framehost_timeout_ms="300") for _ in range(8)]
        assert [answer.result(30).status for answer in asked] == [504] * 8
    finally:
        os.kill(host, signal.SIGCONT)
    assert server.decide({"tag": "after", "mark": str(mark)}).status == 200
    assert tagged(mark) == ["before", "after"]
    assert server.host()["pid"] == host
    server.wait(server.idle, "idle")


@pytest.mark.parametrize("model", ["toy", "sparrow"])
def test_a_deadline_seen_by_the_executor_is_the_requests_own(runtime: Path, model: str) -> None:
    """The host's clock may be the first to say so, between two steps of the executor: 504 as from any other."""
    state = {"op": "heed"} if model == "toy" else "word " * 400
    questions = {f"q{number}": QUESTION["q"] for number in range(50)}
    with running(runtime, f"{model}={model}") as server:
        for number in range(120):
            answer = server.post({"state": state, "questions": questions}, x_framehost_timeout_ms=f"{1 + number % 12}")
            assert answer.status in (200, 504)
            if answer.status == 504:
                assert answer.json["detail"]["error_type"] == "timeout_error"
                assert "were over" in answer.json["detail"]["message"]
            else:
                assert model == "sparrow"
            server.wait(server.idle, "idle")


def test_a_deadline_in_the_upload_gives_the_upload_back(server: Framehost) -> None:
    """The request's own time covers its upload: 504 while the rest of the body has not come."""
    connection = server.connect(
        b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"x-framehost-timeout-ms: 50\r\nContent-Length: 1000\r\n\r\n{"
    )
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 504 ")
    assert b"received" in answer
    server.wait(server.idle, "idle")


@pytest.mark.parametrize("value", ["0", "-1", "soon", "", "1.5", "1e3", "NaN", "9" * 5000, "1_000"])
def test_a_timeout_header_that_is_no_time_is_refused(server: Framehost, value: str) -> None:
    """A client that cannot say how long it waits is told so; nothing is guessed."""
    answer = server.decide("x", x_framehost_timeout_ms=value)
    assert answer.status == 400
    assert "x-framehost-timeout-ms" in answer.json["detail"]["message"]


def test_a_timeout_beyond_the_servers_own_is_the_servers_own(server: Framehost) -> None:
    """Asking for more changes nothing and is no error."""
    assert server.decide("x", x_framehost_timeout_ms="999999999999").status == 200
