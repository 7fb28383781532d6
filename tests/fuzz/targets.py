"""What is fuzzed: each target takes any bytes, and raises only when the code under it breaks a promise.

Where another implementation reads the same format, it is the oracle: what both accept must be the same value.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import orjson
from aiohttp import web
from aiohttp.helpers import HeadersMixin
from multidict import CIMultiDict

from frontend import limits
from frontend.errors import BadEncoding, InvalidRequest, UsageError
from frontend.http import encodings, ingress
from frontend.requests import strict_json
from protocol.errors import ProtocolError
from protocol.frames import Envelope, decode, encode
from protocol.limits import MAX_CALL_ID
from protocol.messages import Lane
from protocol.tensors import Buffer
from tests.helpers.dialect_checks import check_body
from tests.unit.protocol.samples import INCARNATION, MESSAGES, lane_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@dataclass(frozen=True, slots=True)
class Target:
    """`run` takes the fuzzer's bytes; `seeds` are inputs that get far into it."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


# The strict JSON parser, against the standard library's and orjson's.

BODY = json.dumps(
    {
        "model": "m",
        "state": {"text": "I was charged twice \u00e9 \U0001f600", "n": [1, -2.5e-3, True, None, 10**30]},
        "questions": {
            "q": {"type": "choice", "criteria": {"a": "x", "b": None}},
            "r": {"type": "noul", "instructions": "so?", "criteria": {"true": "yes"}},
            "s": {"type": "score", "criteria": ["low", "high"]},
        },
    }
).encode()
BEYOND_64_BITS = re.compile(rb"[0-9]{18}")


def parse_json(body: bytes) -> None:
    """A value that both other parsers read alike, or reasons that can be encoded; never another error."""
    try:
        value = strict_json.parse(body)
    except InvalidRequest as refusal:
        for fault in refusal.faults:
            json.dumps([fault.loc, fault.msg, fault.type], ensure_ascii=False).encode()
        if all(fault.type == "json_invalid" and "is not JSON:" in fault.msg for fault in refusal.faults):
            assert not _is_json(body), "refused for its syntax, which is fine"
        return
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    assert text == json.dumps(json.loads(body), ensure_ascii=False)
    if BEYOND_64_BITS.search(body) is None:  # orjson makes floats of these
        assert orjson.loads(body) == value


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body.decode())
    except (ValueError, RecursionError):
        return False
    return True


# Requests, from the bytes on.


OPENAI_BODY = json.dumps(
    {
        "model": "m",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        "questions": [
            {"type": "predicate", "name": "p", "instructions": "so?"},
            {"type": "choice", "choices": [{"value": "a", "description": "b"}, {"value": True}]},
            {"type": "score", "instructions": "how", "levels": [{"label": "0", "description": "low"}, {"label": "1"}]},
        ],
    }
).encode()
GEMINI_BODY = json.dumps(
    {
        "model": "models/m",
        "input": "x",
        "questions": {"q": {"type": "noul", "instructions": "so?", "criteria": {"true_description": "yes"}}},
    }
).encode()


# Compressed bodies, against the libraries' own one-shot functions. The first byte chooses, the second cuts.

ENCODINGS = sorted(encodings.NAMES)
WHOLE: dict[str, Callable[[bytes], bytes]] = {
    "deflate": lambda packed: zlib.decompress(packed, zlib.MAX_WBITS if packed[0] & 0xF == 8 else -zlib.MAX_WBITS),
    "gzip": gzip.decompress,
    "zstd": zstd.decompress,
}
MOST_UNPACKED = limits.MAX_BODY_BYTES
"""As in `ingress`: a body that becomes larger is refused as soon as it has."""


def unpack(data: bytes) -> None:
    """The same for whole and cut bytes, in pieces of bounded size; and what the library makes of them."""
    if len(data) < 2:
        return
    encoding, cut, packed = ENCODINGS[data[0] % len(ENCODINGS)], data[1] + 1, data[2:]
    whole = _unpacked(encoding, [packed])
    assert whole == _unpacked(encoding, [packed[start : start + cut] for start in range(0, len(packed), cut)])
    if whole is not None and packed and len(whole) <= MOST_UNPACKED:
        assert whole == WHOLE[encoding](packed)


