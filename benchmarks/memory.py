"""Resident memory of a process tree.

RSS counts a page once per process that has it, so it overstates a tree that shares libraries; PSS divides
each page by the number of its users and adds up. Users outside the tree count too, which is why memory is
measured while no other server of the benchmark runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import role, tree

MIB = 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """Sums over processes, in MiB."""

    processes: int
    rss: float
    pss: float

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.processes + other.processes, self.rss + other.rss, self.pss + other.pss)


def of_process(pid: int) -> Memory:
    """One process, or nothing when it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return Memory(0, 0.0, 0.0)
    values = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    return Memory(1, values["Rss"] / MIB, values["Pss"] / MIB)


def by_role(pid: int) -> dict[str, Memory]:
    """Of a process and everything below it, by the parts of framehost: supervisor, front, host, and what else there
    is."""
    parts: dict[str, Memory] = {}
    for member in tree(pid):
        part = role(member, pid)
        parts[part] = parts.get(part, Memory(0, 0.0, 0.0)) + of_process(member)
    return parts
