"""`make mutants`: breaks each promise in a copy of the tree, and says how many tests notice.

    python -m tests.mutants [--jobs N] [WORD ...]

Every mutation whose name has one of the words, or all of them, is made in a copy of its own, where its tests are run.
Two tests that notice are the aim. Exit status: 0 when every mutation was noticed, 1 when one survived.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutations import MUTATIONS, Mutation
from tests.process.harness import ROOT

AIM = 2
LIMIT_S = 600.0
"""For the tests of one mutation; one that makes them hang is noticed."""


def main() -> int:
    """Make the mutations and run their tests; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Do the tests hold the promises?")
    parser.add_argument("--jobs", type=int, default=1, help="copies that are tested at once (default: %(default)s)")
    parser.add_argument("words", nargs="*", metavar="WORD", help="of the names of mutations (default: all)")
    arguments = parser.parse_args()
    chosen = [one for one in MUTATIONS if not arguments.words or any(word in one.name for word in arguments.words)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        killed = dict(zip(chosen, pool.map(tried, chosen), strict=True))
    print("| tests | mutation |\n|---|---|")
    for mutation, count in killed.items():
        print(f"| {said(count)} | {mutation.name} |")
    return int(not all(killed.values()))


def said(count: int | None) -> str:
    """A cell of the table."""
    if count is None:
        return "not measured: its tests fail without it"
    return f"{count or '**0**'}{' (below the aim)' if 0 < count < AIM else ''}"


def tried(mutation: Mutation) -> int | None:
    """How many tests fail with `mutation`; tests that hang count as one. None when they fail or hang without it."""
    with tempfile.TemporaryDirectory(prefix="framehost-mutant-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        archive = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        for name in archive.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file():
                target = copy / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((ROOT / name).read_bytes())
        if failures(copy, mutation.tests):
            return None
        file = copy / mutation.file
        file.write_text(mutated(file.read_text(), mutation))
        return len(failures(copy, mutation.tests))


def mutated(text: str, mutation: Mutation) -> str:
    """The text of its file with the promise broken. Raises `ValueError` when it has moved."""
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: its text is {text.count(mutation.old)} times in {mutation.file}")
    return text.replace(mutation.old, mutation.new)


def failures(copy: Path, tests: tuple[str, ...]) -> set[str]:
    """The tests of a copy that fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfE", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {"(they hang)"}
    found = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE))
    return found or ({"(they do not run)"} if ended.returncode not in (0, 1) else set())


if __name__ == "__main__":
    sys.exit(main())
