"""Reading the options of a model's configuration. Each raises `ConfigurationError` with name, value and what it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from executor_host.errors import ConfigurationError


def known(family: str, options: Mapping[str, object], names: Collection[str]) -> None:
    """Refuses an option that the family does not have."""
    for name in sorted(set(options) - set(names)):
        raise ConfigurationError(f"the {family} family has no option {name!r}")


def word(options: Mapping[str, object], name: str, default: str, *others: str) -> str:
    """A word: any, unless the words are given."""
    value = options.get(name, default)
    if not isinstance(value, str) or not value or (others and value not in (default, *others)):
        expected = f"one of {', '.join(dict.fromkeys((default, *others)))}" if others else "a word"
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is {expected}")
    return value


def switch(options: Mapping[str, object], name: str) -> bool:
    """True or false; false when it is absent."""
    value = options.get(name, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is true or false")
    return value


def count(options: Mapping[str, object], name: str, most: int) -> int:
    """A number from 1 to `most`, which it is when it is absent."""
    value = options.get(name, most)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigurationError(f"the option {name!r} is {value!r}; it is a number from 1 to {most}")
    return value
