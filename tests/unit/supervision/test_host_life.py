"""The life of a host slot as lists of events: no process, no socket, and a clock that the test moves."""

from __future__ import annotations

import pytest

from executor_host.launch.base import ProcessExit
from executor_host.supervision.incarnation import EXIT_LIMIT_S, LINES_SAID
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from protocol.exits import HostExit
from protocol.messages import Bye, Failure, HostDown, HostUp, Progress, Ready, Status
from protocol.states import SlotState
from tests.helpers.supervision import CRASHED, DATA, KILLED, HostWorld

RETIRED = ProcessExit(HostExit.RETIRED, None)
CLEAN = ProcessExit(HostExit.CLEAN, None)


def failure(*, fatal: bool) -> Failure:
    return Failure(code="executor_error", status=500, message="it cannot start", fatal=fatal)


def test_from_the_start_to_a_ready_host_and_a_stop() -> None:
    """Ready for others is it when the front has accepted it, and a stop is asked for on both ways."""
    world = HostWorld()
    world.life.start()
    world.becomes_ready(accepted=False)
    assert world.take() == ["launch 1-x", "front: HOST_UP"]
    world.life.judged("")
    assert world.take() == ["ready"]
    assert world.life.ready
    world.life.judged("")
    assert world.take() == [], "a next front accepts it, too"
    world.life.stop(3.0)
    assert world.take() == ["tell DRAIN", "terminate"]
    world.life.ended(CLEAN)
    assert world.take() == ["front: HOST_DOWN, none follows", "changed", "rests"]
    assert world.life.state == "stopped"


def test_a_death_is_followed_by_another_start_that_waits_ever_longer() -> None:
    """At once the first time; the front hears of it before the next is started."""
    world = HostWorld()
    world.life.start()
    for delay in ("0", "0.5", "1"):
        world.take()
        world.launched()
        world.life.ended(CRASHED, "last words")
        how = "exit status 1"
        assert world.take() == [f"died: {how}", "front: HOST_DOWN, another follows", "changed", f"wait {delay}"]
        world.life.waited()
    assert world.take() == ["launch 4-x"]
    assert world.life.last_death == "exit status 1\nlast words"


def test_the_budget_ends_a_host_that_was_never_ready() -> None:
    """The reason has its last words in it, and an operator may try again."""
    world = HostWorld(restarts=0)
    world.life.start()
    world.take()
    world.launched()
    world.life.ended(CRASHED, "first\nlast words")
    assert world.take() == ["died: exit status 1", "front: HOST_DOWN, none follows", "changed", "rests"]
    assert world.life.failed == "exit status 1: last words"
    assert not world.life.unusable
    world.life.start()
    assert world.take() == ["launch 2-x"]
    assert world.life.failed is None


def test_what_was_ready_once_is_started_again_for_ever() -> None:
    """A model that has served others never ends the server: it backs off (also when its files are broken by now)."""
    world = HostWorld(restarts=0)
    world.life.start()
    world.becomes_ready()
    for number in range(20):
        world.life.ended(CRASHED if number % 2 else ProcessExit(HostExit.CONFIGURATION, None))
        assert world.life.slot.state is SlotState.WAITING
        world.life.waited()
        world.launched()
    world.take()
    world.life.ended(KILLED)
    assert world.take()[-1] == "wait 30"
    world.life.hasten()
    assert world.take() == ["wait no more", "launch 22-x"], "somebody insists"


def test_a_death_that_a_request_caused_uses_up_nothing_and_is_counted_apart() -> None:
    """However often: the next host is started at once."""
    world = HostWorld(restarts=1)
    world.life.start()
    for _ in range(15):
        world.becomes_ready()
        world.take()
        world.life.ended(RETIRED)
        assert world.take()[-1] == "wait 0"
        world.life.waited()
    assert world.life.report()["request_deaths"] == world.life.report()["restarts"] == 15


def test_a_host_that_the_front_refuses_is_ended_and_its_deployment_has_failed() -> None:
    """Nobody tries it again by itself: the next one would bring the same."""
    world = HostWorld()
    world.life.start()
    world.becomes_ready(accepted=False)
    world.take()
    world.life.judged("the tokenizer is truncated")
    assert world.take() == ["kill"]
    world.life.ended(KILLED)
    assert world.life.failed == "killed by SIGKILL by framehost: the front refuses it: the tokenizer is truncated"
    assert world.life.unusable
    assert world.take()[-1] == "rests"


