"""The targets of `make fuzz` hold for what they begin with, so that what it finds is of the code and not of them."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_holds_for_its_seeds_and_their_beginnings(name: str) -> None:
    """Whole, and cut at each of the first bytes and in the middle."""
    target = TARGETS[name]
    for seed in target.seeds:
        for end in (*range(min(len(seed), 40)), len(seed) // 2, len(seed)):
            target.run(seed[:end])
