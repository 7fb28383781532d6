"""Arrays and blobs: what travels, how, and that the receiver looks at the received bytes and not at a copy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgpack
import numpy as np
import pytest

from protocol import limits
from protocol.errors import LimitExceeded, Malformed, ProtocolError
from protocol.frames import decode, encode
from protocol.messages import Execute, Lane
from protocol.tensors import DTYPES, EXT_ARRAY, EXT_BLOB, EXT_INLINE_ARRAY, Blob, Buffer
from tests.unit.protocol.samples import INCARNATION, execute, extension, reference

EDGE = limits.OUT_OF_BAND_BYTES


def sent(**payload: Any) -> list[Buffer]:
    """The frames of an EXECUTE with this payload."""
    return encode(Execute(payload=payload), incarnation=INCARNATION, call=7)


def received(frames: list[Any]) -> dict[str, Any]:
    """The payload at the other end."""
    message = decode(frames, lane=Lane.DATA, incarnation=INCARNATION).message
    assert isinstance(message, Execute)
    return message.payload


def refusal(frames: list[Any], match: str = ".") -> type[ProtocolError]:
    """The type of the error a decode must end with; it has the call id, and says what `match` matches."""
    with pytest.raises(ProtocolError, match=match) as caught:
        decode(frames, lane=Lane.DATA)
    assert caught.value.call == 7
    return type(caught.value)


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, read-only."""
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("count", [3, 5000], ids=["inline", "out of band"])
def test_every_dtype_arrives_with_its_values(dtype: str, count: int) -> None:
    """All twelve, inside the body and as a frame."""
    array = (np.arange(count) % 2).astype(dtype)
    got = received(sent(a=array))["a"]
    assert (got.dtype.str, got.shape) == (dtype, (count,))
    assert np.array_equal(got, array)


@pytest.mark.parametrize(
    "shape", [(), (0,), (0, 3), (3, 0, 2), (1,), (2, 3), (1,) * limits.MAX_ARRAY_DIMENSIONS], ids=str
)
def test_every_shape_arrives(shape: tuple[int, ...]) -> None:
    """No dimension, empty dimensions, and as many dimensions as there may be."""
    array = np.full(shape, 2.5, np.float32)
    got = received(sent(a=array))["a"]
    assert got.shape == shape
    assert np.array_equal(got, array)


BASE = np.arange(4096.0).reshape(64, 64)
LAYOUTS = {
    "every other row": BASE[::2],
    "backwards": BASE[::-1],
    "transposed": BASE.T,
    "Fortran order": np.asfortranarray(BASE),
    "big-endian": BASE.astype(">f8"),
    "big-endian and backwards": BASE.astype(">f8")[::-1],
    "broadcast": np.broadcast_to(np.float64(3), (40, 40)),
}


@pytest.mark.parametrize("array", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("rows", [2, None], ids=["inline", "out of band"])
@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "as made"])
def test_every_layout_arrives_in_little_endian_c_order(array: Any, rows: int | None, read_only: bool) -> None:
    """The receiver sees values, not the sender's memory layout."""
    array = array[:rows, :5] if rows else array
    if read_only:
        array = array.view()
        array.flags.writeable = False
    got = received(sent(a=array))["a"]
    assert np.array_equal(got, array)
    assert got.flags.c_contiguous
    assert got.dtype.str == "<f8"


@pytest.mark.parametrize("size", [EDGE - 1, EDGE])
def test_an_array_changed_after_encode_changes_no_frame(size: int) -> None:
    """A writable array is copied: the transport may send its frame much later."""
    array = np.zeros(size, np.uint8)
    frames = sent(a=array)
    before = [bytes(frame) for frame in frames]
    array[:] = 9
    assert [bytes(frame) for frame in frames] == before


