"""The sparrow family, both halves joined without a wire: processor, executor, and the package as the judge."""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sparrow_decider
from sparrow_decider import Decider

from executor_host.errors import Abandoned, ConfigurationError, ExecutionFailed, InputRefused, NonFinite
from executor_host.executors.sparrow.executor import MAX_UNITS, SparrowExecutor
from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded
from frontend.families.base import Decision, Prepared
from frontend.families.sparrow.processor import MAX_REQUEST_CHARS, MAX_TEXT_CHARS, SparrowProcessor, _indented_length
from frontend.http.systemone import parse_request, render
from frontend.limits import ServerLimits
from frontend.requests.answers import score_confidence
from frontend.requests.questions import DecisionRequest
from frontend.requests.strict_json import parse
from protocol.contracts.sparrow import BUNDLED
from protocol.errors import Malformed
from protocol.options import OptionError
from protocol.payloads import TextRequest
from tests.helpers.calls import FakeCall

MODELS = Path(sparrow_decider.__file__).parent / "models"
GENERAL, ROBOT = (MODELS / BUNDLED[name][0] for name in ("nano-general", "nano-robot"))


class Joined:
    """Both halves of the family around one loaded model."""

    def __init__(self, path: str | None = None, **options: object) -> None:
        self.executor = SparrowExecutor(path, options)
        self.facts = self.executor.load(lambda fraction, note: None)
        self.executor.warm_up()
        self.processor = SparrowProcessor(self.facts, options)

    def decide(self, state: Any, questions: dict[str, Any]) -> Decision:
        document = {"state": state, "questions": questions}
        prepared = self.processor.prepare(parse_request(parse(json.dumps(document).encode())))
        (unit,) = prepared.units
        return self.processor.finish(prepared, [self.executor.execute(unit, FakeCall())])

    def answers(self, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        decision = self.decide(state, questions)
        answers: dict[str, Any] = render(DecisionRequest(None, "", ()), "m", decision)["answers"]
        return answers


@pytest.fixture(scope="module")
def general() -> Joined:
    return Joined()


@pytest.fixture(scope="module")
def cutting() -> Joined:
    return Joined(truncate=True)


@pytest.fixture(scope="module")
def package() -> Decider:
    return Decider.load(str(GENERAL))


# Against the package.

WORDS = ["refund", "charged", "twice", "card", "login", "broken", "urgent", "robot", "battery", "6%", "zone_b:", "34"]
WORDS += ["café", "東京", "😀", "naïve", "don't", "e-mail"]


def generated(seed: int) -> tuple[Any, dict[str, Any]]:
    """One request the package can answer: every question type, structured and missing texts."""
    rng = random.Random(seed)

    def text(most: int = 12) -> str:
        return (
            rng.choice(["", " ", "\n"]) + " ".join(rng.choices(WORDS, k=rng.randint(1, most))) + rng.choice(["", "?\t"])
        )

    def structured() -> Any:
        return rng.choice(
            [
                {"text": text(), "battery": rng.randint(0, 100), "é": [1.5, None, True, 10**25]},
                [text(), {"role": "user", "content": text()}],
                {},
                [],
            ]
        )

    def any_text() -> Any:
        return structured() if rng.random() < 0.3 else text()

    def maybe(chance: float = 0.3) -> Any:
        return None if rng.random() < chance else any_text()

    questions: dict[str, Any] = {}
    for index in range(rng.randint(1, 5)):
        kind = rng.choice(["noul", "choice", "score"])
        question: dict[str, Any] = {"type": kind, "instructions": maybe()}
        if kind == "choice":
            names = rng.sample([f"{word} {number}" for word in WORDS for number in range(3)], rng.randint(2, 8))
            question["criteria"] = {name: maybe() for name in names}
        elif kind == "score":
            question["criteria"] = [any_text() for _ in range(rng.randint(2, 10))]
        else:
            question["instructions"] = text()
            question["criteria"] = rng.choice(
                [None, {}, {"true": any_text()}, {"false": maybe()}, {"false": any_text(), "true": maybe()}]
            )
        questions[f"q{index}"] = question
    return any_text(), questions


def check_agreement(joined: Joined, package: Decider, seed: int) -> None:
    state, questions = generated(seed)
    expected = package.ask(state, questions)
    answers = joined.answers(state, questions)
    assert list(answers) == list(expected)
    for name, answer in answers.items():
        theirs = expected[name]
        assert answer["type"] == theirs["type"]
        if answer["type"] == "noul":
            said = answer["noul"]
            if not any((questions[name]["criteria"] or {}).values()):
                # It is asked about nothing but its instructions: on the same side, and nearer to 0.5 by a known rule.
                assert abs(said - 0.5) <= abs(theirs["noul"] - 0.5) + 6e-5
                said = 1.0 / (1.0 + ((1.0 - said) / said) ** 4)
            assert said == pytest.approx(theirs["noul"], abs=6e-5)
            continue
        assert list(answer["probabilities"]) == list(theirs["probabilities"])
        for option, value in answer["probabilities"].items():
            assert value == pytest.approx(theirs["probabilities"][option], abs=6e-5)
        assert abs(math.fsum(answer["probabilities"].values()) - 1.0) <= 1e-12
        if answer["type"] == "choice":
            assert answer["choice"] == theirs["choice"]
            assert answer["confidence"] == pytest.approx(theirs["confidence"], abs=6e-5)
        else:
            assert answer["score"] == pytest.approx(theirs["score"], abs=6e-5)
            assert answer["legend"] == dict(enumerate_levels(questions[name]["criteria"]))
            # The package has another formula for this one.
            assert answer["confidence"] == score_confidence(list(answer["probabilities"].values()))


def enumerate_levels(levels: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), level) for index, level in enumerate(levels)]


