"""The open-jev family's half in the host, on tiny random checkpoints in the released layouts, on the CPU in float32.

Two judges: the full forward of transformers with the head on top, and peft where it is installed.
"""

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

from executor_host.backbones import packing  # noqa: E402
from executor_host.errors import (  # noqa: E402
    Abandoned,
    ConfigurationError,
    ExecutionFailed,
    FatalExecutionError,
    NonFinite,
)
from executor_host.executors.open_jev import checkpoint as open_jev_checkpoint  # noqa: E402
from executor_host.executors.open_jev import merge as open_jev_merge  # noqa: E402
from executor_host.executors.open_jev.executor import (  # noqa: E402
    PACKED_ROWS,
    PACKED_TOKENS,
    OpenJevExecutor,
    scores,
)
from frontend.families.open_jev.processor import OpenJevProcessor  # noqa: E402
from frontend.http.systemone import parse_request  # noqa: E402
from protocol.contracts.open_jev import RELEASES  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import decode, encode  # noqa: E402
from protocol.messages import Lane, Ready  # noqa: E402
from protocol.payloads import RowsRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_open_jev  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402
from tests.unit.open_jev.helpers import QUESTIONS, rows_of  # noqa: E402

TOLERANCE = 1e-5
"""Of scores, which are about 1 each."""

