"""The Qwen3.5 backbone on a tiny random model in float32 on the CPU: whatever is read together, the result is the same.

The judge is the forward of transformers over one whole row, without a cache and without padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.backbones import loading, prefix, qwen3_5  # noqa: E402
from executor_host.backbones.qwen3_5 import Execution, Qwen35, Settings  # noqa: E402
from executor_host.errors import Abandoned, ConfigurationError  # noqa: E402
from tests.helpers import tiny_decider  # noqa: E402

TOLERANCE = 1e-5
"""Of final-norm hidden states, which are about 0.2 each; another prefix moves them by 0.01 and more."""

Rows = list[NDArray[np.int32]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in the released layout."""
    return tiny_decider.write(tmp_path_factory.mktemp("backbone"), seed=3)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    """Loaded by transformers alone, in float32."""
    return transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def read(model: Any) -> Callable[..., Any]:
    """Reads rows with the given execution and settings around one model; hidden states as an array."""

    def read(rows: Rows, questions: Sequence[int], execution: Execution, **options: Any) -> NDArray[np.float32]:
        backbone = Qwen35(model.model, Settings(execution=execution, **options))
        reading = backbone.read(rows, questions, lambda: None)
        assert reading.hidden.shape == (len(rows), 64)
        result: NDArray[np.float32] = reading.hidden.numpy()
        return result

    return read


@pytest.fixture(scope="module")
def alone(model: Any) -> Callable[[Rows], NDArray[np.float32]]:
    """Each row through transformers' own forward, by itself."""

    def alone(rows: Rows) -> NDArray[np.float32]:
        with torch.no_grad():
            states = [model.model(torch.from_numpy(row[None].astype(np.int64))).last_hidden_state for row in rows]
        return np.stack([state[0, -1].numpy() for state in states])

    return alone


def test_the_judge_can_tell(alone: Callable[[Rows], Any]) -> None:
    """Another token at the beginning of a row of 200 is seen at its end: a lost prefix would not pass for rounding."""
    rows, _ = request(1, 200, [(0, [5])])
    other = rows[0].copy()
    other[:64] = (other[:64] + 1) % 900
    assert np.abs(alone(rows) - alone([other])).max() > 100 * TOLERANCE


def request(seed: int, shared: int, questions: Sequence[tuple[int, Sequence[int]]]) -> tuple[Rows, list[int]]:
    """Random rows: `shared` tokens, then per question so many of its own, then so many of each of its rows."""
    random = np.random.default_rng(seed)

    def some(count: int) -> NDArray[np.int32]:
        return random.integers(0, 900, count).astype(np.int32)

    start, rows, owners = some(shared), [], []
    for index, (inside, ends) in enumerate(questions):
        middle = some(inside)
        for end in ends:
            rows.append(np.concatenate([start, middle, some(end)]))
            owners.append(index)
    return rows, owners


ENDS = st.lists(st.integers(1, 70), min_size=1, max_size=4)
QUESTIONS = st.lists(st.tuples(st.integers(0, 140), ENDS), min_size=1, max_size=4)


@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 200), QUESTIONS)
def test_every_execution_reads_the_same(
    read: Callable[..., Any], alone: Callable[[Rows], Any], seed: int, shared: int, questions: Any
) -> None:
    """Rows, packed and shared agree with each other and with transformers."""
    rows, owners = request(seed, shared, questions)
    expected = alone(rows)
    for execution in qwen3_5.EXECUTIONS:
        found = read(rows, owners, execution)
        assert np.abs(found - expected).max() < TOLERANCE, execution


@pytest.mark.parametrize("ends", [[1, 1], [1, 70], [64, 65, 63], [3]])
@pytest.mark.parametrize("shared", [64, 65, 127, 128, 129])
def test_states_at_and_around_a_boundary(
    read: Callable[..., Any], alone: Callable[[Rows], Any], shared: int, ends: list[int]
) -> None:
    """Ends of one token go through the linear layers' step by step rule, others through the chunked one."""
    rows, owners = request(shared, shared, [(0, ends), (64, [1, 2]), (0, [5])])
    assert np.abs(read(rows, owners, "shared") - alone(rows)).max() < TOLERANCE


def test_a_group_whose_state_begins_at_nothing(read: Callable[..., Any], alone: Callable[[Rows], Any]) -> None:
    """No root state, one of a question, and rows that go on from none."""
    rows, owners = request(5, 0, [(0, [30, 20]), (90, [4, 5, 6]), (0, [9])])
    plan = prefix.plan(rows, owners)
    assert plan is not None
    assert (plan.root, [branch.prefix for branch in plan.branches]) == (0, [0, 64, 0])
    assert np.abs(read(rows, owners, "shared") - alone(rows)).max() < TOLERANCE


