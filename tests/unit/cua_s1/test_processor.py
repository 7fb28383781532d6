"""The family's halves of the front: what the main port refuses, what its own listener says, and how it is wired."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend.errors import (
    HostDied,
    InternalError,
    InvalidRequest,
    QueueFull,
    RequestError,
    RequestTooLarge,
    TokensExceeded,
    Unavailable,
)
from frontend.families.base import AssetError, Prepared
from frontend.families.cua_s1.native import confidence
from frontend.families.cua_s1.processor import CuaS1Processor
from frontend.families.cua_s1.profile import CuaS1Native
from frontend.families.native import HostView, NativeProfile, NativeRefusal
from frontend.http.systemone import parse_request
from protocol import families
from protocol.errors import Malformed
from protocol.payloads import PromptRequest
from tests.unit.cua_s1.helpers import choice, facts_of, hidden, native

RESPONSE_MODEL = "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text"


def prepared(processor: CuaS1Processor, questions: dict[str, Any], state: Any = "A dialog.") -> Prepared:
    return processor.prepare(parse_request({"state": state, "questions": questions}))


def test_one_unit_per_question(processor: CuaS1Processor) -> None:
    """The cost is the tokens of all prompts, and so is the usage."""
    made = prepared(processor, {"one": choice("a", "b"), "two": choice("c", "d", "e", instructions=None)})
    assert all(isinstance(unit, PromptRequest) for unit in made.units)
    lengths = [len(unit.tokens) for unit in made.units if isinstance(unit, PromptRequest)]
    assert len(lengths) == 2
    assert lengths[0] > lengths[1], "no goal"
    assert made.cost == sum(lengths)
    kept = [processor.absorb(made, 0, hidden(1.0, 0.0)), processor.absorb(made, 1, hidden(0.0, 0.0, 1.0))]
    assert kept == [(1.0, 0.0), (0.0, 0.0, 3.0)]
    decision = processor.finish(made, kept)
    assert [name for name, _ in decision.answers] == ["one", "two"]
    assert decision.answers[0][1].to_json()["choice"] == "a"
    assert decision.answers[1][1].to_json()["choice"] == "e"
    assert decision.usage == {"input_tokens": made.cost, "output_tokens": 0}
    early = [answer for index in range(2) for answer in processor.settled(made, index, kept[index])]
    assert tuple(early) == decision.answers, "what is told early is what is told at the end"


REFUSED: list[tuple[dict[str, Any], Any, type[RequestError], str]] = [
    (
        {"q": {"type": "noul", "instructions": "Is it?"}},
        "s",
        InvalidRequest,
        "question 'q': type 'noul' is not supported",
    ),
    ({"q": {"type": "score", "criteria": ["a"]}}, "s", InvalidRequest, "question 'q': type 'score' is not supported"),
    ({"q": choice(*map(str, range(27)))}, "s", InvalidRequest, "'criteria' must be an object with 1 to 26 options"),
    *(({"q": choice("a")}, empty, InvalidRequest, "'state' must not be empty") for empty in ("", {}, [])),
    ({str(index): choice("a") for index in range(65)}, "s", RequestTooLarge, "more than 64 questions"),
    ({"q": choice("a")}, "a b c d " * 9000, TokensExceeded, "prompt tokens, over 16384"),
]


@pytest.mark.parametrize(("questions", "state", "error", "message"), REFUSED)
def test_what_the_main_port_refuses(
    processor: CuaS1Processor, questions: dict[str, Any], state: Any, error: type[RequestError], message: str
) -> None:
    """Before anything is sent; one question that cannot be asked refuses them all."""
    with pytest.raises(error, match=message.replace("(", r"\(")) as caught:
        prepared(processor, {"first": choice("a")} | questions if len(questions) == 1 else questions, state)
    if isinstance(caught.value, InvalidRequest):
        assert caught.value.faults[0].loc[0] in ("state", "questions")


def test_an_option_of_one_is_certain(processor: CuaS1Processor) -> None:
    """Criteria of one are legal here."""
    made = prepared(processor, {"q": choice("only")})
    assert processor.finish(made, [(3.0,)]).answers[0][1].to_json()["probabilities"] == {"only": 1.0}


def test_outputs_that_are_none(processor: CuaS1Processor) -> None:
    """Of another family, or too few."""
    made = prepared(processor, {"q": choice("a", "b")})
    for outputs in ([], [(1.0,)], [[1.0, 2.0]], [(1.0, 2.0), (1.0, 2.0)], [None]):
        with pytest.raises(InternalError):
            processor.finish(made, outputs)
    with pytest.raises(InternalError):
        processor.absorb(made, 0, hidden(np.nan))
    with pytest.raises(InternalError):
        processor.finish(Prepared((), 0, 0, None), [])


def test_before_there_is_a_host(folder: Path, tmp_path: Path) -> None:
    """Requests are validated from the folder alone; without one the model is not available."""
    early = CuaS1Processor({}, {}, str(folder))
    made = prepared(early, {"q": choice("a", "b")})
    with pytest.raises(InternalError):
        early.absorb(made, 0, hidden(1.0))
    with pytest.raises(InvalidRequest):
        prepared(early, {"q": {"type": "noul", "instructions": "Is it?"}})
    for path in (None, str(tmp_path / "nowhere")):
        with pytest.raises(Unavailable):
            prepared(CuaS1Processor({}, {}, path), {"q": choice("a")})
        with pytest.raises(AssetError):
            CuaS1Processor(facts_of(folder), {}, path)


def test_another_tokenizer_than_the_hosts(folder: Path, tmp_path: Path) -> None:
    """Such a host is left alone, as is one that does not hand over its letters."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    facts = facts_of(folder)
    CuaS1Processor(facts, {}, str(copy))
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + "\n")
    with pytest.raises(AssetError, match=r"tokenizer\.json"):
        CuaS1Processor(facts, {}, str(copy))
    for key in ("files", "letters"):
        with pytest.raises(AssetError):
            CuaS1Processor({name: value for name, value in facts.items() if name != key}, {}, str(folder))


