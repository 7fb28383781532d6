"""Who has room: the planner alone, fed with lists of events; no process, no clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from executor_host.supervision.residency import PLACES, TAKES_ROOM, Bounds, Move, Place, Residency


class World:
    """What the planner does, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def start(self, deployment: str) -> None:
        self.done.append(f"start {deployment}")

    def evict(self, deployment: str) -> None:
        self.done.append(f"evict {deployment}")

    def refuse(self, deployment: str, why: str) -> None:
        self.done.append(f"refuse {deployment}: {why}")

    def take(self) -> list[str]:
        """What was done since the last time."""
        done, self.done = self.done, []
        return done


def planner(world: World, *there: str, absent: str = "", pinned: str = "", **bounds: Any) -> Residency:
    """A planner with deployments that are there and others that are not."""
    residency = Residency(Bounds(**bounds), world)
    for name in (*there, *absent):
        residency.add(name, pinned=name in pinned)
    for name in there:
        residency.want(name)
        residency.ready(name)
    world.take()
    return residency


def test_without_bounds_everything_is_started_at_once() -> None:
    """Whoever is wanted is started, whatever else is there."""
    world = World()
    residency = planner(world, "a", absent="bc")
    residency.usage(["b", "c"], {})
    assert world.take() == ["start b", "start c"]


def test_the_least_recently_used_goes_first_and_only_as_many_as_needed() -> None:
    """Of three idle ones the one that was used longest ago makes room; the others stay."""
    world = World()
    residency = planner(world, "a", "b", "c", absent="x", count=3)
    residency.usage(["x"], {"a": 5.0, "b": 1.0, "c": 3.0})
    assert world.take() == ["evict b"]
    residency.usage(["x"], {"a": 5.0, "c": 3.0})
    assert world.take() == [], "one that leaves is enough"
    residency.left("b")
    assert world.take() == ["start x"]


def test_who_is_wanted_by_many_is_started_once() -> None:
    """Told again and again, also while it starts: one start."""
    world = World()
    residency = planner(world, absent="x")
    for _ in range(10):
        residency.usage(["x"], {})
    assert world.take() == ["start x"]
    residency.ready("x")
    residency.usage(["x"], {})
    assert world.take() == []


def test_the_busy_and_the_pinned_are_never_evicted() -> None:
    """Not idle: not touched. Idle and pinned: not touched. The request waits until that changes."""
    world = World()
    residency = planner(world, "a", "b", absent="x", pinned="a", count=2)
    residency.usage(["x"], {"a": 1.0})
    assert world.take() == []
    residency.usage(["x"], {"a": 1.0, "b": 2.0})
    assert world.take() == ["evict b"]


def test_nobody_is_evicted_in_vain() -> None:
    """When all the idle together do not make the room, none of them goes."""
    world = World()
    residency = Residency(Bounds(bytes=10), world)
    for name, size in (("a", 4), ("b", 6), ("x", 8)):
        residency.add(name, size=size)
    for name, size in (("a", 4), ("b", 6)):
        residency.want(name)
        residency.ready(name)
        residency.measured(name, size)
    world.take()
    residency.usage(["x"], {"a": 1.0})
    assert world.take() == []
    residency.usage(["x"], {"a": 1.0, "b": 2.0})
    assert world.take() == ["evict a", "evict b"]
    residency.left("a")
    assert world.take() == [], "half the room is no room"
    residency.left("b")
    assert world.take() == ["start x"]


def test_the_measured_size_counts_from_the_first_load_on() -> None:
    """The checkpoint's size is a guess; what the processes had in memory is not."""
    world = World()
    residency = planner(world, absent="ab", bytes=10)
    residency.usage(["a"], {})
    residency.ready("a")
    residency.measured("a", 10)
    residency.usage(["b"], {})
    assert world.take() == ["start a", "start b"], "b is not known to take anything"
    residency.ready("b")
    residency.measured("b", 3)
    residency.usage([], {"a": 1.0, "b": 2.0})
    residency.unload("b")
    residency.left("b")
    residency.usage(["b"], {})
    assert world.take() == ["evict b"]


