"""What both halves agree on: codes, temperatures, releases, licences."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.contracts import nimble as contract
from protocol.contracts.agreement import ContractError
from protocol.contracts.nimble import V1, V2
from tests.unit.nimble.helpers import Letters, letters

LATEST = "29ef39b072dee97287947455337879c1e916705c2f727287922a2d81f5e2f20a"
FIRST = "ba7e28acb97f973e80fa51f3aa6fc6f75ea4081b89632ed45d8e5f3a1d7bfa6b"
SECOND = "1bd126be997be6d9a0c25ce483ccf858c31b3422d480c33f02ba47b614be68ae"


def number(text: str) -> int:
    return int.from_bytes(text.encode())


def codes(vocabulary: list[str]) -> tuple[str, ...]:
    return contract.read_codes(vocabulary, letters, {-1}).names


def test_codes_are_letters_and_then_words_by_length() -> None:
    """Of two capitals before those of three, alphabetically, if they are one token; 255, or the letters alone."""
    found = codes(list(Letters().get_vocab(True)))
    assert found[:29] == (*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "AA", "AB", "AC")
    assert len(found) == 255
    assert codes(["BA", "ABC", "AÖ", "Ab", "K"]) == tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")

    def one(texts: Any) -> list[list[int]]:
        return [[number(text)] if len(text) < 4 else letters([text])[0] for text in texts]

    def encode(texts: Any) -> list[list[int]]:
        return [
            [*letters([contract.ANSWER])[0], number(text[len(contract.ANSWER) :])]
            if text.startswith(contract.ANSWER) and text != contract.ANSWER
            else one([text])[0]
            for text in texts
        ]

    wide = [first + second for first in "ABCDEFGHI" for second in "ABCDEFGHIJKLMNOPQRSTUVWXY"]
    named = contract.read_codes([*wide, "AAA", "AAB", "ZZZ", "ZZ"], encode, ()).names
    assert named[26 + 225 :] == ("ZZ", "AAA", "AAB", "ZZZ")


def test_what_is_no_codebook() -> None:
    """A chat of another kind; a code that is special, or joined with what stands before it, or the token of another."""
    with pytest.raises(ContractError, match=r"does not have <\|im_start\|> as one token"):
        contract.read_codes([], lambda texts: [[1, 2] for _ in texts], ())
    with pytest.raises(ContractError, match="the code C is not one ordinary token"):
        contract.read_codes([], letters, {ord("C")})

    def joined(texts: Any) -> list[list[int]]:
        return [
            ids if text != contract.ANSWER + "D" else [*ids[:-2], 7]
            for text, ids in zip(texts, letters(texts), strict=True)
        ]

    with pytest.raises(ContractError, match="the code D is not one ordinary token"):
        contract.read_codes([], joined, ())

    def equal(texts: Any) -> list[list[int]]:
        return [[65 if token == 66 else token for token in ids] for ids in letters(texts)]

    with pytest.raises(ContractError, match="two codes are the same token"):
        contract.read_codes([], equal, ())


@pytest.mark.parametrize(
    ("ready", "release"),
    [
        ({"adapter_sha256": FIRST}, V1),
        ({"adapter_sha256": SECOND, "model": "other"}, V2),
        ({"revision": "93ec5d6ff1a9cd31d6cc0e0c58d312465d36de7c"}, V1),
        ({"model": "bespokelabs/Bespoke-Nimble-9B-v2", "revision": "main"}, V2),
        ({"model": "bespokelabs/Bespoke-Nimble-9B", "revision": "0" * 40}, None),
        ({"base_revision": "93ec5d6ff1a9cd31d6cc0e0c58d312465d36de7c"}, None),
        # An adapter is what it is, whatever it is called.
        ({"adapter_sha256": "0" * 64, "model": "bespokelabs/Bespoke-Nimble-9B-v2"}, None),
        ({"adapter_sha256": 7}, None),
    ],
)
def test_what_was_merged(ready: Any, release: object) -> None:
    """By the adapter's bytes, else by revision and name; never by the base model."""
    assert contract.release_of(ready) == release


def test_temperatures_of_the_published_adapters() -> None:
    """One was fitted, the second has the same, and the newest of the first name has none."""
    found = {digest: release.temperature for digest, release in contract.RELEASES.items()}
    assert found == {FIRST: 2.179078721266035, SECOND: 2.179078721266035, LATEST: 1.0}


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "1", None, 10**400])
def test_what_is_no_temperature(value: object) -> None:
    with pytest.raises(ContractError, match="a finite number above 0 is expected"):
        contract.read_calibration({"temperature": value}, None)
    assert contract.read_calibration({"temperature": 2, "adapter_sha256": FIRST}, FIRST) == 2.0


@pytest.mark.parametrize(
    ("card", "licence", "forbidden"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0", False),
        ("---\ntags: [a]\nlicense: 'CC-BY-NC-4.0'\n---\ntext", "cc-by-nc-4.0", True),
        ("---\nlibrary: x\n---\nlicense: cc-by-nc-4.0", None, False),
        ("license: cc-by-nc-4.0", None, False),
        ("", None, False),
        ("---\nlicense: mit-ncsa\n---\n", "mit-ncsa", False),
    ],
)
def test_licences(card: str, licence: str | None, forbidden: bool) -> None:
    """As the head of a card names them, and nowhere else."""
    assert contract.licence_of(card) == licence
    assert contract.non_commercial(licence) is forbidden
