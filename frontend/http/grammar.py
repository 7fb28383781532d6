"""What the grammars of all dialects are made of: faults with their places, and the parts of a question.

A parser walks the whole body once and collects what is wrong with it (`Faults`), each with the path to its
place and a stable word. The words are those of the field's validators where they have one: `missing`,
`string_type`, `dict_type`, `list_type`, `too_short`, `too_long`, `union_tag_not_found`, `union_tag_invalid`;
and of ours: `text_type` (a string, an object or an array was expected).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from frontend.errors import Fault, InvalidRequest, UsageError
from frontend.limits import DEFAULTS, MAX_FAULTS, ServerLimits
from frontend.requests.questions import MAX_SESSION_CHARS, Question, Text, printable

TEXT: Final = (str, dict, list)
"""What a JSON text is in Python: a string, or structured text."""

MISSING: Final = object()
"""The value of a field that was not sent, which is not the same as null."""

Loc: TypeAlias = tuple[str | int, ...]
"""The path to a place in a body: keys and indices."""


class Faults:
    """Faults of one body, in the order of the walk; further ones are dropped once there are enough. `limits` are
    those that the body is measured by."""

    __slots__ = ("found", "limits")

    def __init__(self, limits: ServerLimits = DEFAULTS) -> None:
        self.limits = limits
        self.found: list[Fault] = []

    def add(self, loc: Loc, msg: str, kind: str) -> None:
        if len(self.found) < MAX_FAULTS:
            self.found.append(Fault(loc, msg, kind))

    def refuse(self) -> None:
        """Raise `InvalidRequest` if anything was found."""
        if self.found:
            raise InvalidRequest(self.found)

    @property
    def full(self) -> bool:
        return len(self.found) >= MAX_FAULTS


SESSION: Final = "x_session"

UNSERVED: Final = {
    SESSION: "a conversation that goes on from earlier requests, which /v1/systemone has",
    "x_input_ids": "tokens instead of a text",
}
"""Fields that change what is asked. A client that sends one counts on it, so it is never ignored."""


def an_object(document: object, *served: str) -> dict[str, Any]:
    """The body, which has to be an object. Raises `InvalidRequest`: any other value has no fields to look at; and
    `UsageError` for what would have the same text mean something else. `served`: what of `UNSERVED` the dialect
    has."""
    if not isinstance(document, dict):
        raise InvalidRequest.at((), f"the body is {kind_of(document)}; a JSON object is expected", "json_invalid")
    for name, meaning in UNSERVED.items():
        if document.get(name) is not None and name not in served:
            raise UsageError(f"{name}: {meaning}; it is not taken here: send the whole state as text")
    return document


def session(document: dict[str, Any], faults: Faults) -> str | None:
    """The client's name for a conversation, None when it has none."""
    value = document.get(SESSION)
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_SESSION_CHARS or not value.isprintable():
        msg = f"the session is no text of 1..{MAX_SESSION_CHARS} printable characters"
        faults.add((SESSION,), msg, "string_type")
        return None
    return value


def model(document: dict[str, Any], faults: Faults) -> str | None:
    """The model's name, None when it is missing. Whether there is such a model is for the caller."""
    value = document.get("model", MISSING)
    if value is MISSING:
        return None
    if not isinstance(value, str):
        faults.add(("model",), f"the model is {kind_of(value)}; a string is expected", "string_type")
        return None
    return value


def question_map(
    value: object, faults: Faults, parse: Callable[[str, dict[str, Any], Loc, Faults], Question | None]
) -> tuple[Question, ...]:
    """The questions of an object of id to question; `parse(id, fields, loc, faults)` reads one."""
    if value is MISSING:
        faults.add(("questions",), "the questions are missing", "missing")
        return ()
    if not isinstance(value, dict):
        msg = f"the questions are {kind_of(value)}; an object of id to question is expected"
        faults.add(("questions",), msg, "dict_type")
        return ()
    if not some_questions(value, faults):
        return ()
    questions = []
    for name, fields in value.items():
        loc = ("questions", name)
        check_id(name, loc, faults)
        if not isinstance(fields, dict):
            faults.add(loc, f"the question is {kind_of(fields)}; an object is expected", "dict_type")
        else:
            question = parse(name, fields, loc, faults)
            if question is not None:
                questions.append(question)
        if faults.full:
            break
    return tuple(questions)


def some_questions(value: dict[str, Any] | list[Any], faults: Faults) -> bool:
    """Whether there are as many questions as one request may have."""
    if not value:
        faults.add(("questions",), "there are no questions; at least 1 is expected", "too_short")
        return False
    if len(value) > faults.limits.questions:
        msg = f"{len(value)} questions; at most {faults.limits.questions} are answered at once"
        faults.add(("questions",), msg, "too_long")
        return False
    return True


def check_id(name: str, loc: Loc, faults: Faults) -> None:
    """A question id, or a name that comes back with the answer."""
    if not name:
        faults.add(loc, "a question id is empty; at least 1 character is expected", "too_short")
    elif len(name) > faults.limits.question_id_chars:
        msg = f"a question id of {len(name)} characters; at most {faults.limits.question_id_chars} are allowed"
        faults.add(loc, msg, "too_long")