@pytest.mark.parametrize(
    "address", ["", "nonsense", "ipc:///somewhere/else", "tcp://127.0.0.1:70000", "ipc:///a\0b", f"{DATA}\n"]
)
def test_a_ready_with_an_address_that_is_none_fails_this_deployment(address: str) -> None:
    """The front never hears of it."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.take()
    world.life.heard(Ready(address=address, facts={}))
    assert world.take() == ["kill"]
    world.life.heard(Ready(address=DATA, facts={}))
    assert world.told == [], "said once, it is over"
    world.life.ended(KILLED)
    assert "which is no address of a data lane" in (world.life.failed or "")


def test_the_identity_that_a_host_says_is_reported_while_it_lives() -> None:
    """A text, and nothing else that it may say."""
    for said, shown in (("5c2f0b6a", "5c2f0b6a"), (7, ""), (None, "")):
        world = HostWorld()
        world.life.start()
        world.launched()
        assert world.life.report()["identity"] == ""
        world.life.heard(Ready(address=DATA, facts={"identity": said}))
        assert world.life.report()["identity"] == shown
        world.life.ended(CRASHED)
        assert world.life.report()["identity"] == ""


def test_facts_that_cannot_be_passed_on_fail_this_deployment() -> None:
    """Within the limits alone, and beyond them in the message to the front: the server goes on."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.take()
    nested: dict[str, object] = {}
    for _ in range(40):
        nested = {"deeper": nested}
    world.life.heard(Ready(address=DATA, facts=nested))
    assert world.take() == ["kill"]
    world.life.ended(KILLED)
    assert "its facts cannot be passed on" in (world.life.failed or "")


def test_a_trial_has_one_try() -> None:
    """Until it has been ready; then it is a host like any other."""
    world = HostWorld()
    world.life.start(trial=True)
    world.launched()
    world.life.ended(CRASHED)
    assert world.life.failed == "exit status 1"
    world.life.start(trial=True)
    world.becomes_ready()
    world.life.ended(CRASHED)
    assert world.life.slot.state is SlotState.WAITING


def test_a_stop_before_there_is_a_process_ends_the_one_that_comes() -> None:
    """There was nothing to end yet when it was asked for."""
    world = HostWorld()
    world.life.start()
    world.life.stop(3.0)
    assert world.take() == ["launch 1-x"]
    world.launched()
    assert world.take() == ["kill"]
    world.life.ended(KILLED)
    assert world.take() == ["front: HOST_DOWN, none follows", "changed", "rests"]


def test_a_stop_while_it_waits_says_that_none_follows() -> None:
    """Unloaded in the middle of its back-off: whoever asks the front is not told "restarting" for ever."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.life.ended(CRASHED)
    world.take()
    world.life.stop(3.0)
    assert world.take() == ["wait no more", "front: HOST_DOWN, none follows", "rests"]
    assert world.life.standing().state == "none", "and to a front that comes later"


def test_a_front_is_told_where_the_host_is_whatever_it_was_told_before() -> None:
    """In each state the truth: nothing has to be remembered by a front that is not there any more."""
    world = HostWorld(restarts=1)
    states = [world.life.standing().state]
    world.life.start()
    world.becomes_ready(accepted=False)
    states.append(world.life.standing().state)
    world.life.ended(CRASHED, "last words")
    standing = world.life.standing()
    assert (standing.state, standing.last_death) == ("coming", "exit status 1\nlast words")
    world.life.waited()
    world.launched()
    states.append(world.life.standing().state)
    world.life.stop(3.0)
    states.append(world.life.standing().state)
    assert states == ["none", "ready", "coming", "none"], "the last: unloaded while it loads"
    world.life.ended(KILLED)
    world.life.start(trial=True)
    world.life.ended(CRASHED)
    assert world.life.standing().state == "failed"


@pytest.mark.parametrize("said", [failure(fatal=True), Bye(reason="retired")], ids=["cannot start", "ends"])
def test_a_host_that_says_that_it_ends_has_a_limited_time_for_it(said: Failure | Bye) -> None:
    """What it closes may hang: then it is ended with its stacks in its last words."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.life.heard(said)
    world.take()
    world.clock.now += EXIT_LIMIT_S
    world.life.look(1, reachable=True)
    assert "take stacks" not in world.take()
    world.clock.now += 0.5
    world.life.look(1, reachable=True)
    assert world.take() == ["take stacks"]
    world.life.look(1, reachable=True)
    assert world.take() == []
    world.life.stacks_taken("1-x", "")
    assert world.take() == ["kill"]


def test_a_failure_that_is_not_fatal_ends_nothing() -> None:
    """It is for people."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.life.heard(failure(fatal=False))
    world.clock.now += 100 * EXIT_LIMIT_S
    world.life.look(1, reachable=True)
    assert "take stacks" not in world.take()


def test_what_ends_by_itself_while_its_stacks_are_taken_leaves_no_cause_to_the_next() -> None:
    """The look takes up to two seconds; the process may crash in it and the next one be there already."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.life.overdue("too long")
    world.life.ended(CRASHED)
    world.life.waited()
    world.launched()
    world.take()
    world.life.stacks_taken("1-x", "no stacks")
    assert world.take() == []
    assert world.life.current.cause == ""


