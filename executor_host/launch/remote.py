"""Hosts that are started elsewhere: they dial in, are assigned a place, and are lost with their connection.

    host        DIAL_IN {model, family, version, ...} ─▶
    supervisor                                        ◀─ ASSIGNED {incarnation, options, lease}, or REFUSED {why}
    host        (binds its control lane)   LISTENING ─▶
    supervisor  dials it, as it would a local one: HELLO ─▶ WELCOME, PROGRESS ... READY
    host        LEAVING {status, words} ─▶                   when it ends by itself

There is no process handle. A host that says LEAVING has ended; one whose connection is gone is *lost*: it may
still be working where it is, but nothing that it does reaches us, and after its lease it ends itself. A host that comes
back is a newcomer with a new incarnation.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

import zmq

from executor_host.launch.base import HostLauncher, HostSpec, Listener, ProcessExit, ProcessHandle, RemoteHosts
from protocol.curve import Security
from protocol.errors import ProtocolError
from protocol.exits import HostExit
from protocol.frames import decode, encode
from protocol.messages import NOBODY, Assigned, DialIn, Lane, Leaving, Listening, Message, Refused
from protocol.transport import authentication, keys

LISTENING_TIMEOUT_S = 10.0
"""From ASSIGNED to LISTENING: the host only has to bind a socket."""


Receiver = Callable[[list[bytes]], None]


class RemoteHost(ProcessHandle):
    """One assigned host, somewhere else."""

    def __init__(self, peer: bytes, hello: DialIn, security: Security, dismiss: Callable[[RemoteHost], None]) -> None:
        """`dismiss`: tells the host that it has been given up."""
        self.peer = peer
        self.hello = hello
        self.security = security
        self._dismiss = dismiss
        self.listening = asyncio.Event()
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._words = ""

    @property
    def pid(self) -> int:
        return 0

    @property
    def ended(self) -> bool:
        """Whether it has left or is lost."""
        return self._ended.done()

    async def wait(self) -> ProcessExit:
        return await asyncio.shield(self._ended)

    def left(self, message: Leaving) -> None:
        """It said that it ends."""
        self._end(message.status, message.words)

    def lost(self) -> None:
        """Its connection is gone."""
        self._end(HostExit.LOST, f"the connection to {self.describe()} is gone; it may still be running there")

    def _end(self, status: int, words: str) -> None:
        if not self._ended.done():
            self._words = words
            self._ended.set_result(ProcessExit(status, None))

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing: who started it can signal it."""

    def kill(self) -> None:
        """Give it up. It is told so, and whether it ends then is beyond us."""
        if not self.ended:
            self._dismiss(self)
        self._end(HostExit.LOST, f"{self.describe()} was given up; it may still be running there")

    def last_words(self) -> str:
        return self._words

    def describe(self) -> str:
        where = f" at {self.address}" if self.address else ""
        return f"remote process {self.hello.pid} on {self.hello.machine}{where}"


@dataclass(frozen=True, slots=True)
class _Place:
    """One incarnation that waits for its host."""

    spec: HostSpec
    public_key: bytes | None
    assigned: asyncio.Future[RemoteHost]


