"""`python -m tests.fidelity [--write] [--seed N] [--requests N] [NAME ...]`, which `make test-extra` runs: the served
answers of every family beside those of its public reference, on tiny random checkpoints and generated requests.

A line per checkpoint as it ends; status 1 when anything is said differently. `--write` puts the table into
docs/conformance.md. A seed that is not given is that of the day, so that no two days ask the same.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fidelity import packages, written
from tests.fidelity.comparing import HEAD, WITHIN, Row, Subject, compare

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
_PART = re.compile(r"(<!-- python -m tests\.fidelity --write writes this -->\n).*?(<!-- end -->)", re.DOTALL)

SUBJECTS: tuple[Subject, ...] = (*packages.SUBJECTS, *written.SUBJECTS)

REQUESTS = 170
"""For each checkpoint: 2,210 in all."""


def table(rows: Sequence[Row], seed: int, day: str) -> str:
    """What the document says."""
    total = sum([row.requests for row in rows])
    head = f"{total:,} requests of seed {seed}, {day}; a probability may differ by {WITHIN:.0e}.\n"
    return "\n".join([head, *HEAD, *(row.line() for row in rows)])


def put(text: str, part: str) -> str:
    """The document with its part replaced."""
    assert _PART.search(text), "docs/conformance.md has no place for the table"
    return _PART.sub(lambda found: f"{found[1]}{part}\n{found[2]}", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity")
    parser.add_argument("names", nargs="*", metavar="NAME", help="families; all when there are none")
    parser.add_argument("--write", action="store_true", help="put the table into docs/conformance.md")
    parser.add_argument("--seed", type=int, default=int(today.strftime("%Y%m%d")))
    parser.add_argument("--requests", type=int, default=REQUESTS, help=f"of each checkpoint; {REQUESTS}")
    given = parser.parse_args(arguments)
    if given.write and given.names:
        parser.error("the table in the document is that of all families")
    wanted = [subject for subject in SUBJECTS if not given.names or subject.family in given.names]
    if not wanted or set(given.names) - {subject.family for subject in wanted}:
        parser.error(f"the families are {', '.join(sorted({subject.family for subject in SUBJECTS}))}")
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    rows = []
    for index, subject in enumerate(SUBJECTS):
        if subject not in wanted:
            continue
        first = given.seed * 1_000_000 + index * 10_000
        row = compare(subject, range(first, first + given.requests))
        rows.append(row)
        print(f"{'ok    ' if row.passed else 'FAILED'} {row.line()}", flush=True)
        if not row.passed:
            print(f"       winners {row.winners[:5]}, token counts {row.tokens[:5]}", flush=True)
    part = table(rows, given.seed, today.isoformat())
    print(part, flush=True)
    if given.write:
        DOCUMENT.write_text(put(DOCUMENT.read_text(encoding="utf-8"), part), encoding="utf-8")
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