def test_a_load_beyond_its_limit_and_a_control_socket_that_is_gone() -> None:
    """Both end the process; a ready host is not looked for until another front comes."""
    world = HostWorld(load_limit_s=5.0)
    world.life.start()
    world.launched()
    world.take()
    world.clock.now += 5.1
    world.life.look(1, reachable=True)
    assert world.take() == ["take stacks"]
    other = HostWorld()
    other.life.start()
    other.becomes_ready()
    other.take()
    other.life.look(1, reachable=False)
    assert "kill" not in other.take()
    other.life.unreachable()
    assert other.take() == ["kill"]


def test_it_is_asked_now_and_then_and_its_reports_are_not_believed_in() -> None:
    """Whatever is in a report, it only shows that the host answers."""
    world = HostWorld()
    world.life.start()
    world.becomes_ready()
    world.take()
    world.clock.now += 3.0
    world.life.look(1, reachable=True)
    assert world.take() == ["tell STATUS"]
    nested: dict[str, object] = {"blob": b"x" * 100}
    for _ in range(13):
        nested = {"deeper": nested}
    world.life.heard(Status(report=nested))
    assert world.life.report()["silent_s"] == 0.0
    assert world.take() == []


def test_what_a_dead_host_has_taken_is_told_to_the_front() -> None:
    """As its handle knows; nothing when there was no process."""
    world = HostWorld()
    world.life.start()
    world.launched()
    world.life.ended(KILLED, taken={"front-1": 7})
    world.life.waited()
    world.life.ended(ProcessExit(HostExit.LOAD_FAILED, None), "cannot start a host: no more processes")
    downs = [message for message in world.told if isinstance(message, HostDown)]
    assert [down.taken for down in downs] == [{"front-1": 7}, None]


def test_a_remote_host_is_waited_for_until_the_stop() -> None:
    """Nothing is started, so nothing is delayed; the wait for one that never comes ends with the stop."""
    world = HostWorld(remote=True)
    world.life.start()
    world.launched()
    world.life.ended(ProcessExit(HostExit.LOST, None), "the connection is gone")
    assert world.take()[-1] == "wait 0"
    assert world.life.last_death == "the connection is gone"
    world.life.waited()
    world.life.stop(1.0)
    assert world.take() == ["launch 2-x", "abandon"]
    world.life.ended(CLEAN)
    assert world.take()[-1] == "rests"


def test_a_spare_is_told_to_nobody_until_it_takes_over() -> None:
    """It loads like any other, dies without a word to the front, and is offered when a replica needs it."""
    world = HostWorld(replica=None)
    world.life.start()
    world.becomes_ready(accepted=False)
    assert world.take() == ["launch 1-x", "warm"]
    assert world.life.warm
    world.life.ended(KILLED)
    assert not any(word.startswith("front") for word in world.take())
    assert not world.life.report()["pid"]
    world.life.waited()
    world.becomes_ready(accepted=False)
    world.take()
    world.life.take(1)
    assert world.take() == ["front: HOST_UP"]
    assert isinstance(up := world.told[-1], HostUp)
    assert (up.replica, up.incarnation) == (1, "2-x")
    world.life.judged("")
    assert world.take() == ["ready"]
    world.life.ended(KILLED)
    assert "front: HOST_DOWN, another follows" in world.take()


def test_a_host_whose_place_is_taken_comes_back_as_a_spare() -> None:
    """The front hears of its death and never of its successor; a spare that is not warm yet is offered when it is."""
    world = HostWorld(replica=0)
    world.life.start()
    world.becomes_ready()
    world.life.ended(KILLED)
    world.life.stand_by()
    world.take()
    world.life.waited()
    world.launched()
    world.life.take(0)
    assert world.take() == ["launch 2-x"]
    world.life.heard(Ready(address=DATA, facts={}))
    assert world.take() == ["front: HOST_UP"]


def test_what_a_host_says_without_an_end_does_not_fill_the_log() -> None:
    """Failures, stages in turns and garbage: the first hundred lines, then none; its progress itself is not a line."""
    world = HostWorld()
    world.life.start()
    world.launched()
    for number in range(1000):
        world.life.heard(Progress(stage=f"stage {number % 2}"))
        world.life.heard(failure(fatal=False))
        world.life.malformed("noise")
        world.life.heard(Progress(stage=f"stage {number % 2}", fraction=0.5))
    assert len(world.log.getvalue().splitlines()) == LINES_SAID
    progress = world.life.report()["progress"]
    assert progress == ["stage 1", 0.5, ""], "it is heard all the same"


def test_a_remote_host_that_brings_nonsense_is_sent_away_and_the_next_is_waited_for() -> None:
    """On the allow list, and says what makes no sense: neither its model nor the server fails because of it. One that
    comes again and again is taken ever later."""
    world = HostWorld(restarts=0, remote=True)
    world.life.policy = RestartPolicy(RestartLimits(budget=1000))
    world.life.start()
    for delay in ("0", "0.5", "1"):
        world.launched()
        world.life.refuse("it cannot be dialled at 'nonsense'")
        world.take()
        world.life.ended(ProcessExit(HostExit.LOST, None), "it was given up")
        assert world.take()[-1] == f"wait {delay}"
        assert world.life.failed is None
        world.life.waited()
