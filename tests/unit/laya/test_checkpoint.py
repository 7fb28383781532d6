"""What the host's half makes of a folder before it loads anything, and what `framehost check` says of it."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from executor_host.errors import ConfigurationError
from executor_host.executors.laya import checkpoint as folders
from executor_host.inspection import detect, examine


def silent(fraction: float, note: str) -> None:
    """Nobody watches."""


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """One that a test may break."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_a_whole_checkpoint_is_described(whole: Path) -> None:
    """Found by its files; its size, its layers, and that its tokens are not the released ones."""
    assert detect(whole) == "laya"
    findings = examine(str(whole), None, silent)
    assert findings.problem == ""
    checkpoint = folders.verify(str(whole), progress=silent)
    assert findings.lines == (
        "laya, like the english checkpoint: rows of 512 tokens, 192 of head and options",
        f"{checkpoint.parameters:,} parameters in F16",
        "ModernBERT of 4 layers, 2 decision layers",
        "the tokenizer is not the released English checkpoint's",
    )


def test_the_released_sizes_make_the_released_tensors() -> None:
    """205 tensors that are used, some 421 million parameters."""
    from math import prod

    encoder = {"vocab_size": 50368, "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28}
    shapes = folders.expected_tensors(encoder, 2)
    assert len(shapes) == 205
    assert sum(name.startswith("encoder.") for name in shapes) == 170
    assert sum(name.startswith("head.") for name in shapes) == 24
    assert round(sum(map(prod, shapes.values())) / 1e6) == 421
    assert folders.heads(1024) == 16


def test_the_older_words_for_the_rotary_bases(whole: Path) -> None:
    """They are said to the library in its own words, whatever the checkpoint's are; defaults are said, too."""
    encoder = folders.verify(str(whole), progress=silent).encoder
    assert encoder["rope_parameters"] == {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    assert encoder["layer_types"] == ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    "parameters",
    [{"sliding_attention": {"rope_theta": 70_000.0}}, {"rope_theta": 70_000.0}],
    ids=["by kind", "for all"],
)
def test_the_newer_words_for_the_rotary_bases(copy: Path, parameters: dict[str, object]) -> None:
    """They win over the older ones."""
    edited("encoder/config.json", rope_parameters=parameters)(copy)
    encoder = folders.verify(str(copy), progress=silent).encoder
    assert encoder["rope_parameters"]["sliding_attention"] == {"rope_type": "default", "rope_theta": 70_000.0}


def edited(name: str, **fields: object) -> Callable[[Path], None]:
    def break_it(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return break_it


def retabled(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    """Weights with the same bytes behind another table."""

    def break_it(folder: Path) -> None:
        file = folder / "model.safetensors"
        raw = file.read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        table = json.loads(raw[8 : 8 + length])
        change(table)
        head = json.dumps(table).encode()
        file.write_bytes(struct.pack("<Q", len(head)) + head + raw[8 + length :])

    return break_it


def renamed(table: dict[str, object]) -> None:
    table["scorer.9.bias"] = table.pop("scorer.3.bias")


def added(table: dict[str, object]) -> None:
    table["lm_head.weight"] = table["type_emb.weight"]


def reshaped(table: dict[str, object]) -> None:
    entry = table["type_emb.weight"]
    assert isinstance(entry, dict)
    entry["shape"] = [entry["shape"][1], 3]


def retyped(table: dict[str, object]) -> None:
    entry = table["type_emb.weight"]
    assert isinstance(entry, dict)
    entry["dtype"] = "I16"


def other_language(folder: Path) -> None:
    file = folder / "tokenizer" / "tokenizer.json"
    file.write_text(file.read_text().replace("[MASK]", "<mask>"))


ENCODER, CONFIG, ROLES = "encoder/config.json", "rl_agent_config.json", "tokenizer/tokenizer_config.json"
MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    "no encoder": (lambda folder: (folder / ENCODER).unlink(), r"encoder/config\.json is missing"),
    "half the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        r"model\.safetensors has \d+ bytes",
    ),
    "no JSON": (lambda folder: (folder / CONFIG).write_text("{"), r"rl_agent_config\.json is not JSON"),
    "endless rows": (edited(CONFIG, max_len=8193), r"max_len is 8193; a whole number from 64 to 8192"),
    "a head beyond its row": (edited(CONFIG, head_max_len=513), r"head_max_len is 513; a whole number from 32 to 512"),
    "no decision layers": (edited(CONFIG, head_layers=0), r"head_layers is 0"),
    "more decision layers": (edited(CONFIG, head_layers=3), r"head\.layers\.2\..* is missing"),
    "temperatures": (edited(CONFIG, temperature=[1]), r"temperature is not a list of 3"),
    "temperature buckets": (edited(CONFIG, temperature_by_options=[]), r"temperature_by_options is not an object"),
    "another encoder": (edited(ENCODER, model_type="bert"), r"model_type is 'bert'"),
    "quantized": (edited(ENCODER, quantization_config={}), r"quantized"),
    "a bias": (edited(ENCODER, mlp_bias=True), r"mlp_bias is True"),
    "an activation": (edited(ENCODER, hidden_activation="silu"), r"hidden_activation is 'silu'"),
    "a size": (edited(ENCODER, hidden_size="128"), r"hidden_size is '128'"),
    "heads": (edited(ENCODER, num_attention_heads=3), r"no multiple"),
    "a layer less": (edited(ENCODER, layer_types=["full_attention"] * 3), r"for each of 4 layers"),
    "layers of another kind": (
        edited(ENCODER, layer_types=["linear_attention"] * 4),
        r"layer_types is not one of full_att",
    ),
    "no rhythm": (edited(ENCODER, global_attn_every_n_layers=0), r"global_attn_every_n_layers is 0; 1 to"),
    "no window": (edited(ENCODER, local_attention=1), r"local_attention is 1; 2 to"),
    "padding": (edited(ENCODER, pad_token_id=50283), r"pad_token_id is 50283; the model has \d+ tokens"),
    "a rotary base": (edited(ENCODER, local_rope_theta="x"), r"rope_theta of sliding_attention is 'x'"),
    "a rotary type": (
        edited(ENCODER, rope_parameters={"full_attention": {"rope_type": "yarn"}}),
        r"rope_parameters of full_attention",
    ),
    "a rotary type for all": (edited(ENCODER, rope_parameters={"rope_type": "yarn"}), r"rope_parameters are not the"),
    "rotary scaling": (edited(ENCODER, rope_scaling={"rope_type": "linear", "factor": 2}), r"rope_scaling is set"),
    "rotary settings of another form": (edited(ENCODER, rope_parameters=[1]), r"rope_parameters are not the"),
    "another vocabulary": (edited(ENCODER, vocab_size=600), r"tok_embeddings\.weight is of shape"),
    "a tensor less": (retabled(renamed), r"scorer\.3\.bias is missing"),
    "a tensor more": (retabled(added), r"lm_head\.weight is no tensor of this model"),
    "a tensor of another shape": (retabled(reshaped), r"type_emb\.weight is of shape \[128, 3\]"),
    "a tensor of another type": (retabled(retyped), r"type_emb\.weight is I16"),
    "no tokenizer": (
        lambda folder: (folder / "tokenizer" / "tokenizer.json").write_text("{}"),
        r"tokenizer\.json is not a tokenizer",
    ),
    "another language": (other_language, r"does not have \[MASK\] as one token, which is the mask_token of"),
    "a role without a token": (edited(ROLES, mask_token=None), r"tokenizer_config\.json: mask_token is None"),
    "no roles": (lambda folder: (folder / ROLES).unlink(), r"tokenizer/tokenizer_config\.json is missing"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_wrong_is_said_with_file_and_key(copy: Path, mistake: str) -> None:
    """Before anything is loaded."""
    break_it, message = MISTAKES[mistake]
    break_it(copy)
    findings = examine(str(copy), "laya", silent)
    assert findings.lines == ()
    assert re.search(message, findings.problem), findings.problem


def test_no_folder(tmp_path: Path) -> None:
    """None, or a file."""
    for path in (None, str(tmp_path / "absent")):
        with pytest.raises(ConfigurationError, match="folder"):
            folders.verify(path, progress=silent)