def test_nobody_overtakes_the_first_in_the_line() -> None:
    """A small one that would fit waits behind a large one that does not yet, or the large one would wait for ever."""
    world = World()
    residency = planner(world, "a", absent="xy", count=1)
    residency.usage(["x", "y"], {})
    residency.usage(["y", "x"], {"a": 1.0})
    assert world.take() == ["evict a"]
    residency.left("a")
    assert world.take() == ["start x"]


def test_the_room_that_a_swap_has_made_is_its_own() -> None:
    """Whoever waits for room gets none of it: neither between the former's end and the successor's start, nor when
    the successor fails and the former is started again."""
    world = World()
    residency = planner(world, "old", absent="xn", count=1)
    residency.keep("old", True)
    residency.usage(["x"], {})
    residency.want("n", first=True, room_of="old")
    assert world.take() == ["start n"]
    residency.want("old", first=True, room_of="n")
    assert world.take() == ["start old"]
    residency.remove("n")
    assert world.take() == []


def test_a_load_that_an_operator_ends_gives_its_room_to_the_next() -> None:
    """When its processes are gone, and not before; the last word of one that was about to be ready changes nothing.
    A pin keeps what serves, and is no reason to go on loading."""
    world = World()
    residency = planner(world, absent="xy", count=1)
    residency.want("x")
    residency.usage(["y"], {})
    assert not residency.unload("y", loading=True), "it waits, and has nothing to give"
    assert residency.unload("x", loading=True)
    residency.left("x")
    assert world.take() == ["start x", "evict x", "start y"]
    residency.ready("y")
    residency.usage(["x"], {})
    residency.usage([], {"y": 1.0})
    assert world.take() == [], "nobody insists on it any more"
    residency = planner(world, absent="x", pinned="x")
    residency.want("x")
    assert not residency.unload("x")
    assert residency.unload("x", loading=True)
    residency.ready("x")
    residency.broken("x")
    assert residency.place("x") is Place.LEAVING


def test_what_the_front_said_is_old_when_an_operator_wants_something() -> None:
    """Idle a second ago may be busy now: evicted is who is idle in the next picture."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.usage([], {"a": 1.0})
    residency.want("x")
    assert world.take() == []
    residency.usage([], {"a": 2.0})
    assert world.take() == ["evict a"]


def test_who_is_not_wanted_any_more_is_not_started_any_more() -> None:
    """The requests have given up: the room stays with whoever has it."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.usage(["x"], {})
    residency.usage([], {"a": 1.0})
    assert world.take() == []


def test_one_that_leaves_and_is_wanted_again_comes_back_into_its_own_room() -> None:
    """Its process has to go all the same, because it was told to."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.usage(["x"], {"a": 1.0})
    residency.usage(["a"], {})
    assert world.take() == ["evict a"]
    residency.left("a")
    assert world.take() == ["start a"]


def test_what_can_never_fit_is_refused_at_once_and_nobody_goes_for_it() -> None:
    """Larger than all the room, or all the room pinned: no waiting helps, and who waits behind it goes on."""
    world = World()
    residency = Residency(Bounds(bytes=10), world)
    for name, size in (("a", 5), ("huge", 11), ("x", 5)):
        residency.add(name, size=size)
    residency.want("a")
    residency.ready("a")
    residency.measured("a", 5)
    residency.usage(["huge", "x"], {"a": 1.0})
    assert world.take() == ["start a", "refuse huge: it takes 11 bytes, max_resident_bytes is 10", "start x"]
    residency = planner(world, "a", absent="y", pinned="a", count=1)
    residency.usage(["y"], {})
    assert world.take() == ["refuse y: pinned models take all the room (max_resident 1)"]


def test_a_successor_without_room_beside_its_predecessor_is_told_what_helps() -> None:
    """It is the model itself that takes the room, and not others that are pinned: stop-first stops it first."""
    world = World()
    residency = planner(world, "a", "b", pinned="b", count=2)
    residency.keep("a", True)
    residency.add("c", beside="a")
    residency.want("c", first=True)
    assert world.take() == [
        "refuse c: there is no room for it beside a (max_resident 2); --mode stop-first stops that one first"
    ]
    residency = planner(world, "a", "b", pinned="ab", count=2)
    residency.add("d", beside="gone")
    residency.want("d", first=True)
    assert world.take() == ["refuse d: pinned models take all the room (max_resident 2)"]


def test_who_waits_for_room_goes_on_waiting_while_a_swap_keeps_it() -> None:
    """The former stays, idle or not, until the swap has ended; that is no reason to refuse anybody for good."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.keep("a", True)
    residency.usage(["x"], {"a": 1.0})
    assert world.take() == []
    residency.keep("a", False)
    assert world.take() == ["evict a"]


