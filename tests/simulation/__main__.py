"""Many seeds; each that fails is said, with the fewest of its events that make it fail.

    python -m tests.simulation [--seeds 10000] [--first 0] [--jobs 2]

Exit status 1: one of them failed. What is printed of it runs it again, and belongs into `test_found.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.run import Event, Run, events_of

TRIES = 300
"""Runs that are spent on making one failure small."""


def failure(seed: int, events: Sequence[Event] | None = None) -> str:
    """What is wrong with one run, or nothing."""
    try:
        Run(seed, events)()
    except AssertionError as error:
        return str(error)
    return ""


def smallest(seed: int) -> str:
    """What is wrong with a seed, or nothing: with as few of its events as are found to be needed."""
    told = failure(seed)
    events = list(events_of(seed)) if told else []
    size, tries = len(events) // 2, 0
    while size and tries < TRIES:
        at = 0
        while at < len(events) and tries < TRIES:
            fewer = [*events[:at], *events[at + size :]]
            tries += 1
            if less := failure(seed, fewer):
                told, events = less, fewer
            else:
                at += size
        size //= 2
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run seeds of the simulation.")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for seed, told in zip(seeds, pool.map(smallest, seeds, chunksize=10), strict=True):
            if told:
                failed += 1
                print(f"seed {seed}: {told}", file=sys.stderr, flush=True)
    print(f"| simulated seeds | failed |\n| --- | --- |\n| {len(seeds)} | {failed} |")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