@pytest.mark.parametrize("first", range(0, 240, 20))
def test_answers_agree_with_the_package(general: Joined, package: Decider, first: int) -> None:
    """240 generated requests: the same options, winners and numbers, to the four decimals the package shows."""
    for seed in range(first, first + 20):
        check_agreement(general, package, seed)


def test_the_model_that_reads_numbers_agrees_too() -> None:
    """The second bundled model takes the remembered texts and pairs along another path in the package."""
    joined, package = Joined("nano-robot"), Decider.load(str(ROBOT))
    assert joined.facts["name"] == "sparrow-nano-robot-v1.2"
    for seed in range(1000, 1040):
        check_agreement(joined, package, seed)
    # One state after another: nothing of the first may be remembered.
    for level in (6, 90):
        state = f"battery: {level}%\nzone_a: dirt_level=34\nzone_b: dirt_level=2"
        question = {"type": "choice", "instructions": "What now?", "criteria": {"dock": "charge", "clean": "zone_a"}}
        theirs = package.ask(state, {"q": question})["q"]["probabilities"]
        assert joined.answers(state, {"q": question})["q"]["probabilities"] == pytest.approx(theirs, abs=6e-5)


def texts_the_package_reads(state: Any, questions: Mapping[str, Any]) -> list[str]:
    """Independent of our executor: from the package's own rendering, the state once."""
    texts = [sparrow_decider._content(state)]
    for question in questions.values():
        texts.append(sparrow_decider._content(question.get("instructions")))
        texts += [f"{name} {text or ''}" for name, text in sparrow_decider._options(question)[1]]
    return texts


def test_usage_is_an_independent_count(general: Joined, package: Decider) -> None:
    """Word pieces of the state once and of every text of every question, as the package splits them."""
    for seed in range(60):
        state, questions = generated(seed)
        expected = sum(
            len(package.static.tok.encode(text, 10**9)) for text in texts_the_package_reads(state, questions)
        )
        assert general.decide(state, questions).input_tokens == expected


# Independence.


