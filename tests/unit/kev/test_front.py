"""The front's half: both profiles around the pure parts, and what is refused by each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError, InvalidRequest, TokensExceeded, Unavailable
from frontend.families.base import AssetError, Prepared
from frontend.families.kev import native
from frontend.families.kev.checkpoint import load
from frontend.families.kev.processor import KevProcessor
from frontend.families.kev.profile import KevNative
from frontend.families.kev.rendering import question
from frontend.families.native import HostView, NativeRefusal
from frontend.http.systemone import parse_request
from protocol.contracts.agreement import ContractError
from protocol.contracts.kev import delimiters, read_training
from protocol.options import OptionError
from protocol.payloads import MarkedRowsRequest
from tests.unit.kev.helpers import QUESTIONS, letters

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def processor(folder: Path) -> KevProcessor:
    return KevProcessor({}, {"max_length": 300}, str(folder))


@pytest.fixture(scope="module")
def profile(processor: KevProcessor) -> KevNative:
    return KevNative(processor)


def prepare(processor: KevProcessor, state: Any = "charged twice", questions: Any = None) -> Prepared:
    return processor.prepare(parse_request({"state": state, "questions": questions or QUESTIONS}))


def said(prepared: Prepared, values: list[float]) -> dict[str, Any]:
    """What a host says."""
    (unit,) = prepared.units
    assert isinstance(unit, MarkedRowsRequest)
    return {"logits": np.array(values, np.float32), "counts": unit.counts.copy(), "processed": 9}


def body(**fields: Any) -> bytes:
    return json.dumps({"state": "charged twice", "questions": QUESTIONS, **fields}).encode()


def test_answers_of_the_main_port(processor: KevProcessor) -> None:
    """In float64 and unrounded, from logits whose temperature is applied already; the first of equals is the choice."""
    prepared = prepare(processor)
    decision = processor.finish(prepared, [said(prepared, [0.5, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0])])
    answers = dict(decision.answers)
    assert answers["team"].choice == "billing"  # type: ignore[union-attr]
    assert answers["refund"].noul == pytest.approx(0.7310585786300049, abs=1e-15)  # type: ignore[union-attr]
    assert answers["harm"].score == pytest.approx(1.0, abs=1e-15)  # type: ignore[union-attr]
    assert decision.input_tokens == prepared.cost


def test_the_whole_native_body(profile: KevNative) -> None:
    """Every field of the original, rounded to two decimals; the legend is what the model reads."""
    prepared = profile.prepare(body(model="jev-latest", other=1))
    document = profile.finish(prepared, [said(prepared, [0.5, 0.5, 0.0, 1.0, 0.0, 3.0, 0.0])], 0.01234)
    answers = {
        "team": {
            "type": "choice",
            "choice": "billing",
            "confidence": 0.0,
            "probabilities": {"billing": 0.5, "login": 0.5},
        },
        "refund": {"type": "noul", "noul": 0.73},
        "harm": {
            "type": "score",
            "score": 1.0,
            "legend": {"0": "none", "1": "n: 1", "2": "much"},
            "probabilities": {"0": 0.05, "1": 0.91, "2": 0.05},
            "confidence": 0.95,
        },
    }
    (tokens,) = profile.processor.checkpoint.encode([json.dumps(answers)])  # type: ignore[attr-defined]
    assert document == {
        "model": "jev-latest",
        "answers": answers,
        "usage": {"input_tokens": prepared.cost, "output_tokens": len(tokens)},
        "latency_ms": 12.3,
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.25] * 4, 0.0), ([0.5, 0.25, 0.25], 0.25), ([1.0], 1.0)],
)
def test_confidence_of_a_choice(values: list[float], expected: float) -> None:
    """How far above chance."""
    assert native.choice_confidence(values) == pytest.approx(expected)


def test_confidence_of_a_score() -> None:
    """How near to the first mode, of the longest way there is."""
    assert native.score_confidence([0.5, 0.5, 0.0], 0) == pytest.approx(0.75)
    assert native.score_confidence([0.0, 0.0, 1.0], 2) == 1.0


def test_the_first_of_two_equals(processor: KevProcessor) -> None:
    """Of three, and by the least that float32 knows: what is larger wins, however little."""
    asked = question("q", {"type": "choice", "instructions": "i", "criteria": {"a": None, "b": None, "c": None}})
    assert native.answers([asked], [[1.0, 1.0, 1.0]])["q"]["choice"] == "a"
    larger = float(np.nextafter(np.float32(1.0), np.float32(2.0)))
    assert native.answers([asked], [[1.0, larger, 1.0]])["q"]["choice"] == "b"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "invalid JSON: "),
        (b"[]", "the request is an object"),
        (b'{"questions": {"q": {}}}', "state: a field is missing"),
        (b'{"state": null}', "questions: an object with a question or more"),
        (b'{"state": null, "questions": {}}', "questions: an object with a question or more"),
        (body(model=7), "model: a text is expected"),
        (body(questions={"q": {"type": "noul"}}), 'question "q": there are no instructions'),
        (body(state="x y " * 400), "the state has"),
    ],
)
def test_native_refusals(profile: KevNative, raw: bytes, message: str) -> None:
    """All are 422 in `detail`."""
    with pytest.raises(NativeRefusal) as caught:
        profile.prepare(raw)
    status, document, _ = profile.render_error(caught.value)
    assert status == 422
    assert list(document) == ["detail"]
    assert document["detail"].startswith(message)


def test_a_state_may_be_null(profile: KevNative) -> None:
    """It is no text then."""
    (unit,) = profile.prepare(body(state=None)).units
    (empty,) = profile.prepare(body(state="")).units
    assert isinstance(unit, MarkedRowsRequest) and isinstance(empty, MarkedRowsRequest)
    assert unit.tokens.tolist() == empty.tokens.tolist()


def test_health(profile: KevNative) -> None:
    assert profile.health(HostView(True)) == {"status": "ready", "model": "kev-latest"}
    assert profile.health(HostView(False)) == {"status": "unavailable", "model": "kev-latest"}


def test_both_profiles_make_the_same_rows(processor: KevProcessor, profile: KevNative) -> None:
    """And the same cost."""
    main, own = prepare(processor), profile.prepare(body())
    assert main.cost == own.cost
    (left,), (right,) = main.units, own.units
    assert isinstance(left, MarkedRowsRequest) and isinstance(right, MarkedRowsRequest)
    assert left.tokens.tolist() == right.tokens.tolist()


@pytest.mark.parametrize(
    ("questions", "place"),
    [
        ({"q": {"type": "noul", "criteria": {"true": "x", "false": "y"}}}, ("questions", "q", "instructions")),
        (
            {"q": {"type": "choice", "instructions": "i", "criteria": dict.fromkeys(map(str, range(256)))}},
            ("questions", "q", "criteria"),
        ),
    ],
)
def test_what_this_family_cannot_be_asked(processor: KevProcessor, questions: Any, place: tuple[str, ...]) -> None:
    """422 with the place on the main port."""
    with pytest.raises(InvalidRequest) as caught:
        prepare(processor, questions=questions)
    assert caught.value.faults[0].loc == place


def test_what_is_too_long_is_400(processor: KevProcessor) -> None:
    """`max_tokens_exceeded`, with the limit."""
    with pytest.raises(TokensExceeded, match="at most 300 are taken"):
        prepare(processor, "x y " * 400)


def test_what_is_no_answer_is_not_made_one(processor: KevProcessor, profile: KevNative) -> None:
    """Of another shape or type, or not finite."""
    prepared, own = prepare(processor), profile.prepare(body())
    good = said(prepared, [0.0] * 7)
    for outputs in (
        [],
        [{**good, "logits": good["logits"][:6]}],
        [{**good, "counts": good["counts"][::-1].copy()}],
        [{**good, "logits": np.array([np.nan] * 7, np.float32)}],
    ):
        with pytest.raises(InternalError):
            processor.finish(prepared, outputs)
        with pytest.raises(InternalError):
            profile.finish(own, outputs, 0.0)


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path, folder: Path) -> None:
    """Said when a request comes, or at once if a host has loaded something."""
    with pytest.raises(Unavailable, match="cannot be read"):
        prepare(KevProcessor({}, {}, str(tmp_path)))
    with pytest.raises(AssetError):
        KevProcessor({"files": {}}, {}, str(folder))
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(AssetError, match="the option 'base'"):
        load(str(tmp_path), None)
    assert load(str(tmp_path), str(folder)).sha256 == load(str(folder), None).sha256


def test_options_of_the_family(folder: Path) -> None:
    for options in ({"graphs": True}, {"max_length": 15}, {"max_length": 73_729}):
        with pytest.raises(OptionError):
            KevProcessor({}, options, str(folder))


def test_the_contract_s_readers() -> None:
    """A tokenizer without a delimiter, and a training configuration without the head's size."""
    assert delimiters(letters).decide == 5
    with pytest.raises(ContractError, match=r"does not have <\|fim_prefix\|> as one token"):
        delimiters(lambda texts: [[1, 2] for _ in texts])
    assert read_training({"args": {"head_dim": 256}}) == 256
    for document in ({}, {"args": []}):
        with pytest.raises(ContractError, match="an object with head_dim is expected"):
            read_training(document)
    for size in (0, 65_537, True, "256"):
        with pytest.raises(ContractError, match="head_dim is"):
            read_training({"args": {"head_dim": size}})