@pytest.mark.parametrize("bounds", [{"fork_bytes": 1}, {"suffix_tokens": 1}, {"suffix_tokens": 100}, {}])
def test_bounds_on_memory_change_the_passes_and_not_the_result(
    model: Any, alone: Callable[[Rows], Any], bounds: dict[str, int]
) -> None:
    """The copies of a state and the ends beside each other are bounded; at least one row goes through."""
    rows, owners = request(11, 130, [(0, [40, 41, 42, 43, 44])])
    backbone = Qwen35(model.model, Settings(execution="shared", **bounds))
    passes = 0

    def check() -> None:
        nonlocal passes
        passes += 1

    reading = backbone.read(rows, owners, check)
    assert np.abs(reading.hidden.numpy() - alone(rows)).max() < TOLERANCE
    one_for_the_state = 1
    assert passes == one_for_the_state + {1: 5, 100: 3}.get(next(iter(bounds.values()), 0), 1)


def test_neighbours_and_padding_do_not_reach_a_row(read: Callable[..., Any], alone: Callable[[Rows], Any]) -> None:
    """A short row beside a longer one is read as it is alone."""
    rows, owners = request(2, 0, [(0, [60, 3, 50, 64]), (0, [1, 2])])
    expected = alone(rows)
    assert np.abs(read(rows, owners, "packed") - expected).max() < TOLERANCE
    order = [3, 1, 0, 2, 5, 4]
    turned = read([rows[index] for index in order], [0] * 6, "packed")
    assert np.abs(turned - expected[order]).max() < TOLERANCE


@pytest.mark.parametrize("execution", ["rows", "packed", "shared", "auto"])
def test_equal_rows_are_equal_to_the_last_bit(model: Any, execution: Execution) -> None:
    """In a packed group they would differ by their neighbours, and a tie between two levels would be broken; they are
    read once, and counted so."""
    rows, _ = request(8, 70, [(3, [40, 5, 61, 9])])
    again = [rows[1], *rows, rows[1], rows[3], rows[1]]
    backbone = Qwen35(model.model, Settings(execution=execution))
    reading = backbone.read(again, [0] * len(again), lambda: None)
    hidden = reading.hidden.numpy()
    assert hidden.shape == (8, 64)
    for place in (2, 5, 7):
        assert np.array_equal(hidden[0], hidden[place])
    assert np.array_equal(hidden[4], hidden[6])
    assert reading.processed <= sum(map(len, rows))
    found = backbone.read([rows[1], rows[0], rows[2], rows[3]], [0] * 4, lambda: None).hidden.numpy()
    assert np.array_equal(hidden[[0, 1, 3, 4]], found), "as if the others had not been there"


def test_the_last_layer_is_computed_where_it_is_read(model: Any) -> None:
    """Its feed-forward sees one position of a row, and none where a state is made. The numbers stay the same."""
    rows, _ = request(5, 0, [(0, [90, 37, 5])])
    backbone = Qwen35(model.model, Settings(execution="packed"))
    seen: list[tuple[int, ...]] = []
    hook = model.model.layers[-1].mlp.register_forward_hook(lambda _, given, out: seen.append(tuple(out.shape)))
    try:
        with torch.inference_mode():
            tokens, last = backbone._upload(rows)
            found = backbone._forward(tokens, last)
            whole = backbone._pass(tokens, 0, None, qwen3_5.ALL)[torch.arange(3), last]
            backbone._extend(backbone._empty_cache(), rows[0], 0)
    finally:
        hook.remove()
    assert seen == [(3, 1, 64), (3, 90, 64)]
    assert float((found - whole).abs().max()) < 1e-6


def test_what_the_padding_holds_does_not_matter(model: Any) -> None:
    """Junk on the right of a row changes nothing, bit for bit: no layer looks to the right."""
    backbone = Qwen35(model.model, Settings(execution="packed"))
    rows, _ = request(4, 0, [(0, [100, 37, 5])])
    with torch.inference_mode():
        tokens, last = backbone._upload(rows)
        plain = backbone._forward(tokens, last)
        for row, members in enumerate(rows):
            tokens[row, len(members) :] = torch.randint(0, 900, (100 - len(members),))
        assert torch.equal(backbone._forward(tokens, last), plain)


def test_tokens_are_counted_without_padding(model: Any) -> None:
    """What was read: all of every row, less what sharing saved."""
    rows, owners = request(6, 130, [(0, [40, 3]), (64, [9, 8])])
    total = sum(map(len, rows))
    plan = prefix.plan(rows, owners)
    assert plan is not None
    for execution, done, processed in (
        ("rows", "rows", total),
        ("packed", "packed", total),
        ("auto", "packed", total),  # far below its thresholds
        ("shared", "shared", total - 3 * 128 - 64),
    ):
        reading = Qwen35(model.model, Settings(execution=execution)).read(rows, owners, lambda: None)  # type: ignore[arg-type]
        assert (reading.execution, reading.processed) == (done, processed)


