"""The life tables: complete, without dead ends, and drawn in docs/wire.md as they are.

The drawings are made from the tables. After a change of a table, print the new ones and paste them:

    python tests/unit/protocol/test_state_tables.py
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import BadTransition
from protocol.states import (
    FRONT,
    HOST,
    REQUEST,
    ROLES,
    SERVER,
    SLOT,
    FrontEvent,
    FrontState,
    HostEvent,
    HostState,
    Machine,
    RequestEvent,
    RequestState,
    Role,
    RoleEvent,
    ServerEvent,
    ServerState,
    SlotEvent,
    SlotState,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "wire.md"

Table = Mapping[tuple[Any, Any], Any]
LIVES: dict[str, tuple[Table, type[enum.Enum], type[enum.Enum], enum.Enum, set[enum.Enum]]] = {
    "host": (HOST, HostState, HostEvent, HostState.STARTING, {state for state in HostState if state.final}),
    "slot": (SLOT, SlotState, SlotEvent, SlotState.EMPTY, set()),
    "front": (FRONT, FrontState, FrontEvent, FrontState.STARTING, {FrontState.GONE}),
    "server": (SERVER, ServerState, ServerEvent, ServerState.STARTING, {ServerState.STOPPED}),
    "role": (ROLES, Role, RoleEvent, Role.COMING, {Role.RETIRED}),
    "request": (REQUEST, RequestState, RequestEvent, RequestState.RECEIVED, {s for s in RequestState if s.ended}),
}
RESTS: set[enum.Enum] = {SlotState.EMPTY}
"""Where a life without an end can stay: whoever has it drops it then."""

every = pytest.mark.parametrize(("table", "states", "events", "start", "ends"), LIVES.values(), ids=LIVES.keys())


def drawing(table: Table, start: enum.Enum, ends: set[enum.Enum]) -> str:
    """The mermaid text of a table: one arrow per pair of states, labelled with all events that take it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), then in table.items():
        arrows.setdefault((state.value, then.value), []).append(event.value)
    lines = ["stateDiagram-v2", f"    [*] --> {start.value}"]
    lines += [f"    {state} --> {then}: {', '.join(events)}" for (state, then), events in arrows.items()]
    lines += [f"    {end.value} --> [*]" for end in sorted(ends, key=lambda end: str(end.value))]
    return "\n".join(["```mermaid", *lines, "```"])


@every
def test_every_entry_moves_as_it_says(table: Table, states: Any, events: Any, start: Any, ends: Any) -> None:
    """A machine in the entry's state takes its event to its next state, and says beforehand that it can."""
    for (state, event), then in table.items():
        machine = Machine(table, state)
        assert machine.allows(event)
        assert machine.advance(event) is then
        assert machine.state is then


@every
def test_what_is_not_in_the_table_is_loud(table: Table, states: Any, events: Any, start: Any, ends: Any) -> None:
    """Every other pair of state and event raises, names both, and moves nothing."""
    for state in states:
        for event in set(events) - {event for at, event in table if at is state}:
            machine = Machine(table, state)
            assert not machine.allows(event)
            with pytest.raises(BadTransition, match=f"'{event.value}'.*'{state.value}'"):
                machine.advance(event)
            assert machine.state is state


@every
def test_an_end_is_an_end(table: Table, states: Any, events: Any, start: Any, ends: Any) -> None:
    """No event leaves an end, and only ends have no way out."""
    assert set(states) - {state for state, _ in table} == ends


@every
def test_every_life_can_end(table: Table, states: Any, events: Any, start: Any, ends: Any) -> None:
    """From every state some sequence of events leads to an end, or to where the life can stay."""
    finite = set(ends) or RESTS & set(states)
    while True:
        more = {state for (state, _), then in table.items() if then in finite} - finite
        if not more:
            break
        finite |= more
    assert finite == set(states)


@every
def test_every_state_and_event_is_reached(table: Table, states: Any, events: Any, start: Any, ends: Any) -> None:
    """Nothing in the enums is dead: each state lies on a way from the start, each event is used."""
    reached = {start}
    while True:
        more = {then for (state, _), then in table.items() if state in reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(states)
    assert {event for _, event in table} == set(events)


def test_the_exit_of_the_process_ends_a_host_in_every_state() -> None:
    """A process may die at any time; only after DRAIN is a clean exit a stop."""
    for state in set(HostState) - {HostState.STOPPED, HostState.DEAD}:
        assert HOST[state, HostEvent.EXIT] is HostState.DEAD
        clean = HostState.STOPPED if state is HostState.DRAINING else HostState.DEAD
        assert HOST[state, HostEvent.EXIT_CLEAN] is clean


def test_an_open_request_can_fail_expire_and_be_cancelled_in_every_state() -> None:
    """Whatever happens around it, a request has an end; refused it is before its first unit was queued,
    or by the host."""
    for state in (s for s in RequestState if not s.ended):
        for event in (RequestEvent.FAIL, RequestEvent.EXPIRE, RequestEvent.CANCEL):
            assert REQUEST[state, event].ended
        refusable = state in (RequestState.RECEIVED, RequestState.PREPARED, RequestState.RUNNING)
        assert ((state, RequestEvent.REFUSE) in REQUEST) is refusable


def test_a_machine_says_where_it_is() -> None:
    """In a log line or a debugger the state is enough."""
    assert repr(Machine(HOST, HostState.LOADING)) == "<HostState loading>"


@pytest.mark.parametrize("life", LIVES)
def test_the_drawing_in_the_document_is_the_table(life: str) -> None:
    """Picture and program cannot drift apart; see the top of this file for how to print the new picture."""
    table, _, _, start, ends = LIVES[life]
    assert drawing(table, start, ends) in DOCUMENT.read_text(encoding="utf-8")


if __name__ == "__main__":
    for name, (table, _, _, start, ends) in LIVES.items():
        print(f"{name}\n\n{drawing(table, start, ends)}\n")
