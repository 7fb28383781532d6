"""`wrk` as a function: closed loop, keep-alive, one thread, and a failure for everything that is not an answer.

A compiled client, because a Python one would take more of the two cores than the servers it measures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("post.lua")
ERRORS = ("connect", "read", "write", "status", "timeout")


class LoadFailed(Exception):
    """A server answered something else than 2xx, or broke a connection."""


@dataclass(frozen=True, slots=True)
class Load:
    """One run of wrk."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float


def missing() -> str | None:
    """How to get wrk, when it is not there."""
    if shutil.which("wrk") is None:
        return "the benchmark needs the load generator wrk: apt-get install wrk (Debian, Ubuntu), brew install wrk"
    return None


def run(url: str, bodies: Path, *, connections: int, seconds: int, first: int = 0) -> Load:
    """Load `url` for `seconds` with the `bodies` of a file, one in each line, in turn from the `first` one on. Raises
    `LoadFailed` on the first error seen."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "120s", "-s", str(SCRIPT), url]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 180,
        env={**os.environ, "BENCH_BODY": str(bodies), "BENCH_FIRST": str(first)},
    )
    found = re.search(r"^BENCH (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        raise LoadFailed(f"wrk ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    values = {name: int(value) for name, value in (pair.split("=") for pair in found[1].split())}
    errors = {name: values[name] for name in ERRORS if values[name]}
    if errors or not values["requests"]:
        raise LoadFailed(f"{url} at {connections} connections: {errors or 'no request was answered'}")
    return Load(
        requests_per_s=values["requests"] / values["duration_us"] * 1e6,
        p50_ms=values["p50_us"] / 1e3,
        p99_ms=values["p99_us"] / 1e3,
        max_ms=values["max_us"] / 1e3,
    )
