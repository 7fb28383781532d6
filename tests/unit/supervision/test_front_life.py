"""The life of the front's slot as lists of events."""

from __future__ import annotations

import io

from executor_host.launch.base import ProcessExit
from executor_host.supervision.console import Console
from executor_host.supervision.front_life import FRONT_START_S, FrontLife
from protocol.states import FrontState
from tests.helpers.supervision import CRASHED, KILLED, Clock, minting

LIMIT_S = 10.0


class FrontWorld:
    """The effects, recorded as words."""

    def __init__(self, restarts: int = 5) -> None:
        self.clock = Clock()
        self._words: list[str] = []
        self.life = FrontLife(
            self,
            restarts=restarts,
            limit_s=LIMIT_S,
            console=Console(io.StringIO()),
            clock=self.clock,
            mint=minting(),
        )

    def take(self) -> list[str]:
        """The effects since the last time."""
        words, self._words = self._words, []
        return words

    def serves(self) -> None:
        """A front is there, has said HELLO, and listens."""
        self.life.launched()
        self.life.greeted()
        self.life.serves()

    def launch(self, epoch: str) -> None:
        self._words.append(f"launch {epoch}")

    def ask(self) -> None:
        self._words.append("ask")

    def take_stacks(self) -> None:
        self._words.append("take stacks")

    def kill(self) -> None:
        self._words.append("kill")

    def wait(self, seconds: float) -> None:
        self._words.append(f"wait {seconds:g}")

    def wait_no_more(self) -> None:
        self._words.append("wait no more")

    def listening(self) -> None:
        self._words.append("listening")

    def died(self, how: str) -> None:
        self._words.append(f"died: {how}")

    def changed(self) -> None:
        self._words.append("told" if self.life.connected else "not told")

    def give_up(self, why: str) -> None:
        self._words.append("give up")

    def rests(self) -> None:
        self._words.append("rests")


def test_a_front_that_dies_is_replaced() -> None:
    """What happens is told to nobody in between."""
    world = FrontWorld()
    world.life.start()
    world.serves()
    assert world.take() == ["launch 1-x", "told", "listening"]
    world.life.ended(CRASHED, "last words")
    assert world.take() == ["not told", "died: exit status 1", "wait 0"]
    assert world.life.last_death == "exit status 1\nlast words"
    world.life.waited()
    assert world.take() == ["launch 2-x"]


def test_one_that_keeps_dying_ends_the_server() -> None:
    """Its budget is not endless: without a front nobody is answered, whatever it was once."""
    world = FrontWorld(restarts=1)
    world.life.start()
    world.serves()
    world.life.ended(CRASHED, "")
    world.life.waited()
    world.take()
    world.life.ended(CRASHED, "")
    assert world.take() == ["not told", "died: exit status 1", "rests", "give up"]
    assert world.life.machine.state is FrontState.GONE


def test_one_whose_loop_stands_still_is_ended_with_its_stacks() -> None:
    """Silence is believed at the second look; from then on it is told nothing."""
    world = FrontWorld()
    world.life.start()
    world.serves()
    world.clock.now += 3.0
    world.life.look(1)
    assert world.take()[-1] == "ask"
    world.clock.now += LIMIT_S
    world.life.look(1)
    assert world.take() == []
    world.life.look(1)
    assert world.take() == ["not told", "take stacks"]
    world.life.stacks_taken("1-x", "no stacks")
    assert world.take() == ["kill"]
    world.life.ended(KILLED, "")
    assert "no answer for 10.0 s, front_limit is 10 s; no stacks" in world.life.last_death


def test_a_front_has_time_to_import_its_libraries() -> None:
    """Until its HELLO its limit is longer; one that hangs before it is ended, too."""
    world = FrontWorld()
    world.life.start()
    world.life.launched()
    world.clock.now += FRONT_START_S - 1.0
    for _ in range(3):
        world.life.look(1)
    assert world.take() == ["launch 1-x"]
    world.clock.now += 1.0
    for _ in range(2):
        world.life.look(1)
    assert world.take() == ["not told", "take stacks"]


def test_stacks_of_one_that_has_ended_meanwhile_end_nobody() -> None:
    """The next one is there already."""
    world = FrontWorld()
    world.life.start()
    world.serves()
    world.life.answered()
    world.clock.now += 100.0
    world.life.watchdog.due(world.clock())
    world.clock.now += LIMIT_S
    world.life.look(1)
    world.life.look(1)
    world.life.ended(CRASHED, "")
    world.life.waited()
    world.take()
    world.life.stacks_taken("1-x", "")
    assert world.take() == []


def test_a_stop_lets_a_front_finish_that_may_have_requests() -> None:
    """One that is still starting has none and is ended, and none follows either."""
    world = FrontWorld()
    world.life.start()
    world.serves()
    world.life.begin_stop()
    world.life.ended(ProcessExit(0, None), "")
    assert world.take() == ["launch 1-x", "told", "listening", "not told", "rests"]
    other = FrontWorld()
    other.life.start()
    other.life.begin_stop()
    other.life.launched()
    assert other.take() == ["launch 1-x", "kill", "kill"], "when there was nothing to end yet, as soon as there is"
    other.life.ended(KILLED, "")
    assert other.take() == ["not told", "rests"]
    waiting = FrontWorld()
    waiting.life.start()
    waiting.life.ended(CRASHED, "")
    waiting.take()
    waiting.life.begin_stop()
    assert waiting.take() == ["wait no more", "rests"]
