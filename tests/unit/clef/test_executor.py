"""The clef family's half in the host, on a tiny random checkpoint in the released layout, on the CPU in float32."""

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

from executor_host import devices  # noqa: E402
from executor_host.errors import (  # noqa: E402
    Abandoned,
    ConfigurationError,
    ExecutionFailed,
    FatalExecutionError,
    InputRefused,
    NonFinite,
)
from executor_host.executors.clef import checkpoint as clef_checkpoint  # noqa: E402
from executor_host.executors.clef.executor import ClefExecutor  # noqa: E402
from protocol import families  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import decode, encode  # noqa: E402
from protocol.messages import Lane, Ready  # noqa: E402
from protocol.payloads import PromptRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_clef  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402
from tests.unit.clef.helpers import QUESTIONS, STATE, request  # noqa: E402

TOLERANCE = 1e-5
"""Of hidden states and logits, which are about 0.2 and 1 each; another neighbour moves a logit by 0.01 and more."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint. Read only."""
    return tiny_clef.write(tmp_path_factory.mktemp("clef") / "tiny", seed=3)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture(scope="module")
def executor(folder: Path) -> ClefExecutor:
    """Loaded and warm."""
    return start(folder)


def start(folder: Path, **options: object) -> ClefExecutor:
    """A loaded and warm executor on the CPU."""
    made = ClefExecutor(str(folder), {"device": "cpu", **options})
    made.load(lambda fraction, note: None)
    made.warm_up()
    return made


def load(folder: Path, **options: object) -> Any:
    """The facts of a checkpoint."""
    return ClefExecutor(str(folder), {"device": "cpu", **options}).load(lambda fraction, note: None)


def logits(executor: ClefExecutor, questions: Any = QUESTIONS, state: object = STATE) -> list[NDArray[np.float32]]:
    """Of each question."""
    output = executor.execute(request(questions, state), FakeCall())
    return np.split(output["logits"], np.cumsum(output["counts"])[:-1])


# Loading


def test_what_ready_says(folder: Path) -> None:
    """Identity, files and limits, in types that travel; the progress never falls and ends at 1."""
    made = ClefExecutor(str(folder), {"device": "cpu"})
    seen: list[float] = []
    facts = made.load(lambda fraction, note: seen.append(fraction))
    made.warm_up()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    message = decode(
        encode(Ready(address="ipc://x", facts=dict(facts)), incarnation="1-a", call=0), lane=Lane.CONTROL
    ).message
    assert isinstance(message, Ready)
    assert message.facts == facts
    assert (facts["name"], facts["dtype"], facts["device"]) == ("clef", "float32", "cpu")
    assert (facts["limits"], facts["truncate"], facts["checkpoint_revision"]) == ({"tokens": 16384}, False, None)
    assert set(facts["files"]) == {
        "config.json",
        "tokenizer.json",
        "joint_head_config.json",
        "joint_head.safetensors",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }
    made.close()
    made.close()
    with pytest.raises(ExecutionFailed, match="not loaded"):
        made.execute(request(), FakeCall())


def test_equal_identities_mean_equal_answers(folder: Path, copy: Path) -> None:
    """Another head, limit, switch or arithmetic is another model for the queue of a restarted host."""
    first = load(folder)["identity"]
    assert load(copy)["identity"] == first
    for options in ({"dtype": "bfloat16"}, {"max_length": 100}, {"truncate": True}):
        assert load(folder, **options)["identity"] != first
    tiny_clef.write(copy, seed=4)
    assert load(copy)["identity"] != first


def test_the_family_retires_on_any_execution_error() -> None:
    """As its contract says, and has no bound of requests unless one is configured."""
    family = families.find("clef")
    assert (family.retire_on_error, family.default_max_requests, family.default_max_cost) == (True, None, None)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batch": 1}, "no option 'batch'"),
        ({"max_length": 0}, "'max_length' is 0; it is a whole number, 1 to 65536"),
        ({"max_length": 65537}, "'max_length' is 65537; it is a whole number, 1 to 65536"),
        ({"truncate": 1}, "'truncate' is 1; it is true or false"),
        ({"dtype": "float16"}, "'dtype' is 'float16'; it is one of auto, float32, bfloat16"),
    ],
)
def test_options_are_checked_before_anything_is_read(options: dict[str, object], expected: str) -> None:
    """The name, the value and what it may be."""
    with pytest.raises(ConfigurationError, match=expected):
        ClefExecutor("/nowhere", options)


