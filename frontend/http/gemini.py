"""Gemini's decisions dialect: an `input` of text or contents, a map of questions, a map of answers.

Questions are System One's but for three things: instructions are required in the original (here as in System One),
they may be text contents, and the sides of a noul are called `true_description` and `false_description`. The input
becomes the state: a string or the text of one content as it is, several as an array of strings.

Answers differ by `confidence`, which in this dialect is the probability of what won, and which a noul has too. The
original also cuts a noul to [0.01, 0.99]; here it is what the model said, as in every dialect.

A model may be called `models/NAME`.
"""

from __future__ import annotations

from typing import Any, Final

from frontend.errors import InvalidRequest, RequestError, UnknownModel
from frontend.families.base import Decision
from frontend.http import grammar, media
from frontend.http.dialect import Rendered, count, retry_after, sentence, with_extras
from frontend.http.grammar import MISSING, Faults, Loc, kind_of
from frontend.limits import DEFAULTS, ServerLimits
from frontend.requests.answers import Answer, ChoiceAnswer, NoulAnswer
from frontend.requests.questions import PREFIXES, Choice, DecisionRequest, Noul, Question, Score, Text

NAME: Final = "gemini"

PREFIX: Final = PREFIXES[NAME]

_SIDES: Final = {"true_description": "true", "false_description": "false"}
_OTHER_MEDIA: Final = frozenset({"image", "audio", "video", "document"})
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def parse_request(document: object, limits: ServerLimits = DEFAULTS) -> DecisionRequest:
    """As `Dialect.parse_request`."""
    fields = grammar.an_object(document)
    faults = Faults(limits)
    model = grammar.model(fields, faults)
    found: list[str] = []
    state = _text(fields.get("input", MISSING), "input", ("input",), faults, found)
    questions = grammar.question_map(fields.get("questions", MISSING), faults, _question)
    faults.refuse()
    if found or media.in_body(fields):
        raise grammar.images_are_not_read()
    return DecisionRequest(None if model is None else model.removeprefix(PREFIX), state, questions)


def render(request: DecisionRequest, model: str, decision: Decision) -> dict[str, Any]:
    """The 200 body. The original names no model; ours does, since an alias may have been asked for."""
    read, written = count(decision.input_tokens), count(decision.output_tokens)
    body: dict[str, Any] = {
        "model": model,
        "answers": {question: _answer(answer) for question, answer in decision.answers},
        "usage": {"total_input_tokens": read, "total_output_tokens": written, "total_tokens": read + written},
    }
    return with_extras(body, decision.extras)


def render_error(error: RequestError) -> Rendered:
    """`{"error": {"code": <status>, "message", "status": <word>}}`; a body that fails validation is 400 here."""
    status = error.status
    if isinstance(error, InvalidRequest):
        status = 400
    elif isinstance(error, UnknownModel):
        status = 404
    word = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    document = {"error": {"code": status, "message": sentence(error), "status": word}}
    return status, document, retry_after(error)


def _question(name: str, fields: dict[str, Any], loc: Loc, faults: Faults) -> Question | None:
    kind = fields.get("type", MISSING)
    if kind not in ("choice", "noul", "score"):
        grammar.wrong_type(kind, "noul, choice or score", loc, faults)
        return None
    said, before = fields.get("instructions"), len(faults.found)
    instructions = None if said is None else _text(said, "instructions", (*loc, "instructions"), faults, None)
    if kind == "choice":
        return Choice(name, instructions, grammar.options(fields, loc, faults))
    if kind == "noul":
        sides = grammar.sides(fields.get("criteria"), loc, faults, _SIDES)
        if len(faults.found) == before:  # else what was meant to be asked is refused already
            grammar.check_asks(instructions, sides, loc, faults)
        return Noul(name, instructions, sides)
    return Score(name, instructions, grammar.levels(fields.get("criteria", MISSING), loc, faults))


def _text(value: object, what: str, loc: Loc, faults: Faults, media: list[str] | None) -> Text:
    """A string, a content, or an array of contents. Types of contents that are no text go to `media`, or are faults
    where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _content(value, loc, faults, media)
    if isinstance(value, list):
        parts: list[Any] = []
        for index, item in enumerate(value):
            parts.append(_content(item, (*loc, index), faults, media))
            if faults.full:
                break
        return parts[0] if len(parts) == 1 else parts
    msg = "missing" if value is MISSING else kind_of(value)
    kind = "missing" if value is MISSING else "text_type"
    faults.add(loc, f"the {what} is {msg}; a string, a content or an array of contents is expected", kind)
    return ""


def _content(item: object, loc: Loc, faults: Faults, media: list[str] | None) -> str:
    if not isinstance(item, dict):
        faults.add(loc, f"the content is {kind_of(item)}; an object is expected", "dict_type")
        return ""
    kind, text = item.get("type", MISSING), item.get("text", MISSING)
    if kind == "text" and isinstance(text, str):
        return text
    if kind == "text":
        faults.add((*loc, "text"), "a text content has a text, which is a string", "string_type")
    elif media is not None and isinstance(kind, str) and kind in _OTHER_MEDIA:
        media.append(kind)
    else:
        faults.add((*loc, "type"), "the type of the content is none that is read; text is", "union_tag_invalid")
    return ""


def _answer(answer: Answer) -> dict[str, Any]:
    body = answer.to_json()
    if isinstance(answer, NoulAnswer):
        body["confidence"] = max(answer.noul, 1.0 - answer.noul)
    elif isinstance(answer, ChoiceAnswer):
        body["confidence"] = max(probability for _, probability in answer.probabilities)
    else:
        body["confidence"] = max(answer.probabilities)
    return body