def test_ids_do_not_reach_the_model(general: Joined) -> None:
    """Renaming a question changes neither the unit nor a digit of its answer."""
    question = {"type": "choice", "criteria": {"a": "refund", "b": "login"}}
    first = general.processor.prepare(parse_request({"state": "s", "questions": {"secret-id": question}}))
    second = general.processor.prepare(parse_request({"state": "s", "questions": {"x": question}}))
    assert first.units == second.units
    assert b"secret-id" not in first.units[0].document  # type: ignore[attr-defined]
    assert general.answers("s", {"secret-id": question})["secret-id"] == general.answers("s", {"x": question})["x"]


def test_neighbours_do_not_change_an_answer(general: Joined) -> None:
    """Every question alone, together with others and in the other order: identical numbers."""
    for seed in range(20):
        state, questions = generated(seed)
        together = general.answers(state, questions)
        assert general.answers(state, dict(reversed(questions.items()))) == together
        assert {name: general.answers(state, {name: q})[name] for name, q in questions.items()} == together


def test_probabilities_follow_their_options(general: Joined) -> None:
    """Another order of options is the same distribution, shown in the order that was sent."""
    criteria = {"10": "refund", "2": "login", "other": None}
    turned = dict(reversed(criteria.items()))
    first = general.answers("I want my money back", {"q": {"type": "choice", "criteria": criteria}})["q"]
    second = general.answers("I want my money back", {"q": {"type": "choice", "criteria": turned}})["q"]
    assert list(second["probabilities"]) == ["other", "2", "10"]
    assert second["probabilities"] == pytest.approx(first["probabilities"], abs=1e-6)


def test_the_same_request_gives_the_same_bytes(general: Joined) -> None:
    """Warm or cold, whatever ran in between."""
    state, questions = generated(3)
    first = general.decide(state, questions)
    general.decide(*generated(4))
    assert general.decide(state, questions) == first


def test_one_candidate_is_answered_without_the_model(general: Joined, package: Decider) -> None:
    """One option or one level: certain, never an error, and its texts are counted like all others."""
    questions = {
        "c": {"type": "choice", "instructions": "Which one?", "criteria": {"only": "this"}},
        "s": {"type": "score", "criteria": [{"level": 1}]},
        "n": {"type": "noul", "instructions": "Is it?", "criteria": None},
    }
    document = {"state": "x", "questions": questions}
    prepared = general.processor.prepare(parse_request(document))
    output = general.executor.execute(prepared.units[0], FakeCall())
    assert [values and len(values) for values in output["probabilities"]] == [None, None, 2]
    answers = general.answers("x", questions)
    assert answers["c"] == {"type": "choice", "choice": "only", "probabilities": {"only": 1.0}, "confidence": 1.0}
    assert (answers["s"]["score"], answers["s"]["confidence"]) == (0.0, 1.0)
    assert answers["s"]["legend"] == {"0": {"level": 1}}
    texts = ["x", "Which one?", "only this", '0 {\n  "level": 1\n}', "Is it?"]
    texts += [f"{name} {text}" for name, text in sparrow_decider.NOUL_DEFAULT.items()]
    assert output["tokens"] == sum(len(package.static.tok.encode(text, 10**9)) for text in texts)


def test_extreme_but_legal_bodies_are_answered(general: Joined) -> None:
    """The longest integer, the deepest nesting, and 400 questions: through the parser, both halves, and back."""
    nested: Any = "core"
    for _ in range(62):
        nested = [nested]
    answers = general.answers({"n": nested}, {"q": {"type": "noul", "instructions": "Deep?"}})
    assert 0.0 < answers["q"]["noul"] < 1.0
    general.answers([10**4300 - 1, 2**64], {"q": {"type": "noul", "instructions": "Long?"}})
    many = {str(index): {"type": "choice", "criteria": {"a": "x", "b": f"y{index}"}} for index in range(400)}
    assert list(general.answers("s", many)) == list(many)


# Limits: tokens, in the host.


def words(count: int) -> str:
    return "dog " * count


