"""The English checkpoint's siblings, typed decisions and multilingual, against the public reference package on tiny
checkpoints of their layouts; and the package's server, which is theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor_host.executors.laya import checkpoint as folders
from executor_host.inspection import examine
from frontend.families.laya import finishing
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative, LayaServeNative
from frontend.families.native import HostView, NativeRefusal
from protocol import families
from protocol.payloads import MarkedRowsRequest
from tests.helpers import tiny_laya
from tests.helpers.calls import FakeCall
from tests.unit.laya.helpers import QUESTIONS

# The module stops here where the reference is not installed.
from tests.unit.laya.test_reference import STATE, TEXT, close, question

VARIANTS = ("typed-decisions", "multilingual")


class Sibling:
    """One tiny sibling, ours and the reference's, and the server of the package around ours."""

    def __init__(self, folder: Path, variant: str) -> None:
        from executor_host.executors.laya.executor import LayaExecutor

        self.variant = variant
        self.folder = tiny_laya.write(folder / variant, variant=variant, seed=3)
        # Made for the reference first: it mends the tokenizer's configuration in its folder.
        agent = pytest.importorskip("laya.agent")
        if variant == "multilingual":
            with pytest.warns(RuntimeWarning, match="outside"):
                self.reference: Any = agent.Agent(str(self.folder), device="cpu")
        else:
            self.reference = agent.Agent(str(self.folder), device="cpu")
        self.executor = LayaExecutor(str(self.folder), {"device": "cpu"})
        self.facts = self.executor.load(lambda fraction, note: None)
        self.processor = LayaProcessor(self.facts, {"truncate": True}, str(self.folder))
        self.profile = LayaNative(self.processor)

    def ours(self, state: Any, questions: Any, **fields: Any) -> tuple[MarkedRowsRequest, dict[str, Any], Any]:
        """What is sent to the host, what it says, and the body of the answer."""
        prepared = self.profile.prepare(json.dumps({"state": state, "questions": questions, **fields}).encode())
        (unit,) = prepared.units
        assert isinstance(unit, MarkedRowsRequest)
        output = self.executor.execute(MarkedRowsRequest.from_wire(unit.to_wire()), FakeCall())
        return unit, output, self.profile.finish(prepared, [output], 0.0)

    def theirs(self, state: Any, questions: Any) -> tuple[list[dict[str, Any]], Any, Any]:
        """Rows, raw logits, and the body of the answer."""
        agent = self.reference
        common = pytest.importorskip("laya.common")
        torch = pytest.importorskip("torch")
        internal = {name: agent._to_internal(fields) for name, fields in questions.items()}
        items = agent._encode_state(state, list(questions), internal)
        with torch.no_grad():
            logits, _ = agent._forward(common.collate_items([items], agent.tok.pad_token_id))
        return items, logits, agent.predict(state, questions)


@pytest.fixture(scope="module", params=VARIANTS)
def sibling(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sibling]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Sibling(tmp_path_factory.mktemp("siblings"), request.param)
    torch.set_num_threads(threads)


MARKS = st.sampled_from(["[MASK]", "<mask>", "a <mask> b", "<eos>", "<bos>", "[SEP]", "▁", "\t"])
STATES = st.one_of(
    STATE, st.lists(MARKS, max_size=6).map(" ".join), st.text("退款é ", max_size=60).map(lambda t: t * 30)
)


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(state=STATES, questions=st.dictionaries(TEXT, question(), min_size=1, max_size=3))
def test_generated_requests(sibling: Sibling, state: Any, questions: dict[str, Any]) -> None:
    """Every token and marker of every row, every logit bit by bit, and the whole body but for the routing."""
    unit, output, body = sibling.ours(state, questions)
    items, logits, expected = sibling.theirs(state, questions)
    assert [unit.tokens[i, : unit.lengths[i]].tolist() for i in range(unit.rows)] == [item["ids"] for item in items]
    assert unit.markers.tolist() == [marker for item in items for marker in item["markers"]]
    for index, found in enumerate(finishing.read_logits([output], unit)):
        assert found.options == logits[index, : len(found.options)].tolist()
    assert body["usage"] == expected["usage"]
    assert body["model"] == expected["model"]
    assert list(body["answers"]) == list(expected["answers"])
    for name, answer in expected["answers"].items():
        assert body["answers"][name].keys() == answer.keys()
        close(body["answers"][name], answer)


def test_rows_are_as_long_as_the_checkpoint_says(sibling: Sibling) -> None:
    """1,024 tokens, where the English one has 512, with the marker's own text blanked in what a client wrote."""
    mask = sibling.processor.checkpoint.special.mask
    unit, _, _ = sibling.ours("refund " * 3000 + mask, {"q": {"type": "noul", "instructions": f"{mask} refund"}})
    assert unit.lengths[0] == 1024
    marker = sibling.processor.checkpoint.special.marker
    assert (unit.tokens[0] == marker).sum() == 2  # the options', and none of the client's


