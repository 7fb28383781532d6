"""`prefix_cache_mb`, family by family: the same request has the same outputs, hit or miss, and they are the family's.

The tree itself is tested in backbones/test_kept.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor_host.executors.base import Executor
from protocol import families
from protocol.errors import Malformed
from protocol.payloads import PromptRequest, RowsRequest, TextRequest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from tests.helpers import calls, tiny_cua_s1, tiny_decider, tiny_open_jev, tiny_transformers  # noqa: E402

STATE = 90
"""Tokens of a state, or words."""


def rows(candidates: int, *ends: int) -> Callable[[int], Any]:
    """Requests whose rows begin with a state of their own, and end alike."""

    def request(seed: int) -> RowsRequest:
        random = np.random.default_rng(seed)
        state = random.integers(0, 370, STATE)
        lines = [np.concatenate([state, np.random.default_rng(end).integers(0, 370, end)]) for end in ends]
        made = RowsRequest(
            np.concatenate(lines).astype(np.int32),
            np.array([len(line) for line in lines], np.int32),
            np.full(len(lines), candidates, np.int32),
            np.arange(len(lines), dtype=np.int32),
            shared=STATE,
        )
        return RowsRequest.from_wire(made.to_wire())

    return request


def prompt(seed: int) -> PromptRequest:
    """A prompt of its own."""
    return PromptRequest(np.random.default_rng(seed).integers(0, 370, STATE).astype(np.int32))


def text(seed: int) -> TextRequest:
    """Two questions on a text of its own."""
    state = " ".join(np.random.default_rng(seed).choice(["refund", "card", "charged", "twice", "order"], STATE))
    asked = [
        {"id": "refund", "type": "noul", "instructions": "Is the money asked back?", "criteria": None},
        {"id": "team", "type": "choice", "instructions": "Which team?", "criteria": {"billing": None, "login": None}},
    ]
    return TextRequest(json.dumps({"state": state, "questions": asked}).encode())


def _cua_s1(folder: Path) -> None:
    tiny_cua_s1.write_base(folder)
    tiny_cua_s1.write_adapter(folder / "text", folder)


def _open_jev(folder: Path) -> None:
    tiny_open_jev.write_base(folder / "base")
    tiny_open_jev.write_lora(folder)


FAMILIES: dict[str, tuple[Callable[[Path], object], Callable[[int], Any], str, dict[str, Any]]] = {
    "decider": (tiny_decider.write, rows(2, 9, 30), "logits", {}),
    "open-jev": (_open_jev, rows(1, 9, 30), "logits", {"unreleased": True}),
    "cua-s1": (_cua_s1, prompt, "hidden", {}),
    "transformers": (tiny_transformers.write_chat, text, "scores", {}),
}
"""What writes a checkpoint, what makes a request, what of the output the answer is, further options."""


def started(name: str, folder: Path, **options: Any) -> tuple[Executor, dict[str, Any]]:
    """A warm executor, and its facts."""
    family = families.find(name)
    if name == "open-jev":
        options["base"] = str(folder / "base")
    executor: Executor = families.resolve(family.executor)(
        str(folder), {"device": "cpu", **FAMILIES[name][3], **options}
    )
    facts = dict(executor.load(lambda fraction, note: None))
    executor.warm_up()
    return executor, facts


@pytest.mark.parametrize("name", FAMILIES)
def test_hit_or_miss_the_outputs_are_equal_bit_for_bit(name: str, tmp_path: Path) -> None:
    """A, B, A, B, and A alone: equal outputs but for the counts since the start; near those without anything kept."""
    write, make, answer, _ = FAMILIES[name]
    write(tmp_path)
    plain, plain_facts = started(name, tmp_path)
    keeping, facts = started(name, tmp_path, prefix_cache_mb=64, prefix_segment=16)
    fresh, _ = started(name, tmp_path, prefix_cache_mb=64, prefix_segment=16)

    def outputs(executor: Executor, seed: int) -> dict[str, Any]:
        made: dict[str, Any] = executor.execute(make(seed), calls.FakeCall())
        return made

    first, second, third, _ = (outputs(keeping, seed) for seed in (1, 2, 1, 2))
    hits = third["statistics"]["kept"]["hits"] - second["statistics"]["kept"]["hits"]
    assert hits == 1
    for other in (third, outputs(fresh, 1)):
        for key in first.keys() - {"statistics"}:
            assert np.array_equal(first[key], other[key]), key
    assert np.abs(np.asarray(first[answer]) - np.asarray(outputs(plain, 1)[answer])).max() < 1e-5
    assert facts["identity"] == f"{plain_facts['identity']}/kept:16"
    for executor in (plain, keeping, fresh):
        executor.close()


def test_rows_that_do_not_begin_as_they_are_said_to_are_refused() -> None:
    """A wrong claim would have another request's state stand before a row."""
    wire = rows(2, 9, 30)(1).to_wire()
    for shared in (-1, STATE + 10, True, 1.0, None):
        with pytest.raises(Malformed, match="share"):
            RowsRequest.from_wire({**wire, "shared": shared})
    with pytest.raises(Malformed, match="begin with"):
        RowsRequest.from_wire({**wire, "shared": STATE + 5})
