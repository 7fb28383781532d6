"""The transformers family, both halves joined without a wire, with transformers' own pipeline as the judge."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from executor_host.errors import Abandoned, ConfigurationError, InputRefused, NonFinite
from executor_host.executors.transformers.executor import TransformersExecutor
from executor_host.executors.transformers.model import Model
from frontend.errors import InternalError, RequestTooLarge
from frontend.families.base import Decision, Prepared
from frontend.families.transformers.processor import MAX_DOCUMENT_BYTES, TransformersProcessor
from frontend.http.systemone import parse_request, render
from frontend.requests.questions import DecisionRequest
from frontend.requests.strict_json import parse
from protocol.contracts.transformers import MAX_TOKENS
from protocol.errors import Malformed
from protocol.options import OptionError
from protocol.payloads import TextRequest

torch = pytest.importorskip("torch", reason="the transformers family needs framehost[torch]")
transformers = pytest.importorskip("transformers", reason="the transformers family needs framehost[torch]")

from tests.helpers import tiny_transformers  # noqa: E402  needs what was just looked for
from tests.helpers.calls import FakeCall  # noqa: E402

KINDS: dict[str, Callable[[Path], Path]] = {
    "chat": tiny_transformers.write_chat,
    "labels": tiny_transformers.write_labels,
    "head": tiny_transformers.write_head,
    "shipped": tiny_transformers.write_shipped,
    "d3": tiny_transformers.write_readout,
    "pplx": lambda folder: tiny_transformers.write_readout(folder, seed=7, prompt=None),
    "judge": tiny_transformers.write_judge,
}
TOGETHER = "together"


class Joined:
    """Both halves of the family around one loaded checkpoint."""

    def __init__(self, path: Path, **options: object) -> None:
        options = {"device": "cpu", **options}
        self.executor = TransformersExecutor(str(path), options)
        self.facts = self.executor.load(lambda fraction, note: None)
        self.executor.warm_up()
        self.processor = TransformersProcessor(self.facts, options, str(path))
        self.output: dict[str, Any] = {}

    def decide(self, state: Any, questions: dict[str, Any]) -> Decision:
        body = json.dumps({"state": state, "questions": questions}).encode()
        prepared = self.processor.prepare(parse_request(parse(body)))
        (unit,) = prepared.units
        assert isinstance(unit, TextRequest)
        self.output = self.executor.execute(TextRequest.from_wire({"document": unit.document}), FakeCall())
        return self.processor.finish(prepared, [self.output])

    def body(self, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        decision = self.decide(state, questions)
        return render(DecisionRequest(None, "", ()), "m", decision)

    def refused(self, state: Any, questions: dict[str, Any]) -> InputRefused:
        with pytest.raises(InputRefused) as caught:
            self.decide(state, questions)
        return caught.value


class Judge:
    """transformers' own pipeline around a model of its own, and the arithmetic of its server's `usage`."""

    def __init__(self, path: Path, *, head: bool, **where: str) -> None:
        from transformers.pipelines import DecisionPipeline

        architecture = transformers.AutoModelForDecision if head else transformers.AutoModelForCausalLM
        model = architecture.from_pretrained(path, dtype="float32", local_files_only=True, **where)
        words = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, **where)
        self.pipeline = DecisionPipeline(model=model, tokenizer=words, device="cpu")

    def body(self, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        inputs = self.pipeline.preprocess({"state": state, "questions": questions})
        answers = self.pipeline.postprocess(self.pipeline.forward(inputs))
        tokens = sum(prompt["input_ids"].shape[-1] for prompt, _ in inputs["prompts"])
        return {"answers": answers, "usage": {"input_tokens": tokens, "output_tokens": 0}}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    """One thread, and no progress bars."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each kind. Read only."""
    root = tmp_path_factory.mktemp("transformers")
    written = {name: write(root / name) for name, write in KINDS.items()}
    template = tiny_transformers.TOGETHER_TEMPLATE
    return {**written, TOGETHER: tiny_transformers.write_head(root / TOGETHER, template=template)}


@pytest.fixture(scope="module")
def served(folders: dict[str, Path]) -> Callable[[str], Joined]:
    """Each loaded once, when it is first asked for."""
    loaded: dict[str, Joined] = {}
    return lambda name: loaded.get(name) or loaded.setdefault(name, Joined(folders[name]))


