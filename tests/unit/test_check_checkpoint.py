"""`framehost check PATH`: which family, what is wrong and where, or what it is."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import supervisor
from executor_host import inspection
from executor_host.errors import ConfigurationError
from frontend.families.native import NativeProfile
from protocol import families
from protocol.exits import ServeExit


def check(*arguments: str) -> int:
    return supervisor.main(["check", *arguments])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole tiny Decider checkpoint. Read only."""
    for module in ("torch", "transformers", "safetensors"):
        pytest.importorskip(module, reason="making a checkpoint needs framehost[torch]")
    from tests.helpers import tiny_decider

    return tiny_decider.write(tmp_path_factory.mktemp("check") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in whole.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_a_whole_checkpoint_is_described(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 0, the family found by its files, and that it is not the released one."""
    assert check(str(whole)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{whole}: a checkpoint of the family decider"
    assert "decider-2b-v11" in out[1]
    assert "choice 1.164, noul 1.624, score 1.124" in out[2]
    assert out[3].startswith("  not the released revision ")
    assert "model.safetensors" in out[3]


def edited(name: str, **fields: object) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return break_it


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a key of the model": (edited("config.json", model_type="llama"), r"config\.json: model_type is 'llama'"),
    "a key of the calibration": (edited("decider_config.json", layout="chat"), r"decider_config\.json: layout is"),
    "a temperature": (
        edited("decider_config.json", temperature_by_type={"choice": 0}),
        r"decider_config\.json: temperature_by_type\.choice",
    ),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    "half the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        r"model\.safetensors has \d+ bytes, and its own table says",
    ),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text("{}"),
        r"tokenizer\.json is not a tokenizer",
    ),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), r"config\.json is not JSON"),
    "other weights first": (
        lambda folder: (folder / "model.safetensors.index.json").write_text("{}"),
        r"model\.safetensors\.index\.json lies beside",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_named_with_its_file_and_key(
    folder: Path, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, one line, nothing on stdout."""
    break_it, expected = MISTAKES[mistake]
    break_it(folder)
    assert check(str(folder)) == ServeExit.CONFIGURATION
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"framehost: {folder}: ")
    assert re.search(expected, err)


def test_the_embedded_model_can_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, for which the family must be said."""
    assert check("nano-general", "--family", "sparrow") == 0
    assert "sha256" in capsys.readouterr().out


def test_a_file_tells_its_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is a checkpoint too; one that is no model is said to be none."""
    file = tmp_path / "x.sparrow"
    file.write_bytes(b"not a model")
    assert check(str(file)) == 2
    assert "x.sparrow is not a sparrow model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["notes.txt"], "no file that tells its family"),
        (["a.sparrow", "decider_config.json"], r"several families \(.*decider"),
    ],
)
def test_a_folder_that_does_not_tell_its_family(tmp_path: Path, names: list[str], expected: str) -> None:
    """Not guessed: --family says it."""
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ConfigurationError, match=expected) as caught:
        inspection.detect(tmp_path)
    assert "--family" in str(caught.value)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole tiny chat model. Read only."""
    for module in ("torch", "transformers", "safetensors"):
        pytest.importorskip(module, reason="making a checkpoint needs framehost[torch]")
    from tests.helpers import tiny_transformers

    return tiny_transformers.write_chat(tmp_path_factory.mktemp("check") / "chat")


def without(*names: str) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return break_it


def weights_alone(folder: Path) -> None:
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            file.unlink()


def adapter(folder: Path) -> None:
    without("config.json", "model.safetensors")(folder)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    (folder / "adapter_model.safetensors").touch()


def encoder(folder: Path) -> None:
    edited("config.json", model_type="bert", architectures=["BertModel"])(folder)
    without("chat_template.jinja")(folder)


def images(folder: Path) -> None:
    edited("config.json", model_type="vit")(folder)
    without("tokenizer.json")(folder)
    (folder / "preprocessor_config.json").write_text("{}")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def lost_shard(folder: Path) -> None:
    without("model.safetensors")(folder)
    places = {"lm_head.weight": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def gguf_alone(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "model.gguf").write_bytes(b"GGUF")


BROUGHT: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda folder: [file.unlink() for file in folder.iterdir()], "it is an empty folder"),
    "weights alone": (weights_alone, r"model\.safetensors has weights; config\.json and tokenizer\.json"),
    "an adapter": (adapter, r"an adapter of somebody/model and no model: merge the two"),
    "a folder of GGUF": (gguf_alone, r"a GGUF file is given by its own path: .*/model\.gguf"),
    "an encoder without its pooling": (encoder, r"BertModel is no chat model\. .* modules\.json"),
    "no chat template": (without("chat_template.jinja"), r"nothing can be asked; .* chat_template\.jinja"),
    "no tokenizer": (without("tokenizer.json"), r"tokenizer\.json is missing in .*; AutoTokenizer"),
    "a model of images": (images, r"tokenizer\.json is missing in .*: vit reads images"),
    "pickles": (pickled, r"model\.safetensors is missing .*; pytorch_model\.bin is a pickle"),
    "a shard that is not there": (lost_shard, r"model-00002-of-00002\.safetensors is missing in "),
}
"""What people bring who have a model of their own, and what they have to be told."""


@pytest.mark.parametrize("family", [None, "transformers"], ids=["found", "said"])
@pytest.mark.parametrize("brought", BROUGHT)
def test_what_people_bring(
    chat: Path, tmp_path: Path, brought: str, family: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, and one line that says what it is and what to do, whether or not the family was said."""
    change, expected = BROUGHT[brought]
    folder = Path(shutil.copytree(chat, tmp_path / "model"))
    assert check(str(folder)) == 0
    capsys.readouterr()
    change(folder)
    assert check(str(folder), *(() if family is None else ("--family", family))) == ServeExit.CONFIGURATION
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert re.search(expected, err), err


