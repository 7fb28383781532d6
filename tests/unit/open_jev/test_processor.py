"""The processor of the open-jev family: System One requests in, payloads out, scores in, answers out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded, Unavailable
from frontend.families.base import AssetError, Prepared
from frontend.families.open_jev import rows
from frontend.families.open_jev.checkpoint import Checkpoint, load
from frontend.families.open_jev.processor import OpenJevProcessor
from frontend.http.systemone import parse_request, render
from frontend.requests.questions import DecisionRequest
from protocol import families
from protocol.options import OptionError
from protocol.payloads import RowsRequest
from tests.helpers import tiny_open_jev
from tests.unit.open_jev.helpers import QUESTIONS, TEMPERATURE
from tests.unit.test_layering import imported

np = pytest.importorskip("numpy")

CHOICE, NOUL, SCORE = QUESTIONS["route"], QUESTIONS["refund"], QUESTIONS["urgency"]


@pytest.fixture
def processor(folder: Path, checkpoint: Checkpoint) -> OpenJevProcessor:
    """A processor whose host has loaded the same files."""
    return OpenJevProcessor({"files": dict(checkpoint.sha256)}, {}, str(folder))


def prepare(processor: OpenJevProcessor, state: Any = "s", questions: Any = None) -> Prepared:
    """A System One request, prepared."""
    asked = QUESTIONS if questions is None else questions
    return processor.prepare(parse_request({"state": state, "questions": asked}))


def output(scores: list[float]) -> dict[str, Any]:
    """What the host would say."""
    return {"logits": np.array(scores, np.float32), "execution": "packed"}


def test_one_unit_and_its_cost(processor: OpenJevProcessor) -> None:
    """The whole request is one payload; its cost is the tokens of all candidates."""
    prepared = prepare(processor)
    (payload,) = prepared.units
    assert isinstance(payload, RowsRequest)
    assert payload.rows == 6
    assert prepared.cost == len(payload.tokens)
    assert prepared.work == 6 * 64


def test_answers_are_exact(processor: OpenJevProcessor) -> None:
    """One temperature for all, float64, unrounded, levels as they were sent; usage counts every prompt."""
    prepared = prepare(processor)
    decision = processor.finish(prepared, [output([1, 3, 2, 0, 1, 0])])
    body = render(DecisionRequest(None, "", ()), "m", decision)
    weights = np.exp(np.array([1, 3]) / TEMPERATURE)
    assert body["answers"]["route"]["choice"] == "login"
    probabilities = list(body["answers"]["route"]["probabilities"].values())
    assert probabilities == pytest.approx(weights / weights.sum(), abs=1e-15)
    noul = 1 / (1 + np.exp(-2 / TEMPERATURE))
    assert body["answers"]["refund"] == {"type": "noul", "noul": pytest.approx(noul, abs=1e-15)}
    levels = np.exp(np.array([0, 1, 0]) / TEMPERATURE)
    score = body["answers"]["urgency"]
    assert list(score["probabilities"].values()) == pytest.approx(levels / levels.sum(), abs=1e-15)
    assert score["legend"] == {"0": "low", "1": {"n": 1}, "2": "high"}
    assert body["usage"] == {"input_tokens": prepared.cost, "output_tokens": 0}
    assert set(body) == {"model", "answers", "usage"}


@pytest.mark.parametrize(
    ("questions", "place"),
    [
        ({"q": CHOICE | {"instructions": None}}, ("questions", "q", "instructions")),
        ({"q": CHOICE | {"criteria": dict.fromkeys(map(str, range(256)))}}, ("questions", "q", "criteria")),
        ({"q": SCORE | {"criteria": ["low"]}}, ("questions", "q", "criteria")),
        ({"q": SCORE | {"criteria": ["l"] * 11}}, ("questions", "q", "criteria")),
        ({"q": NOUL | {"criteria": {"true": "t"}}}, ("questions", "q", "criteria")),
        ({"q": NOUL | {"criteria": {"true": "t", "false": None}}}, ("questions", "q", "criteria", "false")),
        ({"q": {"type": "noul", "criteria": {"true": "t", "false": "f"}}}, ("questions", "q", "instructions")),
    ],
)
def test_what_the_family_cannot_be_asked(
    processor: OpenJevProcessor, questions: Any, place: tuple[str | int, ...]
) -> None:
    """422 with its place."""
    with pytest.raises(InvalidRequest) as caught:
        prepare(processor, "s", questions)
    assert caught.value.faults[0].loc == place


def test_too_long_and_too_much(processor: OpenJevProcessor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 for one prompt, whose limit the configuration can move; 413 for all of them; 422 for too many."""
    with pytest.raises(TokensExceeded, match="max_length=4096; no silent truncation"):
        prepare(processor, "x " * 5_000)
    longer = OpenJevProcessor({}, {"max_length": 16_384}, str(folder))
    assert prepare(longer, "x " * 3_000, {"n": NOUL}).cost > 4096
    with pytest.raises(TokensExceeded):
        prepare(OpenJevProcessor({}, {"max_length": 20}, str(folder)))
    monkeypatch.setattr(rows, "MAX_ROWS", 5)
    with pytest.raises(InvalidRequest, match="candidate limit"):
        prepare(processor)
    monkeypatch.setattr(rows, "MAX_ROWS", 6)
    monkeypatch.setattr(rows, "MAX_TOKENS", 100)
    with pytest.raises(RequestTooLarge):
        prepare(processor)