def test_what_a_swap_has_taken_the_name_from_is_not_started_by_a_request() -> None:
    """Neither by one that waited before, nor by a front that does not know it yet; its successor still is."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.keep("x", True)
    residency.usage(["x"], {})
    residency.bar("x", True)
    residency.usage(["x"], {})
    residency.remove("a")
    assert world.take() == []
    residency.bar("x", False)
    residency.usage(["x"], {})
    assert world.take() == ["start x"]


def test_a_successor_makes_no_room_while_its_swap_goes_on() -> None:
    """However long one of its hosts has been there: another is being loaded still."""
    world = World()
    residency = planner(world, "old", "a", absent="x", pinned="a", count=3, turn_s=5.0)
    residency.keep("old", True)
    residency.add("new", beside="old")
    residency.want("new", first=True)
    residency.ready("new")
    residency.usage(["x"], {})
    assert world.take() == ["start new"]
    for now in (0.0, 10.0, 20.0):
        residency.look(now)
    assert world.take() == []
    residency.keep("new", False)
    residency.look(30.0)
    assert world.take() == ["evict new"]


def test_what_has_been_idle_for_as_long_as_it_is_kept_goes() -> None:
    """Not before, not when it is busy, not when it is pinned."""
    world = World()
    residency = Residency(Bounds(), world)
    for name, pinned in (("a", False), ("b", False), ("p", True)):
        residency.add(name, pinned=pinned, keep_alive_s=10.0)
        residency.want(name)
        residency.ready(name)
    residency.usage([], {"a": 0.0, "p": 0.0})
    world.take()
    residency.expire(9.9)
    assert world.take() == []
    residency.expire(10.0)
    assert world.take() == ["evict a"]


def test_one_that_will_not_start_gives_its_room_to_the_next() -> None:
    """Broken takes no room and is started again only when somebody insists."""
    world = World()
    residency = planner(world, absent="xy", count=1)
    residency.usage(["x", "y"], {})
    residency.broken("x")
    assert world.take() == ["start x", "start y"]
    residency.ready("y")
    residency.usage(["x"], {"y": 1.0})
    assert world.take() == []
    residency.want("x")
    residency.usage([], {"y": 1.0})
    assert world.take() == ["evict y"]


def test_an_unknown_deployment_is_a_bug_except_in_a_picture_of_yesterday() -> None:
    """The front may not know yet that one was dropped; everybody else does."""
    residency = planner(World())
    residency.usage(["gone"], {"gone": 1.0})
    with pytest.raises(KeyError):
        residency.want("gone")


def test_every_place_is_reached_and_can_become_absent() -> None:
    """The table has no dead end: room that was taken comes back."""
    reached = {Place.ABSENT}
    while more := {then for (place, _), then in PLACES.items() if place in reached} - reached:
        reached |= more
    assert reached == set(Place)
    for place in TAKES_ROOM:
        assert any((place, move) in PLACES for move in (Move.LEFT, Move.EVICT, Move.BREAK))


NAMES = "abcdef"


class Machine(RuleBasedStateMachine):
    """Any order of events: the bounds hold, the busy and the pinned stay, every want is answered once."""

    @initialize(
        count=st.none() | st.integers(1, 4),
        size=st.none() | st.integers(3, 12),
        pins=st.sets(st.sampled_from(NAMES), max_size=2),
    )
    def begin(self, count: int | None, size: int | None, pins: set[str]) -> None:
        self.bounds = Bounds(count, size)
        self.residency = Residency(self.bounds, self)
        self.sizes = {name: 1 + index % 4 for index, name in enumerate(NAMES)}
        self.pins, self.wanted, self.idle = pins, dict[str, None](), dict[str, float]()
        self.asked: set[str] = set()
        self.refused: set[str] = set()
        for name in NAMES:
            self.residency.add(name, size=self.sizes[name], pinned=name in pins)

    # Effects

    def start(self, deployment: str) -> None:
        assert deployment in self.wanted or deployment in self.asked, "nobody has asked for it"
        self.wanted.pop(deployment, None)
        self.asked.discard(deployment)

    def evict(self, deployment: str) -> None:
        assert deployment in self.idle, "it is busy"
        assert deployment not in self.pins
        del self.idle[deployment]

    def refuse(self, deployment: str, why: str) -> None:
        assert deployment in self.wanted or deployment in self.asked
        self.wanted.pop(deployment, None)
        self.asked.discard(deployment)

    # Events

    def at(self, *places: Place) -> list[str]:
        return [name for name in NAMES if self.residency.place(name) in places]

    @rule(name=st.sampled_from(NAMES), since=st.floats(0, 100))
    def front(self, name: str, since: float) -> None:
        """Requests of `name` come or have gone."""
        place = self.residency.place(name)
        if name in self.wanted:
            del self.wanted[name]
        elif place in (Place.ABSENT, Place.LEAVING):
            self.wanted[name] = None
        elif place is Place.RESIDENT and not self.idle.pop(name, None):
            self.idle[name] = since
        self.residency.usage(list(self.wanted), dict(self.idle))

    @rule(name=st.sampled_from(NAMES), first=st.booleans())
    def insist(self, name: str, first: bool) -> None:
        if self.residency.place(name) not in (Place.STARTING, Place.RESIDENT):
            self.asked.add(name)
            self.residency.want(name, first=first)
            self.residency.usage(list(self.wanted), dict(self.idle))

    @precondition(lambda self: self.at(Place.STARTING))
    @rule(data=st.data(), works=st.booleans())
    def started(self, data: st.DataObject, works: bool) -> None:
        name = data.draw(st.sampled_from(self.at(Place.STARTING)))
        if works:
            self.residency.ready(name)
            self.residency.measured(name, self.sizes[name])
        else:
            self.residency.broken(name)

    @precondition(lambda self: self.at(Place.LEAVING))
    @rule(data=st.data())
    def gone(self, data: st.DataObject) -> None:
        self.residency.left(data.draw(st.sampled_from(self.at(Place.LEAVING))))

    @precondition(lambda self: self.at(Place.RESIDENT))
    @rule(data=st.data())
    def died(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.at(Place.RESIDENT)))
        self.idle.pop(name, None)
        self.residency.broken(name)

    @invariant()
    def within_bounds(self) -> None:
        there = self.at(*TAKES_ROOM)
        assert self.bounds.count is None or len(there) <= self.bounds.count
        assert self.bounds.bytes is None or sum(self.sizes[name] for name in there) <= self.bounds.bytes

    @invariant()
    def nobody_waits_while_there_is_room(self) -> None:
        there = self.at(*TAKES_ROOM)
        waiting = [name for name in (*self.asked, *self.wanted) if self.residency.place(name) not in TAKES_ROOM]
        if waiting and not there:
            raise AssertionError(f"{waiting} wait, and nothing is loaded")


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, derandomize=True, deadline=None)


def test_the_first_in_the_line_waits_for_a_turn_and_then_the_busy_make_room() -> None:
    """It has waited for a turn, and the busy one has been there for a turn: it finishes what it has, and goes."""
    world = World()
    residency = planner(world, "a", absent="x", count=1, turn_s=10)
    residency.look(0.0)
    residency.usage(["x"], {})
    residency.look(5.0)
    residency.look(14.9)
    assert world.take() == []
    residency.look(15.0)
    assert world.take() == ["evict a"]
    residency.look(30.0)
    assert world.take() == [], "one is enough"
    residency.left("a")
    assert world.take() == ["start x"]
    assert residency.turns("a") == 1


def test_who_has_just_got_room_keeps_it_for_a_turn() -> None:
    """However long the next one has waited already: nobody is loaded only to make room again."""
    world = World()
    residency = planner(world, "a", absent="xy", count=1, turn_s=10)
    residency.usage(["x", "y"], {})
    for now in (0.0, 10.0):
        residency.look(now)
    residency.left("a")
    assert world.take() == ["evict a", "start x"]
    residency.ready("x")
    residency.look(12.0)
    residency.look(21.9)
    assert world.take() == []
    residency.look(22.0)
    assert world.take() == ["evict x"]


def test_the_idle_go_before_the_busy_and_the_pinned_never() -> None:
    """Also when it is somebody's turn; what cannot make the room together stays."""
    world = World()
    residency = planner(world, "a", "b", absent="x", pinned="a", count=2, turn_s=10)
    residency.usage(["x"], {})
    residency.look(0.0)
    residency.look(10.0)
    assert world.take() == ["evict b"]
    world = World()
    residency = planner(world, "a", "b", absent="x", pinned="ab", count=2, turn_s=10)
    residency.usage(["x"], {})
    assert world.take()[0].startswith("refuse x")


