"""Strange, late and foreign messages on a live host's sockets: refused and counted, and the next request is right."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgpack
import pytest
import zmq

from protocol.frames import Envelope, decode, encode
from protocol.messages import Bye, Cancel, CancelAnswer, Execute, Failure, Hello, Lane, Result, Status, Welcome
from protocol.payloads import TextRequest
from protocol.tensors import Buffer
from tests.process.conftest import short_directory
from tests.process.harness import Framehost, running, tagged


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory) as server:
        yield server


class Stranger:
    """A raw DEALER at one of the host's sockets."""

    def __init__(self, server: Framehost, lane: Lane) -> None:
        self.incarnation: str = server.host()["incarnation"]
        self.lane = lane
        name = {"data": "d", "control": "c"}[lane.value]
        path = next(server.runtime.glob(f"framehost-*/*/*/{self.incarnation}/{name}"))
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, 30_000)
        self._socket.connect(f"ipc://{path}")

    def send(self, frames: Sequence[Buffer]) -> None:
        self._socket.send_multipart(frames)

    def receive(self) -> Envelope:
        return decode(self._socket.recv_multipart(), lane=self.lane)

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextmanager
def stranger(server: Framehost, lane: Lane) -> Iterator[Stranger]:
    """Yields the stranger; afterwards the host must still be the same and serve."""
    host, links = server.host()["pid"], server.model()["link"]
    one = Stranger(server, lane)
    try:
        yield one
    finally:
        one.close()
    answer = server.decide({"tag": "next"})
    assert answer.status == 200
    assert answer.json["x_toy"] == {**answer.json["x_toy"], "tag": "next", "pid": host}
    assert server.model()["link"]["unknown"] == links["unknown"]
    server.wait(server.idle, "idle")


def unit(mark: Path) -> Execute:
    payload = TextRequest(f'{{"tag": "stranger", "mark": "{mark}"}}'.encode())
    return Execute(payload=payload.to_wire())


def test_a_unit_for_another_incarnation_is_refused_and_not_run(server: Framehost, runtime: Path) -> None:
    """What was meant for a dead predecessor never runs on its successor, and the sender is told."""
    mark = runtime / "mark"
    with stranger(server, Lane.DATA) as one:
        one.send(encode(unit(mark), incarnation="0-deadbeef", call=7))
        answer = one.receive()
        assert isinstance(answer.message, Failure)
        assert answer.message.code == "stale_incarnation"
        assert answer.message.status == 503
        assert answer.message.dispatched is False
        assert answer.message.fatal is False
        assert answer.call == 7
        assert answer.incarnation == one.incarnation, "it says who it is"
    assert tagged(mark) == []


def test_a_unit_whose_time_is_over_is_not_run(server: Framehost, runtime: Path) -> None:
    """The remaining budget travels with the frame: nothing is started for a request that is already late."""
    mark = runtime / "mark"
    with stranger(server, Lane.DATA) as one:
        one.send(encode(unit(mark), incarnation=one.incarnation, call=8, budget_ms=0))
        answer = one.receive().message
        assert isinstance(answer, Failure)
        assert answer.code == "expired"
        assert answer.dispatched is False
    assert tagged(mark) == []


def test_a_correct_unit_of_a_stranger_is_answered_to_the_stranger(server: Framehost, runtime: Path) -> None:
    """Replies go to whoever asked, by identity: the proof that the other tests here would have run something."""
    mark = runtime / "mark"
    with stranger(server, Lane.DATA) as one:
        one.send(encode(unit(mark), incarnation=one.incarnation, call=9))
        assert isinstance(one.receive().message, Result)
    assert tagged(mark) == ["stranger"]


def garbage(incarnation: str) -> dict[str, list[bytes]]:
    good = [bytes(frame) for frame in encode(Execute(payload={}), incarnation=incarnation, call=3)]
    return {
        "one empty frame": [b""],
        "two frames": good[:2],
        "a kind nobody has": [b"\xff", *good[1:]],
        "a kind of two bytes": [b"\x05\x05", *good[1:]],
        "a header of noise": [good[0], os.urandom(40), good[2]],
        "a body of noise": [*good[:2], b"\xc1" * 100],
        "a lying length": [*good[:2], b"\xdf\xff\xff\xff\xff"],
        "trailing bytes": [*good[:2], good[2] + b"\x00"],
        "a body that is no map": [*good[:2], msgpack.packb([1, 2, 3])],
        "unknown fields": [*good[:2], msgpack.packb({"payload": {}, "more": 1})],
        "a payload of another family": [*good[:2], msgpack.packb({"payload": {"what": 1}})],
        "an unused buffer": [*good, b"buffer"],
        "300 frames": [*good, *[b"x"] * 300],
        "another version": [good[0], msgpack.packb([99, incarnation, 3, None]), good[2]],
        "a header of five": [good[0], msgpack.packb([1, incarnation, 3, None, None]), good[2]],
    }


