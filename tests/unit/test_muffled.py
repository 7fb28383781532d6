"""A peer that errs without end is told of once a second."""

from __future__ import annotations

import logging

import pytest

from frontend.observation.muffled import INTERVAL_S, Muffled


def test_what_repeats_is_logged_once_an_interval_with_how_often_it_came(caplog: pytest.LogCaptureFixture) -> None:
    """The first at once, the next when the interval is over, with the number of those between."""
    now = 10.0
    muffled = Muffled(logging.getLogger("test.muffled"), lambda: now)
    for at in range(5):
        muffled.warning("reply to call %d", at)
    now += INTERVAL_S
    muffled.warning("reply to call %d", 5)
    muffled.warning("reply to call %d", 6)
    texts = [record.getMessage() for record in caplog.records]
    assert texts == ["reply to call 0", "reply to call 5 (4 more of this host were left out)"]
