"""The embedding family's half in the host, on a tiny random encoder in the published layout, on the CPU in float32."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.errors import Abandoned, ConfigurationError, ExecutionFailed, FatalExecutionError, NonFinite  # noqa: E402
from executor_host.executors.embedding import executor as embedding  # noqa: E402
from executor_host.executors.embedding.cache import ENTRY_BYTES, EmbeddingCache  # noqa: E402
from executor_host.executors.embedding.executor import EmbeddingExecutor  # noqa: E402
from frontend.families.embedding.processor import EmbeddingProcessor  # noqa: E402
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Score  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import decode, encode  # noqa: E402
from protocol.messages import Lane, Ready, Result  # noqa: E402
from protocol.payloads import RowsRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_embedding  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402

TOLERANCE = 1e-5
SIZE = tiny_embedding.SIZES["hidden_size"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole checkpoint. Read only."""
    return tiny_embedding.write(tmp_path_factory.mktemp("embedding") / "tiny")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The same, to be spoiled."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


BACKEND = {"backend": "auto"}


@pytest.fixture(scope="module", params=["numpy", "torch"], autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test here runs with both: the promises are the family's."""
    BACKEND["backend"] = request.param
    yield request.param
    BACKEND["backend"] = "auto"


def start(folder: Path, **options: object) -> EmbeddingExecutor:
    executor = EmbeddingExecutor(str(folder), {**BACKEND, **options})
    executor.load(lambda fraction, note: None)
    executor.warm_up()
    return executor


@pytest.fixture(scope="module")
def executor(folder: Path, backend: str) -> EmbeddingExecutor:
    """With its default options."""
    return start(folder)


def asked(*groups: list[list[int]]) -> RowsRequest:
    """The rows of the state and of each question."""
    rows = [row for group in groups for row in group]
    return RowsRequest(
        tokens=np.array([token for row in rows for token in row], np.int32),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.ones(len(rows), np.int32),
        questions=np.array([index for index, group in enumerate(groups) for _ in group], np.int32),
    )


def run(executor: EmbeddingExecutor, *groups: list[list[int]], call: FakeCall | None = None) -> dict[str, Any]:
    """As it arrives and leaves: through the wire, both ways."""
    payload = RowsRequest.from_wire(asked(*groups).to_wire())
    output = executor.execute(payload, call or FakeCall())
    frames = encode(Result(outputs=output, elapsed_us=1), incarnation="1-00000000", call=1)
    message = decode(frames, lane=Lane.DATA, incarnation="1-00000000").message
    assert isinstance(message, Result)
    return message.outputs


def reference(folder: Path, rows: list[list[int]], pooling: str = "mean") -> NDArray[np.float32]:
    """The vectors by transformers and the formula of the model's card, everything in one padded batch."""
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    with torch.no_grad():
        hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
    if pooling == "cls":
        pooled = hidden[:, 0]
    else:
        wide = mask[..., None].expand(hidden.shape).float()
        pooled = torch.sum(hidden * wide, 1) / torch.clamp(wide.sum(1), min=1e-9)
    found: NDArray[np.float32] = torch.nn.functional.normalize(pooled, dim=1).numpy()
    return found


STATE = [[2, 60, 61, 62, 63, 64, 65, 3]]
OPTIONS = [[2, 70, 71, 3], [2, 72, 73, 74, 75, 76, 77, 78, 79, 80, 3], [2, 60, 61, 62, 3], [2, 3]]
LEVELS = [[2, 81, 3], [2, 82, 83, 84, 3]]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_cosines_are_those_of_transformers(copy: Path, pooling: str) -> None:
    """Within 1e-5, with the pooling that the folder says, and they differ by far more than that."""
    flags = {**tiny_embedding.POOLING, "pooling_mode_mean_tokens": pooling == "mean"}
    flags["pooling_mode_cls_token"] = pooling == "cls"
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    executor = start(copy)
    vectors = reference(copy, [*STATE, *OPTIONS, *LEVELS], pooling)
    expected = vectors[1:] @ vectors[0]
    output = run(executor, STATE, OPTIONS, LEVELS)
    assert output["cosines"].dtype == np.float32
    assert output["cosines"] == pytest.approx(expected, abs=TOLERANCE)
    assert np.ptp(expected) > 0.1
    assert output["processed"] == sum(map(len, (*STATE, *OPTIONS, *LEVELS)))


def test_the_newer_name_of_a_pooling(copy: Path) -> None:
    """A mode instead of a flag for each."""
    before = start(copy)
    (copy / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 32, "pooling_mode": "mean"}')
    assert start(copy).execute(asked(STATE, OPTIONS), FakeCall())["cosines"].tobytes() == (
        before.execute(asked(STATE, OPTIONS), FakeCall())["cosines"].tobytes()
    )


def test_what_is_cached_gives_the_same_bytes(folder: Path, executor: EmbeddingExecutor) -> None:
    """As what is not, and as an executor that keeps nothing; what was read once is not read again."""
    fresh = start(folder)
    first = run(fresh, STATE, OPTIONS, LEVELS)
    again = run(fresh, STATE, OPTIONS, LEVELS)
    assert again["processed"] == 0
    assert again["statistics"]["cache_hits"] == 3
    without = start(folder, cache_mb=0)
    run(without, STATE, OPTIONS, LEVELS)
    never = run(without, STATE, OPTIONS, LEVELS)
    assert never["processed"] == first["processed"] > 0
    assert never["statistics"]["cache_bytes"] == never["statistics"]["cache_entries"] == 0
    assert first["cosines"].tobytes() == again["cosines"].tobytes() == never["cosines"].tobytes()


def test_questions_never_influence_one_another(folder: Path) -> None:
    """To the byte: alone, with others, in another order, asked twice in one request, cached or not."""
    groups = [OPTIONS, LEVELS, [[2, 60, 3]], [[2, 70 + n, 71, 72, 3] for n in range(9)]]
    alone = [run(start(folder, cache_mb=0), STATE, group)["cosines"] for group in groups]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [1, 1, 0, 1], [2, 3, 3]):
        for options in ({}, {"cache_mb": 0}):
            together = run(start(folder, **options), STATE, *(groups[index] for index in order))["cosines"]
            assert together.tobytes() == b"".join(alone[index].tobytes() for index in order)


