"""Hosts that somebody else starts: over tcp, with keys, lost with their connection, and back as newcomers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.exits import HostExit, ServeExit
from protocol.transport import keys
from tests.process.harness import GUARD_S, ROOT, Framehost, running, tagged

LEASE_S = 1.0


class Site:
    """Keys for a server and one host, the server's configuration, and the hosts that a test starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allow = folder / "allow"
        self.allow.mkdir()
        for name in ("server", "host", "stranger"):
            keys.create(folder, name)
        (self.allow / "host.key").write_bytes((folder / "host.key").read_bytes())
        self.hosts: list[subprocess.Popen[str]] = []

    def configuration(self, family: str = "toy", path: str = "", restarts: int = 5, **options: Any) -> Path:
        lines = [
            "[server]",
            f"restarts = {restarts}",
            "[hosts]",
            'listen = "127.0.0.1:0"',
            f"key = {json.dumps(str(self.folder / 'server.key_secret'))}",
            f"allow = {json.dumps(str(self.allow))}",
            f"lease = {LEASE_S}",
            "[models.judge]",
            f"family = {json.dumps(family)}",
            "remote = true",
            *([f"path = {json.dumps(path)}"] if path else []),
            "[models.judge.options]",
            *(f"{key} = {json.dumps(str(value))}" for key, value in options.items()),
        ]
        file = self.folder / "framehost.toml"
        file.write_text("\n".join(lines) + "\n")
        return file

    def host(
        self, server: Framehost, *, family: str = "toy", key: str = "host", extra: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        """`framehost host`, as a person would start it."""
        address = server.line("waiting for a host to dial in at ").split(" at ")[1]
        command = [sys.executable, "-m", "executor_host.supervision.entry", "host", "--connect", address]
        command += ["--model", "judge", "--family", family, "--key", str(self.folder / f"{key}.key_secret")]
        command += ["--server-key", str(self.folder / "server.key"), "--connect-timeout", str(GUARD_S), *extra]
        host = subprocess.Popen(
            command, cwd=ROOT, env=server.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.hosts.append(host)
        return host

    def close(self) -> None:
        for host in self.hosts:
            if host.poll() is None:
                host.kill()
                host.send_signal(signal.SIGCONT)
            host.wait(GUARD_S)
            assert host.stdout is not None
            host.stdout.close()


@contextmanager
def on_site(runtime: Path, **options: Any) -> Iterator[tuple[Site, Framehost]]:
    site = Site(runtime)
    with running(runtime, config=site.configuration(**options), wait=False) as server:
        try:
            yield site, server
        finally:
            site.close()


def ended(host: subprocess.Popen[str]) -> tuple[int, str]:
    """How a host ended, and what it said."""
    output, _ = host.communicate(timeout=GUARD_S)
    return host.returncode, output


def test_a_host_from_elsewhere_serves_as_a_local_one(runtime: Path) -> None:
    """The port opens when it has dialled in and is warm; a stop ends it, too, with its own clean end."""
    with on_site(runtime) as (site, server):
        host = site.host(server)
        server.opened()
        answer = server.decide({"tag": "a"})
        assert answer.status == 200
        report = server.host("judge")
        assert (report["state"], report["pid"]) == ("ready", 0)
        assert server.stop() == ServeExit.CLEAN
        assert ended(host)[0] == HostExit.CLEAN


def test_a_host_that_dies_is_lost_and_the_queue_waits_for_the_next(runtime: Path) -> None:
    """The running request gets 503 and is never sent again; the queued one is answered by the host that comes next."""
    mark, until = runtime / "mark", runtime / "until"
    # Those are restarts of what is started here, which a remote host is not.
    with on_site(runtime, restarts=0) as (site, server):
        first = site.host(server)
        server.opened()
        running_one = server.soon({"op": "wait", "until": str(until), "tag": "a", "mark": str(mark)})
        server.running()
        queued = server.soon({"tag": "b", "mark": str(mark)})
        server.queued(1)
        first.kill()
        lost = running_one.result(GUARD_S)
        assert lost.status == 503
        assert "may still be; it is not sent again" in lost.json["detail"]["message"]
        site.host(server)
        assert queued.result(GUARD_S).status == 200
        assert tagged(mark) == ["a", "b"]
        assert server.host("judge")["restarts"] == 1
        server.wait(server.idle, "idle")


def test_a_host_behind_a_cut_is_lost_after_its_lease_and_ends_itself(runtime: Path) -> None:
    """A host that answers nothing at all (here: stopped) is lost; when it runs again it finds itself given up."""
    with on_site(runtime) as (site, server):
        first = site.host(server)
        server.opened()
        before = server.host("judge")["incarnation"]
        os.kill(first.pid, signal.SIGSTOP)
        server.line("judge", "is gone; it may still be running there")
        second = site.host(server)
        server.wait(lambda: server.host("judge")["state"] == "ready", "the next host")
        assert server.host("judge")["incarnation"] != before
        os.kill(first.pid, signal.SIGCONT)
        status, words = ended(first)
        assert status in (HostExit.CLEAN, HostExit.LOST)
        assert "ending" in words
        assert server.decide({"tag": "a"}).status == 200
        assert second.poll() is None


def test_a_host_whose_server_is_gone_ends_itself(runtime: Path) -> None:
    """Nobody is left to ask it anything; whoever started it starts the next one."""
    with on_site(runtime) as (site, server):
        host = site.host(server)
        server.opened()
        server.process.kill()
        status, words = ended(host)
        assert status in (HostExit.CLEAN, HostExit.LOST)
        assert "the connection to the server is gone" in words


def test_a_new_front_finds_the_remote_host_warm(runtime: Path) -> None:
    """A front's death costs a remote host nothing: the new one dials the same incarnation."""
    with on_site(runtime) as (site, server):
        site.host(server)
        server.opened()
        before = server.host("judge")["incarnation"]
        os.kill(server.front_pid(), signal.SIGKILL)
        assert server.decide({"tag": "a"}).status == 200
        assert server.host("judge")["incarnation"] == before


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ({"key": "stranger"}, HostExit.REFUSED, "folder `allow`"),
        ({"family": "sparrow"}, HostExit.REFUSED, "(other_family)"),
        ({"extra": ("--ports", "1")}, HostExit.CONFIGURATION, "expected two ports"),
    ],
    ids=["unknown key", "other family", "bad ports"],
)
def test_a_host_that_may_not_serve_says_why_and_ends(
    runtime: Path, arguments: dict[str, Any], status: int, words: str
) -> None:
    """The server goes on waiting for the right one."""
    with on_site(runtime) as (site, server):
        code, said = ended(site.host(server, **arguments))
        assert (code, words in said) == (status, True), said
        site.host(server)
        server.opened()


