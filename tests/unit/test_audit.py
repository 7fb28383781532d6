"""The audit log's file: every line once, no waiting for the disk, rotation by name, and what is lost is said."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from frontend.observation import audit
from frontend.observation.audit import AuditLog, AuditStatistics

GUARD_S = 60.0


def note(log: AuditLog, request_id: str) -> None:
    log.write(request_id=request_id, key="shop", model="m", identity="5c2f", digest="00", answers=[])


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def identifiers(file: Path) -> list[str]:
    return [line["request_id"] for line in lines(file)]


def flushed(log: AuditLog, count: int) -> None:
    """Wait until so many lines have left the queue, one way or the other."""
    with log._changed:
        assert log._changed.wait_for(lambda: log._written + log._lost >= count, GUARD_S)


def test_every_line_is_there_at_the_end(tmp_path: Path) -> None:
    """In order, in a file that its owner alone can read; what comes after the end is lost, and raises nothing."""
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    for number in range(200):
        note(log, str(number))
    log.close(GUARD_S)
    assert identifiers(file) == [str(number) for number in range(200)]
    assert file.stat().st_mode & 0o777 == 0o600
    note(log, "late")
    assert log.statistics() == AuditStatistics(written=200, lost=1)


def test_a_file_that_was_moved_away_is_followed_by_a_new_one(tmp_path: Path) -> None:
    """As logrotate does it, without a word to the server; a file that is there is added to."""
    file, old = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    file.write_text('{"request_id":"0"}\n')
    log = AuditLog(file)
    note(log, "1")
    flushed(log, 1)
    file.rename(old)
    note(log, "2")
    log.close(GUARD_S)
    assert identifiers(old) == ["0", "1"]
    assert identifiers(file) == ["2"]


def test_a_disk_that_takes_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are kept up to the bound, the rest is counted, and the file says how many as soon as it can."""
    taken, go_on = threading.Event(), threading.Event()
    write = os.write

    def slow(descriptor: int, data: bytes) -> int:
        taken.set()
        assert go_on.wait(GUARD_S)
        return write(descriptor, data)

    monkeypatch.setattr(audit.os, "write", slow)
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file, max_kept_bytes=250)
    note(log, "0")
    assert taken.wait(GUARD_S)
    for number in range(1, 10):
        note(log, str(number))
    kept = log._kept_bytes
    assert kept <= 250
    lost = log.statistics().lost
    assert lost > 0
    go_on.set()
    log.close(GUARD_S)
    found = lines(file)
    assert {"lost": lost} in found
    assert log.statistics() == AuditStatistics(written=10 - lost, lost=lost)
    assert len(found) == 10 - lost + 1


def test_a_full_disk_loses_lines_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A line that was torn by it does not spoil the next one."""
    write = os.write
    full = True

    def on_a_full_disk(descriptor: int, data: bytes) -> int:
        if not full:
            return write(descriptor, data)
        if os.fstat(descriptor).st_size == 0:
            return write(descriptor, bytes(data[:7]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit.os, "write", on_a_full_disk)
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    for number in range(2):
        note(log, str(number))
        flushed(log, number + 1)
    full = False
    note(log, "2")
    log.close(GUARD_S)
    torn, told, last = file.read_text().splitlines()
    assert (torn, told) == ('{"time"', '{"lost":2}')
    assert json.loads(last)["request_id"] == "2"
    assert [record.message for record in caplog.records] == [
        "the audit log cannot be written: [Errno 28] No space left on device"
    ]


def test_a_name_that_is_no_utf_8_is_noted(tmp_path: Path) -> None:
    """Half of a surrogate pair, escaped as JSON has it."""
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file)
    note(log, "\ud800")
    log.close(GUARD_S)
    assert identifiers(file) == ["\ud800"]
