"""From a request to the prompts a Cua-S1 model reads: one chat per question, whose answer is one letter.

    system   a fixed sentence
    user     [Goal: <instructions>]  App  Task family  Accessibility tree: <state>  Options: A. ... B. ...
    opening  of an answer that begins with an open thought

Every byte is the original's: the model was tuned on these strings, and another suffix alone changes
every probability. The names of questions never reach the model, and those of options only where an option has no
description. Text that spells a special token is read as that token, as in the original.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from frontend.families.refusal import Refused
from frontend.requests.questions import Choice, Text
from protocol.contracts.cua_s1 import CHAT, LETTERS, MAX_PROMPT_TOKENS, SYSTEM, USER
from protocol.long_texts import TooManyTokens, bounded

MAX_OPTIONS: Final = len(LETTERS)

MAX_QUESTIONS: Final = 64
"""Questions of one request: each is a pass of the model of its own."""

Encode: TypeAlias = Callable[[str], list[int]]
"""The token ids of a string, without added special tokens. Safe to call from several threads at once."""


def json_text(value: Text) -> str:
    """A string as it is, an object or array as Python's default JSON with non-ASCII characters unescaped."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def label(name: str, description: Text | None) -> str:
    """What an option's line says of it, within its quotes: the description, or the name of one without."""
    text = name if description is None else json_text(description)
    return json.dumps(text, ensure_ascii=False)[1:-1]


def user_text(state: str, question: Choice) -> str:
    """The user's message: `state` already as text."""
    goal = "" if question.instructions is None else json_text(question.instructions)
    lines = [
        f'{letter}. Decision "{label(name, description)}" -> select'
        for letter, (name, description) in zip(LETTERS, question.options, strict=False)
    ]
    # Not with format(): the parts may hold braces, and format() of a template this size is no faster.
    head, _, rest = USER.partition("{goal}")
    before, _, rest = rest.partition("{state}")
    between, _, tail = rest.partition("{options}")
    return "".join((head, f"Goal: {goal}\n\n" if goal else "", before, state, between, "\n".join(lines), tail))


def chat_text(state: str, question: Choice) -> str:
    """The whole prompt of one question."""
    return CHAT.format(system=SYSTEM, user=user_text(state, question))


def prompts(state: Text, questions: Sequence[Choice], encode: Encode) -> list[list[int]]:
    """The tokens of every question's prompt, in order; `Refused` for the first that is too long.

    The questions have 1 to 26 options. Tokenizing is what takes time here, and every prompt holds the state.
    """
    text = json_text(state)
    made = []
    for question in questions:
        try:
            tokens = bounded(encode, chat_text(text, question), MAX_PROMPT_TOKENS)
        except TooManyTokens as error:
            raise _too_long(question, f"at least {error.least} prompt tokens") from None
        if len(tokens) > MAX_PROMPT_TOKENS:
            raise _too_long(question, f"{len(tokens)} prompt tokens")
        made.append(tokens)
    return made


def _too_long(question: Choice, size: str) -> Refused:
    message = f"question {question.id!r}: {size}, over {MAX_PROMPT_TOKENS}"
    return Refused(message, ("questions", question.id), reason="tokens")
