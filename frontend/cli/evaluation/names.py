"""Which models are measured: those that are named, if the server has them, or all that it lists. The standard library
alone.

    GET /v1/models        the names
    GET /v1/models/NAME   whether a name that is not among them is one all the same, as an alias
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from frontend.cli import client, ways
from frontend.cli.client import UsageError
from frontend.cli.sender import Stopped


class NoListing(Stopped):
    """The server is there and does not say which models it has."""


def chosen(url: str, headers: Mapping[str, str], timeout: float, wanted: Sequence[str]) -> list[str]:
    """The models to ask, each once: `wanted`, or all that the server at `url` lists.

    An empty name is that of a request without one. A server that lists nothing is asked for whatever is wanted. Raises
    `UsageError` for names that the server does not have, and `Stopped` when nothing is there or nothing says the names.
    """
    names = list(dict.fromkeys(wanted))
    try:
        listed = _listed(url, headers, timeout)
    except NoListing:
        if names:
            return names
        raise
    unknown = [name for name in names if name and name not in listed and not _known(url, headers, timeout, name)]
    if unknown:
        raise UsageError(f"there is no model {', '.join(map(repr, unknown))} at {url}; there are: {', '.join(listed)}")
    return names or listed


def _listed(url: str, headers: Mapping[str, str], timeout: float) -> list[str]:
    try:
        names = [str(model["id"]) for model in _asked(url, headers, timeout, "models")["data"]]
    except urllib.error.HTTPError as error:
        with error:
            if error.code in ways.REDIRECTS:
                raise Stopped(ways.elsewhere(error.code, error.headers)) from None
            raise NoListing(f"{error.code}: {client.said(error.read())}; name the models with --model") from None
    except (OSError, HTTPException) as error:
        raise Stopped(client.unreachable(url, error)) from error
    except (ValueError, LookupError, TypeError) as error:
        raise NoListing(f"{url} does not list its models; name them with --model") from error
    if not names:
        raise NoListing(f"{url} lists no model; name one with --model")
    return names


def _known(url: str, headers: Mapping[str, str], timeout: float, name: str) -> bool:
    """Whether the server takes a name that it does not list. Only a plain 404 says that it does not."""
    try:
        _asked(url, headers, timeout, f"models/{quote(name, safe='', errors='replace')}")
    except urllib.error.HTTPError as error:
        with error:
            return error.code != 404
    except (OSError, HTTPException) as error:
        raise Stopped(client.unreachable(url, error)) from error
    except ValueError:
        return True
    return True


def _asked(url: str, headers: Mapping[str, str], timeout: float, path: str) -> Any:
    address = client.endpoint(url).removesuffix("systemone") + path
    request = urllib.request.Request(address, headers=dict(headers))  # noqa: S310 - it is http
    with ways.opener(address).open(request, timeout=timeout) as response:
        return json.load(response)
