"""The host's half, against the public code's arithmetic: transformers for the backbone, PEFT for the adapter, and the
head written once more in plain torch, on tiny checkpoints. What is wrong with a folder is told by file and key."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor_host.inspection import detect, examine
from frontend.families.kev.processor import KevProcessor
from frontend.families.kev.profile import KevNative
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest
from tests.helpers import tiny_kev
from tests.helpers.calls import FakeCall

for needed in ("torch", "transformers", "tokenizers", "safetensors"):
    pytest.importorskip(needed, reason="the kev family needs framehost[torch]")

import torch  # noqa: E402

from executor_host.backbones import lora  # noqa: E402
from executor_host.errors import ConfigurationError, NonFinite  # noqa: E402
from executor_host.executors.kev import checkpoint as folders  # noqa: E402
from executor_host.executors.kev.executor import KevExecutor  # noqa: E402


def silent(fraction: float, note: str) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_kev.write(tmp_path_factory.mktemp("kev") / "tiny")


def loaded(folder: Path, **options: Any) -> KevExecutor:
    executor = KevExecutor(str(folder), {"device": "cpu", "base": str(folder / "base"), **options})
    executor.load(silent)
    return executor


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def executor(folder: Path) -> KevExecutor:
    made = loaded(folder)
    made.warm_up()
    return made


@pytest.fixture(scope="module")
def profile(folder: Path) -> KevNative:
    return KevNative(KevProcessor({}, {"base": str(folder / "base")}, str(folder)))


class Reference:
    """The rows of a request, each by itself and whole, through the libraries' own code."""

    def __init__(self, folder: Path) -> None:
        peft = pytest.importorskip("peft")
        from transformers import Qwen3_5TextModel

        base = Qwen3_5TextModel.from_pretrained(folder / "base", dtype=torch.float32, attn_implementation="eager")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library's own, about a name that transformers has given up
            self.model = peft.PeftModel.from_pretrained(base, folder).merge_and_unload().eval()
        self.state = torch.load(folder / "head.pt", weights_only=True)

    @torch.no_grad()
    def logits(self, request: MarkedRowsRequest) -> list[list[float]]:
        """Of every question, divided by the temperature."""
        head, found, start = self.state["head"], [], 0
        for row, length, count in zip(request.tokens, request.lengths.tolist(), request.counts.tolist(), strict=True):
            ids = torch.tensor(row[:length].astype(np.int64))[None]
            hidden = self.model(input_ids=ids).last_hidden_state[0].float()
            marks = torch.tensor(request.markers[start : start + count].astype(np.int64))
            keys = hidden[marks] @ head["k.weight"].T + head["k.bias"]
            query = head["q.weight"] @ hidden[-1] + head["q.bias"]
            found.append(((keys * query).sum(-1) / tiny_kev.DIM**0.5 / self.state["temperature"]).tolist())
            start += count
        return found


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def request(profile: KevNative, state: Any, questions: Any) -> MarkedRowsRequest:
    (unit,) = profile.prepare(json.dumps({"state": state, "questions": questions}).encode()).units
    assert isinstance(unit, MarkedRowsRequest)
    return MarkedRowsRequest.from_wire(unit.to_wire())


def per_question(output: dict[str, Any]) -> list[list[float]]:
    ends = np.cumsum(output["counts"])
    return [part.tolist() for part in np.split(output["logits"], ends[:-1])]


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["The customer was charged twice ", "<|box_end|>", "<|fim_suffix|> ", "退款", "\n\n", "<think>"]),
)
LONG = st.tuples(TEXT, st.sampled_from([1, 20, 60])).map(lambda pair: pair[0] * pair[1])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def question(draw: st.DrawFn) -> dict[str, Any]:
    """One of any type, some with many options."""
    kind = draw(st.sampled_from(["choice", "many", "score", "noul"]))
    instructions = draw(st.one_of(LONG, JSON))
    if kind == "many":
        criteria: Any = {f"{index}": draw(TEXT) for index in range(draw(st.sampled_from([26, 40])))}
    elif kind == "choice":
        criteria = draw(st.dictionaries(TEXT, JSON, min_size=1, max_size=4))
    elif kind == "score":
        criteria = draw(st.lists(JSON, min_size=2, max_size=5))
    else:
        criteria = draw(
            st.one_of(st.none(), st.dictionaries(st.sampled_from(["true", "false", "x"]), JSON, max_size=3))
        )
    return {"type": "choice" if kind == "many" else kind, "instructions": instructions, "criteria": criteria}


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(state=st.one_of(LONG, JSON), questions=st.dictionaries(TEXT, question(), min_size=1, max_size=3))
def test_generated_requests(
    executor: KevExecutor, profile: KevNative, reference: Reference, state: Any, questions: Any
) -> None:
    """Within 1e-5 of every row read alone, whole, and without a mask of ours."""
    unit = request(profile, state, questions)
    for mine, theirs in zip(per_question(executor.execute(unit, FakeCall())), reference.logits(unit), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


STATE = {"text": "The customer was charged twice for one order and asks for the money back. " * 12}
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large?", "criteria": ["none", "some", "much"]},
}