OPTIONS: dict[str, object] = {"device": "cpu", "unreleased": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base`, `lora`, and `export`, which is made of the two."""
    path = tmp_path_factory.mktemp("open_jev")
    tiny_open_jev.write_base(path / "base", seed=5)
    tiny_open_jev.write_lora(path / "lora", seed=6)
    open_jev_merge.export(
        str(path / "lora"), str(path / "base"), str(path / "export"), max_length=4096, unreleased=True
    )
    return path


@pytest.fixture
def copy(folders: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(folders, tmp_path / "copy"))


@pytest.fixture(scope="module")
def loaded(folders: Path) -> Callable[..., OpenJevExecutor]:
    """Executors of the export by their options, each loaded once."""
    made: dict[str, OpenJevExecutor] = {}

    def loaded(**options: object) -> OpenJevExecutor:
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            made[key] = start(folders / "export", **options)
        return made[key]

    return loaded


def start(folder: Path, **options: object) -> OpenJevExecutor:
    """A loaded and warm executor on the CPU."""
    executor = OpenJevExecutor(str(folder), OPTIONS | options)
    executor.load(lambda fraction, note: None)
    executor.warm_up()
    return executor


def load(folder: Path, **options: object) -> Any:
    """The facts of a checkpoint."""
    return OpenJevExecutor(str(folder), OPTIONS | options).load(lambda fraction, note: None)


def lora(folders: Path, **options: object) -> Any:
    """The facts of the LoRA checkpoint."""
    return load(folders / "lora", base=str(folders / "base"), **options)


def rows_request(rows: list[Any], questions: list[int]) -> RowsRequest:
    """A request as it arrives: over the wire."""
    request = RowsRequest(
        np.concatenate([np.asarray(row, np.int32) for row in rows]),
        np.array([len(row) for row in rows], np.int32),
        np.ones(len(rows), np.int32),
        np.array(questions, np.int32),
    )
    return RowsRequest.from_wire(request.to_wire())


def random_request(seed: int, shared: int, ends: tuple[int, ...] = (5, 60, 7, 6, 6, 9, 70)) -> RowsRequest:
    """Candidates of three questions over a state of `shared` tokens."""
    random = np.random.default_rng(seed)

    def some(count: int) -> NDArray[np.int32]:
        return random.integers(0, 380, count).astype(np.int32)

    state = some(shared)
    return rows_request([np.concatenate([state, some(end)]) for end in ends], [0, 0, 1, 2, 2, 2, 2])


# Loading


def test_both_layouts_load(folders: Path) -> None:
    """What READY says of each, and that it travels."""
    for name, options in (("export", {}), ("lora", {"base": str(folders / "base")})):
        executor = OpenJevExecutor(str(folders / name), OPTIONS | options)
        seen: list[float] = []
        facts = executor.load(lambda fraction, note, seen=seen: seen.append(fraction))  # type: ignore[misc]
        executor.warm_up()
        assert seen == sorted(seen)
        assert seen[-1] == 1.0
        message = decode(
            encode(Ready(address="ipc://x", facts=dict(facts)), incarnation="1-a", call=0), lane=Lane.CONTROL
        ).message
        assert isinstance(message, Ready)
        assert message.facts == facts
        assert (facts["dtype"], facts["device"], facts["execution"]) == ("float32", "cpu", "packed")
        assert (facts["layout"], facts["merged_modules"]) == (("export", 0) if name == "export" else ("lora", 10))
        assert (facts["name"], facts["released"], facts["model_id"]) == ("open-jev", False, tiny_open_jev.MODEL_ID)
        assert facts["base_revision"] == tiny_open_jev.BASE_REVISION
        assert facts["temperature"] == tiny_open_jev.TEMPERATURE
        executor.close()
        executor.close()
        with pytest.raises(ExecutionFailed):
            executor.execute(random_request(1, 3), FakeCall())


def test_the_pins_are_the_published_ones() -> None:
    """To the digit, with the sizes."""
    assert {name: release.alias for name, release in RELEASES.items()} == {
        "Qwen/Qwen3.8-27B": "open-jev-27b-v1.1",
        "Qwen/Qwen3.5-9B": "open-jev-9b",
    }
    large, small = RELEASES.values()
    assert (large.base_revision, large.checkpoint_revision) == (
        "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
        "28cf73067d5b337860bbef3c85b8b82ba8730956",
    )
    assert (small.base_revision, small.checkpoint_revision) == (
        "c202236235762e1c871ad0ccb60c8ee5ba337b9a",
        "47e966881e489511c0c7f5633a9e1960a676a551",
    )
    assert (large.sizes, large.packed) == ((5120, 17408, 64, 24, 4, 16, 48), True)
    assert (small.sizes, small.packed) == ((4096, 12288, 32, 16, 4, 16, 32), False)


def test_an_unreleased_checkpoint_has_to_be_asked_for(folders: Path) -> None:
    """The tiny one says it is the released one, and has not its sizes."""
    for name, base in (("export", {}), ("lora", {"base": str(folders / "base")})):
        executor = OpenJevExecutor(str(folders / name), {"device": "cpu", **base})
        with pytest.raises(ConfigurationError, match=r"config\.json: hidden_size is 64; the released model's is 5120"):
            executor.load(lambda fraction, note: None)


def test_equal_identities_mean_equal_answers(folders: Path, copy: Path) -> None:
    """Another calibration, prompt or arithmetic is another model for the queue of a restarted host."""
    first = load(folders / "export")["identity"]
    assert load(copy / "export")["identity"] == first
    for options in ({"dtype": "bfloat16"}, {"execution": "rows"}, {"max_length": 100}):
        assert load(folders / "export", **options)["identity"] != first
    change(copy / "export", "open_jev_export.json", temperature=2.0)
    assert load(copy / "export")["identity"] != first
    assert lora(folders)["identity"] != first


def test_a_lora_merged_at_load_is_its_export(folders: Path, loaded: Callable[..., OpenJevExecutor]) -> None:
    """The same scores, in fact the same bits; without the adapter they would be others."""
    merged = start(folders / "lora", base=str(folders / "base"))
    request = random_request(1, 40)
    expected = loaded().execute(request, FakeCall())["logits"]
    found = merged.execute(request, FakeCall())["logits"]
    assert np.abs(found - expected).max() < TOLERANCE
    assert np.array_equal(found, expected)
    checkpoint = merged._checkpoint
    assert checkpoint is not None
    plain = full_scores(transformers.Qwen3_5TextModel.from_pretrained(folders / "base"), checkpoint, request)
    assert np.abs(found - plain).max() > 1e-2


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft, which reads an attribute by its older name
def test_merging_is_what_peft_does(folders: Path) -> None:
    """`merge_and_unload` of the bfloat16 model on the CPU, bit for bit."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft accelerate")
    model = transformers.Qwen3_5TextModel.from_pretrained(folders / "base", dtype=torch.bfloat16)
    judge = peft.PeftModel.from_pretrained(model, folders / "lora" / "adapter").merge_and_unload(safe_merge=True)
    mine = transformers.Qwen3_5TextModel.from_pretrained(folders / "export", dtype=torch.bfloat16)
    expected = judge.state_dict()
    assert expected.keys() == mine.state_dict().keys()
    for name, tensor in mine.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.filterwarnings("ignore::FutureWarning")  # as above
def test_adapters_are_read_as_peft_saves_them(folders: Path, copy: Path) -> None:
    """Made as training makes them; every field that peft writes today is accepted."""
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft accelerate")
    model = transformers.Qwen3_5TextModel.from_pretrained(folders / "base", dtype=torch.bfloat16)
    targets = list(open_jev_checkpoint.TARGETS)
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, lora_dropout=0.0, bias="none")
    trained = peft.get_peft_model(model, settings)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    trained.save_pretrained(copy / "lora" / "adapter")
    expected = trained.merge_and_unload(safe_merge=True).state_dict()
    facts = lora(copy)
    assert facts["merged_modules"] == 10
    open_jev_merge.export(str(copy / "lora"), str(copy / "base"), str(copy / "out"), max_length=4096, unreleased=True)
    mine = transformers.Qwen3_5TextModel.from_pretrained(copy / "out", dtype=torch.bfloat16).state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in mine.items())


def test_the_export_is_finished_last(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails before leaves a folder that no loader takes, and a folder that exists is left alone."""
    source, base = str(folders / "lora"), str(folders / "base")

    def fail(*arguments: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(open_jev_merge.shutil, "copyfile", fail)
        with pytest.raises(OSError, match="space"):
            open_jev_merge.export(source, base, str(tmp_path / "out"), max_length=4096, unreleased=True)
    assert (tmp_path / "out" / "model.safetensors").is_file()
    with pytest.raises(ConfigurationError, match=r"open_jev_export\.json is missing"):
        load(tmp_path / "out")
    with pytest.raises(ConfigurationError, match="exists"):
        open_jev_merge.export(source, base, str(tmp_path / "out"), max_length=4096, unreleased=True)


def test_the_exporting_command(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 and an export; 1 and a sentence."""
    arguments = ["--base", str(folders / "base"), "--checkpoint", str(folders / "lora"), "--out", str(tmp_path / "o")]
    assert open_jev_merge.main(arguments) == 1
    assert "hidden_size" in capsys.readouterr().err
    assert open_jev_merge.main([*arguments, "--unreleased", "--max-length", "99"]) == 0
    facts = load(tmp_path / "o")
    assert facts["limits"]["row_tokens"] == 99
    assert load(tmp_path / "o", max_length=16_384)["limits"]["row_tokens"] == 16_384


def test_sharded_exports(folders: Path, copy: Path, loaded: Callable[..., OpenJevExecutor]) -> None:
    """As the large ones are; a shard that is missing or cut short is named."""
    from safetensors.torch import load_file, save_file

    folder = copy / "export"
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    table = {name: f"model-{index % 2 + 1:05}-of-00002.safetensors" for index, name in enumerate(tensors)}
    for shard in set(table.values()):
        part = {name: tensors[name] for name in tensors if table[name] == shard}
        save_file(part, folder / shard, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": table}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    request = random_request(1, 40)
    found = start(folder).execute(request, FakeCall())["logits"]
    assert np.array_equal(found, loaded().execute(request, FakeCall())["logits"])
    second = folder / "model-00002-of-00002.safetensors"
    raw = second.read_bytes()
    second.write_bytes(raw[:-2])
    with pytest.raises(ConfigurationError, match="own table"):
        load(folder)
    second.unlink()
    with pytest.raises(ConfigurationError, match=r"model-00002-of-00002\.safetensors is missing"):
        load(folder)
    index["weight_map"] = dict.fromkeys(table, "../x.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigurationError, match="weight_map"):
        load(folder)


# What is no checkpoint


def change(folder: Path, name: str, /, *drop: str, **fields: Any) -> None:
    """Other fields in a JSON file, some of them gone."""
    document = json.loads((folder / name).read_text()) | fields
    (folder / name).write_text(json.dumps({key: value for key, value in document.items() if key not in drop}))


def tensors(file: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Other tensors in a weights file."""
    from safetensors.torch import load_file, save_file

    content = load_file(file)
    edit(content)
    save_file(content, file, metadata={"format": "pt"})


def head(folder: Path, **fields: Any) -> None:
    """Another head.pt."""
    torch.save(torch.load(folder / "head.pt", weights_only=True) | fields, folder / "head.pt")


MANIFEST, CONFIG = "open_jev_export.json", "config.json"
EXPORTS: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"no {name}": (lambda folder, name=name: (folder / name).unlink(), name.replace(".", r"\."))  # type: ignore[misc]
        for name in (MANIFEST, CONFIG, "tokenizer.json", "model.safetensors")
    },
    "manifest is no JSON": (lambda folder: (folder / MANIFEST).write_text("{"), "not JSON"),
    "a key twice": (lambda folder: (folder / MANIFEST).write_text('{"a": 1, "a": 2}'), "twice"),
    "another format": (lambda folder: change(folder, MANIFEST, format="x"), r"open_jev_export\.json: format"),
    **{
        f"no {key}": (lambda folder, key=key: change(folder, MANIFEST, key), rf"open_jev_export\.json: {key}")  # type: ignore[misc]
        for key in (
            "format",
            "model_id",
            "base_revision",
            "checkpoint_revision",
            "temperature",
            "max_length",
            "chat_prefix",
            "chat_suffix",
            "head_weight",
            "head_bias",
        )
    },
    **{
        f"temperature {value!r}": (
            lambda folder, value=value: change(folder, MANIFEST, temperature=value),  # type: ignore[misc]
            r"open_jev_export\.json: temperature",
        )
        for value in (0, -1, None, True, "1.5", float("nan"), float("inf"), 10**400)
    },
    **{
        f"max_length {value!r}": (
            lambda folder, value=value: change(folder, MANIFEST, max_length=value),  # type: ignore[misc]
            r"open_jev_export\.json: max_length",
        )
        for value in (0, 16_385, 4096.0, True)
    },
    "a short head": (lambda folder: change(folder, MANIFEST, head_weight=[1.0] * 63), "head_weight is 63; 64"),
    "a head of words": (lambda folder: change(folder, MANIFEST, head_weight=["1"] * 64), r"head_weight\[0\]"),
    "a head of none": (
        lambda folder: change(folder, MANIFEST, head_weight=[1.0] * 63 + [float("nan")]),
        r"head_weight\[63\]",
    ),
    "a bias beyond float32": (lambda folder: change(folder, MANIFEST, head_bias=1e39), "head_bias"),
    "foreign architecture": (lambda folder: change(folder, CONFIG, model_type="qwen3"), r"config\.json: model_type"),
    "another dtype": (lambda folder: change(folder, CONFIG, dtype="float16"), r"config\.json: dtype"),
    "quantized": (lambda folder: change(folder, CONFIG, quantization_config={"bits": 4}), "quantization_config"),
    "no layers": (lambda folder: change(folder, CONFIG, num_hidden_layers=0), "num_hidden_layers"),
    "other layers": (lambda folder: change(folder, CONFIG, layer_types=["full_attention"] * 4), "layer_types"),
    "another size": (lambda folder: change(folder, CONFIG, intermediate_size=128), "mismatched|shape"),
    "a small vocabulary": (lambda folder: change(folder, CONFIG, vocab_size=100), "vocab_size"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), r"tokenizer\.json is not"),
    "an adapter beside": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter_config"),
    "weights cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-2]),
        "own table",
    ),
    "a tensor missing": (
        lambda folder: tensors(
            folder / "model.safetensors", lambda content: content.pop("layers.3.mlp.up_proj.weight")
        ),
        "missing",
    ),
    "a tensor too many": (
        lambda folder: tensors(
            folder / "model.safetensors", lambda content: content.update({"lm_head.weight": torch.zeros(2).bfloat16()})
        ),
        "unexpected",
    ),
    "a tensor of integers": (
        lambda folder: tensors(
            folder / "model.safetensors", lambda content: content.update({"norm.weight": torch.ones(64).char()})
        ),
        r"norm\.weight is I8",
    ),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_what_is_no_export_is_refused_once_and_in_words(folders: Path, tmp_path: Path, name: str) -> None:
    """A `ConfigurationError` that names file and key: the host is not started again for it."""
    folder = Path(shutil.copytree(folders / "export", tmp_path / "copy"))
    spoil, named = EXPORTS[name]
    spoil(folder)
    with pytest.raises(ConfigurationError, match=named):
        load(folder)


ADAPTER, PEFT = "adapter/adapter_model.safetensors", "adapter/adapter_config.json"
KEY = "base_model.model.layers.3.self_attn.q_proj.lora_A.weight"
LORAS: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"no {name}": (lambda folder, name=name: (folder / "lora" / name).unlink(), name.rpartition("/")[2])  # type: ignore[misc]
        for name in ("model.json", "temperature.json", "head.pt", ADAPTER, PEFT)
    },
    **{
        f"no base {name}": (lambda folder, name=name: (folder / "base" / name).unlink(), name)  # type: ignore[misc]
        for name in (CONFIG, "tokenizer.json", "model.safetensors")
    },
    "no text": (lambda folder: change(folder / "base", CONFIG, text_config=None), r"config\.json: text_config"),
    "no rank": (lambda folder: change(folder / "lora", "model.json", lora_rank=0), r"model\.json: lora_rank"),
    "no revision": (lambda folder: change(folder / "lora", "model.json", "revision"), r"model\.json: revision"),
    "no method": (lambda folder: change(folder / "lora", "model.json", "method"), r"model\.json: method"),
    "cold": (lambda folder: change(folder / "lora", "temperature.json", temperature=0), r"temperature\.json: temp"),
    "another rank": (lambda folder: change(folder / "lora", PEFT, r=8), r"adapter_config\.json: r is 8"),
    "another alpha": (lambda folder: change(folder / "lora", PEFT, lora_alpha=4), "lora_alpha"),
    "a bias": (lambda folder: change(folder / "lora", PEFT, bias="all"), "bias"),
    "dora": (lambda folder: change(folder / "lora", PEFT, use_dora=True), "use_dora"),
    "rslora": (lambda folder: change(folder / "lora", PEFT, use_rslora=True), "use_rslora"),
    "ranks": (lambda folder: change(folder / "lora", PEFT, rank_pattern={"q_proj": 1}), "rank_pattern"),
    "not lora": (lambda folder: change(folder / "lora", PEFT, peft_type="IA3"), "peft_type"),
    "fewer targets": (lambda folder: change(folder / "lora", PEFT, target_modules=["q_proj"]), "target_modules"),
    "an adapter missing": (
        lambda folder: tensors(folder / "lora" / ADAPTER, lambda content: content.pop(KEY)),
        "q_proj.lora_A.weight is missing",
    ),
    "a foreign adapter": (
        lambda folder: tensors(folder / "lora" / ADAPTER, lambda content: content.update(x=torch.zeros(4, 4))),
        "x is foreign",
    ),
    "another shape": (
        lambda folder: tensors(folder / "lora" / ADAPTER, lambda content: content.update({KEY: torch.zeros(4, 63)})),
        "q_proj",
    ),
    "an adapter of none": (
        lambda folder: tensors(
            folder / "lora" / ADAPTER, lambda content: content.update({KEY: torch.full((4, 64), torch.nan)})
        ),
        "not finite",
    ),
    "a wide head": (lambda folder: head(folder / "lora", weight=torch.zeros(1, 65)), r"head\.pt: weight is \[1, 65\]"),
    "a half head": (lambda folder: head(folder / "lora", weight=torch.zeros(1, 64).half()), r"head\.pt: weight"),
    "a head of none": (lambda folder: head(folder / "lora", bias=torch.tensor([torch.inf])), r"head\.pt: bias"),
    "a head of more": (lambda folder: head(folder / "lora", scale=torch.ones(1)), r"head\.pt: weight and bias"),
    "a head that is none": (lambda folder: (folder / "lora" / "head.pt").write_bytes(b"PK"), r"head\.pt cannot"),
    "a foreign base": (
        lambda folder: tensors(
            folder / "base" / "model.safetensors", lambda content: content.update(x=torch.zeros(2).bfloat16())
        ),
        "unexpected",
    ),
}


@pytest.mark.parametrize("name", LORAS)
def test_what_is_no_lora_checkpoint_is_refused_once_and_in_words(copy: Path, name: str) -> None:
    """The same for the other layout, in either of its folders."""
    spoil, named = LORAS[name]
    spoil(copy)
    with pytest.raises(ConfigurationError, match=named):
        lora(copy)


def test_a_pickle_that_is_more_than_tensors_is_not_read(copy: Path) -> None:
    """head.pt is the only file of that format, and nothing of it is run."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (copy / "touched",))

    (copy / "lora" / "head.pt").write_bytes(pickle.dumps({"weight": Evil(), "bias": 0}, protocol=2))
    with pytest.raises(ConfigurationError, match=r"head\.pt cannot be read as tensors"):
        lora(copy)
    assert not (copy / "touched").exists()


def test_a_checkpoint_is_a_folder_that_is_named(folders: Path) -> None:
    """There is no default, and a LoRA checkpoint needs a base."""
    for path in (None, str(folders / "export" / CONFIG), str(folders / "nowhere")):
        with pytest.raises(ConfigurationError, match="folder"):
            OpenJevExecutor(path, OPTIONS).load(lambda fraction, note: None)
    with pytest.raises(ConfigurationError, match="'base'"):
        load(folders / "lora")
    with pytest.raises(ConfigurationError, match="'base'"):
        load(folders / "lora", base=str(folders / "nowhere"))
    with pytest.raises(ConfigurationError, match="'base'"):
        load(folders / "export", base=str(folders / "base"))
    with pytest.raises(ConfigurationError, match=r"open_jev_export\.json is missing"):
        load(folders / "base")


def test_inspection(folders: Path) -> None:
    """An export, checked and described without loading it."""
    lines = open_jev_checkpoint.inspect(str(folders / "export"), lambda fraction, note: None)
    assert "Qwen/Qwen3.8-27B" in lines[0]
    assert "unreleased" in lines[2]


@pytest.mark.parametrize(
    "options",
    [
        {"speed": 1},
        {"base": 1},
        {"base": ""},
        {"device": 0},
        {"dtype": "float16"},
        {"execution": "fixed"},
        {"execution": True},
        {"unreleased": 1},
        {"max_length": 0},
        {"max_length": 16_385},
        {"max_length": True},
        {"graphs": 1},
        {"graphs": True, "execution": "shared"},
    ],
)
def test_options_are_checked_before_anything_is_read(options: dict[str, object]) -> None:
    """Any other value fails the start."""
    with pytest.raises(ConfigurationError):
        OpenJevExecutor("/nowhere", options)


# Executing


def full_scores(model: Any, checkpoint: open_jev_checkpoint.Checkpoint, request: RowsRequest) -> NDArray[np.float32]:
    """The head on transformers' own forward of each row alone, all in float32."""
    found = []
    for row in rows_of(request):
        with torch.no_grad():
            hidden = model.float()(torch.tensor([row])).last_hidden_state[0, -1].numpy()
        found.append(float(hidden.astype(np.float64) @ checkpoint.head_weight) + float(checkpoint.head_bias))
    return np.array(found, np.float32)


@pytest.mark.parametrize("execution", ["rows", "packed", "shared"])
@pytest.mark.parametrize("shared", [3, 130])
def test_scores_are_those_of_the_full_forward(
    loaded: Callable[..., OpenJevExecutor], folders: Path, execution: str, shared: int
) -> None:
    """Whatever is read together."""
    request = random_request(shared, shared)
    executor = loaded(execution=execution)
    output = executor.execute(request, FakeCall())
    assert executor._checkpoint is not None
    model = transformers.Qwen3_5TextModel.from_pretrained(folders / "export", dtype=torch.float32).eval()
    expected = full_scores(model, executor._checkpoint, request)
    assert output["logits"].dtype == np.float32
    assert np.abs(output["logits"] - expected).max() < TOLERANCE
    assert expected.std() > 0.1
    assert output["processed"] <= len(request.tokens)


def test_packed_is_one_by_one(loaded: Callable[..., OpenJevExecutor]) -> None:
    """Within 1e-5, for many candidates of mixed lengths; 9B is not packed, 27B is."""
    random = np.random.default_rng(7)
    rows = [random.integers(0, 380, int(length)).astype(np.int32) for length in random.integers(4, 120, 40)]
    request = rows_request(rows, [0] * 40)
    packed = loaded(execution="packed").execute(request, FakeCall())
    alone = loaded(execution="rows").execute(request, FakeCall())
    single = [loaded(execution="packed").execute(rows_request([row], [0]), FakeCall())["logits"][0] for row in rows]
    assert (packed["execution"], alone["execution"]) == ("packed", "rows")
    assert np.abs(packed["logits"] - alone["logits"]).max() < TOLERANCE
    assert np.abs(packed["logits"] - single).max() < TOLERANCE
    assert loaded().execute(request, FakeCall())["execution"] == "packed"


def test_sixteen_are_read_at_once(loaded: Callable[..., OpenJevExecutor]) -> None:
    """Where their lengths are much the same, as those of one question's candidates are."""
    random = np.random.default_rng(8)
    rows = [random.integers(0, 380, int(length)).astype(np.int32) for length in random.integers(40, 44, 40)]
    request, call = rows_request(rows, [0] * 40), FakeCall()
    packed = loaded(execution="packed").execute(request, call)["logits"]
    assert 10**9 - call.looks == 3
    alone = loaded(execution="rows").execute(request, FakeCall())["logits"]
    assert np.abs(packed - alone).max() < TOLERANCE


def test_the_small_model_is_not_packed(copy: Path) -> None:
    """Unless the operator asks for it: it was never validated there."""
    change(copy / "export", MANIFEST, model_id="Qwen/Qwen3.5-9B")
    assert load(copy / "export")["execution"] == "rows"
    assert load(copy / "export", execution="packed")["execution"] == "packed"
    change(copy / "export", MANIFEST, model_id="mine/2B")
    assert load(copy / "export")["execution"] == "rows"


def test_groups_are_the_published_ones() -> None:
    """At most 16 candidates and 4,096 tokens; a longer one alone."""
    lengths = [2048, 2048, 1, 5000, 3, *[4] * 17]
    found = packing.groups(lengths, max_rows=PACKED_ROWS, max_tokens=PACKED_TOKENS)
    assert [(group.start, group.stop) for group in found] == [(0, 2), (2, 3), (3, 4), (4, 20), (20, 22)]


def test_questions_do_not_change_each_other(folders: Path, loaded: Callable[..., OpenJevExecutor]) -> None:
    """Added, removed, in another order: the answers are within 1e-6."""
    processor = OpenJevProcessor({}, {}, str(folders / "export"))
    executor = loaded()

    def decide(questions: dict[str, Any]) -> dict[str, Any]:
        prepared = processor.prepare(parse_request({"state": {"a": [1] * 30}, "questions": questions}))
        (unit,) = prepared.units
        output = executor.execute(unit, FakeCall())
        return {name: answer.to_json() for name, answer in processor.finish(prepared, [output]).answers}

    whole = decide(QUESTIONS)
    turned = decide(dict(reversed(QUESTIONS.items())))
    for name, question in QUESTIONS.items():
        for other in (decide({"x": question})["x"], turned[name], decide({name: question, "y": question})[name]):
            assert numbers(other) == pytest.approx(numbers(whole[name]), abs=1e-6)


def numbers(answer: dict[str, Any]) -> dict[str, float]:
    """The numbers of an answer."""
    return {
        **answer.get("probabilities", {}),
        **{key: value for key, value in answer.items() if isinstance(value, float)},
    }


def test_published_head() -> None:
    """Products and sum in float64, rounded to float32, then the bias; what leaves float32 is an error."""
    one = np.ones((1, 3), np.float32)
    big = np.float32(16_777_216)
    assert scores(one, np.array([big, 1, -big], np.float32), np.float32(0.25)).tolist() == [1.25]
    assert scores(one[:, :2], np.array([big, 1], np.float32), -big).tolist() == [0.0]
    largest = np.finfo(np.float32).max
    for weight in ([largest, largest, 0], [np.nan, 0, 0]):
        with pytest.raises(NonFinite):
            scores(one, np.array(weight, np.float32), np.float32(0))


def test_the_same_request_has_the_same_bits(loaded: Callable[..., OpenJevExecutor]) -> None:
    """Whatever was executed in between."""
    executor = loaded()
    first = executor.execute(random_request(3, 140), FakeCall())["logits"]
    executor.execute(random_request(4, 70), FakeCall())
    assert np.array_equal(executor.execute(random_request(3, 140), FakeCall())["logits"], first)


def test_bfloat16(loaded: Callable[..., OpenJevExecutor]) -> None:
    """The model's own dtype; the head stays in float64 and float32."""
    exact = loaded().execute(random_request(2, 20), FakeCall())["logits"]
    found = loaded(dtype="bfloat16").execute(random_request(2, 20), FakeCall())["logits"]
    assert 0 < np.abs(found - exact).max() < 0.3


def test_a_cancelled_call_stops_between_groups(loaded: Callable[..., OpenJevExecutor]) -> None:
    """Looked for before each pass; the executor serves the next call as if nothing had been."""
    executor = loaded(execution="rows")
    request = random_request(6, 100)
    expected = executor.execute(request, FakeCall())["logits"]
    for looks in (0, 1, 6):
        with pytest.raises(Abandoned):
            executor.execute(request, FakeCall(looks=looks))
    with pytest.raises(Abandoned, match="time"):
        executor.execute(request, FakeCall(remaining_ms=0))
    assert np.array_equal(executor.execute(request, FakeCall(looks=7, remaining_ms=1000))["logits"], expected)


def test_rows_for_another_model_are_the_senders_mistake(loaded: Callable[..., OpenJevExecutor]) -> None:
    """Tokens, lengths and candidates that this model has not."""
    executor = loaded(max_length=100)
    wide = RowsRequest(np.ones(2, np.int32), np.array([2], np.int32), np.array([2], np.int32), np.zeros(1, np.int32))
    for request in (rows_request([[1, 10**6]], [0]), rows_request([[1] * 101], [0]), wide):
        with pytest.raises(Malformed):
            executor.execute(request, FakeCall())
    with pytest.raises(ExecutionFailed):
        executor.execute(TextRequest(b"{}"), FakeCall())


def test_errors_of_the_device_are_fatal_and_others_are_not(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for all the same."""
    executor = start(folders / "export")
    backbone = executor._model
    assert backbone is not None
    waited: list[str] = []
    raised: Exception = torch.OutOfMemoryError("CUDA out of memory")

    def fail(*arguments: object) -> None:
        raise raised

    monkeypatch.setattr(backbone, "read", fail)
    monkeypatch.setattr("executor_host.devices.synchronize", lambda device: waited.append("waited"))
    request = rows_request([[1]], [0])
    with pytest.raises(FatalExecutionError, match="OutOfMemoryError"):
        executor.execute(request, FakeCall())
    raised = RuntimeError("shapes")
    with pytest.raises(RuntimeError, match="shapes"):
        executor.execute(request, FakeCall())
    assert len(waited) == 2


def test_numbers_that_are_none_are_an_error(folders: Path) -> None:
    """Of one request; and a model that has only such numbers does not become ready."""
    executor = start(folders / "export")
    assert executor._model is not None
    executor._model._model.norm.weight[5] = float("nan")
    with pytest.raises(NonFinite):
        executor.execute(rows_request([[1, 2]], [0]), FakeCall())
    with pytest.raises(ConfigurationError, match="warm-up"):
        executor.warm_up()
    with pytest.raises(ConfigurationError):
        OpenJevExecutor(str(folders / "export"), OPTIONS).warm_up()


def test_both_halves(folders: Path) -> None:
    """Facts fit, and both profiles answer the same, for both layouts."""
    from frontend.families.open_jev.profile import OpenJevNative

    answers = []
    for name, options in (("export", {}), ("lora", {"base": str(folders / "base")})):
        executor = OpenJevExecutor(str(folders / name), OPTIONS | options)
        facts = executor.load(lambda fraction, note: None)
        executor.warm_up()
        processor = OpenJevProcessor(facts, options, str(folders / name))
        body = {"state": {"a": [1] * 9}, "questions": QUESTIONS}
        prepared = processor.prepare(parse_request(body))
        (unit,) = prepared.units
        assert isinstance(unit, RowsRequest)
        output = executor.execute(RowsRequest.from_wire(unit.to_wire()), FakeCall())
        decision = processor.finish(prepared, [output])
        profile = OpenJevNative(processor)
        own = profile.finish(profile.prepare(json.dumps(body).encode()), [output], 0.0)
        for question, answer in decision.answers:
            assert numbers(answer.to_json()) == pytest.approx(numbers(own["answers"][question]), abs=1e-6)
        assert own["usage"]["input_tokens"] == decision.input_tokens == prepared.cost
        answers.append(own["answers"])
    assert answers[0] == answers[1]
