"""`framehost status --watch` on a real terminal, and without one."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.process.harness import ROOT, running, wait_for


class Screen:
    """What the command has written so far, to a terminal of its own or to a pipe."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.data = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._descriptor, 65536):
                self.data += chunk
        except OSError:
            pass  # the other end of a terminal has been closed

    def shows(self, text: str, after: int = 0) -> None:
        wait_for(lambda: text in self.data[after:].decode(), text, lambda: repr(self.data))

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        status = self.process.wait(30)
        self._reader.join(30)
        return status


def command(runtime: Path, port: int, *more: str) -> tuple[list[str], dict[str, str]]:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    arguments = ["status", "--watch", "--port", str(port), *more]
    return [sys.executable, "-m", "executor_host.supervision.entry", *arguments], environment


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def on_a_terminal(runtime: Path, port: int, rows: int, columns: int) -> Iterator[tuple[Screen, int]]:
    mine, its = os.openpty()
    resize(its, rows, columns)
    arguments, environment = command(runtime, port)
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    try:
        yield Screen(process, mine), mine
    finally:
        process.kill()
        process.wait(30)
        os.close(mine)


def test_the_table_follows_the_window_the_server_and_ctrl_c(runtime: Path) -> None:
    """Drawn within the window, again when it changes its size; a server that goes and comes is waited for; Ctrl-C
    leaves the terminal as it was, with exit status 0 and no traceback."""
    with running(runtime) as server:
        port = server.port
        with on_a_terminal(runtime, port, 24, 60) as (screen, terminal):
            screen.shows("toy")
            assert screen.data.startswith(b"\x1b[?1049h")
            picture = screen.data.decode().split("\x1b[H")[-1].split("\x1b[J")[0]
            assert all(len(line.removesuffix("\x1b[K")) <= 60 for line in picture.split("\r\n"))
            assert "LAST DEATH" not in picture
            seen = len(screen.data)
            resize(terminal, 24, 200)
            screen.process.send_signal(signal.SIGWINCH)
            screen.shows("LAST DEATH", seen)
            seen = len(screen.data)
            assert server.stop() == 0
            screen.shows("waiting for it", seen)
            seen = len(screen.data)
            with running(runtime, arguments=["--port", str(port)]):
                screen.shows("port open", seen)
                assert screen.end(signal.SIGINT) == 0
            assert screen.data.endswith(b"\x1b[?25h\x1b[?1049l")
            assert b"Traceback" not in screen.data


def test_without_a_terminal_every_reading_is_plain_text(runtime: Path) -> None:
    """One table below the other, no escapes; SIGTERM is as good an end as Ctrl-C."""
    with running(runtime) as server:
        arguments, environment = command(runtime, server.port)
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        screen = Screen(process, process.stdout.fileno())
        wait_for(lambda: screen.data.count(b"LAST DEATH") >= 2, "two tables")
        assert screen.end(signal.SIGTERM) == 0
        process.stdout.close()
        assert b"\x1b" not in screen.data
        assert b"toy" in screen.data