PLACES: dict[str, Callable[[int], tuple[Any, dict[str, Any], str]]] = {
    "state": lambda n: (words(n), {"type": "noul", "instructions": "x"}, "the state"),
    "instructions": lambda n: ("s", {"type": "noul", "instructions": words(n)}, "instructions of question number 1"),
    "option": lambda n: ("s", {"type": "choice", "criteria": {"a": "x", "dog": words(n - 1)}}, "option 'dog'"),
    "only option": lambda n: ("s", {"type": "choice", "criteria": {"dog": words(n - 1)}}, "option 'dog'"),
    "level": lambda n: ("s", {"type": "score", "criteria": ["low", words(n - 1)]}, "option '1'"),
}


@pytest.mark.parametrize("place", PLACES)
def test_513_tokens_are_refused_and_512_are_read(general: Joined, place: str) -> None:
    """Without truncation a text is read whole or refused, with its name, its tokens and the limit."""
    state, question, named = PLACES[place](512)
    assert "x_truncated" not in general.decide(state, {"q": question}).extras
    state, question, named = PLACES[place](513)
    with pytest.raises(InputRefused) as caught:
        general.decide(state, {"q": question})
    error = caught.value
    assert (error.status, error.code) == (400, "max_tokens_exceeded")
    assert named in error.message and "513 tokens" in error.message and "512" in error.message


def test_a_refusal_says_where(general: Joined) -> None:
    """The place is made of keys and indexes, questions by number: ids are not here."""
    question = {"type": "score", "instructions": "x", "criteria": ["low", words(600), "high"]}
    with pytest.raises(InputRefused) as caught:
        general.decide("s", {"first": {"type": "noul", "instructions": "x"}, "second": question})
    assert caught.value.where == ("questions", 1, "criteria", 1)


@pytest.mark.parametrize("place", PLACES)
def test_truncation_cuts_as_the_package_does_and_says_so(cutting: Joined, package: Decider, place: str) -> None:
    """At 512 tokens nothing is cut; at 513 the package's own cut, reported as tokens read and tokens sent."""
    state, question, _ = PLACES[place](512)
    whole = cutting.decide(state, {"q": question})
    assert "x_truncated" not in whole.extras
    state, question, _ = PLACES[place](513)
    cut = cutting.decide(state, {"q": question})
    counts = {"kept": whole.input_tokens, "total": whole.input_tokens + 1}
    assert cut.extras == {**whole.extras, "x_truncated": counts}
    assert cut.input_tokens == whole.input_tokens
    assert cut.answers[0][1].to_json()["type"] == question["type"]
    if place == "state":
        assert cut.answers == whole.answers
        theirs = package.ask(state + "cat", {"q": question})["q"]["noul"]
        said = cutting.answers(state + "cat", {"q": question})["q"]["noul"]
        assert 1.0 / (1.0 + ((1.0 - said) / said) ** 4) == pytest.approx(theirs, abs=6e-5)


def test_a_noul_without_criteria_is_answered_carefully(general: Joined) -> None:
    """Whatever the text: between 0.15 and 0.85, and named; one with a described side is neither."""
    described = {"true": "a refund is wanted", "false": "nothing is wanted"}
    questions: dict[str, Any] = {
        "bare": {"type": "noul", "instructions": "Does the customer want a refund?"},
        "empty": {"type": "noul", "instructions": "refund refund refund", "criteria": {"true": "", "false": None}},
        "described": {"type": "noul", "instructions": "Refund?", "criteria": described},
    }
    for state in ("refund refund refund", "I want my money back", "the sun shines", "x"):
        decision = general.decide(state, questions)
        answers = dict(decision.answers)
        assert decision.extras == {"x_statement": ["bare", "empty"]}
        assert all(0.15 < answers[name].to_json()["noul"] < 0.85 for name in ("bare", "empty"))
    assert "x_statement" not in general.decide("s", {"q": questions["described"]}).extras


# Limits: characters, in the front.


def prepare(state: Any, *instructions: Any, **options: object) -> Prepared:
    questions = {
        f"q{index}": {"type": "noul", "instructions": text} for index, text in enumerate(instructions or ("x",))
    }
    return SparrowProcessor({}, options).prepare(parse_request({"state": state, "questions": questions}))


