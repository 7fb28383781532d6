"""The sparrow family in the front: one text request out, one list of probabilities per question in.

The host reads the text itself, so preparing is bounding and serialising. The model reads 512 tokens of each
text; its tokenizer is pure Python at about 1.6 microseconds per character and cannot be interrupted, so
characters are bounded here, before it ever runs, and whatever `truncate` says. Characters are counted as
the model gets them: structured text is rendered with line breaks and indentation there, which can be a
hundred times longer than what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Final

from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded
from frontend.families import answering, documents
from frontend.families.base import Decision, Prepared, Processor
from frontend.requests.answers import Answer, normalise
from frontend.requests.questions import Choice, DecisionRequest, Noul, Question, Score, Text, printable
from protocol.contracts import sparrow as contract
from protocol.payloads import TextRequest

MAX_REQUEST_CHARS: Final = 262_144
"""Characters of the state and all texts of the questions: 0.4 s of tokenizing for ordinary text (measured,
1.6 us each), 5 s for text made to be slow, within the execution limit either way."""

MAX_TEXT_CHARS: Final = 65_536
"""Characters of one text. 512 tokens of ordinary text are about 2,500 characters, so this leaves room for a
truncated document, and refuses what is 25 times too long before spending 0.1 s on it."""

MAX_LEVELS: Final = 10
"""Levels of a score that the model was trained on; more are refused, whatever the server's own limit is."""

BARE_TEMPERATURE: Final = 4.0
"""What the logits of a noul without criteria are divided by: 0.98 becomes 0.73, so that no answer looks
like a sure one."""


