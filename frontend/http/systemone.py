"""The System One dialect: a parsed body in, a `DecisionRequest` out; answers or an error in, a body out.

What can be answered is answered, what cannot is refused with every reason at once, each with the path to its
place and a stable word (`frontend.http.grammar`).

Fields that the dialect does not know are ignored, at the top and inside a question: clients send many.
Two unknown things are refused all the same, because ignoring them would answer something else than was
asked: images (400), and a choice whose options are not in `criteria` (422).
"""

from __future__ import annotations

from typing import Any, Final

from frontend.errors import InvalidRequest, Misuse, RequestError
from frontend.families.base import Decision
from frontend.http import grammar, media
from frontend.http.dialect import Rendered, count, public, retry_after, with_extras
from frontend.http.grammar import MISSING, TEXT, Faults, Loc
from frontend.limits import DEFAULTS, MAX_QUESTION_ID_CHARS, ServerLimits
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Score, Text, printable

NAME: Final = "systemone"

_SIDES: Final = {"true": "true", "false": "false"}


def parse_request(document: object, limits: ServerLimits = DEFAULTS) -> DecisionRequest:
    """As `Dialect.parse_request`. A missing model is None here; whether the name exists is for the caller."""
    fields = grammar.an_object(document, grammar.SESSION)
    faults = Faults(limits)
    model = grammar.model(fields, faults)
    session = grammar.session(fields, faults)
    state = _state(fields.get("state", MISSING), faults)
    questions = grammar.question_map(fields.get("questions", MISSING), faults, _question)
    faults.refuse()
    if media.in_body(fields) or media.in_state(state):
        raise grammar.images_are_not_read()
    return DecisionRequest(model, state, questions, session=session)


def render(request: DecisionRequest, model: str, decision: Decision) -> dict[str, Any]:
    """The 200 body: concrete model name, answers in the order given, usage, and extras after them."""
    body: dict[str, Any] = {
        "model": model,
        "answers": {question: answer.to_json() for question, answer in decision.answers},
        "usage": {name: count(tokens) for name, tokens in decision.usage.items()},
    }
    if len(body["answers"]) != len(decision.answers):
        raise Misuse("two answers for one question")
    return with_extras(body, decision.extras)


def render_error(error: RequestError) -> Rendered:
    """A `detail` list for validation, a `detail` object otherwise."""
    return error.status, {"detail": detail(error)}, retry_after(error)


def detail(error: RequestError) -> list[dict[str, Any]] | dict[str, Any]:
    """What this dialect's clients read of an error body."""
    if isinstance(error, InvalidRequest):
        return [
            {"loc": ["body", *map(_step, fault.loc)], "msg": public(fault.msg), "type": fault.type}
            for fault in error.faults
        ]
    return {"error_type": error.error_type, "message": public(error.message)}


def _step(part: str | int) -> str | int:
    """One step of a place; ids and names are a client's own text."""
    return printable(part, MAX_QUESTION_ID_CHARS) if isinstance(part, str) else part


def _state(value: object, faults: Faults) -> Text:
    if isinstance(value, TEXT):
        return value
    if value is MISSING:
        faults.add(("state",), "the state is missing", "missing")
    else:
        msg = f"the state is {grammar.kind_of(value)}; a string, an object or an array is expected"
        faults.add(("state",), msg, "text_type")
    return ""


def _question(name: str, fields: dict[str, Any], loc: Loc, faults: Faults) -> Question | None:
    kind = fields.get("type", MISSING)
    if kind == "choice":
        options = grammar.options(fields, loc, faults)
        return Choice(name, grammar.instructions(fields, loc, faults), options)
    if kind == "noul":
        before = len(faults.found)
        instructions = grammar.instructions(fields, loc, faults)
        sides = grammar.sides(fields.get("criteria"), loc, faults, _SIDES)
        if len(faults.found) == before:  # else what was meant to be asked is refused already
            grammar.check_asks(instructions, sides, loc, faults)
        return Noul(name, instructions, sides)
    if kind == "score":
        levels = grammar.levels(fields.get("criteria", MISSING), loc, faults)
        return Score(name, grammar.instructions(fields, loc, faults), levels)
    grammar.wrong_type(kind, "noul, choice or score", loc, faults)
    return None
