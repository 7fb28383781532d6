"""How old is a frame? Told without a common clock, and never too old."""

from __future__ import annotations

import pytest

from executor_host.host.ages import Ages

DAY_MS = 86_400_000


@pytest.mark.parametrize("apart", [0, -(10**9), 10**9], ids=["one clock", "behind", "ahead"])
def test_a_frame_that_waited_is_as_old_as_it_waited_longer_than_the_quickest(apart: int) -> None:
    """Whatever the difference of the clocks."""
    ages = Ages()
    assert ages.age_ms("e", 5_000, 5_000 + apart) == 0
    assert ages.age_ms("e", 6_000, 6_000 + apart) == 0
    assert ages.age_ms("e", 7_000, 22_000 + apart) == pytest.approx(15_000, abs=3)
    assert ages.age_ms("e", 22_000, 22_000 + apart) == 0


def test_the_first_frame_of_a_front_cannot_be_old() -> None:
    """And a quicker one later corrects what a slow first one has shown."""
    ages = Ages()
    assert ages.age_ms("e", 0, 500) == 0
    assert ages.age_ms("e", 1_000, 1_003) == 0
    assert ages.age_ms("e", 2_000, 2_503) == pytest.approx(500, abs=1)
    assert ages.age_ms("other", 2_000, 9_000) == 0


@pytest.mark.parametrize("drift", [-9e-5, 9e-5])
def test_drift_is_never_taken_for_age(drift: float) -> None:
    """Clocks that part by some seconds a day, and a front that is silent for days in between."""
    ages = Ages()
    for silent in (0, 1_000, DAY_MS, 5 * DAY_MS, 5 * DAY_MS + 1_000):
        assert ages.age_ms("e", silent, silent * (1 + drift)) == 0
