"""The families whose reference is public code that can be installed: each by its own entry point, unrounded.

The packages round what they answer with Python's `round`; a name of the same kind in their module comes before it.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

from tests.fidelity.comparing import Expected, Made, Subject, probabilities
from tests.fidelity.requests import Shape
from tests.helpers import tiny_clef, tiny_decider, tiny_laya, tiny_transformers


def unrounded(module: Any) -> None:
    """Have a module answer with all digits."""
    module.round = lambda value, digits=None: value


class Sparrow:
    """The package sparrow-decider."""

    def __init__(self) -> None:
        import sparrow_decider

        from tests.unit.test_sparrow_family import GENERAL, texts_the_package_reads

        self._package = sparrow_decider.Decider.load(str(GENERAL))
        self._texts = texts_the_package_reads

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        found = {name: self._package.probs(state, fields)[3].tolist() for name, fields in questions.items()}
        tokens = [len(self._package.static.tok.encode(text, 10**9)) for text in self._texts(state, questions)]
        return Expected(found, sum(tokens))


class Whole:
    """A package that answers whole requests in the shape of System One."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the packages' own, about names of older libraries
            body = self._ask(state, questions)
        found = {name: probabilities(answer) for name, answer in body["answers"].items()}
        return Expected(found, body["usage"]["input_tokens"])


def sparrow(folder: Path) -> Made:
    return Made(None, {}, Sparrow())


def decider(folder: Path) -> Made:
    import torch

    infer = importlib.import_module("decider.infer")
    unrounded(importlib.import_module("decider.systemone"))
    tiny_decider.write(folder, seed=11)
    reference = infer.Decider(str(folder), device="cpu", dtype=torch.float32, use_graphs=False)
    return Made(folder, {"device": "cpu", "truncate": True}, Whole(reference.system_one))


def laya(variant: str) -> Any:
    def make(folder: Path) -> Made:
        agent = importlib.import_module("laya.agent")
        unrounded(agent)
        tiny_laya.write(folder, seed=12, variant=variant)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it clamps a temperature
            reference = agent.Agent(str(folder), device="cpu")
        return Made(folder, {"device": "cpu", "truncate": True}, Whole(reference.predict))

    return make


def clef(folder: Path) -> Made:
    from tests.unit.clef.test_reference import Reference

    tiny_clef.write(folder, seed=13)
    reference = Reference(folder)
    unrounded(reference.module)

    def ask(state: Any, questions: dict[str, Any]) -> Any:
        return reference.answer({"model": "m", "state": state, "questions": questions}, 16_384)

    return Made(folder, {"device": "cpu"}, Whole(ask))


def transformers(write: Any, *, head: bool) -> Any:
    def make(folder: Path) -> Made:
        from tests.unit.test_transformers_family import Judge

        write(folder)
        return Made(folder, {"device": "cpu"}, Whole(Judge(folder, head=head).body))

    return make


EVERY = Shape(null_instructions=True)
FEW = Shape(null_instructions=True, most_options=26)
NARROW = Shape(null_instructions=True, most_options=16)
"""As many options as there are letters, and as the head of the tests has outputs."""

SUBJECTS = (
    Subject("sparrow", "sparrow", "sparrow-decider 0.2.0", Shape(null_instructions=True, sides="one or both"), sparrow),
    Subject("decider", "decider", "decider-ai 1.8.1", Shape(most_options=60), decider),
    Subject("clef", "clef", "the published inference file (clef-finetune 0.1.0)", EVERY, clef),
    Subject("laya, English", "laya", "laya 0.3.20", Shape(), laya("english")),
    Subject("laya, typed decisions", "laya", "laya 0.3.20", Shape(), laya("typed-decisions")),
    Subject("laya, multilingual", "laya", "laya 0.3.20", Shape(), laya("multilingual")),
    Subject(
        "transformers, chat",
        "transformers",
        "`DecisionPipeline` of transformers 5.24",
        FEW,
        transformers(tiny_transformers.write_chat, head=False),
    ),
    Subject(
        "transformers, head",
        "transformers",
        "`DecisionPipeline` of transformers 5.24",
        NARROW,
        transformers(tiny_transformers.write_head, head=True),
    ),
)
