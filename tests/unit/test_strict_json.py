"""`frontend.requests.strict_json`: one value or one clear reason, for every byte string."""

from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from frontend.errors import Fault, InvalidRequest, Misuse
from frontend.requests.strict_json import (
    CEILING_OF_MAX_DEPTH,
    MAX_DEPTH,
    MAX_EXPLAINED_BYTES,
    MAX_FAULTS,
    MAX_INTEGER_DIGITS,
    parse,
)


def faults(body: bytes) -> tuple[Fault, ...]:
    with pytest.raises(InvalidRequest) as refused:
        parse(body)
    assert refused.value.status == 422
    assert 1 <= len(refused.value.faults) <= MAX_FAULTS
    return refused.value.faults


def kinds(body: bytes) -> list[tuple[tuple[str | int, ...], str]]:
    return [(fault.loc, fault.type) for fault in faults(body)]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=30,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=300, derandomize=True, deadline=None)
def test_a_valid_document_is_what_the_standard_library_reads(value: object, ascii_only: bool, indent: int) -> None:
    """Strictness changes no value, no type and no order of a document that is fine."""
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    parsed = parse(body)
    assert parsed == json.loads(body)
    assert json.dumps(parsed) == json.dumps(json.loads(body))


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ud8Eeé01-.NaInfity \ue000', max_size=60).map(str.encode))
@example(b'{"a":NaN,"a":1e999,"\\ud800":[]}')
@settings(max_examples=600, derandomize=True, deadline=None)
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    """Whatever arrives, the outcome is a value that can be encoded again or an InvalidRequest with a reason."""
    try:
        value = parse(body)
    except InvalidRequest as refused:
        for fault in refused.faults:
            json.dumps([fault.loc, fault.msg, fault.type], ensure_ascii=False).encode()
    else:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "UTF-16"),
        ("{}".encode("utf-16-le"), "UTF-16"),
        ("{}".encode("utf-32-be"), "UTF-16 or UTF-32"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'"\xed\xa0\xbd"', "not UTF-8"),
        (b'{"a": 1', "line 1 column 8"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b"{} {}", "Extra data"),
        (b'"\x01"', "control character at line 1 column 2"),
        (b'{\x00"a": 1}', "a NUL byte at line 1 column 2"),
        (b'{"a":\n"x\x00y"}', "a NUL byte at line 2 column 3"),
        (b'{"a": 1}\x00', "a NUL byte at line 1 column 9"),
        (b"[01]", "not JSON"),
        (b"[.5]", "not JSON"),
        (b"undefined", "not JSON"),
    ],
)
def test_what_is_not_json_is_refused_with_a_reason(body: bytes, words: str) -> None:
    """Not JSON, or not in UTF-8: `json_invalid`, and the sentence says which of the two."""
    (fault,) = faults(body)
    assert fault.type == "json_invalid"
    assert words.lower() in fault.msg.lower()


def test_the_place_of_a_syntax_error_is_its_position() -> None:
    """`loc` holds the character at which reading stopped."""
    assert kinds('{"é": tru}'.encode()) == [((6,), "json_invalid")]


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
def test_literals_that_only_javascript_knows_are_refused(literal: bytes) -> None:
    """NaN and the infinities are not JSON, wherever they are; the place is named."""
    assert kinds(b'{"state": {"x": [1, ' + literal + b"]}}") == [(("state", "x", 1), "json_invalid")]


@pytest.mark.parametrize("literal", [b"1e400", b"-1e400", b"1" * 310 + b".0", b"1E+309", b"0.1e310"])
def test_a_float_that_overflows_is_refused(literal: bytes) -> None:
    """A number that would become an infinity is refused, not turned into one."""
    assert kinds(b'{"a": ' + literal + b"}") == [(("a",), "finite_number")]


def test_the_largest_floats_are_read() -> None:
    """Everything that fits a double is a value; what underflows is zero, as everywhere."""
    assert parse(b"[1.7976931348623157e308, 1e-400]") == [1.7976931348623157e308, 0.0]


