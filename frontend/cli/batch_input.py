"""What `framehost batch` asks about: the lines of a JSONL file, the rows of a CSV file, or what comes in a pipe.

A line becomes a request body, and a digest of that body: a rerun knows by it whether an answer that is there already
is one to the same line and the same questions.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from frontend.cli.client import UsageError
from frontend.cli.sender import Outcome

PIPE: Final = "-"
BOM: Final = b"\xef\xbb\xbf"
"""What some editors and spreadsheets put before a UTF-8 text; it is no part of it."""

DIGEST_CHARS: Final = 16
"""64 bits of sha256: two lines of a file never meet, and an output stays readable."""

MAX_ID_CHARS: Final = 1024

csv.field_size_limit(1 << 30)  # a state may be long; how long, the server says


@dataclass(frozen=True, slots=True)
class Line:
    """One request of the input."""

    number: int
    """Of the line in the file, from 1."""
    id: Any
    """What the line calls itself, a text or a number; None when it does not."""
    request: bytes | Outcome
    """The body to send, or what is wrong with a line that is none."""
    digest: str
    """Of the body, and of the line where there is none."""


class Source:
    """An input that can be read from its beginning more than once. Close it when done."""

    def __init__(self, name: str, defaults: Mapping[str, Any]) -> None:
        """`name`: a path, or - for what comes on standard input. `defaults`: `questions` and `model` of lines without.

        Raises `OSError`, and `UsageError` for what is no file and for a CSV file without questions.
        """
        self._defaults = dict(defaults)
        self._csv = name.endswith(".csv")
        self._copy = None
        self.name = name
        self._path = Path(name)
        if name == PIPE:
            # It comes once, and is read more than once: to count, to compare, and to ask.
            self.name = "standard input"
            self._copy = tempfile.NamedTemporaryFile(prefix="framehost-batch-")  # noqa: SIM115
            self._path = Path(self._copy.name)
            if sys.stdin is not None:
                shutil.copyfileobj(sys.stdin.buffer, self._copy)
            self._copy.flush()
        elif not stat.S_ISREG(self._path.stat().st_mode):
            raise UsageError(f"{name}: not a file; the lines are read more than once. For a pipe, say - as the input")
        if self._csv and "questions" not in self._defaults:
            raise UsageError(f"{name}: the rows of a CSV file are states, so the questions come from --questions FILE")

    def is_file(self, path: Path) -> bool:
        """Whether `path` is this input."""
        return path.exists() and path.samefile(self._path)

    def count(self) -> int:
        """How many requests there are."""
        with self._path.open("rb") as file:
            return sum(1 for _ in self._raw(file))

    def lines(self) -> Iterator[Line]:
        """The requests, from the first on. Blank lines are none."""
        with self._path.open("rb") as file:
            for number, raw in self._raw(file):
                if isinstance(raw, dict):
                    yield _of_row(number, raw, self._defaults)
                else:
                    yield _of_line(number, raw, self._defaults)

    def close(self) -> None:
        """Give back what was kept of a pipe."""
        if self._copy is not None:
            self._copy.close()

    def _raw(self, file: BinaryIO) -> Iterator[tuple[int, bytes | dict[str, Any]]]:
        if self._csv:
            yield from self._rows(file)
            return
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BOM) if number == 1 else line
            if text.strip():
                yield number, text

    def _rows(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of a CSV file (RFC 4180) with the number of the line on which each ends; the first names columns."""
        text = (line.decode("utf-8" if number else "utf-8-sig") for number, line in enumerate(file))
        reader = csv.reader(text, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) != len(header) or not all(header):
                raise UsageError(f"{self.name}: line 1: the columns need names, and each another one")
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    fields = f"{len(row)} fields, and the first line names {len(header)}"
                    raise UsageError(f"{self.name}: line {reader.line_num}: {fields}")
                yield reader.line_num, dict(zip(header, row, strict=True))
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.name}: line {reader.line_num + 1}: not UTF-8 text: {error}") from None
        except csv.Error as error:
            raise UsageError(f"{self.name}: line {reader.line_num}: {error}") from None


def _of_row(number: int, row: dict[str, Any], defaults: Mapping[str, Any]) -> Line:
    """The request of a row: its column `state`, or all its columns but `id` together."""
    own = row.pop("id", None)
    body = {**defaults, "state": row.get("state", row)}
    return _line(number, own, json.dumps(body, ensure_ascii=False).encode())


def _of_line(number: int, line: bytes, defaults: Mapping[str, Any]) -> Line:
    """The request of a line. One without defaults and without an id is sent as it is: what is wrong with it, the server
    says best."""
    try:
        content = json.loads(line, object_pairs_hook=_distinct)
        own = content.get("id") if isinstance(content, dict) else None
        if not isinstance(own, (str, int, float)) or isinstance(own, bool) or len(str(own)) > MAX_ID_CHARS:
            own = None
        is_request = isinstance(content, dict) and not {"state", "questions"}.isdisjoint(content)
        if isinstance(content, dict) and (is_request or "questions" not in defaults):
            if own is not None:
                del content["id"]
            elif not defaults:
                return _line(number, None, line)
            body = {**defaults, **content}
        elif "questions" in defaults:
            body = {**defaults, "state": content}
        elif not defaults:
            return _line(number, None, line)
        else:
            return _wrong(number, line, "the line is not a JSON object")
        return _line(number, own, json.dumps(body, ensure_ascii=False).encode())
    except (ValueError, RecursionError) as error:  # UnicodeError, for half of a surrogate pair, is one
        if not defaults:
            return _line(number, None, line)
        return _wrong(number, line, f"the line is not JSON text: {error}")


def _line(number: int, own: Any, body: bytes) -> Line:
    return Line(number, own, body, _digest(body))


def _wrong(number: int, line: bytes, why: str) -> Line:
    return Line(number, None, Outcome(None, None, why), _digest(line))


def _digest(body: bytes) -> str:
    return hashlib.sha256(body.strip()).hexdigest()[:DIGEST_CHARS]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all there. The server would refuse the line; here one would be lost in silence."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made
