"""The System One dialect: a parsed body in, a `DecisionRequest` out; answers or an error in, a body out.

What can be answered is answered, what cannot is refused with every reason at once (`MAX_FAULTS`), each
with the path to its place and a stable word. The words are those of the field's validators where they
have one: `missing`, `string_type`, `dict_type`, `list_type`, `too_short`, `too_long`,
`union_tag_not_found`, `union_tag_invalid`; and of ours: `text_type` (a string, an object or an array was
expected).

Fields that the dialect does not know are ignored, at the top and inside a question: clients send many.
Two unknown things are refused all the same, because ignoring them would answer something else than was
asked: images (400), and a choice whose options are not in `criteria` (422).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias

from frontend.answers import Answer
from frontend.errors import Fault, InternalError, InvalidRequest, Misuse, RequestError, UsageError
from frontend.limits import (
    MAX_FAULTS,
    MAX_LEVELS,
    MAX_OPTION_NAME_CHARS,
    MAX_OPTIONS,
    MAX_QUESTION_ID_CHARS,
    MAX_QUESTIONS,
    RETRY_AFTER_SECONDS,
)
from frontend.questions import Choice, DecisionRequest, Noul, Question, Score, Text, printable

_RETRY_STATUSES: Final = frozenset({429, 503})
_TEXT: Final = (str, dict, list)
_IMAGE_PARTS: Final = {
    "image": frozenset({"image", "data", "data_base64"}),
    "image_url": frozenset({"image_url"}),
    "input_image": frozenset({"image_url", "file_id"}),
}
"""Type of a message part that is an image -> the fields that carry one. Both must be there: a state may well
describe a screen whose elements have a type "image"."""

_MISSING: Final = object()

Loc: TypeAlias = tuple[str | int, ...]


def parse_request(document: object) -> DecisionRequest:
    """The request in `document`, the value of a body that `strict_json.parse` accepted.

    Raises `InvalidRequest` with up to `MAX_FAULTS` faults, or `UsageError` when the request is valid and
    carries images. A missing model is None here; whether the name exists is for the caller.
    """
    if not isinstance(document, dict):
        raise InvalidRequest.at((), f"the body is {_kind(document)}; a JSON object is expected", "json_invalid")
    faults = _Faults()
    model = document.get("model", _MISSING)
    if model is _MISSING:
        model = None
    elif not isinstance(model, str):
        faults.add(("model",), f"the model is {_kind(model)}; a string is expected", "string_type")
    state = document.get("state", _MISSING)
    if state is _MISSING:
        faults.add(("state",), "the state is missing", "missing")
    elif not isinstance(state, _TEXT):
        faults.add(("state",), f"the state is {_kind(state)}; a string, an object or an array is expected", "text_type")
    questions = _questions(document.get("questions", _MISSING), faults)
    if faults.found:
        raise InvalidRequest(faults.found)
    if document.get("assets") or (isinstance(state, list) and _has_image(state)):
        raise UsageError("the request carries an image; the models of this server read text only")
    return DecisionRequest(model, state, questions)


def render(
    model: str,
    answers: Sequence[tuple[str, Answer]],
    usage: Mapping[str, int],
    extras: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The 200 body: concrete model name, answers in the order given, usage, and extras after them.

    `usage` has `input_tokens` and `output_tokens`. Names of extras start with "x_", as the field's suite
    asks of everything it does not know. Breaking that, or a token count that is not an integer of at least
    0, is a `Misuse`.
    """
    body: dict[str, Any] = {
        "model": model,
        "answers": {question: answer.to_json() for question, answer in answers},
        "usage": {name: _count(usage[name]) for name in ("input_tokens", "output_tokens")},
    }
    if len(body["answers"]) != len(answers):
        raise Misuse("two answers for one question")
    for name, value in (extras or {}).items():
        if not name.startswith("x_"):
            raise Misuse(f"the extra field {name!r} does not start with x_")
        if not _finite(value):
            raise InternalError(f"the extra field {name!r} has a number that is not finite")
        body[name] = value
    return body


