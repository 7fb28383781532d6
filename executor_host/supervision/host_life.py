"""The life of one host slot: which process is in it, when the next one starts, and what the front is told of them.

    start ─▶ launched ─▶ heard (HELLO, WELCOME, PROGRESS ... READY) ─▶ accepted ─▶ (ended ─▶ waited ─▶ launched ...)

Pure: events in, effects out; no process, no socket, no task. The table of a slot is `SLOT`, of one process `HOST`, in
protocol/states.py. What a host says is foreign: whatever is wrong with it ends this host, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from executor_host.launch.base import ProcessExit
from executor_host.supervision.console import Console
from executor_host.supervision.host_effects import Effects
from executor_host.supervision.incarnation import Incarnation, Launched
from executor_host.supervision.policy import RestartPolicy
from protocol import addresses
from protocol.errors import ProtocolError
from protocol.exits import HostExit
from protocol.frames import encode
from protocol.limits import MAX_TEXT_CHARS
from protocol.messages import Bye, Drain, Failure, HostDown, HostUp, Message, Progress, Ready, Status, Welcome
from protocol.models import DeploymentSpec, HostStanding
from protocol.states import SLOT, HostEvent, HostState, Machine, SlotEvent, SlotState


class HostLife:
    """The decisions of one slot."""

    def __init__(
        self,
        spec: DeploymentSpec,
        replica: int | None,
        effects: Effects,
        policy: RestartPolicy,
        *,
        console: Console,
        clock: Callable[[], float],
        mint: Callable[[], str],
    ) -> None:
        """`replica`: which one's host is here; None: a spare. `clock`: in seconds, standing still between looks.
        `mint`: a name that no incarnation has had."""
        self.spec = spec
        self.replica = replica
        self.policy = policy
        self.slot = Machine(SLOT, SlotState.EMPTY)
        self.current = Incarnation("", clock())
        """The process that is here, or was here last."""
        self.failed: str | None = None
        """Why no further process will be started, once that is so."""
        self.unusable = False
        """Whether it has failed by what the deployment is, and not by what happened."""
        self.last_death = ""
        self.load_s = 0.0
        """How long the last process that was ready took from its start until then."""
        self._effects = effects
        self._console = console
        self._clock = clock
        self._mint = mint
        self._waits_s = 0.0
        """Until the next start, when it was decided."""

    # Events: what is wanted

    def start(self, *, trial: bool = False) -> None:
        """Keep a host here until `stop`, or until the policy gives up. `trial`: one that ends before the first one was
        ready is not followed by another."""
        self.failed, self.unusable = None, False
        self.policy.begin(trial=trial)
        self.slot.advance(SlotEvent.START)
        self._launch()

    def take(self, replica: int) -> None:
        """The spare that is here becomes the host of a replica, whose own is gone."""
        self.replica = replica
        if self.current.brings is not None:
            self._offer(self.current.brings, replica)

    def stand_by(self) -> None:
        """The replica has another host: what is started here from now on is a spare."""
        self.replica = None

    def hasten(self) -> None:
        """A request or an operator insists: what waits for its next start is started now."""
        if self.slot.state is SlotState.WAITING:
            self._effects.wait_no_more()
            self.waited()

    def begin_stop(self) -> None:
        """No process is started here any more. One that is there goes on."""
        if self.slot.state is SlotState.WAITING:
            self._effects.wait_no_more()
            self.slot.advance(SlotEvent.STOP)
            self._tell_down(None, None)
            self._effects.rests()
        elif self.slot.allows(SlotEvent.STOP):
            self.slot.advance(SlotEvent.STOP)

    def stop(self, budget_s: float) -> None:
        """Ask the host to finish and go; none is started after it. One that is not ready has nothing to finish and
        is ended at once."""
        self.begin_stop()
        current = self.current
        if current.process is None:
            if self.slot.state is SlotState.LEAVING and self.spec.remote:
                self._effects.abandon()
            return
        if not current.lives:
            return
        was_ready = current.machine.state is HostState.READY
        if current.machine.allows(HostEvent.DRAIN):
            current.machine.advance(HostEvent.DRAIN)
        if was_ready:
            self._effects.tell(Drain(budget_s=budget_s))
            # The same request by the other way, for a host whose control thread does not answer any more.
            self._effects.terminate()
        else:
            self._effects.kill()

    def end(self, cause: str) -> None:
        """End the process now. Only the first cause counts."""
        if self.current.lives:
            self.current.cause = self.current.cause or cause
            self._effects.kill()

    def give_up(self, cause: str) -> None:
        """End a process that is not ready. Not of a remote deployment, which no swap starts."""
        if self.up is None:
            self.end(cause)

    def overdue(self, cause: str) -> None:
        """End a process that takes too long, with its stacks in its last words. Only the first cause counts."""
        if self.current.lives and not self.current.cause:
            self.current.cause = cause
            self._console.say(self.source, f"{cause}; it is killed after a look at its stacks")
            self._effects.take_stacks()

    # Events: the process

    def launched(self, process: Launched) -> None:
        """There is a process, and it has been sent our HELLO."""
        self.current.launched(process, self._clock())
        if self.slot.state is SlotState.LEAVING:
            self._effects.kill()  # the stop came while there was nothing to stop yet
        else:
            self.slot.advance(SlotEvent.STARTED)

    def heard(self, message: Message) -> None:
        """The process says something on its control lane."""
        current, now = self.current, self._clock()
        current.watchdog.answered(now)
        if isinstance(message, Welcome):
            current.welcomed()
        elif isinstance(message, Progress):
            stage = "" if current.progress is None else current.progress.stage
            current.progressed(message, now)
            if current.may_be_said(is_line=message.stage != stage):
                self._console.progress(self.source, message.stage, message.fraction, message.note)
        elif isinstance(message, Ready):
            self._is_ready(message)
        elif isinstance(message, Failure):
            if current.may_be_said():
                self._console.say(self.source, message.message)
            if message.fatal:
                current.ends(now)
        elif isinstance(message, Bye):
            current.ends(now)

    def malformed(self, error: str) -> None:
        """The process says something on its control lane that is no message."""
        if self.current.may_be_said():
            self._console.say(self.source, f"sent something that is no message: {error}")

    def judged(self, refusal: str) -> None:
        """The front has looked at what the host brings: "", or why it cannot be served."""
        current = self.current
        if current.up is None:
            return
        if refusal:
            self.refuse(f"the front refuses it: {refusal}")
        elif not current.accepted:
            current.accepted = True
            self.policy.ready()
            self._effects.ready()

    def refuse(self, why: str) -> None:
        """What the host brings cannot be used: it fails by its own fault."""
        if self.current.lives and not self.current.refused:
            self.current.refused = True
            self._console.say(self.source, f"refused: {why}")
            self.end(why)

    def stacks_taken(self, incarnation: str, missing: str) -> None:
        """They are in the output, or `missing` says why they are not. The process may have ended meanwhile, and the
        cause is not the next one's."""
        if incarnation == self.current.name and self.current.lives:
            self.current.cause += f"; {missing}" if missing else ""
            self._effects.kill()

    def ended(self, ended: ProcessExit, words: str = "", taken: dict[str, int] | None = None) -> None:
        """The process is gone, or none could be started. `words`: the last that it said; `taken`: as its handle
        knows."""
        current, policy = self.current, self.policy
        clean = ended.status == HostExit.CLEAN
        current.exited(clean=clean)
        self._console.finished(self.source)
        how = ended.describe(cause=current.cause, resident_bytes=current.resident_bytes)
        if ended.status == HostExit.LOST:
            how, words = words, ""
        if self.slot.state is SlotState.LEAVING:
            self.slot.advance(SlotEvent.GONE)
            self._tell_down(ended, taken)
            self._effects.changed()
            self._effects.rests()
            return
        ready_for = None if current.ready_at is None else self._clock() - current.ready_at
        # Who else dials in may bring something better; what is started here would bring the same again.
        status = HostExit.CONFIGURATION if current.refused and not self.spec.remote else ended.status
        delay = policy.after_death(status=status, ready_for_s=ready_for)
        if delay is not None and self.spec.remote and not current.refused:
            delay = 0.0  # nothing is started: the next one that dials in is welcome
        self.last_death = f"{how}\n{words}".strip()
        self._effects.died(how)
        if delay is None:
            self.failed, self.unusable = how, status == HostExit.CONFIGURATION
            if words and ended.signal is None:  # what a killed process says last are its stacks
                self.failed += f": {words.splitlines()[-1]}"
        self.slot.advance(SlotEvent.GIVE_UP if delay is None else SlotEvent.DIE)
        self._waits_s = delay or 0.0
        self._tell_down(ended, taken)
        # The front first, then the people: a log that cannot be written must not keep a death secret.
        self._console.say(self.source, f"ended: {how}; {policy.next_step(status, delay)}")
        self._effects.changed()
        if delay is None:
            self._effects.rests()
        elif self.slot.state is SlotState.WAITING:
            self._effects.wait(delay)

    def waited(self) -> None:
        """The time until the next start is over."""
        self.slot.advance(SlotEvent.RETRY)
        self._launch()

    def look(self, resident_bytes: int, *, reachable: bool) -> None:
        """See from outside how the process is; end one that takes too long, or that no front could dial any more.
        `reachable`: whether its control lane's file is where it belongs."""
        current = self.current
        if not current.lives:
            return
        now = self._clock()
        current.resident_bytes = resident_bytes or current.resident_bytes
        if why := current.too_long(now, self.spec.load_limit_s):
            self.overdue(why)
        if current.up is None and current.machine.state is not HostState.STARTING and not reachable:
            self.unreachable()
        if current.watchdog.due(now):
            self._effects.tell(Status())

    def unreachable(self) -> None:
        """The file of one of its sockets is gone. One that serves a front is not looked at until another comes."""
        self.end("its sockets were removed from the runtime directory")

    # What there is

    @property
    def up(self) -> HostUp | None:
        """What the front is told of a ready host."""
        return self.current.up

    @property
    def ready(self) -> bool:
        """Whether the host can take work: it is ready, and the front has accepted it."""
        return self.current.up is not None and self.current.accepted

    @property
    def warm(self) -> bool:
        """Whether a spare is ready to become the host of a replica."""
        return self.replica is None and self.current.brings is not None and self.slot.state is SlotState.RUNNING

    @property
    def pid(self) -> int:
        """Of the process that runs here, 0 when none does."""
        return self.current.process.pid if self.current.process is not None and self.current.lives else 0

    @property
    def state(self) -> str:
        """For people and probes: a word of the host table, or "failed" when there will be no next process."""
        return "failed" if self.failed else self.current.machine.state.value

    @property
    def source(self) -> str:
        """Who says it, in the log."""
        return f"{self.spec.id} {self.current.name}"

    def standing(self) -> HostStanding:
        """What a front has to know of it, whatever it was told before."""
        state: Literal["none", "coming", "ready", "failed"] = "none"
        if self.failed is not None:
            state = "failed"
        elif self.current.up is not None:
            state = "ready"
        elif self.slot.state.expected:
            state = "coming"
        return HostStanding(state=state, retry_after_s=self._back_in_s, last_death=self.last_death[:MAX_TEXT_CHARS])

    def report(self) -> dict[str, Any]:
        """This slot's part of `framehost status`, without what only the system knows."""
        current, now = self.current, self._clock()
        progress = current.progress
        return {
            "model": self.spec.name,
            "deployment": self.spec.id,
            "replica": self.spec.replicas if self.replica is None else self.replica,
            "spare": self.replica is None,
            "family": self.spec.family,
            "path": self.spec.path,
            "options": dict(self.spec.options),
            "identity": self._identity,
            "state": self.state,
            "incarnation": current.name,
            "pid": self.pid,
            "restarts": self.policy.restarts,
            "request_deaths": self.policy.request_deaths,
            "load_s": round(self.load_s, 3),
            "progress": None if progress is None else [progress.stage, progress.fraction, progress.note],
            "progress_age_s": round(now - current.progressed_at, 1),
            "silent_s": round(current.watchdog.silent_s(now), 1) if self.pid else 0.0,
            "last_death": self.last_death,
            "failed": self.failed or "",
        }

    @property
    def _identity(self) -> str:
        """Of the weights that its host has loaded, as it says; "" before."""
        brings = self.current.brings
        said = "" if brings is None else brings.facts.get("identity", "")
        return said[:MAX_TEXT_CHARS] if isinstance(said, str) else ""

    # Steps

    def _launch(self) -> None:
        self.current = Incarnation(self._mint(), self._clock())
        self._effects.launch(self.current.name)

    def _is_ready(self, message: Ready) -> None:
        current = self.current
        process = current.process
        if process is None or current.refused or not current.may_be_ready():
            return
        if (process.data is not None and message.address != process.data) or not addresses.usable(message.address):
            self.refuse(f"it says that it listens at {message.address[:100]!r}, which is no address of a data lane")
            return
        up = HostUp(
            deployment=self.spec.id,
            replica=self.replica or 0,
            incarnation=current.name,
            control=process.control,
            data=message.address,
            pid=process.pid,
            facts=message.facts,
            public_key=process.public_key,
        )
        try:
            encode(up, incarnation="x")
        except ProtocolError as error:
            self.refuse(f"its facts cannot be passed on: {error}")
            return
        current.ready(up, self._clock())
        self.load_s = current.load_s
        self._console.finished(self.source)
        spare = ", a spare" if self.replica is None else ""
        self._console.say(self.source, f"ready in {self.load_s:.2f} s, {process.where}{spare}")
        if self.replica is None:
            self.policy.ready()
            self._effects.warm()
        else:
            self._offer(up, self.replica)

    def _offer(self, brings: HostUp, replica: int) -> None:
        self.current.up = dataclasses.replace(brings, replica=replica)
        self._effects.tell_front(self.current.up)

    @property
    def _back_in_s(self) -> float:
        """After a death: until the next start, as it was decided, and as long as the last load took."""
        return float(self.load_s + self._waits_s) if self.last_death else 0.0

    def _tell_down(self, ended: ProcessExit | None, taken: dict[str, int] | None) -> None:
        if self.replica is None:
            return  # the front has never heard of it
        self._effects.tell_front(
            HostDown(
                deployment=self.spec.id,
                replica=self.replica,
                incarnation=self.current.name,
                exit=None if ended is None or ended.status is None else int(ended.status),
                signal="" if ended is None else ended.signal_name,
                last_words=self.last_death[:MAX_TEXT_CHARS],
                will_restart=self.slot.state.expected,
                retry_after_s=self._back_in_s,
                taken=taken,
            )
        )

    def __repr__(self) -> str:
        return f"<HostLife {self.source} {self.slot.state.value} {self.current!r}>"
