"""With a released checkpoint, when FRAMEHOST_CLEF names its folder. The model is only loaded where there is a GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.calls import FakeCall
from tests.unit.clef.helpers import GOLDEN, encoded, request

FOLDER = os.environ.get("FRAMEHOST_CLEF", "")

pytestmark = pytest.mark.skipif(not FOLDER, reason="FRAMEHOST_CLEF does not name a released checkpoint")

TOLERANCE = 0.02
"""Of a probability, between the published bfloat16 run on a CPU and another device or dtype."""


@pytest.mark.parametrize("vector", GOLDEN["encode"], ids=lambda vector: vector["name"])
def test_published_tokens(vector: dict[str, Any]) -> None:
    """Every id and every span with the released tokenizer."""
    from executor_host import checkpoints

    encoder = checkpoints.tokenizer(Path(FOLDER, "tokenizer.json"))
    made = encoded(
        vector["request"],
        lambda texts: [each.ids for each in encoder.encode_batch_fast(list(texts), add_special_tokens=False)],
    )
    assert made.tokens.tolist() == vector["input_ids"]
    assert [list(field.question) for field in made.fields] == [each["question_span"] for each in vector["questions"]]


@pytest.mark.timeout(3600)
def test_published_decisions() -> None:
    """Of clef-flash: the tokens and, within the tolerance, every probability of the published run. Six of its ten
    records: the requests of the others are made by a program that was not published with the numbers."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("the released models are loaded where there is a GPU")
    from executor_host.executors.clef.executor import ClefExecutor
    from frontend.families.logits import softmax32

    executor = ClefExecutor(FOLDER, {})
    facts = executor.load(lambda fraction, note: None)
    executor.warm_up()
    if facts["name"] != "clef-flash":
        pytest.skip("the published run is one of clef-flash")
    for vector in GOLDEN["end_to_end"]:
        asked = vector["request"]
        ids = sorted(asked["questions"])  # as the published run asked
        # Its probabilities are in the model's order: a choice's options sorted.
        questions = {}
        for name in ids:
            fields = dict(asked["questions"][name])
            if fields["type"] == "choice":
                fields["criteria"] = dict(sorted(fields["criteria"].items()))
            questions[name] = fields
        output = executor.execute(request(questions, asked["state"]), FakeCall())
        assert output["tokens"] == vector["tokens"], vector["id"]
        start = 0
        for name, count in zip(ids, output["counts"].tolist(), strict=True):
            found = softmax32(output["logits"][start : start + count].tolist(), 1.0)
            assert found == pytest.approx(vector["p"][name], abs=TOLERANCE), (vector["id"], name)
            start += count
    executor.close()
