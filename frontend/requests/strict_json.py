"""JSON that is refused rather than guessed: one value or one clear reason, for every byte string.

The standard library's C scanner does the work. It accepts more than JSON and less than safety needs,
so this module adds what is missing and keeps the usual small body at the cost of the bare scanner:

    check                               when it costs something
    ----------------------------------  --------------------------------------------------------
    UTF-8, no byte order mark           always (one decode)
    nesting depth, before any parsing   only when there are more brackets than the limit allows
    duplicate keys                      always (a length comparison per object)
    NaN, Infinity, overflowing floats   only where such a literal, or a float, occurs
    integers of too many digits         only when such a run of digits occurs
    lone surrogates                     only when an escape of a surrogate occurs

The first pass only notices that something is wrong. A second, slower pass over the same text then finds
every such place with its path, up to `MAX_FAULTS`. It runs for bodies that will be refused, once, and not
for very large ones (`MAX_EXPLAINED_BYTES`): those are told what is wrong first, without the path.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from json import JSONDecodeError, JSONDecoder, JSONEncoder
from math import isfinite
from typing import Any, Final

from frontend.errors import Fault, InvalidRequest, Misuse
from frontend.limits import CEILING_OF_MAX_DEPTH, MAX_DEPTH, MAX_EXPLAINED_BYTES, MAX_FAULTS, MAX_INTEGER_DIGITS
from frontend.requests.questions import printable

_BRACKETS: Final = b"[]{}"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
_BRACKET_STEPS: Final = bytes(1 if byte in b"[{" else 255 for byte in range(256))  # 255 is -1 as a signed byte
_SCAN_STEPS: Final = 1 << 16  # brackets looked at before the depth scan may stop
_LONG_DIGITS: Final = re.compile(rf"(?<![0-9])[0-9]{{{MAX_INTEGER_DIGITS + 1}}}")
_SURROGATE_ESCAPES: Final = ("\\ud", "\\uD")
_WHITE_SPACE: Final = " \t\n\r"


def parse(body: bytes, *, max_depth: int = MAX_DEPTH, nested_duplicates: bool = False) -> object:
    """The one JSON value in `body`, with dicts in the order of the text.

    Raises `InvalidRequest` for anything else, and nothing but that whatever the bytes are. The types:
    `json_invalid` (empty, not UTF-8, not JSON, NaN and infinities; `loc` is the character position where
    one is known), `nesting_too_deep`, `duplicate_key`, `finite_number`, `int_parsing_size` and
    `string_unicode` (a lone surrogate), whose `loc` is the path to the place.

    Integers beyond 64 bits are legal. `max_depth` counts the outermost container as 1; above
    `CEILING_OF_MAX_DEPTH` it is a `Misuse`. `nested_duplicates`: whether equal keys are an error in the outermost
    object alone, and inside it the last one counts, at the place of the first.
    """
    if max_depth > CEILING_OF_MAX_DEPTH:
        raise Misuse(f"max_depth is {max_depth}, at most {CEILING_OF_MAX_DEPTH} is possible")
    if not body:
        raise _invalid("the body is empty, a JSON object is expected")
    if body.count(b"[") + body.count(b"{") > max_depth and _depth_exceeds(body, max_depth):
        raise _too_deep(max_depth)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(body, error.start) from None
    if text[0] == "\ufeff":
        raise _invalid("the body starts with a byte order mark; send plain UTF-8")
    decoder = _FAST if len(body) <= MAX_INTEGER_DIGITS or not _LONG_DIGITS.search(text) else _FAST_LONG
    last_wins = _LastWins() if nested_duplicates else None
    if last_wins is not None:
        decoder = last_wins.decoder
    try:
        document = _decoded(decoder, text)
        if last_wins is not None and last_wins.repeated and isinstance(document, dict):
            raise _Suspect(_Bad("a key of the outermost object appears more than once", "duplicate_key"))
        if _SURROGATE_ESCAPES[0] in text or _SURROGATE_ESCAPES[1] in text:
            _ENCODER.encode(document).encode()
    except JSONDecodeError as error:
        raise _not_json(body, error) from None
    except RecursionError:
        # Only on a stack that was nearly full before we were called.
        raise _too_deep(max_depth) from None
    except ValueError as error:  # ours; Python's own digit limit; a surrogate that does not encode
        if len(body) <= MAX_EXPLAINED_BYTES:
            raise InvalidRequest(_explain(body, text, nested_duplicates=nested_duplicates)) from None
        raise InvalidRequest([_unplaced(error)]) from None
    return document


def _decoded(decoder: JSONDecoder, text: str) -> object:
    """As `decoder.decode`. An object with nothing around it, which nearly every body is, goes straight to the scanner:
    half of the time for a small one is the search for white space."""
    if text[0] == "{":
        try:
            document, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]
        except StopIteration:
            pass  # `decode` says what is wrong, and where
        else:
            if end == len(text) or not text[end:].strip(_WHITE_SPACE):
                found: object = document
                return found
    return decoder.decode(text)


# The first pass: notice.


class _Suspect(ValueError):
    """Something the scanner accepts and we do not: what to say of it, without its place."""

    def __init__(self, bad: _Bad) -> None:
        super().__init__(bad.msg)
        self.bad = bad


class _Bad:
    """What is wrong with a literal, in the place of its value."""

    __slots__ = ("kind", "msg")

    def __init__(self, msg: str, kind: str) -> None:
        self.msg = msg
        self.kind = kind


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Suspect(_duplicate(key))
            seen.add(key)
    return fields


class _LastWins:
    """Makes objects in which the last of equal keys counts; `repeated` says whether the last one made had such keys.
    The outermost one is made last."""

    def __init__(self) -> None:
        self.repeated = False

    @property
    def decoder(self) -> JSONDecoder:
        return JSONDecoder(
            object_pairs_hook=self._object, parse_float=_float, parse_constant=_constant, parse_int=_integer
        )

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        self.repeated = len(fields) != len(pairs)
        return fields


def _float(literal: str) -> float:
    value = float(literal)
    if not isfinite(value):
        raise _Suspect(_overflow(literal))
    return value


def _integer(literal: str) -> int:
    digits = len(literal.lstrip("-"))
    if digits > MAX_INTEGER_DIGITS:
        raise _Suspect(_too_many_digits(digits))
    return int(literal)


def _constant(literal: str) -> float:
    raise _Suspect(_not_a_number(literal))


def _unplaced(error: ValueError) -> Fault:
    if isinstance(error, _Suspect):
        return Fault((), error.bad.msg, error.bad.kind)
    if isinstance(error, UnicodeEncodeError):
        return Fault((), f"a string or key {_HALF_A_PAIR}", "string_unicode")
    return Fault((), "an integer has more digits than this server converts", "int_parsing_size")


_FAST: Final = JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_FAST_LONG: Final = JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_constant=_constant, parse_int=_integer
)
_ENCODER: Final = JSONEncoder(ensure_ascii=False, check_circular=False)


def _depth_exceeds(body: bytes, limit: int) -> bool:
    """Whether containers nest deeper than `limit`, in time linear in the body and without parsing it.

    Strings are cut out first. In text that is not JSON the answer is exact up to the first wrong byte, and
    the scanner goes no further than that.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(body.split(b'"')[::2])
    steps = array("b", outside.translate(_BRACKET_STEPS, _NOT_BRACKETS))
    level = 0
    for start in range(0, len(steps), _SCAN_STEPS):
        levels = list(accumulate(steps[start : start + _SCAN_STEPS], initial=level))
        if max(levels) > limit:
            return True
        level = levels[-1]
    return False


