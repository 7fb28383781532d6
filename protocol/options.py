"""The options of a model family, declared once: what each may be, who reads it, and in words what is expected.

A family's table (`protocol/contracts/FAMILY.py` for the built-in ones) is what a configuration, a swap, the front's
processor and the host's executor check a model's options by, and what the documentation is compared with.

    OPTIONS = OptionTable(
        (
            Option("truncate", bool, False, "cut a state that is too long", side="front"),
            Option("batch_rows", int, 4, "most rows of a packed group", least=1, most=4),
        )
    )
    OPTIONS.complete({"batch_rows": 2})     ->  {"truncate": False, "batch_rows": 2}
    OPTIONS.complete({"batch_rows": 9000})  raises OptionError: the option 'batch_rows' is 9000; it is a number, 1 to 4
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

EXACT_FLOAT: Final = 2**53
"""Whole numbers up to here are numbers of a float, too."""

MAX_TEXT_CHARS: Final = 4_096
"""Of a text: the longest path that Linux takes. Above: refused."""

MAX_SHOWN_CHARS: Final = 100
"""Of a value that a message repeats."""

Side: TypeAlias = Literal["front", "host", "both"]
"""Which half of the family reads an option; the other one checks it all the same."""

Rule: TypeAlias = Callable[[Mapping[str, Any]], "tuple[str, str] | None"]
"""A rule between options: given all of them with their values, the key that breaks it and why, or None."""


class OptionError(ValueError):
    """An option is unknown, of the wrong type or out of its bounds. `key` names it, and `message` is for people."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message


@dataclass(frozen=True, slots=True)
class Syntax:
    """The form of a text: a pattern that all of it matches, and the form in words."""

    pattern: str
    words: str


DEVICE: Final = Syntax(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,2}))?", "auto, cpu, cuda or cuda:N")
"""The name of a device. Whether there is one of that name, the host knows."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. A declaration that makes no sense raises `ValueError` when the module with it is imported."""

    name: str
    type: type[bool | int | float | str]
    default: object
    """The value when the option is absent. None: what `unset` says; no value asks for it."""
    help: str
    """What it does, in one line."""
    side: Side = "host"
    least: float | None = None
    """The smallest number."""
    most: float | None = None
    """The largest number, or most characters of a text (else `MAX_TEXT_CHARS`)."""
    above: float | None = None
    """Instead of `least`: every number is larger."""
    choices: tuple[str, ...] = ()
    """All texts there are, when they are few."""
    syntax: Syntax | None = None
    unset: str = "none"
    """What is done without a value, for a default of None."""

    def __post_init__(self) -> None:
        number = self.type in (int, float)
        if number and (self.most is None or (self.least is None) is (self.above is None)):
            raise ValueError(f"the option {self.name!r} is a number, and has no bounds on both sides")
        if self.type is not str and (self.choices or self.syntax is not None):
            raise ValueError(f"the option {self.name!r} is not a text, and has choices or a form")
        if self.default is not None and self.check(self.default) != self.default:
            raise ValueError(f"the default of the option {self.name!r} is not of its type")

    @property
    def expected(self) -> str:
        """What its value may be, in words."""
        if self.type is bool:
            return "true or false"
        if self.choices:
            return self.choices[0] if len(self.choices) == 1 else f"one of {', '.join(self.choices)}"
        if self.syntax is not None:
            return self.syntax.words
        if self.type is str:
            return f"a text of {0 if self.default == '' else 1} to {self._longest} characters, without NUL"
        what = "a whole number" if self.type is int else "a number"
        if self.above is not None:
            return f"{what} above {self.above:g}, at most {_shown(self.most)}"
        return f"{what}, {_shown(self.least)} to {_shown(self.most)}"

    @property
    def shown_default(self) -> str:
        """The default as the configuration writes it, or what is done without a value."""
        return self.unset if self.default is None else written(self.default)

    def check(self, value: object) -> Any:
        """`value`, a whole number as the float that is asked for. Raises `OptionError`."""
        whole = self.type is float and type(value) is int and abs(value) <= EXACT_FLOAT
        if not (whole or type(value) is self.type) or not self._in_bounds(value):
            raise OptionError(self.name, f"the option {self.name!r} is {shown(value)}; it is {self.expected}")
        return float(value) if whole else value  # type: ignore[arg-type]

    @property
    def _longest(self) -> int:
        return MAX_TEXT_CHARS if self.most is None else int(self.most)

    def _in_bounds(self, value: object) -> bool:
        if isinstance(value, str):
            if self.choices:
                return value in self.choices
            if self.syntax is not None:
                return re.fullmatch(self.syntax.pattern, value) is not None
            return len(value) <= self._longest and "\0" not in value and (value != "" or self.default == "")
        if isinstance(value, bool):
            return True
        assert isinstance(value, int | float)
        assert self.most is not None
        large_enough = value >= self.least if self.least is not None else value > self.above  # type: ignore[operator]
        return math.isfinite(value) and large_enough and value <= self.most


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All options of a family, by name, and the rules between them."""

    options: tuple[Option, ...] = ()
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        if len({option.name for option in self.options}) != len(self.options):
            raise ValueError("an option is declared twice")

    def complete(self, given: Mapping[str, object]) -> dict[str, Any]:
        """All options of the family with their values, in the order of the table. Raises `OptionError` naming the
        first bad key of `given`."""
        known = {option.name: option for option in self.options}
        values = {name: option.default for name, option in known.items()}
        for key, value in given.items():
            if key not in known:
                names = ", ".join(sorted(known)) or "none"
                raise OptionError(key, f"there is no option {key!r}; known options: {names}")
            values[key] = known[key].check(value)
        for rule in self.rules:
            if (broken := rule(values)) is not None:
                raise OptionError(*broken)
        return values


NO_OPTIONS: Final = OptionTable()
"""Of a family that has nothing to set."""


def shown(value: object) -> str:
    """A value for a message: its first `MAX_SHOWN_CHARS` characters, also when it is a table of tables of tables."""
    try:
        text = repr(value)
    except RecursionError:  # a dotted key of TOML nests without the parser's recursion
        return f"a {type(value).__name__} nested too deep"
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def written(value: object) -> str:
    """A value as TOML writes it; a text without its quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shown(number: float | None) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
