"""Prefixes that are kept between requests: a warm answer is a cold one bit for bit, and both are the model's own.

The judge of the values is the forward of transformers over one whole row; the judge of "bit for bit" is a backbone that
has never seen anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.backbones import kept, pieces  # noqa: E402
from executor_host.backbones.causal import Reader, Row, Way  # noqa: E402
from executor_host.backbones.qwen3_5 import Qwen35, Settings  # noqa: E402
from executor_host.errors import Abandoned  # noqa: E402
from tests.helpers import tiny_decider  # noqa: E402
from tests.unit.backbones.test_causal import Counting, linear, plain, window  # noqa: E402, F401

TOLERANCE = 1e-5
SEGMENT = 16
MUCH = 1 << 30

Request = tuple[list[NDArray[np.int32]], list[int]]
"""Rows, and the question of each."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny random Qwen3.5 in float32."""
    folder: Path = tiny_decider.write(tmp_path_factory.mktemp("kept"), seed=5)
    return transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture
def make(model: Any) -> Callable[..., Qwen35]:
    """Backbones around one model, each with nothing kept yet."""

    def make(kept_bytes: int = MUCH, segment: int = SEGMENT, **options: Any) -> Qwen35:
        return Qwen35(model.model, Settings(kept_bytes=kept_bytes, segment=segment, **options))

    return make


def read(backbone: Qwen35, request: Request, shared: int = 0) -> NDArray[np.float32]:
    """The hidden states of a request's rows."""
    hidden: NDArray[np.float32] = backbone.read(*request, lambda: None, shared).hidden.numpy()
    return hidden


def text(seed: int, length: int) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, 900, length).astype(np.int32)


def asked(state: NDArray[np.int32], *questions: int) -> Request:
    """Rows that begin with `state`; each has so many tokens of its own, always the same for the same number."""
    return [np.concatenate([state, text(1000 + length, length)]) for length in questions], list(range(len(questions)))


def test_a_warm_answer_is_a_cold_one_bit_for_bit_and_the_models_own(model: Any, make: Callable[..., Qwen35]) -> None:
    """One row and several, with the state's length said and not."""
    state = text(1, 100)
    for request, shared in ((asked(state, 9), 0), (asked(state, 9), 100), (asked(state, 9, 30, 4), 0)):
        backbone = make()
        cold = read(backbone, request, shared)
        warm = read(backbone, request, shared)
        assert cold.tobytes() == warm.tobytes()
        for row, hidden in zip(request[0], cold, strict=True):
            with torch.no_grad():
                own = model.model(torch.from_numpy(row[None].astype(np.int64))).last_hidden_state[0, -1].numpy()
            assert np.abs(own - hidden).max() < TOLERANCE
        assert backbone.statistics()["kept"]["hits"] == 1


@pytest.mark.parametrize(("length", "segment"), [(1, 16), (63, 16), (64, 16), (65, 16), (4096, 512)])
def test_recurrent_states_belong_to_the_prefix_and_not_to_the_last_request(
    make: Callable[..., Qwen35], length: int, segment: int
) -> None:
    """A, B, A, B: each has the answer that it has alone, whoever was read in between."""
    first, second = (asked(text(seed, length), 7) for seed in (1, 2))
    alone = [read(make(segment=segment), request, length) for request in (first, second)]
    backbone = make(segment=segment)
    found = [read(backbone, request, length) for request in (first, second, first, second)]
    assert [answer.tobytes() for answer in found] == [answer.tobytes() for answer in (*alone, *alone)]


def test_a_text_that_grows_is_read_from_where_it_was(make: Callable[..., Qwen35]) -> None:
    """Each turn pays for what is new; the answer is that of a backbone that reads the whole for the first time."""
    whole = text(3, 300)
    backbone = make()
    before = 0
    for length in (100, 130, 200, 300):
        request = asked(whole[:length], 5)
        assert read(backbone, request, length).tobytes() == read(make(), request, length).tobytes()
        spared = backbone.statistics()["kept"]["kept_tokens"]
        assert spared - before == {100: 0, 130: 96, 200: 128, 300: 192}[length]
        before = spared


