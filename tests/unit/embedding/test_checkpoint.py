"""What makes a folder a sentence encoder: `framehost check PATH`, which is what the host does before it loads."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import supervisor
from protocol.exits import ServeExit


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole tiny checkpoint. Read only."""
    for module in ("torch", "transformers", "safetensors"):
        pytest.importorskip(module, reason="making a checkpoint needs framehost[torch]")
    from tests.helpers import tiny_embedding

    return tiny_embedding.write(tmp_path_factory.mktemp("embedding") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_a_whole_checkpoint_is_described(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0, the family found by its files."""
    assert supervisor.main(["check", str(whole)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{whole}: a checkpoint of the family embedding"
    assert re.fullmatch(r"  whole, bert, [\d,]+ parameters", out[1])
    assert out[2] == "  mean pooling, 24 tokens of a text"


def edited(name: str, **fields: object) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return break_it


def modules(*names: str, paths: tuple[str, ...] = ("", "1_Pooling", "2_Last", "3_Last")) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        entries = [{"type": f"a.{name}", "path": path} for name, path in zip(names, paths, strict=False)]
        (folder / "modules.json").write_text(json.dumps(entries))

    return break_it


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    "half the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        r"model\.safetensors has \d+ bytes, and its own table says",
    ),
    "shards": (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "would have others loaded"),
    "no pooling": (lambda folder: shutil.rmtree(folder / "1_Pooling"), r"1_Pooling/config\.json is missing"),
    "a dense layer": (modules("Transformer", "Pooling", "Dense"), r"modules\.json: the modules are .*, Dense"),
    "no modules": (modules(), r"modules\.json: the modules are none"),
    "a model elsewhere": (
        modules("Transformer", "Pooling", paths=("0_Transformer", "1_Pooling")),
        r"modules\.json: the model is in '0_Transformer'",
    ),
    "a pooling outside": (modules("Transformer", "Pooling", paths=("", "../x")), r"modules\.json: .*'\.\./x'"),
    "modules that are none": (lambda folder: (folder / "modules.json").write_text("[1]"), "an entry is not an object"),
    "an object of modules": (lambda folder: (folder / "modules.json").write_text("{}"), "is not a JSON array"),
    "two poolings": (
        edited("1_Pooling/config.json", pooling_mode_max_tokens=True),
        r"1_Pooling/config\.json: the poolings are pooling_mode_mean_tokens, pooling_mode_max_tokens",
    ),
    "another pooling": (edited("1_Pooling/config.json", pooling_mode="lasttoken"), r"pooling_mode is 'lasttoken'"),
    "another similarity": (
        edited("config_sentence_transformers.json", similarity_fn_name="dot"),
        r"similarity_fn_name is 'dot', not 'cosine'",
    ),
    "prompts": (edited("config_sentence_transformers.json", default_prompt_name="query"), "default_prompt_name"),
    "no limit": (edited("sentence_bert_config.json", max_seq_length=None), "the option 'max_tokens' can"),
    "no number": (edited("sentence_bert_config.json", max_seq_length="24"), r"max_seq_length is '24'; a number from 1"),
    "code": (edited("config.json", auto_map={"AutoModel": "x.y"}), r"auto_map: code of a checkpoint's own"),
    "a decoder": (edited("config.json", is_encoder_decoder=True), "is_encoder_decoder"),
    "quantized": (edited("config.json", quantization_config={}), "quantized weights"),
    "no architecture": (edited("config.json", model_type=None), "model_type is None"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_named_with_its_file_and_key(
    folder: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, one line, nothing on stdout."""
    break_it, expected = MISTAKES[mistake]
    break_it(folder)
    assert supervisor.main(["check", str(folder), "--family", "embedding"]) == ServeExit.CONFIGURATION
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert re.search(expected, err)