@pytest.mark.parametrize("name", ["weights.safetensors", "notes.txt"])
def test_a_file_that_is_none(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which files a checkpoint may be."""
    (tmp_path / name).write_bytes(b"hello")
    assert check(str(tmp_path / name)) == ServeExit.CONFIGURATION
    assert "is a file, and no *.sparrow or *.gguf; a checkpoint is a folder" in capsys.readouterr().err


def test_a_base_model_with_its_adapter_tells_its_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of a Cua-S1 adapter lie in a folder of their own, and the base model alone is another family's."""
    pytest.importorskip("torch", reason="making a checkpoint needs framehost[torch]")
    from tests.helpers import tiny_cua_s1

    folder = tiny_cua_s1.write_base(tmp_path / "model")
    tiny_cua_s1.write_adapter(folder / "text", folder)
    assert check(str(folder)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(": a checkpoint of the family cua-s1")
    assert "base model with the adapter in" in out[1]


def test_a_lora_checkpoint_is_described_without_its_base_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it is for, and what it is served with; what is wrong in it is said."""
    pytest.importorskip("torch", reason="making a checkpoint needs framehost[torch]")
    from tests.helpers import tiny_open_jev

    folder = tiny_open_jev.write_lora(tmp_path / "lora")
    assert check(str(folder)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith(": a checkpoint of the family open-jev")
    assert out[1].startswith(f"  LoRA checkpoint for {tiny_open_jev.MODEL_ID} at ")
    assert "the option 'base'" in out[3]
    for break_it, expected in (
        (without("head.pt"), r"head\.pt is missing"),
        (edited("adapter/adapter_config.json", use_dora=True), r"adapter/adapter_config\.json: use_dora is True"),
        (edited("temperature.json", temperature=0), r"temperature\.json: temperature is 0"),
    ):
        break_it(folder)
        assert check(str(folder), "--family", "open-jev") == ServeExit.CONFIGURATION
        assert re.search(expected, capsys.readouterr().err)


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With and without a family: the path and the reason."""
    missing = str(tmp_path / "missing")
    assert check(missing) == 2
    assert capsys.readouterr().err == f"framehost: {missing}: cannot be read: No such file or directory\n"
    assert check(missing, "--family", "decider") == 2
    assert "is not a folder" in capsys.readouterr().err


def test_an_unknown_family_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(str(tmp_path), "--family", "dodo") == 2
    assert "no model family 'dodo'" in capsys.readouterr().err


def test_a_family_that_cannot_check_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Third parties need not bring a check."""
    from tests.helpers.fake_family import FAKE

    monkeypatch.setitem(families.BUILT_IN, "fake", FAKE)
    found = inspection.examine(str(tmp_path), "fake", lambda fraction, note: None)
    assert "cannot check a checkpoint" in found.problem


@pytest.mark.parametrize("arguments", [(), ("x", "--config", "y")])
def test_it_is_one_thing_that_is_checked(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        check(*arguments)
    assert caught.value.code == 2


def test_a_family_does_not_go_with_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--config", str(tmp_path / "c.toml"), "--family", "decider") == 2
    assert "--family" in capsys.readouterr().err


def test_no_device_library_is_imported(whole: Path) -> None:
    """It must work, and be quick, on a machine that will only ever serve the checkpoint."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'aiohttp'): sys.modules[name] = None\n"
        "import supervisor\n"
        f"sys.exit(supervisor.main(['check', {str(whole)!r}]))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


CHECKED = [family.name for family in families.BUILT_IN.values() if family.inspect]
NATIVE = [family.name for family in families.BUILT_IN.values() if family.native]


@pytest.mark.parametrize("reference", ["inspect", "native"])
def test_the_registered_halves_import_no_device_library(reference: str) -> None:
    """The front imports the profiles, and the check is for machines that may not even have one."""
    import subprocess
    import sys

    wanted = [value for family in families.BUILT_IN.values() if (value := getattr(family, reference))]
    assert len(wanted) >= 2
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'aiohttp'): sys.modules[name] = None\n"
        "from protocol.families import resolve\n"
        f"for wanted in {wanted!r}: resolve(wanted)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", CHECKED)
def test_every_family_says_in_one_line_that_an_empty_folder_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    """A sentence for people, with no crash behind it."""
    pytest.importorskip("tokenizers", reason="needs framehost[torch]")
    found = inspection.examine(str(tmp_path), name, lambda fraction, note: None)
    assert found.problem
    assert "\n" not in found.problem
    assert found.lines == ()


@pytest.mark.parametrize("name", NATIVE)
def test_every_native_profile_is_one(name: str) -> None:
    """Registered under a family with options and a body limit of its own."""
    profile = families.resolve(families.find(name).native)
    assert issubclass(profile, NativeProfile)
    assert 0 < profile.MAX_BODY_BYTES <= 8 * 1024 * 1024
    assert profile.ERROR_FIELD in ("detail", "error")


def test_no_two_families_have_a_mark_in_common() -> None:
    """Else their folders could not be told apart."""
    marks = [mark for family in families.BUILT_IN.values() for mark in family.marks]
    assert len(marks) == len(set(marks))
