"""A text that is longer than a model reads is not encoded to its end; one that is cut is never encoded at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from executor_host.errors import InputRefused
from executor_host.executors.clef import encoding as clef
from frontend.families import checkpoints
from frontend.families.cua_s1.prompt import prompts
from frontend.families.decider.rows import compile_rows as decider_rows
from frontend.families.decider.tokens import Vocabulary
from frontend.families.kev import grammar as kev_grammar
from frontend.families.kev.rows import compile_rows as kev_rows
from frontend.families.laya import grammar as laya_grammar
from frontend.families.laya.rows import compile_rows as laya_rows
from frontend.families.nimble.rendering import question as nimble_question
from frontend.families.nimble.rows import compile_rows as nimble_rows
from frontend.families.open_jev.rendering import question as open_jev_question
from frontend.families.open_jev.rows import compile_rows as open_jev_rows
from frontend.families.refusal import Refused
from frontend.requests.questions import Choice
from protocol import long_texts
from protocol.contracts.decider import MAX_STATE_TOKENS
from protocol.long_texts import PIECE_CHARS, TooManyTokens
from tests.helpers import tiny_decider, tiny_kev, tiny_laya, tiny_open_jev
from tests.unit.decider.test_rows import LETTERS
from tests.unit.kev.helpers import MARKS
from tests.unit.laya.helpers import ENGLISH, SPECIAL
from tests.unit.nimble.test_rows import CODES
from tests.unit.open_jev.helpers import CHAT

TEXTS = {
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 120_000,
    "CJK": "客户说订单来了两次并要求退款" * 150_000,
    "punctuation": "?!.,;:-()" * 300_000,
    "blanks": f"a{4_000_000 * ' '}a",
    "one letter": "a" * 4_000_000,
    "digits": "0123456789" * 400_000,
    "words": "the order came twice " * 200_000,
}
"""Of some megabytes each."""


class Counting:
    """One token for a character; how many characters it was given, and at most at once."""

    def __init__(self) -> None:
        self.seen = self.most = 0

    def one(self, text: str) -> list[int]:
        self.seen += len(text)
        self.most = max(self.most, len(text))
        return [7] * len(text)

    def all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.one(text) for text in texts]


def questions(where: str, text: str) -> dict[str, Any]:
    """A choice and a noul, one of whose texts is `text`."""
    option, asked = (text if where == "option" else "an invoice"), (text if where == "instructions" else "which team?")
    return {
        "first": {"type": "noul", "instructions": "is it so?"},
        "team": {"type": "choice", "instructions": asked, "criteria": {"billing": option, "login": "no entry"}},
    }


def decider(encode: Counting, where: str, text: str, truncate: bool) -> None:
    from frontend.families.decider.rendering import question

    vocabulary = Vocabulary(encode.one, LETTERS.names, LETTERS.labels, LETTERS.opening)
    asked = [question(name, fields) for name, fields in questions(where, text).items()]
    decider_rows(text if where == "state" else "s", asked, vocabulary, truncate=truncate)


def kev(encode: Counting, where: str, text: str, truncate: bool) -> None:
    asked = kev_grammar.parse({"state": text if where == "state" else "s", "questions": questions(where, text)})
    kev_rows(asked.state, asked.questions, encode.all, MARKS, 8192)


def nimble(encode: Counting, where: str, text: str, truncate: bool) -> None:
    asked = [nimble_question(name, fields) for name, fields in questions(where, text).items()]
    nimble_rows(text if where == "state" else "s", asked, encode.all, CODES, 8192)


def open_jev(encode: Counting, where: str, text: str, truncate: bool) -> None:
    asked = [open_jev_question(name, fields) for name, fields in questions(where, text).items()]
    open_jev_rows(text if where == "state" else "s", asked, encode.all, chat=CHAT, max_length=4096)


def cua_s1(encode: Counting, where: str, text: str, truncate: bool) -> None:
    fields = questions(where, text)["team"]
    asked = Choice("team", fields["instructions"], tuple(fields["criteria"].items()))
    prompts(text if where == "state" else "s", [asked], encode.one)


def laya(encode: Counting, where: str, text: str, truncate: bool) -> None:
    asked = laya_grammar.parse({"state": text if where == "state" else "s", "questions": questions(where, text)})
    laya_rows(asked.state, asked.questions, encode.all, SPECIAL, ENGLISH, truncate=truncate)


def clef_host(encode: Counting, where: str, text: str, truncate: bool) -> None:
    asked = [{"id": name, **fields} for name, fields in questions(where, text).items()]
    clef.encode(text if where == "state" else "s", asked, encode.all, max_length=16_384, truncate=truncate)


FAMILIES: tuple[Callable[[Counting, str, str, bool], None], ...] = (
    decider,
    kev,
    nimble,
    open_jev,
    cua_s1,
    laya,
    clef_host,
)


@pytest.mark.parametrize("where", ["state", "option", "instructions"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_text_that_is_too_long_is_refused_after_a_few_pieces(
    family: Callable[[Counting, str, str, bool], None], text: str, where: str
) -> None:
    """Whatever it is made of and wherever it stands; the refusal says where, and that there may be more."""
    encode = Counting()
    with pytest.raises((Refused, InputRefused), match=r"or more|at least") as refused:
        family(encode, where, TEXTS[text], False)
    assert encode.seen < 4 * PIECE_CHARS
    assert encode.most <= PIECE_CHARS
    if isinstance(refused.value, Refused):
        assert refused.value.reason == "tokens"
        assert refused.value.place
        if where != "state":
            assert refused.value.place[:2] == ("questions", "team") or family is nimble


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("family", [decider, laya, clef_host], ids=lambda family: family.__name__)
def test_a_text_that_is_cut_is_encoded_piece_by_piece(
    family: Callable[[Counting, str, str, bool], None], text: str
) -> None:
    """All of it, because the answer says how long it was; never all of it at once."""
    encode = Counting()
    family(encode, "state", TEXTS[text], True)
    assert encode.most <= PIECE_CHARS
    assert len(TEXTS[text]) <= encode.seen < len(TEXTS[text]) + 2 * PIECE_CHARS


def test_a_long_text_at_its_limit_is_read_whole_and_one_token_more_is_counted_exactly() -> None:
    """Between the limit and what seams may hide, the whole text is encoded: the limit is exact."""
    encode = Counting()
    most = 3 * PIECE_CHARS
    assert len(long_texts.bounded(encode.one, "a" * most, most)) == most
    assert len(long_texts.bounded(encode.one, "a" * (most + 1), most)) == most + 1
    with pytest.raises(TooManyTokens) as many:
        long_texts.bounded(encode.one, "a" * 2 * most, most)
    assert most < many.value.least <= 2 * most
    assert len(long_texts.to_be_cut(encode.one, "a" * (most + 1), most)) == most + 1


def test_which_of_several_texts_is_too_long_is_said() -> None:
    """The first that is."""
    texts = ["short", "b" * 2 * PIECE_CHARS, "c" * 9 * PIECE_CHARS]
    with pytest.raises(TooManyTokens) as many:
        long_texts.bounded_all(Counting().all, texts, 100)
    assert many.value.at == 1
    assert [len(tokens) for tokens in long_texts.bounded_all(Counting().all, texts, 10**7)] == list(map(len, texts))


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_the_text(text: str) -> None:
    """None is too large, and none ends within a word where there is a blank."""
    pieces = list(long_texts.pieces(TEXTS[text]))
    assert "".join(pieces) == TEXTS[text]
    assert max(map(len, pieces)) <= PIECE_CHARS
    if text == "words":
        assert all(piece.startswith(" ") for piece in pieces[1:])


TINY = (tiny_decider, tiny_kev, tiny_laya, tiny_open_jev)


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.__name__.rpartition(".")[2])
def test_the_tokens_of_the_pieces_are_those_of_the_text(tiny: Any, tmp_path: Path) -> None:
    """With the tokenizers of the families, over texts of words of all kinds: where a text is cut changes nothing."""
    folder = tmp_path / "model"
    folder.mkdir()
    tiny.write_texts(folder)
    (file,) = folder.rglob("tokenizer.json")
    encode = checkpoints.encoder(file)
    choose = random.Random(5)
    words = ["order", "naïve", "12", "a-b", "退款", "Straße", "x_y", "don't", "3.14", "(see", "above)", "…", "\n", "  "]
    text = " ".join(choose.choices(words, k=40_000))
    pieces = list(long_texts.pieces(text))
    assert len(pieces) > 2
    joined = [token for piece in encode(pieces) for token in piece]
    assert joined == encode([text])[0]


def test_a_state_is_cut_where_it_was_cut_before() -> None:
    """The first tokens of the whole are kept, and the total is that of the whole."""
    encode = Counting()
    vocabulary = Vocabulary(encode.one, LETTERS.names, LETTERS.labels, LETTERS.opening)
    made = decider_rows(TEXTS["words"], [], vocabulary, truncate=True)
    assert (made.state_tokens, made.whole_state_tokens) == (
        MAX_STATE_TOKENS,
        len("Context:\n") + len(TEXTS["words"]),
    )
