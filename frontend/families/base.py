"""The front's half of a model family: what a processor must do, and the values that pass through it.

    DecisionRequest --prepare--> Prepared --(units to the host, one by one)--> outputs --finish--> Decision
                                              absorb(each output) ^

`prepare` sees the whole request before anything is queued; whatever can be refused is refused there. Each
unit is one frame to the host, whose type is one of `protocol.payloads`. `absorb` runs in the front after a
unit and before the next one asks for the executor. `finish` is given one output per unit, or is not called.

A processor lives as long as its deployment and is shared by its requests: its methods keep no state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from frontend.errors import InternalError
from frontend.requests.answers import Answer, tempered
from frontend.requests.questions import DecisionRequest
from protocol.options import NO_OPTIONS, OptionTable


class AssetError(Exception):
    """What the front needs of a checkpoint cannot be read, or is not what the host has loaded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that was accepted and is ready for the host. Nothing has touched a device."""

    units: tuple[object, ...]
    """Payloads, in the order they must run; at least one, unless a native profile answers without the host."""

    cost: int
    """What cost admission counts: processed tokens, or UTF-8 bytes for text families."""

    work: int
    """Bytes that `finish` and `absorb` will walk through: decides between the event loop and the pool."""

    context: object
    """Whatever the family needs to build the answers."""


ContextT = TypeVar("ContextT")


def context_of(prepared: Prepared, kind: type[ContextT]) -> ContextT:
    """What a family has kept of a request, which is a `kind`. `InternalError` when it was not that family's."""
    if not isinstance(prepared.context, kind):
        raise InternalError("the request was prepared by another family")
    return prepared.context


@dataclass(frozen=True, slots=True)
class Decision:
    """The answers of one request, in request order, each question exactly once."""

    answers: tuple[tuple[str, Answer], ...]
    input_tokens: int
    output_tokens: int = 0
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the response body; every name starts with "x_"."""

    @property
    def usage(self) -> dict[str, int]:
        """Token counts as the response names them."""
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    def tempered(self, temperature: float) -> Decision:
        """The same with every answer as `answers.tempered` has it."""
        if temperature == 1.0:
            return self
        answers = tuple([(name, tempered(answer, temperature)) for name, answer in self.answers])
        return replace(self, answers=answers)


class Processor(ABC):
    """Prepares and finishes the requests of one deployment. Safe to call from several threads at once."""

    temperature: float = 1.0
    """Of the model's configuration, for `Decision.tempered`: applied to what `finish` and `settled` have returned, by
    the callers for the main port."""

    OPTIONS: ClassVar[OptionTable] = NO_OPTIONS
    """The options of the family: `Family.options`."""

    PREPARE_WEIGHT: ClassVar[int] = 1
    """How many times as long as reading JSON `prepare` takes on the same bytes: tokenizing families leave the
    event loop for smaller bodies than the others."""

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        """`facts`: what the host reported when it was ready, empty before there is a host, and then `prepare`
        still validates as the family does. `options`: the model's configuration, defaults filled in here.
        `path`: the checkpoint on this machine, None for the family's default.

        Raises `OptionError`, and `AssetError` when there are facts and what is at `path` does not agree
        with them. Without facts a family that needs the checkpoint waits with its complaint until `prepare`.
        """
        self.facts = facts
        self.options = self.OPTIONS.complete(options)
        self.path = path

    @abstractmethod
    def prepare(self, request: DecisionRequest) -> Prepared:
        """Validates the whole request for this family and renders it. Raises `RequestError`, touches no device."""

    def absorb(self, prepared: Prepared, index: int, output: object) -> object:
        """What to keep of the output of unit `index`, instead of it. May raise `RequestError`: no further unit
        is queued then. The default keeps the output unchanged."""
        return output

    def settled(self, prepared: Prepared, index: int, kept: object) -> Sequence[tuple[str, Answer]]:
        """The questions that unit `index` has settled, with their answers, for clients that are told early; `kept` is
        what `absorb` returned. They are equal to those of `finish`. The default is none: everything is known at the
        end."""
        return ()

    @abstractmethod
    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers from one output per unit. Raises `InternalError` when an output is not an answer."""
