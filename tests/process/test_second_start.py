"""Starting where something is already: another framehost, a stranger, leftovers, a path that is too long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.harness import ROOT, TOY, configuration, running


def serve(runtime: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`framehost serve` that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "executor_host.supervision.entry", "serve", "--model", "toy=toy", *arguments],
        cwd=ROOT,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(TOY), **environment},
        capture_output=True,
        text=True,
        timeout=30,
    )


def one_line(ended: subprocess.CompletedProcess[str]) -> str:
    """What it said: exactly one line for people, no traceback."""
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("framehost: ")
    return lines[0]


def test_a_second_start_on_a_port_is_refused_and_the_first_goes_on(runtime: Path) -> None:
    """Exit status 3, a text that names the port, and the first one has not noticed."""
    with running(runtime) as server:
        ended = serve(runtime, "--port", str(server.port))
        assert ended.returncode == 3
        assert f"port {server.port}" in one_line(ended)
        assert server.decide("x").status == 200
        assert server.status()["hosts"][0]["restarts"] == 0
        assert server.stop() == 0


def test_a_second_start_before_the_first_has_opened_its_port_is_refused(runtime: Path) -> None:
    """The lock is older than the port: also a server that still loads cannot be started twice."""
    config = configuration(runtime / "c.toml", {"toy": {"gate": runtime / "never"}})
    with running(runtime, config=config, wait=False) as server:
        server.line("toy", "loading")
        port = next(next(runtime.glob("framehost-*")).iterdir()).name
        ended = serve(runtime, "--port", port)
        assert ended.returncode == 3
        assert f"port {port}" in one_line(ended)
        server.process.terminate()
        assert server.wait_exit() == 0


def test_a_strangers_port_is_named(runtime: Path) -> None:
    """Exit status 3, the port in the text, nothing left behind."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        ended = serve(runtime, "--port", str(port))
    assert ended.returncode == 3
    line = one_line(ended)
    assert f"port {port}" in line
    assert "already in use" in line
    assert list(runtime.iterdir()) == []


def test_a_runtime_directory_that_is_too_long_is_a_configuration_error(runtime: Path) -> None:
    """The text names the path, its length and the limit; nothing was started or made."""
    long = runtime / ("x" * 120)
    ended = serve(long, "--port", "0")
    assert ended.returncode == 2
    line = one_line(ended)
    assert str(long) in line
    assert "107" in line
    assert "XDG_RUNTIME_DIR" in line
    assert not long.exists()


def port_directory(runtime: Path) -> tuple[int, Path]:
    """A free port, and the directory that a server on it would use."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    path = runtime / f"framehost-{os.getuid()}" / str(port)
    path.mkdir(parents=True, mode=0o700)
    path.parent.chmod(0o700)
    return port, path


def test_a_strangers_file_in_the_directory_is_not_removed(runtime: Path) -> None:
    """We remove sockets that a dead launch left; a regular file is refused by its name and stays."""
    port, path = port_directory(runtime)
    (path / "0badcafe").mkdir(mode=0o700)
    precious = path / "0badcafe" / "thesis.txt"
    precious.write_text("chapter one")
    ended = serve(runtime, "--port", str(port))
    assert ended.returncode == 2
    assert str(precious) in one_line(ended)
    assert precious.read_text() == "chapter one"


def test_a_link_in_the_directory_is_not_followed(runtime: Path) -> None:
    """A symbolic link to somewhere else is a stranger's: refused, and nothing behind it is touched."""
    port, path = port_directory(runtime)
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir()
    (path / "0badcafe").symlink_to(elsewhere)
    ended = serve(runtime, "--port", str(port))
    assert ended.returncode == 2
    assert "0badcafe" in one_line(ended)
    assert elsewhere.is_dir()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_enter_is_refused(runtime: Path, mode: int) -> None:
    """Whoever can reach the sockets can use the models: 0700 or nothing."""
    port, path = port_directory(runtime)
    path.chmod(mode)
    ended = serve(runtime, "--port", str(port))
    assert ended.returncode == 2
    line = one_line(ended)
    assert str(path) in line
    assert "0700" in line


def test_a_directory_that_cannot_be_made_is_a_configuration_error(runtime: Path) -> None:
    """A file where the directory should be: named, no traceback."""
    (runtime / "file").write_text("")
    ended = serve(runtime / "file", "--port", "0")
    assert ended.returncode == 2
    assert str(runtime / "file") in one_line(ended)


def test_an_address_of_other_machines_needs_a_word(runtime: Path) -> None:
    """Without keys the models would be anybody's: refused before anything is bound, and the text says why."""
    ended = serve(runtime, "--host", "0.0.0.0", "--port", "0")
    assert ended.returncode == 2
    line = one_line(ended)
    assert "0.0.0.0" in line
    assert "--insecure" in line


def test_an_address_this_machine_does_not_have_is_named(runtime: Path) -> None:
    """A loopback address of the other kind or a stranger's: the text names it and what the system said."""
    ended = serve(runtime, "--host", "192.0.2.1", "--port", "0", "--insecure")
    assert ended.returncode == 2
    assert "192.0.2.1" in one_line(ended)


def test_the_sockets_are_private_and_gone_after_a_stop(runtime: Path) -> None:
    """Every directory down to the sockets is 0700; after a stop nothing of the port is left."""
    with running(runtime) as server:
        place = next(runtime.glob("framehost-*"))
        directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
        assert len(directories) == 4, "ours, the port's, the launch's, the incarnation's"
        assert {path.stat().st_mode & 0o777 for path in directories} == {0o700}
        assert server.stop() == 0
        assert list(place.iterdir()) == []
