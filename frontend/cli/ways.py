"""The way to a server that a command asks: straight, or through the proxy that the environment names.

One rule for every command. Loopback is this machine and never behind a proxy; for other addresses `http_proxy`,
`https_proxy` and `no_proxy` mean what they mean everywhere. A redirect is not followed: a request would
carry its key to another server, so the address is told instead.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

from frontend.cli.terminal import short

REDIRECTS: Final = range(300, 400)
MAX_PLACE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Way:
    """How connections to one server are opened. `proxy` None: straight."""

    scheme: str
    host: str
    port: int | None
    proxy: SplitResult | None

    @classmethod
    def to(cls, url: str) -> Self:
        """The way to the server at `url`, an http address, as the environment has it now."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(parts.scheme, parts.hostname, parts.port, _proxy(parts))

    def open(self, timeout_s: float) -> http.client.HTTPConnection:
        """A new connection, not yet opened."""
        kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        if self.proxy is None:
            return kind(self.host, self.port, timeout=timeout_s)
        made = kind(str(self.proxy.hostname), self.proxy.port or 80, timeout=timeout_s)
        if self.scheme == "https":
            made.set_tunnel(self.host, self.port or 443, self._introduction())
        return made

    def target(self, path: str) -> str:
        """What a request line says for `path`: a proxy that is asked for http wants the whole address."""
        if self.proxy is None or self.scheme == "https":
            return path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}{'' if self.port is None else f':{self.port}'}{path}"

    def headers(self) -> dict[str, str]:
        """What each request carries for the proxy."""
        return {} if self.scheme == "https" else self._introduction()

    def _introduction(self) -> dict[str, str]:
        if self.proxy is None or self.proxy.username is None:
            return {}
        user = f"{unquote(self.proxy.username)}:{unquote(self.proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _proxy(parts: SplitResult) -> SplitResult | None:
    host = str(parts.hostname)
    named = urllib.request.getproxies_environment().get(parts.scheme)
    if not named or loopback(host):
        return None
    if urllib.request.proxy_bypass_environment(host):  # type: ignore[attr-defined] # typeshed has it for macOS alone
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    return proxy if proxy.hostname else None


def loopback(host: str) -> bool:
    """Whether a host of an address is this machine: its own name for itself, or an address that leads nowhere else."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Stays(urllib.request.HTTPRedirectHandler):
    """Makes an error of a redirect, as of any status that is no answer."""

    def redirect_request(self, *_: Any) -> None:
        return None


def opener(url: str) -> urllib.request.OpenerDirector:
    """For a single request to the server at `url`, by the same rule."""
    proxy = Way.to(url).proxy
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({} if proxy is None else {urlsplit(url).scheme: proxy.geturl()}), _Stays()
    )


def elsewhere(status: int, headers: Mapping[str, str] | Any) -> str:
    """What to say of a redirect."""
    place = headers.get("Location") or "an address that it does not name"
    return (
        f"{status}: it sends us on to {short(str(place), MAX_PLACE_CHARS)}; if the server is there, name it with --url"
    )
