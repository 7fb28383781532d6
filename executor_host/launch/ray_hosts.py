"""Hosts that Ray places: one actor per host, whose main thread is the host; requests go past Ray, over ZeroMQ.

    supervisor ── starts ──▶ driver (a local process) ── Ray ──▶ actor, somewhere in the cluster: dials in

The driver is what the supervisor holds: it owns the actor, which dies with it, and its output is the host's. Every host
gets keys of its own, made for it and forgotten with it, so there are no key files for a cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Collection

import msgspec

from executor_host.launch import threads
from executor_host.launch.base import HostLauncher, HostSpec, ProcessExit, ProcessHandle
from executor_host.launch.local import LocalProcess, start_process
from executor_host.launch.remote import RemoteHost, RemoteLauncher
from protocol.transport import keys


class RayHost(ProcessHandle):
    """An actor that dialled in, and the driver that owns it. The first of them to end ends the host."""

    def __init__(self, host: RemoteHost, driver: LocalProcess) -> None:
        self.address = host.address
        self.security = host.security
        self._host = host
        self._driver = driver

    @property
    def pid(self) -> int:
        """The driver's."""
        return self._driver.pid

    async def wait(self) -> ProcessExit:
        ends = [asyncio.ensure_future(self._host.wait()), asyncio.ensure_future(self._driver.wait())]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        # The host's own word first: a driver only knows that its actor is gone.
        ended = ends[0].result() if ends[0] in done else ends[1].result()
        self._driver.kill()
        await self._driver.wait()
        return ended

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing: a signal to the driver would end the actor."""

    def lost(self) -> None:
        self._host.lost()

    def kill(self) -> None:
        self._host.kill()
        self._driver.kill()

    def last_words(self) -> str:
        return "\n".join(filter(None, (self._driver.last_words(), self._host.last_words())))

    def describe(self) -> str:
        return f"Ray actor, {self._host.describe()}, driver {self._driver.pid}"


class RayLauncher(HostLauncher):
    """Starts a driver per host and waits until its actor has dialled in."""

    def __init__(self, remote: RemoteLauncher, say: Callable[[str, str], None], hidden: Collection[str] = ()) -> None:
        """`hidden`: variables of the environment that are not for the driver, nor for the processes that Ray makes."""
        self._remote = remote
        self._say = say
        self._hidden = hidden

    async def start(self, spec: HostSpec) -> ProcessHandle:
        """Raises `OSError` when the driver ends before its actor has dialled in. Cancelled: the driver is ended."""
        own = keys.pair()
        order = {
            # How many threads is Ray's to say where the model does not: its actors get as many as their num_cpus.
            "variables": threads.variables(spec.deployment.threads, None, os.environ),
            "ray": msgspec.to_builtins(spec.deployment.ray),
            "connect": self._remote.address,
            "model": spec.deployment.name,
            "family": spec.deployment.family,
            "public": own.public.decode(),
            "secret": own.secret.decode(),
            "server": self._remote.own.public.decode(),
        }
        source = f"{spec.deployment.id} {spec.incarnation}"
        descriptor = os.memfd_create("framehost-ray")
        try:
            os.write(descriptor, json.dumps(order).encode())
            os.lseek(descriptor, 0, os.SEEK_SET)
            driver = await start_process(
                "executor_host.launch.ray_driver",
                [str(descriptor)],
                say=lambda line: self._say(source, line),
                descriptors=[descriptor],
                hidden=self._hidden,
            )
        finally:
            os.close(descriptor)
        dialled = asyncio.ensure_future(self._remote.start(spec, own.public))
        ended = asyncio.ensure_future(driver.wait())
        try:
            await asyncio.wait([dialled, ended], return_when=asyncio.FIRST_COMPLETED)
            if not dialled.done():
                raise OSError(f"the Ray driver ended before its host had dialled in: {ended.result().describe()}")
            return RayHost(dialled.result(), driver)
        except BaseException:
            driver.kill()
            raise
        finally:
            dialled.cancel()
            ended.cancel()
