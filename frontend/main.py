"""The frontend process: one event loop, one HTTP port, one management lane, one link per host.

    python -m frontend.main --management ADDRESS --epoch ID --listen FD [--native JSON] [--admin FD] [--limits JSON]

The listening sockets are the supervisor's and come as inherited descriptors: a front that replaces a dead
one finds the connections that arrived in between in their backlogs. It starts listening when the supervisor
says that every resident model has finished its warm-up. `--native` maps names of models to the descriptors of
their native listeners.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
import zmq
from aiohttp import web

from frontend import limits
from frontend.configuration import keys
from frontend.configuration.keys import KeyRing
from frontend.http import admin, app, native, routes
from frontend.http.connection import ClientConnection
from frontend.limits import ServerLimits
from frontend.observation.audit import AuditLog
from frontend.serving import clients
from frontend.serving.management import Management, until_idle
from frontend.serving.server import Server
from protocol.curve import Security
from protocol.exits import HostExit
from protocol.transport.keys import read_pair

if TYPE_CHECKING:
    from frontend.observation.tracing import Tracing

GRACE_S = 0.25
"""After the last request has ended, the time its response has to leave the process."""

TRACING_FLUSH_S = 1.0
"""At the end, the time the last spans have to leave. A collector that is away must not hold up a stop."""

log = logging.getLogger("framehost.front")


class Front:
    """The life of one frontend process."""

    def __init__(self, arguments: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._server = Server(
            loop,
            ServerLimits(**arguments.limits),
            keys=_keys(arguments.keys),
            origins=tuple(arguments.origins),
            allowed_hosts=tuple(arguments.allowed_hosts),
        )
        self._runners: list[web.AppRunner] = []
        self._listeners: list[asyncio.Server] = []
        self._socket = socket.socket(fileno=arguments.listen)
        self._natives = {name: socket.socket(fileno=number) for name, number in arguments.native.items()}
        self._admin = None if arguments.admin is None else socket.socket(fileno=arguments.admin)
        self._stop: asyncio.Future[float] = loop.create_future()
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._management = Management(
            self._server,
            self._zmq,
            arguments.management,
            arguments.epoch,
            on_open=lambda: self._spawn(self._open()),
            on_drain=self._drain,
            on_failure=self._fail,
            secure=_secure(arguments.curve, arguments.lease),
        )
        self._server.ask_supervisor = self._management.ask
        self._server.carry_out = self._management.order
        self._server.metrics.watch_lag()
        self._server.clients.watch(loop)
        if self._server.keys is not None:
            self._server.keys.watch(loop)
        if arguments.audit is not None:
            self._server.audit = AuditLog(arguments.audit)
        if arguments.tracing:
            from frontend.observation.tracing import Tracing  # of the extra `otel`

            self._server.tracing = Tracing.over_otlp()
        self._tasks: set[asyncio.Task[None]] = set()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End loudly: the supervisor starts another front, and gives up when that does not help."""
        if not self._stop.done():
            self._stop.set_exception(error)

    async def _open(self) -> None:
        await self._server.hosts_greeted()
        if self._stop.done():
            return
        for name, listener in self._natives.items():
            made = native.build(self._server, name, loopback=_loopback(listener))
            await self._listen(made, listener, native.protocol_error(self._server, name))
        if self._admin is not None:
            await self._listen(admin.build(self._server), self._admin, routes.protocol_error)
        await self._listen(
            app.build(self._server, loopback=_loopback(self._socket)), self._socket, routes.protocol_error
        )
        self._management.serving(str(self._socket.getsockname()))

    async def _listen(
        self,
        application: web.Application,
        listener: socket.socket,
        render: Callable[[web.BaseRequest, int, str], web.Response],
    ) -> None:
        runner = web.AppRunner(
            application,
            handler_cancellation=True,  # a client that leaves cancels its handler; never the library's default
            shutdown_timeout=GRACE_S,
        )
        self._runners.append(runner)
        await runner.setup()
        server = runner.server
        assert server is not None
        # Not a Site of the library: it would make the library's own connections, with its error bodies.
        self._listeners.append(
            await self._loop.create_server(
                lambda: ClientConnection(server, render, self._server.clients),
                sock=listener,
                backlog=limits.LISTEN_BACKLOG,
            )
        )

    def _drain(self, budget_s: float) -> None:
        self._server.begin_stop()
        if not self._stop.done():
            self._stop.set_result(budget_s)

    async def _flush(self, tracing: Tracing) -> None:
        try:
            async with asyncio.timeout(TRACING_FLUSH_S):
                await self._loop.run_in_executor(None, tracing.close)
        except TimeoutError:
            log.warning("the last spans were not sent within %g s", TRACING_FLUSH_S)

    async def run(self) -> int:
        """Serve until asked to stop; then finish what is open within the budget. Returns a `HostExit`."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, lambda: self._drain(limits.REQUEST_TIMEOUT_S))
        budget_s = await self._stop
        drained = await until_idle(self._server, budget_s)
        goodbye = "drained"
        if not drained:
            still, unread = self._server.requests.statistics().open, self._server.clients.unwritten()
            left = f"{still} request{'' if still == 1 else 's'} still open"
            left += f", the answers of {unread} not read" if unread else ""
            goodbye = f"{left} after the drain budget of {budget_s:g} s"
            log.warning("%s", goodbye)
        for deployment in (*self._server.deployments.values(), *self._server.others.values()):
            deployment.close()
        if not drained:
            # What was in a queue or a host has just ended with 503: let these answers leave.
            await until_idle(self._server, GRACE_S)
        for listener in self._listeners:
            listener.close()
        for runner in self._runners:
            await runner.cleanup()
        self._server.metrics.close()
        self._server.clients.close()
        if self._server.tracing is not None:
            await self._flush(self._server.tracing)
        if self._server.audit is not None:
            await self._loop.run_in_executor(None, self._server.audit.close)
        for pool in (self._server.parser, self._server.pool):
            pool.shutdown(wait=False, cancel_futures=True)
        self._management.close(goodbye)
        self._zmq.destroy(linger=None)
        return HostExit.CLEAN if drained else 1


def _keys(file: Path | None) -> KeyRing | None:
    others = keys.from_environment()
    return KeyRing(file, others) if file is not None or others else None


def _loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def _secure(file: Path | None, lease_s: float) -> Callable[[str], Security | None]:
    """How a host with a public key is dialled: with the key that the supervisor has, too."""
    if file is None:
        return lambda public_key: None
    own = read_pair(file)
    return lambda public_key: Security(own, lease_s, server=public_key.encode()) if public_key else None


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="frontend", description="The HTTP frontend; started by the supervisor.")
    parser.add_argument("--management", required=True)
    parser.add_argument("--epoch", required=True)
    parser.add_argument("--listen", type=int, required=True, help="descriptor of the bound socket")
    parser.add_argument("--native", type=json.loads, default={}, help="descriptors of native listeners, by model")
    parser.add_argument("--admin", type=int, default=None, help="descriptor of the bound socket for operators")
    parser.add_argument("--limits", type=json.loads, default={})
    parser.add_argument("--tracing", action="store_true", help="OpenTelemetry spans")
    parser.add_argument("--audit", type=Path, default=None, help="the file of the audit log")
    parser.add_argument("--keys", type=Path, default=None, help="the file with API keys")
    parser.add_argument("--origins", type=json.loads, default=[], help="web pages whose scripts may read the answers")
    parser.add_argument("--allowed-hosts", type=json.loads, default=[], help="further names of this server")
    parser.add_argument("--curve", type=Path, default=None, help="the secret key file for hosts on other machines")
    parser.add_argument("--lease", type=float, default=0.0, help="seconds after which a silent host is gone")
    parser.add_argument("--access-log", action="store_true", help="one line for every request")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run a frontend until it ends; returns its exit status."""
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("framehost.access").setLevel(logging.INFO if arguments.access_log else logging.WARNING)

    # A text is tokenized by the thread that asks: one on the loop would wait for the library's own threads behind the
    # large texts of others.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    clients.raise_open_files()
    sys.setswitchinterval(limits.SWITCH_INTERVAL_S)

    async def serve() -> int:
        return await Front(arguments, asyncio.get_running_loop()).run()

    # The loop is a third of what a small request costs; this one halves that (docs/benchmarks.md).
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve())


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
