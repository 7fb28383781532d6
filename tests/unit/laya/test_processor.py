"""The System One profile: what is refused, how it is told, and the answers."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend.errors import InternalError, InvalidRequest, TokensExceeded, Unavailable
from frontend.families.base import AssetError, Prepared
from frontend.families.laya import finishing, native
from frontend.families.laya.checkpoint import load
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from frontend.http.systemone import parse_request
from protocol.contracts.laya import FRONT_FILES as FILES
from protocol.options import OptionError
from protocol.payloads import MarkedRowsRequest
from tests.unit.laya.helpers import QUESTIONS, logits


@pytest.fixture(scope="module")
def processor(folder: Path) -> LayaProcessor:
    return LayaProcessor({}, {}, str(folder))


def prepare(processor: LayaProcessor, state: Any = "charged twice", questions: Any = None) -> Prepared:
    return processor.prepare(parse_request({"state": state, "questions": questions or QUESTIONS}))


def said(prepared: Prepared, values: list[float], actions: Any = None) -> dict[str, Any]:
    """What a host says."""
    (unit,) = prepared.units
    assert isinstance(unit, MarkedRowsRequest)
    rows = unit.rows
    return {
        "logits": np.array(values, np.float32),
        "counts": unit.counts[:rows].copy(),
        "action": np.zeros((rows, 2), np.float32) if actions is None else np.array(actions, np.float32),
    }


def test_answers(processor: LayaProcessor) -> None:
    """In float64, unrounded, in request order; the second number of the model beside them; usage is the rows'."""
    prepared = prepare(processor)
    decision = processor.finish(prepared, [said(prepared, [1, 0, 0, 1, 0, 1, 2], [[1, 0], [0, 0], [0, 1]])])
    assert [name for name, _ in decision.answers] == list(QUESTIONS)
    answers = {name: answer.to_json() for name, answer in decision.answers}
    assert answers["team"]["choice"] == "billing"
    # The temperature of a choice of 2, of a noul, and of a score of 3.
    assert answers["team"]["probabilities"]["billing"] == 1 / (1 + math.exp(-1 / 1.9063563346862793))
    assert answers["refund"]["noul"] == pytest.approx(1 / (1 + math.exp(-1 / 1.983399510383606)), abs=1e-15)
    assert math.fsum(answers["harm"]["probabilities"].values()) == pytest.approx(1, abs=1e-12)
    assert answers["harm"]["legend"] == {"0": "none", "1": {"n": 1}, "2": "much"}
    act = decision.extras["x_act_probability"]
    assert list(act) == list(QUESTIONS)
    assert list(act.values()) == pytest.approx([1 / (1 + math.exp(-1)), 0.5, 1 / (1 + math.exp(1))], abs=1e-15)
    assert "x_truncated" not in decision.extras
    (unit,) = prepared.units
    assert isinstance(unit, MarkedRowsRequest)
    assert decision.input_tokens == prepared.cost == int(unit.lengths.sum())


def test_the_two_profiles_agree(processor: LayaProcessor) -> None:
    """Within 1e-6 before rounding, and the same choice, for logits of every kind of question and many sizes."""
    numbers = random.Random(7)
    temperatures = processor.checkpoint.config.temperatures
    for count in (1, 2, 3, 5, 6, 10, 11, 16, 40, 120):
        for kind in ("choice", "score", "noul"):
            if kind == "noul" and count != 2:
                continue
            values = [numbers.uniform(-8, 8) for _ in range(count)]
            found = logits(values, [numbers.uniform(-4, 4), numbers.uniform(-4, 4)])
            temperature = temperatures.of(kind, count)
            single = native.probabilities(found.options, temperature)
            double = finishing.softmax(found.options, temperature)
            assert single == pytest.approx(double, abs=1e-6)
            assert int(single.argmax()) == double.index(max(double))
            assert native.score(single) == pytest.approx(sum(i * p for i, p in enumerate(double)), abs=1e-4)
            act = finishing.act_probability(found)
            assert float(native.probabilities(found.action, 1.0)[0]) == pytest.approx(act, abs=1e-6)


def test_logits_at_the_end_of_float32() -> None:
    """Their quotients may be beyond it, their distances too; the probabilities are numbers all the same."""
    largest = 3.4e38
    for values, expected in (
        ([largest, -largest], [1, 0]),
        ([largest, largest], [0.5, 0.5]),
        ([-largest, -largest], [0.5, 0.5]),
    ):
        assert native.probabilities(logits(values).options, 0.5).tolist() == expected


def test_both_profiles_send_the_same_rows(processor: LayaProcessor) -> None:
    """One request, one payload, whichever port it comes to."""
    (mine,) = prepare(processor).units
    body = {"state": "charged twice", "questions": QUESTIONS}
    (theirs,) = LayaNative(processor).prepare(json.dumps(body).encode()).units
    assert isinstance(mine, MarkedRowsRequest)
    assert isinstance(theirs, MarkedRowsRequest)
    for name, value in mine.to_wire().items():
        assert np.array_equal(value, theirs.to_wire()[name])


