"""Files of a checkpoint that came with a host's facts, because the checkpoint is on another machine.

They lie in a folder of their own while the family's processor is made, which reads them as it would read those of a
checkpoint. What the host has loaded it names by sha256 in the same facts, and the processor compares.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from frontend.families.base import AssetError

MAX_FILES: Final = 64
"""A family names a handful."""


@contextmanager
def unpacked(facts: Mapping[str, object]) -> Iterator[str | None]:
    """The folder with the files of `facts["assets"]`; None when there are none.

    Raises `AssetError` when they are not files by name, or cannot be written.
    """
    assets = facts.get("assets")
    if assets is None:
        yield None
        return
    if not isinstance(assets, Mapping) or len(assets) > MAX_FILES:
        raise AssetError("the host's files are not a table of files")
    with tempfile.TemporaryDirectory(prefix="framehost-assets-", ignore_cleanup_errors=True) as folder:
        for name, content in assets.items():
            path = PurePosixPath(name)
            inside = path.parts and not path.is_absolute() and ".." not in path.parts
            if not inside or not isinstance(content, bytes | memoryview):
                raise AssetError(f"the host sends {name!r:.80}, which is not the name of a file and its bytes")
            try:
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            except (OSError, ValueError) as error:
                raise AssetError(f"the host's file {name!r:.80} cannot be written: {error}") from error
        yield folder
