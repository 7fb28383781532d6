"""Against the public reference package, decider-ai 1.8.1: the same rows, and the same answers from the same logits."""

from __future__ import annotations

import importlib.metadata
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontend.families.decider import grammar, native
from frontend.families.decider.rows import compile_rows
from frontend.families.decider.tokens import Vocabulary
from frontend.families.logits import softmax32
from frontend.families.refusal import Refused
from tests.unit.decider.helpers import RELEASED, TEMPERATURES, rows_of

PINNED = "1.8.1"


def _installed() -> bool:
    try:
        return importlib.metadata.version("decider-ai") == PINNED
    except importlib.metadata.PackageNotFoundError:
        return False


if not _installed():
    pytest.skip(f"decider-ai {PINNED} is not installed", allow_module_level=True)

systemone = pytest.importorskip("decider.systemone")
prompt_fast = pytest.importorskip("decider.prompt_fast")
prompt = pytest.importorskip("decider.prompt")
temperature = pytest.importorskip("decider.temperature")
transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

BOUNDED = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="session")
def reference_tokenizer(folder: Path) -> Any:
    """The tokenizer as the reference loads it."""
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))


# What requests are made of. Digits that only newer or only older interpreters know are left out: there the
# contract fixes Unicode 15 and the reference takes what it runs on.

_DIGITS_THAT_DIFFER = [
    chr(first + i)
    for first in (0x11F50, 0x1E4F0, 0x10D40, 0x116D0, 0x116DA, 0x11BF0, 0x11DE0, 0x16D70, 0x1CCF0, 0x1E5F1)
    for i in range(10)
]
ODD = st.sampled_from(
    [
        "<|im_start|>",
        "<|endoftext|>",
        "退款",
        "é",
        "e\u0301",
        "\u00a0",
        "\u2028",
        "\ufeff",
        "👩‍👩‍👧",
        "\n\nQuestion: x\nOptions:\n(A) y\nAnswer: (",
        "\x00\x1b",
        "  3: ",
        "-1 :",
        "٣: ",
        "12:",
        "\\n",
        '"',
        " ",
        "\t\r\n",
        "AA",
        ")(",
    ]
)
PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_DIGITS_THAT_DIFFER), max_size=12)
TEXT = st.one_of(PLAIN, ODD, st.lists(st.one_of(PLAIN, ODD), max_size=4).map("".join))
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, min_size=7, max_size=9),
        st.dictionaries(st.one_of(TEXT, st.just("_index")), inner, max_size=4),
    ),
    max_leaves=12,
)
ASKED = st.one_of(
    st.fixed_dictionaries({"instructions": JSON}),
    st.fixed_dictionaries({"question": TEXT}),
    st.fixed_dictionaries({"instructions": TEXT, "question": TEXT}),
    st.just({}),
)


@st.composite
def choices(draw: st.DrawFn) -> dict[str, Any]:
    """A choice with few, with 9 to 12, or with up to 256 options, as an object or a list."""
    count = draw(st.one_of(st.integers(0, 6), st.integers(9, 12), st.sampled_from([26, 255, 256])))
    if count > 12:
        criteria: Any = {f"{draw(ODD)}{i}": i % 3 or None for i in range(count)}
    elif draw(st.booleans()):
        criteria = draw(st.dictionaries(TEXT, JSON, min_size=count, max_size=count))
    else:
        criteria = draw(st.lists(TEXT, min_size=count, max_size=count))
    kind = draw(st.sampled_from([{}, {"type": "choice"}]))
    return kind | draw(ASKED) | {draw(st.sampled_from(["criteria", "options"])): criteria}


@st.composite
def scores(draw: st.DrawFn) -> dict[str, Any]:
    """A score with 1 to 11 levels, as a list or under numbers of several spellings."""
    count = draw(st.integers(1, 11))
    levels = draw(st.lists(JSON, min_size=count, max_size=count))
    if draw(st.booleans()):
        spell = st.sampled_from(["{}", " {}", "{}.0", "-{}", "0{}", "{}e0", "\u00a0{}\n"])
        return (
            {"type": "score"}
            | draw(ASKED)
            | {"criteria": {draw(spell).format(draw(st.integers(0, 20))): level for level in levels}}
        )
    return {"type": "score"} | draw(ASKED) | {"criteria": levels}


