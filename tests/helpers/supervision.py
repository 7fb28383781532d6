"""What the tests of the supervisor's decisions have in common: a clock that is moved, and a record of effects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from executor_host.launch.base import Connection, HostLauncher, ProcessExit, ProcessHandle
from executor_host.supervision.console import Console
from executor_host.supervision.directory import RuntimeDirectory
from executor_host.supervision.host_life import HostLife
from executor_host.supervision.host_slot import Surroundings
from executor_host.supervision.incarnation import Launched
from executor_host.supervision.life import ServerLife
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from protocol.messages import HostDown, HostUp, Message, Progress, Ready, Welcome
from protocol.models import DeploymentSpec
from protocol.tensors import Buffer

DATA = "ipc:///run/framehost-0/1/launch/1/d"
KILLED = ProcessExit(None, 9)
CRASHED = ProcessExit(1, None)


class Clock:
    """Seconds, moved by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def minting() -> Callable[[], str]:
    """Incarnations 1-x, 2-x, ..."""
    names = iter(f"{number}-x" for number in range(1, 1000))
    return lambda: next(names)


def spec(**fields: Any) -> DeploymentSpec:
    """A deployment of the toy family."""
    return DeploymentSpec(**{"id": "m@1", "name": "m", "family": "toy", **fields})


class HostWorld:
    """A slot's effects, recorded as words, and the slot itself: `take` returns the words since the last `take`."""

    def __init__(self, restarts: int = 5, replica: int | None = 0, **fields: Any) -> None:
        self.clock = Clock()
        self.log = io.StringIO()
        self.told: list[Message] = []
        """What the front was told."""
        self._words: list[str] = []
        self.life = HostLife(
            spec(**fields),
            replica,
            self,
            RestartPolicy(RestartLimits(budget=restarts, endless=True)),
            console=Console(self.log),
            clock=self.clock,
            mint=minting(),
        )

    def take(self) -> list[str]:
        """The effects since the last time."""
        words, self._words = self._words, []
        return words

    def launched(self) -> None:
        """A process is there."""
        self.life.launched(Launched(pid=7, where="a process of the test", control="ipc:///c", data=DATA))

    def becomes_ready(self, *, accepted: bool = True) -> None:
        """The process is there, loads, makes its first decision, and the front says what it thinks of that."""
        self.launched()
        self.life.heard(Welcome(role="host", pid=7, state="starting"))
        self.life.heard(Progress(stage="warming"))
        self.life.heard(Ready(address=DATA, facts={"identity": "a"}))
        if accepted:
            self.life.judged("")

    def launch(self, incarnation: str) -> None:
        self._words.append(f"launch {incarnation}")

    def abandon(self) -> None:
        self._words.append("abandon")

    def tell(self, message: Message) -> None:
        self._words.append(f"tell {message.KIND.name}")

    def terminate(self) -> None:
        self._words.append("terminate")

    def take_stacks(self) -> None:
        self._words.append("take stacks")

    def kill(self) -> None:
        self._words.append("kill")

    def wait(self, seconds: float) -> None:
        self._words.append(f"wait {seconds:g}")

    def wait_no_more(self) -> None:
        self._words.append("wait no more")

    def tell_front(self, message: Message) -> None:
        self.told.append(message)
        assert isinstance(message, (HostUp, HostDown))
        after = "" if isinstance(message, HostUp) else f", {'another' if message.will_restart else 'none'} follows"
        self._words.append(f"front: {message.KIND.name}{after}")

    def ready(self) -> None:
        self._words.append("ready")

    def warm(self) -> None:
        self._words.append("warm")

    def died(self, how: str) -> None:
        self._words.append(f"died: {how}")

    def changed(self) -> None:
        self._words.append("changed")

    def rests(self) -> None:
        self._words.append("rests")


class Lane:
    """A connection that goes nowhere."""

    def send(self, frames: Sequence[Buffer]) -> None:
        pass

    def close(self) -> None:
        pass


def surroundings(
    path: Path, console: Console, launcher: HostLauncher, told: Callable[[Message], None] = lambda _: None
) -> Surroundings:
    """What slots work with, in the running loop: a runtime directory below `path`, and lanes that go nowhere."""

    def dial(address: str, receive: Callable[[list[bytes]], None], process: ProcessHandle) -> Connection:
        return Lane()

    return Surroundings(
        life=ServerLife(console.say),
        console=console,
        directory=RuntimeDirectory(1, base=str(path)),
        epoch="e",
        restarts=0,
        launcher_of=lambda _: launcher,
        dial=dial,
        tell_front=told,
        mint=minting(),
        clock=asyncio.get_running_loop().time,
    )
