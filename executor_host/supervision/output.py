"""The command's standard output, which knows when it could not be written: the disk is full, the terminal is gone."""

from __future__ import annotations

import io
import os
import sys
from typing import Final

STDOUT: Final = 1


class StandardOutput(io.FileIO):
    """Descriptor 1, below the buffer of `sys.stdout`. Any code may raise an `OSError`; this tells whose it was."""

    failed: OSError | None = None
    """What the last write that failed has raised."""

    def write(self, content: object) -> int | None:  # type: ignore[override]
        """As `FileIO.write`. Raises `OSError`."""
        try:
            return super().write(content)  # type: ignore[arg-type]
        except OSError as error:
            self.failed = error
            raise


def install() -> StandardOutput | None:
    """Put ours below `sys.stdout`, with its encoding and its way to treat lines. None when it was closed."""
    former = sys.stdout
    if not isinstance(former, io.TextIOWrapper):
        return None
    raw = StandardOutput(STDOUT, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=former.encoding,
        errors=former.errors,
        line_buffering=former.line_buffering or former.write_through,
    )
    return raw


def give_up() -> None:
    """What is still in the buffer is written once more at the end of the process, and lost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
