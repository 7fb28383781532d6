"""How long a command waits for the supervisor: until an order is acknowledged not long, and then for its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from frontend.cli import control_client, orders
from protocol.frames import encode
from protocol.messages import Message, Order, Outcome, Progress

LOAD = Order(action="load", model="m", settings={})
RECEIVED = Progress(stage="load")
DONE = Outcome(code="done", message="m@1 is loaded", report={})
SILENCE = None
"""Nothing has come for as long as one waits at a time."""

Given = Callable[..., int]


class Socket:
    """A management lane on which the steps of the test come."""

    def __init__(self, steps: Sequence[Message | None]) -> None:
        self.left = list(steps)
        self.sent: list[object] = []

    def send_multipart(self, frames: object) -> None:
        self.sent.append(frames)

    def recv_multipart(self) -> list[bytes]:
        step = self.left.pop(0)
        if step is None:
            raise zmq.Again
        return [bytes(frame) for frame in encode(step, incarnation="me", call=1)]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Given:
    """`give(steps, lives=...)`: the exit status of the order, after all of the steps and no more."""

    def carry_out(*steps: Message | None, lives: bool = True) -> int:
        socket = Socket(steps)

        @contextmanager
        def opened(port: int) -> Iterator[control_client.ControlClient]:
            yield control_client.ControlClient(socket, "me", port, Path("lock"))  # type: ignore[arg-type]

        monkeypatch.setattr(orders, "connected", opened)
        monkeypatch.setattr(control_client, "locked", lambda path: lives)
        status = orders.carry_out(8080, LOAD)
        assert len(socket.sent) == 1
        assert socket.left == []
        return status

    return carry_out


def test_an_order_that_was_received_is_waited_for(give: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """However often nothing comes, as long as the supervisor lives."""
    assert give(RECEIVED, SILENCE, SILENCE, Progress(stage="load", note="a step"), SILENCE, DONE) == 0
    assert capsys.readouterr().out == "a step\nm@1 is loaded\n"


def test_an_order_that_nobody_acknowledges_is_not_waited_for(give: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """At the first silence, and the sentence says that it may be carried out yet."""
    assert give(SILENCE) == 1
    told = capsys.readouterr().err
    assert "holds its lock and does not answer; the load may be carried out when it goes on" in told


def test_a_supervisor_that_ends_with_an_order_is_told_of(give: Given, capsys: pytest.CaptureFixture[str]) -> None:
    """Received, and then the lock is free: nothing will be carried out."""
    assert give(RECEIVED, SILENCE, lives=False) == 1
    assert capsys.readouterr().err == "framehost: the supervisor of port 8080 has ended before it answered\n"
