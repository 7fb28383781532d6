"""What one host keeps on its device between requests, in the budget of that device.

    begin ─▶ reserved ─▶ EXECUTE with `Keep` ─▶ RESULT with `Held` ─▶ the request is over: what it holds stays, idle
      │                        │
      │                        └── FAILURE, withdrawn, death: nothing new is held
      └── refused: nothing has changed

The host keeps nothing that was not reserved here first. A `Turn` is one request's reservation; the request's context
retains it as it does a permit, so that it ends with its last owner and not with a client that leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from frontend.errors import QueueFull, RequestError, RequestTooLarge
from frontend.runtime.byte_budget import ByteBudget, BytesRefused, Holder, Kind
from frontend.serving.conversations import ENDED, EVICTED, REPLACED, Conversation
from frontend.serving.devices import Devices
from protocol.errors import Malformed
from protocol.messages import Evict
from protocol.retention import Cost, Held, Keep

log = logging.getLogger("framehost.retention")


class Turn:
    """What one request may keep, reserved until it is over."""

    admission: Final = None
    """It is a permit of no admission."""

    __slots__ = ("_budget", "_failed", "_found", "_holder", "_more", "_retention", "conversation")

    def __init__(
        self, retention: Retention, conversation: Conversation | None, budget: ByteBudget, holder: Holder, more: int
    ) -> None:
        """`more`: bytes that `holder` has reserved in `budget` for it."""
        self.conversation = conversation
        self._retention = retention
        self._budget, self._holder, self._more = budget, holder, more
        self._found = 0
        self._failed = False

    @property
    def keep(self) -> Keep:
        """What its next unit is sent with."""
        return self._retention.keep(self.conversation)

    def told(self, fields: Mapping[str, Any] | None, incarnation: str) -> None:
        """A unit of it has ended, and its host says what it holds. What cannot be read is logged and not believed."""
        if fields is None:
            return
        try:
            held = Held.from_wire(fields)
        except Malformed as error:
            log.warning("host %s says of what it holds: %s", incarnation, error)
            return
        self._found += held.found
        self._retention.told(self.conversation, held)

    def failed(self) -> None:
        """A unit of it has failed: what was read until then may lie in the host."""
        self._failed = True

    @property
    def words(self) -> str:
        """For the client: how much of the conversation was not read again, or why all of it was."""
        assert self.conversation is not None
        if self._found:
            return f"{self._found} tokens kept"
        return f"read in full: {self.conversation.lost or 'its text has changed'}"

    # As a permit

    def retained(self) -> None:
        """The request's context ends it from here on."""

    def release_retained(self) -> None:
        """The request is over."""
        self._budget.end(self._holder, self._more, self._retention.says(self._holder, self._budget))
        self._retention.ended(self.conversation, failed=self._failed)


