"""A running server whose configuration file has changed: `framehost reload`, and SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.harness import Framehost, configuration, running


@pytest.fixture
def file(runtime: Path) -> Path:
    return configuration(runtime / "framehost.toml", {"a": {"identity": "one"}, "b": {"identity": "other"}})


@pytest.fixture
def server(runtime: Path, file: Path) -> Iterator[Framehost]:
    with running(runtime, config=file) as server:
        yield server


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def reload(server: Framehost, *arguments: str) -> tuple[int, str]:
    """Exit status, and what was printed."""
    with server.command("reload", *arguments) as command:
        out, err = command.communicate()
    return command.returncode, out + err


def test_a_model_that_has_become_another_one_is_swapped(server: Framehost, file: Path) -> None:
    """The others stay; a second reload finds nothing to do."""
    pid = server.host("b")["pid"]
    change(file, '"one"', '"two"')
    status, told = reload(server, "--dry-run")
    assert (status, server.model("a")["identity"]) == (0, "one")
    assert "a: toy" in told and "1 changes would be made" in told
    status, told = reload(server)
    assert status == 0 and "1 changes made" in told
    assert server.model("a")["identity"] == "two"
    assert server.host("b")["pid"] == pid
    assert "0 changes made" in reload(server)[1]


def test_hup_reads_the_file_and_never_stops_the_server(server: Framehost, file: Path) -> None:
    """Once for what has changed, once for a file that is wrong, once for nothing."""
    change(file, '"one"', '"two"')
    server.process.send_signal(signal.SIGHUP)
    server.line("reload of server: 1 changes made")
    assert server.model("a")["identity"] == "two"
    change(file, "[server]", "[server]\nports = 1")
    server.process.send_signal(signal.SIGHUP)
    server.line("reload of server:", "line 2", "key server.ports")
    assert server.decide("x", model="a").status == 200
    assert server.stop() == 0


def test_a_wrong_file_changes_nothing(server: Framehost, file: Path) -> None:
    """It is told with file, line and key, although another part of it has changed."""
    change(file, '"one"', '"two"')
    change(file, '[models.b]\nfamily = "toy"', '[models.b]\nfamily = "no such"')
    status, told = reload(server)
    assert status == 2
    assert str(file) in told and "key models.b.family" in told
    assert server.model("a")["identity"] == "one"


def test_what_needs_a_start_is_named(server: Framehost, file: Path) -> None:
    """And a model that cannot be started leaves the old one."""
    change(file, "[server]", "[server]\ndrain = 5\nkept_bytes = { cpu = 5 }")
    change(file, '"one"', '"one"\nfail = "load"')
    status, told = reload(server)
    assert status == 1
    assert "drain: takes effect with the next start" in told
    assert "kept_bytes: cpu 5" in told
    assert server.decide("x", model="a").status == 200
    status, told = reload(server)
    assert "drain: takes effect with the next start" in told, "it still does not hold"
    assert "kept_bytes" not in told, "that does"


def test_without_a_file_there_is_none_to_read_again(runtime: Path) -> None:
    """The server says so, and goes on."""
    with running(runtime) as server:
        status, told = reload(server)
        assert status == 2 and "without a configuration file" in told
        server.process.send_signal(signal.SIGHUP)
        server.line("reload of server: the server was started without a configuration file")
        assert server.decide("x").status == 200