# The second pass: explain.


class _Pairs(list[tuple[str, Any]]):
    """An object with its duplicates still in it."""


def _explain_float(literal: str) -> object:
    return None if isfinite(float(literal)) else _overflow(literal)


def _explain_integer(literal: str) -> object:
    digits = len(literal.lstrip("-"))
    if digits <= MAX_INTEGER_DIGITS:
        try:
            int(literal)
        except ValueError:  # an interpreter that was started with a lower limit of its own
            return _Bad(f"an integer of {digits} digits is more than this server converts", "int_parsing_size")
        return None
    return _too_many_digits(digits)


def _not_a_number(literal: str) -> _Bad:
    return _Bad(f"{literal} is not JSON", "json_invalid")


_SLOW: Final = JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_float=_explain_float,
    parse_int=_explain_integer,
    parse_constant=_not_a_number,
)


def _explain(body: bytes, text: str, *, nested_duplicates: bool) -> list[Fault]:
    try:
        root = _SLOW.decode(text)
    except JSONDecodeError as error:  # broken further on than the first thing we disliked
        return list(_not_json(body, error).faults)
    faults = []
    for fault in _faults_in(root, []):
        if nested_duplicates and fault.type == "duplicate_key" and len(fault.loc) > 1:
            continue
        faults.append(fault)
        if len(faults) == MAX_FAULTS:
            break
    return faults or [Fault((), "the body has a value that this server does not read", "json_invalid")]


