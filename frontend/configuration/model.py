"""What a configuration says, checked: the values that `load.py` makes of a file or of options."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frontend import limits
from frontend.configuration import keys
from frontend.limits import ServerLimits

DEFAULT_DRAIN_S = 30.0
DEFAULT_FRONT_LIMIT_S = 60.0
"""Twice the default deadline of a request: whoever asked a front that has stood still for so long has given up."""

DEFAULT_TURN_S = 10.0
"""A third of the default deadline of a request: there is time to make the room, and to load the model in it."""

DEFAULT_RESTARTS = 5
"""Restarts in a row before giving up. The first is immediate; five span about 8 s of trying."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model, as configured and checked."""

    name: str
    family: str
    path: str | None = None
    max_requests: int | None = None
    max_cost: int | None = None
    execution_limit_s: float | None = None
    """How long its host may owe an answer before it is ended; None: for ever."""
    load_limit_s: float | None = None
    """How long its host may load and warm up before it is ended; None: for ever."""
    resident: bool = True
    """Whether its hosts are started with the server, and not by the first request."""
    replicas: int = 1
    pin: bool = False
    """Its hosts are never stopped to make room, nor because they are idle."""
    keep_alive_s: float | None = None
    """How long its hosts are kept without a request; None: for ever."""
    options: Mapping[str, Any] = field(default_factory=dict)
    native: Endpoint | None = None
    """The listener that speaks the family's own dialect."""
    remote: bool = False
    """Whether its hosts are elsewhere and dial in at `Configuration.hosts`."""
    ray: Mapping[str, Any] | None = None
    """As `DeploymentSpec.ray`."""


@dataclass(frozen=True, slots=True)
class HostsConfig:
    """Where hosts dial in that others start."""

    listen: Endpoint
    key: Path
    allow: Path | None
    lease_s: float


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything `framehost serve` needs to know."""

    models: tuple[ModelConfig, ...]
    default: str
    host: str = "127.0.0.1"
    port: int = 8080
    limits: ServerLimits = limits.DEFAULTS
    drain_s: float = DEFAULT_DRAIN_S
    access_log: bool = False
    tracing: bool = False
    restarts: int = DEFAULT_RESTARTS
    front_limit_s: float | None = DEFAULT_FRONT_LIMIT_S
    """How long the front may owe the supervisor an answer before it is replaced; None: for ever."""
    health: Endpoint | None = None
    """Where probes are answered. It tells nothing worth hiding, so it may be reachable by others without keys."""
    admin: Endpoint | None = None
    """Where operators may change which models there are."""
    max_resident: int | None = None
    """How many models may have hosts at once; None: all."""
    max_resident_bytes: int | None = None
    """How much memory the hosts of all models may take together; None: all there is."""
    turn_s: float | None = DEFAULT_TURN_S
    """How long a model that is asked for waits before busy ones make room for it; None: until they are idle."""
    keys: Path | None = None
    """The file with API keys, which was read and is right."""
    cors: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients call this server by, in lower case."""
    hosts: HostsConfig | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The main listener, then the native ones, then the operators'."""
        natives = (model.native for model in self.models if model.native is not None)
        return (Endpoint(self.host, self.port), *natives, *(() if self.admin is None else (self.admin,)))


def exposed(configuration: Configuration) -> str | None:
    """Why not to listen where other machines can connect, for the first such address; None when there is none,
    or when keys are needed there."""
    if configuration.keys is not None or keys.ENVIRONMENT in os.environ:
        return None
    for endpoint in configuration.endpoints:
        if not endpoint.loopback:
            return (
                f"refusing to listen on {endpoint.host}: anyone who can reach it could use the models, and there are "
                "no API keys. Give some with --keys FILE, listen on 127.0.0.1 behind a proxy, or say --insecure"
            )
    return None
