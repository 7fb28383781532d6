"""docs/wire.md says what the program does: every hex byte, message, field, code and limit in it is compared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from protocol import limits
from protocol.errors import FAILURES, ProtocolError
from protocol.frames import Envelope, decode, encode
from protocol.messages import BY_KIND, Execute, Kind, Lane, Message, Result
from protocol.tensors import DTYPES, EXT_ARRAY, EXT_BLOB, EXT_INLINE_ARRAY, Blob

DOCUMENT = (Path(__file__).parents[3] / "docs" / "wire.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading of the second level."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


def rows(text: str) -> list[tuple[str, ...]]:
    """The cells of every table row whose first cell is a name in backquotes."""
    return [
        tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in text.splitlines() if line[:3] == "| `"
    ]


def hex_frames(name: str) -> list[bytes]:
    """The frames of a worked example; every offset in it is where its bytes are."""
    (block,) = re.findall(rf"^```hex {name}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    frames: list[bytearray] = []
    for line in block.splitlines():
        if line.startswith("frame "):
            assert line == f"frame {len(frames)}"
            frames.append(bytearray())
            continue
        match = re.match(r" *(\d+)   ((?:[0-9a-f]{2} )+)", line)
        assert match, line
        assert int(match[1]) == len(frames[-1]), line
        frames[-1] += bytes.fromhex(match[2])
    return [bytes(frame) for frame in frames]


EXECUTE = Execute(payload={"document": b'{"state":"rain","questions":[]}'}, request="my-1", sent_ms=1234)
RESULT = Result(outputs={"probabilities": [[0.25, 0.75]]}, elapsed_us=431)


@pytest.mark.parametrize(("message", "budget"), [(EXECUTE, 30_000), (RESULT, None)], ids=["EXECUTE", "RESULT"])
def test_the_worked_examples_are_what_the_program_sends_and_reads(message: Message, budget: int | None) -> None:
    """The hex decodes to the message it is said to be, and the message encodes to the hex."""
    frames = hex_frames(message.KIND.name)
    envelope = decode(list(frames), lane=Lane.DATA, incarnation="1-9f1c2ab4")
    assert envelope == Envelope("1-9f1c2ab4", 7, budget, message)
    assert encode(message, incarnation="1-9f1c2ab4", call=7, budget_ms=budget) == frames


def test_the_worked_unit_is_one_a_text_family_sends() -> None:
    """A small blob is plain bytes."""
    blob = replace(EXECUTE, payload={"document": Blob(EXECUTE.payload["document"])})
    assert encode(blob, incarnation="1-9f1c2ab4", call=7, budget_ms=30_000) == hex_frames("EXECUTE")


@pytest.mark.parametrize("cls", BY_KIND.values(), ids=lambda cls: cls.KIND.name)
def test_every_message_is_described_with_its_number_lanes_and_fields(cls: type[Message]) -> None:
    """Name, kind number, lanes in order, each field with type and range, all in order; every row has a meaning."""
    heading = rf"^### {cls.KIND.name} \({cls.KIND.value}\)\n\nLanes: ([a-z, ]+)\. (.*?)(?=^###|\Z)"
    ((lanes, text),) = re.findall(heading, section("Messages"), re.MULTILINE | re.DOTALL)
    assert lanes.split(", ") == [lane.value for lane in cls.LANES]
    described = [(row[0].strip("`"), row[1], row[2]) for row in rows(text)]
    assert described == [(name, of.type, of.range) for name, of in cls.FIELDS.items()]
    assert all(len(row) == 4 and len(row[3]) > 8 for row in rows(text))


def test_no_message_is_described_that_does_not_exist() -> None:
    """As many headings as kinds, in order of their numbers."""
    headings = re.findall(r"^### ([A-Z_]+) \((\d+)\)$", section("Messages"), re.MULTILINE)
    assert headings == [(BY_KIND[kind].KIND.name, str(kind)) for kind in sorted(BY_KIND)]


def test_every_failure_code_is_in_the_table() -> None:
    """With its status, whether it retires the host, and its meaning; and no other code is."""
    table = [row for row in rows(section("Errors")) if len(row) == 4]
    assert table == [
        (f"`{kind.code}`", str(kind.status), "yes" if kind.retire else "no", kind.meaning) for kind in FAILURES.values()
    ]


def test_every_protocol_error_is_in_the_table() -> None:
    """Code and class of each; and no other is."""
    table = [row[:2] for row in rows(section("Errors")) if len(row) == 3]
    assert table == [(f"`{cls.code}`", f"`{cls.__name__}`") for cls in ProtocolError.__subclasses__()]


def test_every_limit_is_in_the_table_with_its_value() -> None:
    """Names and values are those of limits.py, in its order."""
    table = {row[0].strip("`"): int(row[1].replace(",", "")) for row in rows(section("Limits"))}
    assert table == {name: value for name, value in vars(limits).items() if name.isupper()}


def test_the_numbers_in_the_text_are_the_limits() -> None:
    """Where the prose repeats a limit, it repeats the right one."""
    mebibytes = 1024 * 1024
    frames = section("Frames")
    assert f"6 .. {limits.MAX_HEADER_BYTES} " in frames
    assert f"1 .. {limits.MAX_BODY_BYTES // mebibytes} MiB" in frames
    assert f"0 .. {limits.MAX_BUFFER_BYTES // mebibytes} MiB" in frames
    assert f"at most {limits.MAX_BUFFERS} frames" in frames
    assert f"1..{limits.MAX_INCARNATION_CHARS} characters" in section("Header")
    assert f"0..{limits.MAX_BUDGET_MS:,}" in section("Header")
    assert f"At most {limits.MAX_DEPTH} levels" in section("Body")
    assert f"At most {limits.MAX_ITEMS:,} elements in each, and {limits.MAX_ITEMS_IN_ALL:,} in all" in section("Body")
    assert f"At most {limits.MAX_CONTAINERS:,} lists and maps" in section("Body")
    assert f"at most {limits.MAX_BATCH_PARTS}" in section("Batches")
    assert f"at most {limits.MAX_BATCH_FRAMES:,} frames" in section("Batches")
    assert "13, BATCH" in section("Batches") and Kind.BATCH == 13
    assert re.search(rf"at most {limits.MAX_ARRAY_DIMENSIONS} sides", section("Arrays and blobs"))


def test_extensions_and_dtypes_are_listed() -> None:
    """Every code and every dtype, and no other."""
    text = section("Arrays and blobs")
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)} == {
        EXT_ARRAY, EXT_INLINE_ARRAY, EXT_BLOB,
    }  # fmt: skip
    assert set(re.findall(r"`([<|][a-z]\d)`", text)) == set(DTYPES)


def test_the_version_history_ends_with_this_version() -> None:
    """Whoever raises the version writes down what changed."""
    versions = re.findall(r"^\| (\d+) \| .{5,} \|$", section("Versions"), re.MULTILINE)
    assert versions == [str(version) for version in range(1, limits.PROTOCOL_VERSION + 1)]
