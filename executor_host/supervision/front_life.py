"""The life of the front's slot: which front is there, whether it answers, and when the next one starts.

    start ─▶ HELLO ─▶ DEPLOYMENT, HOST_UP ... ─▶ SERVING ─▶ (ended ─▶ waited ─▶ start ...)

Pure: events in, effects out. The table is `FRONT` in protocol/states.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from executor_host.launch.base import ProcessExit
from executor_host.supervision.console import Console
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from executor_host.supervision.watchdog import Watchdog
from protocol.states import FRONT, FrontEvent, FrontState, Machine

FRONT_START_S = 60.0
"""What a front has at least until its HELLO, whatever the limit is afterwards: it imports its libraries until then."""


class Effects(Protocol):
    """What the front's slot does to the world. None of these calls the slot back before it returns."""

    def launch(self, epoch: str) -> None:
        """Make a front; `ended` follows, also when none could be made."""

    def ask(self) -> None:
        """Ask the front how it is; `answered` follows if it lives."""

    def take_stacks(self) -> None:
        """Have the front write its stacks; `stacks_taken` follows."""

    def kill(self) -> None:
        """End the front; `ended` follows."""

    def wait(self, seconds: float) -> None:
        """`waited` follows, unless `wait_no_more` comes first."""

    def wait_no_more(self) -> None:
        """Forget the wait."""

    def listening(self) -> None:
        """A front listens on the ports."""

    def died(self, how: str) -> None:
        """A front has ended without being asked to."""

    def changed(self) -> None:
        """Which front is told what happens is another one, or none."""

    def give_up(self, why: str) -> None:
        """There will be no next front."""

    def rests(self) -> None:
        """No front is there, and none will be."""


class FrontLife:
    """The decisions about the fronts of one server."""

    def __init__(
        self,
        effects: Effects,
        *,
        restarts: int,
        limit_s: float | None,
        console: Console,
        clock: Callable[[], float],
        mint: Callable[[], str],
    ) -> None:
        """`limit_s`: how long a front may owe an answer; None: for ever. `clock`: in seconds, standing still while
        no look is taken. `mint`: a name that no front has had."""
        self.machine = Machine(FRONT, FrontState.STARTING)
        self.epoch = ""
        self.policy = RestartPolicy(RestartLimits(budget=restarts))
        self.last_death = ""
        self.ended_with: ProcessExit | None = None
        """How the last one ended."""
        self.goodbye = ""
        """What one has said of its end."""
        self.watchdog = Watchdog(clock())
        self._effects = effects
        self._limit_s = limit_s
        self._console = console
        self._clock = clock
        self._mint = mint
        self._stopping = False
        self._serving_at: float | None = None
        self._cause = ""
        """Why we end it, when it is us."""
        self._resident_bytes = 0

    # Events

    def start(self) -> None:
        """Keep a front here, until `begin_stop` or until the restarts are used up."""
        self.policy.begin()
        self._launch()

    def begin_stop(self) -> None:
        """No front is started any more. One that is there goes on; one that has no request yet is ended."""
        self._stopping = True
        if self.machine.state is FrontState.WAITING:
            self._effects.wait_no_more()
            self._rest()
        elif not self.machine.state.connected:
            # It is still starting, or on its way out: no request is in it.
            self._effects.kill()

    def launched(self) -> None:
        """There is a process."""
        if self._stopping:
            self._effects.kill()  # the stop came while there was nothing to stop yet

    def greeted(self) -> None:
        """It has said HELLO: from here on it is told and asked, and has the configured time to answer."""
        if self.machine.allows(FrontEvent.HELLO):
            self.machine.advance(FrontEvent.HELLO)
            now = self._clock()
            self.watchdog = Watchdog(now, self._limit_s)
            self.watchdog.answered(now)
            self._effects.changed()

    def answered(self) -> None:
        """It has said something, whatever that is."""
        self.watchdog.answered(self._clock())

    def serves(self) -> None:
        """It listens."""
        if self.machine.allows(FrontEvent.SERVE):
            self.machine.advance(FrontEvent.SERVE)
            self._serving_at = self._clock()
            self._effects.listening()

    def look(self, resident_bytes: int) -> None:
        """See from outside how the front is, ask it something, and end one whose event loop stands still."""
        if not self.machine.allows(FrontEvent.END):
            return
        now = self._clock()
        self._resident_bytes = resident_bytes or self._resident_bytes
        if self.watchdog.stalled(now):
            self._cause = f"no answer for {self.watchdog.silent_s(now):.1f} s, front_limit is {self._limit_s:g} s"
            self._console.say("front", f"{self._cause}; it is killed after a look at its stacks")
            self.machine.advance(FrontEvent.END)
            self._effects.changed()
            self._effects.take_stacks()
        elif self.machine.state.connected and self.watchdog.due(now):
            self._effects.ask()

    def stacks_taken(self, epoch: str, missing: str) -> None:
        """They are in the output, or `missing` says why they are not. The front may have ended meanwhile."""
        if epoch == self.epoch and self.machine.state is FrontState.ENDING:
            self._cause += f"; {missing}" if missing else ""
            self._effects.kill()

    def ended(self, ended: ProcessExit, words: str) -> None:
        """The process is gone, or none could be started. `words`: the last that it said."""
        self.machine.advance(FrontEvent.EXIT)
        self.ended_with = ended
        self._effects.changed()
        if self._stopping:
            self._rest()
            return
        ready_for = None if self._serving_at is None else self._clock() - self._serving_at
        delay = self.policy.after_death(status=ended.status, ready_for_s=ready_for)
        how = ended.describe(cause=self._cause, resident_bytes=self._resident_bytes)
        self.last_death = f"{how}\n{words}".strip()
        self._effects.died(how)
        text = f"ended: {how}; {self.policy.next_step(ended.status, delay)}"
        if delay is None:
            self._rest()
            self._effects.give_up(f"the frontend {text}")
        else:
            self._console.say("front", text)
            self._effects.wait(delay)

    def waited(self) -> None:
        """The time until the next start is over."""
        self.machine.advance(FrontEvent.RETRY)
        self._launch()

    # What there is

    @property
    def connected(self) -> bool:
        """Whether a front is told what happens."""
        return self.machine.state.connected

    @property
    def serving(self) -> bool:
        """Whether a front listens on the ports."""
        return self.machine.state is FrontState.SERVING

    @property
    def answers(self) -> bool:
        """Whether it serves and its loop turns, as far as is known."""
        return self.serving and self.watchdog.answers(self._clock())

    def report(self) -> dict[str, Any]:
        """What the supervisor knows of the front, without what only the system knows."""
        return {
            "serving": self.serving,
            "silent_s": round(self.watchdog.silent_s(self._clock()), 1),
            "restarts": self.policy.restarts,
            "last_death": self.last_death,
        }

    # Steps

    def _launch(self) -> None:
        limit_s = self._limit_s
        self.epoch = self._mint()
        self._serving_at, self._cause, self._resident_bytes = None, "", 0
        self.watchdog = Watchdog(self._clock(), None if limit_s is None else max(limit_s, FRONT_START_S))
        self._effects.launch(self.epoch)

    def _rest(self) -> None:
        self.machine.advance(FrontEvent.GIVE_UP)
        self._effects.rests()

    def __repr__(self) -> str:
        return f"<FrontLife {self.epoch} {self.machine.state.value}>"
