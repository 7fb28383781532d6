"""Each limit of a request on the main port: at it, one past it, and said where and how many."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from frontend import limits
from frontend.limits import ServerLimits
from frontend.serving.server import Server
from tests.http.conftest import Edge, listening

MEASURES = ServerLimits(
    max_body_bytes=2000, depth=6, questions=3, question_id_chars=5, options=4, option_name_chars=7, levels=2
)
"""Each another number, and none the default."""


@pytest.fixture
def limits_of_server() -> ServerLimits:
    return MEASURES


def sent(path: str, document: Any) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def systemone(*questions: dict[str, Any], state: Any = "x", key: str = "state", name: str = "q") -> dict[str, Any]:
    return {"model": "none", key: state, "questions": {f"{name}{number}": q for number, q in enumerate(questions)}}


def options(count: int, name: str = "o") -> dict[str, Any]:
    return {"type": "choice", "instructions": "?", "criteria": {f"{name}{number}": None for number in range(count)}}


def nested(depth: int) -> list[Any]:
    """`depth` arrays inside each other."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


NOUL = {"type": "noul", "instructions": "?"}
SCORE = {"type": "score", "criteria": ["l"]}
PREDICATE = {"type": "predicate", "instructions": "?"}

MEASURED: dict[str, tuple[str, Any, Any]] = {
    "depth": ("/v1/systemone", systemone(NOUL, state=nested(5)), systemone(NOUL, state=nested(6))),
    "questions": ("/v1/systemone", systemone(*[NOUL] * 3), systemone(*[NOUL] * 4)),
    "question_id_chars": ("/v1/systemone", systemone(NOUL, name="abcd"), systemone(NOUL, name="abcde")),
    "options": ("/v1/systemone", systemone(options(4)), systemone(options(5))),
    "option_name_chars": ("/v1/systemone", systemone(options(1, "123456")), systemone(options(1, "1234567"))),
    "levels": (
        "/v1/systemone",
        systemone({**SCORE, "criteria": ["a", "b"]}),
        systemone({**SCORE, "criteria": ["a", "b", "c"]}),
    ),
    "body_bytes": (
        "/v1/systemone",
        json.dumps(systemone(NOUL)).encode().ljust(2000),
        json.dumps(systemone(NOUL)).encode().ljust(2001),
    ),
}
OTHER_DIALECTS: dict[str, tuple[str, Any, Any]] = {
    "openai": (
        "/v1/decisions",
        {"model": "none", "input": "x", "questions": [PREDICATE] * 3},
        {"model": "none", "input": "x", "questions": [PREDICATE] * 4},
    ),
    "perplexity": ("/v1/decisions", systemone(*[NOUL] * 3), systemone(*[NOUL] * 4)),
    "gemini": ("/v1beta/decisions", systemone(*[NOUL] * 3, key="input"), systemone(*[NOUL] * 4, key="input")),
    "openrouter": ("/api/v1/systemone", systemone(*[NOUL] * 3), systemone(*[NOUL] * 4)),
}


def split(answer: bytes) -> tuple[int, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize("limit", MEASURED)
async def test_a_limit_of_system_one(edge: Edge, limit: str) -> None:
    """What is at the limit is read, and only its model is unknown; one more is refused, and the limit is named."""
    path, most, more = MEASURED[limit]
    status, document = split(await edge.ask(sent(path, most)))
    assert (status, document["detail"]["message"][:20]) == (400, "Unknown model: 'none")
    status, document = split(await edge.ask(sent(path, more)))
    assert status == (413 if limit == "body_bytes" else 422)
    said = document["detail"]["message"] if status == 413 else document["detail"][0]["msg"]
    assert str(MEASURES.report()[limit]) in said


@pytest.mark.parametrize("dialect", OTHER_DIALECTS)
async def test_every_dialect_has_the_same_limits(edge: Edge, dialect: str) -> None:
    """They are the server's, and not System One's alone."""
    path, most, more = OTHER_DIALECTS[dialect]
    assert b"Unknown model" in await edge.ask(sent(path, most))
    status, document = split(await edge.ask(sent(path, more)))
    assert status == (422 if "error" not in document else 400)
    assert "at most 3 are answered" in json.dumps(document)


async def test_the_limits_are_told(edge: Edge) -> None:
    """A client can ask before it sends: each limit by its name and with its unit, beside the models."""
    asked = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    status, document = split(await edge.ask(asked))
    assert status == 200
    assert document["x_limits"] == {
        "body_bytes": 2000,
        "request_timeout_s": 30.0,
        "uploads": 256,
        "upload_bytes": 64 * 2**20,
        "depth": 6,
        "questions": 3,
        "question_id_chars": 5,
        "options": 4,
        "option_name_chars": 7,
        "levels": 2,
    }


async def test_no_request_gets_more_time_than_the_limit(edge: Edge) -> None:
    """A client may ask for less, exactly the limit, and not for more."""
    server: Server = edge.server
    assert [server.timeout_s(asked) for asked in (None, "29999", "30000", "30001")] == [30.0, 29.999, 30.0, 30.0]


async def test_large_bodies_are_parsed_one_at_a_time_and_beside_what_is_prepared() -> None:
    """The scanner keeps the interpreter lock: two of them would leave the loop half of its turns. And nobody's long
    preparation holds up a body."""
    release = threading.Event()
    async with listening(ServerLimits()) as edge:
        preparing = [edge.server.pool.submit(release.wait) for _ in range(limits.POOL_THREADS)]
        try:
            answer = await edge.ask(sent("/v1/systemone", systemone(options(2), state="x" * limits.INLINE_WORK_BYTES)))
            assert b"Unknown model" in answer, "it was read"
        finally:
            release.set()
        assert all(job.result() for job in preparing)
        second_runs = threading.Event()
        first = edge.server.parser.submit(second_runs.wait, 0.05)
        edge.server.parser.submit(second_runs.set)
        assert not first.result()