@pytest.fixture(scope="module")
def judges(folders: dict[str, Path]) -> Callable[[str], Judge]:
    loaded: dict[str, Judge] = {}
    heads = {*KINDS, TOGETHER} - {"chat", "labels"}
    return lambda name: loaded.get(name) or loaded.setdefault(name, Judge(folders[name], head=name in heads))


# Against transformers.

WORDS = [
    "refund",
    "charged twice",
    "card",
    "café",
    "東京",
    "😀",
    "<|im_end|>",
    "<|mark|>",
    "<|split|>",
    "\n\nA. x",
    "7",
]

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
structured = st.one_of(
    st.fixed_dictionaries({"text": words, "é": st.sampled_from([1.5, None, True, 10**25])}), st.lists(words, max_size=3)
)
texts = st.one_of(words, structured)
maybe = st.one_of(st.none(), texts)
choices = st.dictionaries(words, maybe, min_size=1, max_size=8).map(lambda c: {"type": "choice", "criteria": c})
scores = st.lists(texts, min_size=1, max_size=8).map(lambda c: {"type": "score", "criteria": c})
nouls = st.sampled_from(["none", "both", "true"]).flatmap(
    lambda sides: st.fixed_dictionaries(
        {"none": {}, "both": {"false": maybe, "true": texts}, "true": {"true": texts}}[sides]
    ).map(lambda c: {"type": "noul", "criteria": c or None})
)


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    """1 to 5 questions of all types."""
    asked = {}
    for index in range(draw(st.integers(1, 5))):
        question = draw(st.one_of(choices, scores, nouls))
        asked[f"q{index}"] = {**question, "instructions": draw(words if question["type"] == "noul" else maybe)}
    return asked


states = st.one_of(texts, words.map(lambda text: text * 20))


def check_agreement(ours: dict[str, Any], theirs: dict[str, Any], within: float = 1e-5) -> None:
    """The same answers, the same usage."""
    assert ours["usage"] == theirs["usage"]
    assert list(ours["answers"]) == list(theirs["answers"])
    for name, answer in ours["answers"].items():
        expected = theirs["answers"][name]
        assert answer.keys() == expected.keys()
        assert answer["type"] == expected["type"]
        assert answer.get("legend") == expected.get("legend")
        for field in ("noul", "score", "confidence", "probabilities"):
            if field in answer:
                assert answer[field] == pytest.approx(expected[field], abs=within)
        if "probabilities" in answer:
            assert list(answer["probabilities"]) == list(expected["probabilities"])
            assert abs(math.fsum(answer["probabilities"].values()) - 1.0) <= 1e-12


@pytest.mark.parametrize("name", [*KINDS, TOGETHER])
@settings(max_examples=10, derandomize=True, deadline=None, phases=[Phase.generate])
@given(state=states, asked=questions())
def test_answers_agree_with_the_pipeline(
    served: Callable[[str], Joined], judges: Callable[[str], Judge], name: str, state: Any, asked: dict[str, Any]
) -> None:
    """Generated requests, with what they would rather be than text in them: probabilities, usage and order."""
    check_agreement(served(name).body(state, asked), judges(name).body(state, asked))


# What is computed.

STATE = "The customer was charged twice for one order and asks for the money back. " * 8
ASKED: dict[str, Any] = {
    f"q{index}": {
        "type": "choice",
        "instructions": f"Which team number {index}?",
        "criteria": {"billing": "a", "b": "c"},
    }
    for index in range(8)
}


def test_what_prompts_share_is_read_once(served: Callable[[str], Joined]) -> None:
    """8 questions about one state cost its tokens and their own, and not 8 times its tokens."""
    joined = served("chat")
    singles = [joined.decide(STATE, {name: question}).input_tokens for name, question in ASKED.items()]
    tokens = joined.decide(STATE, ASKED).input_tokens
    assert joined.output["execution"] == "shared"
    assert tokens == sum(singles)
    assert joined.output["processed"] < singles[0] + 8 * 60 < tokens / 2


