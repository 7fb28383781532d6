"""Company changes no answer: states of a batch are read in one pass, and each cosine is what it is alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from executor_host.errors import Abandoned, ExecutionFailed, NonFinite  # noqa: E402
from executor_host.executors.base import WarmUpCall  # noqa: E402
from executor_host.executors.embedding.executor import EmbeddingExecutor  # noqa: E402
from executor_host.host.shared_state import SharedState  # noqa: E402
from executor_host.host.units import Units  # noqa: E402
from protocol import families  # noqa: E402
from protocol.errors import Malformed  # noqa: E402
from protocol.frames import Envelope  # noqa: E402
from protocol.messages import Execute, Failure, Result  # noqa: E402
from protocol.payloads import RowsRequest, TextRequest  # noqa: E402
from tests.helpers import tiny_embedding  # noqa: E402
from tests.helpers.calls import FakeCall  # noqa: E402

BOUND = 1e-5
"""Of a cosine in float32, whatever is read beside its state."""

REQUESTS = 300


@pytest.fixture(scope="module", params=["numpy", "torch"])
def executor(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[EmbeddingExecutor]:
    """In numpy and on torch. Without a cache: everything is read again and again."""
    torch.set_num_threads(1)
    folder = tiny_embedding.write(tmp_path_factory.mktemp("company") / "tiny")
    made = EmbeddingExecutor(str(folder), {"cache_mb": 0, "backend": request.param})
    made.load(lambda fraction, note: None)
    made.warm_up()
    yield made
    made.close()


def generated(count: int, seed: int) -> list[RowsRequest]:
    """Requests of random lengths, with one question or several; every seventh has two texts that are nearly a tie."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        groups = [1, *random.integers(1, 5, random.integers(1, 4))]
        rows = [random.integers(5, 60, random.integers(1, 24)) for _ in range(sum(groups))]
        if number % 7 == 0:
            rows[-1] = rows[1].copy()
            rows[-1][-1] += 1
        made.append(
            RowsRequest(
                tokens=np.concatenate(rows).astype(np.int32),
                lengths=np.array([len(row) for row in rows], np.int32),
                candidates=np.ones(len(rows), np.int32),
                questions=np.repeat(np.arange(len(groups)), groups).astype(np.int32),
            )
        )
    return made


def together(executor: EmbeddingExecutor, requests: Sequence[object]) -> Sequence[Any]:
    return executor.execute_many(requests, [WarmUpCall()] * len(requests))


def test_three_hundred_requests_answer_alone_what_they_answer_in_company(executor: EmbeddingExecutor) -> None:
    """In random company of random size. Where one text leads by more than the bound, it leads in any company."""
    requests = generated(REQUESTS, seed=13)
    alone = [executor.execute(request, WarmUpCall())["cosines"] for request in requests]
    random = np.random.default_rng(14)
    order = random.permutation(REQUESTS)
    compared, moved = 0, 0.0
    while len(order):
        company, order = np.split(order, [int(random.integers(2, executor.max_units + 1))])
        for index, output in zip(company, together(executor, [requests[at] for at in company]), strict=True):
            difference = np.abs(output["cosines"] - alone[index])
            assert difference.max() <= BOUND
            first, second = np.sort(np.append(alone[index], -2.0))[-1:-3:-1]
            if first - second > 2 * BOUND:
                assert output["cosines"].argmax() == alone[index].argmax()
                compared += 1
            moved = max(moved, float(difference.max()))
    assert compared > REQUESTS // 2
    assert moved > 0.0, "company is read in one pass, which shows in the last bits"


