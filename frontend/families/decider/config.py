"""decider_config.json: the temperatures, and the refusal of a checkpoint that reads other prompts."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

FIXED: Final[Mapping[str, object]] = {
    "version": "2b-v11",
    "layout": "plain",
    "max_options": 255,
    "max_state_tokens": 32768,
    "isolated_levels": True,
    "neutralize_none": False,
}
"""Fields that must be there with this value: the prompts and limits of this family are theirs."""

ABSENT_OR_FALSE: Final = ("chat_template", "schema_first", "schema_first_trained")
ABSENT: Final = ("temperature_by_options", "temperature_schema_first", "temperature_schema_first_by_type")
KINDS: Final = ("choice", "noul", "score")


class ConfigError(ValueError):
    """The document is not the configuration of a checkpoint that this family serves."""


@dataclass(frozen=True, slots=True)
class Temperatures:
    """What the logits of each type of question are divided by: finite, above 0, and exact in float32."""

    choice: float
    noul: float
    score: float


def read_config(document: object) -> Temperatures:
    """The temperatures in the value of decider_config.json. Raises `ConfigError` naming the field."""
    if not isinstance(document, dict):
        raise ConfigError("it is not a JSON object")
    for name, expected in FIXED.items():
        value = document.get(name)
        if type(value) is not type(expected) or value != expected:
            raise ConfigError(f"{name} is {value!r}; this family serves {expected!r}")
    for name in ABSENT_OR_FALSE:
        if document.get(name, False) is not False:
            raise ConfigError(f"{name} is {document[name]!r}; this family serves checkpoints without it")
    for name in ABSENT:
        if name in document:
            raise ConfigError(f"{name} is set; this family serves checkpoints without it")
    if "temperature" not in document:
        raise ConfigError("temperature is missing")
    default = _temperature("temperature", document["temperature"], text=True)
    by_type = document.get("temperature_by_type", {})
    if not isinstance(by_type, dict):
        raise ConfigError("temperature_by_type is not an object")
    values = dict.fromkeys(KINDS, default)
    for kind, value in by_type.items():
        if kind not in KINDS:
            raise ConfigError(f"temperature_by_type names {kind!r}; the types are {', '.join(KINDS)}")
        values[kind] = _temperature(f"temperature_by_type.{kind}", value, text=False)
    return Temperatures(**values)


def _temperature(name: str, value: object, *, text: bool) -> float:
    """`value` rounded to float32. `text`: whether a number in a string will do."""
    if (isinstance(value, (int, float)) and not isinstance(value, bool)) or (text and isinstance(value, str)):
        try:
            number: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
        except (ValueError, OverflowError):
            number = 0.0
        if isfinite(number) and number > 0.0:
            return number
    raise ConfigError(f"{name} is {value!r}; a finite number above 0 is expected, in float32 too")
