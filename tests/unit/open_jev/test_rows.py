"""From questions to rows: the chat around each, independence, limits, and the left side encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from frontend.families.checkpoints import EncodeAll as Encode
from frontend.families.open_jev import rows as module
from frontend.families.open_jev.checkpoint import Checkpoint
from frontend.families.open_jev.rendering import question
from frontend.families.open_jev.rows import compile_rows
from frontend.families.refusal import Refused
from protocol.contracts.open_jev import DEFAULT_CHAT
from tests.unit.open_jev.helpers import CHAT, QUESTIONS, compiled, letters, rows_of, texts_of

np = pytest.importorskip("numpy")

NOUL = {"type": "noul", "instructions": "i"}


def test_a_row_is_a_prompt_in_its_chat() -> None:
    """Every candidate with a state of its own, question by question, in order."""
    made = compiled({"b": 1, "a": 2}, QUESTIONS)
    texts = texts_of(made.payload)
    assert all(text.startswith('<Context:\n{"a": 2, "b": 1}\n\nQuestion: ') for text in texts)
    assert all(text.endswith("Answer Yes or No.>") for text in texts)
    options = [text.partition("Proposed answer: ")[2].partition("\n")[0] for text in texts]
    assert options == ["billing: charges", "login", "", "low", '{"n": 1}', "high"]
    assert made.payload.questions.tolist() == [0, 0, 1, 2, 2, 2]
    assert made.payload.candidates.tolist() == [1] * 6
    assert made.tokens == len(made.payload.tokens) == sum(map(len, texts))
    assert made.candidates == 6
    assert type(made.payload).from_wire(made.payload.to_wire()).rows == 6


def test_the_default_chat_is_the_templates() -> None:
    """One message of a user, and an answer that begins without thinking."""
    assert DEFAULT_CHAT.prefix == "<|im_start|>user\n"
    assert DEFAULT_CHAT.suffix == "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_questions_do_not_change_each_other() -> None:
    """Added, removed, renamed or in another order: each keeps its rows."""
    whole = compiled("s", QUESTIONS)
    alone = {name: texts_of(compiled("s", {"x": QUESTIONS[name]}).payload) for name in QUESTIONS}
    assert texts_of(whole.payload) == [text for name in QUESTIONS for text in alone[name]]
    turned = compiled("s", dict(reversed(QUESTIONS.items())))
    assert texts_of(turned.payload) == [text for name in reversed(QUESTIONS) for text in alone[name]]


def test_a_row_that_is_too_long_is_refused_and_named() -> None:
    """With its length; the first one, whichever question it belongs to, and nothing is cut."""
    asked = {"a": NOUL, "b": NOUL | {"instructions": "long"}}
    longest = max(map(len, texts_of(compiled("s", asked).payload)))
    assert compiled("s", asked, longest).candidates == 2
    message = rf"^question b: {longest} tokens exceeds max_length={longest - 1}; no silent truncation$"
    with pytest.raises(Refused, match=message) as caught:
        compiled("s", asked, longest - 1)
    assert (caught.value.reason, caught.value.place) == ("tokens", ("questions", "b"))


def test_the_first_question_that_is_too_long_is_named() -> None:
    """By its second option before a later one by its first, and the other way round."""
    late = {"type": "choice", "instructions": "i", "criteria": {"a": None, "b": "long " * 40}}
    early = {"type": "noul", "instructions": "longer " * 40}
    for asked, named in (({"a": late, "b": early}, "a"), ({"a": early, "b": late}, "a"), ({"z": NOUL, "b": late}, "b")):
        with pytest.raises(Refused, match=f"^question {named}: "):
            compiled("s", asked, 200)


def test_all_rows_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: the family's own limits allow a message of a gigabyte."""
    total = compiled("s", QUESTIONS).tokens
    monkeypatch.setattr(module, "MAX_TOKENS", total)
    assert compiled("s", QUESTIONS).tokens == total
    monkeypatch.setattr(module, "MAX_TOKENS", total - 1)
    with pytest.raises(Refused, match="in total") as caught:
        compiled("s", QUESTIONS)
    assert caught.value.reason == "size"


@pytest.mark.parametrize("where", ["state", "instructions"])
def test_a_request_that_is_too_long_is_not_encoded_to_its_end(where: str) -> None:
    """A long text is encoded a few times and not once for each option; its prompts are not even made."""
    seen: list[int] = []

    def counting(texts: Sequence[str]) -> list[list[int]]:
        seen.append(sum(map(len, texts)))
        return letters(texts)

    long = "x" * 10_000
    asked = long if where == "instructions" else "i"
    wide = question("q", {"type": "choice", "instructions": asked, "criteria": dict.fromkeys(map(str, range(255)))})
    short = question("n", {"type": "noul", "instructions": "i"})
    with pytest.raises(Refused, match="^question q" if where == "instructions" else "^question n"):
        compile_rows(long if where == "state" else "s", [short, wide], counting, chat=CHAT, max_length=4096)
    assert sum(seen) < 3 * len(long) + 1000


STATES: list[Any] = [
    "",
    " ",
    "ends\n",
    "ends\n\n ",
    "\r\n\t",
    {"a": "<|im_end|>"},
    "<|im_end|>",
    "café 猫",
    [1.5, None],
]


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_encoding_the_state_once_changes_nothing(checkpoint: Checkpoint, state: Any) -> None:
    """Every row is what the tokenizer makes of the whole text, line breaks and special tokens at the seam included."""
    asked = [question(name, fields) for name, fields in QUESTIONS.items()]
    made = compile_rows(state, asked, checkpoint.encode, chat=checkpoint.terms.chat, max_length=4096)
    assert rows_of(made.payload) == whole(state, asked, checkpoint.encode)


def test_a_tokenizer_that_joins_the_two_sides_is_noticed(checkpoint: Checkpoint) -> None:
    """Then every row is encoded whole."""

    def joining(texts: Sequence[str]) -> list[list[int]]:
        # The last line break and the letter after it are one token.
        return [[ord(letter) for letter in text.replace("\n\nQ", "\n\x01")] for text in texts]

    asked = [question(name, fields) for name, fields in QUESTIONS.items()]
    made = compile_rows("s", asked, joining, chat=checkpoint.terms.chat, max_length=4096)
    assert rows_of(made.payload) == whole("s", asked, joining)


def whole(state: Any, asked: Any, encode: Encode) -> list[list[int]]:
    """Each row encoded as one text."""
    from frontend.families.open_jev.rendering import prompts

    texts = [prompt for one in asked for prompt in prompts(state, one)]
    return encode([f"{DEFAULT_CHAT.prefix}{text}{DEFAULT_CHAT.suffix}" for text in texts])
