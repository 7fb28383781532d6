"""The front's half: both profiles around the pure parts, and what is refused by each."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError, InvalidRequest, TokensExceeded, Unavailable
from frontend.families import checkpoints
from frontend.families.base import AssetError, Prepared
from frontend.families.native import HostView, NativeRefusal
from frontend.families.nimble import native
from frontend.families.nimble.processor import NimbleProcessor
from frontend.families.nimble.profile import NimbleNative
from frontend.families.nimble.rendering import question
from frontend.http.systemone import parse_request
from protocol.options import OptionError
from protocol.payloads import RowsRequest
from tests.helpers import tiny_nimble
from tests.unit.nimble.helpers import QUESTIONS, Letters, spelled, write_texts

np = pytest.importorskip("numpy")

OWN: dict[str, Any] = {**QUESTIONS, "harm": {**QUESTIONS["harm"], "criteria": ["none", "some", "much"]}}
"""The same in the family's own grammar, whose levels are texts."""


@pytest.fixture
def profile(front: NimbleProcessor) -> NimbleNative:
    return NimbleNative(front)


def prepare(front: NimbleProcessor, state: Any = "charged twice", questions: Any = None) -> Prepared:
    return front.prepare(parse_request({"state": state, "questions": questions or QUESTIONS}))


def unit_of(prepared: Prepared) -> RowsRequest:
    (unit,) = prepared.units
    assert isinstance(unit, RowsRequest)
    return unit


def said(prepared: Prepared, values: list[float]) -> dict[str, Any]:
    """What a host says."""
    return {"logits": np.array(values, np.float32), "counts": unit_of(prepared).candidates.copy(), "processed": 9}


def body(**fields: Any) -> bytes:
    document = {"model": "nimble-latest", "state": "charged twice", "questions": OWN, **fields}
    return json.dumps({key: value for key, value in document.items() if value is not ...}).encode()


def test_answers_of_the_main_port(front: NimbleProcessor) -> None:
    """In float64 and unrounded, divided by the host's temperature, which is 2; the first of equals is the choice; the
    legend is what was sent."""
    prepared = prepare(front)
    decision = front.finish(prepared, [said(prepared, [0.5, 0.5, 0.0, 2.0, 0.0, 0.0, 0.0])])
    answers = dict(decision.answers)
    assert answers["team"].choice == "billing"  # type: ignore[union-attr]
    assert answers["refund"].noul == pytest.approx(0.7310585786300049, abs=1e-15)  # type: ignore[union-attr]
    assert answers["harm"].score == pytest.approx(1.0, abs=1e-15)  # type: ignore[union-attr]
    assert answers["harm"].levels == ("none", {"n": 1}, "much")  # type: ignore[union-attr]
    assert decision.input_tokens == prepared.cost == len(unit_of(prepared).tokens)


def test_the_configured_temperature_is_another_one(front: NimbleProcessor) -> None:
    """It is applied to the answers, by whoever asks."""
    assert (front.divisor, front.temperature) == (2.0, 1.0)


def test_the_whole_native_body(profile: NimbleNative) -> None:
    """Every field of the original, unrounded; its confidence is of entropy, and its usage counts what the rows share
    once more."""
    prepared = profile.prepare(body())
    document = profile.finish(prepared, [said(prepared, [0.5, 0.5, 0.0, 2.0, 0.0, 2.0, 0.0])], 0.1)
    e = exp(1)
    levels = [1 / (2 + e), e / (2 + e), 1 / (2 + e)]
    entropy = -sum(value * log(value) for value in levels)
    assert list(document) == ["model", "answers", "usage"]
    assert list(document["answers"]) == ["team", "refund", "harm"]
    team, refund, harm = document["answers"].values()
    assert team == {
        "type": "choice",
        "choice": "billing",
        "probabilities": {"billing": 0.5, "login": 0.5},
        "confidence": 0.0,
    }
    assert refund == {"type": "noul", "noul": pytest.approx(e / (1 + e), abs=1e-15)}
    assert list(harm) == ["type", "score", "legend", "probabilities", "confidence"]
    assert harm["score"] == pytest.approx(1.0, abs=1e-15)
    assert harm["legend"] == {"0": "none", "1": "some", "2": "much"}
    assert list(harm["probabilities"].values()) == pytest.approx(levels, abs=1e-15)
    assert harm["confidence"] == pytest.approx(1 - entropy / log(3), abs=1e-15)
    start = spelled(unit_of(prepared).tokens[: int(unit_of(prepared).lengths[0])]).rindex("Requested field: ")
    prefix = len(spelled(unit_of(prepared).tokens)[:start].replace("<|im_start|>", "S").replace("<|im_end|>", "E"))
    prefix += len("Requested field: ")
    assert document["usage"] == {"input_tokens": prepared.cost + prefix, "output_tokens": 4}


