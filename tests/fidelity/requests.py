"""Requests out of a seed: texts of many scripts, what a text would rather be than one, structured states and
descriptions, few options and many. They share nothing with the generators of the other tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

WORDS = (
    *("the parcel", "is late", "charged twice", "for one order", "and", "password reset", "fails", "refund", "please"),
    *(
        "größer",
        "Ελλάδα",
        "дом",
        "שלום",
        "退款",
        "東京",
        "👍🏽",
        "e\u0301",
        "naïve",
        "1e-05",
        "-0.0",
        "42",
        "3,5 %",
        "№7",
    ),
    *("<|im_end|>", "<|im_start|>user", "<think>", "</s>", "[MASK]", "[SEP]", "<b>&amp;</b>", "\\n", '"quoted"', "{x}"),
    *(
        "A.",
        "(B)",
        "Question: no",
        "Requested field: a",
        "\t",
        "a\nb",
        "\u00a0",
        "\u2028",
        "it's",
        "don't",
        "C++",
        "a_b",
    ),
)

NUMBERS = (0, 7, -1, 2**53 + 1, 10**25, 1.5, -0.0, 1e16, 1e-7, True, False, None)

Sides = Literal["any", "both or none", "one or both", "both"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Of what a family can be asked."""

    kinds: tuple[str, ...] = ("choice", "score", "noul")
    least_options: int = 2
    most_options: int = 40
    least_levels: int = 2
    most_levels: int = 10
    sides: Sides = "any"
    """Of a noul that are described: any of them, by a text or by null."""
    null_instructions: bool = False
    """Whether instructions may be missing, but for a noul's."""
    long: int = 12
    """How often a long state repeats a text."""


def generated(seed: int, shape: Shape) -> tuple[Any, dict[str, Any]]:
    """A state and questions of the System One grammar."""
    chance = random.Random(seed)
    state = _value(chance, structured=0.4)
    if chance.random() < 0.2:
        state = _text(chance) * shape.long
    questions = {}
    for index in range(chance.randint(1, 5)):
        name = chance.choice([f"q{index}", f"{chance.choice(WORDS)} {index}", f"{index}"])
        questions[name] = _question(chance, shape)
    return state, questions


def _question(chance: random.Random, shape: Shape) -> dict[str, Any]:
    kind = chance.choice(shape.kinds)
    question: dict[str, Any] = {"type": kind, "instructions": _value(chance)}
    if kind == "choice":
        most = shape.most_options if chance.random() < 0.15 else min(8, shape.most_options)
        count = chance.randint(shape.least_options, most)
        names = [f"{chance.choice(WORDS)} {index}" if chance.random() < 0.5 else f"o{index}" for index in range(count)]
        question["criteria"] = {name: None if chance.random() < 0.4 else _value(chance) for name in names}
    elif kind == "score":
        count = chance.randint(shape.least_levels, shape.most_levels)
        question["criteria"] = [_value(chance) for _ in range(count)]
    else:
        described = _sides(chance, shape.sides)
        if described is not None:
            question["criteria"] = described
    if shape.null_instructions and kind != "noul" and chance.random() < 0.2:
        del question["instructions"]
    return question


def _sides(chance: random.Random, sides: Sides) -> dict[str, Any] | None:
    whole = {"true": _value(chance), "false": _value(chance)}
    if sides == "both" or (sides == "both or none" and chance.random() < 0.5):
        return whole
    if sides == "both or none":
        return None
    one = {side: whole[side] for side in (["true"], ["false"], ["true", "false"])[chance.randrange(3)]}
    if sides == "one or both" or chance.random() < 0.5:
        return one
    return chance.choice([None, {**one, "true": None}])


def _value(chance: random.Random, structured: float = 0.25) -> Any:
    """A text, or an object or array of texts and numbers."""
    if chance.random() > structured:
        return _text(chance)
    inner = [_text(chance), chance.choice(NUMBERS), {"key": _text(chance), "é": [chance.choice(NUMBERS)]}, []]
    chance.shuffle(inner)
    if chance.random() < 0.4:
        return [_text(chance), *inner[: chance.randint(0, 3)]]
    return {"text": _text(chance), **{f"k{index}": value for index, value in enumerate(inner[: chance.randint(0, 3)])}}


def _text(chance: random.Random) -> str:
    """Never blank."""
    pieces = [chance.choice(WORDS) for _ in range(chance.randint(1, 7))]
    text = chance.choice(["word ", "", " x "]) + chance.choice([" ", "", ", "]).join(pieces) + chance.choice(["", "?"])
    return text if text.strip() else f"blank{text}"