class SparrowProcessor(Processor):
    """Prepares and finishes for `executor_host.executors.sparrow.executor`. One unit per request."""

    OPTIONS = contract.OPTIONS

    def prepare(self, request: DecisionRequest) -> Prepared:
        """One `TextRequest`; its cost is the UTF-8 bytes of the document.

        Raises `InvalidRequest` for a score above `MAX_LEVELS`, `RequestTooLarge` above `MAX_REQUEST_CHARS` in
        total and `TokensExceeded` above `MAX_TEXT_CHARS` in one text. Token limits are the host's to check: only
        it has the vocabulary.
        """
        for question in request.questions:
            if isinstance(question, Score) and len(question.levels) > MAX_LEVELS:
                message = f"{len(question.levels)} levels; this model reads at most {MAX_LEVELS}"
                raise InvalidRequest.at(("questions", question.id, "criteria"), message, "too_long")
        if isinstance(request.state, dict | list) and len(request.state) > MAX_TEXT_CHARS:
            # Each item is a character at least. Encoding megabytes only to refuse them would hold up everyone else.
            _check_lengths(request)
        document = documents.encode(
            {"state": request.state, "questions": [documents.fields(q) for q in request.questions]}
        )
        if _length_bound(document) > MAX_TEXT_CHARS:
            _check_lengths(request)
        payload = TextRequest(document.encode())
        size = len(payload.document)
        return Prepared((payload,), cost=size, work=size, context=request.questions)

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers, renormalised in float64; a noul without criteria is answered carefully and named in
        `x_statement`.

        The one output is `{"probabilities": [[float, ...] | None, ...], "tokens": int, "truncated": None or
        {"kept": int, "total": int}}`, with one entry per question: the options or levels in request order, or
        [no, yes] for a noul. None exactly where there is one option or level, whose probability is 1.
        Anything else is an `InternalError`.
        """
        questions: tuple[Question, ...] = prepared.context  # type: ignore[assignment]
        output = _Output.read(outputs)
        if len(output.probabilities) != len(questions):
            raise InternalError(f"the model gave {len(output.probabilities)} answers to {len(questions)} questions")
        answers = answering.answers(questions, output.probabilities, _answer)
        extras: dict[str, object] = {}
        if weak := [question.id for question in questions if _is_bare(question)]:
            extras["x_statement"] = weak
        if output.truncated is not None:
            extras["x_truncated"] = output.truncated
        return Decision(answers, input_tokens=output.tokens, extras=extras)


# Preparing.


def _length_bound(document: str) -> int:
    """No text of the compact `document` is longer than this once it is rendered with an indent of 2.

    Rendering adds a line break and an indent after each opening bracket and comma and before each closing
    bracket, and a space after each colon. The indent is at most 2 for each opening bracket there is.
    """
    opened = document.count("{") + document.count("[")
    breaks = document.count(",") + 2 * opened
    return len(document) + breaks * (1 + 2 * opened) + document.count(":")


def _check_lengths(request: DecisionRequest) -> None:
    total = 0
    longest: tuple[str, int] | None = None
    for place, text in _texts(request):
        length = len(text) if isinstance(text, str) else _indented_length(text, MAX_REQUEST_CHARS + 1)
        total += length
        if total > MAX_REQUEST_CHARS:
            raise RequestTooLarge(
                f"the state and the questions have more than {MAX_REQUEST_CHARS} characters in total, as the model"
                " reads them; that is the limit of one request"
            )
        if length > MAX_TEXT_CHARS and longest is None:
            longest = (place, length)
    if longest is not None:
        place, length = longest
        raise TokensExceeded(
            f"{length} characters in {place}, as the model reads it; the limit of one text is {MAX_TEXT_CHARS}"
        )


def _texts(request: DecisionRequest) -> Iterator[tuple[str, Text]]:
    """Every text that reaches the model, with a name for people."""
    yield "the state", request.state
    for question in request.questions:
        name = printable(question.id)
        if question.instructions is not None:
            yield f'the instructions of question "{name}"', question.instructions
        if isinstance(question, Choice):
            described = question.options
        elif isinstance(question, Noul):
            described = question.criteria or ()
        else:
            described = tuple([(str(index), level) for index, level in enumerate(question.levels)])
        for option, text in described:
            place = f'option "{printable(option)}" of question "{name}"'
            yield place, option
            if text is not None:
                yield place, text


def _indented_length(root: Text, enough: int) -> int:
    """Characters of `root` as JSON with an indent of 2, or some number of at least `enough`.

    Counted without rendering, and no further than needed: the rendering of a small hostile body is huge.
    """
    total = 0
    stack: list[tuple[object, int]] = [(root, 0)]
    while stack and total < enough:
        node, depth = stack.pop()
        if isinstance(node, str):
            total += len(encode_basestring(node))
        elif isinstance(node, (dict, list)) and node:
            # Brackets; a break, the indent and a comma for each item, less one comma; a break before the end.
            total += 2 + len(node) * (2 + 2 * (depth + 1)) - 1 + 1 + 2 * depth
            if total >= enough:
                break
            if isinstance(node, dict):
                for key, value in node.items():
                    total += len(encode_basestring(key)) + 2
                    stack.append((value, depth + 1))
            else:
                stack.extend([(value, depth + 1) for value in node])
        else:
            total += len(documents.encode(node))
    return total


# Finishing.


@dataclass(frozen=True, slots=True)
class _Output:
    """The host's output, checked as far as it can be without the questions."""

    probabilities: Sequence[object]
    tokens: int
    truncated: dict[str, int] | None

    @classmethod
    def read(cls, outputs: Sequence[object]) -> _Output:
        if len(outputs) != 1 or not isinstance(outputs[0], Mapping):
            raise InternalError("the model's output is not one map")
        probabilities = outputs[0].get("probabilities")
        if not isinstance(probabilities, (list, tuple)):
            raise InternalError("the model's output has no probabilities")
        return cls(probabilities, *documents.usage(outputs[0]))


_NUMBERS: Final = frozenset({float, int})  # and not bool


def _answer(question: Question, probabilities: object) -> Answer:
    single = (
        len(question.options) == 1
        if isinstance(question, Choice)
        else not isinstance(question, Noul) and len(question.levels) == 1
    )
    if probabilities is None and single:
        values: Sequence[float] = (1.0,)
    elif single or not isinstance(probabilities, (list, tuple)) or not set(map(type, probabilities)) <= _NUMBERS:
        raise InternalError(f'the model\'s answer to question "{printable(question.id)}" is not a list of numbers')
    else:
        values = probabilities
    if not isinstance(question, Noul):
        return answering.answer(question, values)
    values = normalise(values)
    return answering.answer(question, _careful(values) if _is_bare(question) else values)


def _is_bare(question: Question) -> bool:
    """A noul of which no side is described: the model is near chance there, and does not know it."""
    return isinstance(question, Noul) and not any(question.side(name) for name in ("false", "true"))


def _careful(probabilities: Sequence[float]) -> tuple[float, ...]:
    """The same winner, less sure: logits divided by `BARE_TEMPERATURE`."""
    return normalise([value ** (1.0 / BARE_TEMPERATURE) for value in probabilities])