def wrong_type(kind: object, known: str, loc: Loc, faults: Faults) -> None:
    """A question whose `type` is missing or none of the `known` ones."""
    if kind is MISSING:
        faults.add(loc, f"the question has no type; {known} is expected", "union_tag_not_found")
    elif kind == "box":
        msg = f"box questions need an image, and the models of this server read text only; {known} is expected"
        faults.add(loc, msg, "union_tag_invalid")
    else:
        shown = f'"{printable(kind)}"' if isinstance(kind, str) else kind_of(kind)
        faults.add(loc, f"the type of the question is {shown}; {known} is expected", "union_tag_invalid")


def says_something(text: Text | None) -> bool:
    """Whether a model could read anything in `text`: not None, blank, or an empty object or array."""
    return bool(text.strip() if isinstance(text, str) else text)


def check_asks(
    instructions: Text | None, sides: tuple[tuple[str, Text | None], ...] | None, loc: Loc, faults: Faults
) -> None:
    """A noul needs instructions or a described side: there is nothing else that it could be about."""
    if not says_something(instructions) and not any(says_something(description) for _, description in sides or ()):
        msg = "nothing is asked: a noul needs instructions, or a description of true or of false"
        faults.add((*loc, "instructions"), msg, "missing")


def instructions(fields: dict[str, Any], loc: Loc, faults: Faults) -> Text | None:
    """Text, or None for null and for none."""
    value = fields.get("instructions")
    if value is None or isinstance(value, TEXT):
        return value
    msg = f"the instructions are {kind_of(value)}; a string, an object, an array or null is expected"
    faults.add((*loc, "instructions"), msg, "text_type")
    return None


def options(fields: dict[str, Any], loc: Loc, faults: Faults) -> tuple[tuple[str, Text | None], ...]:
    """The `criteria` of a choice: an object of option name to description or null."""
    loc = (*loc, "criteria")
    value = fields.get("criteria", MISSING)
    if value is MISSING:
        msg = "the criteria are missing; a choice needs an object of option name to description"
        if "options" in fields:
            msg += " (the field `options` is not read)"
        faults.add(loc, msg, "missing")
        return ()
    if not isinstance(value, dict):
        msg = f"the criteria are {kind_of(value)}; a choice needs an object of option name to description"
        faults.add(loc, msg, "dict_type")
        return ()
    if not some_options(len(value), loc, faults):
        return ()
    for name, description in value.items():
        check_option_name(name, (*loc, name), faults)
        if not (description is None or isinstance(description, TEXT)):
            not_a_description((*loc, name), description, faults)
    return tuple(value.items())


def some_options(count: int, loc: Loc, faults: Faults) -> bool:
    """Whether a choice has as many options as it may have; none are a fault and still can be walked through."""
    if count == 0:
        faults.add(loc, "there are no options; at least 1 is expected", "too_short")
    elif count > faults.limits.options:
        faults.add(loc, f"{count} options; at most {faults.limits.options} are allowed", "too_long")
        return False
    return True


def check_option_name(name: str, loc: Loc, faults: Faults) -> None:
    """An option's name, which comes back with the answer. It may be empty."""
    if len(name) > faults.limits.option_name_chars:
        msg = f"an option name of {len(name)} characters; at most {faults.limits.option_name_chars} are allowed"
        faults.add(loc, msg, "too_long")


def sides(
    value: object, loc: Loc, faults: Faults, names: Mapping[str, str]
) -> tuple[tuple[str, Text | None], ...] | None:
    """The `criteria` of a noul, where `names` maps the dialect's words for the two sides to "true" and "false"."""
    if value is None:
        return None
    loc = (*loc, "criteria")
    if not isinstance(value, dict):
        known = " or ".join(names)
        msg = f"the criteria are {kind_of(value)}; a noul takes an object with {known} or both, or null"
        faults.add(loc, msg, "dict_type")
        return None
    found = []
    for name, description in value.items():
        side = names.get(name)
        if side is not None:
            if not (description is None or isinstance(description, TEXT)):
                not_a_description((*loc, name), description, faults)
            found.append((side, description))
    return tuple(found)


def levels(value: object, loc: Loc, faults: Faults) -> tuple[Text, ...]:
    """The `criteria` of a score: an array of texts, lowest first."""
    loc = (*loc, "criteria")
    if value is MISSING:
        faults.add(loc, "the criteria are missing; a score needs an array of levels, lowest first", "missing")
        return ()
    if not isinstance(value, list):
        msg = f"the criteria are {kind_of(value)}; a score needs an array of levels, lowest first"
        faults.add(loc, msg, "list_type")
        return ()
    if not some_levels(len(value), loc, faults):
        return ()
    for index, level in enumerate(value):
        if not isinstance(level, TEXT):
            msg = f"the level is {kind_of(level)}; a string, an object or an array is expected"
            faults.add((*loc, index), msg, "text_type")
    return tuple(value)


def some_levels(count: int, loc: Loc, faults: Faults) -> bool:
    """Whether a score has as many levels as it may have; none are a fault and still can be walked through."""
    if count == 0:
        faults.add(loc, "there are no levels; at least 1 is expected", "too_short")
    elif count > faults.limits.levels:
        faults.add(loc, f"{count} levels; at most {faults.limits.levels} are allowed", "too_long")
        return False
    return True


def not_a_description(loc: Loc, value: object, faults: Faults) -> None:
    msg = f"the description is {kind_of(value)}; a string, an object, an array or null is expected"
    faults.add(loc, msg, "text_type")


def images_are_not_read() -> UsageError:
    """Answering while ignoring an image would answer something else than was asked."""
    return UsageError("the request carries an image; the models of this server read text only")


def kind_of(value: object) -> str:
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
