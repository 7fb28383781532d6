"""Company changes no answer of the families that read rows of tokens: their rows go through the model together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor_host.executors.base import WarmUpCall
from protocol.errors import Malformed
from protocol.payloads import PromptRequest, RowsRequest

torch = pytest.importorskip("torch", reason="these families need framehost[torch]")

REQUESTS = 300
BOUND = 1e-5
"""Of a value in float32, relative to the largest of its request or to 1."""

VOCABULARY = 250


def _rows(choice: random.Random, labels: int) -> RowsRequest:
    """A random state and random ends; now and then an end comes twice, or nothing is in common."""
    state = choice.choices(range(1, VOCABULARY), k=choice.randint(0, 60))
    ends = [choice.choices(range(1, VOCABULARY), k=choice.randint(1, 12)) for _ in range(choice.randint(1, 5))]
    if choice.random() < 0.2:
        ends.append(ends[0])
    rows = [state + end for end in ends]
    return RowsRequest(
        tokens=np.array([token for row in rows for token in row], np.int32),
        lengths=np.array([len(row) for row in rows], np.int32),
        candidates=np.array([choice.randint(1, labels) for _ in rows], np.int32),
        questions=np.array(sorted(choice.choices(range(3), k=len(rows))), np.int32),
    )


def _prompt(choice: random.Random, labels: int) -> PromptRequest:
    return PromptRequest(np.array(choice.choices(range(1, VOCABULARY), k=choice.randint(1, 90)), np.int32))


def _decider(folder: Path) -> Any:
    from executor_host.executors.decider.executor import DeciderExecutor
    from tests.helpers import tiny_decider

    return DeciderExecutor(str(tiny_decider.write(folder)), {"device": "cpu", "dtype": "float32"})


def _open_jev(folder: Path) -> Any:
    from executor_host.executors.open_jev import merge
    from executor_host.executors.open_jev.executor import OpenJevExecutor
    from tests.helpers import tiny_open_jev

    tiny_open_jev.write_base(folder / "base", seed=5)
    tiny_open_jev.write_lora(folder / "lora", seed=6)
    export = str(folder / "export")
    merge.export(str(folder / "lora"), str(folder / "base"), export, max_length=4096, unreleased=True)
    return OpenJevExecutor(export, {"device": "cpu", "execution": "packed", "unreleased": True})


def _cua_s1(folder: Path) -> Any:
    from executor_host.executors.cua_s1.executor import CuaS1Executor
    from tests.helpers import tiny_cua_s1

    base = tiny_cua_s1.write_base(folder / "base", seed=3)
    tiny_cua_s1.write_adapter(base / "text", base)
    return CuaS1Executor(str(base), {"device": "cpu", "dtype": "float32"})


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[random.Random, int], Any], int]] = {
    "decider": (_decider, _rows, 26),
    "open-jev": (_open_jev, _rows, 1),
    "cua-s1": (_cua_s1, _prompt, 1),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, int]]:
    """A loaded executor, what makes its requests, and how many labels a row may have."""
    make, generate, labels = KINDS[request.param]
    torch.set_num_threads(1)
    executor = make(tmp_path_factory.mktemp(request.param) / "tiny")
    executor.load(lambda fraction, note: None)
    yield executor, generate, labels
    executor.close()


def _value(output: Any) -> Any:
    return output["hidden"] if "hidden" in output else output["logits"]


def test_three_hundred_requests_answer_alone_what_they_answer_in_company(kind: tuple[Any, Any, int]) -> None:
    """In random company of random size, and the winner is the same wherever it leads by more than the bound."""
    executor, generate, labels = kind
    assert executor.max_units > 1
    choice = random.Random(5)
    requests = [generate(choice, labels) for _ in range(REQUESTS)]
    alone = [executor.execute(request, WarmUpCall()) for request in requests]
    order = list(range(REQUESTS))
    choice.shuffle(order)
    while order:
        size = choice.randint(2, 12)
        company, order = order[:size], order[size:]
        outputs = executor.execute_many([requests[at] for at in company], [WarmUpCall()] * len(company))
        for at, output in zip(company, outputs, strict=True):
            expected, found = _value(alone[at]), _value(output)
            assert np.abs(found - expected).max() <= BOUND * max(1.0, np.abs(expected).max())
            assert output["processed"] == alone[at]["processed"]
            for one, other in zip(_questions(alone[at]), _questions(output), strict=True):
                second, first = np.sort(one)[-2:] if len(one) > 1 else (0.0, 0.0)
                if first - second > 2 * BOUND * max(1.0, np.abs(expected).max()):
                    assert one.argmax() == other.argmax()


def _questions(output: Any) -> list[Any]:
    """The values of each row of labels; of a family without them the scores of all rows."""
    if "counts" in output:
        return np.split(output["logits"], np.cumsum(output["counts"])[:-1])
    return [_value(output)]


def test_rows_of_several_requests_are_one_pass(kind: tuple[Any, Any, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four prompts of one length that share nothing: alone four passes, together one."""
    executor, generate, _ = kind
    passes: list[int] = []
    model = executor._model
    inner = model._forward

    def counted(tokens: Any, last: Any) -> Any:
        passes.append(len(tokens))
        return inner(tokens, last)

    monkeypatch.setattr(model, "_forward", counted)
    choice = random.Random(6)
    requests = []
    for _ in range(4):
        tokens = np.array(choice.choices(range(1, VOCABULARY), k=20), np.int32)
        if generate is _prompt:
            requests.append(PromptRequest(tokens))
        else:
            one = np.ones(1, np.int32)
            requests.append(RowsRequest(tokens=tokens, lengths=one * 20, candidates=one, questions=one * 0))
    for request in requests:
        executor.execute(request, WarmUpCall())
    assert passes == [1, 1, 1, 1]
    passes.clear()
    executor.execute_many(requests, [WarmUpCall()] * 4)
    assert passes == [4]


def test_one_that_is_refused_is_refused_alone(kind: tuple[Any, Any, int]) -> None:
    """A token that the model lacks: its neighbours are answered."""
    executor, generate, labels = kind
    choice = random.Random(7)
    good = [generate(choice, labels) for _ in range(3)]
    bad = generate(choice, labels)
    bad.tokens[-1] = 10**6
    outcomes = executor.execute_many([good[0], bad, *good[1:]], [WarmUpCall()] * 4)
    assert isinstance(outcomes[1], Malformed)
    assert all(isinstance(outcomes[at], dict) for at in (0, 2, 3))
