"""With a released checkpoint, when FRAMEHOST_OPEN_JEV names its folder (and FRAMEHOST_OPEN_JEV_BASE the base model's,
for a LoRA checkpoint). The model itself is only loaded where there is a GPU."""

from __future__ import annotations

import os
from typing import Any

import pytest

from frontend.families.open_jev import grammar
from frontend.families.open_jev.checkpoint import Checkpoint, load
from frontend.families.open_jev.rows import compile_rows
from protocol.contracts.open_jev import DEFAULT_CHAT
from tests.helpers.calls import FakeCall
from tests.unit.open_jev.helpers import GOLDEN, QUESTIONS, rows_of

FOLDER = os.environ.get("FRAMEHOST_OPEN_JEV")
BASE = os.environ.get("FRAMEHOST_OPEN_JEV_BASE")

pytestmark = pytest.mark.skipif(not FOLDER, reason="FRAMEHOST_OPEN_JEV does not name a released checkpoint")

TEMPERATURES = {"Qwen/Qwen3.8-27B": 2.5343690298472983, "Qwen/Qwen3.5-9B": 1.8969118766347646}


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """Whatever the variable names."""
    return load(FOLDER, BASE)


def test_it_is_a_released_one(checkpoint: Checkpoint) -> None:
    """Chat and temperature as published."""
    assert checkpoint.terms.chat == DEFAULT_CHAT
    assert checkpoint.terms.temperature == TEMPERATURES[checkpoint.terms.model_id]


@pytest.mark.parametrize("vector", GOLDEN["tokens"], ids=["candidates", "noul"])
def test_published_rows(checkpoint: Checkpoint, vector: dict[str, Any]) -> None:
    """Every token id of every published row; usage is their sum."""
    asked = grammar.parse({**vector["request"], "model": None}, ())
    made = compile_rows(asked.state, asked.questions, checkpoint.encode, chat=checkpoint.terms.chat, max_length=4096)
    assert rows_of(made.payload) == vector["rows"]
    assert made.tokens == vector["total"]


@pytest.mark.timeout(3600)
def test_a_decision(checkpoint: Checkpoint) -> None:
    """Loads, warms up, answers; the clear question is answered clearly."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("the released models are loaded where there is a GPU")
    from executor_host.executors.open_jev.executor import OpenJevExecutor
    from frontend.families.open_jev import native

    executor = OpenJevExecutor(FOLDER, {"base": BASE})
    facts = executor.load(lambda fraction, note: None)
    executor.warm_up()
    assert facts["released"] is True
    state = "The customer was charged twice for one order and asks for the money back."
    asked = grammar.parse({"state": state, "questions": QUESTIONS}, ())
    made = compile_rows(asked.state, asked.questions, checkpoint.encode, chat=checkpoint.terms.chat, max_length=4096)
    output = executor.execute(made.payload, FakeCall())
    answers = native.answers(asked.questions, output["logits"].tolist(), checkpoint.terms.temperature)
    assert answers["route"]["choice"] == "billing"
    assert answers["refund"]["noul"] > 0.5
    executor.close()
