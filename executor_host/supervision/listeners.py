"""The ports of one server: bound and locked before anything is started, so that they are ours or the command ends.

A bound socket alone does not keep a second server away, and a lock alone does not keep others away: an `HttpListener`
is both. It does not listen yet: the front inherits the sockets and listens when every model is warm. They outlive the
front, and so does what clients have waiting in them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from executor_host.supervision.directory import ANOTHER_PORT, AlreadyRunning, DirectoryError, RuntimeDirectory
from protocol.errors import LimitExceeded
from protocol.exits import ServeExit

ANOTHER_HEALTH_PORT = "choose another port with --health, or with health in [server]"
"""The same for the probes' port."""


class PortUnusable(Exception):
    """A port cannot be had. The text says why; `status` is what the command ends with."""

    def __init__(self, status: ServeExit, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpListener:
    """A bound, not yet listening socket, and the directory whose lock keeps a second server off its port."""

    listener: socket.socket
    directory: RuntimeDirectory

    @classmethod
    def open(cls, host: str, port: int, remedy: str = ANOTHER_PORT) -> HttpListener:
        """Bind and lock. `remedy`: which setting it comes from. Raises `PortUnusable`."""
        try:
            listener = bind(host, port)
        except OSError as error:
            raise PortUnusable(*why_not_bound(host, port, error, remedy)) from error
        try:
            return cls(listener, RuntimeDirectory(listener.getsockname()[1]))
        except (DirectoryError, LimitExceeded) as error:
            listener.close()
            status = ServeExit.PORT_IN_USE if isinstance(error, AlreadyRunning) else ServeExit.CONFIGURATION
            raise PortUnusable(status, str(error)) from error

    @property
    def url(self) -> str:
        """Where its clients find it."""
        return url_of(self.listener)

    @property
    def fileno(self) -> int:
        """The socket's descriptor, which the front inherits."""
        return self.listener.fileno()

    def close(self) -> None:
        """Give the port and its lock back."""
        self.directory.close()
        self.listener.close()


@dataclass(frozen=True, slots=True)
class Listeners:
    """All ports of one server. The opener closes them."""

    main: HttpListener
    natives: Mapping[str, HttpListener]
    """The native listeners, by model."""
    admin: HttpListener | None
    """The operators'."""
    health: socket.socket | None
    """The probes': listened on from the first moment, by the supervisor itself."""

    @property
    def inherited(self) -> list[HttpListener]:
        """Those that the front listens on."""
        return [self.main, *self.natives.values(), *(() if self.admin is None else (self.admin,))]


def open_health(host: str, port: int) -> socket.socket:
    """The probes' port, listened on from now on. It needs no lock: a listening socket keeps others away. Raises
    `PortUnusable`."""
    listener = None
    try:
        listener = bind(host, port)
        listener.listen()
    except OSError as error:
        if listener is not None:
            listener.close()
        status, text = why_not_bound(host, port, error, ANOTHER_HEALTH_PORT, has_lock=False)
        raise PortUnusable(status, f"the health address: {text}") from error
    return listener


def bind(host: str, port: int) -> socket.socket:
    """A bound, not yet listening socket. Raises `OSError`.

    SO_REUSEADDR because a restart must not wait for old connections to time out; never SO_REUSEPORT, with
    which two servers would share a port in silence.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def why_not_bound(
    host: str, port: int, error: OSError, remedy: str = ANOTHER_PORT, *, has_lock: bool = True
) -> tuple[ServeExit, str]:
    """The exit status and the sentence for what `bind` raised: is the port taken, or can it never be had? `has_lock`:
    whether another framehost's port of this kind has a lock, so that it is found by it."""
    said = f"cannot listen on {host} port {port}: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        asked = f"`framehost status --port {port}` tells whether it is another framehost; " if has_lock else ""
        return ServeExit.PORT_IN_USE, f"{said}. {asked}{remedy}"
    if error.errno == errno.EADDRNOTAVAIL:
        return ServeExit.CONFIGURATION, f"{said}. No interface of this machine has the address"
    if error.errno in (errno.EACCES, errno.EPERM):
        return ServeExit.CONFIGURATION, f"{said}. Ports below 1024 are for root; {remedy}"
    return ServeExit.CONFIGURATION, said


def url_of(listener: socket.socket) -> str:
    """Where clients find a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
