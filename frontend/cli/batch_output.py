"""Where `framehost batch` puts its answers, and what it finds there.

A line is written when all before it are, so the file is at any moment the answers of the first so many lines. Each says
which request it answers (`request`, a digest) and by which weights (`identity`, a digest), so that a rerun can tell its
own lines from those of another job.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frontend.cli.batch_input import DIGEST_CHARS, PIPE, Line, Source
from frontend.cli.client import UsageError
from frontend.cli.sender import Outcome, Target

BEGIN: Final = b'{"line":'
"""How every line of an output begins. What begins otherwise was not written here and is not touched."""


@dataclass(frozen=True, slots=True)
class Written:
    """One line of an output."""

    raw: bytes
    failed: bool


class Output:
    """The answers of one job. Each line is handed to the system whole, and nothing is kept back."""

    def __init__(self, name: str, source: Source, *, overwrite: bool) -> None:
        """`name`: a path, or - for standard output, where nothing is found and nothing can be continued.

        Raises `OSError`, and `UsageError` when it is no file, is the input, or another batch is writing it.
        """
        self._path = None if name == PIPE else Path(name)
        if self._path is None:
            self._file = os.dup(sys.stdout.fileno())
            return
        if self._path.exists() and not self._path.is_file():
            raise UsageError(f"{name}: not a file; what cannot be read again cannot be continued")
        if source.is_file(self._path):
            raise UsageError(f"{name}: the output is the input")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise UsageError(f"{name}: another batch is writing it") from None
        if overwrite:
            os.ftruncate(self._file, 0)

    def found(self, source: Source, identities: Mapping[str, str], *, renewed: bool = False) -> Iterator[Written]:
        """The lines that are there, each compared with its request in `source`. Cuts off a torn last one.

        `identities`: of the weights that answer now, by the model's name, as far as the server tells. `renewed`: errors
        are asked again, so their requests may have been mended meanwhile. Raises `UsageError` at the first line that
        belongs to something else, and leaves the file as it was.
        """
        if self._path is None:
            return
        requests = source.lines()
        end = count = 0
        with self._path.open("rb") as written:
            for raw in written:
                if not raw.endswith(b"\n") and raw[: len(BEGIN)] == BEGIN[: len(raw)]:
                    break
                request = next(requests, None)
                count += 1
                document = _parsed(raw)
                why = _difference(document, request, identities, source.name, renewed=renewed and "error" in document)
                if why:
                    raise UsageError(
                        f"{self._path}: line {count} {why}. Give another output, or --overwrite to begin anew"
                    )
                yield Written(raw, "error" in document)
                end += len(raw)
        os.ftruncate(self._file, end)

    def write(self, line: bytes) -> None:
        """Append a line. After an `OSError` the file may end in a part of it, which `found` cuts off."""
        _write(self._file, line)

    def replacement(self) -> Replacement:
        """A file that takes this one's place when it is complete. Raises `UsageError` for standard output."""
        if self._path is None:
            raise UsageError("--retry-errors needs a file as the output")
        return Replacement(self._path.resolve())  # a link goes on to point to the answers

    def close(self) -> None:
        """Give the file, and the lock on it, back."""
        os.close(self._file)


class Replacement:
    """What a file will hold, beside it until `commit`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = 0
        """Written so far."""
        self._file, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        self._beside = Path(name)

    def write(self, line: bytes) -> None:
        """Append a line."""
        _write(self._file, line)
        self.lines += 1

    def commit(self) -> None:
        """Put it in the file's place, in one step."""
        os.fchmod(self._file, self._path.stat().st_mode & 0o777)
        os.fsync(self._file)
        self._beside.replace(self._path)

    def close(self) -> None:
        """Give it back; what was not committed is removed."""
        os.close(self._file)
        self._beside.unlink(missing_ok=True)


def identities(target: Target) -> dict[str, str]:
    """A digest of what the server says of each model's weights, by the model's name; empty when it does not say."""
    connection = target.connect()
    try:
        connection.request("GET", target.at(f"{target.path.rpartition('/')[0]}/models"), headers=dict(target.headers))
        response = connection.getresponse()
        listed = json.loads(response.read())["models"] if response.status == 200 else []
        return {
            str(model["name"]): hashlib.sha256(str(model["description"]).encode()).hexdigest()[:DIGEST_CHARS]
            for model in listed
        }
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return {}  # whether there is a server is found out by asking it, with all the patience that was given
    finally:
        connection.close()


def rendered(line: Line, outcome: Outcome, identities: Mapping[str, str]) -> bytes:
    """The output line of a request's outcome. `identities` as for `found`."""
    document: dict[str, Any] = {"line": line.number, "request": line.digest}
    identity = identities.get(_model(outcome.response))
    if identity is not None:
        document["identity"] = identity
    if line.id is not None:
        document["id"] = line.id
    document["status"] = outcome.status
    if outcome.error is None:
        document["response"] = outcome.response
    else:
        document["error"] = outcome.error
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _difference(
    document: dict[str, Any], request: Line | None, identities: Mapping[str, str], source: str, *, renewed: bool
) -> str:
    """Why a line of the output is none of this job's; "" when it is one. `renewed`: whatever it asked."""
    if request is None or document.get("line") != request.number or "request" not in document:
        return f"is no answer to a line of {source}"
    if document["request"] != request.digest and not renewed:
        return f"answers another request than line {request.number} of {source} with these questions makes"
    model = _model(document.get("response"))
    if "identity" in document and document["identity"] != identities.get(model, document["identity"]):
        return f"was answered by other weights than {model!r} has now"
    return ""


def _model(response: Any) -> str:
    """The name of the model that answered."""
    return str(response.get("model", "")) if isinstance(response, dict) else ""


def _write(file: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(file, rest) :]