def test_a_prompt_does_not_make_the_vocabulary_anew(
    served: Callable[[str], Joined], folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes longer than a short prompt of a small model; the ids are those of a tokenizer of its own."""
    joined = served("chat")
    questions = {"q0": ASKED["q0"]}
    words = transformers.AutoTokenizer.from_pretrained(folders["chat"], local_files_only=True)
    prepare = transformers.decision.DecisionConfig().prepare_inputs
    ((expected, _),) = prepare({"state": "charged <|mark|> twice", "questions": questions}, words)
    model: Any = joined.executor._model

    def made(*arguments: object) -> None:
        raise AssertionError("the vocabulary was made")

    monkeypatch.setattr(type(model._tokenizer), "get_vocab", made)
    (prompt,) = model.prepare("charged <|mark|> twice", questions)
    assert prompt.row.tokens.tolist() == expected["input_ids"][0].tolist()


def test_only_label_rows_are_projected(served: Callable[[str], Joined], folders: dict[str, Path]) -> None:
    """One position per question, and of the head the rows of A to Z, Yes and No; the rest of it is gone."""
    joined = served("chat")
    joined.decide(STATE, ASKED)
    assert joined.facts["label_rows"] == 28
    assert joined.output["projected"] == 8 * 28
    head = joined.executor._model._model.get_output_embeddings()  # type: ignore[union-attr]
    assert tuple(head.weight.shape) == (28, tiny_transformers.SIZES["hidden_size"])


def test_execution_rows_gives_the_same_answers(served: Callable[[str], Joined], folders: dict[str, Path]) -> None:
    """Every prompt alone, as transformers reads them: all of their tokens, and answers within 1e-6."""
    alone, shared = Joined(folders["chat"], execution="rows"), served("chat")
    theirs = alone.body(STATE, ASKED)
    assert alone.output["execution"] == "rows"
    assert alone.output["processed"] == theirs["usage"]["input_tokens"]
    for name, answer in shared.body(STATE, ASKED)["answers"].items():
        assert answer["probabilities"] == pytest.approx(theirs["answers"][name]["probabilities"], abs=1e-6)
    assert alone.facts["identity"] != shared.facts["identity"]


@pytest.mark.parametrize("name", KINDS)
def test_questions_do_not_influence_each_other(served: Callable[[str], Joined], name: str) -> None:
    """Asked alone, among others, in another order or under another name, a question has the same answer."""
    joined = served(name)
    asked = {
        "a": {"type": "noul", "instructions": "Money back?"},
        "b": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": None, "login": "x " * 30}},
        "c": {"type": "score", "instructions": "How bad?", "criteria": ["low", "middle", "high"]},
        "d": {"type": "noul", "instructions": "Is this spam?"},
    }
    whole = joined.body(STATE, asked)["answers"]
    turned = joined.body(STATE, {f"{key}2": asked[key] for key in reversed(asked)})["answers"]
    for key, question in asked.items():
        for other in (joined.body(STATE, {key: question})["answers"][key], turned[f"{key}2"]):
            for field in ("noul", "score", "probabilities"):
                if field in other:
                    assert other[field] == pytest.approx(whole[key][field], abs=1e-6)


def test_a_single_option_is_answered_without_the_model(served: Callable[[str], Joined]) -> None:
    """Probability 1; its prompt counts in the usage, as in transformers, and is not read."""
    joined = served("chat")
    body = joined.body(STATE, {"q": {"type": "choice", "criteria": {"only": None}}})
    assert body["answers"]["q"]["probabilities"] == {"only": 1.0}
    assert body["usage"]["input_tokens"] > 100
    assert joined.output["processed"] == 0


def test_a_model_that_looks_ahead_shares_nothing(tmp_path: Path) -> None:
    """Its tokens see what comes after them, so a prefix is not the same in two prompts."""
    folder = tiny_transformers.write_shipped(tmp_path / "noncausal")
    settings_file = folder / "decision_config.json"
    noncausal = {**json.loads(settings_file.read_text()), "attention_mode": "noncausal_full_attention"}
    settings_file.write_text(json.dumps(noncausal))
    joined, judge = Joined(folder), Judge(folder, head=True)
    assert joined.facts["execution"] == "rows"
    check_agreement(joined.body(STATE, ASKED), judge.body(STATE, ASKED))
    with pytest.raises(ConfigurationError, match="execution 'shared'"):
        Joined(folder, execution="shared")


def test_logits_are_capped_and_scaled_as_in_the_whole_model(tmp_path: Path) -> None:
    """What a model does to its logits besides the head is done to the label rows, too."""
    folder = tmp_path / "capped"
    vocabulary = len(tiny_transformers.tokenizer(folder, chat_template=tiny_transformers.CHAT_TEMPLATE))
    sizes = {**tiny_transformers.SIZES, "vocab_size": vocabulary, "head_dim": 16, "sliding_window": 64}
    config = transformers.Gemma2Config(**sizes, final_logit_softcapping=0.5, query_pre_attn_scalar=16)
    tiny_transformers.save(transformers.Gemma2ForCausalLM(config), folder, seed=4)
    joined, judge = Joined(folder), Judge(folder, head=False)
    assert (joined.facts["label_rows"], joined.facts["execution"]) == (28, "shared")
    check_agreement(joined.body(STATE, ASKED), judge.body(STATE, ASKED))


# What is refused.

NOUL = {"q": {"type": "noul", "instructions": "Money back?"}}


def test_more_options_than_labels(served: Callable[[str], Joined]) -> None:
    """The model has a letter for each option, up to Z; the message has both numbers, and the place."""
    wide = {"type": "choice", "criteria": {f"o{index}": None for index in range(27)}}
    error = served("chat").refused("s", {**NOUL, "wide": wide})
    assert (error.status, error.where) == (422, ("questions", "wide"))
    assert "question 'wide'" in error.message
    assert "26" in error.message
    assert "27" in error.message


def test_more_options_than_the_head_has_rows(served: Callable[[str], Joined]) -> None:
    """16 rows are left for the options of a choice."""
    wide = {"type": "choice", "criteria": {f"o{index}": None for index in range(17)}}
    error = served("head").refused("s", {"wide": wide})
    assert (error.status, "at most 16" in error.message) == (422, True)


def test_a_prompt_above_the_limit(folders: dict[str, Path]) -> None:
    """400 `max_tokens_exceeded` with both numbers, and nothing is cut."""
    joined = Joined(folders["chat"], max_tokens=200)
    assert joined.facts["limits"]["prompt_tokens"] == 200  # type: ignore[index]
    error = joined.refused(STATE * 2, NOUL)
    assert (error.status, error.code, error.where) == (400, "max_tokens_exceeded", ("questions", "q"))
    assert "question 'q'" in error.message
    assert "the limit is 200" in error.message


def test_prompts_above_the_limit_of_all(served: Callable[[str], Joined], monkeypatch: pytest.MonkeyPatch) -> None:
    """413, found while they are written."""
    monkeypatch.setattr("protocol.contracts.transformers.MAX_TOKENS", 1000)
    error = served("chat").refused(STATE, ASKED)
    assert (error.status, error.code) == (413, "request_too_large")
    assert "1000 tokens" in error.message


def test_a_document_above_the_limit(served: Callable[[str], Joined]) -> None:
    """413 in the front, before the host has it."""
    with pytest.raises(RequestTooLarge, match=str(MAX_DOCUMENT_BYTES)):
        served("chat").decide("x" * MAX_DOCUMENT_BYTES, NOUL)


def test_what_a_template_has_no_words_for(tmp_path: Path) -> None:
    """400 with the template's own words, cut, and no 500."""
    template = (
        "{{ raise_exception('no arrays' ~ 'x' * 999) if state is not string }}{{ question.instructions }}<|mark|>"
    )
    folder = tiny_transformers.write_head(tmp_path / "picky", template="{{ state }}" + template)
    joined = Joined(folder)
    error = joined.refused(["s"], NOUL)
    assert (error.status, error.where) == (400, ("questions", "q"))
    assert "no arrays" in error.message
    assert len(error.message) < 300


def test_cancelled_between_prompts_and_passes(served: Callable[[str], Joined]) -> None:
    """Nobody waits: the next prompt is not written, the next pass not made."""
    joined = served("chat")
    joined.decide(STATE, ASKED)
    prepared = joined.processor.prepare(parse_request(parse(json.dumps({"state": STATE, "questions": ASKED}).encode())))
    for looks in (0, 3, 8, 9):
        with pytest.raises(Abandoned):
            joined.executor.execute(prepared.units[0], FakeCall(looks))
    joined.executor.execute(prepared.units[0], FakeCall(10))


def test_numbers_that_are_none(tmp_path: Path) -> None:
    """A weight that is NaN is found at the warm-up; one that becomes NaN later ends the call."""
    joined = Joined(tiny_transformers.write_chat(tmp_path / "nan"))
    head = joined.executor._model._model.get_output_embeddings()  # type: ignore[union-attr]
    with torch.inference_mode():
        head.weight[0, 0] = math.nan
    with pytest.raises(NonFinite):
        joined.decide("s", ASKED)


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'{"state":"s"}', b'{"state":"s","questions":[]}', b'{"state":"s","questions":[{"type":"noul"}]}'],
)
def test_a_document_that_is_no_request(served: Callable[[str], Joined], document: bytes) -> None:
    """The front's mistake, not the client's: the call fails, the host goes on."""
    with pytest.raises(Malformed):
        served("chat").executor.execute(TextRequest(document), FakeCall())


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "int8"}, "'dtype'"),
    ({"execution": "packed"}, "'execution'"),
    ({"device": ""}, "'device'"),
    ({"max_tokens": 0}, "'max_tokens'"),
    ({"max_tokens": MAX_TOKENS + 1}, "'max_tokens'"),
    ({"max_tokens": True}, "'max_tokens'"),
    ({"truncate": True}, "'truncate'"),
]


