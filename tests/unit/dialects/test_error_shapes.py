"""One error in the shape of every dialect, and which dialect a body on the shared path is in."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.errors import (
    Fault,
    HostLost,
    InternalError,
    InvalidRequest,
    QueueFull,
    RequestError,
    RequestTooLarge,
    TimedOut,
    TokensExceeded,
    Unavailable,
    UnknownModel,
    UsageError,
)
from frontend.http import gemini, openai, openrouter, perplexity, shapes, systemone
from frontend.http.dialect import Dialect
from frontend.limits import MAX_MESSAGE_CHARS
from frontend.requests import strict_json
from frontend.serving import hostlink
from protocol.messages import Failure

DIALECTS: tuple[Dialect, ...] = (systemone, openrouter, openai, perplexity, gemini)
INVALID = InvalidRequest(
    [Fault(("questions", "q", "criteria", 1), "no", "text_type"), Fault((), "bad", "json_invalid")]
)
PLACE = "questions.q.criteria[1]"


def rendered(dialect: Dialect, error: RequestError) -> tuple[int, Any, dict[str, str]]:
    return dialect.render_error(error)


def message(dialect: Dialect, error: RequestError) -> str:
    """What the dialect's own client shows."""
    document = rendered(dialect, error)[1]
    if dialect is systemone:
        detail = document["detail"]
        return str(detail[0]["msg"] if isinstance(detail, list) else detail["message"])
    return str(document["error"]["message"])


@pytest.mark.parametrize("dialect", [openrouter, openai, perplexity, gemini], ids=lambda dialect: dialect.NAME)
def test_a_validation_error_has_its_place_in_the_one_sentence(dialect: Dialect) -> None:
    """These shapes have no list of faults: the first one, where it is, and how many more."""
    status, _, headers = rendered(dialect, INVALID)
    assert (status, headers) == (400, {})
    assert message(dialect, INVALID) == f"{PLACE}: no (and 1 more)"


@pytest.mark.parametrize("dialect", [openrouter, openai, perplexity, gemini], ids=lambda dialect: dialect.NAME)
def test_a_body_that_is_no_json_has_no_place_in_it(dialect: Dialect) -> None:
    """The number of a character is no path: the sentence has line and column."""
    with pytest.raises(InvalidRequest) as refused:
        strict_json.parse(b"{bad")
    assert message(dialect, refused.value).startswith("the body is not JSON: ")
    if dialect is openai:
        assert rendered(dialect, refused.value)[1]["error"]["param"] is None


def test_tokens_that_the_host_has_counted_have_the_same_word() -> None:
    """Families whose host counts report it with the word of System One; OpenAI's clients know another."""
    failure = Failure(
        code="input", status=400, message="too long", error_type="max_tokens_exceeded", where=[], dispatched=False
    )
    counted = [TokensExceeded("too long"), hostlink.reported(failure)]
    for error in counted:
        assert isinstance(error, RequestError)
        assert rendered(openai, error)[1]["error"]["code"] == "context_length_exceeded"


def test_the_openai_shape() -> None:
    """`error` with four fields, always all of them."""
    assert rendered(openai, INVALID)[1] == {
        "error": {
            "message": f"{PLACE}: no (and 1 more)",
            "type": "invalid_request_error",
            "param": PLACE,
            "code": "text_type",
        }
    }


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (UsageError("x"), 400, "invalid_request_error", "api_usage_error"),
        (UnknownModel("x"), 404, "invalid_request_error", "model_not_found"),
        (TokensExceeded("x"), 400, "invalid_request_error", "context_length_exceeded"),
        (RequestTooLarge("x"), 413, "invalid_request_error", "request_too_large"),
        (QueueFull("x"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (InternalError("x"), 500, "server_error", "internal_error"),
        (Unavailable("x"), 503, "server_error", "service_unavailable"),
        (TimedOut("x"), 504, "server_error", "timeout_error"),
    ],
)
def test_openai_statuses_and_words(error: RequestError, status: int, kind: str, code: str) -> None:
    """The statuses of the other dialects but for an unknown model, which the client expects to be 404."""
    got, document, _ = rendered(openai, error)
    assert got == status
    assert (document["error"]["type"], document["error"]["code"]) == (kind, code)


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (UsageError("x"), 400, "INVALID_ARGUMENT"),
        (UnknownModel("x"), 404, "NOT_FOUND"),
        (RequestTooLarge("x"), 413, "INVALID_ARGUMENT"),
        (QueueFull("x"), 429, "RESOURCE_EXHAUSTED"),
        (InternalError("x"), 500, "INTERNAL"),
        (Unavailable("x"), 503, "UNAVAILABLE"),
        (TimedOut("x"), 504, "DEADLINE_EXCEEDED"),
    ],
)
def test_the_gemini_shape(error: RequestError, status: int, word: str) -> None:
    """A number, a sentence, and a word of that family of services."""
    assert rendered(gemini, error)[:2] == (status, {"error": {"code": status, "message": "x", "status": word}})


