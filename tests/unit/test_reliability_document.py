"""docs/reliability.md names a test for every promise, and the numbers of the program."""

from __future__ import annotations

import re
from pathlib import Path

from executor_host.launch import base, stacks
from executor_host.supervision import hosts, incarnation, probes, watchdog
from executor_host.supervision.policy import RestartLimits, RestartPolicy
from frontend.configuration import schema
from frontend.limits import RESTART_WAIT_S
from protocol import families
from protocol.exits import HostExit, ServeExit

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_exists() -> None:
    """A promise without its test is no promise."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^(?:async )?def (test_\w+)", source, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named
    assert named <= defined


def test_every_fault_has_a_test() -> None:
    """No row of a table of faults without one in its last cell."""
    faults = [
        line
        for part in re.findall(r"\| fault \|.*?\n((?:\|.*\n)+)", DOCUMENT)
        for line in part.splitlines()
        if not line.startswith("| ---")
    ]
    assert len(faults) > 30
    assert [line for line in faults if not line.rstrip(" |").endswith("`")] == []


def test_the_numbers_are_those_of_the_program() -> None:
    """Limits, delays and statuses, each as the document spells it."""
    assert f"sparrow {families.find('sparrow').execution_limit_s:g} s" in DOCUMENT
    assert f"the others {families.find('decider').execution_limit_s:g} s" in DOCUMENT
    assert f"| {schema.DEFAULT_FRONT_LIMIT_S:g} s | `front_limit`" in DOCUMENT
    assert f"| {schema.DEFAULT_DRAIN_S:g} s and a margin of {hosts.STOP_MARGIN_S:g} s | `drain`" in DOCUMENT
    assert f"asks every {watchdog.ASK_EVERY_S:g} s" in DOCUMENT
    assert f"not ready after {watchdog.SILENT_S:g} s" in DOCUMENT
    assert f"| taking stacks | {stacks.DUMP_WAIT_S:g} s |" in DOCUMENT
    assert f"the last {base.LAST_WORDS_CHARS:,} characters" in DOCUMENT
    assert f"expected back within {RESTART_WAIT_S:g} s and within its own deadline" in DOCUMENT
    assert f"has {probes.TIMEOUT_S:g} s, and beyond {probes.MAX_CONNECTIONS} the oldest" in DOCUMENT
    limits = RestartLimits(budget=schema.DEFAULT_RESTARTS)
    policy = RestartPolicy(limits)
    delays = [policy.after_death(status=1, ready_for_s=None) for _ in range(limits.budget)]
    assert f"| {limits.budget}, after {', '.join(f'{delay:g}' for delay in delays)} s | `restarts`" in DOCUMENT
    assert f"{limits.stable_s:g} s of being ready" in DOCUMENT
    assert f"every {limits.longest_delay_s:g} s at last" in DOCUMENT
    assert f"| the end of a host that says that it ends | {incarnation.EXIT_LIMIT_S:g} s |" in DOCUMENT
    for status in (HostExit.CONFIGURATION, HostExit.LOAD_FAILED, HostExit.WARM_UP_FAILED, HostExit.RETIRED):
        assert f"status {int(status)}" in DOCUMENT
    for status in ServeExit:
        assert re.search(rf"\b{int(status)} [a-z]", DOCUMENT.partition("Exit statuses:")[2])
