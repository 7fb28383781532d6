"""After the storm: what every request was promised, and what the server must have given back."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.chaos.clients import Record
from tests.chaos.faults import Injected
from tests.process.harness import Framehost, alive

TYPES = {
    200: {""},
    400: {"api_usage_error"},
    422: {""},
    429: {"rate_limit_error"},
    503: {"service_unavailable"},
    504: {"timeout_error"},
}
"""Every status a client may see here, and the word that goes with it. 500 is none of them."""

LOST_IN_THE_QUEUE = "was waiting; what was left of it was not started"
"""The words of a queued request that was ended by a death: nobody may get them as long as there are restarts."""

GROWTH_BYTES = 48 * 2**20
"""A process may be this much larger afterwards. A leaked request keeps some kilobytes, and thousands were sent."""

FD_GROWTH = 8


def requests(records: Sequence[Record], injected: Sequence[Injected], mark: Path) -> list[str]:
    """What is wrong with the ends of the requests; [] when all is well."""
    fronts = [fault for fault in injected if fault.what == "kill -9 the front"]
    started = Counter(line.split()[0] for line in mark.read_text().splitlines()) if mark.exists() else Counter()
    asked = Counter(record.tag for record in records)
    wrong = [f"{tag} was executed {times} times" for tag, times in started.items() if times > asked[tag]]
    for record in records:
        problem = ""
        if record.outcome == "forgotten":
            problem = "never got an end"
        elif record.outcome == "closed":
            if not any(record.began <= kill.ended and kill.began <= record.ended for kill in fronts):
                problem = "lost its connection while no front died"
        elif record.outcome != "left":
            problem = _answer(record, started[record.tag], asked[record.tag])
        if problem:
            wrong.append(f"{record}: {problem}")
    return wrong


def nothing_shared(records: Sequence[Record], mark: Path) -> list[str]:
    """What is wrong when clients asked the same at the same time, and each of them had an execution of its own."""
    answered = Counter(record.tag for record in records if record.outcome == 200)
    started = Counter(line.split()[0] for line in mark.read_text().splitlines())
    twice = [tag for tag, times in answered.items() if times > 1]
    shared = sum(started[tag] == 1 for tag in twice)
    return [] if shared else [f"none of {len(twice)} requests that were asked twice at once was executed once"]


def _answer(record: Record, started: int, asked: int) -> str:
    status = record.outcome
    if status not in TYPES:
        return "a status that nobody is told here"
    if record.error_type not in TYPES[int(status)]:
        return "another type than its status has"
    if status in (429, 503) and re.fullmatch("[1-5]", record.retry_after) is None:
        return "no Retry-After of 1 to 5"
    if LOST_IN_THE_QUEUE in record.message:
        return "was lost in the queue"
    if record.kind == "wrong" and status not in (400, 422, 429):
        return "bad input that is not told so"
    if status == 200 and not 1 <= started <= asked:
        return f"was answered and executed {started} times"
    if status in (422, 429) and started and asked == 1:
        return "was refused and executed"
    return ""


class Footprint:
    """What the server holds: processes, descriptors, memory, directories."""

    def __init__(self, server: Framehost) -> None:
        report = server.status()
        self.hosts = sum(bool(host["pid"]) for host in report["hosts"])
        self.others = len([process for process in server.family() if alive(process)]) - self.hosts
        self.directories = len([path for path in server.runtime.glob("framehost-*/*/*/*-*") if path.is_dir()])
        self.memory, self.descriptors = {}, {}
        for name, pid in (("supervisor", report["pid"]), ("front", report["front_process"]["pid"])):
            process = psutil.Process(pid)
            self.memory[name] = process.memory_info().rss
            self.descriptors[name] = process.num_fds()


def leftovers(before: Footprint, after: Footprint) -> list[str]:
    """What was not given back; [] when all is well."""
    wrong = []
    if after.others != before.others:
        wrong.append(f"{after.others} processes besides the hosts, {before.others} before")
    if after.directories != after.hosts:
        wrong.append(f"{after.directories} directories of incarnations for {after.hosts} hosts")
    for name, size in after.memory.items():
        if size > before.memory[name] + GROWTH_BYTES:
            wrong.append(f"the {name} grew from {before.memory[name] / 2**20:.0f} to {size / 2**20:.0f} MiB")
        if after.descriptors[name] > before.descriptors[name] + FD_GROWTH:
            wrong.append(f"the {name} has {after.descriptors[name]} descriptors, {before.descriptors[name]} before")
    return wrong


def table(records: Sequence[Record], injected: Sequence[Injected]) -> str:
    """What was done, how the requests ended, and how long each fault was felt: from its beginning to the first
    answer to a request that was sent after it, in seconds."""
    felt = defaultdict(list)
    for fault in injected:
        answers = (
            record.ended
            for record in records
            if record.outcome == 200 and record.began >= fault.began and fault.model in ("", record.model)
        )
        if (first := min(answers, default=None)) is not None:
            felt[fault.what].append(first - fault.began)
    lines = ["| what was done | times | answered again after, p50 | p99 |", "| --- | --- | --- | --- |"]
    for what, count in sorted(Counter(fault.what for fault in injected).items()):
        times = sorted(felt[what])
        p50 = f"{statistics.median(times):.2f} s" if times else ""
        p99 = f"{times[min(len(times) - 1, int(len(times) * 0.99))]:.2f} s" if times else ""
        lines.append(f"| {what} | {count} | {p50} | {p99} |")
    lines += ["", "| requests ended as | number |", "| --- | --- |"]
    lines += [f"| {outcome} | {count} |" for outcome, count in Counter(str(r.outcome) for r in records).most_common()]
    return "\n".join([*lines, f"| together | {len(records)} |"])
