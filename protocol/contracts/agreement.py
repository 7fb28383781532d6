"""What the families' contracts share: the error of their readers, and how an identity is spelled. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ContractError(ValueError):
    """What a checkpoint says is not what its family is made for. The message names the key, and the file where a
    reader is given its name; each half turns it into an error of its own."""


def text(document: Mapping[str, Any], name: str, key: str) -> str:
    """A text in a document, which `name` is what people call. Raises `ContractError`."""
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise ContractError(f"{name}: {key} is {value!r}; a text is expected")
    return value


def count(document: Mapping[str, Any], name: str, key: str, most: int) -> int:
    """A number from 1 to `most` in a document, likewise."""
    value = document.get(key)
    if type(value) is not int or not 1 <= value <= most:
        raise ContractError(f"{name}: {key} is {value!r}; a number from 1 to {most} is expected")
    return value


def identity(name: str, files: Mapping[str, str], *rest: str) -> str:
    """What a host is called whose answers are determined by these files (sha256 by name) and by `rest`."""
    return "/".join((name, *(f"{file}@sha256:{files[file]}" for file in sorted(files)), *rest))


def kept(segment: int | None) -> str:
    """The end of an identity: in which segments kept prefixes are read, "" where none are kept. Another segment is
    another rounding."""
    return "" if segment is None else f"/kept:{segment}"


def arithmetic(dtype: str, device: str) -> str:
    """Of an identity: the dtype, and the kind of device."""
    return f"{dtype}@{device.partition(':')[0]}"
