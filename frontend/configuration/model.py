"""What a configuration says, checked: the values that `load.py` makes of a file or of options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frontend.configuration import keys
from frontend.configuration.endpoints import Endpoint, endpoint
from frontend.configuration.remote import HostsConfig
from frontend.limits import ServerLimits
from protocol.models import NamedModel


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything `framehost serve` needs to know."""

    models: tuple[NamedModel, ...]
    default: str
    host: str
    port: int
    limits: ServerLimits
    opens_with: str
    """`all` or `first`: of the models that are started with the server, how many answer before the port opens."""
    kept_bytes: Mapping[str, int]
    """By device, what may stay on it between requests."""
    session_idle_s: float
    """After how many seconds without a turn a conversation is over."""
    drain_s: float
    access_log: bool
    tracing: bool
    audit: Path | None
    """The file of the audit log, absolute."""
    restarts: int
    front_limit_s: float | None
    """How long the front may owe the supervisor an answer before it is replaced; None: for ever."""
    health: Endpoint | None
    """Where probes are answered. It tells nothing worth hiding, so it may be reachable by others without keys."""
    admin: Endpoint | None
    """Where operators may change which models there are."""
    max_resident: int | None
    """How many models may have hosts at once; None: all."""
    max_resident_bytes: int | None
    """How much memory the hosts of all models may take together; None: all there is."""
    turn_s: float | None
    """How long a model that is asked for waits before busy ones make room for it; None: until they are idle."""
    keys: Path | None
    """The file with API keys, which was read and is right."""
    cors: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    """Names that clients call this server by, in lower case."""
    hosts: HostsConfig | None

    @property
    def natives(self) -> dict[str, Endpoint]:
        """The native listeners by the names of their models."""
        return {model.name: endpoint(model.native.listen) for model in self.models if model.native is not None}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The main listener, then the native ones, then the operators'."""
        main = Endpoint(self.host, self.port)
        return (main, *self.natives.values(), *(() if self.admin is None else (self.admin,)))


def exposed(configuration: Configuration) -> str | None:
    """Why not to listen where other machines can connect, for the first such address; None when there is none,
    or when keys are needed there."""
    if configuration.keys is not None or keys.ENVIRONMENT in os.environ:
        return None
    for place in configuration.endpoints:
        if not place.loopback:
            return (
                f"refusing to listen on {place.host}: anyone who can reach it could use the models, and there are "
                "no API keys. Give some with --keys FILE, listen on 127.0.0.1 behind a proxy, or say --insecure"
            )
    return None
