"""How many threads a host gets, and what its libraries are told."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from executor_host.launch import commands, ray_driver, threads

ROOT = Path(__file__).parents[2]


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


def test_who_places_a_host_says_how_many_where_its_model_does_not() -> None:
    """Its threads are told to sleep all the same."""
    told = threads.variables(None, None, {})
    assert told == {**threads.WAITING, "OPENBLAS_NUM_THREADS": "1"}
    assert threads.variables(3, None, {})["OMP_NUM_THREADS"] == "3"


def run_host(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, str]:
    """The environment in which `framehost host` begins to be a host."""
    seen: dict[str, str] = {}

    def run(_: object) -> int:
        seen.update(os.environ)
        return 0

    remote = types.ModuleType("executor_host.remote")
    remote.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "executor_host.remote", remote)
    monkeypatch.setattr("executor_host.remote", remote, raising=False)
    monkeypatch.setattr(os, "environ", {"PATH": "/bin"})
    monkeypatch.setattr(threads, "processors", lambda: 6)
    parser = argparse.ArgumentParser()
    commands.add_to(parser.add_subparsers())
    needed = ("--connect", "tcp://127.0.0.1:1", "--model", "m", "--family", "toy", "--key", "k", "--server-key", "s")
    parsed = parser.parse_args(["host", *needed, *arguments])
    assert parsed.run(parsed) == 0
    return seen


def test_a_host_that_dials_in_has_the_processors_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or what `--threads` says; its libraries are told before they are loaded."""
    told = run_host(monkeypatch)
    assert (told["OMP_NUM_THREADS"], told["OMP_WAIT_POLICY"], told["OPENBLAS_NUM_THREADS"]) == ("6", "PASSIVE", "1")
    assert run_host(monkeypatch, "--threads", "2")["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "100000"])
def test_a_number_of_threads_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """With the bounds, before anything is looked for."""
    with pytest.raises(SystemExit):
        run_host(monkeypatch, "--threads", text)
    assert "a number of threads is 1 to " in capsys.readouterr().err


def test_numpy_is_not_loaded_before_it_is_told() -> None:
    """Importing the program loads no library that computes."""
    code = "import sys, supervisor; sys.exit('numpy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


class Actor:
    """What Ray gives for an actor."""

    def options(self, **_: object) -> Actor:
        return self

    def remote(self, *_: object) -> Any:
        return types.SimpleNamespace(be_host=self)


def test_an_actor_of_ray_gets_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its process starts: they are of its runtime environment."""
    started: list[dict[str, Any]] = []
    ray = types.ModuleType("ray")
    ray.__dict__.update(
        init=lambda **settings: started.append(settings),
        remote=lambda **_: lambda _: Actor(),
        get=lambda _: 0,
        kill=lambda _: None,
        shutdown=lambda: None,
        exceptions=types.SimpleNamespace(RayActorError=ZeroDivisionError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray_driver.signal, "signal", lambda *_: None)
    order = os.memfd_create("order")
    os.write(order, json.dumps({"ray": {"address": "local"}, "variables": {"OMP_NUM_THREADS": "3"}}).encode())
    os.lseek(order, 0, os.SEEK_SET)
    assert ray_driver.main(order) == 0
    variables = started[0]["runtime_env"]["env_vars"]
    assert variables["OMP_NUM_THREADS"] == "3"
    assert "PYTHONPATH" in variables


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