def test_the_state_is_read_once(executor: KevExecutor, profile: KevNative) -> None:
    """For all questions; each answer is what it is alone."""
    unit = request(profile, STATE, QUESTIONS)
    output = executor.execute(unit, FakeCall())
    state = int(np.flatnonzero(unit.tokens[0] == executor._checkpoint.delimiters.question)[0])  # type: ignore[union-attr]
    assert output["processed"] <= int(unit.lengths.sum()) - 2 * state
    for found, (name, fields) in zip(per_question(output), QUESTIONS.items(), strict=True):
        (alone,) = per_question(executor.execute(request(profile, STATE, {name: fields}), FakeCall()))
        assert found == pytest.approx(alone, abs=1e-5)


def test_equal_options_before_a_question_are_near_ties(
    executor: KevExecutor, profile: KevNative, reference: Reference
) -> None:
    """Options of the same text differ by their place alone: whoever wins is who wins in the reference."""
    many = {"type": "score", "instructions": "Which?", "criteria": ["same"] * 12}
    unit = request(profile, "s", {"q": many})
    (mine,), (theirs,) = per_question(executor.execute(unit, FakeCall())), reference.logits(unit)
    assert mine == pytest.approx(theirs, abs=1e-5)
    assert max(theirs) - sorted(theirs)[-2] > 1e-5, "the seed makes a tie that rounding decides"
    assert mine.index(max(mine)) == theirs.index(max(theirs))


def test_a_kept_state_gives_the_same_bits(folder: Path, executor: KevExecutor, profile: KevNative) -> None:
    """Hit or miss; and, but for rounding, what is said without keeping."""
    keeping = loaded(folder, prefix_cache_mb=64, prefix_segment=32)
    unit = request(profile, STATE, QUESTIONS)
    miss, hit = (keeping.execute(unit, FakeCall()) for _ in range(2))
    assert miss["logits"].tobytes() == hit["logits"].tobytes()
    assert hit["logits"] == pytest.approx(executor.execute(unit, FakeCall())["logits"], abs=1e-5)
    assert keeping.load(silent)["identity"].endswith("/kept:32")  # type: ignore[attr-defined]
    keeping.close()


def test_merged_is_what_peft_merges(folder: Path, reference: Reference) -> None:
    """Bit for bit in float32, and in bfloat16 the same sum rounded once."""
    merged = dict(reference.model.named_parameters())
    for dtype in ("float32", "bfloat16"):
        executor = loaded(folder, dtype=dtype)
        assert executor._model is not None
        for name, parameter in executor._model._text.named_parameters():
            assert torch.equal(parameter, merged[name].to(parameter.dtype)), name
        executor.close()


