"""The field's suites against the embedded model and a tiny Decider: contracts that hold, and batches that do not leak.

The conformance suite is run against the embedded model in `tests/process/test_conformance.py`, and with keys in
`test_access_keys.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.harness import GUARD_S, Framehost

CONTRACT = {
    "version": "0.1",
    "baseline_model": "sparrow",
    "cases": [
        {
            "id": "refund",
            "state": "I was charged twice for my order and want my money back",
            "questions": {
                "team": {
                    "type": "choice",
                    "instructions": "Which team answers?",
                    "criteria": {"billing": "a charge, an invoice or a refund", "bug": "something is broken"},
                },
                "refund": {
                    "type": "noul",
                    "instructions": "Does the customer want a refund?",
                    "criteria": {"true": "the customer wants money back", "false": "the customer asks how it works"},
                },
                "harm": {"type": "score", "instructions": "How large is it?", "criteria": ["small", "large"]},
            },
            "expect": {"refund": {"noul": 0.5, "noul_tolerance": 1.0}},
        }
    ],
}


def run(server: Framehost, tool: str, *arguments: str | Path) -> str:
    """The output of a suite's command, which has to succeed."""
    environment = {**os.environ, "TYPESAFE_API_KEY": "any", "TYPESAFE_BASE_URL": server.url}
    command = [Path(sys.executable).with_name(tool), *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * GUARD_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", ["server", "decider"])
def test_jevcheck_finds_the_same_answers_twice(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    """The strictest reader of numbers (sums within 1e-6) records a contract and finds it kept; an alias is resolved."""
    server: Framehost = request.getfixturevalue(name)
    model = next(iter(server.get("/health").json["models"]))
    contract, recorded = tmp_path / "contract.json", tmp_path / "recorded.json"
    contract.write_text(json.dumps({**CONTRACT, "baseline_model": model}))
    run(server, "jevcheck", "record", contract, "--out", recorded)
    run(server, "jevcheck", "compare", contract, "--from", recorded, "--to", model)
    alias = ("--baseline-model", "jev-latest", "--allow-unpinned")
    run(server, "jevcheck", "record", contract, "--out", tmp_path / "alias.json", *alias)


@pytest.mark.parametrize("name", ["server", "decider"])
def test_jevbench_finds_that_questions_do_not_see_each_other(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """Isolation is 100: batching, order, duplicates and ids change nothing. The other relations are the model's."""
    server: Framehost = request.getfixturevalue(name)
    endpoint = ("--url", f"{server.url}/v1/systemone", "--model", "jev-latest")
    run(server, "jevbench", "check", *endpoint)
    report = tmp_path / "report.json"
    suite = ("--suite", "examples", "--concurrency", "8", "--no-cache")
    run(server, "jevbench", "eval", *endpoint, *suite, "--out", report)
    assert json.loads(report.read_text())["scores"]["groups"]["BAT.isolation"] == 1.0


def test_jevcompat_finds_nothing_in_a_decider(decider: Framehost, tmp_path: Path) -> None:
    """Every MUST and every SHOULD that applies to a server without keys."""
    report = tmp_path / "report.json"
    run(decider, "jevcompat", "test", decider.url, "--json", report)
    results = json.loads(report.read_text())["results"]
    assert [entry["id"] for entry in results if entry["status"] not in ("pass", "skip")] == []
