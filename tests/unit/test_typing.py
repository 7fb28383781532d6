"""What mypy says of the files in tests/typing: an error of the named code on each line that expects one, and no other.

They use the public seams (processor, executor, family, launcher) as a third party does, so a seam that loses a type, or
a marker file that is lost from the package, is seen here.
"""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests" / "typing").glob("*.py"))


def expected() -> list[tuple[str, int, str]]:
    """File, line and code of every `# expect: CODE`."""
    return [
        (file.name, number, code)
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        for code in re.findall(r"# expect: ([\w-]+)$", line)
    ]


def test_the_seams_are_typed_as_they_are_used() -> None:
    """Accepted and refused, line by line, under the rules of the product."""
    out, err, _ = api.run([f"--config-file={ROOT / 'pyproject.toml'}", "--no-pretty", *map(str, FILES)])
    assert err == ""
    found = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: .* \[([\w-]+)\]$", out, re.MULTILINE)
    assert sorted((file, int(line), code) for file, line, code in found) == sorted(expected()), out
    assert {file for file, _, _ in expected()} == {file.name for file in FILES}, "each file has something to refuse"