def test_a_duplicate_key_is_named_with_its_path() -> None:
    """At any level, after decoding escapes; two different keys that look alike are no duplicates."""
    body = b'{"q": [{"a": 1, "b": {"x": 1, "\\u0078": 2}}], "Q": 1}'
    (fault,) = faults(body)
    assert (fault.loc, fault.type) == (("q", 0, "b", "x"), "duplicate_key")
    assert '"x"' in fault.msg
    assert parse('{"é": 1, "e\u0301": 2}'.encode()) == {"é": 1, "e\u0301": 2}


def test_every_fault_of_a_body_is_listed_up_to_a_bound() -> None:
    """Reasons come in the order of the text, at most MAX_FAULTS of them."""
    body = b'{"a": NaN, "a": 1e400, "b": "\\udc00"}'
    assert kinds(body) == [
        (("a",), "json_invalid"),
        (("a",), "duplicate_key"),
        (("a",), "finite_number"),
        (("b",), "string_unicode"),
    ]
    assert len(faults(b"[" + b",".join([b"NaN"] * 50) + b"]")) == MAX_FAULTS


@pytest.mark.parametrize("body", [rb'"\ud83d"', rb'"\uD83D"', rb'"\ude00\ud83d"', rb'"\ud83dx\ude00"', rb'"\udfff"'])
def test_half_a_surrogate_pair_in_a_string_is_refused(body: bytes) -> None:
    """It cannot be encoded for a tokenizer or in an answer, so it never gets past the parser."""
    assert kinds(body) == [((), "string_unicode")]


def test_half_a_surrogate_pair_in_a_key_is_refused() -> None:
    """Keys become question ids and option names; the place shows it escaped, so that it can be answered."""
    assert kinds(rb'{"a": {"\ud83d": 1}}') == [(("a", "\\ud83d"), "string_unicode")]


def test_a_whole_surrogate_pair_is_a_character() -> None:
    """Clients that escape everything send emoji as two escapes; an escaped backslash is no escape at all."""
    assert parse(rb'{"\ud83d\ude00": "\uD83D\uDE00", "b": "\\ud83d"}') == {"😀": "😀", "b": "\\ud83d"}


def nested(depth: int, left: bytes = b"[", right: bytes = b"]", core: bytes = b"") -> bytes:
    return left * depth + core + right * depth


