"""Reading rows through causal models of transformers: what is read once, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor_host.backbones.causal import FORK_BYTES, PACKED_TOKENS, Reader, Row, Way
from executor_host.errors import Abandoned

torch = pytest.importorskip("torch", reason="the backbones need framehost[torch]")
transformers = pytest.importorskip("transformers", reason="the backbones need framehost[torch]")

CPU = torch.device("cpu")
VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LINEAR: dict[str, Any] = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}


class Counting:
    """A tiny model as a `Forward`, which counts what goes through it."""

    def __init__(self, model: Any) -> None:
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.copy_(torch.randn(parameter.shape) * parameter.shape[-1] ** -0.5)
        self.model = model.eval()
        self.passes: list[tuple[int, int]] = []
        self.wanted = 0

    def __call__(self, tokens: Any, wanted: Any, cache: Any, layout: Mapping[str, Any]) -> Any:
        self.passes.append((int(tokens.shape[0]), int(tokens.shape[1])))
        self.wanted += wanted.numel()
        return self.model(
            input_ids=tokens, logits_to_keep=wanted, cache=cache, use_cache=cache is not None, **layout
        ).logits

    def reader(self, way: Way, least: int | None = 8) -> Reader:
        config = self.model.config
        return Reader(self, lambda: transformers.DynamicCache(config=config), CPU, way=way, least=least)


@pytest.fixture(scope="module")
def plain() -> Counting:
    return Counting(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)))


@pytest.fixture(scope="module")
def window() -> Counting:
    """Attends to the last 16 tokens only."""
    return Counting(transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, sliding_window=16)))


@pytest.fixture(scope="module")
def linear() -> Counting:
    """Three layers that carry a state, and one that attends."""
    transformers.utils.logging.set_verbosity_error()
    return Counting(transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**{**SIZES, **LINEAR})))


def nobody() -> None:
    """Nobody leaves."""


def row(tokens: list[int], *positions: int) -> Row:
    return Row(np.array(tokens, np.int64), np.array(positions or (len(tokens) - 1,), np.int64))


def request_of(seed: int, *, ends: tuple[int, ...], shared: int, kinds: int = 1) -> list[Row]:
    """Rows that begin with 3 tokens, then one of `kinds` tokens, then share `shared` more with others of their kind."""
    generator = np.random.default_rng(seed)
    begin, middle = (generator.integers(0, VOCABULARY, size).tolist() for size in (3, shared))
    return [
        row([*begin, index % kinds, *middle, *generator.integers(0, VOCABULARY, end).tolist()])
        for index, end in enumerate(ends)
    ]


def apart(model: Counting, rows: list[Row], way: Way) -> float:
    """The largest difference between two ways of reading the same rows."""
    alone = model.reader("alone").read(rows, nobody).numbers
    other = model.reader(way).read(rows, nobody).numbers
    return max(float((a - b).abs().max()) for a, b in zip(alone, other, strict=True))


@pytest.mark.parametrize("way", ["packed", "forked"])
@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    seed=st.integers(0, 1000),
    ends=st.lists(st.integers(1, 40), min_size=1, max_size=6).map(tuple),
    shared=st.integers(0, 60),
    kinds=st.integers(1, 3),
)
def test_sharing_is_exact(plain: Counting, way: Way, seed: int, ends: tuple[int, ...], shared: int, kinds: int) -> None:
    """Within 1e-5 of every row read alone, whatever they share."""
    rows = request_of(seed, ends=ends, shared=shared, kinds=kinds)
    assert apart(plain, rows, way) <= 1e-5


@pytest.mark.parametrize(("name", "rounding"), [("window", 1e-5), ("linear", 1e-4)])
def test_models_with_states_of_their_own_are_forked(name: str, rounding: float, request: pytest.FixtureRequest) -> None:
    """A window shorter than what is shared, and layers that are written in place: the next reading sees neither."""
    model = request.getfixturevalue(name)
    for seed in range(4):
        rows = request_of(seed, ends=(5, 31, 9, 70), shared=50, kinds=1 + seed % 2)
        assert apart(model, rows, "forked") <= rounding


def test_several_positions_of_a_row(plain: Counting) -> None:
    """A state ends before the first position that is asked for, although the rows share more."""
    tokens = list(range(40))
    rows = [row([*tokens, 50, 51], 20, 41), row([*tokens, 60, 61, 62], 30, 35, 42)]
    for way in ("packed", "forked"):
        assert apart(plain, rows, way) <= 1e-5
    assert plain.reader("packed").read(rows, nobody).processed == 20 + 22 + 23


@pytest.mark.parametrize("way", ["packed", "forked"])
def test_what_is_shared_is_read_once(plain: Counting, way: Way) -> None:
    """8 rows with 60 tokens in common are a pass for those and one for the ends, and nothing else is computed."""
    rows = request_of(7, ends=(9,) * 8, shared=56)
    plain.passes, plain.wanted = [], 0
    reading = plain.reader(way).read(rows, nobody)
    assert reading.processed == 60 + 8 * 9
    assert reading.shared
    assert plain.passes == [(1, 60), (1, 72) if way == "packed" else (8, 9)]
    assert plain.wanted == 8


def test_rows_of_a_kind_share_more(plain: Counting) -> None:
    """The kind stands before what is shared: a state for each kind, and none for the few tokens before it."""
    rows = request_of(3, ends=(4, 5, 6, 7), shared=50, kinds=2)
    reading = plain.reader("packed", least=16).read(rows, nobody)
    assert reading.processed == 2 * 54 + 4 + 5 + 6 + 7


def test_rows_alone_are_never_padded_or_shared(plain: Counting) -> None:
    """As transformers reads them: a pass for each, of its own length."""
    rows = request_of(4, ends=(3, 8), shared=40)
    plain.passes = []
    reading = plain.reader("alone").read(rows, nobody)
    assert (reading.processed, reading.shared) == (47 + 52, False)
    assert plain.passes == [(1, 47), (1, 52)]


def test_long_lines_are_cut(plain: Counting) -> None:
    """Ends are packed up to a number of tokens, and the state is as it was for the next line."""
    count = PACKED_TOKENS["cpu"] // 50 + 2
    rows = request_of(5, ends=(50,) * count, shared=20)
    plain.passes = []
    assert apart(plain, rows, "packed") <= 1e-5
    lines = [length for _, length in plain.passes[count:]]
    assert lines == [24, PACKED_TOKENS["cpu"] // 50 * 50, 100]


def test_no_rows(plain: Counting) -> None:
    """Nothing to read is nothing read."""
    reading = plain.reader("packed").read([], nobody)
    assert (reading.numbers, reading.processed, reading.shared) == ([], 0, False)


@pytest.mark.parametrize(("way", "passes"), [("packed", 2), ("forked", 2), ("alone", 3)])
def test_looked_at_before_every_pass(plain: Counting, way: Way, passes: int) -> None:
    """Whoever waits no more is noticed before the model is used again."""
    rows = request_of(6, ends=(5, 6, 7), shared=40)
    for allowed in range(passes):
        looks = iter([None] * allowed)
        plain.passes = []

        def check(looks: Any = looks) -> None:
            if next(looks, "gone") == "gone":
                raise Abandoned("gone")

        with pytest.raises(Abandoned):
            plain.reader(way).read(rows, check)
        assert len(plain.passes) == allowed


def test_memory_bounds_the_forks(plain: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a state that would not fit are made one after the other."""
    rows = request_of(8, ends=(5, 5, 5, 5), shared=40)
    bytes_of_state = 44 * 2 * 2 * 8 * 3 * 4  # tokens, keys and values, heads, size, layers, float32
    monkeypatch.setitem(FORK_BYTES, "cpu", 2 * 2 * bytes_of_state)
    plain.passes = []
    plain.reader("forked").read(rows, nobody)
    assert plain.passes == [(1, 44), (2, 5), (2, 5)]
