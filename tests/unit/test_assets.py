"""Files that come with a host's facts: a stranger's table of names, written where it cannot hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frontend.families.base import AssetError
from frontend.serving.assets import MAX_FILES, unpacked


def test_files_are_there_while_they_are_needed() -> None:
    """In folders of their own where the name says so, byte for byte, and gone afterwards."""
    with unpacked({"assets": {"a.json": b"{}", "sub/b.json": memoryview(b"[]")}}) as folder:
        assert folder is not None
        assert Path(folder, "a.json").read_bytes() == b"{}"
        assert Path(folder, "sub", "b.json").read_bytes() == b"[]"
        assert Path(folder).stat().st_mode & 0o077 == 0
    assert not Path(folder).exists()


def test_a_local_host_sends_none() -> None:
    """Then there is no folder at all."""
    with unpacked({"files": {}}) as folder:
        assert folder is None


@pytest.mark.parametrize(
    "assets",
    [
        [],
        {"": b""},
        {".": b""},
        {"..": b""},
        {"../a": b""},
        {"a/../../b": b""},
        {"/etc/a": b""},
        {"a": "text"},
        {"a\0b": b""},
        {"a": b"", "a/b": b""},
        {"n" * 300: b""},
        {str(number): b"" for number in range(MAX_FILES + 1)},
    ],
    ids=range(12),
)
def test_what_is_no_table_of_files_is_refused(assets: Any) -> None:
    """Nothing is written outside of the folder, and the incarnation is refused with the reason."""
    with pytest.raises(AssetError, match="host"), unpacked({"assets": assets}):
        pass
