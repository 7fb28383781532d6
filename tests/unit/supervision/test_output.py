"""What a child writes: passed on within bounds, however much it is, and its last words are kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from executor_host.launch.output import LINE_BYTES, LINES_PER_S, PAUSE_S, Output


class Loop:
    """Time, moved by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later: list[float] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> object:
        self.later.append(delay)
        return None


def test_more_lines_than_a_log_can_use_are_counted_and_left_out() -> None:
    """At most so many a second, in whatever pieces they come; then it is said how many were left out."""
    said: list[str] = []
    loop = Loop()
    output = Output(said.append, loop)
    output.pipe_data_received(1, b"a\n" * (LINES_PER_S - 1))
    output.pipe_data_received(1, b"b\n" * 3)
    output.pipe_data_received(1, b"c\n" * 1000)
    assert said == ["a"] * (LINES_PER_S - 1) + ["b"]
    loop.now = 1.0
    output.pipe_data_received(1, b"d\n")
    assert said[LINES_PER_S:] == [f"(1002 lines of it were left out here: more than {LINES_PER_S} a second)", "d"]
    assert output.tail.text().endswith("c\nd"), "its last words are kept all the same"


def test_the_end_says_what_was_left_out() -> None:
    """Before the last line, which has no newline."""
    said: list[str] = []
    output = Output(said.append, Loop())
    output.pipe_data_received(1, b"a\n" * (LINES_PER_S + 2) + b"end")
    output.pipe_connection_lost(1, None)
    assert said[LINES_PER_S:] == [f"(2 lines of it were left out here: more than {LINES_PER_S} a second)", "end"]


def test_a_line_without_an_end_is_passed_on_in_pieces() -> None:
    """In bounded memory."""
    said: list[str] = []
    output = Output(said.append, Loop())
    output.pipe_data_received(1, b"x" * (2 * LINE_BYTES + 5))
    output.pipe_data_received(1, b"y\n")
    assert [len(line) for line in said] == [LINE_BYTES, LINE_BYTES, 5, 1]


async def test_a_process_that_prints_at_full_speed_is_read_with_pauses() -> None:
    """Seen on a real pipe: the loop is given back between two readings, and the process waits meanwhile."""
    said: list[str] = []
    pauses: list[float] = []
    loop = asyncio.get_running_loop()

    class Watched:
        def time(self) -> float:
            return loop.time()

        def call_later(self, delay: float, callback: Callable[[], object]) -> object:
            pauses.append(delay)
            return loop.call_later(0, callback)

    code = "import sys\nwhile True: sys.stdout.write('x\\n' * 1000)"
    transport, output = await loop.subprocess_exec(
        lambda: Output(said.append, Watched()),
        sys.executable,
        "-c",
        code,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=None,
    )
    try:
        async with asyncio.timeout(30):
            while not any("were left out" in line for line in said):
                await asyncio.sleep(0)
    finally:
        transport.kill()
        async with asyncio.timeout(30):
            await output.exited.wait()
            await output.ended.wait()
        transport.close()
    assert pauses
    assert set(pauses) == {PAUSE_S}
