"""What a checkpoint of the transformers family is made of, and `framehost check` on one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import supervisor
from executor_host import inspection
from executor_host.errors import ConfigurationError
from executor_host.executors.transformers.checkpoint import verify
from protocol.exits import ServeExit

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason="making a checkpoint needs framehost[torch]")

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
    }


KINDS = {"chat": "chat model", "labels": "decision config", "head": "decision model", "shipped": "decision model"}


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


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    """Whatever its name says."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGML" + bytes(100))
    assert inspection.detect(file) == "transformers"
    with pytest.raises(ConfigurationError, match="not a GGUF file"):
        verify(str(file), nothing)
