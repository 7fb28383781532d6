"""The request body of `laya-serve`, the server of the package, which serves the English checkpoint's siblings.

    bytes ──▶ Asked(state, rendered questions)

`state` may be missing, and any JSON value; fields without a meaning are ignored. `model` may name the checkpoint or
one of its aliases. A text that names none of the three means nothing, as clients send other servers' models here, too;
one of the other two is refused, because the original would answer with that one.

Source: the family's published package, laya 0.3.20.
"""

from __future__ import annotations

from typing import Final

from frontend.errors import InvalidRequest
from frontend.families.laya.grammar import MAX_DEPTH, Asked
from frontend.families.laya.rendering import question
from frontend.families.native import NativeRefusal
from frontend.families.refusal import Refused
from frontend.requests import strict_json
from frontend.requests.questions import printable
from protocol.contracts.laya import VARIANTS, Variant

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""Raw body; 413 above it, which is the listener's."""

MAX_QUESTIONS: Final = 64
MAX_STATE_CHARACTERS: Final = 50_000
"""Of the state's text, or of what Python writes for a state that is none."""


def parse(body: bytes, variant: Variant) -> Asked:
    """The state and the rendered questions of a body for the checkpoint `variant`.

    Raises `NativeRefusal` for what is no request of this server or too large, and `Refused` for a question.
    """
    try:
        document = strict_json.parse(body, max_depth=MAX_DEPTH, nested_duplicates=True)
    except InvalidRequest:
        raise NativeRefusal(400, "request body must be valid JSON") from None
    if not isinstance(document, dict) or "questions" not in document:
        raise NativeRefusal(400, "request body must be an object with a 'questions' field")
    state, questions = document.get("state"), document["questions"]
    if not isinstance(questions, dict):
        raise NativeRefusal(400, "'questions' must be an object")
    if len(questions) > MAX_QUESTIONS:
        raise NativeRefusal(413, f"too many questions ({len(questions)} > {MAX_QUESTIONS})")
    characters = len(state if isinstance(state, str) else str(state))
    if characters > MAX_STATE_CHARACTERS:
        raise NativeRefusal(413, f"state too large ({characters} > {MAX_STATE_CHARACTERS} chars)")
    _check_model(document.get("model"), variant)
    try:
        rendered = tuple([question(name, fields) for name, fields in questions.items()])
    except Refused as error:
        raise error.below("questions") from None
    return Asked(state, rendered)


def _check_model(model: object, variant: Variant) -> None:
    if not isinstance(model, str):
        return
    wanted = model.strip().lower()
    for other in VARIANTS:
        if other != variant and wanted in (other.name, *other.aliases):
            message = f"model {printable(model)!r} is the {other.name} checkpoint; this is {variant.name}"
            raise Refused(message, ("model",))
