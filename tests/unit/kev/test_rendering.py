"""The texts that a Kev model reads, compared with what the public code makes of the same values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.families.kev.rendering import for_tokens, laid_out, question
from frontend.families.refusal import Refused
from protocol.contracts.kev import DELIMITERS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n ", "as it is\n "),
        (None, ""),
        (True, "True"),
        (0, "0"),
        (1.0, "1.0"),
        (1e-05, "1e-05"),
        (10**30, "1000000000000000000000000000000"),
        ([], ""),
        ({}, ""),
        ([1, None, "a"], "- 1\n- \n- a"),
        ({"a": None, "b": False}, "a: \nb: False"),
        ({"a": {"b": [1, True]}}, "a:\n  b:\n    - 1\n    - True"),
        ({"a": []}, "a:\n"),
        ([{"a": 1, "b": 2}, [3, 4]], "- a: 1\n  b: 2\n- - 3\n  - 4"),
        (["  led\n  on"], "- led\n  on"),
        ({"two\nlines": "x\ny"}, "two\nlines: x\ny"),
        ([[[1]]], "- - - 1"),
        ({"k": [{"x": [1]}, "z"]}, "k:\n  - x:\n      - 1\n  - z"),
    ],
)
def test_values(value: Any, text: str) -> None:
    """Lines instead of JSON; numbers as Python writes them; a first line follows its dash."""
    assert laid_out(value) == text


@pytest.mark.parametrize(
    ("fields", "options", "names"),
    [
        ({"type": "noul", "instructions": "i"}, ("no", "yes"), ("false", "true")),
        ({"type": "noul", "instructions": "i", "criteria": None}, ("no", "yes"), ("false", "true")),
        (
            {"type": "noul", "instructions": "i", "criteria": {"true": "paid", "false": 0, "other": 1}},
            ("no: 0", "yes: paid"),
            ("false", "true"),
        ),
        (
            {"type": "choice", "instructions": "i", "criteria": {"a": None, "b": "", "c": 0, "d": False, "e": ["x"]}},
            ("a", "b", "c: 0", "d: False", "e: - x"),
            ("a", "b", "c", "d", "e"),
        ),
        (
            {"type": "score", "instructions": "i", "criteria": ["low", None, {"n": 2}]},
            ("low", "", "n: 2"),
            ("0", "1", "2"),
        ),
    ],
)
def test_options(fields: Any, options: tuple[str, ...], names: tuple[str, ...]) -> None:
    """No and yes in this order; null and "" describe nothing; a level has no number."""
    rendered = question("q", fields)
    assert (rendered.options, rendered.names) == (options, names)
    assert rendered.instructions == "i"


def test_null_instructions_are_no_text() -> None:
    """In the family's own dialect they are there, and empty."""
    assert question("q", {"type": "noul", "instructions": None}).instructions == ""


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        ([], (), "the definition is an object"),
        ({"instructions": "i"}, ("type",), "the type is choice, noul or score"),
        ({"type": "noul"}, ("instructions",), "there are no instructions"),
        ({"type": "noul", "instructions": "i", "criteria": []}, ("criteria",), "an object of true and false"),
        ({"type": "choice", "instructions": "i"}, ("criteria",), "an object of 1 to 255 options"),
        ({"type": "choice", "instructions": "i", "criteria": {}}, ("criteria",), "1 to 255 options"),
        (
            {"type": "choice", "instructions": "i", "criteria": dict.fromkeys(map(str, range(256)))},
            ("criteria",),
            "1 to 255 options",
        ),
        ({"type": "score", "instructions": "i", "criteria": {"0": 1}}, ("criteria",), "a list of 2 to 255 levels"),
        ({"type": "score", "instructions": "i", "criteria": ["a"]}, ("criteria",), "2 to 255 levels"),
        ({"type": "score", "instructions": "i", "criteria": ["a"] * 256}, ("criteria",), "2 to 255 levels"),
    ],
)
def test_what_is_no_question(fields: Any, place: tuple[str, ...], message: str) -> None:
    """Told with its place and its limit."""
    with pytest.raises(Refused, match=message) as caught:
        question("q", fields)
    assert caught.value.place == ("q", *place)


@pytest.mark.parametrize("count", [1, 255])
def test_as_many_options_as_there_may_be(count: int) -> None:
    criteria = dict.fromkeys(map(str, range(count)))
    assert len(question("q", {"type": "choice", "instructions": "i", "criteria": criteria}).options) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<|box_end|>", "<¦box_end¦>"),
        ("a<|x_1|><|Y|>b", "a<¦x_1¦><¦Y¦>b"),
        ("<| box_end |>", "<| box_end |>"),
        ("<||>", "<||>"),
        ("<|<|fim_suffix|>|>", "<|<¦fim_suffix¦>|>"),
        ("<|é|>", "<|é|>"),
        ("<think>", "<think>"),
    ],
)
def test_a_control_token_in_a_text_is_none(text: str, expected: str) -> None:
    """Its bars are replaced; what is spelled otherwise is no token."""
    assert for_tokens(text) == expected


PIECES = st.lists(st.sampled_from([*DELIMITERS, "<|", "|>", "<", "|", ">", "fim_prefix", "x"]), max_size=12).map(
    "".join
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), PIECES)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(PIECES, inner, max_size=4)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(VALUES)
def test_nothing_a_client_writes_is_a_delimiter(value: Any) -> None:
    """Neither in a text nor in a key, nor put together of parts; and nothing that was said is lost."""
    text = laid_out(value)
    neutral = for_tokens(text)
    assert not any(delimiter in neutral for delimiter in DELIMITERS)
    assert neutral.replace("¦", "|") == text.replace("¦", "|")


def reference(value: Any) -> list[str]:
    """The lines of a value, made of lists of lines instead of texts with margins."""
    if isinstance(value, dict):
        lines: list[str] = []
        for key, item in value.items():
            inner = reference(item)
            if isinstance(item, (dict, list)):
                lines += [f"{key}:", *(f"  {line}" if line else "" for line in inner or [""])]
            else:
                lines += [f"{key}: {inner[0]}"]
        return lines
    if isinstance(value, list):
        lines = []
        for item in value:
            first, *rest = reference(item) or [""]
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        return lines
    return ["" if value is None else str(value)]


WORD = st.text("abc", min_size=1, max_size=3)
TREES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), WORD),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4), st.dictionaries(WORD, inner, min_size=1, max_size=4)
    ),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(TREES)
def test_generated_values(value: Any) -> None:
    """As another way of writing the same rules says, for texts of one line."""
    assert laid_out(value) == "\n".join(reference(value)), json.dumps(value)