@pytest.mark.parametrize(("options", "named"), BAD_OPTIONS, ids=lambda value: str(value))
def test_options_are_checked(options: dict[str, Any], named: str) -> None:
    """Each by the half that knows it, with its name."""
    with pytest.raises(ConfigurationError, match=named):
        TransformersExecutor("path", options)


def test_options_of_the_front() -> None:
    """Both halves check by the one table."""
    assert TransformersProcessor.OPTIONS is TransformersExecutor.OPTIONS
    with pytest.raises(OptionError):
        TransformersProcessor({}, {"max_tokens": "many"})


def test_a_limit_above_the_model(folders: dict[str, Path]) -> None:
    """Positions that the model has never seen are no positions."""
    with pytest.raises(ConfigurationError, match="at most 4096"):
        Joined(folders["chat"], max_tokens=5000)


# What the front makes of outputs.

OUTPUTS: list[Any] = [
    {},
    {"scores": [0.0, 1.0], "counts": [2], "tokens": 3},
    {"scores": np.zeros(2), "counts": [2], "tokens": -1},
    {"scores": np.zeros(2), "counts": [2, 0], "tokens": 3},
    {"scores": np.zeros(3), "counts": [2], "tokens": 3},
    {"scores": np.zeros(3), "counts": [3], "tokens": 3},
    {"scores": np.array([0.0, math.nan]), "counts": [2], "tokens": 3},
]


