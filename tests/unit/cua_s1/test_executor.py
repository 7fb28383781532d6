"""The cua-s1 family's half in the host, on tiny random checkpoints in the released layouts, on the CPU in float32.

Judges: the full forward of transformers, and PEFT where it is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host import checkpoints, inspection  # noqa: E402
from executor_host.errors import Abandoned, ConfigurationError, ExecutionFailed, FatalExecutionError  # noqa: E402
from executor_host.executors.cua_s1 import adapter as cua_s1_adapter  # noqa: E402
from executor_host.executors.cua_s1 import checkpoint as cua_s1_checkpoint  # noqa: E402
from executor_host.executors.cua_s1 import executor as cua_s1  # noqa: E402
from executor_host.executors.cua_s1.executor import CuaS1Executor  # noqa: E402
from frontend.families.base import Decision  # noqa: E402
from frontend.families.cua_s1 import grammar, prompt  # noqa: E402
from frontend.families.cua_s1.processor import CuaS1Processor  # noqa: E402
from frontend.families.cua_s1.profile import CuaS1Native  # noqa: E402
from frontend.http.systemone import parse_request  # noqa: E402
from frontend.requests.answers import ChoiceAnswer  # noqa: E402
from protocol.contracts.cua_s1 import MODEL_ID, REVISION  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import decode, encode  # noqa: E402
from protocol.messages import Lane, Ready, Result  # noqa: E402
from protocol.payloads import PromptRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_cua_s1  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402

TOLERANCE = 1e-5
SAME = 1e-6


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model with its adapter in `text`."""
    folder = tiny_cua_s1.write_base(tmp_path_factory.mktemp("cua-s1") / "base", seed=3)
    tiny_cua_s1.write_adapter(folder / "text", folder)
    return folder


