"""The model of every floor: nothing, or a fixed amount of CPU time."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.request import ANSWERS


def decide(request: dict[str, Any], busy_s: float) -> dict[str, Any]:
    """The thread's clock, not the wall's: a neighbour on the same core must not shorten the work."""
    if busy_s:
        end = time.thread_time() + busy_s
        while time.thread_time() < end:
            pass
    return {"model": request["model"], "answers": ANSWERS, "usage": {"input_tokens": 1, "output_tokens": 0}}