@pytest.mark.parametrize("output", OUTPUTS, ids=range(len(OUTPUTS)))
def test_an_output_that_is_no_answer(output: Any) -> None:
    """An internal error, whatever the host has sent."""
    processor = TransformersProcessor({}, {})
    prepared: Prepared = processor.prepare(parse_request({"state": "s", "questions": NOUL}))
    with pytest.raises(InternalError):
        processor.finish(prepared, [output])


def test_cost_is_bytes() -> None:
    """UTF-8 bytes of what is sent, and integers beyond 64 bits pass."""
    prepared = TransformersProcessor({}, {}).prepare(parse_request({"state": ["é", 10**30], "questions": NOUL}))
    (unit,) = prepared.units
    assert isinstance(unit, TextRequest)
    assert prepared.cost == len(unit.document)
    assert json.loads(unit.document)["state"] == ["é", 10**30]


# GGUF.


def test_a_gguf_file(tmp_path: Path) -> None:
    """Read by transformers with its tokenizer and its chat template, and answered as its pipeline answers."""
    pytest.importorskip("gguf", reason="GGUF files need framehost[gguf]")
    file = tiny_transformers.write_gguf(tmp_path / "tiny.gguf")
    joined = Joined(file)
    assert (joined.facts["name"], joined.facts["kind"]) == ("tiny.gguf", "chat")
    assert (joined.facts["execution"], joined.facts["label_rows"]) == ("shared", 28)
    judge = Judge(tmp_path, head=False, gguf_file="tiny.gguf")
    check_agreement(joined.body(STATE, ASKED), judge.body(STATE, ASKED))


# A real one.

FOLDER = os.environ.get("FRAMEHOST_TRANSFORMERS")


@pytest.mark.timeout(1200)
@pytest.mark.skipif(not FOLDER, reason="FRAMEHOST_TRANSFORMERS does not name a checkpoint")
def test_a_real_checkpoint_answers_as_in_the_pipeline() -> None:
    """Whatever its folder or its file holds: in float32, within 1e-4, every type of question that it has labels for."""
    path = Path(str(FOLDER))
    joined = Joined(path, dtype="float32")
    where = {"gguf_file": path.name} if path.is_file() else {}
    judge = Judge(path.parent if where else path, head=joined.facts["kind"] == "head", **where)
    asked: dict[str, dict[str, Any]] = {
        "refund": {"type": "noul", "instructions": "Is the money asked back?"},
        "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
        "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", "some"]},
    }
    limits = joined.facts["limits"]["options"]  # type: ignore[index]
    asked = {name: fields for name, fields in asked.items() if limits[fields["type"]] > 1}
    check_agreement(joined.body(STATE, asked), judge.body(STATE, asked), within=1e-4)


