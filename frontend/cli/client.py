"""What every command that asks a server over HTTP has: its options, the key, and what an answer that is none says.

The standard library alone: a machine that only asks needs neither a web framework nor an event loop.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from frontend.cli.terminal import short

MAX_TIMEOUT_S: Final = 86_400
MAX_STRANGE_CHARS: Final = 100
"""How much of an answer that is not framehost's is shown."""

KEY_VARIABLE: Final = "FRAMEHOST_API_KEY"
"""The client's key. An option for it would show it to everyone who can list processes."""


class UsageError(Exception):
    """The options do not make a request; the text says which."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Where the server is, how long to wait for it, and who asks."""
    command.add_argument("--url", default="http://127.0.0.1:8080", help="the server (default %(default)s)")
    command.add_argument("--timeout", type=seconds, default=30.0, metavar="S", help="seconds (default %(default)s)")
    command.add_argument("--key-file", metavar="FILE", help=f"a file with the API key (default: ${KEY_VARIABLE})")


def seconds(text: str) -> float:
    """A time to wait, as an option. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds above 0 and at most {MAX_TIMEOUT_S}")
    return value


def endpoint(url: str) -> str:
    """Where the server at `url` takes decisions. The SDKs of the field want an address with /v1, so that is taken, too.
    Raises `UsageError` for what is no address."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port or a bracket
        known = False
    if not known:
        raise UsageError(f"{url} is not an http address, as http://127.0.0.1:8080")
    return f"{url.rstrip('/').removesuffix('/v1')}/v1/systemone"


def unreachable(url: str, error: Exception) -> str:
    """What to say when nothing was answered at `url`. urllib wraps the error that it is about."""
    cause = getattr(error, "reason", error)
    error = cause if isinstance(cause, Exception) else error
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection to {url} ({error.reason}); without a proxy in front of it a framehost speaks http"
    return f"nothing answers at {url} ({told(error)})"


def told(error: Exception) -> str:
    """An error of the system without its number, and with the file if it is about one."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    file = getattr(error, "filename", None)
    return f"{file}: {text}" if file else text


def headers(key_file: str | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers of a request: JSON, and the key if there is one. Raises `UsageError` and `OSError`."""
    # What is no text has surrogates then, as a variable with strange bytes has: both are refused below.
    key = (
        environment.get(KEY_VARIABLE, "")
        if key_file is None
        else Path(key_file).read_text(encoding="utf-8", errors="surrogateescape")
    ).strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"the API key in {key_file or '$' + KEY_VARIABLE} is not one line of ASCII")
    if key_file is not None and not key:
        raise UsageError(f"there is no API key in {key_file}")
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}


def ours(body: bytes) -> bool:
    """Whether an error is a framehost's, and not of something between it and us."""
    try:
        return "detail" in json.loads(body)
    except (ValueError, TypeError, RecursionError):
        return False


def said(body: bytes) -> str:
    """What the server said was wrong, whichever error shape it used."""
    try:
        detail: Any = json.loads(body)["detail"]
        if isinstance(detail, list):
            return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in detail)
        return str(detail["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return short(" ".join(body.decode("utf-8", "replace").split()), MAX_STRANGE_CHARS)