def test_a_warm_up_that_is_no_decision_stops_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that no request fits, and a model that does not answer, are seen before the port opens."""
    with pytest.raises(ConfigurationError, match=r"warm-up decision failed: schema requires \d+ tokens"):
        start(folder, max_length=100)
    made = ClefExecutor(str(folder), {"device": "cpu"})
    with pytest.raises(ConfigurationError, match="comes after the load"):
        made.warm_up()


# Decisions


def test_the_backbone_reads_as_transformers_does(folder: Path, executor: ClefExecutor) -> None:
    """The hidden state of every position, against the published model class with its vision tower."""
    judge = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    assert executor._model is not None
    for length in (1, 63, 64, 65, 300):
        tokens = np.random.default_rng(length).integers(0, 300, length).astype(np.int32)
        with torch.no_grad():
            expected = judge.model.language_model(torch.from_numpy(tokens[None].astype(np.int64))).last_hidden_state[0]
        found = executor._model.backbone.read_all(tokens, lambda: None)
        assert found.shape == (length, tiny_clef.HEAD.hidden_size)
        assert float((found - expected).abs().max()) < TOLERANCE


def test_lexical_vectors_are_rows_of_the_lm_head(folder: Path, executor: ClefExecutor) -> None:
    """And not of the embedding, which is another table in this model."""
    judge = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    assert executor._model.head is not None
    found = executor._model.head._lexical(np.array([5, 6, 7, 8], np.int32), [(1, 3)])
    assert torch.allclose(found[0], judge.lm_head.weight[6:8].mean(0), atol=1e-6)
    assert not torch.allclose(found[0], judge.get_input_embeddings().weight[6:8].mean(0), atol=1e-2)


def test_logits_come_in_request_order(executor: ClefExecutor) -> None:
    """The model reads the options of a choice sorted; asking in another order gives the same numbers by name."""
    asked = QUESTIONS["team"]
    turned = {**asked, "criteria": dict(reversed(asked["criteria"].items()))}
    (one,), (other,) = logits(executor, {"team": asked}), logits(executor, {"team": turned})
    assert one.tolist() == other[::-1].tolist()
    assert one.tolist() != other.tolist()


def test_questions_influence_each_other(executor: ClefExecutor) -> None:
    """One question's logits move with its neighbours, their order and with ids: they are decided together."""
    together = logits(executor)
    alone = logits(executor, {"refund": QUESTIONS["refund"]})[0]
    assert np.abs(together[1] - alone).max() > 100 * TOLERANCE
    reversed_order = logits(executor, dict(reversed(QUESTIONS.items())))
    assert np.abs(together[1] - reversed_order[1]).max() > 100 * TOLERANCE
    renamed = logits(executor, {("x" if name == "refund" else name): fields for name, fields in QUESTIONS.items()})
    assert np.abs(together[1] - renamed[1]).max() > 100 * TOLERANCE


def test_the_same_request_gives_the_same_bytes(executor: ClefExecutor) -> None:
    """To the bit, and what the model read is counted."""
    first, second = (executor.execute(request(), FakeCall()) for _ in range(2))
    assert first["logits"].tobytes() == second["logits"].tobytes()
    assert first["logits"].dtype == np.float32
    assert first["counts"].tolist() == [2, 2, 3]
    assert first["truncated"] is None


def test_half_precision_answers_nearly_the_same(folder: Path, executor: ClefExecutor) -> None:
    """What a GPU computes in by default, here on the CPU: backbone and head in bfloat16, logits widened."""
    made = start(folder, dtype="bfloat16")
    assert made._model is not None
    assert {tensor.dtype for tensor in made._model.head._tensors.values()} == {torch.bfloat16}
    for found, expected in zip(logits(made), logits(executor), strict=True):
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() < 0.1


