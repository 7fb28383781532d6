"""How many threads a host gets, and what its libraries are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor_host.launch import threads


@pytest.mark.parametrize(
    ("hosts", "environment", "processors", "expected"),
    [
        (1, {}, 8, 8),
        (3, {}, 8, 2),
        (9, {}, 8, 1),
        (0, {}, 2, 2),
        (9, {"OMP_NUM_THREADS": "2"}, 8, 2),
        (1, {"OMP_NUM_THREADS": "3,1"}, 8, 3),
        (1, {"OMP_NUM_THREADS": "all"}, 8, 8),
        (1, {"OMP_NUM_THREADS": "0"}, 8, 8),
    ],
)
def test_a_host_has_its_share(hosts: int, environment: dict[str, str], processors: int, expected: int) -> None:
    """What the environment says, or the processors divided among the hosts of this machine."""
    assert threads.share(hosts, environment, processors) == expected


def test_libraries_are_told_how_many_and_to_sleep() -> None:
    """Every library's own variable; a wait policy that the environment has already is somebody's decision."""
    told = threads.variables(2, 1, {"OMP_WAIT_POLICY": "ACTIVE"})
    assert told == {
        "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1",
        "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4",
    }  # fmt: skip
    shared = threads.variables(None, 4, {})
    assert shared["OMP_WAIT_POLICY"] == "PASSIVE"
    assert (shared["OMP_NUM_THREADS"], shared["OPENBLAS_NUM_THREADS"]) == ("4", "1"), "numpy's wait by turning round"


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content + "\n")


@pytest.fixture
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


@pytest.mark.usefixtures("affinity")
def test_the_quota_of_version_2(tmp_path: Path) -> None:
    """The least of our group's and of those above it; "max" is none; less than one processor is one."""
    ours = tmp_path / "ours"
    ours.write_text("0::/a/b\n")
    assert threads.processors(ours, tmp_path / "none") == 8
    group(tmp_path / "a", cpu__max="350000 100000")
    group(tmp_path / "a" / "b", cpu__max="max 100000")
    assert threads.processors(ours, tmp_path) == 3
    group(tmp_path / "a" / "b", cpu__max="150000 100000")
    assert threads.processors(ours, tmp_path) == 1
    group(tmp_path / "a" / "b", cpu__max="50000 100000")
    assert threads.processors(ours, tmp_path) == 1
    group(tmp_path / "a" / "b", cpu__max="9900000 100000")
    group(tmp_path / "a", cpu__max="nonsense")
    assert threads.processors(ours, tmp_path) == 8


@pytest.mark.usefixtures("affinity")
def test_the_quota_of_version_1(tmp_path: Path) -> None:
    """Mounted under the names of the controllers or under `cpu`; -1 is none; a path that is not there is the machine's,
    and our own group is what is mounted."""
    ours = tmp_path / "ours"
    ours.write_text("5:memory:/x\n4:cpu,cpuacct:/docker/1\n")
    group(tmp_path / "memory" / "x", cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    group(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert threads.processors(ours, tmp_path) == 2
    group(tmp_path / "cpu,cpuacct" / "docker" / "1", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert threads.processors(ours, tmp_path) == 2
    ours.write_text("4:cpu:/other\n")
    group(tmp_path / "cpu", cpu__cfs_quota_us="400000", cpu__cfs_period_us="100000")
    assert threads.processors(ours, tmp_path) == 4


def test_this_machine() -> None:
    """At least one and no more than the affinity says."""
    assert 1 <= threads.processors() <= len(os.sched_getaffinity(0))