@pytest.fixture(scope="module")
def merged(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the two."""
    return tiny_cua_s1.write_merged(tmp_path_factory.mktemp("cua-s1") / "merged", base, base / "text")


@pytest.fixture
def copy(base: Path, tmp_path: Path) -> Path:
    """The base with its adapter, to be spoiled."""
    return Path(shutil.copytree(base, tmp_path / "copy"))


class Both:
    """The two halves of the family around one checkpoint."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.executor = CuaS1Executor(str(folder), {"device": "cpu", **options})
        self.facts = self.executor.load(lambda fraction, note: None)
        self.executor.warm_up()
        self.processor = CuaS1Processor(self.facts, options, str(folder))

    def state(self, tokens: Any) -> NDArray[np.float32]:
        """The hidden state after these tokens."""
        payload = PromptRequest.from_wire(PromptRequest(np.asarray(tokens, np.int32)).to_wire())
        hidden: NDArray[np.float32] = self.executor.execute(payload, FakeCall())["hidden"]
        return hidden

    def decide(self, questions: dict[str, Any], state: Any = "Dialog: Update installed.") -> Decision:
        """A whole decision of the System One profile."""
        prepared = self.processor.prepare(parse_request({"state": state, "questions": questions}))
        kept = []
        for index, unit in enumerate(prepared.units):
            kept.append(self.processor.absorb(prepared, index, self.executor.execute(unit, FakeCall())))
        return self.processor.finish(prepared, kept)


@pytest.fixture(scope="module")
def both(base: Path) -> Both:
    """Around the base model with its adapter."""
    return Both(base)


CLOSE = {"type": "choice", "instructions": "Close it.", "criteria": {"ok": "OK", "wait": "Wait"}}
QUESTIONS: dict[str, Any] = {
    "close": CLOSE,
    "many": {"type": "choice", "criteria": {f"option {index}": None for index in range(26)}},
    "one": {"type": "choice", "instructions": {"which": [1, 2]}, "criteria": {"only": {"action": "click"}}},
    "three": {"type": "choice", "instructions": "Keep.", "criteria": {"a": "x", "b": ["y"], "c": "点击「保存」"}},
}


def distributions(decision: Decision) -> dict[str, dict[str, float]]:
    return {name: dict(answer.probabilities) for name, answer in decision.answers if isinstance(answer, ChoiceAnswer)}


def difference(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> float:
    return max(abs(value - other[name][option]) for name, values in one.items() for option, value in values.items())


# Loading


def test_the_released_layout_is_loaded(both: Both, base: Path) -> None:
    """A multimodal config, shards, tensors that text does not need; what READY says, and that it travels."""
    facts = both.facts
    assert facts["name"] == "cua-s1-4b-0.2"
    assert (facts["form"], facts["dtype"], facts["device"]) == ("adapter", "float32", "cpu")
    assert (facts["released"], facts["checkpoint_revision"]) == (False, None)
    assert facts["limits"] == {"prompt_tokens": 16_384, "options": 26}
    files: Any = facts["files"]
    assert sorted(files) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "text/adapter_config.json",
        "text/adapter_model.safetensors",
        "tokenizer.json",
    ]
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(base)
    assert facts["parameters"] == sum(parameter.numel() for parameter in model.model.parameters())
    letters: Any = facts["letters"]
    assert letters["rows"].dtype == np.float32
    expected = model.model.embed_tokens.weight[32:58].detach().float().numpy()
    assert np.array_equal(letters["rows"], expected)
    ready = Ready(address="ipc://x", facts=dict(facts))
    message = decode(encode(ready, incarnation="1-a", call=0), lane=Lane.CONTROL).message
    assert isinstance(message, Ready)
    assert np.array_equal(message.facts["letters"]["rows"], expected)
    assert {key: value for key, value in message.facts.items() if key != "letters"} == {
        key: value for key, value in facts.items() if key != "letters"
    }


def test_progress_never_falls_and_a_closed_executor_fails(base: Path) -> None:
    """From nothing to all, with the bytes of what is hashed and of what is read."""
    executor = CuaS1Executor(str(base), {"device": "cpu"})
    seen: list[float] = []
    notes: list[str] = []
    executor.load(lambda fraction, note: (seen.append(fraction), notes.append(note))[0])
    assert seen == sorted(seen)
    assert re.fullmatch(r"hashing \S+, [0-9.]+ MiB of [0-9.]+ MiB", notes[0])
    assert re.fullmatch(r"reading [0-9.]+ MiB of weights", notes[-2])
    assert seen[-1] == 1.0
    executor.close()
    executor.close()
    with pytest.raises(ExecutionFailed):
        executor.execute(PromptRequest(np.ones(3, np.int32)), FakeCall())


def test_the_adapter_at_load_is_the_export(both: Both, base: Path, merged: Path) -> None:
    """One model in two forms, and another one than the base model alone."""
    export = Both(merged)
    assert export.facts["form"] == "merged"
    assert export.facts["identity"] != both.facts["identity"]
    assert export.facts["parameters"] == both.facts["parameters"]
    ours, theirs = distributions(both.decide(QUESTIONS)), distributions(export.decide(QUESTIONS))
    assert difference(ours, theirs) < TOLERANCE
    tokens = list(range(100, 160))
    assert np.abs(both.state(tokens) - export.state(tokens)).max() < TOLERANCE
    plain = transformers.Qwen3_5ForCausalLM.from_pretrained(base, dtype=torch.float32).eval().model
    with torch.no_grad():
        unadapted = plain(input_ids=torch.tensor([tokens])).last_hidden_state[0, -1].numpy()
    assert np.abs(both.state(tokens) - unadapted).max() > 100 * TOLERANCE


@pytest.mark.filterwarnings("ignore")  # of PEFT: it names things as older transformers did
def test_the_merge_is_pefts(base: Path, tmp_path: Path) -> None:
    """In bfloat16, as the export is made: the same weights bit for bit. Unmerged in float32: as near as rounding the
    sum to bfloat16 is."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft")
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    adapted = peft.PeftModel.from_pretrained(model, base / "text").merge_and_unload()
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    before = {name: weight.clone() for name, weight in plain.model.named_parameters()}
    cua_s1_adapter.merge(plain.model, base / "text")
    changed = 0
    theirs = dict(adapted.model.named_parameters())
    for name, weight in plain.model.named_parameters():
        assert torch.equal(weight, theirs[name]), name
        changed += not torch.equal(weight, before[name])
    assert changed == 2 * 4 + 8 * 3
    # What an exporter saves is accepted as it is.
    adapted.save_pretrained(tmp_path / "export")
    shutil.copy(base / "tokenizer.json", tmp_path / "export")
    tiny_cua_s1.mark(tmp_path / "export")
    exported, ours = Both(tmp_path / "export"), Both(base)
    assert exported.facts["form"] == "merged"
    assert difference(distributions(exported.decide(QUESTIONS)), distributions(ours.decide(QUESTIONS))) < TOLERANCE
    # Unmerged.
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    unmerged = peft.PeftModel.from_pretrained(model, base / "text").eval()
    (unit,) = ours.processor.prepare(parse_request({"state": "A dialog.", "questions": {"q": CLOSE}})).units
    assert isinstance(unit, PromptRequest)
    with torch.no_grad():
        logits = unmerged(input_ids=torch.from_numpy(unit.tokens[None].astype(np.int64))).logits[0, -1, 32:34]
    probabilities = torch.softmax(logits, -1).tolist()
    decision = distributions(ours.decide({"q": CLOSE}, "A dialog."))
    assert list(decision["q"].values()) == pytest.approx(probabilities, abs=0.01)


def test_equal_identities_mean_equal_answers(base: Path, copy: Path) -> None:
    """Another adapter or arithmetic is another model for the queue of a restarted host."""

    def identity(path: Path, **options: object) -> object:
        return CuaS1Executor(str(path), {"device": "cpu", **options}).load(lambda fraction, note: None)["identity"]

    first = identity(base)
    assert identity(copy) == first
    assert identity(copy, adapter=str(base / "text")) == first
    assert identity(base, dtype="bfloat16") != first
    tiny_cua_s1.write_adapter(copy / "text", copy, seed=99)
    assert identity(copy) != first


def test_the_pins_are_the_published_ones() -> None:
    """To the digit, and the released adapter has exactly the tensors that are looked for."""
    assert REVISION == "16818868b0cc7813808aae4e87b417657046ab79"
    assert {name: (size, digest[:8]) for name, (size, digest) in cua_s1_checkpoint.RELEASED.items()} == {
        "config.json": (3161, "ddc63e1c"),
        "tokenizer.json": (12807982, "5f9e4d49"),
        "text/adapter_config.json": (1091, "c246fce1"),
        "text/adapter_model.safetensors": (84968408, "9b59c5ae"),
    }
    assert all(len(digest) == 64 for _, digest in cua_s1_checkpoint.RELEASED.values())
    shapes = {"q_proj": (8192, 2560), "k_proj": (1024, 2560), "v_proj": (1024, 2560), "o_proj": (2560, 4096)}
    mlp = {"gate_proj": (9216, 2560), "up_proj": (9216, 2560), "down_proj": (2560, 9216)}
    released = {
        f"model.language_model.layers.{layer}.{part}.{name}.weight": checkpoints.Tensor("BF16", shape)
        for layer in range(32)
        for part, modules in (("self_attn", shapes if layer % 4 == 3 else {}), ("mlp", mlp))
        for name, shape in modules.items()
    }
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for module, (_, tensor) in sorted(cua_s1_adapter.targets(released).items()):
        for half, shape in (("A", [16, tensor.shape[1]]), ("B", [tensor.shape[0], 16])):
            start, end = end, end + 4 * shape[0] * shape[1]
            name = f"base_model.model.model.{module}.lora_{half}.weight"
            entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    head = len(json.dumps(entries, separators=(",", ":")))
    assert 8 + head + -head % 8 + end == 84_968_408


def test_a_claimed_revision_must_have_its_bytes(base: Path, merged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes first, then hashes; an export has none to compare with."""
    claim = {"device": "cpu", "revision": REVISION}
    with pytest.raises(ConfigurationError, match=r"config\.json has \d+ bytes; the released file has 3161"):
        CuaS1Executor(str(base), claim).load(lambda fraction, note: None)
    with pytest.raises(ConfigurationError, match="merged export"):
        CuaS1Executor(str(merged), claim).load(lambda fraction, note: None)
    files = {
        name: ((base / name).stat().st_size, checkpoints.sha256(base / name)) for name in cua_s1_checkpoint.RELEASED
    }
    monkeypatch.setattr(cua_s1_checkpoint, "RELEASED", files)
    facts = CuaS1Executor(str(base), claim).load(lambda fraction, note: None)
    assert (facts["released"], facts["checkpoint_revision"]) == (True, REVISION)
    monkeypatch.setitem(files, "text/adapter_config.json", (files["text/adapter_config.json"][0], "0" * 64))
    with pytest.raises(ConfigurationError, match=r"text/adapter_config\.json is not the released file"):
        CuaS1Executor(str(base), claim).load(lambda fraction, note: None)
    for revision in ("main", 1, ""):
        with pytest.raises(ConfigurationError, match="revision"):
            CuaS1Executor(str(base), {"revision": revision})


def test_people_are_told_what_a_folder_is(base: Path, merged: Path) -> None:
    """For `framehost check`."""
    lines = cua_s1_checkpoint.inspect(str(base), lambda fraction, note: None)
    assert "base model with the adapter in" in lines[0]
    assert any(line.endswith("  text/adapter_model.safetensors") for line in lines)
    assert "merged export" in cua_s1_checkpoint.inspect(str(merged), lambda fraction, note: None)[0]
    found = inspection.examine(str(merged), None, lambda fraction, note: None)
    assert (found.family, found.problem) == ("cua-s1", "")
    assert "config.json is missing" in inspection.examine(str(merged.parent), "cua-s1", lambda f, note: None).problem


# What is no checkpoint


def refused(folder: Path | None, **options: object) -> str:
    path = None if folder is None else str(folder)
    with pytest.raises(ConfigurationError) as caught:
        CuaS1Executor(path, {"device": "cpu", **options}).load(lambda fraction, note: None)
    return caught.value.message


def change(file: Path, /, *drop: str, **fields: Any) -> None:
    """Other fields in a JSON file, some of them gone."""
    document = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({key: value for key, value in document.items() if key not in drop}))


