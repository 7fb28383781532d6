"""What is wrong with an order is told before anything of it is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from executor_host.supervision.orders import Orders
from protocol.messages import Message, Order, Outcome


async def _no_file() -> Any:
    raise AssertionError("the file is not read again")


async def _no_successor(name: str, settings: Mapping[str, Any]) -> NoReturn:
    raise AssertionError(f"{name} was looked at with {settings}")


@pytest.mark.parametrize(
    ("mode", "shown"),
    [([], "[]"), ("sideways", "'sideways'"), (None, "None"), ({"a": [1] * 1000}, "{'a': [1, 1, 1, 1, 1, 1, ...]}")],
)
async def test_a_mode_that_is_none_is_named_with_its_key_and_the_modes_there_are(mode: object, shown: str) -> None:
    """And not with the name of a class of ours; a large value is shortened."""
    answers: list[Message] = []
    ended: list[asyncio.Task[None]] = []
    orders = Orders(
        SimpleNamespace(stopping=False, open=True, watch=ended.append),  # type: ignore[arg-type]
        SimpleNamespace(say=lambda who, what: None),  # type: ignore[arg-type]
        SimpleNamespace(give_up_when_none_is_left=lambda: None),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        ["m"],
        _no_successor,
        _no_file,
    )
    orders.take(Order(action="swap", model="m", settings={"family": "sparrow", "mode": mode}), answers.append)
    await asyncio.gather(*ended)
    outcome = answers[-1]
    assert isinstance(outcome, Outcome)
    assert (outcome.code, outcome.message) == (
        "invalid",
        f"swap, key mode: {shown} is not start-first or stop-first",
    )
