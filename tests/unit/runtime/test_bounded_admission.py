"""BoundedAdmission: refuses, never waits; counts exactly; permits are owned and one-shot."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import warnings

import pytest

from frontend.errors import Misuse
from frontend.runtime.admission import BoundedAdmission, Permit, PermitState, Refusal
from tests.unit.runtime.fakes import admitted
from tests.virtual_time import virtual


@pytest.mark.parametrize("bounds", [{"requests": 0}, {"requests": -1}, {"requests": 1, "cost": 0}])
def test_a_bound_that_admits_nothing_is_refused_at_construction(bounds: dict[str, int]) -> None:
    """Zero is a configuration mistake and says so."""
    with pytest.raises(ValueError, match="admits nothing"):
        BoundedAdmission("slots", **bounds)


@pytest.mark.parametrize("bounds", [{"requests": True}, {"requests": 1.0}, {"requests": 1, "cost": "9"}])
def test_a_bound_that_is_no_integer_is_a_type_error(bounds: dict[str, object]) -> None:
    """A bool or a float never becomes a limit by accident."""
    with pytest.raises(TypeError):
        BoundedAdmission("slots", **bounds)  # type: ignore[arg-type]


def test_requests_are_bounded_and_a_permit_is_held_until_released() -> None:
    """The third of two is refused, and admitted as soon as one came back."""
    slots = BoundedAdmission("slots", requests=2)
    first, second = admitted(slots), admitted(slots)
    refusal = slots.try_admit()
    assert not refusal
    assert refusal == Refusal("slots", "requests", requested=1, used=2, bound=2, shortfall=1, permanent=False)
    first.release()
    third = admitted(slots)
    second.release()
    third.release()
    assert slots.statistics().outstanding == 0


def test_cost_is_bounded_and_an_exact_fit_is_admitted() -> None:
    """Held + cost <= ceiling, including equality with an empty and with a used budget."""
    tokens = BoundedAdmission("tokens", requests=9, cost=10)
    admitted(tokens, 10).release()
    with admitted(tokens, 8):
        refusal = tokens.try_admit(5)
        assert refusal == Refusal("tokens", "cost", requested=5, used=8, bound=10, shortfall=3, permanent=False)
        with admitted(tokens, 2):
            assert tokens.statistics().held == 10


def test_a_cost_above_the_whole_budget_is_permanent_and_never_clamped() -> None:
    """It is refused even when idle, and is named as such even when the requests are used up too."""
    tokens = BoundedAdmission("tokens", requests=1, cost=10)
    idle = tokens.try_admit(11)
    assert idle == Refusal("tokens", "cost", requested=11, used=0, bound=10, shortfall=1, permanent=True)
    with admitted(tokens, 3):
        busy = tokens.try_admit(11)
        assert busy == Refusal("tokens", "cost", requested=11, used=3, bound=10, shortfall=4, permanent=True)
    assert tokens.statistics().held == 0


def test_a_refusal_reserves_nothing_and_is_counted() -> None:
    """Ten refusals leave the counters where they were, except `rejected`."""
    tokens = BoundedAdmission("tokens", requests=5, cost=10)
    with admitted(tokens, 9):
        before = tokens.statistics()
        for _ in range(10):
            assert not tokens.try_admit(2)
        after = tokens.statistics()
    assert (before.outstanding, before.held, before.admitted) == (after.outstanding, after.held, after.admitted)
    assert (before.rejected, after.rejected) == (0, 10)


def test_a_smaller_request_fits_as_soon_as_it_fits() -> None:
    """A refused large one leaves no ghost: budget 10, A holds 8, B asks 5, C asks 2 and runs."""
    budget = BoundedAdmission("budget", requests=9, cost=10)
    with admitted(budget, 8):
        assert not budget.try_admit(5)
        with admitted(budget, 2):
            pass


def test_zero_cost_takes_a_request_slot_only() -> None:
    """With the cost budget full a free request is still admitted, up to the request bound."""
    tokens = BoundedAdmission("tokens", requests=2, cost=1)
    with admitted(tokens, 1), admitted(tokens):
        refusal = tokens.try_admit()
        assert isinstance(refusal, Refusal)
        assert refusal.limit == "requests"


def test_without_a_ceiling_cost_is_counted_and_not_bounded() -> None:
    """The statistics show what is held even where nothing limits it."""
    slots = BoundedAdmission("slots", requests=1)
    with admitted(slots, 10**12) as permit:
        assert permit.cost == 10**12
        assert slots.statistics().held == 10**12


@pytest.mark.parametrize("cost", [-1, 1.5, True, "3", None])
def test_a_cost_that_is_no_count_is_misuse(cost: object) -> None:
    """It is a bug of the caller and not a refusal, so it is not counted as one."""
    slots = BoundedAdmission("slots", requests=1, cost=5)
    with pytest.raises(Misuse):
        slots.try_admit(cost)  # type: ignore[arg-type]
    assert slots.statistics().rejected == 0


def test_releasing_twice_raises_where_it_happens() -> None:
    """The second release is an error and changes nothing."""
    slots = BoundedAdmission("slots", requests=2)
    other = admitted(slots)
    permit = admitted(slots)
    permit.release()
    with pytest.raises(Misuse):
        permit.release()
    assert slots.statistics().outstanding == 1
    other.release()


def test_giving_back_what_is_not_held_raises_and_is_not_clamped() -> None:
    """The counters refuse to go below what is held."""
    slots = BoundedAdmission("slots", requests=2, cost=10)
    with admitted(slots, 3):
        with pytest.raises(Misuse):
            slots._give_back(4)
        assert slots.statistics().held == 3
    with pytest.raises(Misuse):
        slots._give_back(0)


def test_a_permit_grows_or_is_refused_and_gives_everything_back() -> None:
    """One step: all of the growth or nothing; what has no place in the whole budget is permanent."""
    held = BoundedAdmission("bytes", requests=9, cost=10)
    with admitted(held, 3) as permit, admitted(held, 4):
        assert permit.try_grow(3) is None
        assert (permit.cost, held.statistics().held) == (6, 10)
        refusal = permit.try_grow(1)
        assert refusal == Refusal("bytes", "cost", requested=1, used=10, bound=10, shortfall=1, permanent=False)
        refusal = permit.try_grow(5)
        assert refusal is not None
        assert refusal.permanent
        assert (permit.cost, held.statistics().held, held.statistics().rejected) == (6, 10, 2)
        for cost in (-1, True, 1.5):
            with pytest.raises(Misuse):
                permit.try_grow(cost)  # type: ignore[arg-type]
    statistics = held.statistics()
    assert (statistics.outstanding, statistics.held, statistics.admitted) == (0, 0, 2)
    with pytest.raises(Misuse, match="cannot grow"):
        permit.try_grow(1)


def test_leaving_the_block_gives_back_what_it_still_owns() -> None:
    """On success, on an exception, and not twice after an early release."""
    slots = BoundedAdmission("slots", requests=1)
    with pytest.raises(ZeroDivisionError), admitted(slots):
        1 // 0  # noqa: B018
    assert slots.statistics().outstanding == 0
    with admitted(slots) as permit:
        permit.release()
    assert permit.state is PermitState.RELEASED
    with pytest.raises(Misuse), permit:
        pass


def test_a_permit_is_owned_and_cannot_be_forged_copied_or_pickled() -> None:
    """There is one object per reservation."""
    slots = BoundedAdmission("slots", requests=2)
    with pytest.raises(Misuse):
        Permit(slots, 0)
    with admitted(slots) as permit:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(Misuse):
                duplicate(permit)
    assert slots.statistics().outstanding == 0


def test_a_dropped_permit_is_loud_and_leaves_no_capacity_behind() -> None:
    """Permits in use are live holders: losing one warns, and its reservation goes back."""
    slots = BoundedAdmission("slots", requests=1, cost=5)
    permit = admitted(slots, 5)
    with pytest.warns(ResourceWarning, match=r"Permit of 'slots' cost=5"):
        del permit
    assert (slots.statistics().outstanding, slots.statistics().held) == (0, 0)


def test_a_released_permit_is_dropped_in_silence() -> None:
    """No warning for the normal life of a permit."""
    slots = BoundedAdmission("slots", requests=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        permit = admitted(slots)
        permit.release()
        del permit
        gc.collect()


def test_limits_change_live_and_the_overage_is_reported() -> None:
    """Shrinking revokes nothing and admits nothing until enough came back."""
    tokens = BoundedAdmission("tokens", requests=3, cost=30)
    permits = [admitted(tokens, 10) for _ in range(3)]
    tokens.resize(requests=1, cost=15)
    seen = tokens.statistics()
    assert (seen.requests, seen.cost) == (1, 15)
    assert (seen.overage_requests, seen.overage_cost) == (2, 15)
    refusal = tokens.try_admit()
    assert isinstance(refusal, Refusal)
    assert refusal.shortfall == 3
    for permit in permits:
        permit.release()
    assert (tokens.statistics().overage_requests, tokens.statistics().overage_cost) == (0, 0)
    admitted(tokens, 15).release()


def test_resizing_changes_only_what_is_named_and_nothing_when_refused() -> None:
    """`cost=None` lifts the ceiling; a bad bound leaves both limits as they were."""
    tokens = BoundedAdmission("tokens", requests=3, cost=30)
    tokens.resize(requests=4)
    assert (tokens.statistics().requests, tokens.statistics().cost) == (4, 30)
    tokens.resize(cost=20)
    assert (tokens.statistics().requests, tokens.statistics().cost) == (4, 20)
    with pytest.raises(ValueError, match="admits nothing"):
        tokens.resize(requests=7, cost=0)
    assert (tokens.statistics().requests, tokens.statistics().cost) == (4, 20)
    tokens.resize(cost=None)
    assert (tokens.statistics().requests, tokens.statistics().cost) == (4, None)


@virtual
async def test_a_hundred_tasks_at_once_on_a_bound_of_one_leave_one() -> None:
    """Check and reserve are one step: exactly 99 refusals."""
    slots = BoundedAdmission("slots", requests=1)
    held: list[Permit] = []

    async def attempt() -> None:
        verdict = slots.try_admit()
        await asyncio.sleep(0)
        if isinstance(verdict, Permit):
            held.append(verdict)

    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(attempt())
    assert (len(held), slots.statistics().rejected) == (1, 99)
    held[0].release()


def test_an_admission_speaks() -> None:
    """Its repr carries the counts that matter."""
    tokens = BoundedAdmission("tokens", requests=2, cost=9)
    with admitted(tokens, 4):
        assert not tokens.try_admit(9)
        assert repr(tokens) == "<BoundedAdmission 'tokens' outstanding=1/2 held=4/9 admitted=1 rejected=1>"
    assert repr(BoundedAdmission("s", requests=1)).endswith("held=0 admitted=0 rejected=0>")
