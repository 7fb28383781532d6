"""Company changes no answer: the rows of a batch are read in one pass, and each logit is what it is alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from executor_host.errors import NonFinite
from executor_host.executors.base import WarmUpCall
from executor_host.executors.laya.executor import LayaExecutor
from frontend.families.laya.processor import LayaProcessor
from frontend.families.laya.profile import LayaNative
from protocol.errors import Malformed
from protocol.payloads import MarkedRowsRequest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch", reason="the laya family needs framehost[torch]")

BOUND = 1e-5
"""Of a logit in float32, relative to the largest of its request or to 1."""

REQUESTS = 300
WORDS = ("customer", "order", "refund", "charge", "error", "broken", "cannot", "money back", "twice", "much", "none")


@pytest.fixture(scope="module")
def halves(whole: Path) -> Iterator[tuple[LayaExecutor, LayaNative]]:
    """The executor, and the front's half of the same checkpoint."""
    torch.set_num_threads(1)
    executor = LayaExecutor(str(whole), {"device": "cpu", "truncate": True})
    facts = executor.load(lambda fraction, note: None)
    executor.warm_up()
    yield executor, LayaNative(LayaProcessor(facts, {}, str(whole)))
    executor.close()


def generated(profile: LayaNative, count: int, seed: int) -> list[MarkedRowsRequest]:
    """Requests of random lengths, types, numbers of questions and options."""
    choice = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(choice.choices(WORDS, k=choice.randint(1, most)))

    def question() -> dict[str, Any]:
        kind = choice.choice(["choice", "noul", "score"])
        asked: dict[str, Any] = {"type": kind, "instructions": text(8)}
        if kind == "choice":
            asked["criteria"] = {f"{number} {text(2)}": text(4) for number in range(choice.randint(2, 6))}
        elif kind == "score":
            asked["criteria"] = [f"{number} {text(2)}" for number in range(choice.randint(2, 5))]
        return asked

    made = []
    for _ in range(count):
        document = {"state": text(60), "questions": {f"q{at}": question() for at in range(choice.randint(1, 3))}}
        (payload,) = profile.prepare(json.dumps(document).encode()).units
        assert isinstance(payload, MarkedRowsRequest)
        made.append(payload)
    return made


def test_three_hundred_requests_answer_alone_what_they_answer_in_company(
    halves: tuple[LayaExecutor, LayaNative],
) -> None:
    """In random company of random size; logits and actions, whatever the longest row of the pass is."""
    executor, profile = halves
    requests = generated(profile, REQUESTS, seed=13)
    alone = [executor.execute(request, WarmUpCall()) for request in requests]
    choice = random.Random(14)
    order = list(range(REQUESTS))
    choice.shuffle(order)
    while order:
        size = choice.randint(2, 12)
        company, order = order[:size], order[size:]
        outputs = executor.execute_many([requests[at] for at in company], [WarmUpCall()] * len(company))
        for at, output in zip(company, outputs, strict=True):
            assert isinstance(output, dict)
            assert output["counts"].tolist() == alone[at]["counts"].tolist()
            assert output["processed"] == alone[at]["processed"]
            for name in ("logits", "action"):
                scale = max(1.0, float(np.abs(alone[at][name]).max()))
                assert np.abs(output[name] - alone[at][name]).max() <= BOUND * scale
            start = 0
            for count in output["counts"].tolist():
                own, ours = alone[at]["logits"][start : start + count], output["logits"][start : start + count]
                first, second = np.sort(own)[-1:-3:-1]
                if first - second > 2 * BOUND * scale:
                    assert ours.argmax() == own.argmax()
                start += count


def test_what_is_wrong_with_one_is_its_own(
    halves: tuple[LayaExecutor, LayaNative], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for this model, or not finite: the others have their answers."""
    executor, profile = halves
    good, bad, blank = generated(profile, 3, seed=5)
    bad = MarkedRowsRequest.from_wire({**bad.to_wire(), "kinds": np.full_like(bad.kinds, 99)})
    real = executor._model.read  # type: ignore[union-attr]

    def read(*arrays: Any) -> Any:
        logits, action = real(*arrays)
        logits[good.rows :] = np.nan
        return logits, action

    monkeypatch.setattr(executor._model, "read", read)
    outcomes = executor.execute_many([good, bad, blank], [WarmUpCall()] * 3)
    assert [type(outcome) for outcome in outcomes] == [dict, Malformed, NonFinite]