def test_a_state_is_the_same_whoever_asks(folder: Path) -> None:
    """Requests before it change nothing."""
    executor = start(folder)
    for n in range(20):
        run(executor, [[2, *range(60, 62 + n), 3]], OPTIONS)
    assert run(executor, STATE, OPTIONS)["cosines"].tobytes() == run(start(folder), STATE, OPTIONS)["cosines"].tobytes()


def test_many_texts_go_through_the_model_in_a_few_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question's texts by their length, and never more of them at once than the bounds say."""
    executor = start(folder)
    seen: list[tuple[int, int]] = []
    passed = executor._model.read

    def watched(rows: Any) -> Any:
        seen.append((len(rows), len(rows) * max(map(len, rows))))
        return passed(rows)

    monkeypatch.setattr(executor._model, "read", watched)
    group = [[2, *[60 + n % 40] * (1 + n % 22), 3] for n in range(255)]
    vectors = reference(folder, [*STATE, *group])
    output = run(executor, STATE, group)
    assert output["cosines"] == pytest.approx(vectors[1:] @ vectors[0], abs=TOLERANCE)
    assert seen[0] == (1, len(STATE[0]))
    assert 4 <= len(seen) - 1 <= 16
    assert sum(rows for rows, _ in seen) == 256
    assert max(rows for rows, _ in seen) <= embedding.PASS_ROWS
    assert max(tokens for _, tokens in seen) <= executor._model.pass_tokens