@settings(max_examples=12, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 90), st.integers(1, 3)), min_size=2, max_size=6))
def test_nothing_that_was_asked_before_changes_an_answer(model: Any, history: list[tuple[int, int, int]]) -> None:
    """Texts that begin alike, in any order, with memory for some of them only."""
    backbone = Qwen35(model.model, Settings(kept_bytes=150_000, segment=SEGMENT))
    for seed, length, questions in history:
        request = asked(text(seed, 90)[:length], *range(3, 3 + questions))
        fresh = Qwen35(model.model, Settings(kept_bytes=MUCH, segment=SEGMENT))
        assert read(backbone, request, length).tobytes() == read(fresh, request, length).tobytes()
        counts = backbone.statistics()["kept"]
        assert counts["bytes"] <= counts["limit_bytes"]


def test_the_least_recently_used_goes_first_and_never_what_others_go_on_from(make: Callable[..., Qwen35]) -> None:
    """Three texts where two have room: the one that was not used again is read anew, the others are not."""
    requests = [asked(text(seed, 2 * SEGMENT), 3) for seed in range(3)]
    sizes = make()
    read(sizes, requests[0], 2 * SEGMENT)
    one = sizes.statistics()["kept"]["bytes"]
    backbone = make(kept_bytes=2 * one)
    for turn in (0, 1, 0, 2):
        read(backbone, requests[turn], 2 * SEGMENT)
    before = backbone.statistics()["kept"]
    assert (before["evicted"], before["bytes"]) == (2, 2 * one)
    read(backbone, requests[0], 2 * SEGMENT)
    assert backbone.statistics()["kept"]["hits"] == before["hits"] + 1
    read(backbone, requests[1], 2 * SEGMENT)
    assert backbone.statistics()["kept"]["misses"] == before["misses"] + 1


def test_what_is_larger_than_the_budget_is_read_and_not_kept(make: Callable[..., Qwen35]) -> None:
    """The answer does not depend on whether there is room."""
    request = asked(text(1, 70), 5, 6)
    backbone = make(kept_bytes=1)
    assert read(backbone, request).tobytes() == read(make(), request).tobytes()
    assert backbone.statistics()["kept"]["bytes"] == 0


def test_a_request_that_is_given_up_leaves_no_wrong_state(make: Callable[..., Qwen35]) -> None:
    """Between any two passes, and in the middle of one: the next answer is right, and whole segments are of use."""
    request = asked(text(1, 100), 9)
    right = read(make(), request, 100)
    for at in range(1, 9):
        backbone = make()
        passes = iter(range(1, 100))

        def check(passes: Any = passes, at: int = at) -> None:
            if next(passes) == at:
                raise Abandoned("the client has left")

        if at <= 8:  # seven passes for the state, one for the end
            with pytest.raises(Abandoned):
                backbone.read(*request, check, 100)
        assert read(backbone, request, 100).tobytes() == right.tobytes()