@pytest.mark.parametrize("options", [{}, {"truncate": True}])
def test_one_text_has_a_limit_of_characters(options: dict[str, object]) -> None:
    """MAX_TEXT_CHARS characters of any kind pass, one more is a 400 that names the text and the limit."""
    prepare("é" * MAX_TEXT_CHARS, "x" * MAX_TEXT_CHARS, **options)
    with pytest.raises(TokensExceeded, match=rf"{MAX_TEXT_CHARS + 1} characters in the state.*{MAX_TEXT_CHARS}"):
        prepare("é" * (MAX_TEXT_CHARS + 1), **options)
    with pytest.raises(TokensExceeded, match='the instructions of question "q1"'):
        prepare("s", "x", "x" * (MAX_TEXT_CHARS + 1), **options)


@pytest.mark.parametrize("options", [{}, {"truncate": True}])
def test_a_request_has_a_limit_of_characters(options: dict[str, object]) -> None:
    """MAX_REQUEST_CHARS characters of state and question texts pass, one more is a 413 that names the limit."""
    assert MAX_REQUEST_CHARS == 4 * MAX_TEXT_CHARS
    longest = "x" * MAX_TEXT_CHARS
    prepare(longest, longest, longest, longest, **options)
    with pytest.raises(RequestTooLarge, match=str(MAX_REQUEST_CHARS)):
        prepare(longest, longest, longest, longest, "x", **options)