def adapter_tensors(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "text" / "adapter_model.safetensors"
    content = load_file(file)
    edit(content)
    save_file(content, file, metadata={"format": "pt"})


QUERY = "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"
MIXER = "base_model.model.model.layers.0.linear_attn.out_proj.lora_A.weight"
VISUAL = "base_model.model.model.visual.blocks.0.mlp.linear_fc1.lora_A.weight"
OTHER = "base_model.model.model.language_model.layers.3.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop(QUERY), f"adapter_model.safetensors: {QUERY} is missing"),
        (lambda tensors: tensors.update({MIXER: torch.zeros(16, 64)}), f"{MIXER} has no place"),
        (lambda tensors: tensors.update({VISUAL: torch.zeros(16, 4)}), f"{VISUAL} is of the multimodal adapter"),
        (lambda tensors: tensors.update({OTHER: tensors.pop(QUERY)}), f"{OTHER} is of the multimodal adapter"),
        (lambda tensors: tensors.update({QUERY: torch.zeros(8, 64)}), f"{QUERY} has the shape [8, 64], not [16, 64]"),
        (lambda tensors: tensors.update({QUERY: tensors[QUERY].bfloat16()}), f"{QUERY} is BF16, not F32"),
        (lambda tensors: tensors[QUERY].fill_(float("nan")), "layers.3.self_attn.q_proj makes weights that are not"),
        (lambda tensors: tensors.clear(), "is missing"),
    ],
)
def test_an_adapter_with_other_tensors(copy: Path, edit: Callable[[dict[str, Any]], None], message: str) -> None:
    """File and key are named."""
    adapter_tensors(copy, edit)
    said = refused(copy)
    assert message in said
    assert said.startswith("adapter_model.safetensors: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"r": 8}, "r is 8, not 16"),
        ({"lora_alpha": 16}, "lora_alpha is 16, not 32"),
        ({"lora_alpha": 32.5}, "lora_alpha is 32.5"),
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"use_rslora": True}, "use_rslora is True"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is ['lm_head']"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern is"),
        ({"target_modules": [*tiny_cua_s1.TARGETS, "linear_fc1", "linear_fc2"]}, "target_modules has linear_fc1"),
        ({"target_modules": "model\\.visual\\..*"}, "target_modules is that of the multimodal adapter"),
        ({"target_modules": ["q_proj"]}, "target_modules is ['q_proj'], not"),
        ({"target_modules": None}, "target_modules is neither"),
    ],
)
def test_an_adapter_with_another_configuration(copy: Path, fields: dict[str, Any], message: str) -> None:
    """What would be merged otherwise, or belongs elsewhere."""
    change(copy / "text" / "adapter_config.json", **fields)
    assert refused(copy).startswith(f"adapter_config.json: {message}")


