"""OpenAI's decisions dialect: an `input` of text or messages, an array of questions, an array of answers.

What the model reads is as plain as what was sent allows, so that the same text asked in another dialect gets the same
answer:

    input                            state
    -------------------------------  ---------------------------------------------------------
    a string                         the string
    one user message                 its content
    anything else                    an array of the messages, calls and outputs, in order
    content of one part              a text part's string, a JSON part's data
    content of several parts         an array of these

    question                         becomes
    -------------------------------  ---------------------------------------------------------
    predicate                        a noul
    choice with `value`s             a choice; a boolean is the option "true" or "false"
    score with labels                a score; a level is "label: description", or the description alone where the
                                     label is just the level's number

Fields about caching and identity (`prompt_cache_key`, `safety_identifier` ...) mean nothing here and are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from frontend.errors import InvalidRequest, Misuse, QueueFull, RequestError, TokensExceeded, UnknownModel
from frontend.families.base import Decision
from frontend.http import grammar, media
from frontend.http.dialect import Rendered, count, place, retry_after, sentence, with_extras
from frontend.http.grammar import MISSING, Faults, Loc, kind_of
from frontend.limits import DEFAULTS, ServerLimits
from frontend.requests.answers import Answer, ChoiceAnswer, NoulAnswer
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Score, Text

NAME: Final = "openai"

_ROLES: Final = ("user", "developer", "system", "assistant")
_CALLS: Final = {
    "function_call": ("name", "arguments"),
    "function_call_output": ("output",),
    "custom_tool_call": ("name", "input"),
    "custom_tool_call_output": ("output",),
}
"""Type of an item that is no message -> the fields of it that a model reads, besides the id that joins call and
output."""

_TEXT_PARTS: Final = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Type of a part that is text -> the field that has it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How the answer to one question is to be written."""

    name: str | None
    values: tuple[str | bool, ...] = ()
    """Of a choice, typed as they were sent."""

    labels: tuple[str, ...] = ()
    """Of a score."""


@dataclass(frozen=True, slots=True)
class OpenAIRequest(DecisionRequest):
    """A request that remembers the words it was asked in."""

    asked: tuple[Asked, ...] = ()
    """One for each question, in the same order."""


def parse_request(document: object, limits: ServerLimits = DEFAULTS) -> OpenAIRequest:
    """As `Dialect.parse_request`."""
    fields = grammar.an_object(document)
    faults = Faults(limits)
    model = grammar.model(fields, faults)
    reader = _Input(faults)
    state = reader.state(fields.get("input", MISSING))
    questions, asked = _questions(fields.get("questions", MISSING), reader)
    faults.refuse()
    if reader.images or media.in_body(fields):
        raise grammar.images_are_not_read()
    return OpenAIRequest(model, state, questions, asked)


def render(request: DecisionRequest, model: str, decision: Decision) -> dict[str, Any]:
    """The 200 body: answers in the order of the questions, with the values and labels as they were sent."""
    if not isinstance(request, OpenAIRequest) or len(request.asked) != len(decision.answers):
        raise Misuse("the request is of another dialect, or not every question was answered")
    read, written = count(decision.input_tokens), count(decision.output_tokens)
    body: dict[str, Any] = {
        "model": model,
        "answers": [_answer(asked, answer) for asked, (_, answer) in zip(request.asked, decision.answers, strict=True)],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }
    return with_extras(body, decision.extras)


def render_error(error: RequestError) -> Rendered:
    """`{"error": {"message", "type", "param", "code"}}`; a body that fails validation is 400 here."""
    status, code, param = error.status, error.error_type, None
    kind = "invalid_request_error" if status < 500 else "server_error"
    if isinstance(error, InvalidRequest):
        status, code = 400, error.faults[0].type
        param = place(error.faults[0]) or None
    elif isinstance(error, UnknownModel):
        status, code, param = 404, "model_not_found", "model"
    elif error.error_type == TokensExceeded.error_type:  # whether the front or the host has counted them
        code = "context_length_exceeded"
    elif isinstance(error, QueueFull):
        kind, code = "rate_limit_error", "rate_limit_exceeded"
    document = {"error": {"message": sentence(error), "type": kind, "param": param, "code": code}}
    return status, document, retry_after(error)


# The input


