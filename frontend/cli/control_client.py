"""A command's line to a running supervisor: its management socket, found through the runtime directory."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from protocol import addresses
from protocol.errors import ProtocolError
from protocol.frames import decode, encode
from protocol.messages import Lane, Message

USUAL_BASES = (f"/run/user/{os.getuid()}", "/tmp")  # noqa: S108 - looked at, not written to
"""What XDG_RUNTIME_DIR usually is: in a login session, and where there is none (cron, sudo, a container)."""

ANSWER_MS = 3_000
"""A running supervisor answers in milliseconds, also while its front is dead; then it waits one second for it."""


MAX_PORT = 65_535


class NotRunning(Exception):
    """No supervisor answers for this port; the text says what was found instead."""


def port_number(text: str) -> int:
    """The port of a running server, as an option. Raises `ArgumentTypeError`: none is at 0, which asks for any."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 0 < value <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is 1..{MAX_PORT}")
    return value


class ControlClient:
    """One open line. `hear` raises `NotRunning`."""

    def __init__(self, socket: zmq.Socket[bytes], me: str, port: int, lock: Path) -> None:
        self._socket, self._me, self._port, self._lock = socket, me, port, lock

    def say(self, message: Message) -> None:
        """Send the one question or order of this line."""
        self._socket.send_multipart(encode(message, incarnation=self._me, call=1))

    def hear(self, *, patient: bool = False) -> Message:
        """The next message. `patient`: it may take as long as the supervisor lives, else `ANSWER_MS`."""
        while True:
            try:
                return decode(self._socket.recv_multipart(), lane=Lane.MANAGEMENT, incarnation=self._me).message
            except zmq.Again:
                if not locked(self._lock):
                    raise NotRunning(f"the supervisor of port {self._port} has ended before it answered") from None
                if not patient:
                    raise NotRunning(
                        f"the supervisor of port {self._port} holds its lock and does not answer"
                    ) from None
            except ProtocolError as error:
                raise NotRunning(f"the supervisor of port {self._port} speaks another protocol: {error}") from None


@contextmanager
def connected(port: int) -> Iterator[ControlClient]:
    """A line to the supervisor behind `port`. Raises `NotRunning`."""
    directory = addresses.runtime_directory(port)
    if problem := not_ours(directory):
        raise NotRunning(f"{problem}; what is in it is not asked, and gets no orders")
    info, lock = directory / addresses.INFO_NAME, directory / addresses.LOCK_NAME
    if not locked(lock):
        raise NotRunning(_not_there(port))
    try:
        management: str = json.loads(info.read_text())["management"]
    except (OSError, ValueError, KeyError) as error:
        raise NotRunning(f"the framehost on port {port} is just starting or stopping ({info}: {error})") from None
    me = f"cli-{secrets.token_hex(4)}"
    context = zmq.Context()
    try:
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IDENTITY, me.encode())
            socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
            socket.connect(management)
            yield ControlClient(socket, me, port, lock)
    finally:
        context.destroy(linger=0)


def _not_there(port: int) -> str:
    """Where nothing was found, or with which XDG_RUNTIME_DIR something would have been."""
    here = addresses.runtime_directory(port)
    for base in USUAL_BASES:
        there = addresses.runtime_directory(port, base=base)
        if there != here and not not_ours(there) and locked(there / addresses.LOCK_NAME):
            return f"the framehost on port {port} has another XDG_RUNTIME_DIR; ask with XDG_RUNTIME_DIR={base}"
    return (
        f"no framehost of this user is running on port {port} (looked in {here}); "
        f"start one with: framehost serve --port {port}"
    )


def not_ours(directory: Path) -> str:
    """Why a server's runtime directory cannot be trusted; "" when it can, or is not there.

    Where there is no XDG_RUNTIME_DIR it is in /tmp, where any user may make one of our name: behind it would be a
    server of theirs, which is told our orders and tells us what to print.
    """
    for place in (directory.parent, directory):
        try:
            found = place.lstat()
        except OSError:
            return ""
        if not stat.S_ISDIR(found.st_mode):
            return f"{place} is no directory"
        if found.st_uid != os.getuid():
            return f"{place} belongs to another user (uid {found.st_uid})"
        if found.st_mode & 0o077:
            return f"{place} can be used by others (mode {stat.S_IMODE(found.st_mode):04o}; 0700 is this user's alone)"
    return ""


def locked(path: Path) -> bool:
    """Whether a supervisor holds the lock: the one thing that does not outlive it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
