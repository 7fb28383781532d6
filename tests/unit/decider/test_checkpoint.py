"""What the front reads of a checkpoint folder, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from frontend.families import checkpoints
from frontend.families.base import AssetError
from frontend.families.decider.checkpoint import load
from protocol.contracts.agreement import ContractError
from protocol.contracts.decider import FRONT_FILES as FILES
from protocol.contracts.decider import Temperatures, read_config
from tests.unit.decider.helpers import RELEASED


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint, to be spoiled."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def single(value: float) -> float:
    """`value` in float32."""
    import numpy as np

    return float(np.float32(value))


def test_temperatures_are_float32() -> None:
    """Per type, with the general one for a type that is missing; a number in a string will do for that one."""
    assert read_config(RELEASED) == Temperatures(single(1.164), single(1.624), single(1.124))
    assert read_config(RELEASED | {"temperature": " 1.25 ", "temperature_by_type": {"noul": 2}}) == (
        Temperatures(1.25, 2.0, 1.25)
    )
    without = {key: value for key, value in RELEASED.items() if key != "temperature_by_type"}
    assert read_config(without) == Temperatures(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": "2b-v12"}, "version"),
        ({"layout": "chat"}, "layout"),
        ({"max_options": 255.0}, "max_options"),
        ({"max_state_tokens": 1536}, "max_state_tokens"),
        ({"isolated_levels": 1}, "isolated_levels"),
        ({"neutralize_none": True}, "neutralize_none"),
        ({"chat_template": True}, "chat_template"),
        ({"schema_first": None}, "schema_first"),
        ({"schema_first_trained": True}, "schema_first_trained"),
        ({"temperature_by_options": {}}, "temperature_by_options"),
        ({"temperature_schema_first": 1.0}, "temperature_schema_first"),
        ({"temperature_schema_first_by_type": {}}, "temperature_schema_first_by_type"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"temperature": 1e39}, "temperature"),
        ({"temperature": 1e-60}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": None}, "temperature"),
        ({"temperature_by_type": None}, "temperature_by_type"),
        ({"temperature_by_type": {"bool": 1.0}}, "bool"),
        ({"temperature_by_type": {"noul": "1.0"}}, "noul"),
    ],
)
def test_other_configurations_are_refused(change: dict[str, Any], named: str) -> None:
    """Whatever would have other prompts or another calibration, by the name of the field."""
    with pytest.raises(ContractError, match=named):
        read_config(RELEASED | change)


def test_required_fields_are_required() -> None:
    """Nothing that decides the prompts or the temperature has a default."""
    for name in (*RELEASED,):
        if name != "temperature_by_type":
            with pytest.raises(ContractError, match=name):
                read_config({key: value for key, value in RELEASED.items() if key != name})
    with pytest.raises(ContractError):
        read_config([])


def test_a_folder_is_read_once_until_it_changes(copy: Path) -> None:
    """A restarted host costs no tokenizer loading; a file that was replaced is read again."""
    first = load(str(copy))
    assert load(str(copy)) is first
    assert first.sha256 == {name: hashlib.sha256((copy / name).read_bytes()).hexdigest() for name in FILES}
    config = json.loads((copy / "decider_config.json").read_text())
    (copy / "decider_config.json").write_text(json.dumps(config | {"temperature_by_type": {"noul": 1.75}}))
    assert load(str(copy)).temperatures.noul == 1.75


def test_a_tokenizer_never_cuts_or_pads(copy: Path) -> None:
    """Whatever its file says: a row that is cut is another question."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(copy / "tokenizer.json"))
    plain = load(str(copy)).vocabulary.state("x " * 400)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=4096)
    tokenizer.save(str(copy / "tokenizer.json"))
    assert load(str(copy)).vocabulary.state("x " * 400) == plain


def test_special_tokens_in_a_text_are_read_as_such(folder: Path) -> None:
    """Parity: the original parses them, and adds none of its own."""
    encode = load(str(folder)).vocabulary.encode
    assert len(encode("<|im_start|>")) == 1
    assert encode("") == []


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_checkpoint(copy: Path, name: str) -> None:
    """Missing, broken, or not what their name says: one kind of error, which names the file."""
    (copy / name).write_bytes(b"\xff{")
    with pytest.raises(AssetError, match=name):
        load(str(copy))
    (copy / name).write_text("[" * 100_000)
    with pytest.raises(AssetError, match=name):
        load(str(copy))
    (copy / name).unlink()
    with pytest.raises(AssetError, match="cannot be read"):
        load(str(copy))
    with pytest.raises(AssetError, match="needs the path"):
        load(None)


def test_a_tokenizer_without_the_labels_is_refused(copy: Path) -> None:
    """It is not the one the model was trained with."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = {letter: index for index, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(copy / "tokenizer.json"))
    with pytest.raises(AssetError, match="26 different label tokens"):
        load(str(copy))


def test_the_host_must_have_the_same_files(folder: Path) -> None:
    """Rows never meet weights that lie beside another tokenizer or another calibration."""
    checkpoint = load(str(folder))
    checkpoints.check_against(checkpoint.sha256, {**checkpoint.sha256, "model.safetensors": "0" * 64})
    for name in FILES:
        with pytest.raises(AssetError, match=name):
            checkpoints.check_against(checkpoint.sha256, {**checkpoint.sha256, name: "0" * 64})
    for facts in (None, {}, ["tokenizer.json"]):
        with pytest.raises(AssetError):
            checkpoints.check_against(checkpoint.sha256, facts)
