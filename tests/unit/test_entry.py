"""The first code of the command: another distribution's `protocol` is named, not imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

import pytest

ROOT = Path(__file__).resolve().parents[2]


def framehost(
    *arguments: str, path: Path | None = None, stdout: BinaryIO | int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """The command, started by its file as an installed script does: the current folder is not on the path."""
    code = (
        f"import sys; sys.path.insert(1, {str(path)!r}); sys.path.append({str(ROOT)!r}); "
        if path
        else (f"import sys; sys.path.append({str(ROOT)!r}); ")
    )
    return subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            code + "from executor_host.supervision.entry import main; sys.exit(main())",
            *arguments,
        ],
        cwd="/",
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("name", ["supervisor", "protocol", "frontend"])
@pytest.mark.parametrize("package", [False, True])
def test_a_foreign_module_of_our_name_is_named(tmp_path: Path, name: str, package: bool) -> None:
    """Exit 2, whose it is, where ours is, and what to do; not one line of the stranger has run."""
    foreign = tmp_path / name / "__init__.py" if package else tmp_path / f"{name}.py"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("print('a stranger runs')")
    ended = framehost("serve", path=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"framehost: the module '{name}' that Python finds is not framehost's: it is {foreign}")
    assert str(ROOT) in lines[0]
    assert "environment of its own" in lines[0]


def test_the_version_is_that_of_the_installed_distribution() -> None:
    """For bug reports: exit 0, one line."""
    ended = framehost("--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"framehost {metadata.version('framehost')}\n"


def test_without_strangers_the_command_runs() -> None:
    """The proof that the tests above see the check and nothing else."""
    ended = framehost("--help")
    assert ended.returncode == 0, ended.stderr
    assert "A server for decision models" in ended.stdout
    assert "serve" in ended.stdout
    assert "--version" in ended.stdout


def test_no_command_is_a_usage_error() -> None:
    """Exit 2 with the usage, as every command line does."""
    ended = framehost()
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: framehost")


@pytest.mark.parametrize("during", ["import", "command"])
def test_an_interrupt_that_no_command_takes_ends_quietly(during: str) -> None:
    """Ctrl-C while our modules are still being imported: 130 as after any interrupt, and no traceback."""
    strike = "import os, signal, sys; from executor_host.supervision import entry; "
    if during == "import":
        # The first import of the command's own modules, which is where a hasty Ctrl-C meets it.
        strike += (
            "sys.addaudithook(lambda event, what: event == 'import' and what[0] == 'zmq' and os.kill(os.getpid(), 2)); "
        )
    else:
        strike += "import supervisor; supervisor.main = lambda: os.kill(os.getpid(), 2); "
    ended = subprocess.run(
        [sys.executable, "-P", "-c", f"{strike}sys.exit(entry.main())", "status"],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_who_has_read_enough_ends_it_quietly() -> None:
    """`framehost completion bash | head -1`: no trace, whether the script fits into the pipe or not."""
    reader, writer = os.pipe()
    os.close(reader)
    where = "executor_host.supervision.entry"
    code = f"import sys; sys.path.append({str(ROOT)!r}); from {where} import main; sys.exit(main())"
    for arguments in (["completion", "bash"], ["--version"]):
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (1, b"")
    os.close(writer)


@pytest.mark.parametrize(
    "arguments", [("--version",), ("completion", "bash"), ("completion", "fish"), ("status", "--help")]
)
def test_an_output_that_cannot_be_written_is_told_in_one_line(arguments: tuple[str, ...]) -> None:
    """The disk is full: not the 1 of `status`, which would say that there is no server. What fits into the buffer fails
    at the end, and what does not at once."""
    with Path("/dev/full").open("wb") as full:
        ended = framehost(*arguments, stdout=full)
    assert ended.stderr == "framehost: standard output cannot be written: No space left on device\n"
    assert ended.returncode == 74


def test_another_error_of_the_system_is_not_called_one_of_the_output() -> None:
    """It is an error of our own, and keeps its trace."""
    strike = "import supervisor; from executor_host.supervision import entry; "
    strike += "supervisor.main = lambda: open('/no/such'); "
    ended = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {strike}sys.exit(entry.main())"],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.endswith("FileNotFoundError: [Errno 2] No such file or directory: '/no/such'\n")
