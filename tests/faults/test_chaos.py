"""A minute of everything at once. `make chaos` has longer ones, with other seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import storm

SECONDS = 60.0
SEED = 7


@pytest.mark.timeout(300)
def test_a_minute_of_faults_loses_nothing(runtime: Path) -> None:
    """Every request ends once and as it was promised, nothing is executed twice, no queued request is lost to a
    death, and afterwards everything that was taken has been given back."""
    wrong, table = storm(runtime, seconds=SECONDS, seed=SEED, clients=16)
    print(table)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
def test_half_a_minute_of_faults_loses_nothing_that_is_sent_together_ahead_or_once(runtime: Path) -> None:
    """The same with batches, look-ahead and joining, and with clients that ask the same at the same time."""
    wrong, table = storm(runtime, seconds=SECONDS / 2, seed=SEED, clients=16, shared=True)
    print(table)
    assert not wrong, "\n".join(wrong)