def test_an_adapter_of_some_projections(folder: Path, tmp_path: Path) -> None:
    """What `target_modules` does not name has none; what it names has all of its tensors."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    keep_only(copy, ["q_proj", "v_proj"])
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    assert lora.read(copy, kinds).modules == ("layers.3.self_attn.q_proj", "layers.3.self_attn.v_proj")


def keep_only(folder: Path, targets: list[str]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "adapter_model.safetensors")
    kept = {name: value for name, value in tensors.items() if name.split(".")[-3] in targets}
    save_file(kept, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    edited("adapter_config.json", target_modules=targets)(folder)


def test_a_merged_checkpoint(folder: Path, tmp_path: Path, profile: KevNative) -> None:
    """Everything in one folder, no adapter; both halves and the check read it."""
    whole = tiny_kev.unmerged(folder, tmp_path / "whole")
    made = KevExecutor(str(whole), {"device": "cpu"})
    facts = made.load(silent)
    assert (facts["layout"], facts["merged_modules"]) == ("merged", 0)
    processor = KevProcessor(facts, {}, str(whole))
    unit = request(KevNative(processor), STATE, QUESTIONS)
    assert unit.tokens.tolist() == request(profile, STATE, QUESTIONS).tokens.tolist()
    assert np.isfinite(made.execute(unit, FakeCall())["logits"]).all()
    assert detect(whole) == "kev"
    findings = examine(str(whole), None, silent)
    assert findings.problem == ""
    assert findings.lines[1] == "a head of 32 values, in head.pt"
    made.close()


def test_facts_and_check(folder: Path, executor: KevExecutor) -> None:
    """What `head.pt` says; and of the LoRA checkpoint what can be said without its base model."""
    facts = loaded(folder).load(silent)
    assert facts["temperature"] == tiny_kev.TEMPERATURE
    assert (facts["model_id"], facts["base_revision"]) == (tiny_kev.BASE, "9a45d25e")
    assert (facts["layout"], facts["merged_modules"]) == ("lora", 31)
    assert facts["limits"] == {"row_tokens": 8192, "rows": 4096, "markers": 65536, "tokens": 16777216}
    assert detect(folder) == "kev"
    findings = examine(str(folder), None, silent)
    assert findings.problem == ""
    assert findings.lines[0].startswith("LoRA checkpoint of rank 4, scaled by 2, ")
    assert repr(executor).startswith("<KevExecutor <KevModel on cpu")


def broken_request(unit: MarkedRowsRequest, **fields: Any) -> MarkedRowsRequest:
    return MarkedRowsRequest(**{**unit.to_wire(), **fields})


def test_what_is_no_request_for_this_model(executor: KevExecutor, profile: KevNative) -> None:
    """A token it does not know, a mark at the end, marks that do not ascend, a row that is too long."""
    unit = request(profile, "s", {"q": QUESTIONS["team"]})
    last = int(unit.lengths[0]) - 1
    cases = [
        (broken_request(unit, tokens=unit.tokens + 100_000), "a token is below"),
        (broken_request(unit, markers=np.array([1, last], np.int32)), "ascend"),
        (broken_request(unit, markers=unit.markers[::-1].copy()), "ascend"),
        (request(profile, "x y " * 1500, {"q": QUESTIONS["team"]}), "a row has at most 64 tokens"),
    ]
    short = KevExecutor(None, {"max_length": 64})
    for payload, message in cases:
        maker = executor if "at most" not in message else short
        assert executor._checkpoint is not None and executor._model is not None
        with pytest.raises(Malformed, match=message):
            maker.accept(payload, executor._checkpoint, executor._model, lambda: None)


def test_numbers_that_are_none(executor: KevExecutor, profile: KevNative) -> None:
    """Are no answer."""
    unit = request(profile, "s", {"q": QUESTIONS["team"]})
    assert executor._model is not None
    with pytest.raises(NonFinite):
        executor.outputs(unit, (np.array([np.nan, 0.0], np.float32), 9), executor._model)


def edited(name: str, **fields: object) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return break_it


def head(**fields: object) -> Callable[[Path], None]:
    """Another `head.pt`; None takes a field away."""

    def break_it(folder: Path) -> None:
        state = torch.load(folder / "head.pt", weights_only=True) | fields
        torch.save({name: value for name, value in state.items() if value is not None}, folder / "head.pt")

    return break_it


def tensor(name: str, value: Any) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        state = torch.load(folder / "head.pt", weights_only=True)
        state["head"][name] = value
        torch.save(state, folder / "head.pt")

    return break_it


def adapter(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "adapter_model.safetensors")
        change(tensors)
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    return break_it


class Evil:
    """A pickle that would run something."""

    def __reduce__(self) -> Any:
        return (print, ("run",))


KEY = "base_model.model.layers.0.linear_attn.in_proj_z.lora_A.weight"
CONFIG = "adapter_config.json"
MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no head": (lambda folder: (folder / "head.pt").unlink(), r"head\.pt is missing"),
    "no training": (lambda folder: (folder / "training_config.json").unlink(), r"training_config\.json is missing"),
    "training of another form": (edited("training_config.json", args=1), r"an object with head_dim is expected"),
    "another size of the head": (edited("training_config.json", args={"head_dim": 64}), r"head_dim is 32, not 64"),
    "a head that is none": (lambda folder: (folder / "head.pt").write_bytes(b"PK"), r"head\.pt cannot be read"),
    "a head that runs": (
        lambda folder: (folder / "head.pt").write_bytes(pickle.dumps({"head": Evil()}, protocol=2)),
        r"head\.pt cannot be read as tensors",
    ),
    "no tensors": (head(head=None), r"an object with a head"),
    "isolated options": (head(option_isolation=True), r"option_isolation is True"),
    "trained embeddings": (head(special_embeddings=True), r"special_embeddings is True"),
    "no base": (head(base=None), r"base is None"),
    "a temperature of 0": (head(temperature=0.0), r"temperature is 0\.0; a finite number above 0"),
    "a temperature that is none": (head(temperature=float("nan")), r"temperature is nan"),
    "a tensor more": (tensor("v.weight", torch.ones(1)), r"the head has \["),
    "a tensor of another shape": (tensor("q.bias", torch.ones(3)), r"q\.bias is \[3\]; \[32\] is needed"),
    "a tensor of another type": (tensor("q.bias", torch.ones(32).double()), r"q\.bias is not finite float32"),
    "a number that is none": (tensor("k.bias", torch.full((32,), torch.inf)), r"k\.bias is not finite float32"),
    "no adapter": (
        lambda folder: (folder / "adapter_model.safetensors").unlink(),
        r"adapter_model\.safetensors is miss",
    ),
    "another adapter": (edited(CONFIG, peft_type="IA3"), r"peft_type is 'IA3', not 'LORA'"),
    "an adapter with biases": (edited(CONFIG, bias="all"), r"bias is 'all', not 'none'"),
    "another scaling": (edited(CONFIG, use_rslora=True), r"use_rslora is True"),
    "trained tokens": (edited(CONFIG, trainable_token_indices={"embed_tokens": [1]}), r"trainable_token_indices is"),
    "a rank": (edited(CONFIG, r=8), r"is \[4, \d+\], and adapter_config\.json: r is 8"),
    "a pattern": (edited(CONFIG, target_modules="all-linear"), r"target_modules is 'all-linear'; a list of names"),
    "no such projection": (edited(CONFIG, target_modules=["q_proj", "lm_head"]), r"has 'lm_head', which is no"),
    "a projection less": (edited(CONFIG, target_modules=["q_proj"]), r"has no place in this model"),
    "an adapter tensor less": (
        adapter(lambda tensors: tensors.pop(KEY)),
        r"lora_A of layers\.0\.linear_attn\.in_proj_z",
    ),
    "an adapter tensor more": (
        adapter(lambda tensors: tensors.update({"visual.lora_A.weight": torch.ones(4, 4)})),
        r"visual\.lora_A\.weight has no place",
    ),
    "two ways of naming": (
        adapter(lambda tensors: tensors.update({KEY.replace("model.model", "model.model.model"): tensors.pop(KEY)})),
        r"named in several ways",
    ),
    "an adapter that does not fit": (
        adapter(lambda tensors: tensors.update({KEY: torch.ones(4, 3)})),
        r"layers\.0\.linear_attn\.in_proj_z is \[32, 4\] x \[4, 3\] for a weight \[32, 64\]",
    ),
    "an adapter that is none": (
        adapter(lambda tensors: tensors.update({KEY: torch.full((4, 64), torch.inf)})),
        r"in_proj_z is not finite when it is merged",
    ),
    "no tokenizer": (lambda folder: (folder / "base" / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    "no delimiters": (
        lambda folder: (folder / "base" / "tokenizer.json").write_text(
            (folder / "base" / "tokenizer.json").read_text().replace("<|box_end|>", "<|x|>")
        ),
        r"does not have <\|box_end\|> as one token",
    ),
    "another architecture": (
        edited("base/config.json", model_type="qwen3", text_config=None),
        r"model_type is 'qwen3'",
    ),
    "no weights": (lambda folder: (folder / "base" / "model.safetensors").unlink(), r"model\.safetensors is missing"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_said_with_file_and_key(folder: Path, tmp_path: Path, mistake: str) -> None:
    """Before anybody is answered, and mostly before anything is loaded."""
    break_it, message = MISTAKES[mistake]
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    break_it(copy)
    with pytest.raises(ConfigurationError) as caught:
        loaded(copy)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_where_the_base_model_is(folder: Path, tmp_path: Path) -> None:
    """A LoRA checkpoint needs one, and a merged one has none."""
    with pytest.raises(ConfigurationError, match="the option 'base' names its base model's folder"):
        folders.verify(str(folder), base=None, progress=silent)
    with pytest.raises(ConfigurationError, match=r"config\.json is missing"):
        folders.verify(str(folder), base=str(tmp_path), progress=silent)
    whole = tiny_kev.unmerged(folder, tmp_path / "whole")
    with pytest.raises(ConfigurationError, match="the option 'base' is for LoRA checkpoints"):
        folders.verify(str(whole), base=str(folder / "base"), progress=silent)