@pytest.mark.parametrize("size", [EDGE - 1, EDGE])
@pytest.mark.parametrize("view", [False, True])
def test_a_blob_changed_after_encode_changes_no_frame(size: int, view: bool) -> None:
    """A writable buffer is copied like a writable array."""
    data = bytearray(size)
    frames = sent(b=Blob(memoryview(data) if view else data))  # type: ignore[arg-type]
    before = [bytes(frame) for frame in frames]
    data[:] = b"9" * size
    assert [bytes(frame) for frame in frames] == before


def test_a_read_only_array_is_sent_without_a_copy() -> None:
    """Its frame is a view of it."""
    array = frozen(np.arange(EDGE, dtype=np.uint8))
    assert np.shares_memory(np.frombuffer(sent(a=array)[3], np.uint8), array)


def test_bytes_are_sent_without_a_copy() -> None:
    """The frame of a blob is the caller's own bytes object, or a view of its view."""
    data = bytes(EDGE)
    assert sent(b=Blob(data))[3] is data
    view = sent(b=Blob(memoryview(data)))[3]
    assert isinstance(view, memoryview)
    assert view.obj is data


@pytest.mark.parametrize(("size", "frames"), [(0, 3), (EDGE - 1, 3), (EDGE, 4), (EDGE + 1, 4)])
def test_the_threshold_decides_where_bytes_travel(size: int, frames: int) -> None:
    """Below it inside the body, from it on as a frame; both arrive equal."""
    for name, value in (("a", np.ones(size, np.uint8)), ("b", Blob(b"\1" * size))):
        message = sent(**{name: value})
        assert len(message) == frames
        got = received(message)[name]
        assert bytes(got) == b"\1" * size
        if name == "b":
            assert type(got) is (bytes if frames == 3 else memoryview)


def test_a_blob_counts_bytes_and_not_items() -> None:
    """A view of wider items, or with gaps, travels as its bytes and is measured by them."""
    wide = np.arange(1024, dtype="<f8")
    for data in (wide.data, frozen(wide.copy()).data):
        frames = sent(b=Blob(data))
        assert len(frames) == 4
        assert len(frames[3]) == 8192
        assert bytes(received(frames)["b"]) == wide.tobytes()
    assert bytes(received(sent(b=Blob(memoryview(bytes(range(100)))[::2])))["b"]) == bytes(range(0, 100, 2))
    assert received(sent(b=Blob(np.zeros((0, 3)).data)))["b"] == b""


@pytest.mark.parametrize("wrap", [bytes, memoryview, bytearray])
def test_a_received_array_is_a_read_only_view_of_the_frame(wrap: Any) -> None:
    """No copy is made, whatever the transport hands over, and nobody can write through it."""
    frames: list[Any] = [bytes(frame) for frame in sent(a=np.arange(6000.0).reshape(60, 100))]
    frames[3] = wrap(frames[3])
    got = received(frames)["a"]
    assert np.shares_memory(got, np.frombuffer(frames[3], np.uint8))
    assert got.shape == (60, 100)
    with pytest.raises(ValueError, match="read-only"):
        got[0, 0] = 1


@pytest.mark.parametrize("wrap", [bytes, memoryview, bytearray])
def test_a_received_blob_is_a_read_only_view_of_the_frame(wrap: Any) -> None:
    """No copy is made, and nobody can write through it."""
    frames: list[Any] = [bytes(frame) for frame in sent(b=Blob(b"b" * EDGE))]
    frames[3] = wrap(frames[3])
    got = received(frames)["b"]
    assert np.shares_memory(np.frombuffer(got, np.uint8), np.frombuffer(frames[3], np.uint8))
    assert got.readonly


def test_many_buffers_find_their_places() -> None:
    """References go by index, at any place in the body."""
    frames = sent(a=[np.full(EDGE, n, np.uint8) for n in range(5)], b={"c": Blob(b"x" * EDGE)})
    assert len(frames) == 9
    payload = received(frames)
    assert [int(array[0]) for array in payload["a"]] == [0, 1, 2, 3, 4]
    assert payload["b"]["c"] == b"x" * EDGE