@pytest.mark.parametrize(("values", "expected"), [([0.25] * 4, 0.0), ([1.0, 0.0], 1.0), ([1.0], 1.0)])
def test_confidence_is_concentration(values: list[float], expected: float) -> None:
    assert native.confidence(values) == pytest.approx(expected, abs=1e-12)


def test_the_first_of_two_equals() -> None:
    """Of three, and by the least that float32 knows: what is larger wins, however little."""
    asked = question("q", {"type": "choice", "instructions": "i", "criteria": {"a": None, "b": None, "c": None}})
    assert native.answers([asked], [[1.0, 1.0, 1.0]], 2.179)["q"]["choice"] == "a"
    larger = float(np.nextafter(np.float32(1.0), np.float32(2.0)))
    assert native.answers([asked], [[1.0, larger, 1.0]], 2.179)["q"]["choice"] == "b"


@pytest.mark.parametrize("model", ["nimble-latest", "bespokelabs/Bespoke-Nimble-9B-v2", "jev-1.13.0"])
def test_names_that_the_original_knows(profile: NimbleNative, model: str) -> None:
    """Are repeated."""
    prepared = profile.prepare(body(model=model))
    assert profile.finish(prepared, [said(prepared, [0.0] * 7)], 0.1)["model"] == model


def one(**fields: Any) -> bytes:
    return body(questions={"q": {key: value for key, value in fields.items() if value is not ...}})


MANY = dict.fromkeys(map(str, range(27)), "x")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "invalid JSON: "),
        (b"[]", "the request is an object"),
        (body(other=1), "the request: other is no field of it"),
        (body(state=...), "state: a field is missing"),
        (body(state=None), "state: a text, an object or an array"),
        (body(state=" "), "the state is blank"),
        (body(model=...), "model: a field is missing"),
        (body(model=7), "model: a text is expected"),
        (body(model="other"), "Unknown model: other"),
        (body(questions=[]), "questions: an object is expected"),
        (body(questions={}), "there are 0 questions; 1 to 64"),
        (body(questions={"q": 1}), 'question "q": the definition is an object'),
        (one(type="noul", instructions="i", x=1), 'question "q": x is no field of it'),
        (one(type="noul"), 'question "q": there are no instructions'),
        (one(type="noul", instructions=None), 'question "q": the instructions are a text, an object or an array'),
        (one(type="other", instructions="i"), 'question "q": the type is choice, noul or score'),
        (one(type="noul", instructions="i", criteria=None), "the criteria of a noul are an object of texts"),
        (one(type="noul", instructions="i", criteria={"true": None}), "the criteria of a noul are an object of texts"),
        (one(type="noul", instructions="i", criteria={"yes": "x"}), 'question "q": the criteria: yes is no field'),
        (one(type="choice", instructions="i", criteria={"a": "x"}), "are an object of 2 to 26"),
        (one(type="choice", instructions="i", criteria=MANY), "are an object of 2 to 26"),
        (one(type="choice", instructions="i", criteria={"a": "x", "b": {}}), "a description is a text"),
        (one(type="score", instructions="i", criteria=["a"]), "are a list of 2 to 26"),
        (one(type="score", instructions="i", criteria=["a", None]), "a description is a text"),
        (body(state="x y " * 1200), "the prompt of question 'team'"),
    ],
)
def test_native_refusals(profile: NimbleNative, raw: bytes, message: str) -> None:
    """All are 422 in `error.message`."""
    with pytest.raises(NativeRefusal) as caught:
        profile.prepare(raw)
    status, document, _ = profile.render_error(caught.value)
    assert status == 422
    assert list(document) == ["error"] and list(document["error"]) == ["message"]
    assert message in document["error"]["message"]


