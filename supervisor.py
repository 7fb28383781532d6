"""The supervisor: starts the front and the hosts, watches them by their process handles, restarts, stops.

It is the only one that spawns, signals and mints incarnations, and it survives the death of any of them.
When a process dies, it tells the front (HOST_DOWN) or gives the port to a new front; when it dies itself, the guards
in the children end them.

Here is the entry: the command line is parsed, a server is built of its parts, and run. The parts are in
executor_host/supervision, where `server.py` has the start and the stop; the configuration is in
frontend/configuration, the commands are in frontend/cli.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from executor_host import inspection
from executor_host.errors import ConfigurationError as HostConfigurationError
from executor_host.launch import threads
from executor_host.launch.aside import aside
from executor_host.launch.base import RemoteHosts
from executor_host.supervision import stop_signals, systemd
from executor_host.supervision.build import LAST_LINES_S, Settings, build
from executor_host.supervision.directory import ANOTHER_PORT, DirectoryError
from executor_host.supervision.launchers import HostsUnusable
from executor_host.supervision.listeners import HttpListener, Listeners, PortUnusable, open_health
from executor_host.supervision.log_writer import LogWriter
from executor_host.supervision.orders import Invalid
from executor_host.supervision.residency import Bounds
from frontend.cli.serve import configured, hint
from frontend.cli.terminal import visible
from frontend.configuration import keys
from frontend.configuration.difference import difference
from frontend.configuration.endpoints import Endpoint
from frontend.configuration.model import Configuration, exposed
from frontend.configuration.successor import successor
from frontend.configuration.toml_file import ConfigurationError
from protocol.exits import ServeExit
from protocol.models import DeploymentSpec, NamedModel

SETTINGS_LIMIT_S = 10.0
"""How long a look at what an order names may take. A folder on a hung file system would take for ever."""

STDERR = 2


# From the configuration


def _settings(configuration: Configuration, models: _Models, processors: int) -> Settings:
    hosts = configuration.hosts
    local = sum(model.replicas + model.spare for model in configuration.models if not model.remote)
    return Settings(
        share=threads.share(local, os.environ, processors),
        models=models.first(),
        default=configuration.default,
        limits=dataclasses.asdict(configuration.limits),
        opens_with_first=configuration.opens_with == "first",
        kept_bytes=configuration.kept_bytes,
        session_idle_s=configuration.session_idle_s,
        bounds=Bounds(configuration.max_resident, configuration.max_resident_bytes, configuration.turn_s),
        restarts=configuration.restarts,
        front_limit_s=configuration.front_limit_s,
        drain_s=configuration.drain_s,
        front_arguments=[
            *(["--access-log"] if configuration.access_log else []),
            *(["--tracing"] if configuration.tracing else []),
            *(["--audit", str(configuration.audit)] if configuration.audit else []),
            *(["--keys", str(configuration.keys)] if configuration.keys else []),
            "--origins", json.dumps(configuration.cors),
            "--allowed-hosts", json.dumps(configuration.allowed_hosts),
            *(["--curve", str(hosts.key), "--lease", str(hosts.lease_s)] if hosts else []),
        ],
        hidden={keys.ENVIRONMENT},
        hosts=None if hosts is None else RemoteHosts(f"tcp://{hosts.listen}", hosts.key, hosts.allow, hosts.lease_s),
    )  # fmt: skip


class _Models:
    """What each name is configured to be now."""

    def __init__(self, configuration: Configuration, read: Callable[[], Configuration] | None = None) -> None:
        """`read`: reads the configuration file again; None where there is none."""
        self._configuration, self._read = configuration, read
        self._models = {model.name: model for model in configuration.models}
        self._before: dict[str, NamedModel] = {}
        """What each name meant before its last swap."""
        self._timeout_s = configuration.limits.request_timeout_s
        self._numbers = itertools.count(1)

    def first(self) -> list[tuple[DeploymentSpec, bool]]:
        """The first deployment of each name, and whether its hosts are started with the server."""
        return [(self._spec(model), model.resident) for model in self._models.values()]

    async def successor(self, name: str, settings: Mapping[str, Any]) -> tuple[DeploymentSpec, Callable[[], None]]:
        """What `settings` make of `name`, and what is to be called when the name means it. Raises `Invalid`."""
        model = self._models[name]
        if settings.get("back"):
            if name not in self._before:
                raise Invalid(f"{name} has not been swapped: there is nothing to go back to")
            return self._spec(self._before[name]), self._accepting(self._before[name])
        try:
            other = await aside(lambda: successor(model, settings, self._timeout_s), limit_s=SETTINGS_LIMIT_S)
        except ConfigurationError as error:
            raise Invalid(str(error)) from error
        except TimeoutError as error:
            raise Invalid(f"what it names could not be looked at within {SETTINGS_LIMIT_S:g} s") from error
        return self._spec(other), self._accepting(other)

    async def reload(self) -> _Reloading:
        """What the file says now. Raises `Invalid` when it is wrong, and nothing has changed."""
        if self._read is None:
            raise Invalid("the server was started without a configuration file: there is none to read again")
        try:
            after = await aside(self._read, limit_s=SETTINGS_LIMIT_S)
        except ConfigurationError as error:
            raise Invalid(str(error)) from error
        except TimeoutError as error:
            raise Invalid(f"the file, or what it names, could not be read within {SETTINGS_LIMIT_S:g} s") from error
        found = difference(self._configuration, self._models, after)
        return _Reloading(
            steps=found.steps,
            later=found.later,
            kept_bytes=found.kept_bytes,
            session_idle_s=found.session_idle_s,
            successors=lambda: [(self._spec(model), self._accepting(model)) for model in found.models],
            accept=lambda: self._took(after),
        )

    def _took(self, after: Configuration) -> None:
        """What holds at once is as the file has it. The rest stays named until a start."""
        self._configuration = dataclasses.replace(
            self._configuration, kept_bytes=after.kept_bytes, session_idle_s=after.session_idle_s
        )

    def _accepting(self, model: NamedModel) -> Callable[[], None]:
        def accept() -> None:
            self._before[model.name] = self._models[model.name]
            self._models[model.name] = model

        return accept

    def _spec(self, model: NamedModel) -> DeploymentSpec:
        return DeploymentSpec(id=f"{model.name}@{next(self._numbers)}", **structs.asdict(model))


@dataclasses.dataclass(frozen=True, slots=True)
class _Reloading:
    """As `executor_host.supervision.orders.Reloading`."""

    steps: Sequence[str]
    later: Sequence[str]
    kept_bytes: Mapping[str, int] | None
    session_idle_s: float | None
    successors: Callable[[], Sequence[tuple[DeploymentSpec, Callable[[], None]]]]
    accept: Callable[[], None]


# Running


def _serve(arguments: argparse.Namespace) -> int:
    stop_signals.OURS.install()
    try:
        return _served(arguments)
    finally:
        stop_signals.OURS.ignore()


def _served(arguments: argparse.Namespace) -> int:
    try:
        configuration = configured(arguments)
    except ConfigurationError as error:
        print(f"framehost: {visible(str(error))}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    if not arguments.insecure and (problem := exposed(configuration)) is not None:
        print(f"framehost: {visible(problem)}", file=sys.stderr)
        return ServeExit.CONFIGURATION
    if (better := hint(arguments)) is not None:
        print(f"framehost: {better}", file=sys.stderr)
    with contextlib.ExitStack() as opened:
        try:
            listeners = _open(configuration, opened)
        except PortUnusable as error:
            print(f"framehost: {visible(str(error))}", file=sys.stderr)
            return error.status

        log = LogWriter(STDERR)
        # What the loop and the sockets have to say goes the same way, or it would wait for the reader after all.
        logging.basicConfig(stream=log, format="[framehost] %(levelname)s %(name)s: %(message)s")

        processors = threads.processors()

        async def run() -> ServeExit:
            models = _Models(configuration, None if arguments.config is None else lambda: configured(arguments))
            settings = _settings(configuration, models, processors)
            manager = systemd.of_this_process()
            return await build(settings, listeners, log, models.successor, models.reload, manager).run()

        try:
            return asyncio.run(run())
        except (DirectoryError, HostsUnusable) as error:  # the disk is full; the keys of [hosts] cannot be read
            print(f"framehost: {error}", file=sys.stderr)
            return ServeExit.CONFIGURATION
        finally:
            log.close(LAST_LINES_S)


def _open(configuration: Configuration, opened: contextlib.ExitStack) -> Listeners:
    """All ports of a configuration, which `opened` closes. Raises `PortUnusable`."""

    def opened_at(endpoint: Endpoint, remedy: str) -> HttpListener:
        return opened.enter_context(contextlib.closing(HttpListener.open(endpoint.host, endpoint.port, remedy)))

    health = configuration.health
    return Listeners(
        main=opened_at(Endpoint(configuration.host, configuration.port), ANOTHER_PORT),
        natives={
            name: opened_at(place, f"choose another port with listen in [models.{name}.native]")
            for name, place in configuration.natives.items()
        },
        admin=None
        if configuration.admin is None
        else opened_at(configuration.admin, "choose another port with admin in [server]"),
        health=None if health is None else opened.enter_context(open_health(health.host, health.port)),
    )


# The command line


def _detect(path: Path) -> str:
    """The family of a checkpoint. Raises `ValueError` for one that does not tell."""
    try:
        return inspection.detect(path)
    except HostConfigurationError as error:
        raise ValueError(str(error)) from error


def parser() -> argparse.ArgumentParser:
    """The `framehost` command line."""
    from executor_host.launch import commands as launching
    from frontend.cli import batch, check, completion, decide, fetch, models, orders, serve, status
    from frontend.cli.evaluation import command as evaluation

    top = argparse.ArgumentParser(prog="framehost", description="A server for decision models.")
    # It is answered before this module is imported; here for the help, and for the completion of the shells.
    top.add_argument("--version", action="store_true", help="show framehost's version number and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve.add_to(commands, _serve, _detect)
    decide.add_to(commands)
    batch.add_to(commands)
    evaluation.add_to(commands)
    status.add_to(commands)
    orders.add_to(commands)
    check.add_to(commands, inspection.examine, inspection.key_problem)
    launching.add_to(commands)
    fetch.add_to(commands)
    models.add_to(commands, _detect)
    completion.add_to(commands, top)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run the `framehost` command; returns its exit status."""
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    return int(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