@pytest.mark.parametrize(
    "state", [[0] * (MAX_TEXT_CHARS + 1), dict.fromkeys(map(str, range(MAX_TEXT_CHARS + 1)), 0)], ids=["list", "dict"]
)
def test_a_huge_state_is_refused_before_it_is_encoded(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding megabytes keeps the interpreter lock, only for a refusal: the number of its items is enough."""
    monkeypatch.setattr("frontend.families.documents.encode", lambda value: pytest.fail(f"encoded: {type(value)}"))
    with pytest.raises(RequestTooLarge, match=str(MAX_REQUEST_CHARS)):
        prepare(state)


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ({"type": "choice", "criteria": {"long": "x" * 65_537}}, 'option "long" of question "q"'),
        ({"type": "score", "criteria": ["a", "x" * 65_537]}, 'option "1" of question "q"'),
        ({"type": "noul", "criteria": {"true": "x" * 65_537}}, 'option "true" of question "q"'),
        ({"type": "noul", "instructions": ["x" * 65_530]}, 'the instructions of question "q"'),
    ],
)
def test_every_text_of_a_question_is_bounded(question: dict[str, Any], place: str) -> None:
    """Descriptions, levels, sides and structured instructions."""
    with pytest.raises(TokensExceeded, match=place):
        SparrowProcessor({}, {}).prepare(parse_request({"state": "s", "questions": {"q": question}}))


def test_levels_are_bounded_by_the_model_too() -> None:
    """A server may be configured to take more levels than this model was trained on: 10 are answered, 11 refused."""

    def asked(count: int) -> Prepared:
        question = {"type": "score", "criteria": [f"l{index}" for index in range(count)]}
        document = {"state": "s", "questions": {"q": question}}
        return SparrowProcessor({}, {}).prepare(parse_request(document, ServerLimits(levels=1000)))

    assert len(asked(10).units) == 1
    with pytest.raises(InvalidRequest, match="11 levels; this model reads at most 10"):
        asked(11)


def test_structured_text_is_counted_as_the_model_gets_it() -> None:
    """Indentation counts: a few kilobytes of brackets become megabytes for the tokenizer, and are refused."""
    state: Any = list(range(2)) * 5000
    length = len(json.dumps(state, indent=2))
    assert length < MAX_TEXT_CHARS
    prepare(state)
    for _ in range(10):
        state = [state]
    assert len(json.dumps(state)) < MAX_TEXT_CHARS < len(json.dumps(state, indent=2))
    with pytest.raises(TokensExceeded):
        prepare(state)
    for _ in range(50):
        state = [state]
    with pytest.raises(RequestTooLarge):
        prepare(state)


def test_the_count_of_indented_characters_is_exact() -> None:
    """Against the standard library's own rendering, over generated values."""
    rng = random.Random(7)

    def value(depth: int) -> Any:
        if depth > 5 or rng.random() < 0.4:
            return rng.choice(['a"b\n', "é", 1, -2.5, 1e300, True, None, 10**30, "", "\\", "\x7f"])
        if rng.random() < 0.5:
            return [value(depth + 1) for _ in range(rng.randint(0, 4))]
        return {f'k{index}é"': value(depth + 1) for index in range(rng.randint(0, 4))}

    for _ in range(500):
        root = [value(0), value(0)]
        assert _indented_length(root, 10**9) == len(json.dumps(root, indent=2, ensure_ascii=False))


def test_the_unit_is_one_compact_document_and_its_cost_its_bytes() -> None:
    """UTF-8, nothing escaped that need not be, numbers as they are, order as sent."""
    document = {
        "state": {"z": 2**70, "a": 1.5, "é": "😀"},
        "questions": {
            "c": {"type": "choice", "criteria": {"10": None, "2": "x"}, "labels": []},
            "n": {"type": "noul", "instructions": "?", "criteria": {"false": "f"}},
            "s": {"type": "score", "criteria": ["l", {"h": 1}]},
        },
    }
    prepared = SparrowProcessor({}, {}).prepare(parse_request(document))
    expected = (
        '{"state":{"z":1180591620717411303424,"a":1.5,"é":"😀"},"questions":['
        '{"type":"choice","instructions":null,"criteria":{"10":null,"2":"x"}},'
        '{"type":"noul","instructions":"?","criteria":{"false":"f"}},'
        '{"type":"score","instructions":null,"criteria":["l",{"h":1}]}]}'
    ).encode()
    assert prepared.units == (TextRequest(expected),)
    assert prepared.cost == prepared.work == len(expected)


# Options.


def test_options_are_checked_by_name_and_type() -> None:
    """Without facts and before any host: the error names the key, for the checker of configurations."""
    assert SparrowProcessor.OPTIONS.complete({}) == {"truncate": False}
    assert SparrowProcessor({}, {"truncate": True}).options == {"truncate": True}
    bad: list[tuple[dict[str, object], str]] = [({"truncat": True}, "truncat"), ({"truncate": 1}, "truncate")]
    for options, key in bad:
        with pytest.raises(OptionError) as caught:
            SparrowProcessor({}, options)
        assert caught.value.key == key
        with pytest.raises(ConfigurationError, match=key):
            SparrowExecutor(None, options)


# Outputs that are not answers.

OUTPUT = {"probabilities": [[0.5, 0.5], None], "tokens": 3, "truncated": None}


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [OUTPUT, OUTPUT],
        [None],
        [{}],
        [{**OUTPUT, "probabilities": None}],
        [{**OUTPUT, "probabilities": [[0.5, 0.5]]}],
        [{**OUTPUT, "probabilities": [[0.5, 0.5], None, None]}],
        [{**OUTPUT, "probabilities": [None, None]}],
        [{**OUTPUT, "probabilities": [[1.0], None]}],
        [{**OUTPUT, "probabilities": [[0.5, 0.25, 0.25], None]}],
        [{**OUTPUT, "probabilities": [[0.5, 0.5], [1.0]]}],
        [{**OUTPUT, "probabilities": [[math.nan, 0.5], None]}],
        [{**OUTPUT, "probabilities": [[math.inf, 0.5], None]}],
        [{**OUTPUT, "probabilities": [[-0.5, 1.5], None]}],
        [{**OUTPUT, "probabilities": [[0.0, 0.0], None]}],
        [{**OUTPUT, "probabilities": [["0.5", 0.5], None]}],
        [{**OUTPUT, "probabilities": [[True, False], None]}],
        [{**OUTPUT, "tokens": None}],
        [{**OUTPUT, "tokens": -1}],
        [{**OUTPUT, "tokens": 3.0}],
        [{**OUTPUT, "truncated": 1}],
        [{**OUTPUT, "truncated": {"kept": 1}}],
    ],
)
@pytest.mark.parametrize("kind", ["noul", "choice"])
def test_an_output_that_is_no_answer_is_an_internal_error(outputs: list[object], kind: str) -> None:
    """Missing, superfluous, non-finite or ill-typed numbers: 500, never a partial or invented answer."""
    first = {
        "noul": {"type": "noul", "instructions": "x"},
        "choice": {"type": "choice", "criteria": {"a": "", "b": ""}},
    }
    questions = {"q": first[kind], "one": {"type": "score", "criteria": ["only"]}}
    processor = SparrowProcessor({}, {})
    prepared = processor.prepare(parse_request({"state": "s", "questions": questions}))
    assert processor.finish(prepared, [OUTPUT]).input_tokens == 3
    with pytest.raises(InternalError):
        processor.finish(prepared, outputs)


