"""The decider family's half in the host, on a tiny random checkpoint in the released layout, on the CPU in float32.

Two judges: the full forward of transformers, and the family's public reference package where it is installed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.backbones import qwen3_5  # noqa: E402
from executor_host.errors import (  # noqa: E402
    Abandoned,
    ConfigurationError,
    ExecutionFailed,
    FatalExecutionError,
    NonFinite,
)
from executor_host.executors.decider import checkpoint as decider_checkpoint  # noqa: E402
from executor_host.executors.decider.executor import DeciderExecutor  # noqa: E402
from protocol.contracts.decider import REVISION  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import decode, encode  # noqa: E402
from protocol.messages import Lane, Ready, Result  # noqa: E402
from protocol.payloads import RowsRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_decider  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402

TOLERANCE = 1e-5
"""Of logits, which are about 1 each, and of probabilities."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in the released layout."""
    return tiny_decider.write(tmp_path_factory.mktemp("decider"), seed=5)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Callable[..., DeciderExecutor]:
    """Executors by their options, each loaded once."""
    made: dict[str, DeciderExecutor] = {}

    def loaded(**options: object) -> DeciderExecutor:
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made[key] = start(folder, **options)
        return made[key]

    return loaded


def start(folder: Path, **options: object) -> DeciderExecutor:
    """A loaded and warm executor on the CPU."""
    executor = DeciderExecutor(str(folder), {"device": "cpu", **options})
    executor.load(lambda fraction, note: None)
    executor.warm_up()
    return executor


def rows_request(rows: list[Any], candidates: list[int], questions: list[int]) -> RowsRequest:
    """A request as it arrives: over the wire, with read-only arrays."""
    request = RowsRequest(
        np.concatenate([np.asarray(row, np.int32) for row in rows]),
        np.array([len(row) for row in rows], np.int32),
        np.array(candidates, np.int32),
        np.array(questions, np.int32),
    )
    return RowsRequest.from_wire(request.to_wire())


def random_request(seed: int, shared: int) -> RowsRequest:
    """A choice of 2, one of 255, a score of 3 levels and a noul over a state of `shared` tokens."""
    random = np.random.default_rng(seed)

    def some(count: int) -> NDArray[np.int32]:
        return random.integers(0, 900, count).astype(np.int32)

    state, level = some(shared), some(70)
    ends = [some(20), some(150), *(np.concatenate([level, some(count)]) for count in (5, 6, 7)), some(9)]
    return rows_request([np.concatenate([state, end]) for end in ends], [2, 255, 2, 2, 2, 2], [0, 1, 2, 2, 2, 3])


# Loading


def test_the_released_layout_is_loaded_by_the_code_that_loads_the_released_files(folder: Path) -> None:
    """What READY says, and that it travels."""
    executor = DeciderExecutor(str(folder), {"device": "cpu", "truncate": True})
    seen: list[float] = []
    facts = executor.load(lambda fraction, note: seen.append(fraction))
    executor.warm_up()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    message = decode(
        encode(Ready(address="ipc://x", facts=dict(facts)), incarnation="1-a", call=0), lane=Lane.CONTROL
    ).message
    assert isinstance(message, Ready)
    assert message.facts == facts
    assert facts["name"] == "decider-2b-v11"
    assert (facts["dtype"], facts["device"], facts["execution"]) == ("float32", "cpu", "auto")
    assert facts["released"] is False
    assert facts["checkpoint_revision"] is None
    files = facts["files"]
    assert isinstance(files, dict)
    assert files.keys() == decider_checkpoint.RELEASED.keys()
    assert facts["sha256"] == files["model.safetensors"]
    labels = facts["label_ids"]
    assert isinstance(labels, list)
    assert len(set(labels)) == len(labels) == 255
    assert facts["temperatures"] == {
        kind: float(np.float32(t)) for kind, t in (("choice", 1.164), ("noul", 1.624), ("score", 1.124))
    }
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(folder)
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
    executor.close()
    executor.close()
    with pytest.raises(ExecutionFailed):
        executor.execute(random_request(1, 3), FakeCall())


