"""Hosts that dial in: who gets a place, who is sent away and told why, and what a host that finds nobody says."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from executor_host.errors import DialInFailed
from executor_host.host import dial_in
from executor_host.host.dial_in import ServerLane
from executor_host.launch.base import HostSpec
from executor_host.launch.remote import RemoteHost, RemoteHosts, RemoteLauncher
from protocol.exits import HostExit
from protocol.messages import Assigned
from protocol.models import DeploymentSpec
from protocol.transport import keys
from protocol.transport import loop as sockets

GUARD_S = 30.0


@dataclass
class Server:
    """A launcher on loopback, and the keys of it and of its one allowed host."""

    launcher: RemoteLauncher
    keys: Path
    said: list[str]

    def lane(self, host: str = "host", server: str = "server", address: str | None = None) -> ServerLane:
        return ServerLane(
            address or self.launcher.address,
            keys.read_pair(self.keys / f"{host}.key_secret"),
            keys.read_public(self.keys / f"{server}.key"),
        )

    def started(self, incarnation: str = "1-a", name: str = "judge") -> asyncio.Task[RemoteHost]:
        deployment = DeploymentSpec(id=f"{name}@1", name=name, family="toy", path="/models/x", options={"a": 1})
        spec = HostSpec(deployment=deployment, incarnation=incarnation, directory="/nowhere")
        task: asyncio.Task[RemoteHost] = asyncio.create_task(self.launcher.start(spec))  # type: ignore[arg-type]
        return task


def launcher_of(where: RemoteHosts, context: zmq.Context[zmq.Socket[bytes]], said: list[str]) -> RemoteLauncher:
    """As the supervisor makes it, with two models."""
    loop = asyncio.get_running_loop()
    return RemoteLauncher(
        where,
        context,
        lambda source, text: said.append(text),
        {"judge": "toy", "clerk": "toy"},
        lambda at, receive, security: sockets.listen(loop, context, at, receive, security=security),
    )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    allow = folder / "allow"
    for name in ("server", "host", "stranger"):
        keys.create(folder, name)
    allow.mkdir()
    (allow / "host.key").write_bytes((folder / "host.key").read_bytes())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    said: list[str] = []
    where = RemoteHosts("tcp://127.0.0.1:0", folder / "server.key_secret", allow, lease_s=5.0)
    launcher = launcher_of(where, context, said)
    try:
        yield Server(launcher, folder, said)
    finally:
        launcher.close()
        context.destroy(linger=0)


async def asked(lane: ServerLane, model: str = "judge", family: str = "toy", timeout_s: float = GUARD_S) -> Assigned:
    """What a host is told. In a thread: a host waits for it with nothing else to do."""
    return await asyncio.to_thread(lane.ask, model, family, timeout_s=timeout_s)


async def failed(lane: ServerLane, **question: str | float) -> str:
    with pytest.raises(DialInFailed) as caught:
        await asked(lane, **question)  # type: ignore[arg-type]
    lane.leave(0, "")
    return caught.value.message


async def test_a_host_that_dials_in_gets_the_place_that_waits(tmp_path: Path) -> None:
    """It learns its incarnation, options and lease; the launcher learns where it listens and what it dials with."""
    async with serving(tmp_path) as server:
        starting = server.started()
        lane = server.lane()
        place = await asked(lane)
        assert place == Assigned(
            deployment="judge@1", incarnation="1-a", options={"a": 1}, path="/models/x", lease_s=5.0
        )
        assert not starting.done()
        lane.listening("tcp://127.0.0.1:9")
        async with asyncio.timeout(GUARD_S):
            host = await starting
        assert host.address == "tcp://127.0.0.1:9"
        assert host.security.server == keys.read_public(tmp_path / "host.key")
        lane.leave(HostExit.RETIRED, "a device error")
        async with asyncio.timeout(GUARD_S):
            ended = await host.wait()
        assert ended.status == HostExit.RETIRED
        assert host.last_words() == "a device error"


async def test_two_places_go_to_two_hosts_in_order(tmp_path: Path) -> None:
    """Replicas are places like any other; a start that was given up leaves none behind."""
    async with serving(tmp_path) as server:
        first, given_up, second = server.started("1-a"), server.started("2-b"), server.started("3-c")
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        lanes = [server.lane(), server.lane()]
        assert [(await asked(lane)).incarnation for lane in lanes] == ["1-a", "3-c"]
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        for lane in lanes:
            lane.leave(0, "")


async def test_a_host_without_a_place_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason has its code and names both sides; the server's log says it, too."""
    async with serving(tmp_path) as server:
        starting = server.started()
        await asyncio.sleep(0)
        assert "(unknown_model)" in await failed(server.lane(), model="other")
        assert "(other_family): 'judge' is of the family toy" in await failed(server.lane(), family="decider")
        assert "(not_wanted)" in await failed(server.lane(), model="clerk")
        monkeypatch.setattr(dial_in.metadata, "version", lambda name: "0.0.1")
        assert "(version)" in await failed(server.lane())
        assert len([line for line in server.said if "is sent away" in line]) == 4
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def test_a_host_whose_key_is_not_on_the_list_never_gets_in(tmp_path: Path) -> None:
    """It says so at once, and where its key belongs."""
    async with serving(tmp_path) as server:
        starting = server.started()
        assert "folder `allow`" in await failed(server.lane(host="stranger"))
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