@pytest.mark.parametrize("what", garbage("x"))
def test_garbage_on_the_data_lane_is_one_failure_and_nothing_more(server: Framehost, what: str) -> None:
    """Any bytes are either a message or one error of ours; the reader goes on."""
    with stranger(server, Lane.DATA) as one:
        one.send(garbage(one.incarnation)[what])
        answer = one.receive().message
        assert isinstance(answer, Failure)
        assert answer.code == "protocol"
        assert not answer.fatal


@pytest.mark.parametrize("message", [Bye(reason="x"), Hello(role="front", epoch="x", pid=1), Status()])
def test_a_message_of_another_lane_is_refused_on_the_data_lane(server: Framehost, message: Status) -> None:
    """A control message on the data lane is not obeyed."""
    with stranger(server, Lane.DATA) as one:
        one.send(encode(message, incarnation=one.incarnation, call=3))
        answer = one.receive().message
        assert isinstance(answer, Failure)
        assert answer.code == "protocol"


def test_garbage_on_the_control_lane_is_counted(server: Framehost) -> None:
    """The control thread survives every one of them, and status says how many there were."""
    with stranger(server, Lane.CONTROL) as one:
        one.send(encode(Status(), incarnation=one.incarnation))
        before = one.receive().message
        assert isinstance(before, Status)
        assert before.report is not None
        pieces = garbage(one.incarnation)
        for frames in pieces.values():
            one.send(frames)
        one.send(encode(Status(), incarnation="0-deadbeef"))
        one.send(encode(Status(), incarnation=one.incarnation))
        after = one.receive().message
        assert isinstance(after, Status)
        assert after.report is not None
        assert after.report["malformed"] == before.report["malformed"] + len(pieces) + 1


def test_a_cancel_of_anything_is_fine(server: Framehost, runtime: Path) -> None:
    """Before the dispatch, twice, after the end and for nonsense: answered, and nobody's unit is touched."""
    until, seen = runtime / "until", runtime / "seen"
    with stranger(server, Lane.CONTROL) as one:
        running_unit = server.soon({"op": "wait", "until": str(until), "seen": str(seen), "tag": "a"})
        server.running()
        for call in (1, 1, 12345, 2**63 - 1, 0):
            one.send(encode(Cancel(epoch="not-the-front"), incarnation=one.incarnation, call=call))
            found = one.receive()
            assert found.call == call
            assert found.message == CancelAnswer(outcome="not_begun" if call else "not_running")
        until.touch()
        answer = running_unit.result(30)
        assert answer.status == 200
        assert answer.json["x_toy"]["cancelled"] is False
    assert tagged(seen) == []


def test_a_cancel_of_the_running_unit_is_idempotent(server: Framehost, runtime: Path) -> None:
    """Twice while it runs and once after its end; told each time what it found."""
    mark, until = runtime / "mark", runtime / "until"
    with stranger(server, Lane.DATA) as data, stranger(server, Lane.CONTROL) as control:
        payload = TextRequest(f'{{"op": "wait", "until": "{until}", "mark": "{mark}"}}'.encode())
        data.send(encode(Execute(payload=payload.to_wire()), incarnation=data.incarnation, call=5))
        server.wait(mark.exists, "the unit runs")
        control.send(encode(Hello(role="test", epoch="t", pid=1), incarnation=data.incarnation))
        welcome = control.receive().message
        assert isinstance(welcome, Welcome)
        assert welcome.busy_call == 5
        epoch = welcome.busy_epoch
        outcomes = []
        control.receive()  # the READY that follows every HELLO
        for _ in range(2):
            control.send(encode(Cancel(epoch=epoch), incarnation=data.incarnation, call=5))
            outcomes.append(control.receive().message)
        until.touch()
        result = data.receive().message
        assert isinstance(result, Result)
        assert result.outputs["cancelled"] is True
        idle = control.receive().message
        assert isinstance(idle, Status), "whoever said HELLO is told that the host is idle again"
        control.send(encode(Cancel(epoch=epoch), incarnation=data.incarnation, call=5))
        outcomes.append(control.receive().message)
        assert outcomes == [CancelAnswer(outcome=word) for word in ("running", "running", "not_running")]


def test_garbage_on_the_management_lane_does_not_reach_the_supervisor(server: Framehost) -> None:
    """Anything, from anybody: the supervisor goes on and `framehost status` answers."""
    path = next(server.runtime.glob("framehost-*/*/*/m"))
    context = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        socket.connect(f"ipc://{path}")
        socket.setsockopt(zmq.RCVTIMEO, 30_000)
        for frames in garbage("x").values():
            socket.send_multipart(frames)
        # A stranger that says it is a front is not the front.
        socket.send_multipart(encode(Hello(role="front", epoch="x", pid=1), incarnation="x"))
        socket.send_multipart(encode(Status(), incarnation="x", call=1))
        answer = decode(socket.recv_multipart(), lane=Lane.MANAGEMENT)
        assert isinstance(answer.message, Status)
        assert answer.call == 1
    finally:
        context.destroy(linger=0)
    assert server.decide("x").status == 200
