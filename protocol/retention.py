"""What a host keeps on its device between units, and what the front lets it keep: the front owns the budget of the
device, and a host keeps nothing beyond what it was told with a unit.

A conversation is named here by a text of the front's, which holds the name of its key. What it has pinned is the
longest prefix that its last unit has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from protocol import limits
from protocol.errors import Malformed

MAX_CONVERSATION_CHARS: Final = 2 * limits.MAX_NAME_CHARS
"""The name of a key, a separator, and a client's own id."""


@dataclass(frozen=True, slots=True)
class Keep:
    """With an EXECUTE: what may stay when the unit has ended."""

    conversation: str
    """Whose text it reads, which is pinned then; "" for a unit of none."""

    prefixes: int
    """Bytes that all prefixes together may take that no conversation has pinned. The host's own option bounds them,
    too."""

    def to_wire(self) -> dict[str, Any]:
        """A map of the two."""
        return {"conversation": self.conversation, "prefixes": self.prefixes}

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """What was received; `Malformed` when it is none."""
        conversation, prefixes = fields.get("conversation"), fields.get("prefixes")
        if len(fields) != 2 or type(conversation) is not str or type(prefixes) is not int or not _whole(prefixes):
            raise Malformed("what is to be kept is a conversation and a number of bytes")
        if len(conversation) > MAX_CONVERSATION_CHARS:
            raise Malformed(f"a conversation's name has {len(conversation)} characters of {MAX_CONVERSATION_CHARS}")
        return cls(conversation, prefixes)


@dataclass(frozen=True, slots=True)
class Held:
    """With a RESULT: what is held now."""

    prefixes: int
    """Bytes of what no conversation has pinned."""

    tokens: int
    """Of the unit's conversation, that are pinned; 0 for a unit of none."""

    bytes: int
    """Of these tokens, pinned by other conversations as well or not."""

    found: int
    """Tokens of the unit that were held before it, and were not read again."""

    def to_wire(self) -> dict[str, Any]:
        """A map of the four."""
        return asdict(self)

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """What was received; `Malformed` when it is none."""
        names = ("prefixes", "tokens", "bytes", "found")
        if len(fields) != len(names) or not all(_whole(fields.get(name)) for name in names):
            raise Malformed("what is held is four numbers")
        return cls(*(fields[name] for name in names))


@dataclass(frozen=True, slots=True)
class Cost:
    """In the facts of a host that keeps prefixes: what the budget reckons with before a unit is sent."""

    token_bytes: int
    """Of each token that is kept."""

    state_bytes: int
    """Of the state that each segment, and the rest behind the last whole one, has beside its tokens; at most."""

    segment: int
    """Tokens of a segment, 1 or more."""

    limit_bytes: int
    """What the host's own option lets its prefixes take."""

    def of(self, tokens: int) -> int:
        """Bytes that a text of so many tokens takes at most."""
        return tokens * self.token_bytes + -(-tokens // self.segment) * self.state_bytes

    def to_wire(self) -> dict[str, Any]:
        """A map of the four."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self | None:
        """The fact `keeps` of a host; None for one that keeps nothing, or says nothing that can be reckoned with."""
        fields = facts.get("keeps")
        names = ("token_bytes", "state_bytes", "segment", "limit_bytes")
        if not isinstance(fields, Mapping) or not all(_whole(fields.get(name)) for name in names):
            return None
        return cls(*(fields[name] for name in names)) if fields["segment"] else None


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.MAX_CALL_ID