# Loading.


def test_the_facts_are_plain_and_true(general: Joined) -> None:
    """Identity is name and weights; everything is a type that travels."""
    facts = general.facts
    assert facts["sha256"] == BUNDLED["nano-general"][1]
    assert facts["identity"] == f"sparrow-nano-general-v1.1@sha256:{facts['sha256']}"
    assert (facts["dtype"], facts["limits"]) == ("float32", {"tokens_per_text": 512, "units": MAX_UNITS})
    assert facts["parameters"] == 2_212_609
    assert json.loads(json.dumps(facts)) == facts


def test_the_bundled_models_have_names_and_other_models_paths(tmp_path: Path) -> None:
    """None is the general model; a path is loaded as it is and its digest reported."""
    assert Joined("nano-general").facts == Joined().facts
    copy = tmp_path / "my.sparrow"
    shutil.copy(ROBOT, copy)
    assert Joined(str(copy)).facts == Joined("nano-robot").facts


def test_the_environment_does_not_choose_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a folder in SPARROW_MODELS nor a file of the model's name here, which the package would load."""
    shutil.copy(ROBOT, tmp_path / "sparrow-nano-general-v9.sparrow")
    monkeypatch.setenv("SPARROW_MODELS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROBOT, tmp_path / "nano-general")
    for joined in (Joined("nano-general"), Joined()):
        assert joined.facts["name"] == "sparrow-nano-general-v1.1"
        assert joined.facts["parameters"] == 2_212_609
        assert joined.facts["sha256"] == BUNDLED["nano-general"][1]


LOAD_BESIDE = """
import sys
sys.path.insert(0, sys.argv[1])
from executor_host.errors import ConfigurationError
from executor_host.executors.sparrow.executor import SparrowExecutor
try:
    SparrowExecutor(None, {}).load(lambda fraction, note: None)
except ConfigurationError as error:
    print(error)
"""


@pytest.mark.parametrize("change", ["weights", "version", "file"])
def test_an_altered_package_is_a_configuration_error(tmp_path: Path, change: str) -> None:
    """Other weights, another release, or no weights: refused before a decision, in a real installation."""
    installed = tmp_path / "sparrow_decider"
    shutil.copytree(Path(sparrow_decider.__file__).parent, installed)
    weights = installed / "models" / GENERAL.name
    if change == "weights":
        changed = bytearray(weights.read_bytes())
        changed[len(changed) // 2] ^= 1
        weights.write_bytes(changed)
    elif change == "version":
        code = installed / "__init__.py"
        code.write_text(code.read_text().replace('__version__ = "0.2.0"', '__version__ = "0.2.1"'))
    else:
        weights.unlink()
    command = [sys.executable, "-c", LOAD_BESIDE, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, cwd=Path(__file__).parents[2]
    )
    expected = {"weights": "not the released file", "version": "0.2.1; 0.2.0 is needed", "file": "cannot be read"}
    assert expected[change] in done.stdout


def repacked(path: Path, source: Path, **changes: Any) -> str:
    """A `.sparrow` file like `source` with some weights or settings replaced."""
    with zipfile.ZipFile(source) as archive:
        config = json.loads(archive.read("config.json"))
        tokenizer = archive.read("tokenizer.json")
        with np.load(io.BytesIO(archive.read("model.npz"))) as arrays:
            weights = dict(arrays)
    weights |= changes.pop("weights", {})
    buffer = io.BytesIO()
    np.savez(buffer, **weights)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config | changes))
        archive.writestr("tokenizer.json", tokenizer)
        archive.writestr("model.npz", buffer.getvalue())
    return str(path)


