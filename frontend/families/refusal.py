"""A request that a model cannot be asked, before either dialect has found its own words for it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from frontend.errors import InvalidRequest, RequestError, RequestTooLarge, TokensExceeded

Reason: TypeAlias = Literal["form", "invalid", "tokens", "size"]
"""No JSON, or no object; wrong in what it says; one text too long; too much in total."""


class Refused(ValueError):
    """`message` is public, and in a family's own dialect the whole answer; `place` leads to what is wrong from the
    body's root."""

    def __init__(self, message: str, place: tuple[str | int, ...] = (), *, reason: Reason = "invalid") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.reason: Reason = reason

    def below(self, *place: str | int) -> Refused:
        """The same, of a part that lies at `place` in the whole."""
        return Refused(self.message, (*place, *self.place), reason=self.reason)

    def for_systemone(self) -> RequestError:
        """The same in the System One dialect: 422 with the place, 400 `max_tokens_exceeded`, or 413."""
        if self.reason == "tokens":
            return TokensExceeded(self.message)
        if self.reason == "size":
            return RequestTooLarge(self.message)
        return InvalidRequest.at(self.place, self.message, "value_error")