def test_the_openrouter_shape_has_both_envelopes() -> None:
    """An integer code for its own client, and what a System One client reads."""
    status, document, _ = rendered(openrouter, INVALID)
    assert document["error"] == {"code": status, "message": f"{PLACE}: no (and 1 more)"}
    assert document["detail"] == rendered(systemone, INVALID)[1]["detail"]
    assert rendered(openrouter, UnknownModel("x"))[:2] == (
        400,
        {"error": {"code": 400, "message": "x"}, "detail": {"error_type": "api_usage_error", "message": "x"}},
    )


def test_perplexitys_shape_has_both_envelopes() -> None:
    """The path's own, and what a System One client reads."""
    document = rendered(perplexity, INVALID)[1]
    assert document == {**rendered(openai, INVALID)[1], "detail": rendered(systemone, INVALID)[1]["detail"]}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_refusals_that_pass_say_when_in_every_dialect(dialect: Dialect) -> None:
    """An integer from 1 to 5 on 429 and 503 and nowhere else."""
    for error in (QueueFull("x", retry_after=3), Unavailable("x", retry_after=3)):
        assert rendered(dialect, error)[2] == {"Retry-After": "3"}
    assert rendered(dialect, HostLost("x", dispatched=True, retry_after=90))[2] == {"Retry-After": "5"}
    for other in (RequestTooLarge("x", retry_after=3), TimedOut("x"), InternalError("x"), INVALID):
        assert rendered(dialect, other)[2] == {}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
@pytest.mark.parametrize("make", [UsageError, lambda text: InvalidRequest.at(("state",), text, "x")])
def test_a_message_is_one_line_of_bounded_length(dialect: Dialect, make: Any) -> None:
    """Whatever it was made from: nothing that moves a cursor, ends a line, turns it round, or cannot be encoded."""
    shown = message(dialect, make("a\nb\r\x1b[31m\x00\u202e\u2028\ud800" + "x" * 10 * MAX_MESSAGE_CHARS))
    assert shown.isprintable()
    assert len(shown) <= MAX_MESSAGE_CHARS + 100
    shown.encode()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_a_place_is_one_line_too(dialect: Dialect) -> None:
    """A question id is the client's own text."""
    document = {"state": "s", "input": "s", "questions": {"a\n\x1b\ud800": 1}}
    with pytest.raises(InvalidRequest) as caught:
        (openai if dialect is openai else dialect).parse_request(document)
    assert str(rendered(dialect, caught.value)[1]).isprintable()


@pytest.mark.parametrize(
    ("document", "dialect"),
    [
        ({"input": "x", "questions": []}, openai),
        ({"questions": []}, openai),
        ({"state": "x", "questions": []}, openai),
        ({"state": "x", "questions": {}}, perplexity),
        ({"state": "x", "input": "x", "questions": {}}, perplexity),
        ({"questions": {}}, perplexity),
        ({"state": "x"}, perplexity),
        ({"input": "x", "questions": {}}, gemini),
        ({"input": "x"}, openai),
        ({}, openai),
        ([], openai),
        (None, openai),
    ],
)
def test_a_body_says_its_dialect(document: Any, dialect: Dialect) -> None:
    """By the shape of its questions and by what is beside them; else it is the path's own."""
    assert shapes.by_body(document, shapes.by_headers({})) is dialect


def test_without_a_body_the_key_header_says_it() -> None:
    """One client has a header of its own, and no other shape of error makes sense to it."""
    known = shapes.by_headers({"x-goog-api-key": "k"})
    assert known is gemini
    assert shapes.by_body({"input": "x"}, known) is gemini
    assert shapes.by_body({"input": "x", "questions": []}, known) is openai


@pytest.mark.parametrize(("sent", "name"), [("typesafe/jev-latest", "jev-latest"), ("m", "m"), ("other/m", "other/m")])
def test_an_openrouter_model_may_have_its_prefix(sent: str, name: str) -> None:
    """The gateway calls System One's models by it."""
    question = {"type": "noul", "instructions": "?"}
    assert openrouter.parse_request({"model": sent, "state": "x", "questions": {"q": question}}).model == name


def test_a_place_is_shown_as_it_can_be_printed() -> None:
    """Ids in it are a client's own text, whoever found the fault: a family's refusals name them, too."""
    document = systemone.render_error(InvalidRequest.at(("questions", "a\x1b[2J\u202eb" + "x" * 2000, 3), "m", "t"))[1]
    body, questions, name, index = document["detail"][0]["loc"]
    assert (body, questions, index) == ("body", "questions", 3)
    assert name.startswith("a\\x1b[2J\\u202eb")
    assert len(name) < 1100
