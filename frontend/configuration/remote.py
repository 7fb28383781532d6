"""Hosts that others start: `[hosts]`, and the models that need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from frontend.configuration import decode, endpoints
from frontend.configuration.endpoints import Endpoint
from frontend.configuration.schema import Hosts
from frontend.configuration.toml_file import TomlDocument
from protocol.models import NamedModel


@dataclass(frozen=True, slots=True)
class HostsConfig:
    """Where hosts dial in that others start."""

    listen: Endpoint
    key: Path
    allow: Path | None
    lease_s: float


def dial_in(table: Hosts | None, source: TomlDocument) -> HostsConfig | None:
    """Where hosts dial in, if anywhere. Raises `ConfigurationError`."""
    if table is None:
        return None
    listen = endpoints.at(table.listen, ("hosts", "listen"), source)
    assert listen is not None
    return HostsConfig(listen, Path(table.key), None if table.allow is None else Path(table.allow), table.lease_s)


def check_remote(models: Sequence[NamedModel], hosts: HostsConfig | None, source: TomlDocument) -> None:
    """Refuse a model whose hosts could not dial in, or not show who they are."""
    for model in models:
        if not model.remote:
            continue
        if hosts is None:
            key = "remote" if model.ray is None else "ray"
            source.fail(("models", model.name, key), "hosts can only dial in where there is a table [hosts]")
        if model.ray is None and hosts.allow is None:
            source.fail(("hosts",), decode.missing(Hosts, "allow"))
