"""From a request to tokens and spans, against the published vectors.

The published tokenizer is known only by what it did in the vectors: the oracle below has the tokens of exactly those
pieces that the reference encodes by themselves. A piece that differs by one byte, or is cut elsewhere, has no tokens.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from executor_host.errors import InputRefused
from executor_host.executors.clef import encoding as clef_encoding
from executor_host.executors.clef.encoding import Encoded, Tokenize, render
from tests.unit.clef.helpers import GOLDEN, QUESTIONS, STATE, bytes_of, encoded, listed

VECTORS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in GOLDEN["encode"]}

SCHEMA = [271, 3423, 34651, 426, 32349, 25, 198]
OPTIONS = [198, 51535, 1425, 49555, 25, 198]
END = [4537, 38945, 198]
PREFIX_TOKENS, SUFFIX_TOKENS = 36, 18

YES = '{"description":"The proposition is true or the answer is yes.","option_id":"true"}'
NO = '{"description":"The proposition is false or the answer is no.","option_id":"false"}'
PIECES: dict[str, tuple[str, list[tuple[str, list[str]]]]] = {
    "lev_ticket": (
        (
            '{"attempts":2,"ticket":{"body":"Orders fail with a 500 since 9am.",'
            '"customer":{"name":"Zoë","tier":"gold"},"subject":"Checkout down"}}'
        ),
        [
            (
                "Which team should handle the message?",
                [
                    '{"option_id":"account"}',
                    '{"description":"Payments or invoices","option_id":"billing"}',
                    '{"description":"Bugs or outages","option_id":"technical"}',
                ],
            ),
            (
                "How urgent is it?",
                [
                    '{"description":"Can wait","option_id":"0"}',
                    '{"description":"This week","option_id":"1"}',
                    '{"description":{"level":"today","sla_hours":4},"option_id":"2"}',
                ],
            ),
            ("Is a service down?", ['{"description":"Something is unavailable.","option_id":"true"}', NO]),
        ],
    ),
    "judge_invoice": (
        '{"invoice":{"currency":"USD","status":"overdue","total":1250.0,"vendor":"Acme"}}',
        [
            ("Is the total above 1000 USD?", [YES, NO]),
            (
                "What is the invoice status?",
                [
                    '{"description":"Not sent.","option_id":"draft"}',
                    '{"description":"Invoice is past due.","option_id":"overdue"}',
                    '{"description":"Invoice is paid.","option_id":"paid"}',
                ],
            ),
            (
                "urgency",
                [
                    '{"description":"Can wait","option_id":"0"}',
                    '{"description":"This week","option_id":"1"}',
                    '{"description":"Today","option_id":"2"}',
                ],
            ),
        ],
    ),
}
"""Of each vector: the rendered state, and per question the rendered instructions and options."""


def oracle(name: str) -> Tokenize:
    """The published tokenizer, as far as the vector `name` shows it."""
    vector, (state, fields) = VECTORS[name], PIECES[name]
    ids = vector["input_ids"]
    start = next(place for place in range(PREFIX_TOKENS, len(ids)) if ids[place : place + len(SCHEMA)] == SCHEMA)
    known = {
        clef_encoding.PREFIX: ids[:PREFIX_TOKENS],
        clef_encoding.SUFFIX: ids[-SUFFIX_TOKENS:],
        state: ids[PREFIX_TOKENS:start],
        "\n\nSCHEMA FIELDS:\n": SCHEMA,
        "\nALLOWED OPTIONS:\n": OPTIONS,
        "END FIELD\n": END,
        "\n": [198],
        **{f"OPTION {place}: ": [32929, 220, 15 + place, 25, 220] for place in range(1, 4)},
    }
    start += len(SCHEMA)
    for number, (spans, (asked, options)) in enumerate(zip(vector["questions"], fields, strict=True), start=1):
        (first, stop), kind = spans["question_span"], ("noul", "choice", "score")[spans["type"]]
        known[f"\nFIELD {number}\nID: {spans['id']}\nTYPE: {kind}\nINSTRUCTION: "] = ids[start:first]
        known[asked] = ids[first:stop]
        for text, (first, stop) in zip(options, spans["option_spans"], strict=True):
            known[text] = ids[first:stop]
        start = spans["option_spans"][-1][1] + 1 + len(END)
    return lambda texts: [known[text] for text in texts]


@pytest.mark.parametrize("name", VECTORS)
def test_published_tokens_and_spans(name: str) -> None:
    """Every token id, every span, every option in its order."""
    vector = VECTORS[name]
    made = encoded(vector["request"], oracle(name))
    assert made.tokens.tolist() == vector["input_ids"]
    questions = listed(vector["request"]["questions"])
    for question, field, expected in zip(questions, made.fields, vector["questions"], strict=True):
        assert field.kind == expected["type"]
        assert list(field.question) == expected["question_span"]
        assert [list(span) for span in field.options] == expected["option_spans"]
        assert [option for option, _ in clef_encoding.options(question)] == expected["option_ids"]


def spans_of(made: Encoded) -> list[Any]:
    """As the vectors have them."""
    return [[field.kind, list(field.question), [list(span) for span in field.options]] for field in made.fields]


@pytest.mark.parametrize("vector", GOLDEN["bytes"], ids=["whole", "cut", "no state", "too long", "odd"])
def test_published_byte_vectors(vector: dict[str, Any]) -> None:
    """Lengths, spans, what a cut keeps, the exact bytes, and the exact words of a schema that does not fit."""
    asked = vector.get("request") or VECTORS[vector["record"]]["request"]
    limit = vector.get("max_length", 16_384)
    if "error" in vector:
        with pytest.raises(InputRefused) as caught:
            encoded(asked, max_length=limit, truncate=True)
        assert caught.value.message == vector["error"]
        assert (caught.value.status, caught.value.code) == (400, "max_tokens_exceeded")
        return
    made = encoded(asked, max_length=limit, truncate=True)
    assert len(made.tokens) == vector["length"]
    assert spans_of(made) == vector["spans"]
    assert made.kept == vector.get("state_bytes_kept", made.total)
    if "sha256_of_bytes" in vector:
        assert hashlib.sha256(bytes(made.tokens.tolist())).hexdigest() == vector["sha256_of_bytes"]
    if "option_ids" in vector:
        found = [[name for name, _ in clef_encoding.options(question)] for question in listed(asked["questions"])]
        assert found == vector["option_ids"]


def test_a_long_state_is_refused_unless_a_cut_is_asked_for() -> None:
    """At the limit it is whole; one token more is refused with every number, or cut at its end and counted."""
    asked = {"state": "x" * 100, "questions": {"q": {"type": "noul"}}}
    whole = encoded(asked)
    fixed = len(whole.tokens) - 100
    assert encoded(asked, max_length=len(whole.tokens)).tokens.tolist() == whole.tokens.tolist()
    with pytest.raises(InputRefused) as caught:
        encoded(asked, max_length=len(whole.tokens) - 1)
    assert (caught.value.status, caught.value.code, caught.value.where) == (400, "max_tokens_exceeded", ("state",))
    for number in (100, 99, fixed, fixed + 99):
        assert str(number) in caught.value.message
    cut = encoded(asked, max_length=fixed + 40, truncate=True)
    assert (cut.kept, cut.total, len(cut.tokens)) == (40, 100, fixed + 40)
    text = bytes(cut.tokens.tolist()).decode()
    assert "STATE:\n" + "x" * 40 + "\n\nSCHEMA FIELDS:\n" in text


def test_a_schema_that_does_not_fit_is_refused_whatever_the_state() -> None:
    """With and without the switch; nothing of a schema is ever cut."""
    asked = {"state": "", "questions": {"q": {"type": "noul"}}}
    fixed = len(encoded(asked).tokens)
    assert len(encoded(asked, max_length=fixed).tokens) == fixed
    for truncate in (True, False):
        with pytest.raises(InputRefused, match=f"schema requires {fixed} tokens before state; maximum is {fixed - 1}"):
            encoded(asked, max_length=fixed - 1, truncate=truncate)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as {it} is\n", "as {it} is\n"),
        ({"b": 1, "a": "é"}, '{"a":"é","b":1}'),
        ([1250, 1250.0, 1e-05, 1e16, -0.0, 10**30], "[1250,1250.0,1e-05,1e+16,-0.0," + "1" + "0" * 30 + "]"),
        (None, "null"),
        (True, "true"),
        ([], "[]"),
    ],
)
def test_rendering(value: object, text: str) -> None:
    """Strings as they are, everything else as compact JSON with sorted keys and Python's numbers."""
    assert render(value) == text


