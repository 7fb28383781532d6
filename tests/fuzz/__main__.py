"""`make fuzz`: the parsers of hostile bytes under a coverage-guided fuzzer, for as long as asked.

    python -m tests.fuzz [--seconds N] [TARGET ...]

Each target has N seconds. What was found to reach new code is kept in `.fuzz/TARGET`, and the next run begins with
it. An input that breaks a promise is written to `.fuzz/TARGET-crash-...`, with the trace on the screen; give it to the
target again with `python -m tests.fuzz.loop TARGET FILE`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.fuzz.targets import TARGETS
from tests.process.harness import ROOT

KEPT = ROOT / ".fuzz"
FLAGS = ("-max_len=4096", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0")


def main() -> int:
    """Run the targets one after the other; 1 when one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the parsers of hostile bytes.")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    failed = [name for name in arguments.targets or TARGETS if not fuzz(name, arguments.seconds)]
    print(f"failed: {', '.join(failed)}" if failed else "nothing was found", flush=True)
    return bool(failed)


def fuzz(name: str, seconds: int) -> bool:
    """Whether a target stood it."""
    corpus = KEPT / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    print(f"== {name}: {seconds} s", flush=True)
    flags = (*FLAGS, f"-max_total_time={seconds}", f"-artifact_prefix={KEPT}/{name}-")
    return subprocess.run([sys.executable, "-m", "tests.fuzz.loop", name, *flags, corpus]).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