class _Input:
    """Reads texts, messages and their parts; notices images and goes on, because a fault is said first."""

    __slots__ = ("faults", "images")

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.images = False

    def state(self, value: object) -> Text:
        if isinstance(value, str):
            return value
        loc: Loc = ("input",)
        if value is MISSING:
            self.faults.add(loc, "the input is missing", "missing")
            return ""
        if not isinstance(value, list):
            self.faults.add(loc, f"the input is {kind_of(value)}; a string or an array is expected", "text_type")
            return ""
        items = []
        for index, item in enumerate(value):
            items.append(self._item(item, (*loc, index)))
            if self.faults.full:
                break
        if len(items) == 1 and items[0].get("role") == "user":
            content: Text = items[0]["content"]
            return content
        return items

    def _item(self, item: object, loc: Loc) -> dict[str, Any]:
        if not isinstance(item, dict):
            self.faults.add(loc, f"the item is {kind_of(item)}; an object is expected", "dict_type")
            return {}
        kind = item.get("type", "message")
        if kind == "message":
            role = item.get("role", MISSING)
            if role not in _ROLES:
                known = ", ".join(_ROLES)
                self.faults.add((*loc, "role"), f"the message has no role that is one of {known}", "literal_error")
            return {"role": role, "content": self.content(item.get("content", MISSING), (*loc, "content"))}
        known_fields = _CALLS.get(kind) if isinstance(kind, str) else None
        if known_fields is None:
            known = ", ".join(("message", *_CALLS))
            self.faults.add((*loc, "type"), f"the type of the item is not one of {known}", "union_tag_invalid")
            return {}
        read: dict[str, Any] = {"type": kind, "call_id": self._string(item, "call_id", loc)}
        for name in known_fields:
            if name == "output":
                read[name] = self.content(item.get(name, MISSING), (*loc, name))
            else:
                read[name] = self._string(item, name, loc)
        return read

    def _string(self, item: dict[str, Any], name: str, loc: Loc) -> str:
        value = item.get(name, MISSING)
        if isinstance(value, str):
            return value
        if value is MISSING:
            self.faults.add((*loc, name), f"the field {name} is missing", "missing")
        else:
            self.faults.add((*loc, name), f"the value is {kind_of(value)}; a string is expected", "string_type")
        return ""

    def content(self, value: object, loc: Loc) -> Text:
        """A string, or what an array of parts says."""
        if isinstance(value, str):
            return value
        if value is MISSING:
            self.faults.add(loc, "the text is missing", "missing")
            return ""
        if not isinstance(value, list):
            msg = f"the text is {kind_of(value)}; a string or an array of parts is expected"
            self.faults.add(loc, msg, "text_type")
            return ""
        parts = []
        for index, part in enumerate(value):
            parts.append(self._part(part, (*loc, index)))
            if self.faults.full:
                break
        return parts[0] if len(parts) == 1 else parts

    def _part(self, part: object, loc: Loc) -> Text:
        if not isinstance(part, dict):
            self.faults.add(loc, f"the part is {kind_of(part)}; an object is expected", "dict_type")
            return ""
        kind = part.get("type", MISSING)
        if isinstance(kind, str) and kind in _TEXT_PARTS:
            return self._string(part, _TEXT_PARTS[kind], loc)
        if kind == "input_image":
            self.images = True
            return ""
        if kind == "input_json":
            data = part.get("data", MISSING)
            if isinstance(data, (dict, list)):
                return data
            msg = "the data of a JSON part is missing" if data is MISSING else f"the data is {kind_of(data)}"
            self.faults.add((*loc, "data"), f"{msg}; an object or an array is expected", "dict_type")
            return ""
        known = "input_text, input_json, output_text or refusal"
        self.faults.add((*loc, "type"), f"the type of the part is none that is read; {known} is", "union_tag_invalid")
        return ""


# The questions


def _questions(value: object, reader: _Input) -> tuple[tuple[Question, ...], tuple[Asked, ...]]:
    faults = reader.faults
    if value is MISSING:
        faults.add(("questions",), "the questions are missing", "missing")
        return (), ()
    if not isinstance(value, list):
        faults.add(("questions",), f"the questions are {kind_of(value)}; an array is expected", "list_type")
        return (), ()
    if not grammar.some_questions(value, faults):
        return (), ()
    names = {fields["name"] for fields in value if isinstance(fields, dict) and isinstance(fields.get("name"), str)}
    taken: set[str] = set()
    questions, asked = [], []
    for index, fields in enumerate(value):
        loc: Loc = ("questions", index)
        if not isinstance(fields, dict):
            faults.add(loc, f"the question is {kind_of(fields)}; an object is expected", "dict_type")
        else:
            name = _name(fields.get("name"), loc, taken, faults)
            made = _question(_unused(str(index), names) if name is None else name, name, fields, loc, reader)
            if made is not None:
                questions.append(made[0])
                asked.append(made[1])
        if faults.full:
            break
    return tuple(questions), tuple(asked)


def _name(value: object, loc: Loc, taken: set[str], faults: Faults) -> str | None:
    loc = (*loc, "name")
    if value is None:
        return None
    if not isinstance(value, str):
        faults.add(loc, f"the name is {kind_of(value)}; a string is expected", "string_type")
        return None
    grammar.check_id(value, loc, faults)
    if value in taken:
        faults.add(loc, "another question has this name already", "duplicate_key")
    taken.add(value)
    return value


