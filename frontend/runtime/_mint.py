"""The key with which the runtime mints its tokens.

A permit, a signal or a dispatch that anyone could construct would prove nothing. All of
them ask for this key, and it stays inside this package: a route that never asked the
scheduler has no way to come by the token that says it did.
"""

from __future__ import annotations

from typing import Final

from frontend.errors import Misuse

KEY: Final = object()


def require(key: object, what: str) -> None:
    """Raise Misuse unless `key` is the package's own."""
    if key is not KEY:
        raise Misuse(f"only the runtime makes a {what}")
