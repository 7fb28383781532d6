"""The native profile around the pure parts: what is cut, what a refusal is, what health says of which host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")

from frontend.errors import InternalError, Unavailable  # noqa: E402
from frontend.families.base import Prepared  # noqa: E402
from frontend.families.decider.processor import DeciderProcessor  # noqa: E402
from frontend.families.decider.profile import DeciderNative, shortest  # noqa: E402
from frontend.families.native import HostView, NativeRefusal  # noqa: E402
from protocol.contracts.decider import MAX_STATE_TOKENS  # noqa: E402
from protocol.payloads import RowsRequest  # noqa: E402


def body(state: Any, **questions: Any) -> bytes:
    return json.dumps({"state": state, "questions": questions}).encode()


CHOICE = {"instructions": "Which?", "criteria": ["a", "b"]}
SCORE = {"type": "score", "instructions": "How?", "criteria": ["low", "high"]}


@pytest.fixture(scope="module")
def profile(folder: Path) -> DeciderNative:
    return DeciderNative(DeciderProcessor({}, {"truncate": False}, str(folder)))


def test_a_long_state_is_cut_whatever_the_option_says(profile: DeciderNative) -> None:
    """As the original: silently, to the first 32,768 tokens of every row; the rest of the row stays."""
    long, short = (profile.prepare(body("@ " * count, q=CHOICE)) for count in (MAX_STATE_TOKENS * 2, 1))
    (cut,), (whole,) = long.units, short.units
    assert isinstance(cut, RowsRequest)
    assert isinstance(whole, RowsRequest)
    assert MAX_STATE_TOKENS < cut.lengths[0] < MAX_STATE_TOKENS + whole.lengths[0]
    assert long.cost == cut.lengths[0]


def test_the_answers_have_the_cost_and_usage_of_their_rows(profile: DeciderNative) -> None:
    """A score is a row per level; usage counts what they begin with once."""
    prepared = profile.prepare(body("x", q=CHOICE, s=SCORE))
    (unit,) = prepared.units
    assert isinstance(unit, RowsRequest)
    assert prepared.cost == len(unit.tokens)
    output = {"logits": np.zeros(6, np.float32), "counts": np.array([2, 2, 2], np.int32)}
    document = profile.finish(prepared, [output], 0.5)
    assert list(document) == ["model", "answers", "usage"]
    assert document["answers"]["q"]["probabilities"] == {"a": 0.5, "b": 0.5}
    assert document["answers"]["s"]["fit_mass"] == 1.0
    assert 0 < document["usage"]["input_tokens"] < prepared.cost


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[]", b'{"state":1}', body("x", q={"type": "image"}), b"[" * 500])
def test_everything_wrong_is_422(profile: DeciderNative, raw: bytes) -> None:
    with pytest.raises(NativeRefusal) as caught:
        profile.prepare(raw)
    assert caught.value.status == 422
    assert caught.value.message


def test_a_checkpoint_that_cannot_be_read_is_not_the_clients_fault(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        DeciderNative(DeciderProcessor({}, {}, str(tmp_path))).prepare(body("x", q=CHOICE))


def test_what_is_no_answer_is_not_made_one(profile: DeciderNative) -> None:
    """Not finite, too few, or of another family's request."""
    prepared = profile.prepare(body("x", q=CHOICE))
    counts = np.array([2], np.int32)
    for logits in ([0.0, float("nan")], [0.0]):
        with pytest.raises(InternalError):
            profile.finish(prepared, [{"logits": np.array(logits, np.float32), "counts": counts}], 0.0)
    with pytest.raises(InternalError, match="another family"):
        profile.finish(Prepared((), 0, 0, object()), [], 0.0)


FACTS: dict[str, Any] = {
    "dtype": "bfloat16",
    "execution": "packed",
    "graphs": True,
    "checkpoint_revision": "r",
    "limits": {"batch_rows": 2, "batch_tokens": 100},
    "temperatures": {"choice": float(np.float32(1.164)), "noul": 2.0, "score": 1.0},
}
GRAPH = {"enabled": True, "cached_shapes": 3, "requested": 9, "captures": 3, "replays": 6, "fallbacks": 0}


def test_health_of_a_host_with_graphs(profile: DeciderNative) -> None:
    """`graph` once they are on; a capture that failed has turned them off; a dead host has recorded nothing."""
    found = profile.health(HostView(True, FACTS, {"graph": GRAPH, "saved_tokens": 7}))
    assert (found["execution"], found["prefix_mode"], found["dtype"]) == ("graph", "off", "bfloat16")
    assert found["graph"] == {**GRAPH, "invalidations": 0}
    assert found["prefix"] == {"shared_requests": 0, "auto_independent_requests": 0, "saved_tokens": 7}
    assert found["batch_limits"] == {"rows": 2, "tokens": 100}
    assert found["checkpoint_revision"] == "r"
    off = profile.health(HostView(True, FACTS, {"graph": {**GRAPH, "enabled": False}}))
    assert (off["execution"], off["graph"]["enabled"]) == ("eager", False)
    dead = profile.health(HostView(False, FACTS, {"graph": GRAPH}))
    assert (dead["status"], dead["execution"]) == ("unavailable", "unavailable")
    assert (dead["graph"]["enabled"], dead["graph"]["cached_shapes"]) == (False, 0)


@pytest.mark.parametrize(
    ("execution", "word", "mode"), [("rows", "eager", "off"), ("shared", "shared", "shared"), ("auto", "auto", "auto")]
)
def test_health_in_the_words_of_the_original(profile: DeciderNative, execution: str, word: str, mode: str) -> None:
    found = profile.health(HostView(True, {**FACTS, "execution": execution, "graphs": False}))
    assert (found["execution"], found["prefix_mode"]) == (word, mode)


def test_health_before_there_was_a_host(profile: DeciderNative) -> None:
    """It has every field all the same."""
    assert set(profile.health(HostView(False))) == set(profile.health(HostView(True, FACTS)))


@pytest.mark.parametrize("value", [1.164, 1.624, 1.0, 1e-30, 3.4028234663852886e38, 0.1, 1 / 3])
def test_temperatures_are_written_as_float32(value: float) -> None:
    """The shortest number that is the same in float32."""
    narrowed = float(np.float32(value))
    assert np.float32(shortest(narrowed)) == np.float32(value)
    assert repr(shortest(narrowed)) == repr(float(str(np.float32(value))))
