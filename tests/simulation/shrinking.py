"""What is wrong with a seed, with as few of its events as are found to be needed."""

from __future__ import annotations

from collections.abc import Sequence

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
