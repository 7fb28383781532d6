"""From logits in the order of the model to answers in both dialects, against the published vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend.errors import InternalError
from frontend.families.clef import native
from frontend.families.clef.processor import ClefProcessor
from frontend.families.clef.profile import ClefNative
from frontend.http.systemone import parse_request
from tests.unit.clef.helpers import GOLDEN, encoded

VECTORS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in GOLDEN["answers"]}


def in_request_order(vector: dict[str, Any]) -> list[float]:
    """What the host makes of the vector's logits, which are in the model's order."""
    order = encoded({"state": "s", "questions": {"q": vector["question"]}}).request_order
    values: list[float] = np.array(vector["logits"], np.float32)[order].tolist()
    return values


@pytest.mark.parametrize("name", VECTORS)
def test_published_answers(name: str) -> None:
    """Every field, every digit, every key in its order."""
    vector = VECTORS[name]
    question = {"instructions": None, "criteria": None, **vector["question"]}
    found = native.answer(question, in_request_order(vector))
    assert found == vector["answer"]
    assert list(found.get("probabilities", ())) == list(vector["answer"].get("probabilities", ()))


@pytest.mark.parametrize("name", VECTORS)
def test_both_dialects_agree_before_rounding(name: str) -> None:
    """Within what the native rounding hides, and 1e-6 before it; sums of the System One answers within 1e-12."""
    vector = VECTORS[name]
    asked = {"instructions": "q", **vector["question"]}
    row = in_request_order(vector)
    processor = ClefProcessor({}, {})
    ready = processor.prepare(parse_request({"state": "s", "questions": {"q": asked}}))
    output = {
        "logits": np.array(row, np.float32),
        "counts": np.array([len(row)], np.int32),
        "tokens": 7,
        "truncated": None,
    }
    decision = processor.finish(ready, [output])
    ((name, answer),) = decision.answers
    found = answer.to_json()
    assert (name, decision.input_tokens, dict(decision.extras)) == ("q", 7, {})
    expected = vector["answer"]
    for field in ("noul", "score"):
        if field in expected:
            assert found[field] == pytest.approx(expected[field], abs=6e-5)
    if "probabilities" in expected:
        assert list(found["probabilities"]) == list(expected["probabilities"])
        assert sum(found["probabilities"].values()) == pytest.approx(1.0, abs=1e-12)
        unrounded = native.softmax32(row, 1.0)
        assert list(found["probabilities"].values()) == pytest.approx(unrounded, abs=1e-6)
    if "choice" in expected:
        assert found["choice"] == expected["choice"]


def test_the_first_of_a_tie_in_request_order_is_chosen() -> None:
    """Not the first in the model's order, which is sorted."""
    question = {"type": "choice", "criteria": {"b": None, "a": None}}
    assert native.answer(question, [0.5, 0.5])["choice"] == "b"


@pytest.mark.parametrize("logit", [float("nan"), float("inf")])
def test_a_logit_that_is_no_number_is_never_answered(logit: float) -> None:
    """500 in both dialects, and no answer for the others."""
    with pytest.raises(InternalError):
        native.answer({"type": "noul"}, [logit, 0.0])
    processor = ClefProcessor({}, {})
    ready = processor.prepare(parse_request({"state": "s", "questions": {"q": {"type": "noul", "instructions": "?"}}}))
    logits = np.array([logit, 0.0], np.float32)
    with pytest.raises(InternalError):
        processor.finish(ready, [{"logits": logits, "counts": np.array([2], np.int32), "tokens": 1, "truncated": None}])


WRONG: dict[str, object] = {
    "no map": [1],
    "no tokens": {"tokens": None},
    "another count": {"counts": np.array([3], np.int32)},
    "too few": {"logits": np.zeros(1, np.float32)},
    "float64": {"logits": np.zeros(2)},
    "a cut without counts": {"truncated": {"kept": 1}},
    "a cut that is no map": {"truncated": 3},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_output_that_is_no_answer(wrong: str) -> None:
    """A bug of the host is an internal error here, whatever it looks like."""
    good = {
        "logits": np.zeros(2, np.float32),
        "counts": np.array([2], np.int32),
        "tokens": 1,
        "truncated": {"kept": 1, "total": 2},
    }
    processor = ClefProcessor({}, {})
    ready = processor.prepare(parse_request({"state": "s", "questions": {"q": {"type": "noul", "instructions": "?"}}}))
    assert processor.finish(ready, [good]).extras == {"x_truncated": {"kept": 1, "total": 2}}
    fields = WRONG[wrong]
    output = {**good, **fields} if isinstance(fields, dict) else fields
    body = b'{"model":"m","state":"s","questions":{"q":{"type":"noul"}}}'
    profile = ClefNative(processor)
    with pytest.raises(InternalError):
        processor.finish(ready, [output])
    with pytest.raises(InternalError):
        profile.finish(profile.prepare(body), [output], 0.1)
