"""Offers to change the protocol are taken out of heads, wherever a packet ends, and out of nothing else."""

from __future__ import annotations

import pytest

from frontend.http.offers import Offers

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nX-Upgrade: 1\r\n\r\n"
CLEAN = b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nxpgrade: h2c\r\nX-Upgrade: 1\r\n\r\n"


def withdrawn(*pieces: bytes) -> tuple[bytes, bytes]:
    offers, heads, rest = Offers(), b"", b""
    for piece in pieces:
        head, rest = offers.withdraw(piece)
        heads += head
    return heads, rest


def test_an_offer_becomes_a_field_that_means_nothing() -> None:
    """Of the same length; other fields with the word in them stay, and so does the body."""
    assert withdrawn(HEAD + b"\nUpgrade: body") == (CLEAN, b"\nUpgrade: body")


@pytest.mark.parametrize("name", [b"upgrade", b"UPGRADE", b"Upgrade", b"Upgrade ", b"UpGrade"])
def test_however_it_is_spelled(name: bytes) -> None:
    """Field names have no case."""
    head = HEAD.replace(b"\r\nUpgrade:", b"\r\n" + name + b":")
    assert b"\r\nX" not in withdrawn(head)[0].replace(b"\r\nX-Upgrade", b"")
    assert b"\n" + name not in withdrawn(head)[0]


@pytest.mark.parametrize("cut", range(1, len(HEAD)))
def test_wherever_the_packet_ends(cut: int) -> None:
    """Bytes that may be the beginning of an offer wait for the next packet; nothing is lost, and nothing waits after
    the head."""
    assert withdrawn(HEAD[:cut], HEAD[cut:] + b"body") == (CLEAN, b"body")


def test_a_byte_at_a_time() -> None:
    """As slow as a client may be."""
    assert withdrawn(*(HEAD[at : at + 1] for at in range(len(HEAD)))) == (CLEAN, b"")