def test_the_cache_keeps_its_bound(folder: Path) -> None:
    """In bytes, whatever is asked; the least recently used goes first, and what is too large alone is not kept."""
    vector = np.ones((1, SIZE), np.float32)
    entry = vector.nbytes + ENTRY_BYTES
    cache = EmbeddingCache(3 * entry + 1)
    keys = [cache.key([np.array([n], np.int32)]) for n in range(5)]
    for key in keys[:3]:
        cache.put(key, vector)
    assert cache.get(keys[0]) is not None
    cache.put(keys[3], vector)
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True, False]
    cache.put(keys[4], np.ones((100, SIZE), np.float32))
    assert cache.get(keys[4]) is None
    cache.put(keys[0], vector)
    assert cache.statistics()["cache_bytes"] == 3 * entry <= cache.max_bytes
    executor = start(folder, cache_mb=1)
    for n in range(40):
        output = run(executor, STATE, [[2, 60 + n % 50, 60 + m % 50, 60 + m // 50, 3] for m in range(255)])
        statistics = output["statistics"]
        assert 0 < statistics["cache_bytes"] <= statistics["cache_max_bytes"] == 1 << 20
    assert run(executor, STATE, OPTIONS)["processed"] == sum(map(len, OPTIONS)), "the state, always used, has stayed"


def test_where_a_text_ends_is_part_of_what_is_cached() -> None:
    """Two texts are not one text of the same tokens, nor two others."""
    one, two, three = (np.array(tokens, np.int32) for tokens in ([5], [6], [5, 6]))
    keys = [EmbeddingCache.key(rows) for rows in ([one, two], [three], [two, one], [one], [one, two, one])]
    assert len(set(keys)) == len(keys)
    assert EmbeddingCache.key([three[:1], three[1:]]) == keys[0]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (lambda: asked([[2, 10_000, 3]]), "size of this model's vocabulary"),
        (lambda: asked([[2, 3], [2, 3]], OPTIONS), "the state, in one row"),
        (lambda: asked([[2] * (tiny_embedding.MAX_SEQ_LENGTH + 1)]), "a row has at most 24 tokens"),
        (lambda: asked([[2] * 24], [[2] * 24] * 2800), "a request has at most 65536 tokens"),
    ],
    ids=["vocabulary", "two states", "long", "many"],
)
def test_what_this_model_cannot_read_is_malformed(
    executor: EmbeddingExecutor, payload: Callable[[], RowsRequest], words: str
) -> None:
    """The front has checked it; what is checked is that it did."""
    with pytest.raises(Malformed, match=words):
        executor.execute(payload(), FakeCall())


def test_another_payload_is_not_executed(executor: EmbeddingExecutor) -> None:
    """Nor rows that choose among more than one candidate."""
    with pytest.raises(ExecutionFailed):
        executor.execute(TextRequest(b"{}"), FakeCall())
    request = asked(STATE, OPTIONS)
    many = RowsRequest(request.tokens, request.lengths, request.candidates + 1, request.questions)
    with pytest.raises(Malformed, match="one text"):
        executor.execute(many, FakeCall())


def test_a_state_alone_is_a_request(executor: EmbeddingExecutor) -> None:
    """Where every question has one option."""
    assert run(executor, STATE)["cosines"].shape == (0,)


def test_an_abandoned_call_ends_between_passes(folder: Path) -> None:
    """Before the first, and before any other; nothing half read is kept, and the next call is answered."""
    executor = start(folder, cache_mb=1)
    expected = run(start(folder), STATE, OPTIONS, LEVELS)
    for looks in range(3):
        with pytest.raises(Abandoned):
            run(start(folder), STATE, OPTIONS, LEVELS, call=FakeCall(looks))
    with pytest.raises(Abandoned):
        run(executor, STATE, OPTIONS, call=FakeCall(remaining_ms=0))
    assert run(executor, STATE, OPTIONS, LEVELS)["cosines"].tobytes() == expected["cosines"].tobytes()


def test_vectors_that_are_none_are_non_finite(executor: EmbeddingExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN, infinite or zero: never an answer, never kept, and the next call is answered."""
    rows = [[2, 90, 91, 3]]
    for value in (np.nan, np.inf, 0.0):
        with monkeypatch.context() as patched:
            spoiled = np.full((len(rows), SIZE), value, np.float32)
            patched.setattr(executor._model, "read", lambda rows, spoiled=spoiled: spoiled)
            with pytest.raises(NonFinite):
                run(executor, rows, OPTIONS)
    assert np.isfinite(run(executor, rows, OPTIONS)["cosines"]).all()


def test_no_memory_left_is_fatal(executor: EmbeddingExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host retires; any other error ends the call alone."""
    for error, raised in ((MemoryError(), FatalExecutionError), (RuntimeError("a bug"), RuntimeError)):

        def fail(rows: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(executor._model, "read", fail)
            with pytest.raises(raised):
                run(executor, [[2, 92, 3]])


def test_the_facts_can_be_announced(folder: Path) -> None:
    """They travel in READY, and name what the answers depend on."""
    facts = EmbeddingExecutor(str(folder), {"dtype": "bfloat16"}).load(lambda fraction, note: None)
    frames = encode(Ready(address="ipc:///x", facts=dict(facts)), incarnation="1-00000000")
    message = decode(frames, lane=Lane.CONTROL, incarnation="1-00000000").message
    assert isinstance(message, Ready)
    assert message.facts == facts
    assert str(facts["identity"]).endswith("/bfloat16@cpu/torch/mean/max_tokens:24")
    assert facts["limits"] == {"text_tokens": 24, "tokens": 65_536, "cache_bytes": 64 << 20}
    parameters = facts["parameters"]
    assert isinstance(parameters, int)
    assert parameters > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"what": 1}, "no option 'what'"),
        ({"device": "mps"}, "auto, cpu, cuda or cuda:N"),
        ({"device": "cuda:99"}, "there is no device"),
        ({"dtype": "int8"}, "'dtype' is 'int8'"),
        ({"max_tokens": 0}, "'max_tokens' is 0"),
        ({"max_tokens": 40_000}, "'max_tokens' is 40000"),
        ({"cache_mb": -1}, "'cache_mb' is -1"),
        ({"max_tokens": 65, "backend": "torch"}, r"failed: .*\(with texts of 65 tokens\)"),
        ({"max_tokens": 65, "backend": "numpy"}, "places for 64 tokens, and texts of 65"),
        ({"backend": "numpy", "dtype": "bfloat16"}, "the backend numpy computes on the cpu in float32"),
        ({"backend": "numpy", "device": "cuda"}, "the backend numpy computes on the cpu in float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value),
)
def test_options_that_cannot_be(folder: Path, options: dict[str, object], words: str) -> None:
    """Refused before a request, down to more tokens than the model has places for."""
    with pytest.raises(ConfigurationError, match=words):
        start(folder, **{"backend": "auto", **options})


def without(folder: Path, prefix: str) -> None:
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    save_file(
        {name: value for name, value in load_file(file).items() if not name.startswith(prefix)},
        file,
        metadata={"format": "pt"},
    )


def test_weights_that_are_missing_are_not_made_up(copy: Path) -> None:
    """A library fills them with random numbers; only the pooling layer, which nobody asks, may be missing."""
    expected = run(start(copy), STATE, OPTIONS)["cosines"].tobytes()
    without(copy, "pooler.")
    assert run(start(copy), STATE, OPTIONS)["cosines"].tobytes() == expected
    without(copy, "encoder.layer.1.attention")
    with pytest.raises(ConfigurationError, match=r"encoder\.layer\.1\.attention.* is missing"):
        start(copy)


def test_both_halves_agree(folder: Path) -> None:
    """A request through the processor, the host and back: the answer with the largest cosine, the same tokens."""
    executor = EmbeddingExecutor(str(folder), {})
    facts = executor.load(lambda fraction, note: None)
    processor = EmbeddingProcessor(facts, {}, str(folder))
    questions: tuple[Question, ...] = (
        Choice("team", None, (("billing", "a charge"), ("bug", "an error"))),
        Noul("refund", "the customer asks for the money back", None),
        Score("harm", None, ("small", "medium", "large")),
    )
    prepared = processor.prepare(DecisionRequest(None, "the customer was charged twice", questions))
    (payload,) = prepared.units
    assert isinstance(payload, RowsRequest)
    output = executor.execute(payload, FakeCall())
    decision = processor.finish(prepared, [output])
    answers: dict[str, Any] = dict(decision.answers)
    assert answers["team"].choice == ("billing", "bug")[int(np.argmax(output["cosines"][:2]))]
    assert decision.input_tokens == output["processed"]
    executor.close()
    executor.close()
    with pytest.raises(ExecutionFailed):
        executor.execute(payload, FakeCall())
