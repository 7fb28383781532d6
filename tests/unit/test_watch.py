"""The table of `framehost status --watch`: what a row says, and what of it fits into a window."""

from __future__ import annotations

from typing import Any

from frontend.cli import watch

HOST: dict[str, Any] = {
    "model": "router",
    "deployment": "router@2",
    "replica": 0,
    "role": "current",
    "state": "ready",
    "incarnation": "3-9f1c2ab4",
    "pid": 4711,
    "rss_bytes": 512 * 2**20,
    "restarts": 1,
    "progress": None,
    "progress_age_s": 0.2,
    "silent_s": 0.0,
    "failed": "",
    "last_death": "killed by SIGKILL\nand what it said before",
}
MODEL: dict[str, Any] = {
    "id": "router@2",
    "scheduler": {"waiting": 3, "running": 1},
    "admissions": [{"outstanding": 4, "requests": 1024}],
    "link": {"owed_s": 0.4},
    "waiting_for_host": 0,
    "replicas": [],
}
REPORT: dict[str, Any] = {
    "url": "http://127.0.0.1:8080",
    "uptime_s": 62.4,
    "stopping": False,
    "front_process": {"pid": 4712, "rss_bytes": 2**30, "restarts": 0, "serving": True, "silent_s": 0.0},
    "front": {"requests": {"open": 4}, "models": {"router": MODEL}, "others": []},
    "hosts": [HOST],
}


def columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_row_has_everything_that_one_looks_for() -> None:
    """Model, state, incarnation, pid, memory, queue, in flight, permits, restarts, last death: in one line."""
    head, _, headings, row = watch.table(REPORT)
    assert "http://127.0.0.1:8080" in head
    assert "port open" in head
    assert "front pid 4712, 1.0 GiB" in head
    assert columns(headings) == list(watch.HEADINGS)
    assert columns(row) == [
        "router@2", "ready", "3-9f1c2ab4", "4711", "512 MiB", "3", "1", "4/1024", "1", "killed by SIGKILL"
    ]  # fmt: skip


def test_what_a_swap_leaves_behind_has_a_row_of_its_own() -> None:
    """The deployment that is going and the one that came, each with its own counts; a second replica is told apart."""
    going = {**HOST, "deployment": "router@1", "role": "retired"}
    second = {**HOST, "replica": 1}
    others = [{**MODEL, "id": "router@1", "scheduler": {"waiting": 0, "running": 1}}]
    report = {**REPORT, "hosts": [going, HOST, second], "front": {**REPORT["front"], "others": others}}
    rows = [columns(line) for line in watch.table(report)[3:]]
    assert [row[0] for row in rows] == ["router@1 (retired)", "router@2", "router@2/1"]
    assert [row[5] for row in rows] == ["0", "3", "3"]


def test_each_replica_has_its_own_queue_and_who_waits_for_a_load_is_told_once() -> None:
    """The front's sums are of all replicas; a row is of one."""
    own = [{"replica": number, "scheduler": {"waiting": number, "running": 0}, "link": None} for number in range(2)]
    model = {**MODEL, "replicas": own, "waiting_for_host": 5}
    front = {**REPORT["front"], "models": {"router": model}}
    rows = watch.table({**REPORT, "hosts": [HOST, {**HOST, "replica": 1}], "front": front})[3:]
    assert [columns(row)[5] for row in rows] == ["5", "1"]


def test_a_loading_host_shows_its_progress() -> None:
    """A bar, what is being done, and since when nothing has been heard: a load that hangs looks different."""
    host = {**HOST, "state": "loading", "progress": ["loading", 0.5, "2.1 of 4.2 GiB"], "last_death": ""}
    assert watch.table({**REPORT, "hosts": [host]})[-1].endswith("████████░░░░░░░░ 50% 2.1 of 4.2 GiB")
    host["progress_age_s"] = 31.0
    assert watch.table({**REPORT, "hosts": [host]})[-1].endswith("2.1 of 4.2 GiB (for 31 s)")


def test_a_unit_that_takes_long_has_its_age() -> None:
    """A number that does not change may be a hang or a queue that moves: the age tells them apart."""
    model = {**MODEL, "link": {"owed_s": 41.7}}
    front = {**REPORT["front"], "models": {"router": model}}
    assert columns(watch.table({**REPORT, "front": front})[-1])[6] == "1 for 42 s"
    assert watch.running({**model, "link": None}) == "1"


def test_silence_is_told() -> None:
    """Of a control lane in its row, of the front in the summary."""
    assert watch.table({**REPORT, "hosts": [{**HOST, "silent_s": 12.0}]})[-1].endswith("silent for 12 s")
    process = {**REPORT["front_process"], "silent_s": 7.0}
    assert "silent for 7 s" in watch.table({**REPORT, "front_process": process, "front": None})[0]


def test_without_a_front_its_counts_are_missing_and_nothing_else() -> None:
    """The supervisor answers alone."""
    head, *_, row = watch.table({**REPORT, "front": None})
    assert "not answering" in head
    assert columns(row)[5:8] == ["-", "-", "-"]


def test_a_small_window_gets_the_beginning_and_the_number_of_the_rest() -> None:
    """Never a line more or a column more than the window has, whatever its size."""
    lines = [f"line {number}" for number in range(10)]
    assert watch.fitted(lines, 80, 10) == lines
    assert watch.fitted(lines, 80, 4) == ["line 0", "line 1", "line 2", "... 7 more lines"]
    assert watch.fitted(lines, 4, 2) == ["line", "... "]
    assert watch.fitted(lines, 80, 1) == ["... 10 more lines"]
    assert watch.fitted(lines, 0, 0) == []