def test_without_a_turn_the_busy_stay() -> None:
    """0 in the configuration: whoever is used has its room for as long as it is."""
    world = World()
    residency = planner(world, "a", absent="x", count=1)
    residency.usage(["x"], {})
    for now in (0.0, 10.0**6):
        residency.look(now)
    assert world.take() == []


@pytest.mark.parametrize("names", ["ab", "abc"])
def test_steady_clients_of_every_model_are_all_served_in_turns(names: str) -> None:
    """Simulated: one has room, each is asked for all the time, a load takes 1 s and the last requests half a second.
    Nobody waits for longer than the others' turns, and the shares of the time are equal."""
    turn_s, load_s, drain_s, end_s = 10.0, 1.0, 0.5, 3600.0
    world = World()
    residency = planner(world, names[0], absent=names[1:], count=1, turn_s=turn_s)
    served = dict.fromkeys(names, 0.0)
    waited = dict.fromkeys(names, 0.0)
    longest = dict.fromkeys(names, 0.0)
    due: list[tuple[float, str]] = []
    now, there = 0.0, names[0]
    while now < end_s:
        now += 0.5
        for word in world.take():
            what, name = word.split()
            due.append((now + (load_s if what == "start" else drain_s), word))
        for at, word in list(due):
            what, name = word.split()
            if at <= now:
                due.remove((at, word))
                if what == "start":
                    residency.ready(name)
                    there = name
                else:
                    there = "" if there == name else there
                    residency.left(name)
        for name in names:
            if name == there:
                served[name] += 0.5
                waited[name] = 0.0
            else:
                waited[name] += 0.5
                longest[name] = max(longest[name], waited[name])
        residency.usage([name for name in names if name != there], {})
        residency.look(now)
    others = len(names) - 1
    assert max(longest.values()) <= others * (turn_s + load_s + drain_s + 2.0) + load_s + drain_s + 2.0
    assert max(served.values()) - min(served.values()) <= 2 * turn_s
    assert sum(served.values()) > 0.8 * end_s
