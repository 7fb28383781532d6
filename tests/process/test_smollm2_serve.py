"""A real small chat model, SmolLM2-135M-Instruct as GGUF, fetched and served end to end.

It runs where `FRAMEHOST_SMOLLM2` is set: 93 MB are downloaded once, and loading takes a quarter of a minute at least.
Its decisions are weak, so what is looked at is not what it decides: its tokenizer, its chat template and the reading
of its logits are real.
"""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process import harness
from tests.process.harness import ROOT, running

MISSING = [name for name in ("torch", "transformers", "gguf", "accelerate") if not importlib.util.find_spec(name)]

QUESTIONS: dict[str, Any] = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "a charge, an invoice or a refund", "technical": "an error or a crash"},
    },
    "refund": {"type": "noul", "instructions": "Does the customer want the money back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", "some", "much"]},
}


@pytest.mark.skipif("FRAMEHOST_SMOLLM2" not in os.environ, reason="FRAMEHOST_SMOLLM2 is not set")
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.timeout(900)
def test_a_real_chat_model_answers_every_type_of_question(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions that are not uniform, the same bytes for the same request, and no question changes another."""
    command = [sys.executable, "-m", "executor_host.supervision.entry", "fetch", "smollm2"]
    fetched = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert fetched.returncode == 0, fetched.stderr
    assert fetched.stdout.splitlines()[1] == "framehost serve --model smollm2=transformers:smollm2"
    monkeypatch.setattr(harness, "GUARD_S", 300.0)
    with running(runtime, "smollm2=transformers:smollm2", environment={"OMP_NUM_THREADS": "1"}) as server:
        body = {"state": "I was charged twice and want my money back!", "questions": QUESTIONS}
        answer = server.post(body)
        assert answer.status == 200, answer
        answers = answer.json["answers"]
        assert list(answers) == list(QUESTIONS)
        for name in ("team", "harm"):
            probabilities = answers[name]["probabilities"].values()
            assert math.fsum(probabilities) == pytest.approx(1.0, abs=1e-12)
            assert max(probabilities) - min(probabilities) > 0.01
        assert 0.0 < answers["refund"]["noul"] < 1.0
        assert answers["refund"]["noul"] != pytest.approx(0.5, abs=1e-3)
        assert server.post(body).body == answer.body
        alone = server.post({**body, "questions": {"refund": QUESTIONS["refund"]}}).json["answers"]["refund"]["noul"]
        assert alone == pytest.approx(answers["refund"]["noul"], abs=1e-5)
        assert server.stop() == 0
