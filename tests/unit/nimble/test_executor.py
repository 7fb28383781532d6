"""The host's half, against the family's contract written once more: transformers for the backbone, PEFT for the
adapter, prompts and codes of their own (reference.py), on tiny checkpoints. What is wrong is told by file and key."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from executor_host.inspection import detect, examine
from frontend.families.nimble.processor import NimbleProcessor
from frontend.families.nimble.profile import NimbleNative
from frontend.http.systemone import parse_request
from protocol.contracts import nimble as contract
from protocol.errors import Malformed
from protocol.payloads import RowsRequest
from tests.helpers import tiny_nimble
from tests.helpers.calls import FakeCall
from tests.unit.nimble.helpers import QUESTIONS
from tests.unit.nimble.reference import Reference, prompts

for needed in ("torch", "transformers", "tokenizers", "safetensors", "peft"):
    pytest.importorskip(needed, reason="the nimble family needs framehost[torch]")

import torch  # noqa: E402

from executor_host.errors import ConfigurationError, NonFinite  # noqa: E402
from executor_host.executors.nimble import checkpoint as folders  # noqa: E402
from executor_host.executors.nimble import executor as executors  # noqa: E402
from executor_host.executors.nimble.executor import NimbleExecutor  # noqa: E402


def silent(fraction: float, note: str) -> None:
    """Nobody watches."""


def loaded(folder: Path, **options: Any) -> NimbleExecutor:
    executor = NimbleExecutor(str(folder), {"device": "cpu", "base": str(folder / "base"), **options})
    executor.load(silent)
    return executor


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_nimble.write(tmp_path_factory.mktemp("nimble") / "tiny")


@pytest.fixture(scope="module")
def facts(folder: Path) -> dict[str, Any]:
    return dict(NimbleExecutor(str(folder), {"device": "cpu", "base": str(folder / "base")}).load(silent))


@pytest.fixture(scope="module")
def executor(folder: Path) -> Iterator[NimbleExecutor]:
    made = loaded(folder)
    made.warm_up()
    yield made
    made.close()


@pytest.fixture(scope="module")
def processor(folder: Path, facts: dict[str, Any]) -> NimbleProcessor:
    return NimbleProcessor(facts, {}, str(folder))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder, folder / "base")


def request(processor: NimbleProcessor, state: Any, questions: Any) -> RowsRequest:
    (unit,) = processor.prepare(parse_request({"state": state, "questions": questions})).units
    assert isinstance(unit, RowsRequest)
    return RowsRequest.from_wire(unit.to_wire())


def per_question(output: dict[str, Any]) -> list[list[float]]:
    ends = np.cumsum(output["counts"])
    return [part.tolist() for part in np.split(output["logits"], ends[:-1])]


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda text: bool(text.strip())),
    st.sampled_from(
        ["The customer was charged twice", "<|im_end|>", "<think>", "退款", "a\n\nRequested field: b", '"']
    ),
)
LONG = st.tuples(TEXT, st.sampled_from([1, 8, 30])).map(lambda pair: pair[0] * pair[1])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
STRUCTURED = st.one_of(st.lists(JSON, min_size=1, max_size=3), st.dictionaries(TEXT, JSON, min_size=1, max_size=3))
WORDS = st.one_of(LONG, STRUCTURED)


@st.composite
def question(draw: st.DrawFn) -> dict[str, Any]:
    """One of any type, some with more options than there are letters."""
    kind = draw(st.sampled_from(["choice", "many", "score", "noul"]))
    if kind == "many":
        criteria: Any = {f"{index}": draw(st.none() | TEXT) for index in range(draw(st.sampled_from([26, 27, 40])))}
    elif kind == "choice":
        criteria = draw(st.dictionaries(TEXT, st.none() | WORDS, min_size=1, max_size=4))
    elif kind == "score":
        criteria = draw(st.lists(WORDS, min_size=1, max_size=5))
    else:
        sides = {"true": st.none() | WORDS, "false": st.none() | WORDS}
        criteria = draw(st.none() | st.fixed_dictionaries({}, optional=sides))
    made = {"type": "choice" if kind == "many" else kind, "instructions": draw(WORDS)}
    return made if criteria is None else {**made, "criteria": criteria}


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # a request that differs is told as it is: making it smaller takes minutes here
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
@given(state=WORDS, questions=st.dictionaries(TEXT, question(), min_size=1, max_size=3))
def test_generated_requests(
    executor: NimbleExecutor, processor: NimbleProcessor, reference: Reference, state: Any, questions: Any
) -> None:
    """The same tokens, and logits within 1e-5 of every prompt read alone and whole."""
    unit = request(processor, state, questions)
    rows, _ = unit.split()
    expected = [reference.ids(prompt) for prompt in prompts(state, questions, reference.codes)]
    assert [row.tolist() for row in rows] == expected
    found = per_question(executor.execute(unit, FakeCall()))
    for mine, theirs in zip(found, reference.logits(state, questions), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5)


STATE = {"text": "The customer was charged twice for one order and asks for the money back. " * 4}


def test_what_the_questions_share_is_read_once(executor: NimbleExecutor, processor: NimbleProcessor) -> None:
    """The state and all questions: of three rows little more than one is read."""
    unit = request(processor, STATE, QUESTIONS)
    output = executor.execute(unit, FakeCall())
    assert output["execution"] == "shared"
    assert output["processed"] < 1.5 * int(unit.lengths.max())


@pytest.mark.parametrize("execution", ["rows", "packed"])
def test_each_way_of_reading_gives_the_same_answers(
    folder: Path, executor: NimbleExecutor, processor: NimbleProcessor, execution: str
) -> None:
    """Within 1e-5; and so do two requests that are read together."""
    other = loaded(folder, execution=execution)
    unit = request(processor, STATE, QUESTIONS)
    found = other.execute(unit, FakeCall())
    assert found["execution"] == execution
    assert found["logits"] == pytest.approx(executor.execute(unit, FakeCall())["logits"], abs=1e-5)
    if execution == "packed":
        assert other.max_units > 1
        second = request(processor, "s", {"q": QUESTIONS["refund"]})
        for mine, alone in zip(
            other.execute_many([unit, second], [FakeCall(), FakeCall()]), (unit, second), strict=True
        ):
            assert isinstance(mine, dict)
            assert mine["logits"] == pytest.approx(other.execute(alone, FakeCall())["logits"], abs=1e-5)
    other.close()


def test_a_kept_prefix_gives_the_same_bits(folder: Path, executor: NimbleExecutor, processor: NimbleProcessor) -> None:
    """Hit or miss; and, but for rounding, what is said without keeping."""
    keeping = NimbleExecutor(
        str(folder), {"device": "cpu", "base": str(folder / "base"), "prefix_cache_mb": 64, "prefix_segment": 32}
    )
    assert str(keeping.load(silent)["identity"]).endswith("/kept:32")
    unit = request(processor, STATE, QUESTIONS)
    miss, hit = (keeping.execute(unit, FakeCall()) for _ in range(2))
    assert hit["statistics"]["kept"]["hits"] > miss["statistics"]["kept"]["hits"]
    assert miss["logits"].tobytes() == hit["logits"].tobytes()
    assert hit["logits"] == pytest.approx(executor.execute(unit, FakeCall())["logits"], abs=1e-5)
    keeping.close()


def test_merged_is_what_peft_merges(folder: Path, reference: Reference) -> None:
    """Its `safe_merge` in bfloat16, bit for bit, whatever the model computes in; which is not the plain merge."""
    for dtype in ("float32", "bfloat16"):
        executor = loaded(folder, dtype=dtype)
        assert executor._model is not None
        for name, parameter in executor._model._model.named_parameters():
            assert torch.equal(parameter, reference.merged[name].to(parameter.dtype)), name
        executor.close()


def test_a_merged_checkpoint(tmp_path: Path, processor: NimbleProcessor) -> None:
    """Everything in one folder, no adapter; its own logits, and the temperature of the adapter that was merged."""
    whole = tiny_nimble.write_merged(tmp_path / "whole", ready={"adapter_sha256": tiny_nimble.V1_ADAPTER})
    made = NimbleExecutor(str(whole), {"device": "cpu"})
    facts = made.load(silent)
    assert (facts["layout"], facts["merged_modules"], facts["temperature"]) == ("merged", 0, tiny_nimble.TEMPERATURE)
    unit = request(NimbleProcessor(facts, {}, str(whole)), STATE, QUESTIONS)
    assert unit.tokens.tolist() == request(processor, STATE, QUESTIONS).tokens.tolist()
    theirs = Reference(whole, None).logits(STATE, QUESTIONS)
    for mine, expected in zip(per_question(made.execute(unit, FakeCall())), theirs, strict=True):
        assert mine == pytest.approx(expected, abs=1e-5)
    assert detect(whole) == "nimble"
    findings = examine(str(whole), None, silent)
    assert findings.problem == ""
    assert findings.lines[1:] == (
        "schema_candidate_classification_v1, 255 codes, temperature 2.179078721266035",
        "the adapter is bespokelabs/Bespoke-Nimble-9B",
        "licence apache-2.0",
    )
    made.close()


def test_tied_output_rows(tmp_path: Path) -> None:
    """Of a base model without rows of its own for the output: those of the embedding."""
    from safetensors.torch import load_file, save_file

    whole = tiny_nimble.write_merged(tmp_path / "whole")
    tensors = load_file(whole / "model.safetensors")
    tensors.pop("lm_head.weight")
    save_file(tensors, whole / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigurationError, match=r"lm_head\.weight is missing"):
        folders.verify(str(whole), base=None, unreleased=False, progress=silent)
    config = json.loads((whole / "config.json").read_text())
    config["text_config"]["tie_word_embeddings"] = config["tie_word_embeddings"] = True
    (whole / "config.json").write_text(json.dumps(config))
    executor = NimbleExecutor(str(whole), {"device": "cpu"})
    executor.load(silent)
    rows = tensors["model.language_model.embed_tokens.weight"].float()
    assert executor._checkpoint is not None
    assert torch.equal(executor._head, rows[list(executor._checkpoint.codes.tokens)])
    executor.close()


def test_facts_and_check(folder: Path, facts: dict[str, Any]) -> None:
    """What a LoRA checkpoint is; and what can be said of it without its base model."""
    assert (facts["model_id"], facts["base_revision"]) == (tiny_nimble.BASE, tiny_nimble.BASE_REVISION)
    assert (facts["layout"], facts["merged_modules"], facts["execution"]) == ("lora", 31, "shared")
    assert (facts["temperature"], facts["release"], facts["licence"]) == (1.0, None, None)
    assert facts["limits"] == {"row_tokens": 8192, "rows": 64, "tokens": 524288, "options": 255}
    assert detect(folder) == "nimble"
    findings = examine(str(folder), None, silent)
    assert findings.problem == ""
    assert findings.lines[0].startswith("LoRA checkpoint of rank 4, scaled by 2, ")
    assert findings.lines[2:] == (
        "it is served with the option 'base', the folder of its base model",
        "schema_candidate_classification_v1, 255 codes, temperature 1.0, unfitted",
        "the adapter is none of the published ones",
        "README.md names no licence",
    )


def test_a_published_adapter_is_known_by_its_bytes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, processor: NimbleProcessor
) -> None:
    """Its temperature is told with the facts, and the front divides by it; a file beside it does not change that."""
    digest = hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()
    monkeypatch.setattr(contract, "RELEASES", {digest: contract.V2})
    executor = NimbleExecutor(str(folder), {"device": "cpu", "base": str(folder / "base")})
    facts = executor.load(silent)
    assert facts["temperature"] == tiny_nimble.TEMPERATURE
    assert facts["release"]["name"] == "bespokelabs/Bespoke-Nimble-9B-v2"  # type: ignore[index]
    front = NimbleProcessor(facts, {}, str(folder))
    prepared = front.prepare(parse_request({"state": "s", "questions": {"q": QUESTIONS["refund"]}}))
    output = executor.execute(prepared.units[0], FakeCall())
    false, true = (value / tiny_nimble.TEMPERATURE for value in output["logits"].tolist())
    ((_, answer),) = front.finish(prepared, [output]).answers
    assert answer.noul == pytest.approx(1 / (1 + np.exp(false - true)), abs=1e-12)  # type: ignore[union-attr]
    executor.close()


def test_both_profiles_agree(executor: NimbleExecutor, processor: NimbleProcessor) -> None:
    """Within 1e-12, since neither rounds."""
    native = NimbleNative(processor)
    questions = {
        "team": QUESTIONS["team"],
        "refund": QUESTIONS["refund"],
        "harm": {"type": "score", "instructions": "How large?", "criteria": ["none", "some", "much"]},
    }
    main = processor.prepare(parse_request({"state": STATE, "questions": questions}))
    own = native.prepare(json.dumps({"model": "nimble-latest", "state": STATE, "questions": questions}).encode())
    output = executor.execute(main.units[0], FakeCall())
    assert own.units[0].to_wire()["tokens"].tolist() == main.units[0].to_wire()["tokens"].tolist()  # type: ignore[attr-defined]
    answers = {name: answer.to_json() for name, answer in processor.finish(main, [output]).answers}
    theirs = native.finish(own, [output], 0.1)["answers"]
    assert theirs["refund"]["noul"] == pytest.approx(answers["refund"]["noul"], abs=1e-12)
    assert theirs["harm"]["score"] == pytest.approx(answers["harm"]["score"], abs=1e-12)
    assert theirs["team"]["probabilities"] == pytest.approx(answers["team"]["probabilities"], abs=1e-12)


def broken(unit: RowsRequest, **fields: Any) -> RowsRequest:
    return RowsRequest(**{**unit.to_wire(), **fields})


def test_what_is_no_request_for_this_model(executor: NimbleExecutor, processor: NimbleProcessor) -> None:
    """A token it does not know, too many options, a row that is too long, too many rows."""
    unit = request(processor, "s", {"q": QUESTIONS["team"]})
    short = NimbleExecutor(None, {"max_length": 256})
    many = RowsRequest(
        tokens=np.zeros(65, np.int32),
        lengths=np.ones(65, np.int32),
        candidates=np.ones(65, np.int32),
        questions=np.arange(65, dtype=np.int32),
    )
    assert executor._checkpoint is not None and executor._model is not None
    for maker, payload, message in (
        (executor, broken(unit, tokens=unit.tokens + 100_000), "a token is below"),
        (executor, broken(unit, candidates=np.array([256], np.int32)), "a row has at most 255 options"),
        (short, request(processor, "x y " * 300, {"q": QUESTIONS["team"]}), "a row has at most 256 tokens"),
        (executor, many, "a request 64 rows"),
    ):
        with pytest.raises(Malformed, match=message):
            maker.accept(payload, executor._checkpoint, executor._model, lambda: None)


def test_numbers_that_are_none(executor: NimbleExecutor, processor: NimbleProcessor) -> None:
    """Are no answer; those of codes that were not asked for do not matter."""
    unit = request(processor, "s", {"q": QUESTIONS["team"]})
    assert executor._model is not None
    logits, reading = executor.run(unit, executor._model, lambda: None)
    beyond, within = logits.copy(), logits.copy()
    beyond[0, 2], within[0, 1] = np.nan, np.nan
    assert len(executor.outputs(unit, (beyond, reading), executor._model)["logits"]) == 2
    with pytest.raises(NonFinite):
        executor.outputs(unit, (within, reading), executor._model)


def test_how_prompts_are_read_where_nobody_says() -> None:
    """What is shared once on a CPU, every one alone on a GPU."""
    options = NimbleExecutor(None, {}).options
    assert executors._settings(options, "cpu").execution == "shared"
    assert executors._settings(options, "cuda:1").execution == "rows"
    assert executors._settings({**options, "execution": "packed"}, "cuda").execution == "packed"


def edited(name: str, **fields: object) -> Callable[[Path], None]:
    """None takes a field away."""

    def break_it(folder: Path) -> None:
        document = {**json.loads((folder / name).read_text()), **fields}
        kept = {key: value for key, value in document.items() if value is not None}
        (folder / name).write_text(json.dumps(kept))

    return break_it


def calibrated(document: object) -> Callable[[Path], object]:
    return lambda folder: (folder / "temperature_config.json").write_text(json.dumps(document))


SCHEMA = "schema_config.json"
MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no schema": (lambda folder: (folder / SCHEMA).unlink(), r"schema_config\.json is missing"),
    "another task": (edited(SCHEMA, task="other"), r"schema_config\.json: task is 'other', not schema_candidate"),
    "another prompt": (edited(SCHEMA, prompt_code_sha256="0" * 64), r"prompt_code_sha256 is '0{64}'; the published"),
    "no prompt": (edited(SCHEMA, prompt_code_sha256=None), r"prompt_code_sha256 is missing \(the option 'unrel"),
    "another source": (
        edited(SCHEMA, prompt_source_sha256={"parallel_schema.py": "1" * 64}),
        r"prompt_source_sha256 is '1{64}'; the published one",
    ),
    "another system": (edited(SCHEMA, system_prompt="Answer."), r"system_prompt is not the one"),
    "no base": (edited(SCHEMA, model=None), r"schema_config\.json: model is None"),
    "a task of many without codes": (
        edited(SCHEMA, task="schema_candidate_classification_v2"),
        r"candidate_codes and candidate_token_ids are not 255 texts and numbers",
    ),
    "another codebook": (
        lambda folder: tiny_nimble.write_schema(
            folder, **{**tiny_nimble.wide_fields(tiny_nimble.tokenizer()), "candidate_token_ids": list(range(255))}
        ),
        r"candidate_codes and candidate_token_ids are not those of tokenizer\.json",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    "another chat": (
        lambda folder: (folder / "tokenizer.json").write_text(
            (folder / "tokenizer.json").read_text().replace("<|im_end|>", "<|x|>")
        ),
        r"does not have <\|im_end\|> as one token",
    ),
    "no adapter": (
        lambda folder: (folder / "adapter_model.safetensors").unlink(),
        r"adapter_model\.safetensors is missing",
    ),
    "another adapter": (edited("adapter_config.json", peft_type="IA3"), r"peft_type is 'IA3', not 'LORA'"),
    "a temperature of another": (
        calibrated({"temperature": 2.0, "adapter_sha256": "0" * 64}),
        r"temperature_config\.json: adapter_sha256 is '0{64}'",
    ),
    "a temperature of 0": (calibrated({"temperature": 0}), r"temperature_config\.json: temperature is 0; a finite"),
    "another architecture": (
        edited("base/config.json", model_type="qwen3", text_config=None),
        r"model_type is 'qwen3'",
    ),
    "no weights": (lambda folder: (folder / "base" / "model.safetensors").unlink(), r"model\.safetensors is missing"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_said_with_file_and_key(folder: Path, tmp_path: Path, mistake: str) -> None:
    """Before anything is loaded."""
    break_it, message = MISTAKES[mistake]
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    break_it(copy)
    with pytest.raises(ConfigurationError) as caught:
        folders.verify(str(copy), base=str(copy / "base"), unreleased=False, progress=silent)
    assert re.search(message, str(caught.value)), str(caught.value)


def test_output_rows_that_are_none(folder: Path, tmp_path: Path) -> None:
    """One of a code is found before anybody is answered."""
    from safetensors.torch import load_file, save_file

    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tensors = load_file(copy / "base" / "model.safetensors")
    tensors["lm_head.weight"][tiny_nimble.tokenizer().token_to_id("AB"), 0] = torch.inf
    save_file(tensors, copy / "base" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigurationError, match=r"lm_head\.weight: the rows of the codes are not finite"):
        loaded(copy)


def test_where_the_base_model_is(folder: Path, tmp_path: Path) -> None:
    """A LoRA checkpoint needs one, and a merged one has none; a merge that was not finished is none."""
    with pytest.raises(ConfigurationError, match="the option 'base' names its base model's folder"):
        folders.verify(str(folder), base=None, unreleased=False, progress=silent)
    whole = tiny_nimble.write_merged(tmp_path / "whole")
    with pytest.raises(ConfigurationError, match="the option 'base' is for LoRA checkpoints"):
        folders.verify(str(whole), base=str(folder / "base"), unreleased=False, progress=silent)
    (whole / "READY.json").unlink()
    with pytest.raises(ConfigurationError, match=r"READY\.json is missing in .*: a merge that was not finished"):
        folders.verify(str(whole), base=None, unreleased=False, progress=silent)


def test_a_checkpoint_of_other_prompts_is_served_on_demand(folder: Path, tmp_path: Path) -> None:
    """With the option `unreleased`; the check says so."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    edited(SCHEMA, prompt_code_sha256="0" * 64)(copy)
    loaded(copy, unreleased=True).close()
    assert examine(str(copy), None, silent).lines[-1].endswith("it is served with the option 'unreleased'")


