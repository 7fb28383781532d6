"""What a checkpoint of the transformers family is made of, and `framehost check` on one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import supervisor
from executor_host import inspection
from executor_host.errors import ConfigurationError
from executor_host.executors.transformers.checkpoint import verify
from protocol.exits import ServeExit

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason="making a checkpoint needs framehost[torch]")

from safetensors.torch import load_file, save_file  # noqa: E402

from tests.helpers import tiny_transformers as tiny  # noqa: E402  needs what was just looked for


def nothing(fraction: float, note: str) -> None:
    """Nobody watches the progress."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each kind. Read only."""
    root = tmp_path_factory.mktemp("checkpoints")
    return {
        "chat": tiny.write_chat(root / "chat"),
        "labels": tiny.write_labels(root / "labels"),
        "head": tiny.write_head(root / "head"),
        "shipped": tiny.write_shipped(root / "shipped"),
        "readout": tiny.write_readout(root / "readout"),
        "judge": tiny.write_judge(root / "judge"),
    }


KINDS = {
    "chat": "chat model",
    "labels": "decision config",
    "head": "decision model",
    "shipped": "decision model",
    "readout": "decision model",
    "judge": "decision model",
}


@pytest.mark.parametrize("name", KINDS)
def test_a_whole_checkpoint_is_described(whole: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0, the family told by what no other family has, the kind, and the parameters of all weights."""
    assert supervisor.main(["check", str(whole[name])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{whole[name]}: a checkpoint of the family transformers"
    assert "parameters" in lines[1]
    assert KINDS[name] in lines[2]
    assert lines[3].startswith("  sha256 of all files ")


def test_another_family_comes_first(whole: dict[str, Path], tmp_path: Path) -> None:
    """A folder with the files of one special family is that family's, although it has a `config.json` too."""
    for mark, family in (("decider_config.json", "decider"), ("modules.json", "embedding")):
        copy = tmp_path / family
        shutil.copytree(whole["chat"], copy)
        (copy / mark).write_text("{}")
        assert inspection.detect(copy) == family


def test_every_byte_counts(whole: dict[str, Path], tmp_path: Path) -> None:
    """The template is a part of the model: another one is another checkpoint."""
    copy = tmp_path / "labels"
    shutil.copytree(whole["labels"], copy)
    before = verify(str(copy), nothing).files
    with (copy / "decision_template.jinja").open("a") as template:
        template.write(" ")
    after = verify(str(copy), nothing).files
    assert {name for name in before if before[name] != after[name]} == {"decision_template.jinja"}
    assert {"config.json", "decision.json", "model.safetensors", "tokenizer.json"} <= before.keys()


def edited(name: str, **fields: object) -> Callable[[Path], object]:
    def break_it(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return break_it


def slots(**fields: object) -> Callable[[Path], object]:
    def break_it(folder: Path) -> None:
        file = folder / "judge_config.json"
        document = json.loads(file.read_text())
        file.write_text(json.dumps({**document, "slots": {**document["slots"], **fields}}))

    return break_it


def head(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """The tensors of a head, changed."""

    def break_it(folder: Path) -> None:
        tensors = load_file(folder / name)
        change(tensors)
        save_file(tensors, folder / name, metadata={"format": "pt"})

    return break_it


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


MISTAKES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "no configuration": ("chat", without("config.json"), r"config\.json is missing"),
    "no model type": ("chat", edited("config.json", model_type=None), r"config\.json: model_type"),
    "code of its own": ("chat", edited("config.json", auto_map={"AutoModel": "x"}), r"auto_map names code"),
    "no weights": ("chat", without("model.safetensors"), r"model\.safetensors is missing"),
    "half the weights": (
        "chat",
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        r"model\.safetensors has \d+ bytes",
    ),
    "half the head": (
        "shipped",
        lambda folder: (folder / "head.safetensors").write_bytes(b"12345678"),
        r"head\.safetensors is not a safetensors file",
    ),
    "no head": ("shipped", without("head.safetensors"), r"head\.safetensors and readout\.safetensors are both missing"),
    "two heads": (
        "readout",
        lambda folder: shutil.copyfile(folder / "readout.safetensors", folder / "head.safetensors"),
        r"are both there; which is meant",
    ),
    "a head of nothing": ("readout", without("decision_config.json"), r"readout\.safetensors is a head without a conf"),
    "a head without its bias": (
        "shipped",
        head("head.safetensors", lambda tensors: tensors.pop("proj.bias")),
        r"head\.safetensors: proj\.bias is missing",
    ),
    "a readout with a bias": (
        "readout",
        head("readout.safetensors", lambda tensors: tensors.update(bias=tensors["weight"][:, 0].clone())),
        r"readout\.safetensors: bias is foreign",
    ),
    "a head of other labels": (
        "readout",
        head("readout.safetensors", lambda tensors: tensors.update(weight=tensors["weight"][:4].clone())),
        r"readout\.safetensors: weight is F32 \[4, 64\]; F16 or BF16 or F32 \[8, 64\] is needed",
    ),
    "a head of numbers": (
        "readout",
        head("readout.safetensors", lambda tensors: tensors.update(weight=tensors["weight"].long())),
        r"weight is I64",
    ),
    "a head that nothing reads": (
        "readout",
        edited("config.json", model_type="llama"),
        r"model_type is 'llama'; no head",
    ),
    "codes": ("readout", edited("decision_config.json", codes=["A", 2]), r"codes is not a list"),
    "another prompt": ("readout", edited("decision_config.json", prompt="d4"), r"prompt is 'd4', not pplx or d3"),
    "no temperature": ("shipped", edited("decision_config.json", temperature=0), r"temperature is 0; a finite number"),
    "no slots": ("judge", edited("judge_config.json", slots=None), r"judge_config\.json: slots is not an object"),
    "fewer slots": ("judge", slots(num_slots=17), r"ranges: choice is \[10, 18\], no part of the 17 slots"),
    "labels of slots": ("judge", slots(verbalizers=["A"]), r"ranges: noul is \[0, 2\]"),
    "labels that are none": ("judge", slots(verbalizers="AB"), r"verbalizers is not a list of texts"),
    "ranges": ("judge", slots(ranges={"noul": [0, 2]}), r"ranges is not an object of noul, choice, score"),
    "no calibration": ("judge", without("calibration.json"), r"calibration\.json is missing"),
    "another calibration": ("judge", edited("calibration.json", per_kind=[1]), r"per_kind is not an object"),
    "cold": ("judge", edited("calibration.json", per_kind={"noul": -1}), r"per_kind: noul is -1"),
    "no tokenizer": ("chat", without("tokenizer.json"), r"tokenizer\.json is missing"),
    "a broken tokenizer": (
        "chat",
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        r"tokenizer\.json is not a tokenizer",
    ),
    "no template": ("chat", without("chat_template.jinja"), r"neither a chat template nor a decision template"),
    "no adapter": ("labels", edited("decision.json", adapter="lora"), r"decision\.json: adapter is 'lora'"),
    "an adapter elsewhere": ("labels", edited("decision.json", adapter="../chat"), r"adapter is '\.\./chat'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_wrong_is_said(
    whole: dict[str, Path], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the file and the key, and an exit status of its own."""
    kind, break_it, words = MISTAKES[name]
    copy = tmp_path / kind
    shutil.copytree(whole[kind], copy)
    break_it(copy)
    with pytest.raises(ConfigurationError, match=words):
        verify(str(copy), nothing)
    assert supervisor.main(["check", str(copy), "--family", "transformers"]) == ServeExit.CONFIGURATION
    assert str(copy) in capsys.readouterr().err


def test_the_models_that_read_a_head_are_those_of_the_library() -> None:
    """Types that transformers has a decision model for, but the one that is a decision model itself."""
    from transformers.models.auto import modeling_auto

    from executor_host.executors.transformers import checkpoint, heads

    known = modeling_auto.MODEL_FOR_DECISION_MAPPING_NAMES
    assert set(known) == {*heads.READ_BY, *checkpoint.HEAD_MODELS}
    assert set(known.values()) == {"JevForDecision"}


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    """Whatever its name says."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGML" + bytes(100))
    assert inspection.detect(file) == "transformers"
    with pytest.raises(ConfigurationError, match="not a GGUF file"):
        verify(str(file), nothing)
