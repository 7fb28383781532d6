"""What the supervisor says to people, on a terminal and in a log file."""

from __future__ import annotations

import io

import pytest

from executor_host.supervision.console import Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(text: str) -> list[str]:
    """The lines a terminal would show after `text`: what was erased is gone."""
    lines = [""]
    for character in text.replace("\r\x1b[K", "\v"):
        if character == "\v":
            lines[-1] = ""
        elif character == "\n":
            lines.append("")
        else:
            lines[-1] += character
    return lines


def test_every_line_says_who_speaks() -> None:
    """Many processes, one log: each line has its origin."""
    stream = io.StringIO()
    console = Console(stream)
    console.say("framehost", "serving")
    console.say("toy 1-a", "hello")
    assert stream.getvalue() == "[framehost] serving\n[toy 1-a] hello\n"


def test_a_log_file_gets_one_line_per_stage() -> None:
    """A thousand reports of progress are not a thousand lines."""
    stream = io.StringIO()
    console = Console(stream)
    for step in range(1000):
        console.progress("toy 1-a", "loading", step / 1000, "weights")
    console.progress("toy 1-a", "warming", None, "")
    assert stream.getvalue() == "[toy 1-a] loading: weights\n[toy 1-a] warming\n"
    assert "\x1b" not in stream.getvalue()


def test_a_second_incarnation_has_its_own_stages() -> None:
    """After `finished` the same source starts anew."""
    stream = io.StringIO()
    console = Console(stream)
    console.progress("toy 1-a", "loading", 0.0, "")
    console.finished("toy 1-a")
    console.progress("toy 1-a", "loading", 0.0, "")
    assert stream.getvalue().count("loading") == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that tests move: the one value in the list."""
    now = [100.0]
    monkeypatch.setattr("executor_host.supervision.console.time.monotonic", lambda: now[0])
    return now


def test_a_terminal_shows_one_live_line_below_everything(clock: list[float]) -> None:
    """The bar is redrawn in place; lines of others go above it."""
    stream = Terminal()
    console = Console(stream)
    console.progress("toy 1-a", "loading", 0.5, "half")
    console.say("front", "hello")
    assert shown(stream.getvalue()) == ["[front] hello", f"[toy 1-a] loading {'█' * 12}{'░' * 12}  50% half"]
    clock[0] += 1
    console.progress("toy 1-a", "loading", 1.0, "all")
    assert shown(stream.getvalue())[-1] == f"[toy 1-a] loading {'█' * 24} 100% all"
    console.finished("toy 1-a")
    assert shown(stream.getvalue()) == ["[front] hello", ""]


def test_a_terminal_is_not_redrawn_more_often_than_eyes_can_see(clock: list[float]) -> None:
    """A host that reports thousands of times a second costs a terminal twenty redraws."""
    stream = Terminal()
    console = Console(stream)
    for step in range(1000):
        clock[0] += 0.001
        console.progress("toy 1-a", "loading", step / 1000, "")
    assert 15 <= stream.getvalue().count("loading") <= 25


@pytest.mark.parametrize("fraction", [-1.0, 0.0, 0.999, 1.0, 7.0])
def test_the_bar_stays_within_its_cells(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a host reports, the line is no longer than the terminal's: one that wraps cannot be taken back."""
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    Console(stream).progress("toy 1-a", "loading", fraction, "x" * 500)
    line = shown(stream.getvalue())[-1]
    assert line.count("█") + line.count("░") == 24
    assert len(line) == 59


def test_settling_one_leaves_the_line_of_another() -> None:
    """Two models load: the bar of the one that still loads stays."""
    stream = Terminal()
    console = Console(stream)
    console.progress("one 1-a", "loading", 0.1, "")
    console.progress("two 2-b", "loading", 0.2, "")
    console.finished("one 1-a")
    assert "[two 2-b] loading" in shown(stream.getvalue())[-1]
