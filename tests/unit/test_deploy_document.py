"""docs/deploy.md: its files can be read by what reads them, and its numbers agree with each other and with the code."""

from __future__ import annotations

import os
import re
import stat
import textwrap
import tomllib
from pathlib import Path

from executor_host.supervision.hosts import STOP_MARGIN_S
from frontend.configuration import load as config
from frontend.configuration import schema
from frontend.limits import REQUEST_TIMEOUT_S
from protocol.exits import HostExit
from protocol.transport import keys

DOCUMENT = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")


def numbers(pattern: str) -> set[float]:
    """Every number that the document has in this place."""
    return {float(number) for number in re.findall(pattern, DOCUMENT)}


def test_a_stop_fits_into_every_grace_period() -> None:
    """The manager waits longer than the pause, the drain budget and the margin together."""
    (drain,) = numbers(r"drain = (\d+)")
    (pause,) = numbers(r'\["sleep", "(\d+)"\]')
    (grace,) = numbers(r"terminationGracePeriodSeconds: (\d+)") | numbers(r"TimeoutStopSec=(\d+)")
    assert drain == schema.DEFAULT_DRAIN_S
    assert drain >= REQUEST_TIMEOUT_S
    assert grace > pause + drain + STOP_MARGIN_S
    for said in (f"`drain` {drain:g} s", f"| {STOP_MARGIN_S:g} s |", f"| {pause:g} s |", f"| {grace:g} s |"):
        assert said in DOCUMENT
    assert f"| {schema.DEFAULT_LEASE_S:g} s | `lease` |" in DOCUMENT


def test_its_configurations_are_right(tmp_path: Path) -> None:
    """Those of the walk-through and of the cluster are accepted as they stand, key files aside."""
    blocks = re.findall(r"<<'TOML'\n(.*?)\nTOML", DOCUMENT, re.DOTALL)
    (mounted,) = re.findall(r"framehost\.toml: \|\n(.*?)\n---", DOCUMENT, re.DOTALL)
    blocks.append(textwrap.dedent(mounted))
    assert len(blocks) == 2
    for block in blocks:
        tomllib.loads(block)
        file = tmp_path / "framehost.toml"
        file.write_text(re.sub(r"^keys = .*$", "", block, flags=re.MULTILINE))
        found = config.load(file)
        assert found.models[0].remote
        assert found.health is not None


def test_the_exit_statuses_are_those_of_a_host() -> None:
    """Each number of the table is one that a host may end with, and none is missing."""
    table = DOCUMENT.split("| exit status of a host |")[1].split("\n\n")[0]
    told = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for number in row.split(",")}
    assert told == set(HostExit) - {HostExit.USAGE, HostExit.PARENT_DIED}


def test_nothing_in_the_cluster_runs_as_root() -> None:
    """Every pod says so, and its secrets have the mode that its group can read and that a key file may have."""
    pods = re.findall(r"kind: Deployment\n(.*?)(?=^---|^```)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert len(pods) == 2
    for pod in pods:
        (context,) = re.findall(r"securityContext: \{(.*)\}", pod)
        settings = dict(part.split(": ") for part in context.split(", "))
        assert settings["runAsNonRoot"] == "true"
        user = int(settings["runAsUser"])
        assert user > 0
        assert settings["fsGroup"] == settings["runAsGroup"]
        (mode,) = re.findall(r"defaultMode: (0\d+)", pod)
        mounted = os.stat_result((stat.S_IFREG | int(mode, 8), 1, 1, 1, 0, int(settings["fsGroup"]), 1, 0, 0, 0))
        assert keys.exposed(mounted, user) == ""
