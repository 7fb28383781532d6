"""What is done with each output of a request before its next unit asks for the executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from frontend.families.base import Prepared, Processor
from frontend.requests.answers import Answer, tempered


class Absorbing(Protocol):
    """A half of a family that sees each output before the next unit asks for the executor."""

    def absorb(self, prepared: Prepared, index: int, output: object) -> object: ...


@dataclass(frozen=True, slots=True)
class Telling:
    """Absorbs as the processor does, and says what is settled by it."""

    processor: Processor
    on_answer: Callable[[str, Answer], None]

    def absorb(self, prepared: Prepared, index: int, output: object) -> object:
        kept = self.processor.absorb(prepared, index, output)
        for question, answer in self.processor.settled(prepared, index, kept):
            self.on_answer(question, tempered(answer, self.processor.temperature))
        return kept
