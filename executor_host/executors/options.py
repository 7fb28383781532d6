"""Reading the options of a model's configuration in an executor. Each raises `ConfigurationError` naming the option."""

from __future__ import annotations

from collections.abc import Mapping

from executor_host.errors import ConfigurationError


def word(options: Mapping[str, object], name: str, default: str = "", *others: str) -> str:
    """An option that is a word: any, unless `others` than the default are given."""
    value = options.get(name, default)
    if not isinstance(value, str) or not value or (others and value not in (default, *others)):
        expected = f"one of {', '.join(dict.fromkeys((default, *others)))}" if others else "a word"
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is {expected}")
    return value


def number(options: Mapping[str, object], name: str, default: int, most: int) -> int:
    """An option that is a number from 1 to `most`."""
    value = options.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is a number from 1 to {most}")
    return value


def switch(options: Mapping[str, object], name: str) -> bool:
    """An option that is on or off; off when it is absent."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is true or false")
    return value
