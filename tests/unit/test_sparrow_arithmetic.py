"""What sparrow's host computes instead of the package: the same ids, and the same numbers to the last bit."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import sparrow_decider
from sparrow_decider import Decider

from executor_host.errors import Abandoned, InputRefused
from executor_host.executors.sparrow import static, tokens
from executor_host.executors.sparrow.executor import MAX_UNITS, SparrowExecutor
from executor_host.executors.sparrow.static import StaticModel
from executor_host.executors.sparrow.tokens import WordPieces
from protocol.errors import Malformed
from protocol.payloads import TextRequest
from tests.helpers.calls import FakeCall
from tests.unit.test_sparrow_family import GENERAL, ROBOT, generated

ODD = "aZ09 .,'\"-_#@[]~`\t\n\r\x00\x0b\x0c\x1c\x1f\x7f\x85\xa0éÉßİ\u0131ﬁ́中文字かなไทย​\u2028\ufeff\ufffd🙂Ωϴ℀\uff05"
"""Letters of every kind, what is punctuation only to some, and what is left out or split at by different rules."""


@pytest.fixture(scope="module", params=[GENERAL, ROBOT], ids=["general", "robot"])
def package(request: pytest.FixtureRequest) -> Decider:
    return Decider.load(str(request.param))


@pytest.mark.slow
def test_every_word_of_the_vocabulary_has_the_packages_ids(package: Decider) -> None:
    """Alone, in capitals, and beside another one without a space."""
    pieces = WordPieces(package.static.tok)
    words = [word.removeprefix("##") for word in package.static.tok.vocab]
    for word, other in zip(words, reversed(words), strict=True):
        for text in (word, word.upper(), f"{word}{other}", f"{word}.{other}"):
            assert pieces.ids(text) == package.static.tok.encode(text, 10**9), text


def test_generated_texts_have_the_packages_ids(package: Decider) -> None:
    """1,500 texts of odd characters and of words, each twice: the second time from memory."""
    pieces = WordPieces(package.static.tok)
    rng = random.Random(0)
    words = ["refund", "Über", "naïve", "x" * 99, "x" * 100, "x" * 101, "1.5e-3", "don't", "中文", "a\x0bb", "--", ""]
    for _ in range(1_500):
        odd = "".join(rng.choices(ODD, k=rng.randint(0, 20)))
        text = rng.choice(["", " ", "\n"]).join([odd, *rng.choices(words, k=rng.randint(0, 6)), odd[::-1]])
        expected = package.static.tok.encode(text, 10**9)
        assert pieces.ids(text) == expected, repr(text)
        assert pieces.ids(text) == expected, repr(text)
        assert pieces.encode(text, 3) == expected[:3]


def test_every_pair_of_ascii_has_the_packages_ids(package: Decider) -> None:
    """Which characters are dropped, split at, or words by themselves."""
    pieces = WordPieces(package.static.tok)
    for first in map(chr, range(128)):
        for second in map(chr, range(128)):
            text = f"a{first}{second}b"
            assert pieces.ids(text) == package.static.tok.encode(text, 10**9), repr(text)


def test_no_text_makes_the_memory_grow_without_end(package: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long words are not remembered, here or in the package; short parts are, so many and no more."""
    monkeypatch.setattr(tokens, "MAX_PARTS", 50)
    tokenizer = Decider.load(str(GENERAL)).static.tok
    pieces = WordPieces(tokenizer)
    for number in range(200):
        assert pieces.ids(f"{number:0200d}") == [tokenizer.unk_id]
        pieces.ids(f"short{number}")
    assert repr(pieces) == "<WordPieces remembered=50>"
    assert tokenizer._word.cache_info().currsize == 0


def asked(question: dict[str, Any]) -> tuple[str, str, list[str]]:
    kind, options = sparrow_decider._options(question)
    instructions = sparrow_decider._content(question.get("instructions"))
    return kind, instructions, [f"{name} {text or ''}" for name, text in options]


def test_probabilities_are_the_packages_to_the_last_bit(package: Decider) -> None:
    """300 requests: alone, in random company of random size, and when the questions are known."""
    own = Decider.load(str(ROBOT if package.static.kv else GENERAL)).static
    model = StaticModel(own, WordPieces(own.tok).ids)
    requests, expected = [], []
    for seed in range(300):
        state, questions = generated(seed)
        text = sparrow_decider._content(state) + f"\nbattery: {seed}%"
        requests.append((text, package.static.tok.encode(text, 10**9), [asked(each) for each in questions.values()]))
        expected.append([package.probs(text, each)[3] for each in questions.values()])
    choice = random.Random(8)
    order = list(range(len(requests)))
    for size in (1, 32):
        choice.shuffle(order)
        left = list(order)
        while left:
            number = choice.randint(1, size)
            company, left = left[:number], left[number:]
            for at, found in zip(company, model.probabilities([requests[at] for at in company]), strict=True):
                for mine, theirs in zip(found, expected[at], strict=True):
                    assert np.array_equal(mine, theirs)


def test_what_is_kept_of_questions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number and by their size; the least recently used go first."""
    monkeypatch.setattr(static, "MAX_QUESTIONS", 3)
    own = Decider.load(str(GENERAL)).static
    model = StaticModel(own, WordPieces(own.tok).ids)
    for number in (0, 1, 2, 0, 3):
        model.probabilities([("state", [5], [("noul", f"question {number}", ["false no", "true yes"])])])
    assert [key[1] for key in model._kept] == ["question 2", "question 0", "question 3"]
    monkeypatch.setattr(static, "MAX_VALUES", 3 * model._kept.popitem()[1].values)
    for number in range(9):
        model.probabilities([("state", [5], [("noul", f"other {number}", ["false no", "true yes"])])])
    assert model._values <= static.MAX_VALUES
    assert len(model._kept) <= 3


def test_a_batch_answers_each_unit_as_alone_and_refuses_each_alone() -> None:
    """A broken document, one above the limit, and one whose client has left, among others."""
    executor = SparrowExecutor(None, {})
    facts = executor.load(lambda done, words: None)
    assert facts["limits"]["units"] == executor.max_units == MAX_UNITS  # type: ignore[index]

    def unit(state: str) -> TextRequest:
        question = {"type": "noul", "instructions": "Is it?", "criteria": None}
        single = {"type": "choice", "instructions": None, "criteria": {"only": None}}
        return TextRequest(json.dumps({"state": state, "questions": [question, single]}).encode())

    payloads = [unit("refund"), TextRequest(b"{"), unit("word " * 600), unit("gone"), unit("login")]
    calls = [FakeCall(), FakeCall(), FakeCall(), FakeCall(looks=0), FakeCall()]
    outcomes = executor.execute_many(payloads, calls)
    assert [type(each) for each in outcomes] == [dict, Malformed, InputRefused, Abandoned, dict]
    for index in (0, 4):
        assert outcomes[index] == executor.execute(payloads[index], FakeCall())
