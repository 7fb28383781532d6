"""The audit log: one JSON line for every answered decision of the main port, where an operator has asked for it.

    {"time":1764595200.123,"request_id":"...","key":"shop","model":"router","identity":"5c2f0b6a",
     "digest":"sha256 of the body","answers":[{"id":"team","winner":"billing","probability":0.93}]}

No text of a state is in it: the digest finds a request that an operator has kept. A thread of its own writes, so that
no request waits for a disk. What comes while the disk takes nothing is kept up to a bound; beyond it lines are lost,
counted, and the file itself says how many as soon as it is written again.

Rotation is by name: when the file is moved away or removed, the next lines go to a new one.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

MAX_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Of lines that are not written yet: ten thousand decisions, some seconds of a busy server."""

CLOSE_S: Final = 1.0
"""At the end, the time that the last lines have."""

log = logging.getLogger("framehost.audit")


@dataclass(frozen=True, slots=True)
class AuditStatistics:
    """Lines since this front's start."""

    written: int
    lost: int


class AuditLog:
    """The audit log of one front. `write` never blocks and never raises."""

    def __init__(self, path: Path, max_kept_bytes: int = MAX_KEPT_BYTES) -> None:
        self._path = path
        self._max_kept_bytes = max_kept_bytes
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._writing = False
        self._written = self._lost = self._unsaid = 0
        """`unsaid`: of the lost ones, those that the file has not been told of."""
        self._closing = False
        self._changed = threading.Condition()
        self._file = -1
        self._torn = False
        """Whether the file ends within a line: the disk was full."""
        self._complaint = ""
        threading.Thread(target=self._run, name="audit", daemon=True).start()

    def write(
        self,
        *,
        request_id: str,
        key: str | None,
        model: str,
        identity: str,
        digest: str,
        answers: Sequence[Mapping[str, Any]],
    ) -> None:
        """Keep one decision for the thread, or count it as lost. `key`: the name of the API key, None without keys."""
        line = {
            "time": round(time.time(), 3),
            "request_id": request_id,
            "key": key,
            "model": model,
            "identity": identity,
            "digest": digest,
            "answers": answers,
        }
        try:
            data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:  # half of a surrogate pair in a name
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self._changed:
            if self._closing or self._kept_bytes + len(data) > self._max_kept_bytes:
                self._lost += 1
                self._unsaid += 1
                return
            self._kept.append(data)
            self._kept_bytes += len(data)
            self._changed.notify_all()

    def statistics(self) -> AuditStatistics:
        """What was written and what was lost."""
        with self._changed:
            return AuditStatistics(self._written, self._lost)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait until all is written, at most `timeout_s` seconds. What comes later is lost."""
        end = time.monotonic() + timeout_s
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while (self._kept or self._writing) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._kept and not self._closing:
                    self._changed.wait()
                if not self._kept:
                    break
                lines, unsaid = self._kept, self._unsaid
                self._kept, self._unsaid, self._writing = [], 0, True
            data = b"".join(lines)
            notice = orjson.dumps({"lost": unsaid}, option=orjson.OPT_APPEND_NEWLINE) if unsaid else b""
            # Lines are kept until they are written: they count towards the bound, however long the disk takes.
            written = self._written_out(notice + data)
            with self._changed:
                self._kept_bytes -= len(data)
                self._writing = False
                if written:
                    self._written += len(lines)
                else:
                    self._lost += len(lines)
                    self._unsaid += unsaid + len(lines)
                self._changed.notify_all()
        if self._file >= 0:
            os.close(self._file)

    def _written_out(self, data: bytes) -> bool:
        """Whether all of `data` is in the file that has the name now. Why it is not is logged once."""
        try:
            self._open()
            rest = memoryview(b"\n" + data if self._torn else data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
                self._torn = bool(rest)
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the audit log cannot be written: %s", error)
            return False
        self._complaint = ""
        return True

    def _open(self) -> None:
        """Have the file open that has the name now. Raises `OSError`."""
        if self._file >= 0:
            try:
                there = self._path.stat()
            except FileNotFoundError:
                there = None
            ours = os.fstat(self._file)
            if there is not None and (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
            os.close(self._file)
            self._file, self._torn = -1, False
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __repr__(self) -> str:
        return f"<AuditLog {self._path} kept={self._kept_bytes} lost={self._lost}>"
