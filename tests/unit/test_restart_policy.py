"""When a dead process is started again. Pure: no clock but the numbers passed in."""

from __future__ import annotations

from executor_host.supervision.policy import RestartLimits, RestartPolicy
from protocol.exits import HostExit

CRASH = 1


def delays(policy: RestartPolicy, deaths: int, ready_for_s: float | None = None) -> list[float | None]:
    return [policy.after_death(status=CRASH, ready_for_s=ready_for_s) for _ in range(deaths)]


def test_the_first_restart_is_immediate_and_the_next_ever_later() -> None:
    """A single crash costs nothing but the load; a loop of them does not burn the machine."""
    assert delays(RestartPolicy(), 6) == [0.0, 0.5, 1.0, 2.0, 4.0, None]


def test_the_budget_is_the_number_of_restarts() -> None:
    """Never. None for ever after it is spent."""
    assert delays(RestartPolicy(RestartLimits(budget=0)), 2) == [None, None]
    assert delays(RestartPolicy(RestartLimits(budget=2)), 4) == [0.0, 0.5, None, None]


def test_no_delay_is_longer_than_the_longest() -> None:
    """Also after so many deaths that the factor would overflow any patience."""
    policy = RestartPolicy(RestartLimits(budget=100, longest_delay_s=3.0))
    assert delays(policy, 100)[-3:] == [3.0, 3.0, 3.0]


def test_a_row_of_any_length_has_a_delay() -> None:
    """The power of the whole row would overflow after about a thousand deaths."""
    assert delays(RestartPolicy(RestartLimits(budget=3000)), 3000)[-1] == 30.0


def test_stable_time_makes_the_budget_whole() -> None:
    """Ready for long enough before the death: this one counts as the first again."""
    policy = RestartPolicy(RestartLimits(budget=2, stable_s=60))
    assert delays(policy, 2) == [0.0, 0.5]
    assert policy.after_death(status=CRASH, ready_for_s=60.0) == 0.0
    assert policy.after_death(status=CRASH, ready_for_s=59.9) == 0.5
    assert policy.after_death(status=CRASH, ready_for_s=59.9) is None
    assert policy.restarts == 4, "never forgotten"


def test_a_configuration_error_is_never_tried_again() -> None:
    """Also not as the first death, and not after stable time."""
    policy = RestartPolicy()
    assert policy.after_death(status=HostExit.CONFIGURATION, ready_for_s=None) is None
    assert policy.after_death(status=HostExit.CONFIGURATION, ready_for_s=1e9) is None
    assert policy.restarts == 0


def test_what_has_been_ready_once_is_started_again_for_ever() -> None:
    """`endless`: later and later, whatever it dies of. What never was ready has its budget."""
    policy = RestartPolicy(RestartLimits(budget=1, endless=True))
    assert delays(policy, 2) == [0.0, None]
    policy.begin()
    policy.ready()
    assert delays(policy, 9) == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert policy.after_death(status=HostExit.CONFIGURATION, ready_for_s=None) == 30.0


def test_a_death_that_a_request_caused_uses_up_nothing() -> None:
    """The host had answered the request, and retired as its contract says; it is counted apart."""
    policy = RestartPolicy(RestartLimits(budget=1))
    assert [policy.after_death(status=HostExit.RETIRED, ready_for_s=1.0) for _ in range(15)] == [0.0] * 15
    assert (policy.restarts, policy.request_deaths) == (15, 15)
    assert delays(policy, 2) == [0.0, None]


def test_a_trial_has_one_try_until_it_is_ready() -> None:
    """Then its restarts are its own."""
    policy = RestartPolicy(RestartLimits(endless=True))
    policy.begin(trial=True)
    assert delays(policy, 1) == [None]
    assert policy.next_step(CRASH, None) == "its start is given up"
    policy.ready()
    assert delays(policy, 1) == [0.0]


def test_what_follows_is_said_as_it_was_decided() -> None:
    """The log says when the next start is, or why there is none."""
    policy = RestartPolicy(RestartLimits(budget=1))
    assert policy.next_step(CRASH, 0.0) == "starting again now"
    assert policy.next_step(CRASH, 0.5) == "starting again in 0.5 s"
    assert policy.next_step(HostExit.CONFIGURATION, None) == "starting it again would not help"
    assert "restarts = 1 in a row" in policy.next_step(CRASH, None)


def test_a_signal_has_no_status_and_is_a_crash() -> None:
    """SIGKILL, and even a clean exit that nobody asked for, are restarted."""
    policy = RestartPolicy()
    assert policy.after_death(status=None, ready_for_s=1.0) == 0.0
    assert policy.after_death(status=0, ready_for_s=1.0) == 0.5


def test_it_shows_its_counts() -> None:
    """For a debugger or a log line."""
    policy = RestartPolicy()
    delays(policy, 2)
    assert repr(policy) == "<RestartPolicy restarts=2 in_a_row=2/5>"


def test_counts_stay_with_the_replica_when_its_host_is_in_another_slot() -> None:
    """A counter never goes back; the patience of each slot stays its own."""
    own, spare = RestartPolicy(), RestartPolicy()
    delays(own, 3)
    own.exchange_counts(spare)
    assert (own.restarts, spare.restarts) == (0, 3)
    assert delays(own, 1) == [2.0]
