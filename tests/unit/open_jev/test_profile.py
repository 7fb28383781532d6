"""The native profile: bodies in, the original worker's bodies out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError, QueueFull
from frontend.families.base import Prepared
from frontend.families.native import HostView, NativeRefusal
from frontend.families.open_jev.checkpoint import Checkpoint
from frontend.families.open_jev.processor import OpenJevProcessor
from frontend.families.open_jev.profile import OpenJevNative
from protocol import families
from tests.helpers import tiny_open_jev
from tests.unit.open_jev.helpers import QUESTIONS, TEMPERATURE

np = pytest.importorskip("numpy")


@pytest.fixture
def profile(folder: Path, checkpoint: Checkpoint) -> OpenJevNative:
    """Over the tiny export."""
    return OpenJevNative(OpenJevProcessor({"files": dict(checkpoint.sha256)}, {}, str(folder)))


def prepare(profile: OpenJevNative, **fields: Any) -> Prepared:
    """A body, prepared."""
    return profile.prepare(json.dumps({"state": "s", "questions": QUESTIONS, **fields}).encode())


def scores(values: list[float], execution: str = "packed") -> list[object]:
    """What the host would say."""
    return [{"logits": np.array(values, np.float32), "execution": execution}]


def test_the_whole_response(profile: OpenJevNative) -> None:
    """Every field of it, in order; the model is the base model."""
    prepared = prepare(profile)
    body = dict(profile.finish(prepared, scores([-1.0, 0.0, 1.0, -2.0, -1.0, 0.0]), 0.25))
    assert list(body) == ["model", "answers", "usage", "metadata"]
    assert body["model"] == "Qwen/Qwen3.8-27B"
    assert list(body["answers"]) == list(QUESTIONS)
    assert body["answers"]["refund"] == {"type": "noul", "noul": pytest.approx(0.5973836777434065, abs=1e-12)}
    assert body["answers"]["route"]["probabilities"] == pytest.approx(
        {"billing": 0.4026163222565936, "login": 0.5973836777434065}, abs=1e-12
    )
    assert body["answers"]["urgency"]["score"] == pytest.approx(1.2564470917325836, abs=1e-12)
    assert body["usage"] == {"input_tokens": prepared.cost, "output_tokens": 0}
    assert body["metadata"] == {
        "method": "native_merged_lora_decision_head",
        "temperature": TEMPERATURE,
        "candidate_sequences": 6,
        "inference_seconds": 0.25,
        "base_revision": tiny_open_jev.BASE_REVISION,
        "max_length": 4096,
        "prefix_cache": {"enabled": False, "mode": "independent_candidates"},
    }
    shared = profile.finish(prepared, scores([0.0] * 6, "shared"), 0.0)
    assert shared["metadata"]["prefix_cache"]["enabled"] is True


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "x"}, "requested model is not loaded"),
        ({"questions": {}}, "questions must be nonempty and within the server question limit"),
        ({"state": 1}, "state must be text, a JSON object, or an array"),
        ({"state": "x " * 5_000, "questions": {"n": QUESTIONS["refund"]}}, None),
    ],
)
def test_everything_wrong_is_422(profile: OpenJevNative, fields: dict[str, Any], message: str | None) -> None:
    """In the words of the original, in the field `error`; a prompt that is too long is named."""
    with pytest.raises(NativeRefusal) as caught:
        prepare(profile, **fields)
    status, body, _ = profile.render_error(caught.value)
    assert status == 422
    if message is None:
        assert body["error"].startswith("question n: ")
        assert body["error"].endswith(" tokens exceeds max_length=4096; no silent truncation")
    else:
        assert body == {"error": message}
    for raw in (b"", b"{", b'{"state": NaN}'):
        with pytest.raises(NativeRefusal) as caught:
            profile.prepare(raw)
        assert caught.value.status == 422


def test_failures(profile: OpenJevNative) -> None:
    """500 and 503 in the words of the original."""
    prepared = prepare(profile)
    with pytest.raises(InternalError) as caught:
        profile.finish(prepared, scores([float("nan")] * 6), 0.0)
    assert profile.render_error(caught.value)[:2] == (500, {"error": "model inference failed"})
    full = QueueFull("full", retry_after=1)
    assert profile.render_error(full)[:2] == (503, {"error": "native execution capacity exhausted"})


def test_health_and_numbers(profile: OpenJevNative) -> None:
    """Two fields; 4 MiB; registered."""
    assert profile.health(HostView(ready=True)) == {"status": "ready", "model": "Qwen/Qwen3.8-27B"}
    assert profile.health(HostView(ready=False))["status"] == "unavailable"
    assert OpenJevNative.MAX_BODY_BYTES == 4 * 1024 * 1024
    assert families.resolve(families.find("open-jev").native) is OpenJevNative
