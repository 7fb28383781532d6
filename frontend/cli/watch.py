"""`framehost status --watch`: the same knowledge as a table that stays, one row per host, until Ctrl-C.

On a terminal it is redrawn in place, within whatever size the window has at that moment; elsewhere each reading is
printed below the last one, without escapes. A server that stops, or has not been started yet, is waited for.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from frontend.cli.terminal import visible

INTERVAL_S = 1.0
"""Between two readings."""

BAR_CELLS = 16

SILENT_S = 5.0
"""From this on a process that does not answer is worth a word: a long C call is silent, too."""

LONG_S = 1.0
"""From this on it is said for how long a unit has been running: the next look may tell a hang from a queue."""

HEADINGS = ("DEPLOYMENT", "STATE", "INCARNATION", "PID", "RSS", "QUEUE", "RUN", "PERMITS", "RESTARTS", "LAST DEATH")
TO_THE_RIGHT = frozenset(("PID", "RSS", "QUEUE", "RUN", "PERMITS", "RESTARTS"))
"""Columns of numbers."""

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen without a cursor, and back: what was on the first one is there again at the end."""


def table(report: dict[str, Any]) -> list[str]:
    """The lines of one reading, as long as they are: a summary, the headings, a row per host."""
    front, process = report["front"], report["front_process"]
    opening = "stopping" if report["stopping"] else "open" if process["serving"] else "closed"
    silent = process.get("silent_s", 0.0)
    told = f", silent for {silent:.0f} s" if silent >= SILENT_S else "" if front else ", not answering"
    head = (
        f"{report['url']}  port {opening}  up {report['uptime_s']:.0f} s  "
        f"front pid {process['pid']}, {size(process['rss_bytes'])}, restarts {process['restarts']}{told}"
    )
    if front:
        head += f"  requests open {front['requests']['open']}"
    rows = [HEADINGS, *(_row(host, counts(host, front)) for host in report["hosts"])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if heading in TO_THE_RIGHT else cell.ljust(width)
            for heading, cell, width in zip(HEADINGS, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return [head, "", *lines]


def counts(host: dict[str, Any], front: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the front counts for the host's deployment, with the queue and the units of this replica alone; None when
    it does not say."""
    known: list[dict[str, Any]] = [] if front is None else [*front["models"].values(), *front["others"]]
    found = next((found for found in known if found["id"] == host["deployment"]), None)
    if found is None:
        return None
    return {**found, **next((own for own in found["replicas"] if own["replica"] == host["replica"]), {})}


def place(host: dict[str, Any]) -> str:
    """Whose host it is: the deployment, which replica of several, and what it is to its name if not its present."""
    replica = f"/{host['replica']}" if host["replica"] else ""
    role = "" if host["role"] == "current" else f" ({host['role']})"
    return f"{host['deployment']}{replica}{role}"


def running(counted: dict[str, Any]) -> str:
    """How many units are in the host's hands, and since when if that is long."""
    number, link = counted["scheduler"]["running"], counted["link"]
    owed_s = 0.0 if link is None else link["owed_s"]
    return f"{number} for {owed_s:.0f} s" if owed_s >= LONG_S else str(number)


def _row(host: dict[str, Any], counted: dict[str, Any] | None) -> tuple[str, ...]:
    queue = run = permits = "-"
    if counted is not None:
        # Who waits for a host to be loaded is in no queue yet, and is told once.
        early = 0 if host["replica"] else counted["waiting_for_host"]
        queue, run = str(counted["scheduler"]["waiting"] + early), running(counted)
        bounds = counted["admissions"]
        permits = f"{bounds[0]['outstanding']}/{bounds[0]['requests']}" if bounds else "no bound"
    return (
        place(host),
        host["state"],
        host["incarnation"],
        str(host["pid"] or "-"),
        size(host["rss_bytes"]) if host["pid"] else "-",
        queue,
        run,
        permits,
        str(host["restarts"]),
        _remark(host),
    )


def _remark(host: dict[str, Any]) -> str:
    """What is worth saying now: where a load is, then a silence, then the last death."""
    if host["state"] in ("starting", "loading", "warming") and host["pid"]:
        return progress(host)
    silent = host.get("silent_s", 0.0)
    if silent >= SILENT_S:
        return f"silent for {silent:.0f} s"
    words: str = host["failed"] or host["last_death"]
    return words.partition("\n")[0]


def progress(host: dict[str, Any]) -> str:
    """How far a load is: a bar, what it is about, and since when nothing has been heard of it."""
    _, fraction, note = host["progress"] or ("", None, "")
    parts = []
    if fraction is not None:
        done = int(fraction * BAR_CELLS)
        parts.append(f"{'█' * done}{'░' * (BAR_CELLS - done)} {fraction:.0%}")
    if note:
        parts.append(note)
    if host["progress_age_s"] >= SILENT_S:
        parts.append(f"(for {host['progress_age_s']:.0f} s)")
    return " ".join(parts)


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def fitted(lines: Sequence[str], columns: int, rows: int) -> list[str]:
    """What a window shows of the lines; the last one says how many there are more."""
    if len(lines) > rows:
        lines = [*lines[: max(0, rows - 1)], f"... {len(lines) - rows + 1} more lines"][:rows]
    return [line[:columns] for line in lines]


def watch(read: Callable[[], list[str]]) -> int:
    """Show what `read` gives, until Ctrl-C or SIGTERM, the ways to end it, or until the reader has left. Returns 0."""
    out = sys.stdout
    live = out.isatty()
    try:
        with _signals() as wake:
            try:
                if live:
                    out.write(ENTER)
                while True:
                    _show(read(), out, live)
                    _sleep(wake, INTERVAL_S)
            except KeyboardInterrupt:
                return 0
            finally:
                if live:
                    out.write(LEAVE)
                    out.flush()
    except OSError:  # the reader has left, or the terminal is gone
        return 0


def _show(lines: list[str], out: TextIO, live: bool) -> None:
    encoding = out.encoding or "utf-8"
    # What a model has printed is in it, and must not move the cursor.
    lines = [visible(line).encode(encoding, "replace").decode(encoding) for line in lines]
    if live:
        window = shutil.get_terminal_size()
        # Line by line over the old picture, and the rest cleared: no flicker, and nothing left of a longer one.
        shown = fitted(lines, window.columns, window.lines)
        out.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in shown) + "\x1b[J")
    else:
        out.write("\n".join([*lines, ""]))
    out.flush()


@contextmanager
def _signals() -> Iterator[int]:
    """SIGTERM ends like Ctrl-C; a resized window is a byte on the descriptor, as any signal is."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    former_wake = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    former = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler),
    }
    try:
        yield read_end
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_wake)
        os.close(read_end)
        os.close(write_end)


def _sleep(wake: int, seconds: float) -> None:
    """Until the time is over or a signal came."""
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)