def test_a_licence_without_commercial_use_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the log of the host, in its facts, and by the check; and an adapter's own temperature is taken."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "README.md").write_text("---\nbase_model: Qwen/Qwen3.5-9B\nlicense: cc-by-nc-4.0\n---\n# Nimble v3\n")
    digest = hashlib.sha256((copy / "adapter_model.safetensors").read_bytes()).hexdigest()
    calibrated({"temperature": 1.5, "adapter_sha256": digest})(copy)
    executor = NimbleExecutor(str(copy), {"device": "cpu", "base": str(copy / "base")})
    facts = executor.load(silent)
    assert (facts["licence"], facts["temperature"]) == ("cc-by-nc-4.0", 1.5)
    assert f"{copy}: licence cc-by-nc-4.0: no commercial use\n" in capsys.readouterr().err
    lines = examine(str(copy), None, silent).lines
    assert lines[3] == "schema_candidate_classification_v1, 255 codes, temperature 1.5"
    assert lines[-1] == "licence cc-by-nc-4.0: no commercial use"
    executor.close()


def test_a_checkpoint_of_the_second_task(folder: Path, tmp_path: Path) -> None:
    """Its codebook is compared with the tokenizer, and is right."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tiny_nimble.write_schema(copy, prompt_code_sha256=None, **tiny_nimble.wide_fields(tiny_nimble.tokenizer()))
    checkpoint = folders.verify(str(copy), base=str(copy / "base"), unreleased=False, progress=silent)
    assert checkpoint.schema.codes == checkpoint.codes.names
    assert checkpoint.schema.trained == 255
