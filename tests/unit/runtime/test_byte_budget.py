"""`frontend.runtime.byte_budget`: the total is the sum, a refusal changes nothing, what is used stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.errors import Misuse
from frontend.runtime.byte_budget import ByteBudget, BytesRefused, Held, Holder, Kind, Overage

A = Holder(Kind.CONVERSATION, "one", "a")
B = Holder(Kind.CONVERSATION, "two", "b")
P = Holder(Kind.PREFIX, "one", "p")
Q = Holder(Kind.PREFIX, "two", "q")
HOLDERS = (A, B, P, Q)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("reserve", "unpin", "give_back", "host", "limit")),
        st.sampled_from(HOLDERS),
        st.integers(0, 60),
    ),
    max_size=60,
)


def test_prefixes_go_before_conversations_and_the_oldest_first() -> None:
    budget = ByteBudget("cuda:0", 100)
    for holder in (A, Q, P):
        budget.reserve(holder, 30)
        budget.unpin(holder)
    assert budget.reserve(B, 50) == Held((Q, P))
    assert budget.reserve(B, 21) == Held((A,))
    assert budget.used == budget.held(B) == 71


def test_a_turn_grows_its_own_conversation_and_a_refusal_names_the_four_numbers() -> None:
    budget = ByteBudget("cuda:0", 100)
    budget.reserve(A, 70)
    budget.unpin(A)
    assert budget.reserve(A, 40) == BytesRefused("cuda:0", 40, 70, 100, 10)
    assert not budget.reserve(A, 40) and budget.held(A) == 70
    assert budget.reserve(A, 30) == Held()
    assert budget.give_back(A) == 100 and budget.used == 0


def test_a_lower_limit_evicts_what_is_idle_and_reports_the_rest() -> None:
    budget = ByteBudget("cuda:0", 100)
    for holder in (A, P):
        budget.reserve(holder, 40)
    budget.unpin(P)
    assert budget.reconfigure(30) == Overage(10, (P,))
    assert not budget.reserve(B, 1)


def test_what_is_not_held_is_not_given_back() -> None:
    budget = ByteBudget("cuda:0", 1)
    with pytest.raises(Misuse):
        budget.give_back(A)
    with pytest.raises(Misuse):
        budget.unpin(A)
    with pytest.raises(Misuse):
        budget.reserve(A, -1)


@given(STEPS)
def test_any_order_of_events_keeps_the_total_and_ends_with_zero(steps: list[tuple[str, Holder, int]]) -> None:
    budget = ByteBudget("cuda:0", 100)
    held: dict[Holder, int] = {}
    users: dict[Holder, int] = {}

    def evict(gone: tuple[Holder, ...]) -> None:
        for each in gone:
            assert users[each] == 0
            del held[each], users[each]

    for what, holder, number in steps:
        before = dict(held)
        if what == "reserve":
            verdict = budget.reserve(holder, number)
            if isinstance(verdict, Held):
                evict(verdict.evicted)
                held[holder] = held.get(holder, 0) + number
                users[holder] = users.get(holder, 0) + 1
                assert budget.used <= budget.limit
            else:
                assert verdict.shortfall == verdict.used + verdict.requested - verdict.limit > 0
                assert {each: budget.held(each) for each in before} == before
        elif what == "unpin" and users.get(holder):
            budget.unpin(holder)
            users[holder] -= 1
        elif what == "give_back" and holder in held:
            assert budget.give_back(holder) == held.pop(holder)
            del users[holder]
        elif what == "host":
            for each in budget.host_ended(holder.host):
                del held[each], users[each]
            assert not any(each.host == holder.host for each in held)
        elif what == "limit":
            told = budget.reconfigure(number)
            evict(told.evicted)
            assert told.overage == max(0, budget.used - number)
        assert budget.used == sum(held.values())
        assert {each: budget.held(each) for each in HOLDERS} == {each: held.get(each, 0) for each in HOLDERS}
    for host in ("one", "two"):
        budget.host_ended(host)
    assert budget.used == 0
