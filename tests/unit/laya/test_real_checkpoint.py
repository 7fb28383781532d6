"""With the released English checkpoint, when FRAMEHOST_LAYA names its folder."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from frontend.families.laya import grammar
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from frontend.families.laya.rows import compile_rows
from protocol.payloads import MarkedRowsRequest
from tests.helpers.calls import FakeCall
from tests.unit.laya.helpers import ENGLISH, GOLDEN, SPECIAL, TEMPERATURES

FOLDER = os.environ.get("FRAMEHOST_LAYA")

pytestmark = pytest.mark.skipif(not FOLDER, reason="FRAMEHOST_LAYA does not name the released checkpoint")


@pytest.fixture(scope="module")
def processor() -> LayaProcessor:
    """Of whatever the variable names."""
    return LayaProcessor({}, {"truncate": True}, FOLDER)


def test_it_is_the_released_one(processor: LayaProcessor) -> None:
    """Special tokens, temperatures and the tokenizer's hash as published."""
    from executor_host.executors.laya.checkpoint import RELEASED_TOKENIZER

    checkpoint = processor.checkpoint
    assert checkpoint.special == SPECIAL
    assert checkpoint.sha256["tokenizer/tokenizer.json"] == RELEASED_TOKENIZER
    released = TEMPERATURES["released"]
    assert dict(checkpoint.config.temperatures.by_kind) == dict(released.by_kind)
    assert dict(checkpoint.config.temperatures.by_bucket) == dict(released.by_bucket)


@pytest.mark.parametrize("vector", GOLDEN["rows"], ids=lambda vector: vector["name"])
def test_published_rows(processor: LayaProcessor, vector: dict[str, Any]) -> None:
    """Every token id of every published row."""
    asked = grammar.parse({"state": vector["state"], "questions": vector["questions"]})
    made = compile_rows(asked.state, asked.questions, processor.checkpoint.encode, SPECIAL, ENGLISH, truncate=False)
    assert made.payload is not None
    rows = [made.payload.tokens[i, : made.payload.lengths[i]].tolist() for i in range(made.payload.rows)]
    assert rows == vector["rows"]


@pytest.mark.timeout(900)
def test_the_published_decision() -> None:
    """Loads, warms up on the CPU in float32, and answers to the fourth digit."""
    pytest.importorskip("torch", reason="torch is not installed")
    from executor_host.executors.laya.executor import LayaExecutor

    executor = LayaExecutor(FOLDER, {"device": "cpu"})
    profile = LayaNative(LayaProcessor(executor.load(lambda fraction, note: None), {}, FOLDER))
    executor.warm_up()
    expected = GOLDEN["first_decision"]
    question = {"type": "noul", "instructions": expected["instructions"]}
    prepared = profile.prepare(json.dumps({"state": expected["state"], "questions": {"q": question}}).encode())
    (unit,) = prepared.units
    assert isinstance(unit, MarkedRowsRequest)
    body = profile.finish(prepared, [executor.execute(unit, FakeCall())], 0.0)
    answer = body["answers"]["q"]
    assert answer["noul"] == pytest.approx(expected["noul"], abs=1e-3)
    assert answer["action"]["act_probability"] == pytest.approx(expected["act_probability"], abs=1e-3)
    assert body["usage"]["input_tokens"] == expected["input_tokens"]
    executor.close()
