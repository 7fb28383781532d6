"""The conversations of clients: which text each goes on from, where it is held, and when it is forgotten.

    x_session "a" ─▶ open ─▶ in use: its turns ─▶ idle ─▶ the next turn, or forgotten: told to, or idle for too long
                                 │
                                 └── its bytes are gone (a death, a swap, others needed them): it goes on, and its next
                                     turn is read in full

An id is its key's: two keys may use the same one. One and the same id may be used with several models, and is a
conversation with each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from frontend.errors import QueueFull
from frontend.limits import SESSION_IDLE_S

if TYPE_CHECKING:
    from frontend.serving.retention import Retention

MAX_CONVERSATIONS: Final = 10_000
"""Of a front. Each is some hundred bytes here; what they hold on a device is bounded there."""

SEPARATOR: Final = "\n"
"""Between the name of a key and the client's own id: neither has one in it."""

NEW: Final = "it is new"
ENDED: Final = "its host has ended"
REPLACED: Final = "it is answered by another host"
EVICTED: Final = "its bytes were needed"


@dataclass(slots=True, eq=False)
class Conversation:
    """One conversation with one model."""

    account: str
    """The name of its key; "" where there are none."""
    model: str
    id: str
    used: float
    """When its last turn began or ended, on the loop's clock."""
    created: float
    host: Retention | None = None
    """Whose host holds what it has pinned, or reads it."""
    tokens: int = 0
    """That are held."""
    turns: int = 0
    active: int = 0
    """Turns that go on."""
    lost: str = NEW
    """Why nothing is held, while nothing is."""
    over: bool = field(default=False)
    """It was ended while a turn went on: nothing of it stays."""

    @property
    def name(self) -> str:
        """What hosts call it."""
        return f"{self.account}{SEPARATOR}{self.id}"

    @property
    def bytes(self) -> int:
        """That are reserved for it, or held."""
        return 0 if self.host is None else self.host.held(self)

    def lose(self, why: str) -> None:
        """What was held is not any more."""
        self.tokens, self.lost = 0, why


class Conversations:
    """All conversations of a front. Belongs to the event loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_s: float = SESSION_IDLE_S, most: int = MAX_CONVERSATIONS
    ) -> None:
        """`idle_s`: seconds without a turn after which one is over. `most`: how many there may be."""
        self.idle_s, self._most = idle_s, most
        self._loop = loop
        self._all: dict[tuple[str, str, str], Conversation] = {}
        """By key, model and id; the one whose last turn was longest ago first."""
        self._timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Conversation]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def of(self, account: str) -> list[Conversation]:
        """Those of one key, the one that was used last at the end."""
        return [one for one in self._all.values() if one.account == account]

    def open(self, account: str, model: str, session: str) -> Conversation:
        """The conversation that a turn is about to begin in, new or not. Raises `QueueFull` when there are too many,
        and each of them is at work."""
        key = (account, model, session)
        found = self._all.pop(key, None)
        if found is None:
            if len(self._all) >= self._most:
                idle = next((one for one in self._all.values() if not one.active), None)
                if idle is None:
                    text = f"the server has {self._most} conversations at work, and that is the limit"
                    raise QueueFull(text, retry_after=1)
                self.end(idle)
            now = self._loop.time()
            found = Conversation(account, model, session, used=now, created=now)
        self._all[key] = found
        return found

    def begin(self, conversation: Conversation) -> None:
        """A turn begins."""
        conversation.active += 1
        conversation.turns += 1
        conversation.used = self._loop.time()

    def finish(self, conversation: Conversation) -> None:
        """A turn is over, however it ended."""
        conversation.active -= 1
        conversation.used = self._loop.time()
        self._look_later()

    def asked(self, conversation: Conversation) -> None:
        """What `open` was called for is over: a conversation that no turn was begun of, because it was refused, is
        none."""
        if not conversation.turns:
            self._all.pop((conversation.account, conversation.model, conversation.id), None)

    def end(self, conversation: Conversation) -> None:
        """It is over: what it holds is given up, at once or when its turns have ended."""
        del self._all[conversation.account, conversation.model, conversation.id]
        conversation.over = True
        if conversation.host is not None:
            conversation.host.forget(conversation)

    def adopted(self, name: str, model: str, host: Retention, tokens: int) -> Conversation | None:
        """A host holds this for an earlier front; None when that is no conversation, or is one already."""
        account, _, session = name.partition(SEPARATOR)
        key = (account, model, session)
        if not session or key in self._all or len(self._all) >= self._most:
            return None
        now = self._loop.time()
        found = Conversation(account, model, session, now, now, host, tokens, turns=1)
        self._all[key] = found
        self._look_later()
        return found

    def _look_later(self) -> None:
        if self._timer is None and self._all:
            oldest = min(one.used for one in self._all.values())
            self._timer = self._loop.call_at(oldest + self.idle_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for one in list(self._all.values()):
            if not one.active and now - one.used >= self.idle_s:
                self.end(one)
        self._look_later()