def test_a_number_keeps_its_spelling_on_the_way() -> None:
    """From a body through the front's document to the text that the model reads."""
    from frontend.families.clef.processor import ClefProcessor
    from frontend.families.clef.profile import ClefNative

    numbers = b"[1250.0,1250,1e5,123456789012345678901234567890]"
    body = b'{"model":"m","state":{"n":' + numbers + b'},"questions":{"q":{"type":"noul"}}}'
    (unit,) = ClefNative(ClefProcessor({}, {})).prepare(body).units
    document = json.loads(unit.document)  # type: ignore[attr-defined]
    assert render(document["state"]) == '{"n":[1250.0,1250,100000.0,123456789012345678901234567890]}'


@pytest.mark.parametrize("instructions", [None, ""])
def test_a_question_without_instructions_is_its_id(instructions: str | None) -> None:
    """Null, missing and empty; anything else is rendered, `[]` and 0 included."""
    asked = {"state": "s", "questions": {"Is it so?": {"type": "noul", "instructions": instructions}}}
    made = encoded(asked)
    first, stop = made.fields[0].question
    assert bytes(made.tokens[first:stop].tolist()) == b"Is it so?"
    for value, text in (([], b"[]"), (0, b"0"), (False, b"false"), ({}, b"{}")):
        made = encoded({"state": "s", "questions": {"q": {"type": "noul", "instructions": value}}})
        first, stop = made.fields[0].question
        assert bytes(made.tokens[first:stop].tolist()) == text


