"""What a model becomes by a swap, by the rules of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from frontend.configuration import decode, models
from frontend.configuration.schema import Swap
from frontend.configuration.toml_file import TomlDocument
from protocol import families
from protocol.models import NamedModel

KEPT = ("native", "load_limit_s", "resident", "replicas", "pin", "keep_alive_s")
"""What another family leaves as it is: how the name is served, and not what the family is."""


def successor(model: NamedModel, settings: Mapping[str, Any], timeout_s: float) -> NamedModel:
    """What `model` becomes by a swap: `settings` has its `family`, and may have `path` and `options`;
    `timeout_s` is the request timeout of the server.

    Bounds stay, and options that are not given, as long as the family does; another family begins with its own.
    Raises `ConfigurationError` for everything that `framehost check --config` would refuse.
    """
    source = TomlDocument("swap", None, {})
    swap = decode.read(Swap, settings, (), source)
    if model.remote:
        source.fail((), f"the hosts of {model.name!r} are started elsewhere: start others there, and end the old ones")
    same = swap.family == model.family
    options = model.options if same and swap.options is None else swap.options or {}
    table = {"family": swap.family, "options": options, **({} if swap.path is None else {"path": swap.path})}
    made = models.read(model.name, table, timeout_s, source)
    if model.native is not None and not families.find(made.family).native:
        source.fail(("family",), f"{model.name!r} has a native listener, and {made.family!r} has no native dialect")
    if same:
        return structs.replace(model, path=made.path, options=made.options)
    return structs.replace(made, **{key: getattr(model, key) for key in KEPT})