NOULS = st.builds(
    lambda kind, asked, criteria: {"type": kind} | asked | criteria,
    st.sampled_from(["noul", "bool"]),
    ASKED,
    st.one_of(
        st.just({}),
        st.fixed_dictionaries(
            {
                "criteria": st.one_of(
                    st.none(),
                    st.dictionaries(st.sampled_from(["true", "false", "other"]), st.one_of(JSON, st.just(""))),
                    st.lists(TEXT, max_size=2),
                )
            }
        ),
    ),
)
ANY_REQUEST = st.fixed_dictionaries(
    {"state": JSON, "questions": st.dictionaries(TEXT, st.one_of(choices(), scores(), NOULS), max_size=3)}
)

# The same, made so that nothing is refused.

SAID = st.one_of(
    st.fixed_dictionaries({"instructions": JSON.filter(lambda value: value != "")}),
    st.fixed_dictionaries({"question": TEXT.filter(bool)}),
)
SIZES = st.sampled_from([2, 2, 3, 5, 9, 10, 10, 11, 12, 26, 255])


@st.composite
def good_choices(draw: st.DrawFn) -> dict[str, Any]:
    """2 to 255 options around the edge between narrow and wide; names may look like anything."""
    count = draw(SIZES)
    names = [f"{draw(TEXT) if i < 4 else ''}{i}" for i in range(count)]
    described = draw(st.lists(JSON, min_size=min(count, 4), max_size=min(count, 4)))
    criteria: Any = {name: described[i % len(described)] if i % 3 else None for i, name in enumerate(names)}
    return draw(SAID) | {"criteria": draw(st.sampled_from([criteria, names]))}


@st.composite
def good_scores(draw: st.DrawFn) -> dict[str, Any]:
    """2 to 10 levels, many with a number in front, as a list or under numbers out of order."""
    level = st.one_of(JSON, st.builds("{}{}".format, st.sampled_from(["1: ", " -2 :\t", "٣:", "7 "]), TEXT))
    levels = draw(st.lists(level, min_size=2, max_size=10))
    criteria: Any = levels
    if draw(st.booleans()):
        order = draw(st.permutations(range(len(levels))))
        spell = st.sampled_from(["{}", " {}", "{}.0", "-{}", "0{}", "{}e0", "\u00a0{}\n", "1_{}"])
        criteria = {draw(spell).format(i): level for i, level in zip(order, levels, strict=True)}
    return {"type": "score"} | draw(SAID) | {"criteria": criteria}


@st.composite
def good_nouls(draw: st.DrawFn) -> dict[str, Any]:
    """With instructions, with a described side, or with both."""
    kind = {"type": draw(st.sampled_from(["noul", "bool"]))}
    if draw(st.booleans()):
        sides = draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(["true", "false"]), JSON)))
        return kind | draw(SAID.filter(lambda said: said.get("instructions", 1) is not None)) | {"criteria": sides}
    side = draw(st.sampled_from(["true", "false"]))
    asked = draw(st.sampled_from([{}, {"instructions": None}, {"instructions": ""}]))
    return kind | asked | {"criteria": {side: draw(TEXT.filter(bool))}}


GOOD_REQUEST = st.fixed_dictionaries(
    {
        "state": JSON,
        "questions": st.dictionaries(
            TEXT, st.one_of(good_choices(), good_scores(), good_nouls()), min_size=1, max_size=4
        ),
    }
)


def by_the_reference(request: dict[str, Any], tokenizer: Any) -> tuple[Any, Any, Any, int] | str:
    """(rendered questions, row index, row items, input tokens) of the reference, or why it refuses."""
    try:
        rendered = {name: systemone.render_question(fields) for name, fields in request["questions"].items()}
    except ValueError as error:
        return str(error)
    planned, index = systemone.plan_rows(rendered)
    texts = [[(row["question"], row["options"])] for row in planned]
    items, context = prompt_fast.build_rows(tokenizer, systemone.render_state(request["state"]), texts)
    return rendered, index, items, prompt_fast.unique_tokens(items, context)


def logits_for(widths: list[int], seed: int) -> list[list[float]]:
    """Logits as they come: bfloat16 values, ties among them, a few rows decided."""
    chance = random.Random(seed)
    reach = chance.choice([0.5, 4.0, 12.0, 40.0])
    return [
        torch.tensor([chance.uniform(-reach, reach) for _ in range(width)]).to(torch.bfloat16).float().tolist()
        for width in widths
    ]


