"""A client leaves. Queued work is never started for it; running work keeps its permit until the host lets go."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import Framehost, running, tagged


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory) as server:
        yield server


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


WAYS = pytest.mark.parametrize("leave", [close, reset, half_close])


@WAYS
def test_a_client_that_leaves_the_queue_is_never_served(
    server: Framehost, runtime: Path, leave: Callable[[socket.socket], None]
) -> None:
    """Its unit is removed and never started; the next waiter runs in its place."""
    mark, until = runtime / "mark", runtime / "until"
    withdrawn = server.model()["scheduler"]["withdrawn"]
    first = server.soon({"op": "wait", "until": str(until), "tag": "a", "mark": str(mark)})
    server.running()
    gone = server.open_request({"tag": "gone", "mark": str(mark)})
    server.queued(1)
    third = server.soon({"tag": "c", "mark": str(mark)})
    server.queued(2)
    leave(gone)
    server.queued(1)
    until.touch()
    assert first.result(30).status == third.result(30).status == 200
    assert tagged(mark) == ["a", "c"]
    assert server.model()["scheduler"]["withdrawn"] == withdrawn + 1
    server.wait(server.idle, "idle")


@WAYS
def test_a_client_that_leaves_its_running_unit_leaves_the_permit_with_it(
    server: Framehost, runtime: Path, leave: Callable[[socket.socket], None]
) -> None:
    """The host hears of it at once, the permit stays until it answers, the next one gets its own."""
    mark, until, seen = runtime / "mark", runtime / "until", runtime / "seen"
    host = server.host()["pid"]
    dropped = server.model()["scheduler"]["dropped_results"]
    gone = server.open_request({"op": "wait", "until": str(until), "tag": "a", "mark": str(mark), "seen": str(seen)})
    server.wait(lambda: tagged(mark) == ["a"], "the unit runs")
    leave(gone)
    server.wait(lambda: tagged(seen) == ["a"], "the host knows that nobody waits")
    following = server.soon({"tag": "b", "mark": str(mark)})
    server.queued(1)
    scheduler = server.model()["scheduler"]
    assert scheduler["running"] == scheduler["abandoned"] == 1
    assert server.model()["admissions"][0]["outstanding"] == 2
    assert server.model()["link"]["cancelling"] == 1
    assert tagged(mark) == ["a"], "nothing overtakes a unit that nobody waits for"
    until.touch()
    answer = following.result(30)
    assert answer.status == 200
    assert answer.json["x_toy"]["tag"] == "b"
    assert answer.json["x_toy"]["pid"] == host
    assert tagged(seen) == ["a"], "one cancel"
    assert server.model()["scheduler"]["dropped_results"] == dropped + 1
    assert server.model()["link"]["unknown"] == 0
    server.wait(server.idle, "idle")


def test_a_client_that_leaves_during_its_upload_leaves_nothing(server: Framehost) -> None:
    """Half a body and then silence for ever: the bytes it had announced are free again."""
    ended = dict(server.status()["front"]["requests"]["ended"])
    gone = server.connect(b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    server.wait(lambda: server.status()["front"]["ingress"]["held"] == 1000, "the upload is admitted")
    gone.close()
    server.wait(server.idle, "idle")
    now = server.status()["front"]["requests"]["ended"]
    assert now["cancelled"] == ended.get("cancelled", 0) + 1


def test_every_way_to_end_is_counted_as_what_it_was(server: Framehost, runtime: Path) -> None:
    """Cancelled, expired, refused, failed and answered are distinct ends, never one another."""
    before = dict(server.status()["front"]["requests"]["ended"])
    until = runtime / "until"
    blocker = server.soon({"op": "wait", "until": str(until)})
    server.running()
    gone = server.open_request({"tag": "gone"})
    server.queued(1)
    gone.close()
    server.queued(0)
    assert server.decide("late", x_framehost_timeout_ms="1").status == 504
    assert server.post(b"{}").status == 422
    until.touch()
    assert blocker.result(30).status == 200
    assert server.decide({"op": "raise"}).status == 500
    server.wait(server.idle, "idle")
    after = server.status()["front"]["requests"]["ended"]
    assert {key: after[key] - before.get(key, 0) for key in after} == {
        "answered": 1, "cancelled": 1, "expired": 1, "refused": 1, "failed": 1,
    }  # fmt: skip