@pytest.mark.parametrize("content", [None, b"", b"not a model"])
def test_a_file_that_is_no_model_is_a_configuration_error(tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty, or something else: starting again would not help."""
    path = tmp_path / "x.sparrow"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"x\.sparrow"):
        SparrowExecutor(str(path), {}).load(lambda fraction, note: None)


def test_another_architecture_is_a_configuration_error(tmp_path: Path) -> None:
    """A file of the package's attention models, or of something newer, is refused at load."""
    path = repacked(tmp_path / "x.sparrow", GENERAL, arch="modernbert")
    with pytest.raises(ConfigurationError):
        SparrowExecutor(path, {}).load(lambda fraction, note: None)


def test_weights_that_give_no_numbers_do_not_pass_the_warm_up(tmp_path: Path) -> None:
    """Non-finite probabilities: the start fails as a configuration error, and a call fails alone."""
    bias = np.array([math.nan], np.float32)
    executor = SparrowExecutor(repacked(tmp_path / "x.sparrow", GENERAL, weights={"mlp.4.bias": bias}), {})
    executor.load(lambda fraction, note: None)
    with pytest.raises(ConfigurationError, match="not finite"):
        executor.warm_up()
    with pytest.raises(NonFinite):
        executor.execute(prepare("s").units[0], FakeCall())


# Executing.


def test_a_cancelled_call_stops_between_steps(general: Joined) -> None:
    """Before a text, however far it was; the next call is answered as if nothing had happened."""
    unit = prepare("s", *[f"question {index}" for index in range(30)]).units[0]
    expected = general.executor.execute(unit, FakeCall())
    for looks in (0, 1, 50, 90):
        with pytest.raises(Abandoned):
            general.executor.execute(unit, FakeCall(looks))
    with pytest.raises(Abandoned):
        general.executor.execute(unit, FakeCall(remaining_ms=0))
    assert general.executor.execute(unit, FakeCall(remaining_ms=1)) == expected


@pytest.mark.parametrize(
    "payload",
    [
        None,
        TextRequest(b""),
        TextRequest(b"[]"),
        TextRequest(b'{"state": "s"}'),
        TextRequest(b'{"state": "s", "questions": [{}]}'),
        TextRequest(b'{"state": "s", "questions": [{"type": "choice", "criteria": {}}]}'),
        TextRequest(b'{"state": "s", "questions": [{"type": "score", "criteria": null}]}'),
    ],
)
def test_a_payload_that_is_no_request_fails_alone(general: Joined, payload: object) -> None:
    """The front has validated it; should it not have, the call fails and the host goes on."""
    with pytest.raises(Malformed if isinstance(payload, TextRequest) else ExecutionFailed):
        general.executor.execute(payload, FakeCall())
    general.executor.warm_up()


def test_progress_reaches_one_and_never_falls() -> None:
    """What the supervisor shows while it waits."""
    seen: list[tuple[float, str]] = []
    executor = SparrowExecutor(None, {})
    executor.load(lambda fraction, note: seen.append((fraction, note)))
    fractions = [fraction for fraction, _ in seen]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert all(note for _, note in seen)


def test_a_closed_executor_answers_nothing() -> None:
    """Closing twice, and before loading, is allowed; executing then is an error."""
    executor = SparrowExecutor(None, {})
    executor.close()
    executor.load(lambda fraction, note: None)
    executor.close()
    executor.close()
    with pytest.raises(ExecutionFailed):
        executor.execute(prepare("s").units[0], FakeCall())
