"""rl_agent_config.json: the temperatures, by type of question and number of options.

A temperature outside `USABLE` is moved to its nearer end: the released checkpoint has one of 0.1006 for choices of
eleven options or more, which would report a probability of 0.24 as 0.99. One that is no number counts as 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

KINDS: Final = ("choice", "score", "noul")
"""The types of question, by the number that the model knows them by."""

FIXED: Final[Mapping[str, int]] = {"max_len": 512, "head_max_len": 192}
"""Fields that have this value when they are there: rows of this family are theirs."""

USABLE: Final = (0.5, 5.0)

_BUCKETS: Final = ((2, "2"), (5, "3-5"), (10, "6-10"))
"""(most options, name), and what has more is in the last one."""
_LARGEST: Final = "11+"


class ConfigError(ValueError):
    """The document is not the configuration of a checkpoint that this family serves."""


def bucket(kind: str, options: int) -> str:
    """What temperatures by number of options are called: `choice:3-5`."""
    for most, name in _BUCKETS:
        if options <= most:
            return f"{kind}:{name}"
    return f"{kind}:{_LARGEST}"


@dataclass(frozen=True, slots=True)
class Temperatures:
    """What the logits of a question are divided by. All are within `USABLE`."""

    by_kind: Mapping[str, float]
    """For each of `KINDS`."""

    by_bucket: Mapping[str, float]
    """By the names of `bucket`, for those that have one of their own."""

    def of(self, kind: str, options: int) -> float:
        """The temperature of a question of this type with so many options."""
        return self.by_bucket.get(bucket(kind, options), self.by_kind[kind])


def usable(value: object) -> float:
    """`value` as a temperature within `USABLE`; 1 for what is no finite number. A text of a number is one."""
    if not isinstance(value, (int, float, str)):
        return 1.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 1.0
    least, most = USABLE
    return min(most, max(least, number)) if isfinite(number) else 1.0


def read_config(document: object) -> Temperatures:
    """The temperatures in the value of rl_agent_config.json; all 1 where it has none. Raises `ConfigError`."""
    if not isinstance(document, dict):
        raise ConfigError("it is not a JSON object")
    for name, expected in FIXED.items():
        value = document.get(name, expected)
        if type(value) is not int or value != expected:
            raise ConfigError(f"{name} is {value!r}; this family serves {expected}")
    by_kind = document.get("temperature", [1.0] * len(KINDS))
    if not isinstance(by_kind, list) or len(by_kind) != len(KINDS):
        raise ConfigError(f"temperature is not a list of {len(KINDS)}: for {', '.join(KINDS)}")
    by_bucket = document.get("temperature_by_options", {})
    if not isinstance(by_bucket, dict):
        raise ConfigError("temperature_by_options is not an object")
    return Temperatures(
        by_kind=dict(zip(KINDS, map(usable, by_kind), strict=True)),
        by_bucket={name: usable(value) for name, value in by_bucket.items()},
    )
