"""Every mutation of `make mutants` can still be made, and is a change that Python takes."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import mutated
from tests.mutants.mutations import MUTATIONS, Mutation
from tests.process.harness import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_can_be_made(mutation: Mutation) -> None:
    """Its text is in its file, once; what replaces it is another program; and its tests are there."""
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    broken = mutated(text, mutation)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists()
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8") if name else True


def test_names_are_told_apart() -> None:
    """A report names them."""
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
