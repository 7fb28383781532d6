"""Requests that end the hosts which execute them: after the second time they are refused for a while.

    a host ended while it executed a request ─▶ 1 ─▶ 2: refused, 422 `poisoned` ─▶ (POISON_S seconds) ─▶ forgotten
                                                │
                                                └── the same request was answered: it was not the request

One of several that were executed at once when the host ended is suspected, and executed alone the next time.

A client sends a request again when it is told to, and one that ends every host that gets it would use up a model for
everybody. A request is known by the digest of its body, the model and the model's weights. As long as no host has
ended, no digest is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from frontend import limits
from frontend.errors import HostDied, HostLost, HostRetires, Poisoned, RequestError
from frontend.serving.deployment import Deployment

Key = tuple[str, str, bytes]

ENOUGH: Final = 2
"""Hosts that a request may end. One death may be chance: the host was killed from outside, or had a fault."""


class Poison:
    """What is known of such requests in one front. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._ended: dict[Key, tuple[int, float]] = {}
        """How many hosts each has ended, and when that is forgotten; the oldest first."""
        self.refused = 0
        """How often one was refused."""

    @property
    def watches(self) -> bool:
        """Whether a host has ended lately, so that requests are looked at."""
        return bool(self._ended)

    def check(self, deployment: Deployment, body: bytes) -> None:
        """Raise `Poisoned` for a request that has ended `ENOUGH` hosts of these weights."""
        if not self._ended:
            return
        self._forget()
        ended, until = self._ended.get(_key(deployment, body), (0, 0.0))
        if ended >= ENOUGH:
            self.refused += 1
            raise Poisoned(
                f"{ended} hosts of model {deployment.name!r} have ended while they executed this very request: it is "
                f"refused for another {until - self._clock():.0f} s"
            )

    def suspects(self, deployment: Deployment, body: bytes) -> bool:
        """Whether a host has ended with this request: it is executed alone then, and a second time is its doing."""
        return bool(self._ended) and _key(deployment, body) in self._ended

    def failed(self, deployment: Deployment, body: bytes, error: RequestError) -> None:
        """The request failed with `error`: remember it when that was the end of its host."""
        if isinstance(error, HostLost) or not (
            isinstance(error, HostRetires) or (isinstance(error, HostDied) and error.dispatched)
        ):
            return
        key = _key(deployment, body)
        ended, _ = self._ended.pop(key, (0, 0.0))
        # Where it was one of several, it is looked at alone before it counts for more than a suspicion.
        ended = max(ended, 1) if isinstance(error, HostDied) and error.in_company else ended + 1
        self._ended[key] = ended, self._clock() + limits.POISON_S
        if len(self._ended) > limits.MAX_POISONED:
            del self._ended[next(iter(self._ended))]

    def answered(self, deployment: Deployment, body: bytes) -> None:
        """It was answered, so it was not the request."""
        if self._ended:
            self._ended.pop(_key(deployment, body), None)

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, (_, until) in self._ended.items() if until <= now]:
            del self._ended[key]

    def report(self) -> dict[str, Any]:
        """For metrics and `framehost status`."""
        self._forget()
        poisoned = sum(ended >= ENOUGH for ended, _ in self._ended.values())
        return {"requests": poisoned, "suspected": len(self._ended) - poisoned, "refused": self.refused}


def _key(deployment: Deployment, body: bytes) -> Key:
    return deployment.name, deployment.identity, hashlib.blake2b(body, digest_size=16).digest()