def test_a_host_that_cannot_load_says_so_to_the_server(runtime: Path) -> None:
    """The server's log has the reason, and the next host is welcome: nothing is used up."""
    gate = runtime / "gate"
    with on_site(runtime, fail=f"until:{gate}") as (site, server):
        assert ended(site.host(server))[0] == HostExit.LOAD_FAILED
        server.line("judge", "the toy cannot be loaded yet")
        gate.touch()
        site.host(server)
        server.opened()


def test_what_operators_may_order_of_a_model_whose_hosts_dial_in(runtime: Path) -> None:
    """No swap, which happens where the hosts are, and no unload of one that is there; the wait for one can be ended,
    and a request begins it anew."""
    with on_site(runtime) as (site, server):
        first = site.host(server)
        server.opened()
        status, told = server.swap("judge=toy")
        assert (status, "the hosts of 'judge' are started elsewhere" in told) == (2, True)
        assert server.order("cancel", "judge").code == "conflict"
        assert server.order("unload", "judge").message == "judge@1 is pinned"
        seen = len(server.lines)
        first.kill()
        server.line("waiting for a host to dial in", after=seen)
        assert server.order("unload", "judge").message == "judge@1 is unloaded"
        assert server.host("judge")["state"] == "absent"
        seen = len(server.lines)
        asked = server.soon("x")
        server.line("waiting for a host to dial in", after=seen)
        site.host(server)
        assert asked.result(GUARD_S).status == 200


def test_what_the_front_needs_of_a_checkpoint_comes_with_the_facts(runtime: Path) -> None:
    """The front has no checkpoint, prepares from the files that the host sent, and answers as a local server does."""
    pytest.importorskip("torch")
    from tests.helpers import tiny_decider

    checkpoint = runtime / "decider"
    tiny_decider.write(checkpoint)
    question = {"state": "The cat sat.", "questions": {"q": {"type": "noul", "instructions": "Is there a cat?"}}}
    with running(runtime, f"judge=decider:{checkpoint}") as local:
        expected = local.post(question).json
    (runtime / "site").mkdir()
    with on_site(runtime / "site", family="decider") as (site, server):
        site.host(server, family="decider", extra=("--path", str(checkpoint)))
        server.opened()
        assert server.post(question).json == expected


def test_hosts_are_refused_without_keys(runtime: Path) -> None:
    """Without a key of its own that only it can read, or without a list of hosts, the server does not start."""
    site = Site(runtime)
    config = site.configuration()
    (runtime / "server.key_secret").chmod(0o644)
    with running(runtime, config=config, wait=False) as server:
        assert server.wait_exit() == ServeExit.CONFIGURATION
        assert "chmod 600" in server.log()
