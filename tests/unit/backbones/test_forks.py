"""Copies of a cache: they hold the same state, and what is done to one does not reach another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.backbones import causal, forks  # noqa: E402
from tests.helpers import tiny_decider  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model with linear attentions and full ones."""
    folder: Path = tiny_decider.write(tmp_path_factory.mktemp("forks"), seed=4)
    return transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().model


@pytest.fixture
def state(model: Any) -> Any:
    """The cache after 70 tokens of one row."""
    cache = transformers.DynamicCache(config=model.config)
    with torch.inference_mode():
        model(input_ids=torch.arange(70)[None], cache=cache, use_cache=True)
    return cache


def tensors(cache: Any) -> list[Any]:
    return [tensor.clone() for layer in cache.layers for tensor in causal._tensors(layer)]


def test_rows_go_on_as_from_a_deep_copy(model: Any, state: Any) -> None:
    """Bit for bit, for one row and for several, and the state is what it was."""
    import copy

    before = tensors(state)
    for rows in (1, 3):
        ends = torch.arange(rows * 9).reshape(rows, 9) + 100
        deep = copy.deepcopy(state)
        deep.reorder_cache(torch.zeros(rows, dtype=torch.int64))
        with torch.inference_mode():
            found, expected = (
                model(input_ids=ends, cache=cache, use_cache=True).last_hidden_state
                for cache in (forks.fork(state, rows), deep)
            )
        assert torch.equal(found, expected)
        assert all(map(torch.equal, tensors(state), before))


def test_only_what_is_written_in_place_is_copied(state: Any) -> None:
    """Keys and values are views of those of the state; the states of linear attentions are nobody else's."""
    twin = forks.fork(state, 5)
    shared, own = 0, 0
    for layer, copied in zip(state.layers, twin.layers, strict=True):
        theirs = {tensor.untyped_storage().data_ptr() for tensor in causal._tensors(layer)}
        for tensor in causal._tensors(copied):
            assert len(tensor) == 5
            held = tensor.untyped_storage().data_ptr() in theirs
            assert held is hasattr(layer, "keys")
            shared, own = shared + held, own + (not held)
    assert shared
    assert own