@given(request=GOOD_REQUEST, seed=st.integers(0, 2**32))
@BOUNDED
def test_rows_and_answers_are_the_references(
    vocabulary: Vocabulary, reference_tokenizer: Any, request: dict[str, Any], seed: int
) -> None:
    """Same token ids, same candidates, same usage; from the same logits the same answers after rounding."""
    expected = by_the_reference(request, reference_tokenizer)
    assert not isinstance(expected, str), expected
    rendered, index, items, input_tokens = expected
    asked = grammar.parse(request)
    made = compile_rows(asked.state, asked.questions, vocabulary, truncate=True)
    assert made.payload is not None
    assert rows_of(made.payload) == [item["ids"] for item in items]
    assert made.payload.candidates.tolist() == [item["nopts"][0] for item in items]
    assert made.input_tokens == input_tokens
    assert made.processed_tokens == sum(len(item["ids"]) for item in items)

    logits = logits_for(made.payload.candidates.tolist(), seed)
    (default, by_type), _ = temperature.from_config(RELEASED)
    spread = []
    for row, kind in zip(logits, systemone.row_types(rendered, index), strict=True):
        scaled = temperature.scaled_softmax(torch.tensor([row]), [by_type.get(kind, default)])[0]
        ours = np.array(softmax32(row, getattr(TEMPERATURES, kind)), np.float32)
        np.testing.assert_array_max_ulp(ours, scaled.numpy(), maxulp=8)
        spread.append(scaled.tolist())
    theirs = systemone.assemble(rendered, index, spread)
    assert_same(dict(native.answers(asked.questions, logits, TEMPERATURES)), theirs)

    # And from the reference's own probabilities there is nothing left to round differently.
    start = 0
    for question in asked.questions:
        count = len(question.legend) or 1
        assert native.answer(question, spread[start : start + count]).to_json() == theirs[question.id]
        start += count


@given(request=ANY_REQUEST)
@BOUNDED
def test_the_same_requests_are_refused(
    vocabulary: Vocabulary, reference_tokenizer: Any, request: dict[str, Any]
) -> None:
    """Of requests with anything wrong or nothing, each side refuses what the other does, and the rest are equal."""
    expected = by_the_reference(request, reference_tokenizer)
    if isinstance(expected, str):
        with pytest.raises(Refused):
            grammar.parse(request)
        return
    asked = grammar.parse(request)
    made = compile_rows(asked.state, asked.questions, vocabulary, truncate=True)
    assert ([] if made.payload is None else rows_of(made.payload)) == [item["ids"] for item in expected[2]]
    assert made.input_tokens == expected[3]


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Equal after rounding, but for one unit of the last decimal: the softmax of the reference differs between
    machines in the last bits of float32, so that a number on the edge may be rounded to either side."""
    assert list(ours) == list(theirs)
    for name, answer in ours.items():
        for key, value in answer.to_json().items():
            expected = theirs[name][key]
            if isinstance(value, float):
                assert value == pytest.approx(expected, abs=0.0100001 if key == "score" else 0.000100001), (name, key)
            elif isinstance(value, dict) and key != "legend":
                assert list(value) == list(expected)
                assert list(value.values()) == pytest.approx(list(expected.values()), abs=0.000100001)
            else:
                assert value == expected, (name, key)


def test_the_labels_are_the_references(vocabulary: Vocabulary, reference_tokenizer: Any) -> None:
    """Names, token ids, and what stands before a label."""
    names, ids, opening = prompt.label_table(reference_tokenizer)
    assert (list(vocabulary.names), list(vocabulary.labels), list(vocabulary.opening)) == (names, ids, opening)


@pytest.mark.parametrize("repeats", [40_000, 45_000])
def test_a_long_state_is_cut_where_the_reference_cuts_it(
    vocabulary: Vocabulary, reference_tokenizer: Any, repeats: int
) -> None:
    """The published truncation check: the state's first 32,768 tokens, then the whole question."""
    request = {"state": "hello " * repeats, "questions": {"q": {"instructions": "q", "criteria": ["a", "b"]}}}
    expected = by_the_reference(request, reference_tokenizer)
    assert not isinstance(expected, str)
    asked = grammar.parse(request)
    made = compile_rows(asked.state, asked.questions, vocabulary, truncate=True)
    assert made.payload is not None
    (row,) = rows_of(made.payload)
    assert row == expected[2][0]["ids"]
    assert 32_768 < len(row) <= 36_864
    assert made.state_tokens == 32_768
