"""Temperatures: which one a question gets, and what is made of one that is out of range."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.contracts.agreement import ContractError
from protocol.contracts.laya import bucket, read_config, usable
from tests.unit.laya.helpers import GOLDEN, TEMPERATURES


@pytest.mark.parametrize(
    ("options", "name"),
    [(1, "2"), (2, "2"), (3, "3-5"), (5, "3-5"), (6, "6-10"), (10, "6-10"), (11, "11+"), (255, "11+")],
)
def test_buckets(options: int, name: str) -> None:
    assert bucket("choice", options) == f"choice:{name}"


def test_which_temperature() -> None:
    """The bucket's, else the type's; a bucket of another type does not count."""
    released = TEMPERATURES["released"]
    assert released.of("choice", 4) == 1.7601518630981445
    assert released.of("score", 4) == 1.2514300346374512
    assert released.of("score", 7) == 1.2514300346374512
    assert released.of("score", 2) == 1.2514300346374512
    assert released.of("noul", 2) == 1.983399510383606


def test_the_released_temperature_of_many_options_is_clamped() -> None:
    """0.1006 is used as 0.5, in the bucket as well as per type."""
    assert GOLDEN["configs"]["released"]["temperature_by_options"]["choice:11+"] < 0.5
    assert TEMPERATURES["released"].of("choice", 11) == 0.5
    assert [TEMPERATURES["clamped"].by_kind[kind] for kind in ("choice", "score", "noul")] == [0.5, 5.0, 1.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        ("2.5", 2.5),
        (0.1, 0.5),
        (-3, 0.5),
        (80, 5.0),
        (float("nan"), 1.0),
        (float("inf"), 1.0),
        ("warm", 1.0),
        (None, 1.0),
        ([2.0], 1.0),
        (10**400, 1.0),
    ],
    ids=str,
)
def test_usable(value: object, expected: float) -> None:
    """Within 0.5 and 5; 1 for what is no number."""
    assert usable(value) == expected


def test_a_document_without_temperatures() -> None:
    """All are 1."""
    assert read_config({}).temperatures.of("noul", 2) == 1.0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "not a JSON object"),
        ({"max_len": 63}, "max_len is 63; a whole number from 64 to 8192"),
        ({"max_len": 8193}, "max_len is 8193; a whole number from 64 to 8192"),
        ({"max_len": True}, "max_len is True"),
        ({"head_max_len": 192.0}, "head_max_len is 192.0"),
        ({"head_max_len": 31}, "head_max_len is 31; a whole number from 32 to 512"),
        ({"max_len": 128, "head_max_len": 129}, "head_max_len is 129; a whole number from 32 to 128"),
        ({"temperature": [1, 1]}, "temperature is not a list of 3"),
        ({"temperature": {"choice": 1}}, "temperature is not a list of 3"),
        ({"temperature_by_options": []}, "temperature_by_options"),
    ],
)
def test_another_model_is_refused_by_the_field(document: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        read_config(document)