@pytest.mark.parametrize(
    "change",
    [
        {"logits": None},
        {"logits": [0.0] * 6},
        {"logits": np.zeros(6)},
        {"logits": np.zeros(5, np.float32)},
        {"logits": np.zeros((6, 1), np.float32)},
        {"logits": np.full(6, np.nan, np.float32)},
    ],
)
def test_an_output_that_is_no_answer(processor: OpenJevProcessor, change: dict[str, Any]) -> None:
    """Every wrong shape, type and number is an internal error, never an answer."""
    prepared = prepare(processor)
    with pytest.raises(InternalError):
        processor.finish(prepared, [output([0.0] * 6) | change])
    for outputs in ([], [output([0.0] * 6)] * 2, [None]):
        with pytest.raises(InternalError):
            processor.finish(prepared, outputs)


def test_without_a_folder_it_says_so(tmp_path: Path) -> None:
    """A front starts whatever lies at the path; requests are told. A host with facts is refused."""
    for path in (None, str(tmp_path)):
        processor = OpenJevProcessor({}, {}, path)
        assert processor.model_id is None
        with pytest.raises(Unavailable, match="cannot be prepared for"):
            prepare(processor)
        with pytest.raises(AssetError):
            OpenJevProcessor({"files": {}}, {}, path)


def test_another_host_is_refused(folder: Path, checkpoint: Checkpoint) -> None:
    """Facts that name other files, or none."""
    other = dict(checkpoint.sha256) | {"tokenizer.json": "0"}
    for facts in ({"files": other}, {"files": {}}, {"identity": "x"}):
        with pytest.raises(AssetError):
            OpenJevProcessor(facts, {}, str(folder))


def test_options() -> None:
    """Those of both halves are checked where the configuration is read."""
    known = OpenJevProcessor.OPTIONS.complete({"base": "b", "max_length": 100, "execution": "rows"})
    assert (known["base"], known["max_length"], known["unreleased"], known["device"]) == ("b", 100, False, "auto")
    for options in ({"max_length": True}, {"max_length": "1"}, {"truncate": True}, {"unreleased": 1}):
        with pytest.raises(OptionError):
            OpenJevProcessor.OPTIONS.complete(options)


def test_the_family_is_registered() -> None:
    """Without bounds unless they are configured, and only a device error retires its host."""
    family = families.find("open-jev")
    assert families.resolve(family.processor) is OpenJevProcessor
    assert families.resolve(family.payload) is RowsRequest
    assert (family.default_max_requests, family.default_max_cost) == (None, None)
    assert not family.retire_on_error


def test_naming_the_family_loads_nothing() -> None:
    """The supervisor checks options with the processor's class, so its modules import no array or token library."""
    seen = imported("frontend.families.open_jev.processor")
    assert seen.isdisjoint({"numpy", "tokenizers", "torch", "transformers", "aiohttp"})


def test_a_folder_is_read_once_until_it_changes(tmp_path: Path) -> None:
    """A restarted host costs no tokenizer loading; a file that was replaced is read again."""
    path = str(tiny_open_jev.write_texts(tmp_path / "a"))
    assert load(path) is load(path)
    tiny_open_jev.write_texts(tmp_path / "a", temperature=2)
    assert load(path).terms.temperature == 2.0
    assert load(path, None, 77).terms.max_length == 77
    assert load(path).terms.max_length == 4096


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"format": "open-jev-text-merged/2"}, "format"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 16_385}, "max_length"),
        ({"max_length": 4096.0}, "max_length"),
        ({"chat_prefix": ""}, "chat_prefix"),
        ({"chat_suffix": None}, "chat_suffix"),
        ({"model_id": None}, "model_id"),
        ({"base_revision": 1}, "base_revision"),
    ],
)
def test_other_manifests_are_refused(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    """By the file and the key."""
    path = tiny_open_jev.write_texts(tmp_path / "a", **fields)
    with pytest.raises(AssetError, match=rf"open_jev_export\.json: {named} is"):
        load(str(path))


def test_an_export_that_was_not_finished_is_refused(tmp_path: Path) -> None:
    """No manifest, no service; and what is none is said to be none."""
    path = tiny_open_jev.write_texts(tmp_path / "a")
    for content in (b"{", b"[]", b"[" * 100_000):
        (path / "open_jev_export.json").write_bytes(content)
        with pytest.raises(AssetError, match=r"open_jev_export\.json is not"):
            load(str(path))
    (path / "open_jev_export.json").unlink()
    with pytest.raises(AssetError, match=r"open_jev_export\.json is missing"):
        load(str(path))
    tiny_open_jev.write_texts(path)
    with pytest.raises(AssetError, match="max_length"):
        load(str(path), None, 0)


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    """By its name."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install framehost[torch]")
    path = tiny_open_jev.write_texts(tmp_path / "a")
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(AssetError, match=r"tokenizer\.json is not a tokenizer"):
        load(str(path))