def test_a_pass_that_fails_keeps_nothing(make: Callable[..., Qwen35], monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory after the caches were written in part."""
    request = asked(text(1, 100), 9)
    right = read(make(), request, 100)
    backbone = make()
    whole = Qwen35._pass
    passes = iter(range(100))

    def failing(self: Qwen35, *arguments: Any) -> Any:
        result = whole(self, *arguments)
        if next(passes) == 3:
            raise RuntimeError("out of memory")
        return result

    monkeypatch.setattr(Qwen35, "_pass", failing)
    with pytest.raises(RuntimeError):
        backbone.read(*request, lambda: None, 100)
    assert backbone.statistics()["kept"]["nodes"] == 3
    assert read(backbone, request, 100).tobytes() == right.tobytes()


def test_equal_requests_say_that_they_read_the_same(make: Callable[..., Qwen35]) -> None:
    """Hit or miss, what is reported of a request is equal, too."""
    backbone = make()
    request = asked(text(1, 100), 9, 20)
    readings = [backbone.read(*request, lambda: None, 100) for _ in range(2)]
    assert [(reading.execution, reading.processed) for reading in readings] == [("kept", 129), ("kept", 129)]


@pytest.mark.parametrize(
    ("family", "way"), [("plain", "forked"), ("plain", "packed"), ("linear", "forked"), ("window", "forked")]
)
def test_any_causal_model(request: pytest.FixtureRequest, family: str, way: Way) -> None:
    """Layers that attend to everything, to a window, or carry a state: warm is cold, and near the undivided pass."""
    counting: Counting = request.getfixturevalue(family)
    config = counting.model.config

    def reader() -> Reader:
        return Reader(
            counting,
            lambda: transformers.DynamicCache(config=config),
            torch.device("cpu"),
            way=way,
            least=8,
            kept_bytes=MUCH,
            segment=SEGMENT,
        )

    state = np.arange(70) % 97
    rows = [Row(np.concatenate([state, np.arange(length) * 7 % 97]), np.array([69 + length])) for length in (5, 9, 20)]
    one = reader()
    for asked_rows in (rows, rows[:1]):
        cold, warm = (one.read(asked_rows, lambda: None) for _ in range(2))
        other = reader().read(asked_rows, lambda: None)
        for again in (warm, other):
            assert all(torch.equal(a, b) for a, b in zip(cold.numbers, again.numbers, strict=True))
            assert (again.processed, again.shared) == (cold.processed, cold.shared)
        undivided = Reader(counting, lambda: None, torch.device("cpu"), way="alone").read(asked_rows, lambda: None)
        for near, own in zip(cold.numbers, undivided.numbers, strict=True):
            assert torch.allclose(near, own, atol=TOLERANCE)
    assert one.kept is not None
    assert one.kept.statistics()["hits"] >= 2


def test_misuse(plain: Counting) -> None:  # noqa: F811
    """A model that is read row by row has no states; a layer that cannot be put back is named."""
    config = plain.model.config
    with pytest.raises(ValueError, match="goes on from states"):
        Reader(plain, lambda: None, torch.device("cpu"), way="alone", kept_bytes=1)
    for limit, segment in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least"):
            kept.KeptPrefixes(limit, segment, lambda: None, lambda cache, tokens, before: None)

    def static() -> Any:
        return transformers.StaticCache(config=config, max_cache_len=200)

    reader = Reader(plain, static, torch.device("cpu"), way="forked", kept_bytes=MUCH, segment=SEGMENT)
    with pytest.raises(pieces.Unkeepable, match="StaticLayer"):
        reader.read([Row(np.arange(40) % 97, np.array([39]))], lambda: None)


# Conversations


def turn(backbone: Qwen35, state: NDArray[np.int32], conversation: str | None) -> Any:
    """One question about `state`, as a turn; what is held after it."""
    assert backbone.kept is not None
    backbone.kept.begin_turn()
    try:
        read(backbone, asked(state, 9), len(state))
    except BaseException:
        backbone.kept.end_turn(None)
        raise
    return backbone.kept.end_turn(conversation)


def test_a_conversation_reads_what_it_has_grown_by_and_keeps_what_others_may_not_take(
    make: Callable[..., Qwen35],
) -> None:
    """No room for prefixes at all: what is pinned stays, and everything else goes with its turn."""
    backbone, long = make(), text(1, 200)
    assert backbone.kept is not None
    backbone.kept.allow(0)
    first = turn(backbone, long[:100], "a")
    assert (first.prefixes, first.tokens, first.found) == (0, 100, 0)
    assert turn(backbone, text(2, 100), None).tokens == 0
    second = turn(backbone, long, "a")
    assert (second.prefixes, second.tokens, second.found) == (0, 200, 100 - 100 % SEGMENT)
    assert second.bytes > first.bytes
    assert turn(backbone, long, "a").found == 200
    backbone.kept.drop(["a", "unknown"])
    assert turn(backbone, long, "a").found == 0


def test_a_changed_state_goes_on_from_what_it_has_in_common(make: Callable[..., Qwen35]) -> None:
    """Whole segments of it; what the former turn had beyond that is given up."""
    backbone, state = make(), text(1, 100)
    assert backbone.kept is not None
    backbone.kept.allow(0)
    turn(backbone, state, "a")
    changed = np.concatenate([state[:50], text(3, 60)])
    assert turn(backbone, changed, "a").found == 50 - 50 % SEGMENT
    assert turn(backbone, state, None).found == 50 - 50 % SEGMENT


def test_conversations_of_one_text_are_each_charged_in_full_and_end_apart(make: Callable[..., Qwen35]) -> None:
    """The text lies there once; it goes with the last of them."""
    backbone, state = make(), text(1, 100)
    assert backbone.kept is not None
    backbone.kept.allow(0)
    assert turn(backbone, state, "a").bytes == turn(backbone, state, "b").bytes > 0
    backbone.kept.drop(["a"])
    assert turn(backbone, state, None).found == 100
    backbone.kept.drop(["b"])
    assert turn(backbone, state, None).found == 0
    assert backbone.kept.statistics()["nodes"] == 0


def test_a_turn_that_fails_pins_nothing_and_leaves_what_was_pinned(make: Callable[..., Qwen35]) -> None:
    """The conversation has what it had before."""
    backbone, long = make(), text(1, 200)
    assert backbone.kept is not None
    backbone.kept.allow(0)
    before = turn(backbone, long[:100], "a")
    passes = iter(range(100))

    def check() -> None:
        if next(passes) == 2:
            raise Abandoned("the client has left")

    backbone.kept.begin_turn()
    with pytest.raises(Abandoned):
        backbone.read(*asked(long, 9), check, 200)
    assert backbone.kept.end_turn(None).prefixes == 0
    after = turn(backbone, long[:100], "a")
    assert (after.found, after.bytes) == (100, before.bytes)


def test_answers_with_and_without_a_conversation_are_equal_bit_for_bit(make: Callable[..., Qwen35]) -> None:
    """Both read the same segments."""
    alone, talking = make(), make()
    assert talking.kept is not None
    for length in (30, 64, 65, 200, 120):
        state = text(1, length)
        talking.kept.begin_turn()
        answer = read(talking, asked(state, 9), length)
        talking.kept.end_turn("a")
        assert answer.tobytes() == read(alone, asked(state, 9), length).tobytes()


def test_what_is_kept_costs_what_the_model_was_measured_to_cost(make: Callable[..., Qwen35]) -> None:
    """The cost before a unit is a bound on what it holds after it, and a close one."""
    backbone = make()
    assert backbone.kept is not None
    cost = backbone.kept.cost()
    for length in (3, 16, 17, 100):
        held = turn(backbone, text(length, length), "a")
        assert held.bytes <= cost.of(length) <= 1.01 * held.bytes + cost.state_bytes


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc-"), st.integers(1, 90)), max_size=12))
def test_any_order_of_turns_ends_with_nothing_held(steps: list[tuple[int, str, int]], model: Any) -> None:
    """After the last drop no byte is left, pinned or not."""
    backbone = Qwen35(model.model, Settings(kept_bytes=MUCH, segment=SEGMENT))
    assert backbone.kept is not None
    for seed, conversation, length in steps:
        backbone.kept.allow(seed * 20_000)
        held = turn(backbone, text(seed // 2, length), "" if conversation == "-" else conversation)
        assert held.prefixes <= seed * 20_000
    backbone.kept.drop("abc")
    backbone.kept.allow(0)
    assert (backbone.kept.statistics()["bytes"], backbone.kept.statistics()["nodes"]) == (0, 0)
    assert turn(backbone, text(0, 90), None).found == 0
