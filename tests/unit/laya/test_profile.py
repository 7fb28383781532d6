"""The native profile around the pure parts: bodies, refusals, health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError
from frontend.families.base import Prepared
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from frontend.families.native import HostView, NativeRefusal
from protocol.payloads import MarkedRowsRequest
from tests.unit.laya.helpers import QUESTIONS

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def profile(folder: Path) -> LayaNative:
    return LayaNative(LayaProcessor({}, {"truncate": False}, str(folder)))


def body(state: Any = "s", questions: Any = None, **fields: Any) -> bytes:
    return json.dumps({"state": state, "questions": QUESTIONS if questions is None else questions, **fields}).encode()


def test_the_whole_body(profile: LayaNative) -> None:
    """Every field of the original and nothing else; the routing says the same whether the model was named or not."""
    prepared = profile.prepare(body())
    (unit,) = prepared.units
    assert isinstance(unit, MarkedRowsRequest)
    output = {
        "logits": np.zeros(7, np.float32),
        "counts": np.array([2, 2, 3], np.int32),
        "action": np.zeros((3, 2), np.float32),
    }
    document = profile.finish(prepared, [output], 0.0)
    assert list(document) == ["model", "answers", "usage", "routing"]
    assert document["model"] == "laya-rl-agent"
    assert list(document["answers"]) == list(QUESTIONS)
    assert document["usage"] == {"input_tokens": int(unit.lengths.sum()), "output_tokens": 0}
    assert document["routing"] == {
        "model": "english",
        "repo": "convaiinnovations/laya",
        "reason": "explicit model='english'",
        "detection": None,
        "workflow": None,
    }
    assert prepared.cost == document["usage"]["input_tokens"]


def test_without_questions_no_host_is_asked(profile: LayaNative) -> None:
    """200, no answers, no tokens."""
    prepared = profile.prepare(body(None, {}))
    assert prepared.units == ()
    document = profile.finish(prepared, [], 0.0)
    assert document["answers"] == {}
    assert document["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_what_is_too_long_is_cut_whatever_the_option_says(profile: LayaNative) -> None:
    """Silently, as the original."""
    (unit,) = profile.prepare(body("@ " * 2000)).units
    assert isinstance(unit, MarkedRowsRequest)
    assert unit.lengths.tolist() == [512, 512, 512, 0]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "invalid JSON: "),
        (b"[]", "request must be an object"),
        (body(model="laya"), "only model=english is supported"),
        (body(lang="fr"), "only English is supported; use lang=en"),
        (body(questions={str(i): QUESTIONS["refund"] for i in range(17)}), "at most 16 questions per CUDA request"),
        (
            body(questions={"q": {"type": "score", "instructions": "i", "criteria": ["l"] * 2049}}),
            "at most 2048 option markers per CUDA request",
        ),
        (
            body(questions={"q": {"type": "score", "instructions": "i", "criteria": ["level"] * 300}}),
            "question 'q' options exceed head_max_len=192",
        ),
    ],
    ids=["no JSON", "no object", "model", "language", "questions", "markers", "options"],
)
def test_everything_wrong_is_422(profile: LayaNative, raw: bytes, message: str) -> None:
    """In the original's words where it has some."""
    with pytest.raises(NativeRefusal) as caught:
        profile.prepare(raw)
    assert caught.value.status == 422
    assert caught.value.message.startswith(message)


def test_another_familys_request(profile: LayaNative) -> None:
    with pytest.raises(InternalError, match="another family"):
        profile.finish(Prepared((), 0, 0, object()), [], 0.0)


def test_health(profile: LayaNative) -> None:
    """Ready, or that there is no device; the error's field is the one of all errors."""
    assert profile.health(HostView(True)) == {"status": "ready", "model": "laya-rl-agent"}
    assert profile.health(HostView(False)) == {"error": "CUDA worker unavailable"}
    assert profile.ERROR_FIELD == "error"
    assert profile.MAX_BODY_BYTES == 4 * 1024 * 1024