def _faults_in(node: object, path: list[str | int]) -> Iterator[Fault]:
    """Every fault at or below `node`, in the order of the text. Recursion is bounded by the depth check."""
    if isinstance(node, str):
        if not _encodes(node):
            yield Fault(tuple(path), f"the string {_HALF_A_PAIR}", "string_unicode")
    elif isinstance(node, _Bad):
        yield Fault(tuple(path), node.msg, node.kind)
    elif isinstance(node, _Pairs):
        seen = set()
        for key, value in node:
            path.append(printable(key))
            if not _encodes(key):
                yield Fault(tuple(path), f"the key {_HALF_A_PAIR}", "string_unicode")
            if key in seen:
                bad = _duplicate(key)
                yield Fault(tuple(path), bad.msg, bad.kind)
            seen.add(key)
            yield from _faults_in(value, path)
            path.pop()
    elif isinstance(node, list):
        for index, value in enumerate(node):
            path.append(index)
            yield from _faults_in(value, path)
            path.pop()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_HALF_A_PAIR: Final = "has half of a surrogate pair (\\ud800 to \\udfff)"


def _duplicate(key: str) -> _Bad:
    return _Bad(f'the key "{printable(key)}" appears more than once', "duplicate_key")


def _overflow(literal: str) -> _Bad:
    return _Bad(f"the number {printable(literal, 40)} is too large for a 64-bit float", "finite_number")


def _too_many_digits(digits: int) -> _Bad:
    return _Bad(f"an integer of {digits} digits; at most {MAX_INTEGER_DIGITS} are read", "int_parsing_size")


def _invalid(msg: str) -> InvalidRequest:
    return InvalidRequest.at((), msg, "json_invalid")


def _too_deep(limit: int) -> InvalidRequest:
    msg = f"objects and arrays are nested more than {limit} deep"
    return InvalidRequest.at((), msg, "nesting_too_deep")


def _not_utf8(body: bytes, position: int) -> InvalidRequest:
    if body[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _invalid("the body is UTF-16 or UTF-32; send UTF-8")
    return _invalid(f"the body is not UTF-8: byte {position} is not part of a character")


def _not_json(body: bytes, error: json.JSONDecodeError) -> InvalidRequest:
    start = body[:4]
    if 2 * start.count(0) >= len(start) > 0:  # a single NUL is a byte too much, in UTF-8
        return _invalid("the body is not JSON in UTF-8; it looks like UTF-16 or UTF-32")
    if not body.strip():
        return _invalid("the body is empty, a JSON object is expected")
    place = f"line {error.lineno} column {error.colno}"
    what = "a NUL byte" if error.doc[error.pos : error.pos + 1] == "\0" else error.msg.removesuffix(" at")
    return InvalidRequest.at((error.pos,), f"the body is not JSON: {what} at {place}", "json_invalid")