# Trying what a model can do.


def refusing(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], bool], by: float) -> None:
    """Every forward whose cache is `wrong` gives scores that are off by `by` at the first label."""
    forward = Model._forward

    def off(self: Model, tokens: Any, wanted: Any, cache: Any, layout: Any) -> Any:
        numbers = forward(self, tokens, wanted, cache, layout)
        return numbers + by * torch.eye(1, numbers.shape[-1])[0] if wrong(layout or cache) else numbers

    monkeypatch.setattr(Model, "_forward", off)


def test_a_model_that_answers_otherwise_when_it_shares_is_read_alone(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing is tried first, then forks, then nothing is shared; who insists is refused."""
    with monkeypatch.context() as patch:
        refusing(patch, lambda given: isinstance(given, dict), 0.01)
        forked = Joined(folders["chat"])
        assert (forked.facts["execution"], forked.executor._model._way) == ("shared", "forked")  # type: ignore[union-attr]
    refusing(monkeypatch, lambda given: given is not None, 0.01)
    assert Joined(folders["chat"]).facts["execution"] == "rows"
    with pytest.raises(ConfigurationError, match="'shared'"):
        Joined(folders["chat"], execution="shared")


def test_a_head_that_cannot_be_cut_stays_whole(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that gives other scores with the labels' rows alone keeps all of them, and the answers are the same."""
    cut = Joined(folders["chat"]).body(STATE, ASKED)

    class Strange(torch.nn.Linear):  # type: ignore[misc, name-defined]
        """A head that adds something to the 28 rows of labels, and to no others."""

        def forward(self, hidden: Any) -> Any:
            return super().forward(hidden) + (torch.arange(28) if self.out_features == 28 else 0)

    with monkeypatch.context() as patch:
        patch.setattr(torch.nn, "Linear", Strange)
        joined = Joined(folders["chat"])
    assert joined.facts["label_rows"] is None
    check_agreement(joined.body(STATE, ASKED), cut)
    assert joined.output["projected"] == 8 * joined.executor._model.vocabulary  # type: ignore[union-attr]


def test_weights_that_are_missing_refuse_the_start(folders: dict[str, Path], tmp_path: Path) -> None:
    """They would be random."""
    from safetensors.torch import load_file, save_file

    for name, part in (("labels", "layers.1.mlp.up"), ("head", "proj.bias")):
        copy = tmp_path / name
        shutil.copytree(folders[name], copy)
        weights = copy / "model.safetensors"
        tensors = {key: tensor for key, tensor in load_file(weights).items() if part not in key}
        save_file(tensors, weights, metadata={"format": "pt"})
        with pytest.raises(ConfigurationError, match=rf"the weights lack \S*{part}"):
            Joined(copy)


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("no_such_model", "transformers cannot load it: .*no_such_model"),
        ("t5", "no decision model and no causal model of the type 't5'"),
        ("vit", "no decision model and no causal model of the type 'vit'"),
    ],
)
def test_an_architecture_that_cannot_be_asked(
    folders: dict[str, Path], tmp_path: Path, model_type: str, words: str
) -> None:
    """One that transformers lacks or has for something else: a mistake of the configuration, no restart would help."""
    copy = tmp_path / "other"
    shutil.copytree(folders["chat"], copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model_type": model_type}))
    with pytest.raises(ConfigurationError, match=words):
        Joined(copy)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # which peft asks for
def test_the_adapter_of_a_decision_config(folders: dict[str, Path], tmp_path: Path) -> None:
    """A LoRA in a folder of the checkpoint is a part of the model, as in the pipeline, and of its identity."""
    peft = pytest.importorskip("peft", reason="adapters need peft")
    copy = tmp_path / "adapted"
    shutil.copytree(folders["labels"], copy)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(copy, dtype="float32")
    lora = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    lora.save_pretrained(copy / "lora")
    (copy / "decision.json").write_text(json.dumps({**tiny_transformers.DECISION, "adapter": "lora"}))
    joined = Joined(copy)
    assert "lora/adapter_model.safetensors" in joined.facts["files"]  # type: ignore[operator]
    body = joined.body(STATE, ASKED)
    check_agreement(body, Judge(copy, head=False).body(STATE, ASKED))
    plain = Joined(folders["labels"]).body(STATE, ASKED)["answers"]
    assert max(abs(body["answers"][key]["confidence"] - plain[key]["confidence"]) for key in plain) > 1e-3