ONE = reference(EXT_BLOB, 0)
U1 = reference(EXT_ARRAY, 0, "|u1", [2])


@pytest.mark.parametrize(
    "frames",
    [
        execute(ONE),
        execute(U1),
        execute(reference(EXT_BLOB, 1), b"ab"),
        execute(reference(EXT_BLOB, -1), b"ab"),
        execute(b"\x92" + reference(EXT_BLOB, True) + ONE, b"ab", b"cd"),
        execute(reference(EXT_BLOB, "0"), b"ab"),
        execute(reference(EXT_BLOB, None), b"ab"),
    ],
)
def test_a_reference_to_a_buffer_that_is_not_there_is_refused(frames: list[Buffer]) -> None:
    """The index is a number of this message's buffers."""
    assert refusal(frames) is Malformed


@pytest.mark.parametrize("frames", [execute(b"\xc0", b"ab"), execute(ONE, b"ab", b"cd"), execute(b"\xc0", b"")])
def test_a_buffer_that_nothing_refers_to_is_refused(frames: list[Buffer]) -> None:
    """Bytes nobody asked for are not carried along."""
    assert refusal(frames) is Malformed


@pytest.mark.parametrize("pair", [ONE + ONE, U1 + U1, ONE + U1, U1 + ONE])
def test_a_buffer_referenced_twice_is_refused(pair: bytes) -> None:
    """By two blobs, two arrays, or one of each: two values never share one frame."""
    assert refusal(execute(b"\x92" + pair, b"ab")) is Malformed


@pytest.mark.parametrize(
    ("dtype", "shape", "raw"),
    [
        ("<f4", [2], b"1234567"), ("<f4", [2], b"123456789"), ("<f4", [], b""), ("|u1", [2, 2], b"abc"),
    ],
)  # fmt: skip
def test_bytes_that_are_not_the_arrays_size_are_refused(dtype: str, shape: list[int], raw: bytes) -> None:
    """Shape times item size is the length, exactly, inline and out of band."""
    told = f"^an array of shape .* does not have {len(raw)} bytes$"
    assert refusal(execute(reference(EXT_ARRAY, 0, dtype, shape), raw), told) is Malformed
    assert refusal(execute(reference(EXT_INLINE_ARRAY, dtype, shape, raw)), told) is Malformed


@pytest.mark.parametrize(
    "dtype", ["|O", "|O8", "<U1", "|S2", "<M8[s]", "<m8[s]", "<c8", ">f4", "f4", "", None, 4, b"<f4"]
)
def test_an_unlisted_dtype_is_refused(dtype: Any) -> None:
    """Objects, text, dates, complex numbers, other byte orders and other spellings do not exist on the wire."""
    assert refusal(execute(reference(EXT_ARRAY, 0, dtype, [1]), b"1234")) is Malformed
    assert refusal(execute(reference(EXT_INLINE_ARRAY, dtype, [1], b"1234"))) is Malformed


@pytest.mark.parametrize("shape", [None, 2, "2", {"2": 1}, [2.0], [-2], [True, 2], ["2"], [None], [[2]]])
def test_a_shape_is_a_list_of_sizes(shape: Any) -> None:
    """Nothing else is taken for one."""
    assert refusal(execute(reference(EXT_ARRAY, 0, "|u1", shape), b"ab")) is Malformed
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", shape, b"ab"))) is Malformed


@pytest.mark.parametrize("code", [EXT_ARRAY, EXT_INLINE_ARRAY, EXT_BLOB])
@pytest.mark.parametrize(
    "data",
    [b"", b"\xc0", b"\x90", b"\x94\x00\x00\x00\x00", b"\x80", b"\x93\x00", b"\xdd\xff\xff\xff\xff", b"\x81\x01\x02"],
)
def test_a_reference_of_the_wrong_form_is_refused(code: int, data: bytes) -> None:
    """A reference is a list of its own number of fields and nothing more."""
    assert refusal(execute(extension(code, data), b"ab")) is Malformed


