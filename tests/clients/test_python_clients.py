"""Every Python client that can be installed beside the tests: an answer of each kind, the listing, faults as it knows
them, and a refusal that it waits out.

Clients that need an environment of their own are in `tests/clients/extra`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import typesafe_sdk as typesafe
from google import genai
from google.genai import _interactions_errors as genai_errors

from tests.process.harness import Framehost, configuration, running

STATE = "I was charged twice for my order and want my money back"
TEAM = {"billing": "a charge, an invoice or a refund", "bug": "something is broken"}
MANY = {f"option {number}": f"the description of option {number}" for number in range(60)}
"""Makes a body above 1,024 bytes, which the official client compresses with zstd where it can."""


def typesafe_client(url: str) -> typesafe.TypeSafeClient:
    return typesafe.TypeSafeClient(api_key="any", base_url=url)


def openai_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(api_key="any", base_url=f"{url}/v1")


def gemini_client(url: str) -> genai.Client:
    return genai.Client(api_key="any", http_options={"base_url": url})


def test_typesafe_sdk(server: Framehost) -> None:
    """The official client parses an answer of each type, with its request id, and every fault is its own class."""
    questions = {
        "team": typesafe.Choice(instructions="Which team answers?", criteria=TEAM),
        "refund": typesafe.Noul(instructions="Is a refund wanted?", criteria={"true": "money back"}),
        "harm": typesafe.Score(instructions="How large is it?", criteria=["small", {"level": "large"}]),
        "many": typesafe.Choice(instructions="Which?", criteria=MANY),
    }
    with typesafe_client(server.url) as client:
        answered = client.system_one(state={"text": STATE}, questions=questions)
        assert answered.model == "sparrow"
        assert answered.request_id
        assert answered.answers["team"].choice == "billing"
        assert sum(answered.answers["many"].probabilities.values()) == pytest.approx(1, abs=1e-12)
        assert 0 <= answered.answers["refund"].noul <= 1
        assert 0 <= answered.answers["harm"].score <= 1
        assert [model.name for model in client.models.list().models] == ["sparrow"]
        with pytest.raises(typesafe.TypeSafeBadRequestError, match="Unknown model"):
            client.system_one(state=STATE, questions=questions, model="gpt")
        many: Any = {"q": {"type": "choice", "criteria": {str(number): None for number in range(256)}}}
        with pytest.raises(typesafe.TypeSafeUnprocessableEntityError, match="at most 255"):
            client.system_one(state=STATE, questions=many)


def test_openai(server: Framehost) -> None:
    """Its typed answers in request order, the listing of both kinds, and its own exceptions."""
    client = openai_client(server.url)
    questions: list[Any] = [
        {"type": "predicate", "name": "refund", "instructions": "Is a refund wanted?"},
        {
            "type": "choice",
            "instructions": "Which team answers?",
            "choices": [{"value": name, "description": text} for name, text in TEAM.items()],
        },
        {"type": "choice", "instructions": "Is it so?", "choices": [{"value": True}, {"value": False}]},
        {"type": "score", "instructions": "How large is it?", "levels": [{"label": "small"}, {"label": "large"}]},
    ]
    answered = client.decisions.create(model="jev-latest", input=STATE, questions=questions)
    refund, team, so, harm = answered.answers
    assert answered.model == "sparrow"
    assert (refund.type, refund.name) == ("predicate", "refund")
    assert (team.type, team.choice, team.name) == ("choice", "billing", None)
    assert so.type == "choice" and isinstance(so.choice, bool)
    assert harm.type == "score" and [entry.label for entry in harm.probabilities] == ["small", "large"]
    assert answered.usage.total_tokens == answered.usage.input_tokens > 0
    assert [model.id for model in client.models.list()] == ["sparrow"]
    assert client.models.retrieve("sparrow").id == "sparrow"
    with pytest.raises(openai.NotFoundError) as missing:
        client.decisions.create(model="gpt", input=STATE, questions=questions)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as invalid:
        client.decisions.create(model="sparrow", input=STATE, questions=[{"type": "score"}])  # type: ignore[list-item]
    assert invalid.value.param == "questions[0].levels"
    with pytest.raises(openai.BadRequestError, match="/v1/decisions"):
        client.chat.completions.create(model="sparrow", messages=[{"role": "user", "content": "hello"}])


def test_google_genai(server: Framehost) -> None:
    """Its key header, its shape on the path it chooses by itself, and its own exceptions."""
    client = gemini_client(server.url)
    questions: dict[str, Any] = {
        "refund": {
            "type": "noul",
            "instructions": "Is a refund wanted?",
            "criteria": {"true_description": "money back"},
        },
        "team": {"type": "choice", "instructions": "Which team answers?", "criteria": TEAM},
        "harm": {"type": "score", "instructions": "How large is it?", "criteria": ["small", "large"]},
    }
    answered = client.decisions.create(model="jev-latest", input=STATE, questions=questions)
    assert answered.answers["team"].choice == "billing"
    refund = answered.answers["refund"]
    assert refund.confidence == max(refund.noul, 1 - refund.noul)
    assert answered.answers["harm"].legend == {"0": "small", "1": "large"}
    assert answered.usage.total_input_tokens > 0
    with pytest.raises(genai_errors.NotFoundError, match="Unknown model"):
        client.decisions.create(model="gpt", input=STATE, questions=questions)
    with pytest.raises(genai_errors.BadRequestError, match="nothing is asked"):
        client.decisions.create(model="sparrow", input=STATE, questions={"q": {"type": "noul", "instructions": ""}})


def ask_typesafe(url: str) -> str:
    with typesafe_client(url) as client:
        return client.system_one(state="x", questions={"q": typesafe.Noul(instructions="?")}).model


def ask_openai(url: str) -> str:
    asked: Any = [{"type": "predicate", "instructions": "?"}]
    return openai_client(url).decisions.create(model="toy", input="x", questions=asked).model


@pytest.mark.parametrize("ask", [ask_typesafe, ask_openai])
def test_a_full_queue_is_waited_out(runtime: Path, ask: Callable[[str], str]) -> None:
    """429 with Retry-After: the client comes back after the second it was told, and is answered."""
    until = runtime / "until"
    config = configuration(runtime / "c.toml", {"toy": {"max_requests": 1}})
    with running(runtime, config=config) as server, ThreadPoolExecutor(1) as pool:
        first = server.soon({"op": "wait", "until": str(until)})
        server.running()
        asked = pool.submit(ask, server.url)
        server.wait(lambda: server.status()["front"]["requests"]["ended"].get("refused"), "the refusal")
        until.touch()
        assert asked.result(60) == "toy"
        assert first.result(60).status == 200