@pytest.mark.slow
async def test_a_host_never_talks_to_a_server_without_the_right_key(tmp_path: Path) -> None:
    """A server that cannot prove its key is told nothing."""
    async with serving(tmp_path) as server:
        starting = server.started()
        assert "--server-key" in await failed(server.lane(server="stranger"), timeout_s=1.0)
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


@pytest.mark.slow
async def test_a_host_that_finds_nobody_lists_the_likely_causes(tmp_path: Path) -> None:
    """Nothing there, and something there that is not framehost, are told apart."""
    async with serving(tmp_path) as server:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{closed.getsockname()[1]}"
            assert "nothing answers there" in await failed(server.lane(address=address), timeout_s=0.5)
            closed.listen()
            assert "does not speak our protocol" in await failed(server.lane(address=address), timeout_s=1.0)


async def test_a_lost_host_has_ended_for_us(tmp_path: Path) -> None:
    """`lost` ends the wait, says that it may still run, and a second end changes nothing."""
    async with serving(tmp_path) as server:
        starting = server.started()
        lane = server.lane()
        await asked(lane)
        lane.listening("tcp://127.0.0.1:9")
        host = await starting
        host.lost()
        host.kill()
        assert (await host.wait()).status == HostExit.LOST
        assert "may still be running there" in host.last_words()
        lane.leave(0, "")


async def test_a_host_that_is_given_up_is_told_so(tmp_path: Path) -> None:
    """It hears it once, from the connection or from the server; after a goodbye it hears nothing."""
    async with serving(tmp_path) as server:
        for end in ("given up", "left"):
            starting = server.started()
            lane = server.lane()
            await asked(lane)
            lane.listening("tcp://127.0.0.1:9")
            host = await starting
            told: list[str] = []
            heard = threading.Event()

            def lost(why: str, told: list[str] = told, heard: threading.Event = heard) -> None:
                told.append(why)
                heard.set()

            lane.watch(lost)
            if end == "given up":
                host.kill()
                assert await asyncio.to_thread(heard.wait, GUARD_S)
            await asyncio.to_thread(lane.leave, 0, "")
            assert told == (["the server has given this host up"] if end == "given up" else [])
            assert (await host.wait()).status == (HostExit.LOST if end == "given up" else HostExit.CLEAN)


async def test_a_host_takes_one_place_and_says_once_where_it_listens(tmp_path: Path) -> None:
    """One that asks again while it has a place leaves the other places to others, and is not moved by what it says."""
    async with serving(tmp_path) as server:
        first, second = server.started("1-a"), server.started("2-b")
        lane, other = server.lane(), server.lane()
        assert (await asked(lane)).incarnation == "1-a"
        with pytest.raises(DialInFailed, match="this host has a place already"):
            await asked(lane)
        lane.listening("tcp://127.0.0.1:9")
        host = await first
        lane.listening("tcp://127.0.0.1:10")
        assert (await asked(other)).incarnation == "2-b", "it was heard after that"
        assert host.address == "tcp://127.0.0.1:9"
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        for one in (lane, other):
            one.leave(0, "")


async def test_what_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    """A server without its key, or without anyone to let in, does not listen at all."""
    keys.create(tmp_path, "server")
    (tmp_path / "empty").mkdir()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    cases: list[Callable[[], RemoteHosts]] = [
        lambda: RemoteHosts("tcp://127.0.0.1:0", tmp_path / "no.key_secret", tmp_path, 5.0),
        lambda: RemoteHosts("tcp://127.0.0.1:0", tmp_path / "server.key_secret", tmp_path / "empty", 5.0),
    ]
    for case in cases:
        with pytest.raises(keys.KeyFileError):
            launcher_of(case(), context, [])
    context.destroy(linger=0)
