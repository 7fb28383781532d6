"""Files of a checkpoint that came with a host's facts, because the checkpoint is on another machine.

They are written to a folder of their own, from which the family's processor reads them as it would from the
checkpoint. What the host has loaded it names by sha256 in the same facts, and the processor compares.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

from frontend.families.base import AssetError

MAX_FILES: Final = 64
"""A family names a handful."""


class Unpacked:
    """The folder with the files of `facts["assets"]`, until it is closed. `path` is None when there are none."""

    def __init__(self, facts: Mapping[str, object]) -> None:
        """Raises `AssetError` when they are not files by name, or cannot be written."""
        self.path: str | None = None
        assets = facts.get("assets")
        if assets is None:
            return
        if not isinstance(assets, Mapping) or len(assets) > MAX_FILES:
            raise AssetError("the host's files are not a table of files")
        try:
            self.path = tempfile.mkdtemp(prefix="framehost-assets-")
            for name, content in assets.items():
                if (
                    PurePath(name).name != name
                    or name in ("", ".", "..")
                    or not isinstance(content, bytes | memoryview)
                ):
                    raise AssetError(f"the host sends {name!r:.80}, which is not the name of a file and its bytes")
                Path(self.path, name).write_bytes(content)
        except (OSError, ValueError) as error:
            self.close()
            raise AssetError(f"the host's files cannot be written: {error}") from error
        except AssetError:
            self.close()
            raise

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = None