def test_the_labels_are_the_single_tokens_in_order(folder: Path) -> None:
    """A to Z, then the pairs the tokenizer knows; the tiny one does not know all of them."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
    names = [encoder.decode([token]) for token in decider_checkpoint.label_tokens(folder / "tokenizer.json", 10**6)]
    assert names[:26] == [chr(code) for code in range(65, 91)]
    assert names[26:] == sorted(names[26:])
    assert all(len(name) == 2 for name in names[26:])
    assert "AA" not in names, "it is not a single token of this tokenizer"


def test_equal_identities_mean_equal_answers(folder: Path, copy: Path) -> None:
    """Another calibration, prompt or arithmetic is another model for the queue of a restarted host."""

    def identity(path: Path, **options: object) -> object:
        return DeciderExecutor(str(path), {"device": "cpu", **options}).load(lambda fraction, note: None)["identity"]

    first = identity(folder)
    assert identity(copy) == first
    assert identity(folder, dtype="bfloat16") != first
    assert identity(folder, execution="rows") != first
    change(copy, "decider_config.json", temperature=2.0)
    assert identity(copy) != first


def test_a_claimed_revision_must_have_its_bytes(folder: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes first, then hashes; without the claim the facts say that it is not the released one."""
    claim = {"device": "cpu", "revision": REVISION}
    with pytest.raises(ConfigurationError, match=r"config\.json has \d+ bytes; the released file has 1790"):
        DeciderExecutor(str(folder), claim).load(lambda fraction, note: None)
    files = {
        name: ((folder / name).stat().st_size, decider_checkpoint.checkpoints.sha256(folder / name))
        for name in decider_checkpoint.RELEASED
    }
    monkeypatch.setattr(decider_checkpoint, "RELEASED", files)
    facts = DeciderExecutor(str(folder), claim).load(lambda fraction, note: None)
    assert facts["released"] is True
    assert facts["checkpoint_revision"] == REVISION
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    with pytest.raises(ConfigurationError, match=r"model\.safetensors is not the released file"):
        DeciderExecutor(str(copy), claim).load(lambda fraction, note: None)
    assert DeciderExecutor(str(copy), {"device": "cpu"}).load(lambda fraction, note: None)["released"] is False


def test_the_pins_are_those_of_the_contract() -> None:
    """To the digit."""
    assert REVISION == "533964dae8be954c5b5e19fa4948e48408094c1e"
    assert {name: (size, digest[:8]) for name, (size, digest) in decider_checkpoint.RELEASED.items()} == {
        "config.json": (1790, "6cb8daca"),
        "decider_config.json": (1240, "6e4891f2"),
        "tokenizer.json": (19989325, "06b95093"),
        "model.safetensors": (3763692048, "acaef222"),
    }
    assert all(len(digest) == 64 for _, digest in decider_checkpoint.RELEASED.values())


# What is no checkpoint


def change(folder: Path, name: str, /, *drop: str, **fields: Any) -> None:
    """Other fields in a JSON file, some of them gone."""
    document = json.loads((folder / name).read_text()) | fields
    (folder / name).write_text(json.dumps({key: value for key, value in document.items() if key not in drop}))