def test_all_prompts_of_a_native_request_have_a_bound(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 longest ones; the main port has none but that of each."""
    monkeypatch.setattr(checkpoints, "tokenizer", lambda file: Letters())
    long = NimbleProcessor({}, {"max_length": 12_000}, str(texts))
    questions = {f"q{index}": {"type": "noul", "instructions": "i"} for index in range(64)}
    assert unit_of(prepare(long, "s", questions)).tokens.size > 32 * 12_001
    with pytest.raises(NativeRefusal, match="more than 384032 tokens in total"):
        NimbleNative(long).prepare(body(state="s", questions=questions))


def test_a_checkpoint_of_the_second_task_takes_more_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On its own listener, too."""
    monkeypatch.setattr(checkpoints, "tokenizer", lambda file: Letters())
    codes = [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *tiny_nimble.PAIRS][:255]
    tokens = [Letters()._token(code) for code in codes]
    folder = write_texts(
        tmp_path / "wide",
        task="schema_candidate_classification_v2",
        candidate_codes=codes,
        candidate_token_ids=tokens,
    )
    wide = NimbleNative(NimbleProcessor({}, {}, str(folder)))
    unit = unit_of(wide.prepare(one(type="choice", instructions="i", criteria=MANY)))
    assert unit.candidates.tolist() == [27]


def test_health(profile: NimbleNative) -> None:
    assert profile.health(HostView(True)) == {"status": "ok", "startup_seconds": None}
    assert profile.health(HostView(False)) == {"status": "unavailable", "startup_seconds": None}


@pytest.mark.parametrize(
    ("state", "questions", "place"),
    [
        ("s", {"q": {"type": "noul", "criteria": {"true": "x", "false": "y"}}}, ("questions", "q", "instructions")),
        (
            "s",
            {"q": {"type": "choice", "instructions": "i", "criteria": {" ": "x"}}},
            ("questions", "q", "criteria", " "),
        ),
        (" ", QUESTIONS, ("state",)),
        ("s", {" ": QUESTIONS["refund"]}, ("questions", " ")),
        ("s", {f"q{index}": QUESTIONS["refund"] for index in range(65)}, ("questions",)),
    ],
)
def test_what_this_family_cannot_be_asked(
    front: NimbleProcessor, state: Any, questions: Any, place: tuple[str, ...]
) -> None:
    """422 with the place on the main port."""
    with pytest.raises(InvalidRequest) as caught:
        prepare(front, state, questions)
    assert caught.value.faults[0].loc == place


def test_what_is_too_long_is_400(front: NimbleProcessor) -> None:
    """`max_tokens_exceeded`, with the limit."""
    with pytest.raises(TokensExceeded, match="at most 4096 are taken"):
        prepare(front, "x y " * 1200)


def test_what_is_no_answer_is_not_made_one(front: NimbleProcessor, profile: NimbleNative) -> None:
    """Of another shape or type, or not finite."""
    prepared, own = prepare(front), profile.prepare(body())
    good = said(prepared, [0.0] * 7)
    for outputs in (
        [],
        [{**good, "logits": good["logits"][:6]}],
        [{**good, "counts": good["counts"][::-1].copy()}],
        [{**good, "logits": np.array([np.nan] * 7, np.float32)}],
    ):
        with pytest.raises(InternalError):
            front.finish(prepared, outputs)
        with pytest.raises(InternalError):
            profile.finish(own, outputs, 0.0)


def test_what_the_host_has_to_say(front: NimbleProcessor, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files and its temperature; before there is one, requests are prepared all the same."""
    monkeypatch.setattr(checkpoints, "tokenizer", lambda file: Letters())
    files = dict(front.checkpoint.sha256)
    for facts in ({"files": files}, {"files": files, "temperature": 0}, {"files": {}, "temperature": 1.0}):
        with pytest.raises(AssetError):
            NimbleProcessor(facts, {}, str(texts))
    bare = NimbleProcessor({}, {"max_length": 4096}, str(texts))
    prepared = prepare(bare)
    assert unit_of(prepared).tokens.tolist() == unit_of(prepare(front)).tokens.tolist()
    with pytest.raises(InternalError, match="has not said its temperature"):
        bare.finish(prepared, [said(prepared, [0.0] * 7)])


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said when a request comes, or at once if a host has loaded something; one of other prompts with its option."""
    monkeypatch.setattr(checkpoints, "tokenizer", lambda file: Letters())
    with pytest.raises(Unavailable, match="cannot be read"):
        prepare(NimbleProcessor({}, {}, str(tmp_path)))
    with pytest.raises(AssetError):
        NimbleProcessor({"files": {}, "temperature": 1.0}, {}, str(tmp_path))
    folder = write_texts(tmp_path / "other", prompt_code_sha256="0" * 64)
    with pytest.raises(Unavailable, match="the option 'unreleased'"):
        prepare(NimbleProcessor({}, {}, str(folder)))
    assert prepare(NimbleProcessor({}, {"unreleased": True}, str(folder))).units


def test_options_of_the_family(texts: Path) -> None:
    for options in (
        {"max_length": 255},
        {"max_length": 32_769},
        {"undescribed": "id"},
        {"graphs": True, "execution": "shared"},
        {"graphs": True, "prefix_cache_mb": 1},
    ):
        with pytest.raises(OptionError):
            NimbleProcessor({}, options, str(texts))