def test_equal_states_of_one_batch_are_read_once(executor: EmbeddingExecutor) -> None:
    """They differ in what is asked; the tokens are counted for the first."""
    request, other = generated(2, seed=3)
    state = request.tokens[: request.lengths[0]]
    same = RowsRequest(
        tokens=np.concatenate([state, other.tokens[other.lengths[0] :]]),
        lengths=np.concatenate([request.lengths[:1], other.lengths[1:]]),
        candidates=other.candidates,
        questions=other.questions,
    )
    third = generated(1, seed=4)[0]
    first, second, _ = together(executor, [request, same, third])
    assert first["processed"] == len(request.tokens)
    assert second["processed"] == len(same.tokens) - len(state)
    assert second["cosines"] == pytest.approx(executor.execute(same, WarmUpCall())["cosines"], abs=BOUND)


def test_what_was_read_in_company_is_not_kept(tmp_path: Path) -> None:
    """So an answer out of the cache has the very bits of one that was read for it, alone."""
    requests = generated(6, seed=5)
    executors = []
    for name in ("warm", "cold"):
        made = EmbeddingExecutor(str(tiny_embedding.write(tmp_path / name)), {"cache_mb": 8})
        made.load(lambda fraction, note: None)
        executors.append(made)
    warm, cold = executors
    together(warm, requests)
    for request in requests:
        once, again = (warm.execute(request, WarmUpCall())["cosines"] for _ in range(2))
        assert once.tobytes() == again.tobytes() == cold.execute(request, WarmUpCall())["cosines"].tobytes()
    for request, kept in zip(requests, together(warm, requests), strict=True):
        assert kept["processed"] == 0
        assert kept["cosines"].tobytes() == cold.execute(request, WarmUpCall())["cosines"].tobytes()


def test_what_is_wrong_with_one_is_its_own(executor: EmbeddingExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for this model, not of this family, given up, not finite: the others have their answers."""
    good, bad, left, blank = generated(4, seed=6)
    bad.tokens[-1] = 10_000
    real = executor._model.read  # type: ignore[union-attr]
    marked = blank.tokens[: blank.lengths[0]]

    def read(rows: Sequence[Any]) -> Any:
        vectors = real(rows)
        for row, vector in zip(rows, vectors, strict=True):
            if np.array_equal(row, marked):
                vector[:] = np.nan
        return vectors

    monkeypatch.setattr(executor._model, "read", read)
    calls: list[Any] = [WarmUpCall(), WarmUpCall(), WarmUpCall(), FakeCall(looks=0), WarmUpCall()]
    outcomes = executor.execute_many([good, bad, TextRequest(b"{}"), left, blank], calls)
    assert [type(outcome) for outcome in outcomes] == [dict, Malformed, ExecutionFailed, Abandoned, NonFinite]
    assert isinstance(outcomes[0], dict)
    assert outcomes[0]["cosines"] == pytest.approx(executor.execute(good, WarmUpCall())["cosines"], abs=BOUND)


def test_one_that_makes_the_pass_raise_fails_alone_among_thirty_one(
    executor: EmbeddingExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is executed again in halves until the culprit stands alone; the others answer within the bound."""
    requests = generated(32, seed=7)
    poison = requests[19].tokens[: requests[19].lengths[0]]
    real = executor._model.read  # type: ignore[union-attr]

    def read(rows: Sequence[Any]) -> Any:
        if any(np.array_equal(row, poison) for row in rows):
            raise ZeroDivisionError("a bug that only this text finds")
        return real(rows)

    monkeypatch.setattr(executor._model, "read", read)
    units = Units(families.find("embedding"), executor, SharedState("1-cc"))
    parts = [Envelope("1-cc", at + 1, None, Execute(payload=request.to_wire())) for at, request in enumerate(requests)]
    answers = {call: message for answered in units.execute_batch(b"1-aa", parts) for call, message in answered}
    assert sorted(answers) == list(range(1, 33))
    failed = answers.pop(20)
    assert isinstance(failed, Failure)
    assert (failed.code, failed.fatal) == ("executor_error", False)
    assert "executed 6 times" in failed.message
    monkeypatch.undo()
    for call, message in answers.items():
        assert isinstance(message, Result)
        alone = executor.execute(requests[call - 1], WarmUpCall())["cosines"]
        assert message.outputs["cosines"] == pytest.approx(alone, abs=BOUND)