def render_error(error: RequestError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of an error: a `detail` list for validation, a `detail` object otherwise.

    429 and 503 always carry an integer Retry-After within `RETRY_AFTER_SECONDS`; no other status has one,
    because waiting would not help there.
    """
    headers: dict[str, str] = {}
    if error.status in _RETRY_STATUSES:
        least, most = RETRY_AFTER_SECONDS
        headers["Retry-After"] = str(min(max(error.retry_after or least, least), most))
    detail: list[dict[str, Any]] | dict[str, Any]
    if isinstance(error, InvalidRequest):
        detail = [{"loc": ["body", *fault.loc], "msg": fault.msg, "type": fault.type} for fault in error.faults]
    else:
        detail = {"error_type": error.error_type, "message": error.message}
    return error.status, {"detail": detail}, headers


class _Faults:
    """Faults of one body, in the order of the walk; further ones are dropped once there are enough."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, loc: Loc, msg: str, kind: str) -> None:
        if len(self.found) < MAX_FAULTS:
            place = [printable(part, MAX_QUESTION_ID_CHARS) if isinstance(part, str) else part for part in loc]
            self.found.append(Fault(tuple(place), msg, kind))

    @property
    def full(self) -> bool:
        return len(self.found) >= MAX_FAULTS


def _questions(value: object, faults: _Faults) -> tuple[Question, ...]:
    if value is _MISSING:
        faults.add(("questions",), "the questions are missing", "missing")
        return ()
    if not isinstance(value, dict):
        msg = f"the questions are {_kind(value)}; an object of id to question is expected"
        faults.add(("questions",), msg, "dict_type")
        return ()
    if not value:
        faults.add(("questions",), "there are no questions; at least 1 is expected", "too_short")
        return ()
    if len(value) > MAX_QUESTIONS:
        faults.add(("questions",), f"{len(value)} questions; at most {MAX_QUESTIONS} are answered at once", "too_long")
        return ()
    questions = []
    for name, fields in value.items():
        if not name:
            faults.add(("questions", ""), "a question id is empty; at least 1 character is expected", "too_short")
        elif len(name) > MAX_QUESTION_ID_CHARS:
            msg = f"a question id of {len(name)} characters; at most {MAX_QUESTION_ID_CHARS} are allowed"
            faults.add(("questions", name), msg, "too_long")
        question = _question(name, fields, faults)
        if question is not None:
            questions.append(question)
        if faults.full:
            break
    return tuple(questions)


def _question(name: str, fields: object, faults: _Faults) -> Question | None:
    loc = ("questions", name)
    if not isinstance(fields, dict):
        faults.add(loc, f"the question is {_kind(fields)}; an object is expected", "dict_type")
        return None
    kind = fields.get("type", _MISSING)
    if kind == "choice":
        options = _options(fields, loc, faults)
        return Choice(name, _instructions(fields, loc, faults), options)
    if kind == "noul":
        instructions = _instructions(fields, loc, faults)
        sides = _sides(fields.get("criteria"), loc, faults)
        if not _says_something(instructions) and not any(
            _says_something(description) for _, description in sides or ()
        ):
            msg = "nothing is asked: a noul needs instructions, or a description of true or of false"
            faults.add((*loc, "instructions"), msg, "missing")
        return Noul(name, instructions, sides)
    if kind == "score":
        levels = _levels(fields.get("criteria", _MISSING), loc, faults)
        return Score(name, _instructions(fields, loc, faults), levels)
    known = "noul, choice or score"
    if kind is _MISSING:
        faults.add(loc, f"the question has no type; {known} is expected", "union_tag_not_found")
    elif kind == "box":
        msg = f"box questions need an image, and the models of this server read text only; {known} is expected"
        faults.add(loc, msg, "union_tag_invalid")
    else:
        shown = f'"{printable(kind)}"' if isinstance(kind, str) else _kind(kind)
        faults.add(loc, f"the type of the question is {shown}; {known} is expected", "union_tag_invalid")
    return None


def _says_something(text: Text | None) -> bool:
    """Whether a model could read anything in `text`: not None, blank, or an empty object or array."""
    return bool(text.strip() if isinstance(text, str) else text)


def _instructions(fields: dict[str, Any], loc: Loc, faults: _Faults) -> Text | None:
    value = fields.get("instructions")
    if value is None or isinstance(value, _TEXT):
        return value
    msg = f"the instructions are {_kind(value)}; a string, an object, an array or null is expected"
    faults.add((*loc, "instructions"), msg, "text_type")
    return None


def _options(fields: dict[str, Any], loc: Loc, faults: _Faults) -> tuple[tuple[str, Text | None], ...]:
    loc = (*loc, "criteria")
    value = fields.get("criteria", _MISSING)
    if value is _MISSING:
        msg = "the criteria are missing; a choice needs an object of option name to description"
        if "options" in fields:
            msg += " (the field `options` is not read)"
        faults.add(loc, msg, "missing")
        return ()
    if not isinstance(value, dict):
        msg = f"the criteria are {_kind(value)}; a choice needs an object of option name to description"
        faults.add(loc, msg, "dict_type")
        return ()
    if not value:
        faults.add(loc, "there are no options; at least 1 is expected", "too_short")
    elif len(value) > MAX_OPTIONS:
        faults.add(loc, f"{len(value)} options; at most {MAX_OPTIONS} are allowed", "too_long")
        return ()
    for name, description in value.items():
        if len(name) > MAX_OPTION_NAME_CHARS:
            msg = f"an option name of {len(name)} characters; at most {MAX_OPTION_NAME_CHARS} are allowed"
            faults.add((*loc, name), msg, "too_long")
        if not (description is None or isinstance(description, _TEXT)):
            _not_a_description((*loc, name), description, faults)
    return tuple(value.items())


def _sides(value: object, loc: Loc, faults: _Faults) -> tuple[tuple[str, Text | None], ...] | None:
    if value is None:
        return None
    loc = (*loc, "criteria")
    if not isinstance(value, dict):
        msg = f"the criteria are {_kind(value)}; a noul takes an object with true, false or both, or null"
        faults.add(loc, msg, "dict_type")
        return None
    sides = []
    for name, description in value.items():
        if name in ("true", "false"):
            if not (description is None or isinstance(description, _TEXT)):
                _not_a_description((*loc, name), description, faults)
            sides.append((name, description))
    return tuple(sides)


def _levels(value: object, loc: Loc, faults: _Faults) -> tuple[Text, ...]:
    loc = (*loc, "criteria")
    if value is _MISSING:
        faults.add(loc, "the criteria are missing; a score needs an array of levels, lowest first", "missing")
        return ()
    if not isinstance(value, list):
        msg = f"the criteria are {_kind(value)}; a score needs an array of levels, lowest first"
        faults.add(loc, msg, "list_type")
        return ()
    if not value:
        faults.add(loc, "there are no levels; at least 1 is expected", "too_short")
    elif len(value) > MAX_LEVELS:
        faults.add(loc, f"{len(value)} levels; at most {MAX_LEVELS} are allowed", "too_long")
        return ()
    for index, level in enumerate(value):
        if not isinstance(level, _TEXT):
            msg = f"the level is {_kind(level)}; a string, an object or an array is expected"
            faults.add((*loc, index), msg, "text_type")
    return tuple(value)


def _not_a_description(loc: Loc, value: object, faults: _Faults) -> None:
    msg = f"the description is {_kind(value)}; a string, an object, an array or null is expected"
    faults.add(loc, msg, "text_type")


def _has_image(state: list[Any]) -> bool:
    """Whether a state in the form of message parts, or of messages with parts, has an image part."""
    for item in state:
        if not isinstance(item, dict):
            continue
        if _is_image(item):
            return True
        content = item.get("content")
        if isinstance(content, list) and any(isinstance(part, dict) and _is_image(part) for part in content):
            return True
    return False


def _is_image(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and not _IMAGE_PARTS.get(kind, frozenset()).isdisjoint(part)


def _kind(value: object) -> str:
    """What a JSON value is, for a message. Never the value itself: it may be long or private."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_finite, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_finite, value))


def _count(value: int) -> int:
    if type(value) is not int or value < 0:
        raise Misuse(f"a token count of {value!r}")
    return value
