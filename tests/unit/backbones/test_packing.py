"""Packing: which rows share a pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor_host.backbones.packing import groups

LENGTHS = st.lists(st.integers(1, 200), max_size=40)


@pytest.mark.parametrize(
    ("lengths", "rows", "tokens", "expected"),
    [
        ([], 4, 4096, []),
        ([10], 1, 4096, [1]),
        ([10, 10, 10, 10, 10], 4, 4096, [4, 1]),
        ([10, 10, 10], 1, 4096, [1, 1, 1]),
        ([2048, 2048, 1], 4, 4096, [2, 1]),
        ([2048, 2049, 1], 4, 4096, [1, 2]),
        ([5000, 10, 10], 4, 4096, [1, 2]),
        ([10, 5000, 10], 4, 4096, [1, 1, 1]),
        ([4096, 1], 4, 4096, [1, 1]),
        ([4095, 1], 4, 4096, [2]),
        ([3, 3, 3, 3], 4, 6, [2, 2]),
        ([1, 1, 1, 1], 4, 1, [1, 1, 1, 1]),
    ],
)
def test_a_group_ends_at_its_rows_and_at_its_tokens(
    lengths: list[int], rows: int, tokens: int, expected: list[int]
) -> None:
    """Worked out by hand from the contract's rule (section 5)."""
    assert [len(group) for group in groups(lengths, max_rows=rows, max_tokens=tokens)] == expected


def test_padding_does_not_count_as_tokens_unless_it_is_bounded() -> None:
    """The contract counts tokens; memory and time have bounds of their own."""
    lengths = [4000, 10, 10]
    assert groups(lengths) == [range(3)]
    assert groups(lengths, max_padded=8000) == [range(2), range(2, 3)]
    assert groups(lengths, max_padding=3990) == [range(3)]
    assert groups(lengths, max_padding=3989) == [range(1), range(1, 3)]
    # A long row makes the padding of all the short ones before it.
    assert groups([10, 10, 100], max_padding=179) == [range(2), range(2, 3)]
    assert groups([10, 10, 100], max_padding=180) == [range(3)]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(LENGTHS, st.integers(1, 6), st.integers(1, 400), st.none() | st.integers(1, 600), st.none() | st.integers(0, 99))
def test_groups_cover_the_rows_in_order_and_keep_their_bounds(
    lengths: list[int], rows: int, tokens: int, padded: int | None, padding: int | None
) -> None:
    """A group above a bound is one row."""
    found = groups(lengths, max_rows=rows, max_tokens=tokens, max_padded=padded, max_padding=padding)
    assert [row for group in found for row in group] == list(range(len(lengths)))
    for group in found:
        members = [lengths[row] for row in group]
        assert 1 <= len(members) <= rows
        if len(members) > 1:
            assert sum(members) <= tokens
            assert padded is None or len(members) * max(members) <= padded
            assert padding is None or len(members) * max(members) - sum(members) <= padding * (len(members) - 1)


@pytest.mark.parametrize("bounds", [{"max_rows": 0}, {"max_tokens": 0}, {"max_padded": 0}])
def test_a_bound_that_no_row_could_keep_is_refused(bounds: dict[str, int]) -> None:
    """Rather than kept by leaving rows out."""
    with pytest.raises(ValueError):
        groups([1], **bounds)
