"""The forward in numpy: its pieces against their definitions, the whole against the same family on torch."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor_host.errors import ConfigurationError
from executor_host.executors.embedding import numpy_encoder
from executor_host.executors.embedding.executor import EmbeddingExecutor
from protocol.payloads import RowsRequest
from tests.helpers import tiny_embedding
from tests.helpers.calls import FakeCall

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")

TOLERANCE = 1e-5
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole checkpoint. Read only."""
    torch.set_num_threads(1)
    return tiny_embedding.write(tmp_path_factory.mktemp("embedding") / "tiny")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def start(folder: Path, **options: object) -> EmbeddingExecutor:
    executor = EmbeddingExecutor(str(folder), options)
    executor.load(lambda fraction, note: None)
    return executor


def requests(seed: int, count: int) -> list[RowsRequest]:
    """Any states and groups of texts, of any lengths that the tiny model reads."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        sizes = [1, *(chance.randint(1, 9) for _ in range(chance.randint(1, 4)))]
        lengths = [chance.randint(1, tiny_embedding.MAX_SEQ_LENGTH) for _ in range(sum(sizes))]
        made.append(
            RowsRequest(
                tokens=np.array([chance.randrange(100) for _ in range(sum(lengths))], np.int32),
                lengths=np.array(lengths, np.int32),
                candidates=np.ones(len(lengths), np.int32),
                questions=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes),
            )
        )
    return made


def test_gelu_is_the_exact_one() -> None:
    """Within 1e-6 of x times the normal distribution everywhere, in place, for more rows than are done at a time."""
    x = np.linspace(-12.0, 12.0, 3 * 70 * 41, dtype=np.float32).reshape(210, 41)
    expected = [value * 0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x.ravel().tolist()]
    found = numpy_encoder.gelu(x)
    assert found is x
    assert np.abs(found.ravel() - np.array(expected)).max() < 1e-6


@pytest.mark.parametrize("config", [{}, {"num_attention_heads": 1}, {"layer_norm_eps": 1e-5}], ids=str)
def test_it_equals_the_family_on_torch(tmp_path: Path, config: dict[str, Any]) -> None:
    """Within 1e-5 on generated requests; by default it is numpy that computes, and the identities differ."""
    folder = tiny_embedding.write(tmp_path / "tiny", seed=3, **config)
    ours, theirs = start(folder), start(folder, backend="torch")
    assert "/numpy/" in str(ours.load(lambda *_: None)["identity"])
    assert "/torch/" in str(theirs.load(lambda *_: None)["identity"])
    largest = 0.0
    for request in requests(11, 60):
        found, expected = (one.execute(request, FakeCall())["cosines"] for one in (ours, theirs))
        largest = max(largest, float(np.abs(found - expected).max()))
    assert largest < TOLERANCE


def test_facts_are_those_of_the_family_on_torch(copy: Path) -> None:
    """But for what computes: parameters are counted alike, the pooling layer, which nobody asks, left out."""
    ours, theirs = (
        dict(EmbeddingExecutor(str(copy), {"backend": backend}).load(lambda *_: None)) for backend in ("numpy", "torch")
    )
    assert (ours.pop("backend"), theirs.pop("backend")) == ("numpy", "torch")
    for facts in (ours, theirs):
        del facts["identity"]
    assert ours == theirs


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_read(copy: Path, dtype: str) -> None:
    """Weights that were saved in 16 bits are computed with in 32."""
    from safetensors.torch import load_file, save_file

    file = copy / "model.safetensors"
    save_file({name: value.to(getattr(torch, dtype)) for name, value in load_file(file).items()}, file)
    ours, theirs = start(copy, backend="numpy"), start(copy, backend="torch")
    for request in requests(5, 10):
        found, expected = (one.execute(request, FakeCall())["cosines"] for one in (ours, theirs))
        assert found == pytest.approx(expected, abs=TOLERANCE)


def test_names_below_a_prefix_are_found(copy: Path) -> None:
    """As models have them that were saved with a head on top."""
    from safetensors.torch import load_file, save_file

    file = copy / "model.safetensors"
    before = start(copy, backend="numpy")
    save_file({f"bert.{name}": value for name, value in load_file(file).items()}, file)
    after = start(copy, backend="numpy")
    for request in requests(6, 3):
        assert after.execute(request, FakeCall())["cosines"].tobytes() == (
            before.execute(request, FakeCall())["cosines"].tobytes()
        )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "mpnet"}, "model_type is 'mpnet'"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ],
)
def test_another_architecture_is_for_torch(copy: Path, config: dict[str, str], words: str) -> None:
    """With numpy asked for, it is refused and says why; by default it is loaded by torch."""
    file = copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    with pytest.raises(ConfigurationError, match=words):
        start(copy, backend="numpy")
    if "hidden_act" in config:
        assert EmbeddingExecutor(str(copy), {}).load(lambda *_: None)["backend"] == "torch"


def test_what_does_not_fit_is_named(copy: Path) -> None:
    """A size that the weights do not have, heads that do not divide it, a place outside the file."""
    file, weights = copy / "config.json", copy / "model.safetensors"
    config, content = json.loads(file.read_text()), weights.read_bytes()
    for change, words in (
        ({"intermediate_size": 65}, "another shape"),
        ({"num_attention_heads": 5}, "5 heads"),
        ({"num_hidden_layers": 3}, r"layer\.2.* is missing"),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps"),
    ):
        file.write_text(json.dumps({**config, **change}))
        with pytest.raises(ConfigurationError, match=words):
            start(copy, backend="numpy")
    file.write_text(json.dumps(config))
    (length,) = struct.unpack("<Q", content[:8])
    table = json.loads(content[8 : 8 + length])
    table["embeddings.LayerNorm.bias"]["data_offsets"][0] += 4
    head = json.dumps(table).encode()
    weights.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + length :])
    with pytest.raises(ConfigurationError, match=r"the place of embeddings\.LayerNorm\.bias"):
        start(copy, backend="numpy")


def test_torch_is_never_imported(folder: Path) -> None:
    """Where numpy computes, in a fresh interpreter that could import it, a failing execution included."""
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from executor_host.errors import FatalExecutionError\n"
        "from executor_host.executors.embedding.executor import EmbeddingExecutor\n"
        f"executor = EmbeddingExecutor({str(folder)!r}, {{}})\n"
        "facts = executor.load(lambda *_: None); executor.warm_up()\n"
        "def fail(rows): raise MemoryError\n"
        "executor._model.read = fail\n"
        "from executor_host.executors.base import WarmUpCall\n"
        "import numpy as np\n"
        "from protocol.payloads import RowsRequest\n"
        "one = np.ones(1, np.int32)\n"
        "try: executor.execute(RowsRequest(one * 7, one, one, one * 0), WarmUpCall())\n"
        "except FatalExecutionError: print(facts['backend'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == ("numpy\n", 0), ended.stderr


# Several threads


@pytest.mark.parametrize(
    ("lengths", "threads", "expected"),
    [
        ([10, 10], 2, [2]),
        ([64, 64], 2, [1, 1]),
        ([100, 20, 20, 20, 40], 2, [1, 4]),
        ([20] * 32, 3, [11, 11, 10]),
        ([640], 4, [1]),
        ([1, 1, 1, 500], 4, [4]),
        ([128] * 3, 8, [1, 1, 1]),
    ],
)
def test_the_rows_of_a_pass_are_divided_by_their_tokens(lengths: list[int], threads: int, expected: list[int]) -> None:
    """In order, none left out, and a few tokens are not divided."""
    parts = numpy_encoder.shares(lengths, threads)
    assert [len(part) for part in parts] == expected
    assert [row for part in parts for row in part] == list(range(len(lengths)))


def test_threads_change_no_vector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of them, on rows of mixed lengths; each one is used, and all are gone after the end."""
    checkpoint = start(folder)._checkpoint
    assert checkpoint is not None
    alone, several = numpy_encoder.NumpyEncoder(checkpoint), numpy_encoder.NumpyEncoder(checkpoint, 3)
    choice = random.Random(3)
    rows = [
        np.array([choice.randrange(5, alone.vocabulary) for _ in range(choice.randint(2, 24))], np.int32)
        for _ in range(60)
    ]
    used: set[str] = set()
    inner = several._read

    def read(part: Any) -> Any:
        used.add(threading.current_thread().name.partition("_")[0])
        return inner(part)

    monkeypatch.setattr(several, "_read", read)
    np.testing.assert_allclose(several.read(rows), alone.read(rows), atol=1e-6)
    assert used == {"MainThread", "encoder"}
    several.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("encoder")]


def test_a_thread_that_fails_fails_the_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not another one: what the others do is waited for at the end."""
    checkpoint = start(folder)._checkpoint
    assert checkpoint is not None
    encoder = numpy_encoder.NumpyEncoder(checkpoint, 2)
    rows = [np.full(40, 7, np.int32)] * 4

    def fail(part: Any) -> Any:
        raise MemoryError(threading.current_thread().name)

    monkeypatch.setattr(encoder, "_read", fail)
    with pytest.raises(MemoryError):
        encoder.read(rows)
    encoder.close()


@pytest.mark.parametrize(("said", "expected"), [("3", 3), ("2,1", 2), ("", 1), ("0", 1), ("many", 1)])
def test_how_many_threads_is_the_launchers_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, expected: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    executor = start(folder)
    assert isinstance(executor._model, numpy_encoder.NumpyEncoder)
    assert executor._model._threads == expected
    executor.close()