def test_an_adapter_that_is_missing(copy: Path, tmp_path: Path) -> None:
    """A base model alone is refused, since it would answer; a pickle is not looked at."""
    (copy / "text").rename(tmp_path / "elsewhere")
    assert "there is no cua_s1_export.json" in refused(copy)
    assert "there is no adapter in" in refused(copy, adapter=str(tmp_path / "nowhere"))
    (tmp_path / "elsewhere" / "adapter_model.safetensors").rename(tmp_path / "elsewhere" / "adapter_model.bin")
    assert "adapter_model.safetensors is missing in" in refused(copy, adapter=str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere" / "adapter_config.json").unlink()
    assert "adapter_config.json is missing in" in refused(copy, adapter=str(tmp_path / "elsewhere"))


def test_an_adapter_that_was_cut_short(copy: Path) -> None:
    """Its own table says so."""
    file = copy / "text" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert "adapter_model.safetensors has" in refused(copy)


def test_an_adapter_is_not_merged_twice(merged: Path, base: Path, tmp_path: Path) -> None:
    """The marker has a format, and with it an adapter is one too many."""
    copy = Path(shutil.copytree(merged, tmp_path / "export"))
    assert "cannot be given once more" in refused(copy, adapter=str(base / "text"))
    change(copy / "cua_s1_export.json", format="cua-s1-text-merged/2")
    assert refused(copy).startswith("cua_s1_export.json: format is 'cua-s1-text-merged/2'")
    (copy / "cua_s1_export.json").unlink()
    assert "there is no cua_s1_export.json" in refused(copy)
    shutil.copy(base / "text" / "adapter_config.json", copy)
    assert "lies beside the weights" in refused(copy)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    """Or is empty, or not given."""
    assert "needs the folder" in refused(None)
    assert "is not a folder" in refused(tmp_path / "nothing")
    assert "config.json is missing" in refused(tmp_path)


def edit_index(folder: Path, edit: Callable[[dict[str, str]], None]) -> None:
    file = folder / "model.safetensors.index.json"
    document = json.loads(file.read_text())
    edit(document["weight_map"])
    file.write_text(json.dumps(document))


EMBEDDING = "model.language_model.embed_tokens.weight"
NORM = "model.language_model.norm.weight"


def spoil(folder: Path, how: str) -> None:
    match how:
        case "shard":
            (folder / "model-00002-of-00002.safetensors").unlink()
        case "index":
            (folder / "model.safetensors.index.json").unlink()
        case "both":
            shutil.copy(folder / "model-00002-of-00002.safetensors", folder / "model.safetensors")
        case "elsewhere":
            edit_index(folder, lambda places: places.update({NORM: "../model.safetensors"}))
        case "wrong shard":
            other = {"1": "2", "2": "1"}
            edit_index(
                folder,
                lambda places: places.update(
                    {NORM: places[NORM].replace(places[NORM][10], other[places[NORM][10]], 1)}
                ),
            )
        case "not mapped":
            edit_index(folder, lambda places: places.pop(NORM))
        case "no map":
            change(folder / "model.safetensors.index.json", weight_map=[])
        case "model":
            change(folder / "config.json", model_type="llama")
        case "text model":
            change(folder / "config.json", text_config={"model_type": "qwen3"})
        case "untied":
            document = json.loads((folder / "config.json").read_text())
            document["text_config"]["tie_word_embeddings"] = False
            (folder / "config.json").write_text(json.dumps(document))
        case "quantized":
            change(folder / "config.json", quantization_config={"bits": 4})
        case "letters":
            document = json.loads((folder / "tokenizer.json").read_text())
            vocabulary = document["model"]["vocab"]
            vocabulary["Z"], vocabulary["z"] = vocabulary["z"], vocabulary["Z"]
            (folder / "tokenizer.json").write_text(json.dumps(document))
        case "tokenizer":
            (folder / "tokenizer.json").write_text("{}")
        case "no letters":
            (folder / "tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shard", "model-00002-of-00002.safetensors is missing"),
        ("index", "model.safetensors is missing in"),
        ("both", "which is meant?"),
        ("elsewhere", f"model.safetensors.index.json: {NORM} is said to be in '../model.safetensors'"),
        ("wrong shard", f"{NORM} is missing"),
        ("not mapped", f"{NORM} is not in model.safetensors.index.json"),
        ("no map", "model.safetensors.index.json: weight_map is not"),
        ("model", "config.json: model_type is 'llama'"),
        ("text model", "config.json: model_type is 'qwen3'"),
        ("untied", "config.json: tie_word_embeddings is not true"),
        ("quantized", "config.json: quantization_config"),
        ("letters", "tokenizer.json: the letter Z is"),
        ("tokenizer", "tokenizer.json is not a tokenizer"),
        ("no letters", "tokenizer.json is missing"),
    ],
)
def test_a_base_that_is_another(copy: Path, how: str, message: str) -> None:
    """File and key are named."""
    spoil(copy, how)
    assert message in refused(copy)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop(EMBEDDING), f"{EMBEDDING} is missing"),
        (lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING].float()}), f"{EMBEDDING} is F32"),
        (lambda tensors: tensors.update({"lm_head.weight": tensors[EMBEDDING].clone()}), "lm_head.weight beside tied"),
        (lambda tensors: tensors.pop(NORM), "missing keys"),
    ],
)
def test_an_export_with_other_tensors(
    merged: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    """The table is looked at before a library loads it, and what it cannot say the library does."""
    copy = Path(shutil.copytree(merged, tmp_path / "export"))
    tensors = tiny_cua_s1.read(copy)
    edit(tensors)
    tiny_cua_s1.save(copy, tensors, shards=1)
    assert message in refused(copy)


@pytest.mark.parametrize(
    "options",
    [{"batch_rows": 4}, {"adapter": 1}, {"dtype": "float16"}, {"device": ""}, {"graphs": 1}, {"truncate": True}],
)
def test_options_that_are_none(base: Path, options: dict[str, object]) -> None:
    """Refused before anything is read."""
    with pytest.raises(ConfigurationError):
        CuaS1Executor(str(base), options)


def test_devices_that_are_not_there(base: Path) -> None:
    """A number too high, a name, and graphs without a GPU."""
    assert "no device" in refused(base, device="cuda:99")
    assert "device" in refused(base, device="abacus")
    assert "graphs" in refused(base, graphs=True)


# Executing


def test_the_states_are_those_of_the_full_forward(both: Both, merged: Path) -> None:
    """The last position's, after the final norm, whatever was executed before; and so are the letters' logits."""
    model = transformers.Qwen3_5ForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
    prepared = both.processor.prepare(parse_request({"state": {"a": [1, 2]}, "questions": QUESTIONS}))
    for index, unit in enumerate(prepared.units):
        assert isinstance(unit, PromptRequest)
        output = both.executor.execute(unit, FakeCall())
        with torch.no_grad():
            ids = torch.from_numpy(unit.tokens[None].astype(np.int64))
            whole = model.model(input_ids=ids).last_hidden_state[0, -1]
            logits = model.lm_head(whole)[32:58].numpy()
        assert output["hidden"].dtype == np.float32
        assert np.abs(output["hidden"] - whole.numpy()).max() < TOLERANCE
        kept = both.processor.absorb(prepared, index, output)
        assert np.abs(np.array(kept) - logits[: len(kept)]).max() < TOLERANCE
        assert output["processed"] == len(unit.tokens)
        sent = encode(Result(outputs=output, elapsed_us=1), incarnation="1-a", call=1)
        assert decode(sent, lane=Lane.DATA).message
    assert np.std(logits) > 0.1, "letters differ"


def test_questions_do_not_see_each_other(both: Both) -> None:
    """Adding, removing and reordering questions changes nothing."""
    whole = distributions(both.decide(QUESTIONS))
    for names in (["close"], ["three", "close"], list(reversed(QUESTIONS)), ["many", "many2"]):
        asked = {name: QUESTIONS.get(name, CLOSE) for name in names}
        some = distributions(both.decide(asked))
        assert list(some) == names
        assert difference({name: some[name] for name in names if name in whole}, whole) < SAME
    renamed = distributions(both.decide({"other name": CLOSE}))
    assert difference({"close": renamed["other name"]}, whole) < SAME


def test_both_profiles_agree(both: Both) -> None:
    """On the same checkpoint, before rounding."""
    profile = CuaS1Native(both.processor)
    questions = {name: {"instructions": None} | fields for name, fields in QUESTIONS.items()}
    body = {"model": MODEL_ID, "state": "Dialog: Update installed.", "questions": questions}
    prepared = profile.prepare(json.dumps(body).encode())
    kept = [
        profile.absorb(prepared, index, both.executor.execute(unit, FakeCall()))
        for index, unit in enumerate(prepared.units)
    ]
    document = profile.finish(prepared, kept, 0.0)
    decision = both.decide(QUESTIONS)
    theirs = {name: answer["probabilities"] for name, answer in document["answers"].items()}
    assert difference(distributions(decision), theirs) < SAME
    assert document["usage"] == decision.usage


def test_bfloat16_states_are_widened(base: Path) -> None:
    """And the merged weights are the same in both."""
    rough, exact = Both(base, dtype="bfloat16"), Both(base)
    state = rough.state(range(100, 150))
    assert np.array_equal(torch.from_numpy(state.copy()).bfloat16().float().numpy(), state)
    for one, other in zip(
        rough.executor._model._model.parameters(),  # type: ignore[union-attr]
        exact.executor._model._model.parameters(),  # type: ignore[union-attr]
        strict=True,
    ):
        assert torch.equal(one.float(), other)


def test_payloads_of_another_model(both: Both) -> None:
    """Tokens it lacks, too many of them, another type."""
    for tokens in ([1, 10**6], [1] * 16_385):
        with pytest.raises(Malformed):
            both.state(tokens)
    with pytest.raises(ExecutionFailed):
        both.executor.execute(TextRequest(b"{}"), FakeCall())


def test_a_call_that_nobody_waits_for(both: Both) -> None:
    """Looked at before the pass; the next call is served."""
    payload = PromptRequest(np.arange(10, dtype=np.int32))
    for call in (FakeCall(looks=0), FakeCall(remaining_ms=0)):
        with pytest.raises(Abandoned):
            both.executor.execute(payload, call)
    both.executor.execute(payload, FakeCall(remaining_ms=1000))


def test_a_device_without_memory_is_fatal(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors pass as they are, and the host goes on."""
    raised: Exception = torch.OutOfMemoryError("CUDA out of memory")

    def fail(*arguments: object) -> None:
        raise raised

    monkeypatch.setattr(both.executor._model, "read", fail)
    payload = PromptRequest(np.ones(3, np.int32))
    with pytest.raises(FatalExecutionError, match="OutOfMemoryError"):
        both.executor.execute(payload, FakeCall())
    raised = RuntimeError("shapes")
    with pytest.raises(RuntimeError, match="shapes"):
        both.executor.execute(payload, FakeCall())


def test_the_warm_up_is_the_familys_own_request(both: Both) -> None:
    """As the front renders it."""
    body = {"model": MODEL_ID, "state": "Dialog: Update installed.", "questions": {"q": CLOSE}}
    request = grammar.parse(body)
    assert prompt.chat_text(prompt.json_text(request.state), request.choices[0]) == cua_s1.WARM_UP


def test_a_model_whose_numbers_are_none_does_not_become_ready(base: Path) -> None:
    """Of the letters that are asked for; others are not looked at."""
    executor = CuaS1Executor(str(base), {"device": "cpu"})
    with pytest.raises(ConfigurationError):
        executor.warm_up()
    executor.load(lambda fraction, note: None)
    assert executor._rows is not None
    executor._rows = executor._rows.copy()
    executor._rows[25] = np.nan
    executor.warm_up()
    executor._rows[1] = np.nan
    with pytest.raises(ConfigurationError, match="warm-up"):
        executor.warm_up()


# The released model


REAL = os.environ.get("FRAMEHOST_CUA_S1")


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not REAL, reason="FRAMEHOST_CUA_S1 does not name a folder of the released model")
def test_the_released_model() -> None:
    """Published prompts, lengths and choices."""
    from tests.unit.cua_s1.helpers import FIXTURE, FIXTURE_STATE

    assert REAL is not None
    real = Both(Path(REAL))
    encode_text = real.processor.checkpoint.encode
    whole = prompt.chat_text(FIXTURE_STATE, FIXTURE)
    assert len(encode_text(whole)) == 218
    decision = real.decide(
        {"next": {"type": "choice", "instructions": FIXTURE.instructions, "criteria": dict(FIXTURE.options)}},
        FIXTURE_STATE,
    )
    assert decision.answers[0][1].to_json()["choice"] == "submit-form"
    pick = {
        "type": "choice",
        "instructions": "Keep the files.",
        "criteria": {"delete": "Click Delete", "cancel": "Click Cancel"},
    }
    decision = real.decide({"pick": pick}, "Dialog: Delete 3 files permanently? Buttons: Delete, Cancel")
    assert decision.input_tokens == 153
    values = distributions(decision)["pick"]
    assert values["delete"] == pytest.approx(0.0024726232513785362, abs=0.01)
    assert values["cancel"] == pytest.approx(0.9975274205207825, abs=0.01)