def test_a_long_state_is_refused_or_cut(folder: Path, executor: ClefExecutor) -> None:
    """400 with every number; with the switch the first tokens stay, which is told."""
    short = executor.execute(request(state=""), FakeCall())["tokens"]
    with pytest.raises(InputRefused, match=rf"maximum is {short + 50}") as caught:
        _limited(folder, short + 50).execute(request(state="x " * 900), FakeCall())
    assert (caught.value.status, caught.value.code) == (400, "max_tokens_exceeded")
    cut = _limited(folder, short + 50, truncate=True)
    output = cut.execute(request(state="x " * 900), FakeCall())
    assert output["tokens"] == short + 50
    assert output["truncated"]["kept"] == 50
    assert output["truncated"]["total"] > 900
    with pytest.raises(InputRefused, match=rf"schema requires {short} tokens before state; maximum is {short - 1}"):
        _limited(folder, short - 1, truncate=True).execute(request(), FakeCall())


def _limited(folder: Path, max_length: int, **options: object) -> ClefExecutor:
    """Loaded, and not warm: the warm-up may be too long for the limit."""
    made = ClefExecutor(str(folder), {"device": "cpu", "max_length": max_length, **options})
    made.load(lambda fraction, note: None)
    return made


# What goes wrong


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_call_that_nobody_waits_for_ends_between_the_steps(executor: ClefExecutor, looks: int) -> None:
    """Before the encoding, before the pass, after it; the fourth look never comes."""
    with pytest.raises(Abandoned):
        executor.execute(request(), FakeCall(looks))
    executor.execute(request(), FakeCall(3))


