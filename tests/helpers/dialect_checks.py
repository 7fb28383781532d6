"""What must come out of a dialect's parser, whatever went in: a refusal, or a request that can be answered."""

from __future__ import annotations

import json

from frontend import limits
from frontend.errors import InvalidRequest, RequestError, UsageError
from frontend.families.base import Decision
from frontend.http import shapes
from frontend.http.dialect import Dialect
from frontend.requests import strict_json
from frontend.requests.answers import Answer, choice_answer, noul_answer, score_answer
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question


def check(dialect: Dialect, document: object) -> None:
    """Parses `document`; any error but a refusal is the caller's."""
    try:
        request = dialect.parse_request(document)
    except (InvalidRequest, UsageError) as error:
        check_refusal(dialect, error)
    else:
        check_request(dialect, request)


def check_body(body: bytes) -> None:
    """A request that can be answered, or a 4xx, in whichever dialect the bytes say."""
    dialect = shapes.by_headers({})
    try:
        document = strict_json.parse(body)
        dialect = shapes.by_body(document, dialect)
        request = dialect.parse_request(document)
    except (InvalidRequest, UsageError) as error:
        check_refusal(dialect, error)
    else:
        check_request(dialect, request)


def check_refusal(dialect: Dialect, error: RequestError) -> None:
    """A 4xx, small, on lines of printable characters, that every encoder takes."""
    status, document, headers = dialect.render_error(error)
    assert 400 <= status < 500
    assert not headers
    assert len(json.dumps(document)) < 200_000
    json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def check_request(dialect: Dialect, request: DecisionRequest) -> None:
    """Everything that the domain promises to families, and an answer for exactly what was asked."""
    assert isinstance(request.state, (str, dict, list))
    assert 1 <= len(request.questions) <= limits.MAX_QUESTIONS
    ids = [question.id for question in request.questions]
    assert len(set(ids)) == len(ids)
    for question in request.questions:
        assert question.instructions is None or isinstance(question.instructions, (str, dict, list))
        if isinstance(question, Choice):
            names = [name for name, _ in question.options]
            assert 1 <= len(set(names)) == len(names) <= limits.MAX_OPTIONS
        elif not isinstance(question, Noul):
            assert 1 <= len(question.levels) <= limits.MAX_LEVELS
            assert None not in question.levels
    decision = Decision(tuple((question.id, _uniform(question)) for question in request.questions), 1)
    rendered = dialect.render(request, "m", decision)
    assert len(rendered["answers"]) == len(ids)
    json.dumps(rendered, allow_nan=False)


def _uniform(question: Question) -> Answer:
    if isinstance(question, Choice):
        return choice_answer(question, [1.0] * len(question.options))
    if isinstance(question, Noul):
        return noul_answer(question, 0.5)
    return score_answer(question, [1.0] * len(question.levels))