def tensors(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Other tensors in the weights."""
    from safetensors.torch import load_file, save_file

    content = load_file(folder / "model.safetensors")
    edit(content)
    save_file(content, folder / "model.safetensors", metadata={"format": "pt"})


def table(folder: Path, raw: bytes) -> None:
    """A weights file with this table and nothing else."""
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)


EMBEDDING = "model.language_model.embed_tokens.weight"
SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"no {name}": (lambda folder, name=name: (folder / name).unlink(), name.replace(".", r"\."))  # type: ignore[misc]
        for name in decider_checkpoint.RELEASED
    },
    "weights are a folder": (
        lambda folder: ((folder / "model.safetensors").unlink(), (folder / "model.safetensors").mkdir()),
        "missing",
    ),
    "an index": (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "beside"),
    "an adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "beside"),
    "config is no JSON": (lambda folder: (folder / "config.json").write_text("{"), "not JSON"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "not a JSON object"),
    "a key twice": (lambda folder: (folder / "decider_config.json").write_text('{"a": 1, "a": 2}'), "twice"),
    "foreign architecture": (lambda folder: change(folder, "config.json", model_type="qwen3_5"), "model_type"),
    "untied": (lambda folder: change(folder, "config.json", tie_word_embeddings=False), "tie_word_embeddings"),
    "tied by a number": (lambda folder: change(folder, "config.json", tie_word_embeddings=1), "tie_word_embeddings"),
    "another dtype": (lambda folder: change(folder, "config.json", dtype="float16"), "dtype"),
    "quantized": (lambda folder: change(folder, "config.json", quantization_config={"bits": 4}), "quantized"),
    "no vocabulary": (lambda folder: change(folder, "config.json", "vocab_size"), "vocab_size"),
    "no layers": (lambda folder: change(folder, "config.json", num_hidden_layers=0), "positive"),
    "other layers": (lambda folder: change(folder, "config.json", layer_types=["full_attention"] * 8), "layer_types"),
    "another interval": (lambda folder: change(folder, "config.json", full_attention_interval=2), "interval"),
    "another size": (lambda folder: change(folder, "config.json", hidden_size=128), r"\[64\]|128"),
    "other heads": (lambda folder: change(folder, "config.json", num_attention_heads=8), "checkpoint"),
    "another version": (lambda folder: change(folder, "decider_config.json", version="2b-v12"), "version"),
    "no version": (lambda folder: change(folder, "decider_config.json", "version"), "version"),
    "another layout": (lambda folder: change(folder, "decider_config.json", layout="chat"), "layout"),
    "fewer options": (lambda folder: change(folder, "decider_config.json", max_options=10), "max_options"),
    "listwise": (lambda folder: change(folder, "decider_config.json", isolated_levels=False), "isolated_levels"),
    "neutralized": (lambda folder: change(folder, "decider_config.json", neutralize_none=True), "neutralize_none"),
    "schema first": (lambda folder: change(folder, "decider_config.json", schema_first=True), "schema_first"),
    "chat": (lambda folder: change(folder, "decider_config.json", chat_template="x"), "chat_template"),
    "by options": (lambda folder: change(folder, "decider_config.json", temperature_by_options=None), "by_options"),
    "no temperature": (lambda folder: change(folder, "decider_config.json", "temperature"), "temperature"),
    **{
        f"temperature {value!r}": (
            lambda folder, value=value: change(folder, "decider_config.json", temperature=value),  # type: ignore[misc]
            "temperature",
        )
        for value in (0, -1.0, None, True, "warm", "nan", "inf", 1e-60, 1e60, 10**400, [1.0])
    },
    "a word by type": (
        lambda folder: change(folder, "decider_config.json", temperature_by_type={"noul": "1.5"}),
        r"temperature_by_type\.noul",
    ),
    "bool is no type": (
        lambda folder: change(folder, "decider_config.json", temperature_by_type={"bool": 1.5}),
        "bool",
    ),
    "types are a list": (lambda folder: change(folder, "decider_config.json", temperature_by_type=[]), "by_type"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer"),
    "too few labels": (
        lambda folder: (folder / "tokenizer.json").write_text(
            '{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"A": 0}, "merges": []}}'
        ),
        "labels",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "safetensors"),
    "weights cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-2]),
        "own table",
    ),
    "a table of nothing": (lambda folder: table(folder, b"[]"), "safetensors"),
    "a table beyond the file": (
        lambda folder: (folder / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}"),
        "safetensors",
    ),
    "another embedding key": (
        lambda folder: tensors(folder, lambda content: content.update(x=content.pop(EMBEDDING))),
        "embed_tokens",
    ),
    "a head of its own": (
        lambda folder: tensors(folder, lambda content: content.update({"lm_head.weight": content[EMBEDDING].clone()})),
        "lm_head",
    ),
    "a tensor in float32": (
        lambda folder: tensors(folder, lambda content: content.update({EMBEDDING: content[EMBEDDING].float()})),
        "F32",
    ),
    "a tensor missing": (
        lambda folder: tensors(folder, lambda content: content.pop("model.language_model.layers.3.mlp.up_proj.weight")),
        "missing",
    ),
    "a tensor too many": (
        lambda folder: tensors(
            folder, lambda content: content.update({"model.language_model.extra": torch.zeros(2).bfloat16()})
        ),
        "unexpected",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_no_checkpoint_is_refused_once_and_in_words(copy: Path, name: str) -> None:
    """A `ConfigurationError`: the host is not started again for it."""
    spoil, named = SPOILED[name]
    spoil(copy)
    with pytest.raises(ConfigurationError, match=named):
        DeciderExecutor(str(copy), {"device": "cpu"}).load(lambda fraction, note: None)


def test_a_checkpoint_is_a_folder_that_is_named(folder: Path) -> None:
    """There is no default: this model is 3.8 GB."""
    for path in (None, str(folder / "config.json"), str(folder / "nowhere")):
        with pytest.raises(ConfigurationError, match="folder"):
            DeciderExecutor(path, {"device": "cpu"}).load(lambda fraction, note: None)


def test_temperatures_fall_back(copy: Path) -> None:
    """A missing kind has the general one, which may be a number in a string."""
    change(copy, "decider_config.json", temperature=" 1.5 ", temperature_by_type={"noul": 2})
    facts = DeciderExecutor(str(copy), {"device": "cpu"}).load(lambda fraction, note: None)
    assert facts["temperatures"] == {"choice": 1.5, "noul": 2.0, "score": 1.5}
    change(copy, "decider_config.json", "temperature_by_type")
    facts = DeciderExecutor(str(copy), {"device": "cpu"}).load(lambda fraction, note: None)
    assert facts["temperatures"] == {"choice": 1.5, "noul": 1.5, "score": 1.5}


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 1},
        {"revision": "main"},
        {"device": 0},
        {"device": ""},
        {"dtype": "float16"},
        {"execution": "fixed"},
        {"execution": True},
        {"batch_rows": 0},
        {"batch_rows": 5},
        {"batch_rows": True},
        {"batch_rows": 2.0},
        {"batch_tokens": 4097},
        {"graphs": 1},
        {"graphs": True, "execution": "shared"},
    ],
)
def test_options_are_checked_before_anything_is_read(options: dict[str, object]) -> None:
    """Any other value fails the start."""
    with pytest.raises(ConfigurationError):
        DeciderExecutor("/nowhere", options)


def test_graphs_need_cuda(folder: Path) -> None:
    """And say so when the model is loaded, not at the first request."""
    with pytest.raises(ConfigurationError, match="CUDA"):
        DeciderExecutor(str(folder), {"device": "cpu", "graphs": True}).load(lambda fraction, note: None)


# Executing


@pytest.mark.parametrize("execution", qwen3_5.EXECUTIONS)
@pytest.mark.parametrize("shared", [3, 130])
def test_logits_are_those_of_the_full_forward(
    loaded: Callable[..., DeciderExecutor], folder: Path, execution: str, shared: int
) -> None:
    """transformers' own head at the last position of each row alone, at the label tokens."""
    request = random_request(shared, shared)
    output = loaded(execution=execution).execute(request, FakeCall())
    assert output["counts"].dtype == np.int32
    assert output["counts"].tolist() == request.candidates.tolist()
    assert output["logits"].dtype == np.float32
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    labels = list(decider_checkpoint.label_tokens(folder / "tokenizer.json", 10**6))
    expected = []
    for row, count in zip(np.split(request.tokens, np.cumsum(request.lengths)[:-1]), request.candidates, strict=True):
        with torch.no_grad():
            logits = model(torch.from_numpy(row[None].astype(np.int64))).logits[0, -1]
        expected.append(logits[labels[:count]].numpy())
    assert np.abs(output["logits"] - np.concatenate(expected)).max() < TOLERANCE
    assert np.concatenate(expected).std() > 0.3
    assert output["execution"] == {"auto": "packed"}.get(execution, execution)  # too short for auto; a score shares
    assert output["processed"] <= len(request.tokens)
    message = decode(encode(Result(outputs=output, elapsed_us=1), incarnation="1-a", call=1), lane=Lane.DATA).message
    assert isinstance(message, Result)
    assert np.array_equal(message.outputs["logits"], output["logits"])


def test_neighbours_do_not_change_a_row(loaded: Callable[..., DeciderExecutor]) -> None:
    """Nor does what they choose among: the projection is the same for all. What a row costs is its tokens."""
    executor = loaded(execution="packed")
    row, longer = list(range(40)), list(range(100, 190))
    alone = executor.execute(rows_request([row], [3], [0]), FakeCall())
    beside = executor.execute(rows_request([row, longer], [3, 255], [0, 1]), FakeCall())
    assert np.abs(beside["logits"][:3] - alone["logits"]).max() < TOLERANCE
    assert (alone["processed"], beside["processed"]) == (40, 130)


def test_bfloat16_logits_are_rounded_before_they_are_widened(loaded: Callable[..., DeciderExecutor]) -> None:
    """Readout in bfloat16."""
    logits = loaded(dtype="bfloat16").execute(random_request(2, 20), FakeCall())["logits"]
    assert np.array_equal(torch.from_numpy(logits.copy()).bfloat16().float().numpy(), logits)


def test_the_same_request_has_the_same_bits(loaded: Callable[..., DeciderExecutor]) -> None:
    """Whatever was executed in between."""
    for execution in ("packed", "shared"):
        executor = loaded(execution=execution)
        first = executor.execute(random_request(3, 140), FakeCall())["logits"]
        executor.execute(random_request(4, 70), FakeCall())
        assert np.array_equal(executor.execute(random_request(3, 140), FakeCall())["logits"], first)


@pytest.mark.parametrize(("execution", "passes"), [("rows", 6), ("packed", 4), ("shared", 6)])
def test_a_cancelled_call_stops_between_groups(
    loaded: Callable[..., DeciderExecutor], execution: str, passes: int
) -> None:
    """Looked for before each pass; the executor serves the next call as if nothing had been."""
    executor = loaded(execution=execution)
    request = random_request(6, 100)
    call = FakeCall()
    expected = executor.execute(request, call)["logits"]
    assert 10**9 - call.looks == passes
    for looks in (0, 1, passes - 1):
        with pytest.raises(Abandoned):
            executor.execute(request, FakeCall(looks=looks))
    with pytest.raises(Abandoned, match="time"):
        executor.execute(request, FakeCall(remaining_ms=0))
    assert np.array_equal(executor.execute(request, FakeCall(remaining_ms=1000))["logits"], expected)


def test_rows_for_another_model_are_the_senders_mistake(loaded: Callable[..., DeciderExecutor]) -> None:
    """`Malformed` does not retire a host, which any error of an execution does in this family."""
    executor = loaded()
    for rows, candidates in (([[1, 10**6]], [2]), ([[1]], [256]), ([[1] * 36_865], [2]), ([[1]] * 1025, [2] * 1025)):
        with pytest.raises(Malformed):
            executor.execute(rows_request(rows, candidates, [0] * len(rows)), FakeCall())
    with pytest.raises(ExecutionFailed):
        executor.execute(TextRequest(b"{}"), FakeCall())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_an_error(folder: Path, value: float) -> None:
    """Of a hidden state, or of a logit that is asked for."""
    executor = start(folder)
    request = rows_request([[1, 2, 3]], [2], [0])
    with torch.inference_mode(False):
        executor._head = executor._head.clone()
    executor._head[2, 0] = value
    executor.execute(request, FakeCall())  # the third label is nobody's here
    executor._head[1, 0] = value
    with pytest.raises(NonFinite):
        executor.execute(request, FakeCall())
    executor._head[1:3, 0] = 0.0
    executor.execute(request, FakeCall())
    assert executor._model is not None
    executor._model._model.norm.weight[5] = value
    with pytest.raises(NonFinite):
        executor.execute(request, FakeCall())


def test_a_device_without_memory_is_fatal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is waited for all the same; other errors pass as they are."""
    executor = start(folder)
    backbone = executor._model
    assert backbone is not None
    waited: list[str] = []
    raised: Exception = torch.OutOfMemoryError("CUDA out of memory")

    def fail(*arguments: object) -> None:
        raise raised

    monkeypatch.setattr(backbone, "read", fail)
    monkeypatch.setattr("executor_host.devices.synchronize", lambda device: waited.append("waited"))
    request = rows_request([[1]], [2], [0])
    with pytest.raises(FatalExecutionError, match="OutOfMemoryError"):
        executor.execute(request, FakeCall())
    raised = RuntimeError("shapes")
    with pytest.raises(RuntimeError, match="shapes"):
        executor.execute(request, FakeCall())
    assert len(waited) == 2


def test_the_warm_up_is_a_decision(folder: Path) -> None:
    """A model whose numbers are none does not become ready."""
    executor = DeciderExecutor(str(folder), {"device": "cpu"})
    with pytest.raises(ConfigurationError):
        executor.warm_up()
    executor.load(lambda fraction, note: None)
    executor._head = executor._head * float("nan")
    with pytest.raises(ConfigurationError, match="warm-up"):
        executor.warm_up()


# The reference


REQUESTS: list[tuple[Any, dict[str, Any]]] = [
    ("The customer was charged twice.", {"a": {"type": "noul", "instructions": "Refund?"}}),
    (
        {"orders": list(range(9)), "note": "caf\u00e9"},
        {
            "team": {"instructions": "Which team?", "criteria": {"billing": "charges", "login": None, "other": 0}},
            "urgency": {"type": "score", "instructions": "How urgent?", "criteria": ["low", "1: middle", "high"]},
            "wide": {"instructions": "Which?", "criteria": [f"option {index}" for index in range(40)]},
        },
    ),
    (
        "The customer was charged twice for one order. " * 30,  # long enough for the reference to share its prefix
        {
            "urgency": {"type": "score", "instructions": "How urgent?", "criteria": [f"level {i}" for i in range(10)]},
            "refund": {"type": "noul", "instructions": "A refund?", "criteria": {"true": "they ask for money"}},
        },
    ),
]


@pytest.mark.filterwarnings("ignore")  # of the reference: it names the cache as older transformers did
@pytest.mark.parametrize("shared", [False, True], ids=["masked", "shared"])
@pytest.mark.parametrize("index", range(len(REQUESTS)))
def test_the_reference_gives_the_same_probabilities(
    loaded: Callable[..., DeciderExecutor], folder: Path, index: int, shared: bool
) -> None:
    """decider-ai 1.8.1 on the same checkpoint and CPU, from its own rows: its padded and masked forward, and its
    shared prefixes. Compared after the temperature and the softmax."""
    infer = pytest.importorskip(
        "decider.infer", reason="decider-ai is not installed: pip install --no-deps decider-ai==1.8.1"
    )
    from decider import temperature
    from decider.engine import Engine

    state, questions = REQUESTS[index]
    reference = infer.Decider(str(folder), device="cpu", dtype=torch.float32, use_graphs=False)
    rendered, _, items = reference._system_one_items(state, questions, True, 32768, "state_first", True)
    temperatures = temperature.for_items(reference.T, reference.T_by_type, items)
    if shared:
        reference.eng = Engine(
            str(folder), device="cpu", dtype=torch.float32, use_graphs=False, compile=False, conv_patch=False
        )
    expected = reference._system_one_probs(items, "state_first", temperature=temperatures)
    owners = []
    for number, question in enumerate(rendered.values()):
        owners += [number] * (len(questions[list(rendered)[number]]["criteria"]) if question["type"] == "score" else 1)
    request = rows_request([item["ids"] for item in items], [item["nopts"][0] for item in items], owners)
    for execution in qwen3_5.EXECUTIONS:
        output = loaded(execution=execution).execute(request, FakeCall())
        logits = np.split(output["logits"], np.cumsum(output["counts"])[:-1])
        for row, wanted, item in zip(logits, expected, items, strict=True):
            divided = row / np.float32(tiny_decider.CALIBRATION["temperature_by_type"][item["types"][0]])
            found = np.exp(divided - divided.max())
            assert np.abs(found / found.sum() - np.asarray(wanted)[: len(row)]).max() < TOLERANCE