def test_too_long_is_refused_or_cut(processor: LayaProcessor, folder: Path) -> None:
    """400 that names the part, unless `truncate` is on: then tokens kept and sent, of all rows together."""
    long = "word @ " * 2000
    with pytest.raises(TokensExceeded, match=r'"team": the state is \d+ tokens, of which \d+ have room'):
        prepare(processor, long)
    cutting = LayaProcessor({}, {"truncate": True}, str(folder))
    prepared = prepare(cutting, long)
    decision = cutting.finish(prepared, [said(prepared, [0.0] * 7)])
    assert decision.extras["x_truncated"]["kept"] == decision.input_tokens == 3 * 512
    assert decision.extras["x_truncated"]["total"] > 3 * 2000


BAD: dict[str, tuple[Any, tuple[str, ...]]] = {
    "no instructions": (
        {"q": {"type": "noul", "criteria": {"true": "yes", "false": "no"}}},
        ("questions", "q", "instructions"),
    ),
    "too many": ({str(i): QUESTIONS["refund"] for i in range(17)}, ("questions",)),
}


@pytest.mark.parametrize("case", BAD)
def test_what_this_family_cannot_be_asked(processor: LayaProcessor, case: str) -> None:
    """422 with the place, although System One allows it."""
    questions, place = BAD[case]
    with pytest.raises(InvalidRequest) as caught:
        prepare(processor, questions=questions)
    assert caught.value.faults[0].loc == place


def test_options_without_room_are_400(folder: Path) -> None:
    """Also where cutting is allowed: a marker that is not read has no answer."""
    cutting = LayaProcessor({}, {"truncate": True}, str(folder))
    many = {"q": {"type": "choice", "instructions": "i", "criteria": {f"option {i}": None for i in range(255)}}}
    with pytest.raises(TokensExceeded, match="exceed head_max_len=192"):
        prepare(cutting, questions=many)


def test_what_is_no_answer_is_not_made_one(processor: LayaProcessor) -> None:
    """Of another shape or type, not finite, or of another family's request."""
    prepared = prepare(processor)
    good = said(prepared, [0.0] * 7)
    bad: list[Any] = [
        [],
        [good, good],
        [7],
        [{**good, "logits": good["logits"][:6]}],
        [{**good, "logits": good["logits"].astype(np.float64)}],
        [{**good, "logits": np.array([np.nan] * 7, np.float32)}],
        [{**good, "action": np.array([[np.inf, 0]] * 3, np.float32)}],
        [{**good, "action": good["action"][:2]}],
        [{**good, "action": good["action"][:, :0]}],
        [{**good, "counts": good["counts"][::-1].copy()}],
        [{"logits": good["logits"]}],
    ]
    for outputs in bad:
        with pytest.raises(InternalError):
            processor.finish(prepared, outputs)
    with pytest.raises(InternalError, match="another family"):
        processor.finish(Prepared((), 0, 0, object()), [good])


def test_a_checkpoint_that_cannot_be_read(tmp_path: Path) -> None:
    """Said when a request comes, or at once if a host has loaded something."""
    with pytest.raises(Unavailable, match="cannot be read"):
        prepare(LayaProcessor({}, {}, str(tmp_path)))
    with pytest.raises(Unavailable, match="needs the path"):
        prepare(LayaProcessor({}, {}, None))
    with pytest.raises(AssetError):
        LayaProcessor({"files": {}}, {}, str(tmp_path))


def test_a_host_with_other_files_is_refused(folder: Path) -> None:
    """Rows never meet weights that were trained with other tokens."""
    files = dict(load(str(folder)).sha256)
    assert set(files) == set(FILES)
    assert LayaProcessor({"files": files}, {}, str(folder)).checkpoint
    for name in files:
        with pytest.raises(AssetError, match=name):
            LayaProcessor({"files": {**files, name: "0" * 64}}, {}, str(folder))


def test_a_changed_file_is_read_again(folder: Path, tmp_path: Path) -> None:
    """And an unchanged one is not."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    first = load(str(tmp_path))
    assert load(str(tmp_path)) is first
    config = json.loads((tmp_path / FILES[0]).read_text())
    (tmp_path / FILES[0]).write_text(json.dumps({**config, "temperature_by_options": {}}))
    assert load(str(tmp_path)).config.temperatures.by_bucket == {}


@pytest.mark.parametrize("broken", FILES)
def test_what_is_no_checkpoint(folder: Path, tmp_path: Path, broken: str) -> None:
    """The file is named."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[1" if name == broken else (folder / name).read_text())
    with pytest.raises(AssetError, match=Path(broken).name):
        load(str(tmp_path))


def test_a_role_whose_token_the_tokenizer_lacks(folder: Path, tmp_path: Path) -> None:
    """The two files are of different checkpoints, and both are named."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = (folder / name).read_text()
        (tmp_path / name).write_text(text.replace("[MASK]", "<mask>") if name == FILES[1] else text)
    with pytest.raises(AssetError, match=r"tokenizer\.json does not have \[MASK\] as one token, .* mask_token of tok"):
        load(str(tmp_path))


def test_options_of_the_family(folder: Path) -> None:
    with pytest.raises(OptionError):
        LayaProcessor({}, {"graphs": True}, str(folder))
