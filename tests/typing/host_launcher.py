"""What a launcher of hosts may be, and what the type checker tells it."""

from __future__ import annotations

import signal

from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle
from protocol.models import DeploymentSpec


class Handle(ProcessHandle):
    """All of a process."""

    @property
    def pid(self) -> int:
        return 0

    async def wait(self) -> ProcessExit:
        return ProcessExit.of(-9)

    def send_signal(self, number: signal.Signals) -> None: ...

    def kill(self) -> None: ...

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return "nowhere"


class Launcher(HostLauncher):
    """All of a launcher."""

    async def start(self, spec: HostSpec) -> Handle:
        return Handle()


made: HostLauncher = Launcher()


async def uses(spec: HostSpec) -> int | None:
    """As the supervisor does."""
    return (await (await made.start(spec)).wait()).status


class Unwatched(ProcessHandle):
    """A process whose end nobody can learn."""

    @property
    def pid(self) -> int:
        return 0

    def send_signal(self, number: signal.Signals) -> None: ...

    def kill(self) -> None: ...

    def last_words(self) -> str:
        return ""

    def describe(self) -> str:
        return ""


Unwatched()  # expect: abstract


class Blocking(HostLauncher):
    """One that the supervisor's loop would wait for."""

    def start(self, spec: HostSpec) -> ProcessHandle:  # expect: override
        return Handle()


class Bare(HostLauncher):
    """One that starts a number."""

    async def start(self, spec: HostSpec) -> int:  # expect: override
        return 1


HostSpec(deployment="m-1", incarnation="i", directory="/run")  # expect: arg-type
DeploymentSpec(id="m-1", name="m", family="sparrow", path=None, options={}).path = "x"  # expect: misc
Handle().send_signal("SIGTERM")  # expect: arg-type
