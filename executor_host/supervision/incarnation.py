"""What is known of one process of a host slot: who it is, how far it is, what it has answered, why it is being ended.

Pure: it is told what was heard and what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor_host.supervision.watchdog import Watchdog
from protocol.messages import HostUp, Progress
from protocol.states import HOST, HostEvent, HostState, Machine

EXIT_LIMIT_S = 10.0
"""How long a host may still be there after it has said that it ends. Giving a model's memory back takes less."""


LINES_SAID = 100
"""How many lines of the log one process may have by what it says on its control lane. A load has a dozen stages."""


@dataclass(frozen=True, slots=True)
class Launched:
    """What the launcher says of a process that it has made, or found."""

    pid: int
    """0 when it has none here."""
    where: str
    """For people."""
    control: str
    """The address of its control lane."""
    data: str | None
    """The only address that its data lane may have; None for a host elsewhere, which chooses one."""
    public_key: str = ""
    """The CURVE key that it must prove to hold; "" for a local one."""


class Incarnation:
    """One process, from the order to start it to its end. Times in seconds, on the caller's clock."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.machine = Machine(HOST, HostState.STARTING)
        self.process: Launched | None = None
        """None until there is one."""
        self.started = self.progressed_at = now
        self.ready_at: float | None = None
        self.brings: HostUp | None = None
        """What a front would be told of it, once it is ready."""
        self.up: HostUp | None = None
        """What the front has been told of it."""
        self.accepted = False
        """Whether the front has accepted what it brings."""
        self.progress: Progress | None = None
        self.watchdog = Watchdog(now)
        self.resident_bytes = 0
        """Memory when it was last looked at; what is left of one that is killed."""
        self.cause = ""
        """Why we end it, when it is us."""
        self.refused = False
        """Whether what it brings cannot be used: the next one would bring the same."""
        self.ending_since: float | None = None
        """When it said that it ends."""
        self._said = 0

    def launched(self, process: Launched, now: float) -> None:
        """There is a process. What came before was waiting for it, and is no part of its load."""
        self.process = process
        self.started = self.progressed_at = now
        self.watchdog = Watchdog(now)

    def welcomed(self) -> None:
        """It has answered HELLO."""
        if self.machine.allows(HostEvent.WELCOME):
            self.machine.advance(HostEvent.WELCOME)

    def progressed(self, progress: Progress, now: float) -> None:
        """It loads, or warms up."""
        self.progress, self.progressed_at = progress, now
        if progress.stage == "warming" and self.machine.allows(HostEvent.LOADED):
            self.machine.advance(HostEvent.LOADED)

    def may_be_ready(self) -> bool:
        """Whether READY can be taken now; not again, and not when a stop came first."""
        for event in (HostEvent.WELCOME, HostEvent.LOADED):
            # A host that loads faster than we dial is heard of when it is ready, not before.
            if self.machine.allows(event):
                self.machine.advance(event)
        return self.machine.allows(HostEvent.READY)

    def ready(self, brings: HostUp, now: float) -> None:
        """It has made a real decision, and can be dialled."""
        self.machine.advance(HostEvent.READY)
        self.ready_at = now
        self.brings = brings

    def may_be_said(self, *, is_line: bool = True) -> bool:
        """Whether one more line of it belongs into the log; one that sends without an end must not fill it. Not
        `is_line`: it only moves a bar that is there."""
        self._said += is_line
        return self._said <= LINES_SAID

    def ends(self, now: float) -> None:
        """It has said that it ends."""
        if self.ending_since is None:
            self.ending_since = now

    def exited(self, *, clean: bool) -> None:
        """Its process is gone."""
        self.brings = self.up = None
        if not self.machine.state.final:
            self.machine.advance(HostEvent.EXIT_CLEAN if clean else HostEvent.EXIT)

    @property
    def lives(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and not self.machine.state.final

    @property
    def load_s(self) -> float:
        """From its start until it was ready; 0 before."""
        return 0.0 if self.ready_at is None else self.ready_at - self.started

    def too_long(self, now: float, load_limit_s: float | None) -> str:
        """Why it has to be ended now, "" when there is no reason."""
        if self.ending_since is not None and now - self.ending_since > EXIT_LIMIT_S:
            return f"it said that it ends, and was still there {EXIT_LIMIT_S:g} s later"
        if load_limit_s is not None and self.ready_at is None and now - self.started > load_limit_s:
            return f"it was not ready within its load limit of {load_limit_s:g} s"
        return ""

    def __repr__(self) -> str:
        return f"<Incarnation {self.name} {self.machine.state.value}>"