DOCUMENTS: dict[str, object] = {
    "no JSON": b"{",
    "no object": [],
    "no questions": {"state": "s", "questions": []},
    "no id": {"state": "s", "questions": [{"type": "noul", "criteria": None}]},
    "an id that is no text": {"state": "s", "questions": [{"id": 1, "type": "noul", "criteria": None}]},
    "another type": {"state": "s", "questions": [{"id": "q", "type": "box", "criteria": None}]},
    "options in a list": {"state": "s", "questions": [{"id": "q", "type": "choice", "criteria": ["a"]}]},
    "no options": {"state": "s", "questions": [{"id": "q", "type": "choice", "criteria": {}}]},
    "no state": {"questions": [{"id": "q", "type": "noul", "criteria": None}]},
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_document_that_is_no_request_is_the_senders_mistake(executor: ClefExecutor, case: str) -> None:
    """It ends the call and not the host."""
    document = DOCUMENTS[case]
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(Malformed):
        executor.execute(TextRequest(raw), FakeCall())


def test_another_payload_is_refused(executor: ClefExecutor) -> None:
    """Of another family."""
    with pytest.raises(ExecutionFailed, match="TextRequest"):
        executor.execute(PromptRequest(np.zeros(1, np.int32)), FakeCall())


def test_numbers_that_are_none_are_never_answered(executor: ClefExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One NaN anywhere in what the model read."""

    def spoiled(tokens: Any, check: Callable[[], None], shared: int) -> Any:
        hidden = torch.ones(len(tokens), tiny_clef.HEAD.hidden_size)
        hidden[-1, 0] = float("nan")
        return hidden

    monkeypatch.setattr(executor._model.backbone, "read_all", spoiled)
    with pytest.raises(NonFinite, match="not finite"):
        executor.execute(request(), FakeCall())


def test_a_device_error_is_fatal_and_others_are_not(executor: ClefExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that has run out is one; a bug is passed on for the host to judge. The device is waited for either way."""
    waits: list[int] = []
    assert executor._model is not None
    backbone = executor._model.backbone
    monkeypatch.setattr("executor_host.devices.synchronize", lambda device: waits.append(1))
    for error, expected in ((MemoryError(), FatalExecutionError), (RuntimeError("a bug"), RuntimeError)):

        def fail(tokens: Any, check: Any, shared: int, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(backbone, "read_all", fail)
        with pytest.raises(expected):
            executor.execute(request(), FakeCall())
    assert len(waits) == 2


# What is no checkpoint


def change(folder: Path, name: str, /, *drop: str, **fields: Any) -> None:
    """Other fields in a JSON file, some of them gone."""
    document = json.loads((folder / name).read_text()) | fields
    (folder / name).write_text(json.dumps({key: value for key, value in document.items() if key not in drop}))


def tensors(file: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Other tensors in a weights file."""
    from safetensors.torch import load_file, save_file

    content = load_file(file)
    edit(content)
    save_file(content, file, metadata={"format": "pt"})


def text_config(folder: Path, **fields: Any) -> None:
    """Another text model."""
    inner = json.loads((folder / "config.json").read_text())["text_config"]
    change(folder, "config.json", text_config=inner | fields)


def lm_head(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """The same, in the shard that has the LM head."""
    table = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    tensors(folder / table["lm_head.weight"], edit)


HEAD, CONFIG = "joint_head.safetensors", "joint_head_config.json"
SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"no {name}": (lambda folder, name=name: (folder / name).unlink(), rf"{name} is missing")  # type: ignore[misc]
        for name in ("config.json", "tokenizer.json", HEAD, CONFIG)
    },
    "no shard": (lambda folder: (folder / "model-00001-of-00002.safetensors").unlink(), "is missing"),
    "an adapter": (lambda folder: (folder / "adapter_config.json").touch(), "lies beside the weights"),
    "another model": (lambda folder: change(folder, "config.json", model_type="llama"), "model_type is 'llama'"),
    "other layers": (lambda folder: text_config(folder, layer_types=["full_attention"] * 4), "layer_types"),
    "another vocabulary": (lambda folder: text_config(folder, vocab_size=7), r"BF16 \[7, 64\] is needed"),
    "quantized": (lambda folder: change(folder, "config.json", quantization_config={}), "quantization_config"),
    "another hidden size": (lambda folder: change(folder, CONFIG, hidden_size=32), "hidden_size is 32"),
    "no width": (lambda folder: change(folder, CONFIG, "width"), r"joint_head_config\.json: width is None"),
    "odd heads": (lambda folder: change(folder, CONFIG, heads=5), "which 5 heads do not divide"),
    "another kind of head": (lambda folder: change(folder, CONFIG, gates=2), "gates is not known"),
    "a dropout that is none": (lambda folder: change(folder, CONFIG, dropout="0"), "dropout is '0'"),
    "more layers than tensors": (lambda folder: change(folder, CONFIG, layers=3), r"layers\.2\.\S+ is missing"),
    "a head tensor too many": (
        lambda folder: tensors(folder / HEAD, lambda content: content.update(x=torch.ones(1))),
        "x is foreign",
    ),
    "a head tensor too few": (
        lambda folder: tensors(folder / HEAD, lambda content: content.pop("residual_gate")),
        "residual_gate is missing",
    ),
    "a head tensor of another shape": (
        lambda folder: tensors(folder / HEAD, lambda content: content.update(residual_gate=torch.ones(1))),
        r"residual_gate is F32 \[1\]; BF16 or F32 \[\] is needed",
    ),
    "half a head": (
        lambda folder: (folder / HEAD).write_bytes((folder / HEAD).read_bytes()[:-2]),
        "its own table says",
    ),
    "no LM head": (
        lambda folder: lm_head(folder, lambda content: content.pop("lm_head.weight")),
        r"lm_head\.weight is missing",
    ),
    "an LM head in float32": (
        lambda folder: lm_head(folder, lambda content: content.update({"lm_head.weight": torch.ones(2, 2)})),
        r"lm_head\.weight is F32 \[2, 2\]; BF16",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "is not a tokenizer"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_no_checkpoint(copy: Path, case: str) -> None:
    """Refused before anything is loaded, with the file and the key, by the host and by the check alike."""
    spoil, expected = SPOILED[case]
    spoil(copy)
    with pytest.raises(ConfigurationError, match=expected):
        clef_checkpoint.inspect(str(copy), lambda fraction, note: None)


def test_a_missing_folder_is_named() -> None:
    """And so is a missing path."""
    for path, expected in ((None, "needs the folder"), ("/nowhere", "/nowhere is not a folder")):
        with pytest.raises(ConfigurationError, match=expected):
            clef_checkpoint.verify(path, lambda fraction, note: None)


def test_what_the_check_says(folder: Path) -> None:
    """The size, the head, and that it is no released checkpoint."""
    lines = clef_checkpoint.inspect(str(folder), lambda fraction, note: None)
    assert lines[0].startswith("clef, ")
    assert "width 32: 2 routing layers, 2 field layers" in lines[1]
    assert "not the sizes of a released" in lines[2]


def test_releases_are_told_by_their_sizes() -> None:
    """To the digit; the revision is claimed only for a head that is known."""
    flash, large = clef_checkpoint.RELEASES
    assert (flash.name, flash.sizes, flash.revision) == (
        "clef-flash",
        (4096, 12288, 32, 16, 4),
        "17f0b0ad64efb65d273590632833508766b2aae6",
    )
    assert (large.name, large.sizes, large.revision) == (
        "clef",
        (5120, 17408, 64, 24, 4),
        "2f3de3dd85f379784083b0814d997ab627200f0c",
    )
    head = clef_checkpoint.HeadSizes(4096, 1024, 2, 4, 16, 4096)
    for release, digest, revision in (
        (flash, flash.head_sha256, flash.revision),
        (flash, "0" * 64, None),
        (large, "0" * 64, None),
        (None, flash.head_sha256, None),
    ):
        files = {"joint_head.safetensors": str(digest)}
        made = clef_checkpoint.Checkpoint(Path(), files, head, release, 1)
        assert made.revision == revision
        assert made.name == ("clef" if release is None else release.name)


def test_a_device_that_is_not_there(folder: Path) -> None:
    """Said before the folder is read."""
    with pytest.raises(ConfigurationError, match="tpu"):
        ClefExecutor(str(folder), {"device": "tpu"})
    made = ClefExecutor(str(folder), {"device": "cuda:99"})
    with pytest.raises(ConfigurationError, match="there is no device 'cuda:99'"):
        made.load(lambda fraction, note: None)
    assert devices.placement("auto", "auto")[0] in ("cpu", "cuda")


# Kept states


def test_a_kept_state_is_read_once_and_changes_no_bit(folder: Path, executor: ClefExecutor) -> None:
    """A, B, A, B with other questions each time: as a host that has seen nothing, bit for bit, and within rounding as
    one that keeps nothing; a state that grows is read from where it grows."""
    words = "The customer was charged twice and asks for the money back. "
    states = [words * 6, "No. " + words * 4, words * 6, words * 6 + words * 3]
    asked: list[Any] = [QUESTIONS, {"refund": QUESTIONS["refund"]}, {"team": QUESTIONS["team"]}, QUESTIONS]
    options = {"prefix_cache_mb": 64, "prefix_segment": 16}
    warm = start(folder, **options)
    begun = warm.execute(request(asked[0], states[0]), FakeCall())["statistics"]["kept"]
    assert begun["misses"] > 0
    for state, questions in zip([*states, *states], [*asked, *asked[::-1]], strict=True):
        found = logits(warm, questions, state)
        for mine, cold, plain in zip(
            found, logits(start(folder, **options), questions, state), logits(executor, questions, state), strict=True
        ):
            assert np.array_equal(mine, cold)
            np.testing.assert_allclose(mine, plain, atol=TOLERANCE)
    counts = warm.execute(request(asked[0], states[3]), FakeCall())["statistics"]["kept"]
    assert counts["hits"] >= 5
    assert counts["kept_tokens"] > begun["kept_tokens"]
    assert 0 < counts["bytes"] <= counts["limit_bytes"]


def test_a_state_that_leaves_no_room_is_read_all_the_same(folder: Path, executor: ClefExecutor) -> None:
    """A budget of less than one segment: nothing is kept, and the answer is the same."""
    small = start(folder, prefix_cache_mb=1, prefix_segment=16)
    model = small._model
    assert model is not None
    model.backbone._kept.limit = 1
    for mine, plain in zip(logits(small), logits(executor), strict=True):
        np.testing.assert_allclose(mine, plain, atol=TOLERANCE)
    output = small.execute(request(QUESTIONS, STATE), FakeCall())
    assert output["statistics"]["kept"]["bytes"] == 0


def test_keeping_is_another_rounding_and_so_another_identity(folder: Path) -> None:
    """Segments are named in it."""
    plain = load(folder)["identity"]
    assert load(folder, prefix_cache_mb=1, prefix_segment=32)["identity"] == f"{plain}/kept:32"