def test_check_and_facts_say_which_it_is(sibling: Sibling) -> None:
    """`framehost check` and the host's facts; the front's half knows it by itself."""
    findings = examine(str(sibling.folder), None, lambda fraction, note: None)
    head = 256 if sibling.variant == "multilingual" else 192
    assert findings.lines[0] == (
        f"laya, like the {sibling.variant} checkpoint: rows of 1024 tokens, {head} of head and options"
    )
    assert sibling.facts["variant"] == sibling.variant
    assert sibling.facts["limits"] == {"rows": 16, "row_tokens": 1024, "markers": 2048}


def test_the_encoder_is_as_its_configuration_says(sibling: Sibling) -> None:
    """Which layers attend to everything, and how far they turn."""
    encoder = folders.verify(str(sibling.folder), progress=lambda fraction, note: None).encoder
    every = 2 if sibling.variant == "multilingual" else 3
    assert [kind == "full_attention" for kind in encoder["layer_types"]] == [layer % every == 0 for layer in range(4)]
    local = 160_000.0 if sibling.variant == "multilingual" else 10_000.0
    assert encoder["rope_parameters"]["sliding_attention"]["rope_theta"] == local


def test_the_server_of_the_package(sibling: Sibling) -> None:
    """The routing of this checkpoint, by any of its names or a name of another server's model, and health."""
    assert isinstance(sibling.profile, LayaServeNative)
    names = {
        "typed-decisions": ("typed", " Typed_Decisions", "jev-1", ""),
        "multilingual": ("ml", "MULTI", "jev-1", None),
    }
    for name in names[sibling.variant]:
        _, _, body = sibling.ours("s", QUESTIONS, model=name, unknown=1)
        assert body["routing"] == {
            "model": sibling.variant,
            "repo": f"convaiinnovations/laya/{sibling.variant}",
            "reason": f"explicit model={sibling.variant!r}",
            "detection": None,
            "workflow": None,
        }
    health = sibling.profile.health(HostView(True, {"device": "cpu"}))
    assert health == {"status": "ok", "loaded": [sibling.variant], "device": "cpu"}
    assert sibling.profile.health(HostView(False)) == {"status": "unavailable", "loaded": [], "device": "auto"}


def test_a_body_may_have_no_state(sibling: Sibling) -> None:
    """It is null then, as in the original."""
    (unit,) = sibling.profile.prepare(json.dumps({"questions": QUESTIONS}).encode()).units
    (said,) = sibling.profile.prepare(json.dumps({"questions": QUESTIONS, "state": None}).encode()).units
    assert isinstance(unit, MarkedRowsRequest) and isinstance(said, MarkedRowsRequest)
    assert unit.tokens.tolist() == said.tokens.tolist()


NOUL = {"type": "noul", "instructions": "i"}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "request body must be valid JSON"),
        (b"[]", 400, "request body must be an object with a 'questions' field"),
        (b'{"state": 1}', 400, "request body must be an object with a 'questions' field"),
        (b'{"questions": []}', 400, "'questions' must be an object"),
        (
            json.dumps({"questions": dict.fromkeys(map(str, range(65)), NOUL)}).encode(),
            413,
            "too many questions (65 > 64)",
        ),
        (
            json.dumps({"state": "x" * 50_001, "questions": {"q": NOUL}}).encode(),
            413,
            "state too large (50001 > 50000 chars)",
        ),
        (
            json.dumps({"state": ["x" * 49_997], "questions": {"q": NOUL}}).encode(),
            413,
            "state too large (50001 > 50000 chars)",
        ),
        (json.dumps({"questions": dict.fromkeys(map(str, range(17)), NOUL)}).encode(), 422, "at most 16 questions"),
        (
            json.dumps({"model": "laya", "questions": {"q": NOUL}}).encode(),
            422,
            "model 'laya' is the english checkpoint",
        ),
        (json.dumps({"questions": {"q": {"type": "noul"}}}).encode(), 422, 'question "q": there are no instructions'),
    ],
)
def test_refusals_of_the_server(sibling: Sibling, body: bytes, status: int, text: str) -> None:
    """In the original's words and statuses, in the field `detail`."""
    with pytest.raises(NativeRefusal) as caught:
        sibling.profile.prepare(body)
    found, document, _ = sibling.profile.render_error(caught.value)
    assert found == status
    assert list(document) == ["detail"]
    assert text in document["detail"]


def test_the_english_checkpoint_keeps_its_worker(folder: Path) -> None:
    """Also while no checkpoint can be read."""
    made = families.resolve(families.find("laya").native)
    assert type(made(LayaProcessor({}, {"truncate": False}, str(folder)))) is LayaNative
    assert type(made(LayaProcessor({}, {"truncate": False}, str(folder / "absent")))) is LayaNative