def _question(
    name: str, sent_name: str | None, fields: dict[str, Any], loc: Loc, reader: _Input
) -> tuple[Question, Asked] | None:
    faults = reader.faults
    kind = fields.get("type", MISSING)
    if kind is MISSING and "question" in fields:
        msg = "the field `question` is not read; a question has a type (predicate, choice or score) and instructions"
        faults.add(loc, msg, "union_tag_not_found")
        return None
    if kind not in ("predicate", "choice", "score"):
        grammar.wrong_type(kind, "predicate, choice or score", loc, faults)
        return None
    # The original requires instructions. A choice or a score can be answered without, so it is.
    said, before = fields.get("instructions"), len(faults.found)
    instructions = None if said is None else reader.content(said, (*loc, "instructions"))
    if kind == "predicate":
        if len(faults.found) == before and not reader.images:  # else what was meant to be asked is refused already
            grammar.check_asks(instructions, None, loc, faults)
        return Noul(name, instructions, None), Asked(sent_name)
    if kind == "choice":
        values, options = _choices(fields.get("choices", MISSING), (*loc, "choices"), faults)
        return Choice(name, instructions, options), Asked(sent_name, values=values)
    labels, levels = _levels(fields.get("levels", MISSING), (*loc, "levels"), faults)
    return Score(name, instructions, levels), Asked(sent_name, labels=labels)


def _choices(
    value: object, loc: Loc, faults: Faults
) -> tuple[tuple[str | bool, ...], tuple[tuple[str, Text | None], ...]]:
    if not _is_list(value, "choices", loc, faults) or not grammar.some_options(len(value), loc, faults):
        return (), ()
    strings = {item["value"] for item in value if isinstance(item, dict) and isinstance(item.get("value"), str)}
    values: list[str | bool] = []
    options: list[tuple[str, Text | None]] = []
    taken: set[str] = set()
    for index, item in enumerate(value):
        place = (*loc, index)
        if not isinstance(item, dict):
            faults.add(place, f"the choice is {kind_of(item)}; an object with a value is expected", "dict_type")
            continue
        sent = item.get("value", MISSING)
        if isinstance(sent, bool):
            name = _unused("true" if sent else "false", strings)
        elif isinstance(sent, str):
            name = sent
        else:
            msg = "is missing" if sent is MISSING else f"is {kind_of(sent)}"
            faults.add((*place, "value"), f"the value {msg}; a string or a boolean is expected", "string_type")
            continue
        grammar.check_option_name(name, (*place, "value"), faults)
        if name in taken:
            faults.add((*place, "value"), "another choice has this value already", "duplicate_key")
        taken.add(name)
        values.append(sent)
        options.append((name, _description(item, place, faults)))
    return tuple(values), tuple(options)


def _levels(value: object, loc: Loc, faults: Faults) -> tuple[tuple[str, ...], tuple[Text, ...]]:
    if not _is_list(value, "levels", loc, faults) or not grammar.some_levels(len(value), loc, faults):
        return (), ()
    labels, levels = [], []
    for index, item in enumerate(value):
        place = (*loc, index)
        if not isinstance(item, dict):
            faults.add(place, f"the level is {kind_of(item)}; an object with a label is expected", "dict_type")
            continue
        label = item.get("label", MISSING)
        if not isinstance(label, str):
            msg = "is missing" if label is MISSING else f"is {kind_of(label)}"
            faults.add((*place, "label"), f"the label {msg}; a string is expected", "string_type")
            continue
        description = _description(item, place, faults)
        labels.append(label)
        if description is None:
            levels.append(label)
        else:
            levels.append(description if label == str(index) else f"{label}: {description}")
    return tuple(labels), tuple(levels)


def _is_list(value: object, what: str, loc: Loc, faults: Faults) -> TypeGuard[list[Any]]:
    if isinstance(value, list):
        return True
    if value is MISSING:
        faults.add(loc, f"the {what} are missing; an array is expected", "missing")
    else:
        faults.add(loc, f"the {what} are {kind_of(value)}; an array is expected", "list_type")
    return False


def _description(item: dict[str, Any], loc: Loc, faults: Faults) -> str | None:
    value = item.get("description")
    if value is None or isinstance(value, str):
        return value
    faults.add((*loc, "description"), f"the description is {kind_of(value)}; a string is expected", "string_type")
    return None


def _unused(name: str, taken: set[str]) -> str:
    """`name`, marked until no other is the same: it is a name of ours beside those that were sent."""
    while name in taken:
        name += "'"
    return name


# The answers


def _answer(asked: Asked, answer: Answer) -> dict[str, Any]:
    if isinstance(answer, NoulAnswer):
        return {"type": "predicate", "name": asked.name, "probability": answer.noul}
    if isinstance(answer, ChoiceAnswer):
        names = [name for name, _ in answer.probabilities]
        return {
            "type": "choice",
            "name": asked.name,
            "choice": asked.values[names.index(answer.choice)],
            "probabilities": [
                {"value": value, "probability": probability}
                for value, (_, probability) in zip(asked.values, answer.probabilities, strict=True)
            ],
            "confidence": answer.confidence,
        }
    return {
        "type": "score",
        "name": asked.name,
        "score": answer.score,
        "probabilities": [
            {"value": index, "label": label, "probability": probability}
            for index, (label, probability) in enumerate(zip(asked.labels, answer.probabilities, strict=True))
        ],
        "confidence": answer.confidence,
    }
