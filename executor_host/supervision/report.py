"""What there is now, for `status`, the page and metrics: which processes, in which state, since when, and what died
lately.

    Reports.report    what `framehost status` shows, and what a front is told for its metrics
    Reports.health    what the probes may know

The front's own part of a report is asked for and waited for a little; the rest is answered anyway.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from executor_host.launch.memory import resident_bytes
from executor_host.supervision.fleet import Fleet
from executor_host.supervision.front_lane import FrontLane
from executor_host.supervision.front_slot import FrontSlot
from executor_host.supervision.host_slot import HostSlot
from executor_host.supervision.hosts import Hosts
from executor_host.supervision.life import ServerLife
from executor_host.supervision.listeners import Listeners, url_of
from executor_host.supervision.log_writer import LogWriter
from executor_host.supervision.probes import Health
from protocol.errors import ProtocolError
from protocol.frames import encode
from protocol.messages import Message, Status
from protocol.states import HostState

FRONT_STATUS_TIMEOUT_S = 1.0
"""How long the front's part is waited for."""

LOADING = frozenset(state.value for state in (HostState.STARTING, HostState.LOADING, HostState.WARMING))
"""States of which the probes are told the progress."""

RECENT_DEATHS = 20
"""Deaths that are remembered, of all processes together. More are in the log."""


class Deaths:
    """The latest deaths of all processes."""

    def __init__(self) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_DEATHS)

    def died(self, who: str, how: str) -> None:
        """Remember a death."""
        self.recent.append({"at": time.time(), "who": who, "how": how})


class Reports:
    """The reports of one server. Everything runs in the supervisor's loop."""

    def __init__(
        self,
        life: ServerLife,
        lane: FrontLane,
        log: LogWriter,
        listeners: Listeners,
        fleet: Fleet,
        front: FrontSlot,
        swaps: Mapping[str, Mapping[str, int]],
        deaths: Deaths,
    ) -> None:
        """`swaps`: as `Orders.swaps`."""
        self._life = life
        self._lane = lane
        self._log = log
        self._listeners = listeners
        self._fleet = fleet
        self._front = front
        self._swaps = swaps
        self._deaths = deaths
        self._asked: dict[int, tuple[Callable[[Message], None], asyncio.TimerHandle]] = {}
        self._questions = 0

    def ask(self, reply: Callable[[Message], None]) -> None:
        """Send the whole report to the peer that has asked: with the front's part, or without it when it does not
        come."""
        self._questions += 1
        question = self._questions
        wait = FRONT_STATUS_TIMEOUT_S if self._front.life.connected else 0.0
        timer = asyncio.get_running_loop().call_later(wait, self.answered, question, None)
        self._asked[question] = (reply, timer)
        self._lane.tell_front(Status(), question)

    def answered(self, question: int, front: dict[str, Any] | None) -> None:
        """The front's part has come, or its time is over."""
        asked = self._asked.pop(question, None)
        if asked is None:
            return  # answered without it already
        reply, timer = asked
        timer.cancel()
        report = Status(report=self.report(front))
        try:
            encode(report, incarnation="x")
        except ProtocolError as error:
            # What models and hosts report is in the front's part, and is foreign to both of us.
            report = Status(report={**self.report(None), "front_error": str(error)})
        reply(report)

    def report(self, front: dict[str, Any] | None) -> dict[str, Any]:
        """The whole; `front`: the front's own part."""
        listeners = self._listeners
        return {
            "pid": os.getpid(),
            "url": listeners.main.url,
            "admin": "" if listeners.admin is None else listeners.admin.url,
            "health": "" if listeners.health is None else url_of(listeners.health),
            "uptime_s": round(self._life.uptime_s, 1),
            "stopping": self._life.stopping,
            "log_lines_lost": self._log.lost,
            "supervisor_rss_bytes": resident_bytes(os.getpid()),
            "front_process": self._front.report(),
            "front": front,
            "swaps": self._swaps,
            "deaths": list(self._deaths.recent),
            "hosts": [self._row(hosts, slot) for hosts in self._fleet for slot in hosts.everywhere],
        }

    def health(self) -> Health:
        """In one reading, and no process is asked."""
        models = self._fleet.named
        fractions = [
            progress.fraction
            for progress in (
                slot.life.current.progress for hosts in models if hosts.state in LOADING for slot in hosts.slots
            )
            if progress is not None and progress.fraction is not None
        ]
        return Health(
            uptime_s=self._life.uptime_s,
            started=self._life.has_served,
            serving=self._front.life.answers,
            stopping=self._life.stopping,
            models=tuple(hosts.state for hosts in models),
            progress=min(fractions, default=None),
        )

    def _row(self, hosts: Hosts, slot: HostSlot) -> dict[str, Any]:
        native = self._listeners.natives.get(hosts.spec.name)
        return {
            **slot.report(),
            **({"state": hosts.state} if hosts.state == "absent" else {}),
            "role": hosts.role.state.value,
            "keep_alive_s": hosts.spec.keep_alive_s,
            "pinned": hosts.spec.pinned,
            "turns": self._fleet.residency.turns(hosts.spec.id),
            "native": "" if native is None else native.url,
        }