def _unpacked(encoding: str, chunks: Iterable[bytes]) -> bytes | None:
    """None: refused. Cut off behind the first piece that is above the limit."""
    unpacker = encodings.Unpacker(encoding)
    pieces = bytearray()
    try:
        for chunk in chunks:
            for piece in unpacker.feed(chunk):
                assert len(piece) <= encodings.STEP_BYTES
                pieces += piece
                if len(pieces) > MOST_UNPACKED:
                    return bytes(pieces[: MOST_UNPACKED + 1])
        unpacker.end()
    except BadEncoding:
        return None
    return bytes(pieces)


def _packed() -> Iterator[bytes]:
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    made = {
        "deflate": (zlib.compress(BODY), raw.compress(BODY) + raw.flush(), zlib.compress(bytes(1 << 20), 9)),
        "gzip": (gzip.compress(BODY), gzip.compress(b"{") + gzip.compress(b"}"), gzip.compress(bytes(1 << 20))),
        "zstd": (zstd.compress(BODY), zstd.compress(b"{") + zstd.compress(b"}"), zstd.compress(bytes(1 << 20))),
    }
    for encoding, bodies in made.items():
        for cut, body in zip((255, 6, 0), bodies, strict=True):
            yield bytes((ENCODINGS.index(encoding), cut)) + body


# The wire. One byte for the lane, then frames with their length in front.

LANES = tuple(Lane)


def decode_frames(data: bytes) -> None:
    """A message that survives being sent again, or one `ProtocolError` of bounded length."""
    if not data:
        return
    frames: list[Buffer] = []
    rest = memoryview(data)[1:]
    while len(rest) >= 2:
        size = int.from_bytes(rest[:2], "big")
        frames.append(rest[2 : 2 + size])
        rest = rest[2 + size :]
    lane = LANES[data[0] % len(LANES)]
    try:
        envelope = decode(frames, lane=lane)
    except ProtocolError as error:
        assert type(error) is not ProtocolError
        assert 0 <= error.call <= MAX_CALL_ID
        assert len(str(error)) < 400
        return
    sent = _sent(envelope)
    again = decode([bytes(frame) for frame in sent], lane=lane)
    assert [bytes(frame) for frame in _sent(again)] == [bytes(frame) for frame in sent]


def _sent(envelope: Envelope) -> list[Buffer]:
    sender, call, budget_ms, message = envelope
    return encode(message, incarnation=sender, call=call, budget_ms=budget_ms)


def _frames(lane: Lane, frames: Iterable[Buffer]) -> bytes:
    return bytes((LANES.index(lane),)) + b"".join(len(frame).to_bytes(2, "big") + bytes(frame) for frame in frames)


# The refusal of bodies in parts, on the header alone.


UNSHOWN = {"Cc", "Cs", "Zl", "Zp"}
"""Categories of control characters, halves of surrogate pairs, and separators of lines and paragraphs."""


class Head(HeadersMixin):
    """As much of a request as is looked at."""

    def __init__(self, content_type: str) -> None:
        self.headers = self._headers = CIMultiDict({"Content-Type": content_type})


def refuse_parts(data: bytes) -> None:
    """Whatever the header says, it is taken for JSON or refused in words that move no cursor and have an encoding."""
    value = data.decode("utf-8", "surrogateescape")
    if any(letter in value for letter in "\r\n\0"):
        return  # the library refuses such a header before
    request = Head(value)
    try:
        ingress.refuse_form(cast(web.Request, request))
    except UsageError as refusal:
        assert request.content_type.startswith("multipart/")
        assert not {unicodedata.category(letter) for letter in refusal.message} & UNSHOWN
    else:
        assert not request.content_type.startswith("multipart/")


TARGETS = {
    "json": Target(parse_json, (BODY, b"[1e5, -0, 1E-7]", b'{"a": "\\ud83d\\ude00 \\u00e9"}', b'{"a": 1, "a": NaN}')),
    "request": Target(check_body, (BODY, OPENAI_BODY, GEMINI_BODY)),
    "encodings": Target(unpack, tuple(_packed())),
    "wire": Target(
        decode_frames,
        tuple(
            _frames(lane_of(message), encode(message, incarnation=INCARNATION, call=7, budget_ms=30_000))
            for message in MESSAGES
        ),
    ),
    "multipart": Target(
        refuse_parts, (b"multipart/form-data; boundary=x", b"application/json", b"text/plain; charset=utf-8")
    ),
}
"""By the name that `python -m tests.fuzz` takes."""