@pytest.mark.parametrize(("change", "message"), [("A", "the letter A is"), ("<think>", "<think>")])
def test_a_tokenizer_of_another_model(folder: Path, tmp_path: Path, change: str, message: str) -> None:
    """Letters elsewhere, or a chat that is not the model's."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    document = json.loads((copy / "tokenizer.json").read_text())
    if change == "A":
        vocabulary = document["model"]["vocab"]
        vocabulary["A"], vocabulary["a"] = vocabulary["a"], vocabulary["A"]
    else:
        document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] != change]
    (copy / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(AssetError, match=message):
        CuaS1Processor(facts_of(folder), {}, str(copy))
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(AssetError, match="not a tokenizer"):
        CuaS1Processor(facts_of(folder), {}, str(copy))


def test_the_family_is_registered() -> None:
    """Without bounds of its own, with a native profile, and its module is found by name."""
    family = families.find("cua-s1")
    assert (family.default_max_requests, family.default_max_cost, family.retire_on_error) == (None, None, False)
    assert families.resolve(family.processor) is CuaS1Processor
    assert families.resolve(family.native) is CuaS1Native
    assert families.resolve(family.payload) is PromptRequest
    assert family.marks == ("cua_s1_export.json", "text/adapter_config.json")


def test_the_payload() -> None:
    """One line of ids."""
    tokens = np.arange(5, dtype=np.int32)
    assert np.array_equal(PromptRequest.from_wire(PromptRequest(tokens).to_wire()).tokens, tokens)
    wrong = (tokens - 1, tokens[:0], tokens.astype(np.int64), tokens[None], tokens.tolist(), None)
    for fields in (*({"tokens": value} for value in wrong), {}, {"tokens": tokens, "more": 1}):
        with pytest.raises(Malformed):
            PromptRequest.from_wire(fields)


# The family's own listener


def test_the_listener_answers_in_the_originals_words(processor: CuaS1Processor) -> None:
    """Body, number of units, numbers."""
    profile: NativeProfile = CuaS1Native(processor)
    body = json.dumps(native({"z": choice("a", "b"), "y": choice("c")})).encode()
    made = profile.prepare(body)
    kept = [profile.absorb(made, 0, hidden(1000.0, 500.5)), profile.absorb(made, 1, hidden(2.0))]
    document = profile.finish(made, kept, 0.1)
    assert document["model"] == RESPONSE_MODEL
    assert list(document["answers"]) == ["z", "y"]
    assert document["answers"]["z"] == {
        "type": "choice",
        "choice": "b",
        "probabilities": {"a": 0.2689414322376251, "b": 0.7310585975646973},
        "confidence": confidence((0.2689414322376251, 0.7310585975646973)),
    }
    assert document["usage"] == {"input_tokens": made.cost, "output_tokens": 0}
    with pytest.raises(InternalError):
        profile.absorb(made, 1, hidden(np.inf))


def test_the_listener_refuses_in_the_originals_words(processor: CuaS1Processor) -> None:
    """Status and text of each kind of refusal."""
    profile = CuaS1Native(processor)
    bodies: list[tuple[bytes, int, str]] = [
        (b"[1, 2]", 400, "request body must be a JSON object"),
        (json.dumps(native({})).encode(), 422, "'questions' must be a non-empty object"),
        (json.dumps(native({"q": choice("a")}, state="a b c d " * 9000)).encode(), 413, "question 'q': "),
    ]
    for body, status, message in bodies:
        with pytest.raises(NativeRefusal) as caught:
            profile.prepare(body)
        code, document, headers = profile.render_error(caught.value)
        assert (code, list(document), headers) == (status, ["detail"], {})
        assert document["detail"].startswith(message)
    assert profile.refusal(InternalError("a secret")) == (500, "inference failed")
    assert profile.refusal(QueueFull("full", retry_after=1)) == (503, "native execution capacity exhausted")
    assert profile.refusal(RequestTooLarge("never"))[0] == 413
    assert profile.refusal(HostDied("gone", dispatched=True, retry_after=1)) == (503, "inference failed")
    assert not profile.JSON_ONLY, "the original does not look at the media type"
    assert (profile.MAX_BODY_BYTES, profile.BODY_TOO_LARGE) == (4 << 20, "request body too large")


def test_the_listeners_health(processor: CuaS1Processor) -> None:
    """Two fields."""
    profile = CuaS1Native(processor)
    assert profile.health(HostView(ready=True)) == {"status": "ready", "model": RESPONSE_MODEL}
    assert profile.health(HostView(ready=False))["status"] == "unavailable"
