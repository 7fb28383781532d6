"""Where the server listens: addresses of a configuration, and that no two of them meet."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from frontend.configuration.toml_file import ConfigurationError, Key, TomlDocument


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


def endpoint(text: str) -> Endpoint:
    """The address and port of `ADDRESS:PORT`. Raises `ConfigurationError`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host) != bracketed or not (port.isascii() and port.isdecimal()):
        raise ConfigurationError(f"{text!r} is not ADDRESS:PORT, as 127.0.0.1:8001 or [::1]:8001")
    if len(port) > 5 or int(port) > 65535:
        raise ConfigurationError(f"{text!r}: a port is 0..65535")
    return Endpoint(check_host(host[1:-1] if bracketed else host), int(port))


def check_host(host: str) -> str:
    """`host` if it is an IP address; names are refused, because what they mean can change under a running server."""
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigurationError(f"{host!r} is not an IP address to listen on") from None
    return host


def at(text: str | None, key: Key, source: TomlDocument) -> Endpoint | None:
    """The endpoint that stands at `key`, if there is one. Raises `ConfigurationError` about that key."""
    try:
        return None if text is None else endpoint(text)
    except ConfigurationError as error:
        source.fail(key, str(error))


def check_distinct(main: int, others: Iterable[tuple[Endpoint | None, Key, str]], source: TomlDocument) -> None:
    """Refuse a port that is there twice, at the second of them. `others`: endpoint, its key, and what it is called.

    Locks and runtime directories are by port, so two listeners cannot share one on different addresses either.
    """
    taken = {main: "the main port"}
    for place, key, called in others:
        if place is None or not place.port:
            continue
        if place.port in taken:
            source.fail(key, f"port {place.port} is {taken[place.port]} already")
        taken[place.port] = called
