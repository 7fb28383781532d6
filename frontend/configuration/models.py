"""A model of the configuration: its table as a `Model`, and the rules between its keys, each a function.

What is to be refused is refused here, before anything is started; what is left out is filled in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from frontend.configuration import decode, endpoints, fetched
from frontend.configuration.toml_file import Key, TomlDocument
from frontend.families.base import Processor
from frontend.requests.questions import ALIASES, PREFIXES
from protocol import families
from protocol.errors import ProtocolError
from protocol.frames import encode
from protocol.limits import MAX_NAME_CHARS
from protocol.messages import Deployment
from protocol.models import Model, NamedModel
from protocol.options import OptionError


def read(name: str, table: object, timeout_s: float, source: TomlDocument) -> NamedModel:
    """The model that `[models.NAME]` describes. `timeout_s`: the request timeout of the server. Raises
    `ConfigurationError`."""
    key = ("models", name)
    _check_name(name, key, source)
    if not isinstance(table, dict):
        source.fail(key, "a table is expected: [models.NAME]")
    model = decode.read(Model, table, key, source)
    family = _family(model, key, source)
    _check_pin(model, key, source)
    _check_options(model, family, key, source)
    model = structs.replace(
        model,
        path=_located(model, family, key, source),
        remote=model.ray is not None if model.remote is None else model.remote,
    )
    _check_wire(model, name, key, source)
    if model.spare and model.remote:
        source.fail((*key, "spare"), "hosts elsewhere are not kept in reserve; give more replicas")
    if model.ray is not None and not model.remote:
        source.fail((*key, "remote"), "a model whose hosts Ray places is remote")
    _check_path(model, family, key, source)
    _check_native(model, family, key, source)
    return _completed(name, model, family, timeout_s)


def _check_name(name: str, key: Key, source: TomlDocument) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        source.fail(key, f"a model name has 1..{MAX_NAME_CHARS} printable characters")
    if any(part in ("", ".", "..") for part in name.split("/")):
        source.fail(
            key,
            "a model name with slashes has something between them and at both ends, as org/name has: "
            "clients shorten the address of another one",
        )
    if name in ALIASES:
        source.fail(key, f"{name!r} always means the default model, so no request could reach a model of this name")
    for prefix in PREFIXES.values():
        if name.startswith(prefix):
            source.fail(key, f"clients put {prefix!r} before any name, so no request could reach a model called so")


def _check_pin(model: Model, key: Key, source: TomlDocument) -> None:
    if model.pin and not model.resident:
        source.fail((*key, "pin"), "what is pinned is resident from the start; leave out resident = false")


def _family(model: Model, key: Key, source: TomlDocument) -> families.Family:
    """The family, whose front half can be imported and whose other halves are there."""
    try:
        family = families.find(model.family)
    except families.UnknownFamily as error:
        source.fail((*key, "family"), str(error))
    part = "processor"
    try:
        processor = families.resolve(family.processor)
        if not (isinstance(processor, type) and issubclass(processor, Processor)):
            raise TypeError("it is not a Processor")
        if family.options != processor.OPTIONS:
            raise TypeError("its OPTIONS are not those of the Family")
        for part in ("executor", "payload", *(["native"] if family.native else [])):
            families.locate(getattr(family, part))
    except Exception as error:  # a foreign module can raise anything
        reference = getattr(family, part)
        why = f"{type(error).__name__}: {error}"
        source.fail((*key, "family"), f"the {part} {reference!r} of the family {family.name!r} cannot be loaded: {why}")
    return family


def _check_options(model: Model, family: families.Family, key: Key, source: TomlDocument) -> None:
    try:
        family.options.complete(model.options)
    except OptionError as error:
        source.fail((*key, "options", error.key), error.message)


def _located(model: Model, family: families.Family, key: Key, source: TomlDocument) -> str | None:
    """The path, or what a fetched model's name stands for."""
    if model.path == "":
        source.fail((*key, "path"), "the path is empty; leave the key out for a family that brings its weights")
    try:
        return None if model.path is None else fetched.located(model.path, family.name)
    except fetched.NotFetched as error:
        source.fail((*key, "path"), str(error))


def _check_wire(model: Model, name: str, key: Key, source: TomlDocument) -> None:
    """The front is told options and path in the table of models: what does not fit in there would stop its start."""
    parts: dict[str, Any] = {"options": model.options, "path": model.path}
    for part, value in parts.items():
        try:
            encode(Deployment(models=[{part: value}], default=name, server={}, open=False), incarnation="check")
        except ProtocolError as error:
            source.fail((*key, part), str(error))


def _check_path(model: Model, family: families.Family, key: Key, source: TomlDocument) -> None:
    """A path of this machine leads somewhere, and is there when the family cannot do without."""
    path = model.path
    if path is not None and family.marks and path not in family.bundled and not model.remote:
        try:
            Path(path).stat()
        except (OSError, ValueError) as error:
            known = ", ".join((*family.bundled, *fetched.names(family.name)))
            names = f"; names instead of a path: {known}" if known else ""
            source.fail((*key, "path"), f"{path!r}: {getattr(error, 'strerror', error)}{names}")
    if path is None and family.needs_path and not model.remote:
        source.fail((*key, "path"), f"the path is missing: the {family.name} family needs {family.needs_path}")


def _check_native(model: Model, family: families.Family, key: Key, source: TomlDocument) -> None:
    if model.native is None:
        return
    if not family.native:
        source.fail((*key, "native"), f"the family {family.name!r} has no native dialect")
    endpoints.at(model.native.listen, (*key, "native", "listen"), source)


def _completed(name: str, model: Model, family: families.Family, timeout_s: float) -> NamedModel:
    """The model with the family's defaults for what is absent, and None for a limit of 0."""
    limit_s = model.execution_limit_s
    if limit_s is None:
        # Never so short that a unit could be ended for which a client still waits.
        limit_s = max(family.execution_limit_s, 2 * timeout_s)
    filled: dict[str, Any] = {
        "max_requests": family.default_max_requests if model.max_requests is None else model.max_requests,
        "max_cost": family.default_max_cost if model.max_cost is None else model.max_cost,
        "execution_limit_s": limit_s or None,
        "load_limit_s": model.load_limit_s or None,
        "keep_alive_s": model.keep_alive_s or None,
        "batch": model.batch or family.batch,
        # A family's own dialect counts on one request in the host.
        "look_ahead": family.look_ahead and model.native is None if model.look_ahead is None else model.look_ahead,
    }
    return NamedModel(name=name, **(structs.asdict(model) | filled))