@pytest.mark.parametrize("asked", [{"": {"type": "noul"}}, {"q": {"type": "choice", "criteria": {"x": "y"}}}])
def test_a_span_without_tokens_is_refused(asked: dict[str, Any]) -> None:
    """The mean of nothing is not a number: input, and not a failure of the model."""

    def forgetful(texts: Any) -> list[list[int]]:
        return [[] if '"option_id"' in text and "x" in text else list(text.encode()) for text in texts]

    with pytest.raises(InputRefused, match="question number 1 has no tokens; the model needs 1 or more") as caught:
        encoded({"state": "s", "questions": asked}, forgetful)
    assert (caught.value.status, caught.value.where) == (400, ("questions", 0))


def test_ids_and_neighbours_reach_the_model() -> None:
    """Another id, another order or another neighbour is another sequence: by this family's contract."""
    base = encoded({"state": STATE, "questions": QUESTIONS}).tokens.tolist()
    renamed = {("other" if name == "refund" else name): fields for name, fields in QUESTIONS.items()}
    for other in (renamed, dict(reversed(QUESTIONS.items())), {**QUESTIONS, "more": QUESTIONS["refund"]}):
        assert encoded({"state": STATE, "questions": other}).tokens.tolist() != base


def test_every_text_is_tokenized_by_itself_and_once() -> None:
    """Equal pieces are encoded once; the joined text never is."""
    seen: list[str] = []

    def recording(texts: Any) -> list[list[int]]:
        seen.extend(texts)
        return bytes_of(texts)

    made = encoded({"state": STATE, "questions": QUESTIONS}, recording)
    assert len(seen) == len(set(seen))
    assert "OPTION 1: " in seen
    assert max(map(len, seen)) < len(made.tokens) / 2
