"""What a service manager is told (systemd's `Type=notify`): that the server is ready, stops, and is alive.

    READY=1       every model that is started with the server answers, and the port is open
    STATUS=...    one line for `systemctl status`
    STOPPING=1    a stop was asked for, or the server ends by itself
    WATCHDOG=1    the supervisor's loop turns; at every look, when the unit has a WatchdogSec

One datagram each, to the socket that NOTIFY_SOCKET names. Nothing here waits or raises: a manager that does not listen
changes nothing, and one whose queue is full is told again at the next look.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = ("WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """Who is told, if anybody is."""

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        """Takes the variables out of `environment`, so that no child tells in our name. `pid`: of this process."""
        address = environment.pop(SOCKET, "")
        period, owner = (environment.pop(name, "") for name in WATCHDOG)
        # "@" stands for the null byte with which an abstract address begins.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watched = period.isdecimal() and int(period) > 0 and owner in ("", str(pid))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._unsaid: list[str] = []
        """What the manager's queue had no room for."""

    def ready(self, status: str) -> None:
        """The start is over; `status` says of what, in one line."""
        self._say("READY=1", f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """The end has begun."""
        self._say("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Call it from the loop, often."""
        unsaid, self._unsaid = self._unsaid, []
        for text in unsaid:
            self._send(text)
        if self._watched and not self._unsaid:
            self._send("WATCHDOG=1", again=False)

    def close(self) -> None:
        """Nothing is told any more. May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, *lines: str) -> None:
        self._send("\n".join(lines))

    def _send(self, text: str, *, again: bool = True) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except BlockingIOError:
            if again:
                self._unsaid.append(text)
        except OSError:
            return


def of_this_process() -> ServiceManager:
    """The manager that has started this process."""
    return ServiceManager(os.environ, os.getpid())
