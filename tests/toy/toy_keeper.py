"""The toy that keeps what it has read, as a family with kept prefixes does. A character of the state's "text" is a
token.

A token costs 100 bytes, and a text 1,000 more. The answer says how many tokens were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toy_host import ToyExecutor

from executor_host.executors.base import Call, Progress
from protocol.retention import Cost, Held

LIMIT_BYTES = 1_000_000


class ToyKept:
    """Texts: of conversations, and of no one's."""

    def __init__(self) -> None:
        self._conversations: dict[str, str] = {}
        self._prefixes: list[str] = []
        self._allowed = LIMIT_BYTES
        self._turn: str | None = None
        self.found = 0

    def cost(self) -> Cost:
        return Cost(token_bytes=100, state_bytes=1_000, segment=10**6, limit_bytes=LIMIT_BYTES)

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]

    def allow(self, prefixes: int) -> None:
        self._allowed = min(LIMIT_BYTES, prefixes)
        self._fit()

    def begin_turn(self) -> None:
        self._turn, self.found = "", 0

    def read(self, text: str) -> None:
        texts = (*self._conversations.values(), *self._prefixes)
        self.found = max((_common(text, other) for other in texts), default=0)
        self._turn = text

    def end_turn(self, conversation: str | None) -> Held:
        text, self._turn = self._turn, None
        if conversation and text:
            self._conversations[conversation] = text
        elif text and text not in self._prefixes:
            self._prefixes.append(text)
        self._fit()
        pinned = self._conversations[conversation] if conversation and text else ""
        return Held(self._bytes, len(pinned), self._size(pinned) if pinned else 0, self.found)

    def drop(self, conversations: Iterable[str]) -> None:
        for name in conversations:
            self._conversations.pop(name, None)

    @property
    def _bytes(self) -> int:
        return sum(map(self._size, self._prefixes))

    def _size(self, text: str) -> int:
        return self.cost().of(len(text))

    def _fit(self) -> None:
        while self._bytes > self._allowed:
            self._prefixes.pop(0)


def _common(one: str, other: str) -> int:
    """How many characters they begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


class KeeperExecutor(ToyExecutor):
    """The toy, with a device whose memory is shared."""

    def load(self, progress: Progress) -> Mapping[str, object]:
        self._kept_prefixes = ToyKept()
        return {**super().load(progress), "device": "toy:0"}

    @property
    def kept(self) -> ToyKept:
        return self._kept_prefixes

    def _do(self, state: dict[str, Any], call: Call) -> dict[str, Any]:
        if "text" in state:
            self._kept_prefixes.read(state["text"])
        return {**super()._do(state, call), "found": self._kept_prefixes.found}