class Retention:
    """One replica's host, over all of its incarnations. Belongs to the event loop's thread."""

    def __init__(self, model: str, host: str, devices: Devices) -> None:
        """`host`: the replica, by a name that no other has."""
        self.model, self.host = model, host
        self.cost: Cost | None = None
        """What keeping costs there, as its last host has said; None for one that keeps nothing."""
        self._devices = devices
        self._budget: ByteBudget | None = None
        self._send: Callable[[Evict], None] | None = None
        self._prefixes = Holder(Kind.PREFIX, host, "")
        self._conversations: dict[str, Conversation] = {}
        """By their names, those that go on here."""
        self._told: dict[Holder, int] = {}
        """What the host has said last of each holder that a turn is in use of."""

    def __repr__(self) -> str:
        return f"<Retention {self.host!r} {self._budget!r}>"

    @property
    def keeps(self) -> bool:
        """Whether the host keeps prefixes."""
        return self.cost is not None

    # Life and death of the host

    def host_up(self, device: str, facts: Mapping[str, Any], send: Callable[[Evict], None]) -> None:
        """A host is dialled: on which device, what it has reported, and how it is told to give something up."""
        self.cost = Cost.from_facts(facts)
        self._budget = None if self.cost is None else self._devices.join(self, device)
        self._send = send

    def welcomed(self, held: Mapping[str, Any]) -> None:
        """What it holds for a front before this one is counted from now on. What cannot be read is given up."""
        if self._budget is None:
            return
        strange = []
        for name, sizes in held.items():
            if not (isinstance(sizes, list) and len(sizes) == 2 and all(type(n) is int and n >= 0 for n in sizes)):
                strange.append(name)
                continue
            found = self._devices.conversations.adopted(name, self.model, self, sizes[0])
            if found is None:
                strange.append(name)
                continue
            self._conversations[name] = found
            self._budget.adopt(self._holder(found), sizes[1])
        if strange:
            self.evict(strange)
        self._devices.fit(self._budget)

    def host_down(self) -> None:
        """Its process is gone, and all that it held. What is reserved for units on their way stays so: they are sent to
        the next one."""
        self._send = None
        self._told.clear()
        if self._budget is not None:
            self._budget.host_ended(self.host)
        for conversation in list(self._conversations.values()):
            conversation.lose(ENDED)
            self._let_go(conversation)

    def close(self) -> None:
        """There will be no host any more."""
        self.host_down()
        if self._budget is not None:
            self._devices.leave(self)
        self.cost = None

    # One request

    def begin(self, conversation: Conversation | None, longest: int) -> Turn | None:
        """Reserve what a request may come to hold whose longest row has so many tokens, as a turn of `conversation` or
        of none. None for a host that keeps nothing.

        Raises `QueueFull` for a conversation that there is no room for, and `RequestTooLarge` when there never will be;
        a request of none keeps less, then. Nothing has changed in both cases.
        """
        budget, cost = self._budget, self.cost
        if budget is None or cost is None:
            return None
        most = cost.of(longest)
        if conversation is None:
            wanted = max(0, min(most, cost.limit_bytes - budget.held(self._prefixes)))
            verdict = budget.reserve(self._prefixes, wanted)
            if isinstance(verdict, BytesRefused):
                wanted = 0
                verdict = budget.reserve(self._prefixes, 0)
            assert not isinstance(verdict, BytesRefused)
            self._devices.evicted(verdict.evicted)
            return Turn(self, None, budget, self._prefixes, wanted)
        holder = self._holder(conversation)
        wanted = max(0, most - budget.settled(holder))
        verdict = budget.reserve(holder, wanted)
        if isinstance(verdict, BytesRefused):
            raise refused(verdict)
        self._devices.evicted(verdict.evicted)
        if conversation.host is not self:
            if conversation.host is not None:
                conversation.host.forget(conversation)
                conversation.lose(REPLACED)
            conversation.host = self
            self._conversations[conversation.name] = conversation
        self._devices.conversations.begin(conversation)
        return Turn(self, conversation, budget, holder, wanted)

    def keep(self, conversation: Conversation | None) -> Keep:
        """What a unit is sent with."""
        name = "" if conversation is None or conversation.over else conversation.name
        return Keep(name, 0 if self._budget is None else self._budget.held(self._prefixes))

    def told(self, conversation: Conversation | None, held: Held) -> None:
        """What the host says with a RESULT."""
        self._told[self._prefixes] = held.prefixes
        if conversation is not None and conversation.host is self and not conversation.over:
            self._told[self._holder(conversation)] = held.bytes
            conversation.tokens = held.tokens

    def says(self, holder: Holder, budget: ByteBudget) -> int | None:
        """What the host has said last that it holds for a holder of `budget`; None when it has said nothing."""
        return self._told.get(holder) if budget is self._budget else None

    def ended(self, conversation: Conversation | None, *, failed: bool) -> None:
        """A turn is over, and its reservation has ended. `failed`: what it has read may lie in the host."""
        dropped = []
        if conversation is not None:
            self._devices.conversations.finish(conversation)
            if conversation.host is not self or conversation.over:
                # It goes on elsewhere, or not at all: what this turn has left belongs to none.
                dropped.append(conversation.name)
            elif self._send is None:
                self._let_go(conversation)
            if conversation.tokens:
                conversation.lost = ""
        if failed or dropped:
            self.evict(dropped)

    def _let_go(self, conversation: Conversation) -> None:
        """It has nothing here, and need not come here again, when no turn of it is on its way."""
        if not conversation.active:
            self._conversations.pop(conversation.name, None)
            conversation.host = None

    def forget(self, conversation: Conversation) -> None:
        """Nothing is kept for it any more; what a turn has reserved goes when that ends."""
        holder = self._holder(conversation)
        self._told.pop(holder, None)
        self._conversations.pop(conversation.name, None)
        if self._budget is not None:
            self._budget.give_back(holder)
            self.evict([conversation.name])
        if conversation.host is self:
            conversation.host = None
            conversation.lose(EVICTED)

    def dropped(self, holder: Holder) -> Conversation | None:
        """Its budget has taken this away from it; whose it was. The host is told by `evict`."""
        self._told.pop(holder, None)
        conversation = self._conversations.pop(holder.id, None) if holder.kind is Kind.CONVERSATION else None
        if conversation is not None:
            conversation.lose(EVICTED)
            conversation.host = None
        return conversation

    def held(self, conversation: Conversation) -> int:
        """Bytes of a conversation."""
        return 0 if self._budget is None else self._budget.held(self._holder(conversation))

    def evict(self, conversations: Iterable[str]) -> None:
        """Have the host give these up, and all prefixes that are beyond what they have."""
        if self._send is not None and self._budget is not None:
            self._send(Evict(conversations=list(conversations), prefixes=self._budget.held(self._prefixes)))

    def _holder(self, conversation: Conversation) -> Holder:
        return Holder(Kind.CONVERSATION, self.host, conversation.name)


def refused(refusal: BytesRefused) -> RequestError:
    """The client's answer to a refusal: which budget, and its four numbers."""
    text = (
        f"the budget of the device {refusal.budget!r} refused this request: bytes requested {refusal.requested}, "
        f"in use {refusal.used}, limit {refusal.limit}, short by {refusal.shortfall}"
    )
    if refusal.permanent:
        return RequestTooLarge(text)
    return QueueFull(text, retry_after=1)