class RemoteLauncher(HostLauncher):
    """Waits for hosts to dial in. `start` returns when one has, and waits as long as none does."""

    def __init__(
        self,
        where: RemoteHosts,
        context: zmq.Context[zmq.Socket[bytes]],
        say: Callable[[str, str], None],
        models: Mapping[str, str],
        listen: Callable[[str, Receiver, Security], Listener],
    ) -> None:
        """`models`: the family of each model whose hosts dial in. `listen(address, receive, security)` binds a ROUTER
        of `context` in the running loop. Raises `KeyFileError`, and what `listen` raises."""
        self.own = keys.read_pair(where.key)
        self._lease_s = where.lease_s
        self._say = say
        self._models = models
        self._version = metadata.version("framehost")
        self._waiting: list[_Place] = []
        self._hosts: dict[bytes, RemoteHost] = {}
        self._allowed = keys.Allowed(() if where.allow is None else keys.read_allowed(where.allow))
        self._authenticator = authentication.in_loop(context, self._allowed)
        self._socket = listen(where.address, self._heard, Security(self.own, where.lease_s))

    @property
    def address(self) -> str:
        """Where hosts dial in, with the port that the system chose."""
        return self._socket.address

    async def start(self, spec: HostSpec, public_key: bytes | None = None) -> RemoteHost:
        """`public_key`: of the one host that may have this place; None: any on the list. Raises `OSError` when a host
        dialled in and then did not answer."""
        place = _Place(spec, public_key, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        if public_key is None:
            self._say(spec.deployment.name, f"waiting for a host to dial in at {self.address}")
        else:
            self._allowed.keys.add(public_key)
        try:
            host = await place.assigned
        finally:
            self._waiting.remove(place)
            if public_key is not None:
                self._allowed.keys.discard(public_key)
        try:
            async with asyncio.timeout(LISTENING_TIMEOUT_S):
                await host.listening.wait()
        except TimeoutError:
            host.kill()
            raise OSError(f"{host.describe()} was assigned and did not answer") from None
        return host

    def _dismiss(self, host: RemoteHost) -> None:
        if self._hosts.pop(host.peer, None) is not None:
            self._tell(host.peer, Refused(code="given_up", message="the server has given this host up"))

    def close(self) -> None:
        """Take no more hosts. Those that are there notice it."""
        self._socket.close()
        self._authenticator.stop()

    def _heard(self, frames: list[bytes]) -> None:
        peer, *rest = frames
        host = self._hosts.get(peer)
        try:
            message = decode(rest, lane=Lane.ARRIVAL).message
        except ProtocolError as error:
            self._say("framehost", f"a host that dials in says something else than it should: {error}")
            return
        if isinstance(message, DialIn):
            self._dialled(peer, message)
        elif host is None:
            return
        elif isinstance(message, Listening):
            if not host.listening.is_set():  # said again, it would move a host that is dialled
                host.address = message.control
                host.listening.set()
        elif isinstance(message, Leaving):
            self._say(host.hello.model, f"{host.describe()} leaves: {message.words}")
            host.left(message)
            del self._hosts[peer]

    def _dialled(self, peer: bytes, hello: DialIn) -> None:
        refusal = self._refusal(hello)
        if (before := self._hosts.get(peer)) is not None and not before.ended:
            refusal = Refused(code="not_wanted", message="this host has a place already")
        if refusal is not None:
            self._say("framehost", f"a host on {hello.machine} is sent away: {refusal.message}")
            self._tell(peer, refusal)
            return
        place = self._place_for(hello)
        assert place is not None
        spec = place.spec
        security = Security(self.own, self._lease_s, server=hello.public_key.encode())
        host = RemoteHost(peer, hello, security, self._dismiss)
        self._hosts[peer] = host
        self._tell(
            peer,
            Assigned(
                deployment=spec.deployment.id,
                incarnation=spec.incarnation,
                options=dict(spec.deployment.options),
                path=spec.deployment.path,
                lease_s=self._lease_s,
            ),
        )
        place.assigned.set_result(host)

    def _refusal(self, hello: DialIn) -> Refused | None:
        if hello.version != self._version:
            return Refused(
                code="version", message=f"this server is framehost {self._version}, the host is {hello.version}"
            )
        family = self._models.get(hello.model)
        if family is None:
            known = ", ".join(sorted(self._models)) or "none"
            return Refused(
                code="unknown_model", message=f"no model {hello.model!r} waits for hosts here; those that do: {known}"
            )
        if family != hello.family:
            return Refused(
                code="other_family", message=f"{hello.model!r} is of the family {family}, the host is {hello.family}"
            )
        if self._place_for(hello) is None:
            return Refused(code="not_wanted", message=f"{hello.model!r} has all the hosts it is configured for")
        return None

    def _place_for(self, hello: DialIn) -> _Place | None:
        """The one that was made for this host, else the one that has waited longest for any."""
        places = [p for p in self._waiting if p.spec.deployment.name == hello.model and not p.assigned.done()]
        for key in (hello.public_key.encode(), None):
            for place in places:
                if place.public_key == key:
                    return place
        return None

    def _tell(self, peer: bytes, message: Message) -> None:
        try:
            self._socket.send([peer, *encode(message, incarnation=NOBODY)])
        except zmq.ZMQError as error:
            self._say("framehost", f"a host that dialled in cannot be told {type(message).__name__}: {error}")
