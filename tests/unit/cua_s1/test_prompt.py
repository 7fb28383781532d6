"""What the model reads, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontend.families.cua_s1.processor import CuaS1Processor
from frontend.families.cua_s1.prompt import chat_text, json_text, label, prompts, user_text
from frontend.families.refusal import Refused
from frontend.requests.questions import Choice
from protocol.contracts.cua_s1 import CHAT, MAX_PROMPT_TOKENS, SYSTEM
from tests.unit.cua_s1.helpers import FIXTURE, FIXTURE_STATE

USER = """Goal: Submit the verified form.

App: Cua Driver
Task family: closed-candidate decision

Accessibility tree:
Visual-region-derived observation for capture "capture-fixture-1":
"submit-text": text 'Submit' at (300,240,100,40) confidence=0.96 interactive=true

Options:
A. Decision "Submit using the unique validated visual region." -> select
B. Decision "Discard this decision set and obtain a fresh observation." -> select
C. Decision "Stop without acting if no supplied action is safe." -> select

Answer with a single letter."""


def test_the_published_prompt() -> None:
    """The fixture's user message, and the chat around it."""
    assert user_text(FIXTURE_STATE, FIXTURE) == USER
    whole = chat_text(FIXTURE_STATE, FIXTURE)
    assert whole == (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{USER}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    assert SYSTEM.startswith("You are a one-pass computer-use decision model. You are shown")
    assert SYSTEM.endswith("ONLY that option's letter -- no words, no punctuation, no explanation.")
    assert "\n" not in SYSTEM
    assert len(SYSTEM) == 331


def test_the_published_structures() -> None:
    """State, goal and labels that are not strings."""
    state = json.loads('{"app":"Settings","elements":[{"id":"e1","label":"Location","on":true}]}')
    assert json_text(state) == '{"app": "Settings", "elements": [{"id": "e1", "label": "Location", "on": true}]}'
    question = Choice(
        "q",
        {"question": "Which one?"},
        (
            ("a", {"action": "click", "element": "e1"}),
            ("b", ["click", "e2"]),
            ("c", 'Click "Submit"\n(tab\there) C:\\Users'),
            ("d", "点击「保存」"),
            ("abstain", None),
        ),
    )
    text = user_text(json_text(state), question)
    assert text.startswith('Goal: {"question": "Which one?"}\n\nApp: Cua Driver\n')
    assert text.endswith(
        "Options:\n"
        r'A. Decision "{\"action\": \"click\", \"element\": \"e1\"}" -> select' + "\n"
        r'B. Decision "[\"click\", \"e2\"]" -> select' + "\n"
        r'C. Decision "Click \"Submit\"\n(tab\there) C:\\Users" -> select' + "\n"
        'D. Decision "点击「保存」" -> select\n'
        'E. Decision "abstain" -> select\n\n'
        "Answer with a single letter."
    )


@pytest.mark.parametrize("instructions", [None, ""])
def test_no_goal_no_line(instructions: Any) -> None:
    """The line and the empty line behind it are gone."""
    text = user_text("s", Choice("q", instructions, (("a", None),)))
    assert text.startswith(
        "App: Cua Driver\nTask family: closed-candidate decision\n\nAccessibility tree:\ns\n\nOptions:"
    )


@pytest.mark.parametrize("instructions", [{}, []])
def test_an_empty_structure_is_a_goal(instructions: Any) -> None:
    """It is text: `{}`."""
    assert user_text("s", Choice("q", instructions, (("a", None),))).startswith(f"Goal: {instructions}\n\nApp: ")


def test_keys_keep_their_order_and_are_escaped_where_they_are_shown() -> None:
    """Only an option without a description shows its name; an empty description is one."""
    assert label('a "b"\n', None) == r"a \"b\"\n"
    assert label("name", "") == ""
    assert label("name", {"z": 1, "a": [None, True]}) == r"{\"z\": 1, \"a\": [null, true]}"
    assert label("name", "\x00\x1f\x7f\u2028") == "\\u0000\\u001f\x7f\u2028"


def test_braces_and_markers_of_the_state_are_text() -> None:
    """What looks like a place of the template is not one."""
    text = user_text("{options}{goal}{state}{0}", Choice("q", "{state}", (("{goal}", None),)))
    assert text.count("Accessibility tree:\n{options}{goal}{state}{0}\n\nOptions:\nA. Decision") == 1
    assert text.startswith("Goal: {state}\n\n")
    assert chat_text("{user}{system}", Choice("q", None, (("a", None),))).count("{user}{system}") == 1


NUMBERS = ["1.0", "1e+16", "1e-05", "0.0001", "-0.0", "5e-324", "0.1", "123456789.125", "1e+22", "123456789012345680.0"]


@pytest.mark.parametrize("literal", NUMBERS)
def test_numbers_are_pythons(literal: str) -> None:
    """Shortest digits that come back, two digits of exponent."""
    number = 1.2345678901234568e17 if literal == "123456789012345680.0" else float(literal)
    expected = "1.2345678901234568e+17" if literal == "123456789012345680.0" else literal
    assert json_text([number]) == f"[{expected}]"


def test_integers_keep_every_digit() -> None:
    """And minus zero is zero when it is an integer."""
    assert json_text(json.loads("[18446744073709551616, -0, 1]")) == "[18446744073709551616, 0, 1]"


def test_a_prompt_is_tokenized_as_one_string(processor: CuaS1Processor) -> None:
    """No tokens are added, and what spells a special token is one, in a client's text too."""
    encode = processor.checkpoint.encode
    (tokens,) = prompts(FIXTURE_STATE, [FIXTURE], encode)
    assert tokens == encode(chat_text(FIXTURE_STATE, FIXTURE))
    (start,), (end,), (think,) = encode("<|im_start|>"), encode("<|im_end|>"), encode("<think>")
    assert (tokens[0], tokens.count(start), tokens.count(end), tokens.count(think)) == (start, 3, 2, 1)
    (spelled,) = prompts("x<|im_end|>", [FIXTURE], encode)
    assert spelled.count(end) == 3


def test_the_template_trims_nothing() -> None:
    """A state's own white space stays; the message around it has none at its ends."""
    text = user_text("  \n s \n ", Choice("q", "  goal  ", (("a", None),)))
    assert text.startswith("Goal:   goal  \n\n")
    assert "tree:\n  \n s \n \n\nOptions" in text
    assert text.strip() == text
    assert CHAT.format(system="", user="").endswith("<|im_start|>assistant\n<think>\n")


def test_the_longest_prompt() -> None:
    """16,384 tokens are read, one more is refused, and nothing behind it is looked at."""
    asked = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [1] * (MAX_PROMPT_TOKENS + ("long" in text))

    questions = [Choice(name, name, (("a", None),)) for name in ("short", "long", "never")]
    assert [len(tokens) for tokens in prompts("s", questions[:1], encode)] == [16_384]
    with pytest.raises(Refused) as caught:
        prompts("s", questions, encode)
    assert (caught.value.reason, caught.value.message) == ("tokens", "question 'long': 16385 prompt tokens, over 16384")
    assert not any("never" in text for text in asked)
