"""Batches, look-ahead and joining with real processes: what is executed, what is withdrawn, and what a death means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from tests.process.harness import Framehost, running, tagged


def counts(server: Framehost) -> dict[str, Any]:
    """The first replica's queue."""
    found: dict[str, Any] = server.model("m")["replicas"][0]["scheduler"]
    return found


def settings(runtime: Path, more: str = "") -> Path:
    file = runtime / "c.toml"
    file.write_text(f'[models.m]\nfamily = "sharing"\nlook_ahead = true\n{more}\n')
    return file


def test_equal_requests_are_executed_once_and_are_told_so_in_their_timing(runtime: Path) -> None:
    """Three clients ask the same while it is executed: one execution, three answers of one body."""
    until, mark = runtime / "until", runtime / "mark"
    with running(runtime, config=settings(runtime)) as server:
        state = {"op": "wait", "until": str(until), "mark": str(mark), "tag": "same"}
        asked = [server.soon(state) for _ in range(3)]
        server.wait(lambda: counts(server)["joined"] == 2, "two have joined")
        until.touch()
        answers = [request.result(30) for request in asked]
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert tagged(mark) == ["same"]
        timings = sorted('equal;desc="joined"' in answer.headers["server-timing"] for answer in answers)
        assert timings == [False, True, True]
        server.wait(server.idle, "idle")


def test_what_was_sent_ahead_and_left_is_never_executed(runtime: Path) -> None:
    """Its slot is back while the one before it is still executed, and the next one has its turn."""
    until, mark = runtime / "until", runtime / "mark"
    with running(runtime, config=settings(runtime)) as server:
        work = server.soon({"op": "wait", "until": str(until), "mark": str(mark), "tag": "first"})
        server.wait(lambda: tagged(mark) == ["first"], "the first one is executed")
        ahead = server.open_request({"op": "echo", "mark": str(mark), "tag": "ahead"})
        server.wait(lambda: counts(server)["staged"] == 1, "one is sent ahead")
        ahead.close()
        server.wait(lambda: counts(server)["withdrawn"] == 1, "the host says that it will not begin with it")
        assert server.model("m")["requests"] == 1, "its slot is back"
        last = server.soon({"op": "echo", "mark": str(mark), "tag": "last"})
        server.wait(lambda: counts(server)["waiting"] == 1, "nothing more is sent ahead")
        until.touch()
        assert work.result(30).status == last.result(30).status == 200
        assert tagged(mark) == ["first", "last"]
        server.wait(server.idle, "idle")


def test_a_killed_host_loses_what_it_had_taken_and_nothing_else(runtime: Path) -> None:
    """The unit that is executed: 503. What was sent ahead, and what waits: executed by the next host, once."""
    until, mark = runtime / "until", runtime / "mark"
    with running(runtime, config=settings(runtime, "batch = { units = 4 }")) as server:
        work = server.soon({"op": "wait", "until": str(until), "mark": str(mark), "tag": "first"})
        server.wait(lambda: tagged(mark) == ["first"], "the first one is executed")
        queued = [server.soon({"op": "echo", "mark": str(mark), "tag": f"t{number}"}) for number in range(4)]
        server.wait(lambda: counts(server)["staged"] + counts(server)["waiting"] == 4, "sent ahead, or waiting")
        assert counts(server)["staged"] >= 1
        psutil.Process(server.host("m")["pid"]).kill()
        assert work.result(30).status == 503
        assert {request.result(30).status for request in queued} == {200}
        assert sorted(tagged(mark)) == ["first", "t0", "t1", "t2", "t3"]
        server.wait(server.idle, "idle")
