"""`framehost host`: an executor host that something else than the supervisor starts, on this or another machine.

It dials in at the server, is told what it is, and from then on is the same host as a local one, but for its
sockets: they are tcp, secured with CURVE, and admit the server alone. It ends when it is asked to, when it
fails, and when it and its server have lost each other; starting it again is up to its own service manager.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from executor_host.errors import ConfigurationError, DialInFailed
from executor_host.executors.base import Executor
from executor_host.host.dial_in import ServerLane
from executor_host.host.shared_state import SharedState
from executor_host.main import Host, Place
from protocol import families
from protocol.curve import KeyPair, Security
from protocol.exits import HostExit
from protocol.tensors import Blob
from protocol.transport import authentication, keys


def run(arguments: argparse.Namespace) -> int:
    """Be a host until it ends, and end the process with a `HostExit`."""
    status = _command(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    # No interpreter teardown: device libraries are known to crash there, after the work is done and answered.
    os._exit(status)


def _command(arguments: argparse.Namespace) -> HostExit:
    try:
        own = keys.read_pair(Path(arguments.key))
        server = keys.read_public(Path(arguments.server_key))
        ports = _ports(arguments.ports)
    except (ConfigurationError, keys.KeyFileError) as error:
        return _cannot(HostExit.CONFIGURATION, str(error))
    return serve(
        arguments.connect,
        own,
        server,
        model=arguments.model,
        family_name=arguments.family,
        path=arguments.path,
        bind=arguments.bind,
        ports=ports,
        timeout_s=arguments.connect_timeout,
    )


def serve(
    connect: str,
    own: KeyPair,
    server: bytes,
    *,
    model: str,
    family_name: str,
    path: str | None = None,
    bind: str | None = None,
    ports: tuple[int, int] = (0, 0),
    timeout_s: float,
) -> HostExit:
    """Dial in at `connect`, load, and serve until it is over. On the process's main thread: it takes the signals."""
    try:
        family = families.find(family_name)
        address = bind or _address_towards(connect)
    except (ConfigurationError, families.UnknownFamily) as error:
        return _cannot(HostExit.CONFIGURATION, str(error))
    lane = ServerLane(connect, own, server)
    try:
        assigned = lane.ask(model, family.name, timeout_s=timeout_s)
    except DialInFailed as error:
        return _cannot(HostExit.REFUSED, error.message)
    print(f"framehost: this host is {assigned.deployment} {assigned.incarnation}", file=sys.stderr, flush=True)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    shared_state = SharedState(assigned.incarnation)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shared_state.request_drain())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    # No peer but the server may connect, whichever other has a key that it would let in.
    authenticator = authentication.in_thread(context, keys.Allowed([server]))
    try:
        path = path or assigned.path
        executor: Executor = families.resolve(family.executor)(path, assigned.options)
        place = Place(
            control=f"tcp://{address}:{ports[0]}",
            data=f"tcp://{address}:{ports[1]}",
            security=Security(own, assigned.lease_s),
            assets=read_assets(path, family.front_files),
        )
        host = Host(family, executor, shared_state, context, place)
    except (ConfigurationError, zmq.ZMQError) as error:
        lane.leave(HostExit.CONFIGURATION, f"cannot start: {error}")
        return _cannot(HostExit.CONFIGURATION, str(error))
    lane.listening(host.control)
    lane.watch(lambda why: _lost(shared_state, assigned.lease_s, why))
    status = host.run()
    authenticator.stop()
    context.destroy(linger=None)
    lane.leave(status, host.trouble or f"{status.name.lower().replace('_', ' ')}; its log is where it ran")
    return status


def _cannot(status: HostExit, why: str) -> HostExit:
    print(f"framehost: {why}", file=sys.stderr, flush=True)
    return status


def read_assets(path: str | None, names: Sequence[str]) -> dict[str, Blob]:
    """What the front needs of the checkpoint folder at `path`: those of `names` that are there.

    Raises `ConfigurationError` for one that cannot be read.
    """
    assets = {}
    for name in names if path is not None else ():
        file = Path(path or "", name)
        try:
            if file.is_file():
                assets[name] = Blob(file.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from error
    return assets


def _lost(shared_state: SharedState, lease_s: float, why: str) -> None:
    """Finish the running unit, whose answer is lost, and end; at the latest after a lease."""
    print(f"framehost: {why}; ending", file=sys.stderr, flush=True)
    shared_state.request_drain()
    last = threading.Timer(lease_s, lambda: os._exit(HostExit.LOST))
    last.daemon = True
    last.start()


def _address_towards(server: str) -> str:
    """The address of this machine that reaches the server: the one it can be expected to reach us at."""
    parts = urlsplit(server)
    if parts.scheme != "tcp" or not parts.hostname or not parts.port:
        raise ConfigurationError(f"--connect {server}: expected tcp://ADDRESS:PORT")
    try:
        with socket.socket(socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname, parts.port))  # sends nothing
            address: str = probe.getsockname()[0]
    except OSError as error:
        raise ConfigurationError(f"--connect {server}: no way there: {error.strerror}") from error
    return f"[{address}]" if ":" in address else address


def _ports(text: str) -> tuple[int, int]:
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) <= 65535 for part in parts):
        raise ConfigurationError(f"--ports {text}: expected two ports 0..65535, as 7101,7102")
    return int(parts[0]), int(parts[1])
