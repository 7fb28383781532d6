"""The error tree: one abstract base, stable codes, and a closed list of failures."""

from __future__ import annotations

import pytest

from protocol import errors
from protocol.errors import FAILURES, ProtocolError

CONCRETE = ProtocolError.__subclasses__()


def test_the_base_is_abstract() -> None:
    """Whoever raises says what is wrong, by type."""
    with pytest.raises(TypeError):
        ProtocolError("something")


def test_every_error_has_its_own_code() -> None:
    """Codes are stable on the wire, so two types never share one."""
    codes = {cls.code for cls in CONCRETE}
    assert codes == {
        "malformed", "limit_exceeded", "unknown_kind", "version_mismatch", "stale_incarnation", "bad_transition",
    }  # fmt: skip
    assert len(codes) == len(CONCRETE)


@pytest.mark.parametrize("cls", CONCRETE, ids=lambda cls: cls.__name__)
def test_an_error_carries_its_call(cls: type[ProtocolError]) -> None:
    """0 means that the call could not be read."""
    assert cls("what").call == 0
    assert cls("what", call=7).call == 7
    assert str(cls("what", call=7)) == "what"


def test_failures_are_keyed_by_code_and_only_fatal_retires() -> None:
    """The status hints are HTTP errors; nothing but a fatal failure ends the host."""
    for code, kind in errors.FAILURES.items():
        assert (kind.code, kind.meaning != "") == (code, True)
        assert 400 <= kind.status <= 599
    assert [code for code, kind in FAILURES.items() if kind.retire] == ["fatal"]
