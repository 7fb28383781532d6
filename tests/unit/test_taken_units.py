"""Which units had a host taken when it died? The page alone, written by one side and read by the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from executor_host.host.taken import PAGE_BYTES, PLACE_BYTES, PLACES, TakenPage, TakenUnits
from protocol.limits import MAX_CALL_ID


@pytest.fixture
def page() -> Iterator[TakenPage]:
    made = TakenPage()
    yield made
    made.close()


def kept(page: TakenPage) -> TakenUnits:
    """A host that keeps `page`."""
    return TakenUnits(os.dup(page.descriptor))


def test_a_page_that_nobody_keeps_says_nothing(page: TakenPage) -> None:
    """A host that ended before it kept its page, or one that knows nothing of it: not known, rather than none."""
    assert page.read() is None
    kept(page)
    assert page.read() == {}


def test_the_last_unit_of_each_front_is_told(page: TakenPage) -> None:
    """Numbers only rise, and each front has its own, also when a dead one's unit comes between."""
    units = kept(page)
    for peer, call in ((b"1-a", 1), (b"1-a", 2), (b"2-b", 1), (b"1-a", 3), (b"2-b", 2), (b"e" * 40, MAX_CALL_ID)):
        units.note(peer, call)
    assert page.read() == {"1-a": 3, "2-b": 2, "e" * 40: MAX_CALL_ID}


def test_the_page_outlives_a_host_that_is_killed(page: TakenPage) -> None:
    """Killed right after the note, without an interpreter's end: it is there."""
    child = os.fork()
    if child == 0:
        try:
            units = kept(page)
            units.note(b"1-a", 6)
            units.note(b"1-a", 7)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert page.read() == {"1-a": 7}


def test_more_fronts_than_places_make_the_page_say_nothing(page: TakenPage) -> None:
    """What does not fit is not known; it is never told as if it had not been taken."""
    units = kept(page)
    for number in range(PLACES):
        units.note(b"%d" % number, number + 1)
    assert page.read() == {str(number): number + 1 for number in range(PLACES)}
    units.note(b"another", 1)
    assert page.read() is None
    units.note(b"0", 9)
    assert page.read() is None


@pytest.mark.parametrize("peer", [b"", b"\xff\x00", b"x" * 41], ids=["empty", "no text", "too long"])
def test_a_peer_that_is_no_front_has_no_place(page: TakenPage, peer: bytes) -> None:
    """Strangers have other identities; they cost the fronts nothing."""
    units = kept(page)
    units.note(b"1-a", 4)
    units.note(peer, 99)
    assert page.read() == {"1-a": 4}
    units.note(b"1-a", 5)
    assert page.read() == {"1-a": 5}


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (0, b"\x03"),
        (PLACE_BYTES, b"\xff" * 8),
        (PLACE_BYTES + 8, b"\xff"),
        (PLACE_BYTES + 8, bytes(40)),
        (2 * PLACE_BYTES, b"\xff" * 64),
        (PLACE_BYTES + 8, b"x" * 41),
    ],
    ids=["head", "number", "epoch", "no epoch", "another place", "long epoch"],
)
def test_a_page_that_was_written_over_says_nothing(page: TakenPage, at: int, what: bytes) -> None:
    """Whatever a host does to its memory before it dies, the supervisor reads something it can send, or nothing."""
    kept(page).note(b"1-a", 4)
    os.pwrite(page.descriptor, what, at)
    assert page.read() is None


def test_a_page_of_another_size_says_nothing(page: TakenPage) -> None:
    """Nobody makes it shorter; if somebody did, that is not known either."""
    kept(page).note(b"1-a", 4)
    os.ftruncate(page.descriptor, PAGE_BYTES // 2)
    assert page.read() is None
