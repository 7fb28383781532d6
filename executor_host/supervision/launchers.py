"""Who starts the hosts of which deployment, and how they are dialled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import zmq

from executor_host.launch.base import Connection, HostLauncher, ProcessHandle, RemoteHosts
from executor_host.launch.local import LocalLauncher
from executor_host.supervision.console import Console
from protocol.models import DeploymentSpec
from protocol.transport import monitor
from protocol.transport.loop import dial, listen

if TYPE_CHECKING:
    from executor_host.launch.remote import RemoteLauncher

Receive = Callable[[list[bytes]], None]


class HostsUnusable(Exception):
    """Hosts cannot dial in where they should. The text says why."""


class Launchers:
    """The launchers of one server, and what they hold of the system."""

    def __init__(
        self,
        console: Console,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        hidden: Collection[str],
        share: int,
        where: RemoteHosts | None,
        dialling_in: Mapping[str, str],
        epoch: str,
    ) -> None:
        """`hidden`: variables of the environment that are not for hosts. `share`: threads of a host of
        this machine whose model does not say how many. `where` hosts dial in that others start, and
        `dialling_in`, the family of each model that has such. `epoch`: of this supervisor. Raises `HostsUnusable`."""
        self._console = console
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._epoch = epoch
        self._hidden = hidden
        self._local = LocalLauncher(console.say, hidden=hidden, share=share)
        self._remote = None if where is None else self._take_hosts(where, dialling_in)

    def _take_hosts(self, where: RemoteHosts, families: Mapping[str, str]) -> RemoteLauncher:
        from executor_host.launch.remote import RemoteLauncher  # pyzmq's authenticator is only for this
        from protocol.transport.keys import KeyFileError

        loop, context = self._loop, self._context
        try:
            return RemoteLauncher(
                where,
                context,
                self._console.say,
                families,
                lambda address, receive, security: listen(loop, context, address, receive, security=security),
            )
        except (KeyFileError, zmq.ZMQError) as error:
            raise HostsUnusable(f"hosts cannot dial in at {where.address}: {error}") from error

    def of(self, deployment: DeploymentSpec) -> HostLauncher:
        """Who starts the hosts of a deployment."""
        if not deployment.remote:
            return self._local
        assert self._remote is not None, "the configuration has a place for remote hosts when a model needs one"
        if deployment.ray is None:
            return self._remote
        from executor_host.launch.ray_hosts import RayLauncher

        return RayLauncher(self._remote, self._console.say, hidden=self._hidden)

    def dial(self, address: str, receive: Receive, process: ProcessHandle) -> Connection:
        """A control lane to a host. When the connection of a remote one is gone, its `process` is lost. Raises
        `zmq.ZMQError`."""

        def changed(event: monitor.Event) -> None:
            if event == monitor.LOST:
                process.lost()

        return dial(
            self._loop,
            self._context,
            address,
            receive,
            identity=f"supervisor-{self._epoch}",
            security=process.security,
            on_connection=None if process.security is None else changed,
        )

    def close(self) -> None:
        """Take no more hosts, when all that were started have ended."""
        self._local.close()
        if self._remote is not None:
            self._remote.close()
