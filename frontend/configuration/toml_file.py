"""A TOML document that knows where its keys are, so that what is wrong with it is told with file, line and key."""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

Key = tuple[str, ...]


class ConfigurationError(Exception):
    """A configuration file or a command-line option is wrong. The text names where and what."""


class TomlDocument:
    """A parsed document and the places of its keys. `text` None: it came from the command line."""

    def __init__(self, name: str, text: str | None, content: Mapping[str, Any]) -> None:
        self.content = content
        self._name = name
        self._lines = None if text is None else text.splitlines()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The document in a file. Raises `ConfigurationError` when it is not regular, not readable or not TOML."""
        try:
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder is told by the system
                raise ConfigurationError(f"{path}: cannot be read: not a regular file, and may never end")
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # a path that no file can have
            raise ConfigurationError(f"{path}: cannot be read: {error}") from error
        return cls.parse(path, content)

    @classmethod
    def parse(cls, path: Path, raw: bytes) -> Self:
        """The document in `raw`, which was read from `path`. Raises `ConfigurationError` when it is not TOML."""
        try:
            # As a text file is read: lines end with any of the three line ends.
            text = raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        except ValueError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error}") from error
        if text.startswith("\ufeff"):
            raise ConfigurationError(f"{path}, line 1: begins with a byte order mark; save it as UTF-8 without one")
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # also integers and nesting beyond what Python reads
            raise ConfigurationError(f"{path}: not TOML: {error}") from error
        return cls(str(path), text, content)

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise `ConfigurationError` about `key`."""
        place = self._name
        if self._lines is not None:
            place += f", line {self._line(key)}"
        shown = f", key {'.'.join(key)}" if key else ""
        raise ConfigurationError(f"{place}{shown}: {message}")

    def _line(self, key: Key) -> int:
        """The line that sets `key`, else that of the innermost table it would be in, else 1."""
        assert self._lines is not None
        best, best_depth = 1, -1
        table: Key = ()
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[\[?([^\]]+)\]", line):
                table = _split_key(header[1])
                here = table
            elif assignment := re.match(
                r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=", line
            ):
                here = table + _split_key(assignment[1])
            else:
                continue
            if here == key[: len(here)] and len(here) > best_depth:
                best, best_depth = number, len(here)
        return best


def _split_key(text: str) -> Key:
    return tuple(part.strip("\"' ") for part in re.findall(r"[\w-]+|\"[^\"]*\"|'[^']*'", text))
