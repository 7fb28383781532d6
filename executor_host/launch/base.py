"""How a host comes to be: the seam between the supervisor and whatever starts processes.

The supervisor decides when; a launcher knows how and where. The host link takes addresses and an incarnation
and does not know who started the host, so a launcher may put it on another machine.
"""

from __future__ import annotations

import json
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from protocol import addresses
from protocol.curve import Security
from protocol.exits import HostExit
from protocol.models import DeploymentSpec
from protocol.tensors import Buffer

LAST_WORDS_CHARS = 4_000
"""How much of a dead process's output is attached to its death report; the log has all of it."""


@dataclass(frozen=True, slots=True)
class RemoteHosts:
    """Where and from whom hosts may dial in."""

    address: str
    """ZeroMQ address of the listener, `tcp://ADDRESS:PORT`."""
    key: Path
    """The server's own NAME.key_secret."""
    allow: Path | None
    """A folder with the NAME.key of every host that may dial in; None: only those that are let in one by one."""
    lease_s: float


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Everything a launcher needs to start one incarnation."""

    deployment: DeploymentSpec
    incarnation: str
    directory: str
    """Fresh, 0700, for this incarnation's sockets alone."""

    def arguments(self) -> list[str]:
        """The command line of `executor_host.main`."""
        deployment = self.deployment
        arguments = ["--deployment", deployment.id, "--incarnation", self.incarnation]
        arguments += ["--directory", self.directory, "--family", deployment.family]
        if deployment.path is not None:
            arguments += ["--path", deployment.path]
        return [*arguments, "--options", json.dumps(deployment.options)]

    @property
    def control(self) -> str:
        """Where the host binds its control lane at once."""
        return addresses.control(self.directory)


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended: a status, or the signal that ended it."""

    status: int | None
    signal: int | None

    @classmethod
    def of(cls, returncode: int) -> ProcessExit:
        """From the convention of the standard library: negative means a signal."""
        return cls(None, -returncode) if returncode < 0 else cls(returncode, None)

    @property
    def signal_name(self) -> str:
        """ "SIGKILL", or "" when it was no signal."""
        if self.signal is None:
            return ""
        try:
            return signal.Signals(self.signal).name
        except ValueError:
            return f"signal {self.signal}"

    def describe(self, *, cause: str = "", resident_bytes: int = 0) -> str:
        """For people. `cause`: why we ended it ourselves. Of a SIGKILL that is not ours, it says who usually sends
        one, and with how much memory (`resident_bytes`, 0 = not known) the process was seen last."""
        if self.signal is not None:
            text = f"killed by {self.signal_name}"
            if cause:
                return f"{text} by framehost: {cause}"
            if self.signal == signal.SIGKILL:
                seen = f"; {resident_bytes / 2**20:.0f} MiB resident when last seen" if resident_bytes else ""
                text += f" (the kernel's out-of-memory killer or an operator{seen})"
            return text
        given_up = f", given up by framehost: {cause}" if cause else ""
        try:
            return f"exit status {self.status} ({HostExit(self.status or 0).name.lower().replace('_', ' ')}){given_up}"
        except ValueError:
            return f"exit status {self.status}{given_up}"


class ProcessHandle(ABC):
    """One started process. Its end is known from here and from nowhere else."""

    threads: int | None = None
    """How many its libraries were told to compute with; None: they were not told."""

    address: str | None = None
    """Of its control lane, when that is not where the spec says."""
    security: Security | None = None
    """For those that dial its sockets; None when they are local."""

    def lost(self) -> None:  # noqa: B027 - most processes cannot get lost
        """The connection to its control lane is gone. A process of this machine has its end noticed otherwise."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process id where it runs, 0 when there is none to name."""

    @abstractmethod
    async def wait(self) -> ProcessExit:
        """Until it has ended and its output has been read. Safe to cancel and to call again."""

    @abstractmethod
    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process alone; nothing happens when it has ended."""

    @abstractmethod
    def kill(self) -> None:
        """End it now, with everything it started; nothing happens when it has ended."""

    @abstractmethod
    def last_words(self) -> str:
        """The end of what it has written to stdout and stderr."""

    @abstractmethod
    def describe(self) -> str:
        """Where it runs, for people."""

    def taken(self) -> dict[str, int] | None:
        """Of a host that has ended: by the epoch of each front, the number of its last unit that the host took. None
        when that is not known, as of one that may still be running elsewhere."""
        return None


class Connection(Protocol):
    """One of the supervisor's sockets."""

    def send(self, frames: Sequence[Buffer]) -> None: ...

    def close(self) -> None: ...


class Listener(Connection, Protocol):
    """One that others dial: what it receives begins with the identity of the peer."""

    @property
    def address(self) -> str:
        """Where it is bound, with the port that the system chose."""
        ...

    def bind(self, address: str) -> None: ...


class HostLauncher(ABC):
    """Starts executor hosts."""

    @abstractmethod
    async def start(self, spec: HostSpec) -> ProcessHandle:
        """Start one incarnation and return at once; readiness is a message, not a return value.

        Raises `OSError` when nothing could be started.
        """

    def close(self) -> None:  # noqa: B027 - there need not be anything
        """Give back what the launcher itself holds, when everything it has started has ended."""
