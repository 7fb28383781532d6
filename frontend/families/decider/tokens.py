"""From texts to tokens: which strings are encoded together, and which tokens stand for the options.

    row      Context:\\n<state>  \\n\\nQuestion: <text>\\nOptions:  \\n(<label>) <option> ...  \\nAnswer: (
    encoded  `----- one -----'  `---------------------- one, up to 10 options ---------------------'
                                `----------- one ----------'  pieces, one label token each   `-- one --'

Where one encoded string ends and the next begins decides the tokens, so it is part of the contract (2.2).
No special tokens are added; those that a client's text spells are read as such, as in the original.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final, TypeAlias

from protocol import long_texts
from protocol.contracts.decider import MAX_ROW_TOKENS, MAX_STATE_TOKENS, labels

Encode: TypeAlias = Callable[[str], list[int]]
"""The token ids of a string, without added special tokens. Safe to call from several threads at once."""

NARROW: Final = 10
"""Up to this many options are encoded with their question, as one string; more become pieces."""


@dataclass(frozen=True, slots=True, repr=False)
class Vocabulary:
    """The tokenizer of a checkpoint and what follows from it. Made by `of`."""

    encode: Encode
    names: tuple[str, ...]
    """[255] labels: as `protocol.contracts.decider.labels`."""

    labels: tuple[int, ...]
    """[255] their token ids, all different. The executor reads the logits of the first n of them."""

    opening: tuple[int, ...]
    """Token ids of what stands before a label."""

    @classmethod
    def of(cls, encode: Encode) -> Vocabulary:
        """The vocabulary of a tokenizer. Raises `ContractError` for one that lacks labels."""
        return cls(encode, *labels(encode), tuple(encode("\n(")))

    def __repr__(self) -> str:
        return f"<Vocabulary with labels {self.names[0]}..{self.names[-1]}>"

    def state(self, text: str, *, cut: bool = False) -> list[int]:
        """The state part of a row. A long one that is to be `cut` is encoded as `long_texts.to_be_cut` does; else
        raises `TooManyTokens`."""
        read = long_texts.to_be_cut if cut else long_texts.bounded
        return read(self.encode, f"Context:\n{text}", MAX_STATE_TOKENS)

    def question(self, text: str, options: Sequence[str]) -> list[int]:
        """The rest of a row: question, options in label order, answer slot. At least one option, at most 255. Raises
        `TooManyTokens` for a text that makes too long a row by itself."""
        head, tail = f"\n\nQuestion: {text}\nOptions:", "\nAnswer: ("
        if len(options) <= NARROW:
            # The labels up to J are those letters in every vocabulary, one token or not.
            lines = [f"\n({label}) {option}" for label, option in zip(ascii_uppercase, options, strict=False)]
            return self._part("".join([head, *lines, tail]))
        tokens = self._part(head)
        for label, option in zip(self.labels, options, strict=False):
            tokens += self.opening
            tokens.append(label)
            tokens += self._part(f") {option}")
        tokens += self.encode(tail)
        return tokens

    def _part(self, text: str) -> list[int]:
        return long_texts.bounded(self.encode, text, MAX_ROW_TOKENS)