def test_an_inline_array_has_bytes() -> None:
    """Text is not bytes."""
    assert (
        refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", [2], "ab")), "^an inline array without bytes$") is Malformed
    )
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", [2], [1, 2]))) is Malformed


def test_a_boolean_array_holds_zeros_and_ones() -> None:
    """Any other byte would be a boolean that is neither true nor false."""
    assert list(received(execute(reference(EXT_INLINE_ARRAY, "|b1", [2], b"\0\1")))["x"]) == [False, True]
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|b1", [2], b"\0\2"))) is Malformed
    assert refusal(execute(reference(EXT_ARRAY, 0, "|b1", [2]), b"\xff\1")) is Malformed


UNSENDABLE = {
    "objects": np.array([{}, None]),
    "text": np.array(["a", "b"]),
    "byte strings": np.array([b"a"]),
    "dates": np.array(["2026-01-01"], "datetime64[D]"),
    "durations": np.array([1], "timedelta64[s]"),
    "complex": np.zeros(2, np.complex64),
    "records": np.zeros(2, [("a", "<f4")]),
    "long doubles": np.zeros(2, np.longdouble),
    "a numpy scalar": np.float32(1),
    "a masked array": np.ma.masked_array([1], [True]),
    "a dtype": np.dtype("<f4"),
}


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_an_unlisted_kind_of_array_is_not_sent(value: Any) -> None:
    """The sender hears of it; nothing is ever pickled."""
    with pytest.raises(Malformed):
        sent(x=value)


@pytest.mark.parametrize("data", ["text", None, 5, [1]])
def test_a_blob_of_something_else_is_not_sent(data: Any) -> None:
    """A blob is bytes."""
    with pytest.raises(Malformed):
        sent(x=Blob(data))


def test_dimensions_are_limited_at_both_ends() -> None:
    """One more than the limit is neither sent nor taken."""
    shape = [1] * (limits.MAX_ARRAY_DIMENSIONS + 1)
    with pytest.raises(LimitExceeded):
        sent(x=np.zeros(shape))
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", shape, b"a"))) is LimitExceeded


def test_the_sides_of_an_empty_array_are_limited_at_both_ends() -> None:
    """An empty array costs no bytes, so its sides need a limit of their own."""
    most = limits.MAX_BUFFER_BYTES
    assert received(sent(x=np.zeros((0, most), np.uint8)))["x"].shape == (0, most)
    with pytest.raises(LimitExceeded):
        sent(x=np.zeros((0, most + 1), np.uint8))
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", [0, most + 1], b""))) is LimitExceeded
    assert refusal(execute(reference(EXT_INLINE_ARRAY, "|u1", [0] + [most] * 7, b""))) is Malformed


def test_a_process_that_moves_only_text_never_imports_numpy() -> None:
    """In a fresh interpreter, a message with a small and one with a large blob go both ways without it."""
    program = """
import sys
from protocol.frames import decode, encode
from protocol.messages import Execute, Lane
from protocol.payloads import TextRequest
for size in (300, 100_000):
    payload = TextRequest(b"x" * size).to_wire()
    message = decode(encode(Execute(payload=payload), incarnation="i"), lane=Lane.DATA).message
    assert TextRequest.from_wire(message.payload).document == b"x" * size
print([name for name in ("numpy", "zmq", "asyncio", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_references_are_what_the_table_of_extensions_says() -> None:
    """Code and fields of each of the three extensions, as they stand on the wire."""
    small, large = np.ones(2, "<u2"), frozen(np.ones(EDGE, "|u1"))
    body = msgpack.unpackb(sent(i=small, o=large, b=Blob(bytes(EDGE)))[2])["payload"]
    assert body["i"] == msgpack.ExtType(2, msgpack.packb(["<u2", [2], b"\1\0\1\0"]))
    assert body["o"] == msgpack.ExtType(1, msgpack.packb([0, "|u1", [EDGE]]))
    assert body["b"] == msgpack.ExtType(3, msgpack.packb([1]))
