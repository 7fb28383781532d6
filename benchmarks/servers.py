"""Everything that is measured over HTTP: how it is started, and when it counts as started."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import processes, request

ROOT = Path(__file__).resolve().parents[1]
DISTINCT = Path(__file__).with_name("distinct.toml")
HOST = "127.0.0.1"
START_S = 30.0
POLL_S = 0.005


class ServerFailed(Exception):
    """A server did not start, or answered nonsense."""


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table."""

    name: str
    title: str
    command: tuple[str, ...]
    path: str = "/v1/systemone"
    busy: bool = False
    """Whether its model burns 1 ms, so that 1,000 requests a second are all there is."""
    first: bytes = request.BODY
    """What it is asked until it answers."""
    root: Path = ROOT
    """The checkout whose code it runs."""


def _floor(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"benchmarks.floor.{module}", *arguments, "--port")


def _framehost(value: str, option: str = "--model") -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("framehost")), "serve", option, value, "--port")


TARGETS = (
    Target("inline", "aiohttp, model in the handler", _floor("inline")),
    Target("floor-pipelined", "floor, pipelined", _floor("split", "--window", "0")),
    Target("floor-one", "floor, one outstanding", _floor("split", "--window", "1")),
    Target("inline-uv", "aiohttp, model in the handler, uvloop", _floor("inline", "--uvloop")),
    Target("floor-pipelined-uv", "floor, pipelined, uvloop", _floor("split", "--uvloop", "--window", "0")),
    Target("floor-one-uv", "floor, one outstanding, uvloop", _floor("split", "--uvloop", "--window", "1")),
    Target("framehost-noop", "framehost, no-op model", _framehost("toy=toy:noop")),
    Target("framehost-sparrow", "framehost, embedded model", _framehost(str(DISTINCT), "--config")),
    Target("inline-1ms", "aiohttp, model in the handler, 1 ms", _floor("inline", "--busy-ms", "1"), busy=True),
    Target(
        "floor-pipelined-1ms", "floor, pipelined, 1 ms", _floor("split", "--window", "0", "--busy-ms", "1"), busy=True
    ),
    Target(
        "floor-one-1ms", "floor, one outstanding, 1 ms", _floor("split", "--window", "1", "--busy-ms", "1"), busy=True
    ),
    Target("framehost-1ms", "framehost, 1 ms model", _framehost("toy=toy:busy=1"), busy=True),
)
"""The command of each ends with the option that takes its port."""


@dataclass(slots=True)
class Running:
    """A started server."""

    target: Target
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    start_s: float = field(default=0.0)
    """From the launch of its command to its first answer."""

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{HOST}:{self.port}{self.target.path}"

    def died(self) -> ServerFailed:
        """What its log says, as an error."""
        words = self.log.read_text(errors="replace")[-2000:]
        return ServerFailed(f"{self.target.name} does not answer (exit status {self.process.poll()}):\n{words}")


@contextmanager
def started(target: Target, directory: Path, patience_s: float = START_S) -> Iterator[Running]:
    """Run a server for as long as the block lasts. Raises `ServerFailed` when it does not answer in time."""
    port = _free_port()
    log = directory / f"{target.name}.log"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(target.root), str(target.root / "tests" / "toy"))),
        "XDG_RUNTIME_DIR": str(directory),
    }
    with log.open("wb") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [*target.command, str(port)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=processes.end_with_parent,
        )
    server = Running(target, process, port, log)
    try:
        _wait_for_answer(server, patience_s)
        server.start_s = time.perf_counter() - begin
        yield server
    finally:
        processes.stop(process)


def _wait_for_answer(server: Running, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and server.process.poll() is None:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=patience_s)
        try:
            connection.request("POST", server.target.path, server.target.first, {"Content-Type": "application/json"})
            response = connection.getresponse()
            request.check(response.status, response.read())
            return
        except ConnectionError:
            time.sleep(POLL_S)
        except ValueError as error:
            raise ServerFailed(f"{server.target.name}: {error}") from error
        finally:
            connection.close()
    raise server.died()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