def test_auto_shares_where_it_is_worth_it_and_counts(model: Any, alone: Callable[[Rows], Any]) -> None:
    """9 rows times 512 tokens are more than the published 4,096."""
    backbone = Qwen35(model.model, Settings(execution="auto"))
    rows, owners = request(7, 520, [(0, [9])] * 10)
    reading = backbone.read(rows, owners, lambda: None)
    assert (reading.execution, reading.processed) == ("shared", 10 * 529 - 9 * 512)
    assert np.abs(reading.hidden.numpy() - alone(rows)).max() < TOLERANCE
    backbone.read(rows[:2], owners[:2], lambda: None)
    assert backbone.statistics() == {
        "shared_requests": 1,
        "auto_independent_requests": 1,
        "saved_tokens": 9 * 512,
    }


def test_shared_runs_rows_alone_where_nothing_is_shared(model: Any) -> None:
    """Forced sharing without a plan."""
    rows, owners = request(8, 10, [(0, [9, 9]), (0, [9])])
    assert Qwen35(model.model, Settings(execution="shared")).read(rows, owners, lambda: None).execution == "rows"


@pytest.mark.parametrize(
    ("execution", "passes"),
    [("rows", 6), ("packed", 2), ("shared", 4)],  # shared: the request's state, a question's, and two of ends
)
def test_a_reading_stops_between_two_passes(model: Any, execution: Execution, passes: int) -> None:
    """`check` is asked before each, and its error passes; what was read before is dropped."""
    rows, owners = request(9, 70, [(0, [5, 6, 7]), (64, [5, 6, 7])])
    backbone = Qwen35(model.model, Settings(execution=execution))
    forwards = 0
    hook = model.model.embed_tokens.register_forward_hook(lambda *_: _count())

    def _count() -> None:
        nonlocal forwards
        forwards += 1

    try:
        for allowed in range(passes + 1):
            forwards, looks = 0, 0

            def check(allowed: int = allowed) -> None:
                nonlocal looks
                looks += 1
                if looks > allowed:
                    raise Abandoned("the call was cancelled")

            if allowed < passes:
                with pytest.raises(Abandoned):
                    backbone.read(rows, owners, check)
            else:
                backbone.read(rows, owners, check)
            assert forwards == allowed
    finally:
        hook.remove()


def test_only_positions_that_are_read_leave_a_pass(folder: Path) -> None:
    """The head is not part of the backbone, so nothing can compute the logits of a sequence."""
    backbone = qwen3_5.load(folder, device="cpu", dtype="float32", settings=Settings())
    assert not any("lm_head" in name for name, _ in backbone._model.named_modules())
    assert backbone.embeddings([5, 3]).shape == (2, 64)
    assert torch.equal(backbone.embeddings([5, 3]), backbone._model.embed_tokens.weight[[5, 3]])
    assert (backbone.hidden_size, backbone.vocabulary) == (64, backbone._model.config.vocab_size)
    assert "auto on cpu" in repr(backbone)
    backbone.close()
    backbone.close()


def test_bfloat16_on_a_cpu_is_an_option(folder: Path, alone: Callable[[Rows], Any]) -> None:
    """Roughly the float32 result; all executions still agree with each other as well as bfloat16 can."""
    rows, owners = request(10, 140, [(0, [30, 20]), (0, [10])])
    expected = alone(rows)
    for execution in qwen3_5.EXECUTIONS:
        backbone = qwen3_5.load(folder, device="cpu", dtype="bfloat16", settings=Settings(execution=execution))  # type: ignore[arg-type]
        hidden = backbone.read(rows, owners, lambda: None).hidden
        assert hidden.dtype == torch.bfloat16
        assert np.abs(hidden.float().numpy() - expected).mean() < 0.1


def test_what_a_machine_does_not_have_is_a_configuration_error(folder: Path, model: Any) -> None:
    """Said at the start, in words."""
    with pytest.raises(ConfigurationError, match="CUDA graphs"):
        Qwen35(model.model, Settings(graphs=True))
    for device in ("warp", "mps", "meta", "cuda:99"):
        with pytest.raises(ConfigurationError, match="device"):
            qwen3_5.load(folder, device=device, dtype="float32", settings=Settings())


def test_kernels_for_cuda_are_refused_on_a_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would call them with CPU tensors."""
    monkeypatch.setattr(loading, "KERNEL_PACKAGES", ("json",))
    with pytest.raises(ConfigurationError, match="json"):
        qwen3_5.load(folder, device="cpu", dtype="float32", settings=Settings())
