"""The sockets of the loop: nothing lost, nothing blocked, nothing dropped in silence, nobody else's thread."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from protocol import limits
from protocol.transport import loop as loop_socket
from protocol.transport import loop as sockets
from protocol.transport.calls import readable
from tests.helpers.fake_host import until, zmq_context


@pytest.fixture
def address() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="fh-")
    yield f"ipc://{directory}/s"
    shutil.rmtree(directory)


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    with zmq_context() as made:
        yield made


def ignore(frames: list[bytes]) -> None:
    raise AssertionError(f"unexpected: {frames}")


async def test_what_was_sent_before_the_other_side_exists_arrives(context: zmq.Context[Any], address: str) -> None:
    """A dial may come first: its messages wait for the bind."""
    loop = asyncio.get_running_loop()
    heard: list[list[bytes]] = []
    dialler = sockets.dial(loop, context, address, ignore, identity="a")
    dialler.send([b"early"])
    listener = sockets.listen(loop, context, address, heard.append)
    await until(lambda: heard)
    assert heard == [[b"a", b"early"]]
    dialler.close()
    listener.close()


async def test_no_message_is_lost_to_cancelled_tasks(context: zmq.Context[Any], address: str) -> None:
    """3,000 messages, each raced by the cancellation of a task that waits for it; all of them are counted."""
    loop = asyncio.get_running_loop()
    heard: list[list[bytes]] = []
    arrived = asyncio.Event()

    def receive(frames: list[bytes]) -> None:
        heard.append(frames)
        arrived.set()

    listener = sockets.listen(loop, context, address, receive)
    dialler = sockets.dial(loop, context, address, ignore, identity="a")
    for number in range(3_000):
        waiter = loop.create_task(arrived.wait())
        dialler.send([b"%d" % number])
        if number % 3:
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        arrived.clear()
        if number % 500 == 499:  # stay below the high-water mark
            await until(partial(lambda count: len(heard) == count, number + 1))
    assert [int(frames[1]) for frames in heard] == list(range(3_000))
    dialler.close()
    listener.close()


async def test_a_receiver_that_raises_does_not_silence_the_socket(
    context: zmq.Context[Any], address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One message that cannot be handled is logged, the next one arrives."""
    loop, heard = asyncio.get_running_loop(), []

    def receive(frames: list[bytes]) -> None:
        if frames[1] == b"bad":
            raise KeyError("a bug")
        heard.append(frames[1])

    listener = sockets.listen(loop, context, address, receive)
    dialler = sockets.dial(loop, context, address, ignore, identity="a")
    for text in (b"bad", b"good", b"bad", b"better"):
        dialler.send([text])
    await until(lambda: len(heard) == 2)
    assert heard == [b"good", b"better"]
    assert [record.getMessage() for record in caplog.records] == ["a message could not be handled"] * 2
    dialler.close()
    listener.close()


async def test_a_full_socket_raises_instead_of_blocking_or_dropping(context: zmq.Context[Any], address: str) -> None:
    """Nobody reads: the bound fires where the message is sent, and the loop still turns."""
    dialler = sockets.dial(asyncio.get_running_loop(), context, address, ignore, identity="a")
    for _ in range(limits.SOCKET_HIGH_WATER_MARK):
        dialler.send([b"x"])
    with pytest.raises(zmq.Again):
        dialler.send([b"x"])
    dialler.close()


async def test_a_message_to_nobody_raises(context: zmq.Context[Any], address: str) -> None:
    """A ROUTER would drop it without a word."""
    listener = sockets.listen(asyncio.get_running_loop(), context, address, ignore)
    with pytest.raises(zmq.ZMQError) as caught:
        listener.send([b"stranger", b"x"])
    assert caught.value.errno == zmq.EHOSTUNREACH
    listener.close()


async def test_closing_ends_it(context: zmq.Context[Any], address: str) -> None:
    """Close twice is fine, sending afterwards raises, and nothing arrives any more."""
    dialler = sockets.dial(asyncio.get_running_loop(), context, address, ignore, identity="a")
    dialler.close()
    dialler.close()
    with pytest.raises(zmq.ZMQError):
        dialler.send([b"x"])


