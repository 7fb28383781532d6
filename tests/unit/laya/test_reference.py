"""Against the public reference package, laya 0.3.20, on the same tiny checkpoint: generated requests in, the same
rows, the same usage, and probabilities within 1e-5 in float32."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.families.laya import finishing, native
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from frontend.families.native import NativeRefusal
from protocol.payloads import MarkedRowsRequest
from tests.helpers.calls import FakeCall

PINNED = "0.3.20"


def _installed() -> bool:
    try:
        return importlib.metadata.version("laya") == PINNED
    except importlib.metadata.PackageNotFoundError:
        return False


if not _installed():
    pytest.skip(f"laya {PINNED} is not installed", allow_module_level=True)

for module in ("torch", "transformers", "tokenizers", "safetensors", "numpy"):
    pytest.importorskip(module, reason="the laya family needs framehost[torch]")


class Pair:
    """The reference and ours, of one checkpoint."""

    def __init__(self, folder: Path) -> None:
        from executor_host.executors.laya.executor import LayaExecutor

        agent = pytest.importorskip("laya.agent")
        with pytest.warns(RuntimeWarning, match="outside"):  # it says that it clamps a temperature
            self.reference: Any = agent.Agent(str(folder), device="cpu")
        self.executor = LayaExecutor(str(folder), {"device": "cpu"})
        facts = self.executor.load(lambda fraction, note: None)
        self.processor = LayaProcessor(facts, {"truncate": True}, str(folder))
        self.profile = LayaNative(self.processor)

    def ours(self, state: Any, questions: Any) -> tuple[MarkedRowsRequest, dict[str, Any], Any]:
        """What is sent to the host, what it says, and the body of the answer."""
        prepared = self.profile.prepare(json.dumps({"state": state, "questions": questions}).encode())
        (unit,) = prepared.units
        assert isinstance(unit, MarkedRowsRequest)
        output = self.executor.execute(MarkedRowsRequest.from_wire(unit.to_wire()), FakeCall())
        return unit, output, self.profile.finish(prepared, [output], 0.0)

    def theirs(self, state: Any, questions: Any) -> tuple[list[dict[str, Any]], Any, Any, Any]:
        """Rows, raw logits, probabilities of the actions, and the body of the answer."""
        agent = self.reference
        common = pytest.importorskip("laya.common")
        torch = pytest.importorskip("torch")
        internal = {name: agent._to_internal(fields) for name, fields in questions.items()}
        items = agent._encode_state(state, list(questions), internal)
        with torch.no_grad():
            logits, act = agent._forward(common.collate_items([items], agent.tok.pad_token_id))
        return items, logits, act, agent.predict(state, questions)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    import torch

    from tests.helpers import tiny_laya

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # A copy of its own: the reference may write into the tokenizer's folder.
    yield Pair(tiny_laya.write(tmp_path_factory.mktemp("reference") / "tiny"))
    torch.set_num_threads(threads)


ODD = st.sampled_from(
    [
        "[MASK]",
        "[SEP]",
        "[CLS]x",
        "[MASK] [MASK]",
        "[MA[MASK]SK]",
        "退款",
        "e\u0301",
        "\u00a0",
        "👩‍👩‍👧",
        "\x00",
        '"',
        " ",
        "\n",
    ]
)
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(st.one_of(ODD, st.sampled_from(["refund", " team", "charged twice "])), max_size=5).map("".join),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT)
JSON = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)), max_leaves=8
)
LONG = st.tuples(TEXT, st.sampled_from([1, 30, 200])).map(lambda pair: pair[0] * pair[1])
STATE = st.one_of(LONG, JSON, st.lists(LONG, max_size=4))


@st.composite
def question(draw: st.DrawFn) -> dict[str, Any]:
    """One question of any type, some with many or long options."""
    instructions = draw(st.one_of(LONG, JSON))
    kind = draw(st.sampled_from(["choice", "names", "many", "score", "noul"]))
    if kind == "names":
        criteria: Any = draw(st.lists(TEXT, min_size=1, max_size=5))
    elif kind == "many":
        count = draw(st.sampled_from([11, 12, 40, 110]))
        criteria = {f"{i}{draw(ODD)}": draw(LONG) for i in range(count)}
    elif kind == "choice":
        criteria = draw(st.dictionaries(TEXT, st.one_of(LONG, JSON), min_size=1, max_size=5))
    elif kind == "score":
        criteria = draw(st.lists(st.one_of(LONG, JSON), min_size=1, max_size=7))
    else:
        side = st.sampled_from(["true", "false", "True", "FALSE"])
        criteria = draw(st.one_of(st.none(), st.dictionaries(side, st.one_of(TEXT, JSON), max_size=2)))
        labels = draw(st.sampled_from([{}, {"labels": None}, {"labels": {"true": " A ", "false": "B"}}]))
        return {"type": "noul", "instructions": instructions, "criteria": criteria, **labels}
    return {"type": kind if kind == "score" else "choice", "instructions": instructions, "criteria": criteria}


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(state=STATE, questions=st.dictionaries(TEXT, question(), min_size=1, max_size=4))
def test_generated_requests(pair: Pair, state: Any, questions: dict[str, Any]) -> None:
    """Every token of every row, every probability, the actions, usage, and the shape of the body."""
    import numpy as np

    unit, output, body = pair.ours(state, questions)
    items, logits, act, expected = pair.theirs(state, questions)
    assert [unit.tokens[i, : unit.lengths[i]].tolist() for i in range(unit.rows)] == [item["ids"] for item in items]
    assert unit.markers.tolist() == [marker for item in items for marker in item["markers"]]
    assert unit.kinds[: unit.rows].tolist() == [item["qtype"] for item in items]
    found = finishing.read_logits([output], unit)
    temperatures = pair.processor.checkpoint.config.temperatures
    for index, (item, mine) in enumerate(zip(items, found, strict=True)):
        kind = ("choice", "score", "noul")[item["qtype"]]
        count = len(item["markers"])
        scaled = logits[index, :count] / temperatures.of(kind, count)
        theirs = np.exp(scaled - scaled.max())
        theirs = theirs / theirs.sum()
        assert native.probabilities(mine.options, temperatures.of(kind, count)) == pytest.approx(theirs, abs=1e-5)
        assert native.probabilities(mine.action, 1.0) == pytest.approx(act[index], abs=1e-5)
    assert body["usage"] == expected["usage"]
    assert body["model"] == expected["model"]
    assert list(body["answers"]) == list(expected["answers"])
    for name, answer in expected["answers"].items():
        assert list(body["answers"][name]) == list(answer)
        close(body["answers"][name], answer)


def close(mine: Any, theirs: Any) -> None:
    """Equal up to the last rounded digit. A tie within rounding may be decided otherwise, so not the choice."""
    for key, value in theirs.items():
        if key == "legend":
            assert mine[key] == value
        elif isinstance(value, dict):
            assert list(mine[key]) == list(value)
            close(mine[key], value)
        elif isinstance(value, float):
            assert mine[key] == pytest.approx(value, abs=1.01e-4)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        {"instructions": "i"},
        {"type": "bool", "instructions": "i"},
        {"type": "noul"},
        {"type": "choice", "instructions": "i"},
        {"type": "choice", "instructions": "i", "criteria": []},
        {"type": "choice", "instructions": "i", "criteria": "ab"},
        {"type": "score", "instructions": "i", "criteria": {"0": "a"}},
        {"type": "score", "instructions": "i", "criteria": []},
        {"type": "noul", "instructions": "i", "criteria": ["a"]},
        {"type": "noul", "instructions": "i", "criteria": {"yes": "a"}},
        {"type": "choice", "instructions": "i", "criteria": ["a"], "labels": None},
        {"type": "noul", "instructions": "i", "labels": {"true": "a", "false": " a"}},
        {"type": "noul", "instructions": "i", "labels": {"true": "\x1c", "false": "a"}},
        {"type": "choice", "instructions": "i", "criteria": {str(i): "x" for i in range(300)}},
    ],
    ids=lambda fields: None if isinstance(fields, list) else "-".join([str(fields.get("type")), *fields])[:60],
)
def test_what_the_reference_refuses_is_refused(pair: Pair, fields: Any) -> None:
    """Both name the question."""
    with pytest.raises(ValueError, match="'q'"):
        pair.reference.predict("s", {"q": fields})
    with pytest.raises(NativeRefusal, match="q") as caught:
        pair.ours("s", {"q": fields})
    assert caught.value.status == 422


def test_no_questions(pair: Pair) -> None:
    """The same empty answer, without the host."""
    prepared = pair.profile.prepare(b'{"state": null, "questions": {}}')
    assert prepared.units == ()
    body = dict(pair.profile.finish(prepared, [], 0.0))
    del body["routing"]
    assert body == pair.reference.predict(None, {})