@pytest.mark.parametrize(
    ("left", "core", "right"), [(b"[", b"", b"]"), (b'{"a":', b"1", b"}"), (b'[{"]":', b"1", b"}]")]
)
def test_depth_is_refused_one_past_the_limit(left: bytes, core: bytes, right: bytes) -> None:
    """Exactly MAX_DEPTH containers inside each other are read."""
    levels = left.count(b"[") + left.count(b"{")
    parse(nested(MAX_DEPTH // levels, left, right, core))
    assert kinds(b"[" + nested(MAX_DEPTH // levels, left, right, core) + b"]") == [((), "nesting_too_deep")]


def test_the_limit_of_depth_is_the_callers() -> None:
    """A dialect with another limit passes it; one that recursion cannot serve is a programming error."""
    parse(nested(127), max_depth=127)
    with pytest.raises(InvalidRequest):
        parse(nested(3), max_depth=2)
    parse(nested(CEILING_OF_MAX_DEPTH), max_depth=CEILING_OF_MAX_DEPTH)
    with pytest.raises(Misuse):
        parse(b"{}", max_depth=CEILING_OF_MAX_DEPTH + 1)


def test_brackets_are_counted_by_depth_and_not_by_number() -> None:
    """Wide documents and brackets inside strings are not deep, whatever they escape."""
    wide = json.dumps([[{}, []]] * 5000).encode()
    assert parse(wide) == json.loads(wide)
    for text in ("[" * 500, '"[' * 100, '\\"[' * 100, "\\[\\" * 100, "\\\\" * 7 + "{" * 100):
        assert parse(json.dumps({"a": [text]}).encode()) == {"a": [text]}
    # The same brackets, outside of a string that an escape seems to keep open.
    assert kinds(b'["\\\\",' + nested(64) + b"]") == [((), "nesting_too_deep")]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b'{"ignored":' + nested(100_000) + b"}"])
def test_hostile_depth_is_refused_before_anything_recurses(body: bytes) -> None:
    """A hundred thousand levels are a refusal like any other, in a field nobody reads too."""
    assert kinds(body) == [((), "nesting_too_deep")]


def test_integers_have_a_limit_of_digits_and_none_of_bits() -> None:
    """MAX_INTEGER_DIGITS digits are read exactly; one more is refused with its place, and only as a number."""
    longest = "9" * MAX_INTEGER_DIGITS
    assert parse(f"[{longest}, -{longest}]".encode()) == [10**MAX_INTEGER_DIGITS - 1, 1 - 10**MAX_INTEGER_DIGITS]
    assert kinds(f'{{"a": [0, -{longest}9]}}'.encode()) == [(("a", 1), "int_parsing_size")]
    assert parse(f'["{longest}9", 0.{longest}9]'.encode()) == [longest + "9", pytest.approx(1.0)]
    assert parse(b"18446744073709551616") == 2**64
    assert parse(rb'{"\ud83d\ude00": ' + longest.encode() + b"}") == {"😀": 10**MAX_INTEGER_DIGITS - 1}


@pytest.mark.parametrize(("interpreter", "digits"), [(0, MAX_INTEGER_DIGITS + 1), (1000, 2000)])
def test_the_limit_of_digits_is_ours_and_not_only_the_interpreters(interpreter: int, digits: int) -> None:
    """An interpreter started with another limit, or with none, refuses with a reason all the same."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(interpreter)
    try:
        assert kinds(b"[" + b"9" * digits + b"]") == [((0,), "int_parsing_size")]
    finally:
        sys.set_int_max_str_digits(before)


def test_nested_duplicates_may_be_allowed() -> None:
    """Then the last one counts at the first one's place, the outermost object is as strict as ever, and so is the
    rest."""
    allowed = parse(b'{"s": {"a": 1, "b": [{"x": 1, "x": 2}], "a": 3}}', nested_duplicates=True)
    assert allowed == {"s": {"a": 3, "b": [{"x": 2}]}}
    assert list(allowed["s"]) == ["a", "b"]  # type: ignore[index]
    assert parse(b'[{"a": 1, "a": 2}]', nested_duplicates=True) == [{"a": 2}]
    for body, place in ((b'{"a": {"b": 1, "b": 2}, "a": 1}', ("a",)), (b'{"a": {"b": 1, "b": NaN}}', ("a", "b"))):
        with pytest.raises(InvalidRequest) as caught:
            parse(body, nested_duplicates=True)
        assert [fault.loc for fault in caught.value.faults] == [place]


def test_what_a_client_wrote_is_shortened_in_messages() -> None:
    """A key of a megabyte does not come back in the refusal."""
    key = b"k" * 1_000_000
    (fault,) = faults(b'{"' + key + b'": 1, "' + key + b'": 2}')
    assert len(fault.msg) < 200
    assert len(str(fault.loc)) < 200


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b"NaN", "json_invalid"),
        (b"1e400", "finite_number"),
        (b"9" * (MAX_INTEGER_DIGITS + 1), "int_parsing_size"),
        (rb'"\ud800"', "string_unicode"),
    ],
)
def test_a_very_large_body_is_refused_with_the_reason_alone(value: bytes, kind: str) -> None:
    """Up to MAX_EXPLAINED_BYTES a body is walked for the place; above it the first reason must do."""
    around = len(b'{"a": [""], "b": }') + len(value)
    small, large = (b'{"a": ["' + b"x" * (MAX_EXPLAINED_BYTES + more - around) for more in (0, 1))
    tail = b'"], "b": ' + value + b"}"
    (fault,) = faults(small + tail)
    assert (fault.loc[0], fault.type) == ("b", kind)
    (unplaced,) = faults(large + tail)
    assert (unplaced.loc, unplaced.type) == ((), kind)


def test_order_and_number_types_are_kept() -> None:
    """The order of keys is the client's; an integer stays one and a float stays one."""
    value = parse(b'{"z": 1, "10": 1.0, "2": 1e2, "__proto__": -0.0}')
    assert isinstance(value, dict)
    assert list(value) == ["z", "10", "2", "__proto__"]
    assert [type(number) for number in value.values()] == [int, float, float, float]
    assert math.copysign(1, value["__proto__"]) == -1