async def test_a_socket_with_unsent_messages_does_not_keep_the_process(address: str) -> None:
    """The peer never came; the context ends all the same, because linger is bounded on every socket."""
    context: zmq.Context[Any] = zmq.Context()
    dialler = sockets.dial(asyncio.get_running_loop(), context, address, ignore, identity="a")
    dialler.send([b"x" * 100])
    dialler.close()
    # Would block for ever with the library's default; the guard of the whole test is the limit.
    context.destroy(linger=None)


async def test_use_after_a_fork_raises(context: zmq.Context[Any], address: str) -> None:
    """The child's copy would look open and corrupt the parent's; it refuses instead."""
    loop = asyncio.get_running_loop()
    heard: list[list[bytes]] = []
    listener = sockets.listen(loop, context, address, heard.append)
    dialler = sockets.dial(loop, context, address, ignore, identity="a")
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(15)  # without the check, the send can spin in the library for ever
        try:
            dialler.send([b"from the child"])
        except RuntimeError:
            status = 42
        finally:
            os._exit(status)
    ended: list[int] = []

    def reaped() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        ended.append(status)
        return pid == child

    await until(reaped, "the end of the child")
    assert os.waitstatus_to_exitcode(ended[-1]) == 42
    dialler.send([b"from the parent"])
    await until(lambda: heard)
    assert heard == [[b"a", b"from the parent"]]
    dialler.close()
    listener.close()


async def test_the_socket_file_of_a_listener_is_where_it_was_asked_to_be(
    context: zmq.Context[Any], address: str
) -> None:
    """One path per socket, and no second bind by us: addresses are fresh per incarnation."""
    listener = sockets.listen(asyncio.get_running_loop(), context, address, ignore)
    assert Path(address.removeprefix("ipc://")).is_socket()
    listener.close()


@pytest.mark.parametrize(("size", "most"), [(1, loop_socket.TURN_MESSAGES), (loop_socket.BYTES_AS_A_MESSAGE, 32)])
async def test_a_peer_that_floods_us_leaves_each_turn_to_others(
    context: zmq.Context[Any], address: str, size: int, most: int
) -> None:
    """What else the loop has to do comes after a turn's share of messages, fewer when they are large; all arrive."""
    loop = asyncio.get_running_loop()
    heard: list[int] = []
    marks: list[int] = []

    def receive(frames: list[bytes]) -> None:
        if not heard:
            while not arrived():
                pass
        heard.append(len(frames[1]))
        if len(heard) == 1:
            loop.call_soon(lambda: marks.append(len(heard)))

    listener = sockets.listen(loop, context, address, receive)
    dialler = sockets.dial(loop, context, address, ignore, identity="a")
    unread = sockets.listen(loop, context, f"{address}2", ignore)
    last = sockets.dial(loop, context, f"{address}2", ignore, identity="b")

    def arrived() -> bool:
        """Both sockets' messages go through the library's one thread, the flood first."""
        return readable(unread._socket)

    for _ in range(200):
        dialler.send([b"x" * size])
    last.send([b"behind the flood"])
    unread._receive = lambda frames: None
    loop.remove_reader(unread._descriptor)
    await until(lambda: len(heard) == 200)
    assert marks == [most]
    for socket in (listener, dialler, unread, last):
        socket.close()


async def test_a_peer_that_connects_again_has_its_identity_back(context: zmq.Context[Any], address: str) -> None:
    """Its second connection takes over from the first, which the other side still holds for alive."""
    loop = asyncio.get_running_loop()
    heard: list[list[bytes]] = []
    listener = sockets.listen(loop, context, address, heard.append)
    first_answers: list[list[bytes]] = []
    second_answers: list[list[bytes]] = []
    first = sockets.dial(loop, context, address, first_answers.append, identity="a")
    first.send([b"1"])
    await until(lambda: len(heard) == 1)
    second = sockets.dial(loop, context, address, second_answers.append, identity="a")
    second.send([b"2"])
    await until(lambda: len(heard) == 2)
    listener.send([b"a", b"answer"])
    await until(lambda: second_answers)
    assert (first_answers, second_answers) == ([], [[b"answer"]])
    for socket in (listener, first, second):
        socket.close()
