"""Many seeds; each that fails is said, with the fewest of its events that make it fail.

    python -m tests.simulation [--seeds 10000] [--first 0] [--jobs 2]

Exit status 1: one of them failed. What is printed of it runs it again, and belongs into `test_found.py`.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.shrinking import smallest


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run seeds of the simulation.")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    failed = 0
    # A process that has run thousands of loops holds gigabytes.
    with ProcessPoolExecutor(arguments.jobs, max_tasks_per_child=50, mp_context=get_context("forkserver")) as pool:
        for seed, told in zip(seeds, pool.map(smallest, seeds, chunksize=10), strict=True):
            if told:
                failed += 1
                print(f"seed {seed}: {told}", file=sys.stderr, flush=True)
    print(f"| simulated seeds | failed |\n| --- | --- |\n| {len(seeds)} | {failed} |")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
