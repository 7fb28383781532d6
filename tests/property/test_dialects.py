"""Any body in any dialect: it becomes a request that can be prepared and answered, or it is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.http import gemini, openai, openrouter, systemone
from frontend.http.dialect import Dialect
from tests.helpers.dialect_checks import check, check_body

DIALECTS: tuple[Dialect, ...] = (systemone, openrouter, openai, gemini)
BOUNDED = settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXTS = st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "model",
        "state",
        "input",
        "questions",
        "assets",
        "type",
        "role",
        "content",
        "text",
        "data",
        "name",
        "instructions",
        "criteria",
        "choices",
        "levels",
        "value",
        "label",
        "description",
        "true",
        "false",
        "true_description",
        "call_id",
        "output",
        "arguments",
        "options",
        "image_url",
    ]
)
WORDS = st.sampled_from(
    [
        "noul",
        "choice",
        "score",
        "predicate",
        "box",
        "message",
        "user",
        "system",
        "assistant",
        "text",
        "input_text",
        "input_json",
        "input_image",
        "output_text",
        "refusal",
        "image",
        "function_call",
        "function_call_output",
    ]
)
LIKELY: st.SearchStrategy[Any] = st.recursive(
    VALUES | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | TEXTS, inner, max_size=5),
    max_leaves=25,
)
"""Documents of the words that the dialects have, in any wrong place."""

PARTS = st.lists(st.fixed_dictionaries({"type": st.just("input_text"), "text": TEXTS}), max_size=2)
SENTENCES = st.one_of(TEXTS, TEXTS, PARTS, LIKELY)
OPTIONS = st.dictionaries(TEXTS, st.none() | TEXTS | VALUES, min_size=1, max_size=3)
CHOICES = st.lists(
    st.fixed_dictionaries({"value": TEXTS | st.booleans()}, optional={"description": TEXTS}), min_size=1, max_size=3
)
LEVELS = st.lists(st.fixed_dictionaries({"label": TEXTS}, optional={"description": TEXTS}), min_size=1, max_size=3)
GOOD = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["noul", "predicate"]), "instructions": st.text("ab", min_size=1)}),
    st.fixed_dictionaries({"type": st.just("choice"), "criteria": OPTIONS, "choices": CHOICES}),
    st.fixed_dictionaries(
        {"type": st.just("score"), "criteria": st.lists(TEXTS, min_size=1, max_size=3), "levels": LEVELS}
    ),
)
"""Questions that several dialects take."""

BAD = st.fixed_dictionaries(
    {"type": WORDS},
    optional={
        "instructions": SENTENCES,
        "criteria": OPTIONS | st.lists(VALUES, max_size=3) | LIKELY,
        "choices": CHOICES | LIKELY,
        "levels": LEVELS | LIKELY,
        "name": TEXTS,
    },
)
QUESTIONS = st.one_of(GOOD, GOOD, GOOD, BAD)
MESSAGES = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "tool"]), "content": SENTENCES})
BODIES = st.fixed_dictionaries(
    {
        "questions": st.dictionaries(st.text(min_size=1, max_size=8), QUESTIONS, min_size=1, max_size=2)
        | st.lists(QUESTIONS, min_size=1, max_size=2),
        "state": SENTENCES,
        "input": SENTENCES | st.lists(MESSAGES, max_size=3),
    },
    optional={"model": TEXTS, "assets": LIKELY},
)
"""Documents that are requests, or nearly."""


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.NAME)
def test_any_document_is_answered_or_refused(dialect: Dialect) -> None:
    """Nothing else comes out of a parser, whatever is in the body."""

    @given(BODIES | LIKELY)
    @BOUNDED
    def run(document: Any) -> None:
        check(dialect, document)

    run()


@given(st.binary(max_size=200) | BODIES.map(lambda document: json.dumps(document).encode()), st.data())
@BOUNDED
def test_any_bytes_are_answered_or_refused(raw: bytes, data: st.DataObject) -> None:
    """From the bytes on, with a piece cut out or put in: parsing, choosing the dialect, reading."""
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(len(raw), start + 8)))
        patch = data.draw(
            st.sampled_from(
                [b"", b"\xff", b'"', b"{", b"]", b"\\ud800", b"NaN", b"1e400", b"\xef\xbb\xbf", b',"a":1,"a":2']
            )
        )
        raw = raw[:start] + patch + raw[end:]
    check_body(raw)
