"""One reading of a scheduler: how many units are where, and how many have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """One consistent reading of a scheduler. `waiting` to `suspended`, `joined` and `staged` describe now.

    The rest only grows. Every unit that entered the queue is in exactly one of waiting, joined, staged, running,
    completed, failed and withdrawn.
    """

    name: str
    waiting: int
    running: int
    abandoned: int
    """Of the running and the staged, those whose caller has left."""

    held_for_earlier_front: bool
    suspended: bool
    dispatched: int
    """How often a unit was started: once per unit, and once more for each time it was requeued after that."""

    requeued: int
    """How often a unit went back to its place in the queue, because its host died and had not taken it."""

    completed: int
    failed: int
    """Units that ended in an error after their grant; a start callable that raised counts here."""

    withdrawn: int
    """Units that ended unexecuted: caller left, context dead, or queue failed."""

    dropped_results: int
    """Of completed and failed, those whose caller had left."""

    refused: int = 0
    """Of the failed, those whose text the executor refuses: it is the client's mistake, and no failure of the model."""

    joined: int = 0
    """Units that wait for the end of an equal one."""

    staged: int = 0
    """Units that were sent while others are executed, and are not started yet."""

    batches: int = 0
    """How often a batch was sent, of one unit or more; 0 where there are none."""

    joins: int = 0
    """How many units have waited for an equal one, whatever became of them."""

    answers_kept: int = 0
    """Units that were answered by what an equal one had been answered before."""

    @classmethod
    def sum(cls, parts: Sequence[SchedulerStatistics]) -> SchedulerStatistics:
        """Of several queues of one name as if they were one: counts added, `held_for_earlier_front` if one is,
        `suspended` if all are. At least one part."""
        counts = {
            name: sum(getattr(part, name) for part in parts)
            for name in (
                "waiting", "running", "abandoned", "dispatched", "requeued", "completed", "failed", "refused",
                "withdrawn", "dropped_results", "joined", "staged", "batches", "joins", "answers_kept",
            )
        }  # fmt: skip
        return cls(
            name=parts[0].name,
            held_for_earlier_front=any(part.held_for_earlier_front for part in parts),
            suspended=all(part.suspended for part in parts),
            **counts,
        )
