"""`frontend.runtime.byte_budget`: the total is the sum, a refusal changes nothing, what is used stays."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.errors import Misuse
from frontend.runtime.byte_budget import ByteBudget, BytesRefused, Held, Holder, Kind, Overage

A = Holder(Kind.CONVERSATION, "one", "a")
B = Holder(Kind.CONVERSATION, "two", "b")
P = Holder(Kind.PREFIX, "one", "")
Q = Holder(Kind.PREFIX, "two", "")
HOLDERS = (A, B, P, Q)


def used_once(budget: ByteBudget, holder: Holder, size: int) -> None:
    """A request has come and gone that left `size` bytes."""
    assert isinstance(budget.reserve(holder, size), Held)
    budget.end(holder, size, size)


def test_prefixes_go_before_conversations_and_the_oldest_first() -> None:
    """Only as many as are needed; what a request uses stays."""
    budget = ByteBudget("cuda:0", 100)
    for holder in (A, Q, P):
        used_once(budget, holder, 30)
    assert budget.reserve(B, 50) == Held((Q, P))
    assert budget.reserve(B, 21) == Held((A,))
    assert budget.used == budget.held(B) == 71


def test_a_prefix_takes_no_bytes_from_a_conversation() -> None:
    """It may be read again by any request; a conversation has been promised to go on."""
    budget = ByteBudget("cuda:0", 100)
    used_once(budget, A, 70)
    assert budget.reserve(P, 40) == BytesRefused("cuda:0", 40, 70, 100, 10)
    assert budget.reserve(B, 40) == Held((A,))


def test_a_turn_grows_its_own_conversation_and_a_refusal_names_the_four_numbers() -> None:
    """A refusal changes nothing, also in who was used last."""
    budget = ByteBudget("cuda:0", 100)
    used_once(budget, A, 70)
    assert budget.reserve(A, 40) == BytesRefused("cuda:0", 40, 70, 100, 10)
    assert budget.held(A) == 70
    assert budget.reserve(A, 30) == Held()
    budget.end(A, 30, 90)
    assert (budget.used, budget.settled(A)) == (90, 90)
    assert budget.give_back(A) == 90 and budget.used == 0


def test_more_than_the_whole_budget_is_told_from_what_waiting_would_help() -> None:
    """The client of the first is not to try again."""
    budget = ByteBudget("cuda:0", 100)
    budget.reserve(A, 60)
    for more, permanent in ((101, True), (60, False)):
        refused = budget.reserve(B, more)
        assert isinstance(refused, BytesRefused) and refused.permanent is permanent


def test_what_a_host_says_beyond_what_it_was_given_is_not_believed() -> None:
    """Else a model that lies would push the others out."""
    budget = ByteBudget("cuda:0", 100)
    budget.reserve(A, 10)
    budget.end(A, 10, 10**9)
    assert budget.used == 10


def test_a_lower_limit_evicts_what_is_idle_and_reports_the_rest() -> None:
    """Nothing is reserved until the rest is given back; a reservation of nothing is always there."""
    budget = ByteBudget("cuda:0", 100)
    budget.reserve(A, 40)
    used_once(budget, P, 40)
    assert budget.reconfigure(30) == Overage(10, (P,))
    assert not budget.reserve(B, 1)
    assert budget.reserve(B, 0) == Held()


def test_what_an_earlier_front_left_is_counted_whatever_the_limit_is() -> None:
    """It lies there: refusing to count it would promise its room to others."""
    budget = ByteBudget("cuda:0", 100)
    budget.adopt(A, 90)
    budget.adopt(B, 90)
    assert budget.used == 180
    assert budget.reconfigure(100) == Overage(0, (A,))


def test_what_a_host_held_is_given_back_when_it_ends_and_what_is_on_its_way_stays_reserved() -> None:
    """The next incarnation will need it: the unit is sent again."""
    budget = ByteBudget("cuda:0", 100)
    used_once(budget, A, 20)
    budget.reserve(A, 30)
    assert budget.host_ended("one") == (A,)
    assert (budget.held(A), budget.settled(A)) == (30, 0)
    budget.end(A, 30)
    assert budget.used == 0


def test_what_is_not_held_is_not_given_back() -> None:
    """A second end, and more than was reserved, are mistakes of ours."""
    budget = ByteBudget("cuda:0", 10)
    assert budget.give_back(A) == 0
    with pytest.raises(Misuse):
        budget.end(A, 0)
    with pytest.raises(Misuse):
        budget.reserve(A, -1)
    budget.reserve(A, 5)
    with pytest.raises(Misuse):
        budget.end(A, 6)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("reserve", "end", "give_back", "host", "limit", "adopt")),
        st.sampled_from(HOLDERS),
        st.integers(0, 60),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_order_of_events_keeps_the_total_and_ends_with_zero(steps: list[tuple[str, Holder, int]]) -> None:
    """Against a model that knows what each holder has settled and reserved, and by whom."""
    budget = ByteBudget("cuda:0", 100)
    settled: dict[Holder, int] = defaultdict(int)
    reserved: dict[Holder, list[int]] = defaultdict(list)

    def gone(holders: tuple[Holder, ...]) -> None:
        for each in holders:
            assert not reserved[each]
            assert settled.pop(each)

    for what, holder, number in steps:
        before = {each: budget.held(each) for each in HOLDERS}
        if what == "reserve":
            verdict = budget.reserve(holder, number)
            if isinstance(verdict, Held):
                gone(verdict.evicted)
                assert all(each.kind <= holder.kind for each in verdict.evicted)
                reserved[holder].append(number)
                assert budget.used <= budget.limit or not number
            else:
                assert verdict.shortfall == verdict.used + verdict.requested - verdict.limit > 0
                assert {each: budget.held(each) for each in HOLDERS} == before
        elif what == "end" and reserved[holder]:
            more = reserved[holder].pop()
            budget.end(holder, more, number)
            settled[holder] = min(number, settled[holder] + more)
        elif what == "give_back":
            assert budget.give_back(holder) == settled.pop(holder, 0)
        elif what == "host":
            assert set(budget.host_ended(holder.host)) == {
                each for each in HOLDERS if each.host == holder.host and settled.pop(each, 0)
            }
        elif what == "limit":
            told = budget.reconfigure(number)
            gone(told.evicted)
            assert told.overage == max(0, budget.used - number)
        elif what == "adopt":
            budget.adopt(holder, number)
            settled[holder] = number
        for each in HOLDERS:
            assert budget.settled(each) == settled[each]
            assert budget.held(each) == settled[each] + sum(reserved[each])
        assert budget.used == sum(map(budget.held, HOLDERS))
    for holder in HOLDERS:
        for more in reserved[holder]:
            budget.end(holder, more)
        budget.give_back(holder)
    assert budget.used == 0
