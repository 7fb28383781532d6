"""From a hidden state to logits, and which letter rows are taken for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend.errors import InternalError
from frontend.families.base import AssetError
from frontend.families.cua_s1.projection import Letters
from tests.unit.cua_s1.helpers import SIZE, hidden, letters_of, rows


def test_the_published_sums() -> None:
    """Exact in float64, rounded once."""
    table = np.zeros((26, 3), np.float32)
    table[0] = [16777216, 1, -16777216]
    table[1] = [16777216, 1, 0]
    letters = Letters.of({"letters": letters_of(table)})
    assert letters.logits({"hidden": np.ones(3, np.float32)}, 2) == (1.0, 16777216.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_letter_nobody_asks_for_is_not_read(bad: float) -> None:
    """What is not finite counts where it is used, and there it ends the request."""
    letters = Letters(rows())
    letters._rows[2] = bad
    assert letters.logits(hidden(1.0, 1.0, 1.0), 2) == (1.0, 2.0)
    with pytest.raises(InternalError, match="logit of C"):
        letters.logits(hidden(1.0, 1.0, 1.0), 3)
    with pytest.raises(InternalError, match="logit of A"):
        Letters(rows()).logits(hidden(bad), 2)
    # Too large for float32 is as bad.
    with pytest.raises(InternalError, match="logit of B is inf"):
        Letters(rows() * np.float32(1e37)).logits(hidden(1.0, 1e38), 2)


def test_an_output_that_is_no_hidden_state() -> None:
    """Of this model."""
    letters = Letters(rows())
    for output in (None, {}, {"hidden": [1.0] * SIZE}, {"hidden": np.ones(SIZE)}, {"hidden": np.ones(3, np.float32)}):
        with pytest.raises(InternalError):
            letters.logits(output, 2)


def wrong() -> dict[str, Any]:
    good = letters_of(rows())
    infinite = rows()
    infinite[25, 0] = np.inf
    return {
        "none": None,
        "no map": [1],
        "other ids": good | {"ids": list(range(33, 59))},
        "no ids": {key: value for key, value in good.items() if key != "ids"},
        "float64": good | {"rows": rows().astype(np.float64)},
        "25": letters_of(rows()[:25]),
        "one line": letters_of(rows().reshape(-1)),
        "empty": letters_of(rows()[:, :0]),
        "infinite": letters_of(infinite),
        "other sum": good | {"sha256": "0" * 64},
        "no sum": {key: value for key, value in good.items() if key != "sha256"},
    }


@pytest.mark.parametrize("name", wrong())
def test_letters_that_are_none(name: str) -> None:
    """A host that hands over something else is left alone."""
    with pytest.raises(AssetError):
        Letters.of({"letters": wrong()[name]})
    assert repr(Letters.of({"letters": letters_of(rows())})).startswith("<Letters 26x8 ")
