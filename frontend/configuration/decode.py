"""A table of a configuration as a typed value: msgspec decides; what it refuses is told with its key, in our words."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec

from frontend.configuration.toml_file import Key, TomlDocument
from protocol.options import shown

T = TypeVar("T", bound=msgspec.Struct)

_PLACE: Final = re.compile(r" - at `\$(?P<path>[^`]*)`$")
"""Where msgspec says that a value is: names of fields with a dot before them, and indices in brackets."""

DEPTH: Final = 4
"""Tables inside each other that a configuration has names for: models, a model, native, listen."""

_NEEDED: Final = {int: "; an integer is needed", float: "; a number is needed"}


def read(kind: type[T], table: object, key: Key, source: TomlDocument) -> T:
    """`table`, which stands at `key`, as a `kind`. Raises `ConfigurationError` about the first thing that is wrong."""
    _refuse_nul(table, key, source, DEPTH)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        _refuse(kind, table, "" if found is None else found["path"], key, source)


def keys_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a table by the keys that a file has for them."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def missing(kind: type[msgspec.Struct], name: str) -> str:
    """What is said of the key `name` where it is needed and not there."""
    _, meta = _bare(keys_of(kind)[name].type)
    words = {} if meta.extra is None else meta.extra
    return str(words.get("missing", f"the key {name} is missing: it is {meta.description}"))


def _refuse_nul(value: object, key: Key, source: TomlDocument, depth: int) -> None:
    """No name and no path can have a NUL, and no command line. Options of families have rules of their own."""
    if isinstance(value, str) and "\0" in value:
        source.fail(key, "holds a NUL, which no name and no path can have")
    if isinstance(value, Mapping) and depth:
        for name, inner in value.items():
            if name != "options":
                _refuse_nul(inner, (*key, name), source, depth - 1)


def _refuse(kind: Any, value: Any, path: str, key: Key, source: TomlDocument) -> NoReturn:
    """Go down `path` from a value that is to be a `kind`, and tell what is wrong there."""
    hint = kind
    for name, index in re.findall(r"\.([^.\[]+)|\[([^\]]*)\]", path):
        inner, _ = _bare(hint)
        if name:
            hint, value, key = keys_of(inner)[name].type, value[name], (*key, name)
        else:  # of a list: the key is the list's
            hint, value = get_args(inner)[0], value[int(index)]
    inner, meta = _bare(hint)
    table = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    if table and isinstance(value, dict):
        _refuse_keys(inner, value, key, source)
    words = _WORDS[dict if table else get_origin(inner) or inner] if meta is None else meta.description
    special = {} if meta is None or meta.extra is None else meta.extra
    if type(value) is inner or (inner is float and type(value) is int):  # of the right type, so beyond its bounds
        side = "below" if meta is not None and meta.ge is not None and value < meta.ge else "above"
        source.fail(key, special[side].format(value) if side in special else f"{shown(value)} is not {words}")
    source.fail(key, f"{shown(value)} is not {words}{_NEEDED.get(inner, '')}")


def _refuse_keys(kind: type[msgspec.Struct], table: Mapping[str, object], key: Key, source: TomlDocument) -> None:
    """Tell which key of `table` there is not, or which is missing, if it is one of these."""
    known = keys_of(kind)
    for name in table:
        if name not in known:
            source.fail((*key, name), f"unknown key; known here: {', '.join(sorted(known))}")
    for name, field in known.items():
        if field.required and name not in table:
            source.fail(key, missing(kind, name))


_WORDS: Final[dict[Any, str]] = {bool: "true or false", dict: "a table", str: "a text"}


def _bare(hint: Any) -> tuple[Any, Any]:
    """A type without None and without what is annotated, and that."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    if get_origin(hint) is Annotated:
        bare, meta = get_args(hint)
        return bare, meta
    return hint, None
