"""A whole framehost as real processes, for tests: started, asked, killed, and waited for by its facts.

Nothing here sleeps to let things happen. What is awaited is a line of the log, a file, an exit or an answer,
each under one generous guard; a guard that fires fails the test with the server's log.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from frontend.cli import status as status_command
from frontend.cli.control_client import connected
from protocol.messages import Message, Order, Outcome

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "toy"
GUARD_S = 60.0
"""How long a fact may take before the test fails. A busy machine needs half of it to import torch."""
POLL_S = 0.005

QUESTION = {"q": {"type": "choice", "criteria": {"yes": "it is so", "no": "it is not"}}}


class Answer:
    """One HTTP response, or the way the connection ended."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.at = time.monotonic()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<Answer {self.status} {self.body[:300]!r}>"


def wait_for(fact: Callable[[], Any], what: str, log: Callable[[], str] = lambda: "") -> Any:
    """The first true value of `fact()`; fails with the log when there is none within the guard."""
    end = time.monotonic() + GUARD_S
    while time.monotonic() < end:
        value = fact()
        if value:
            return value
        time.sleep(POLL_S)
    raise AssertionError(f"never happened: {what}\n{log()}")


def alive(process: psutil.Process) -> bool:
    """Whether it still runs. A zombie does not: its parent is gone, and init reaps it when it likes."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Framehost:
    """One running `framehost serve`. Use `running(...)`."""

    def __init__(self, arguments: list[str], runtime: Path, environment: dict[str, str] | None = None) -> None:
        self.runtime = runtime
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(runtime),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(TOY), os.environ.get("PYTHONPATH")))),
            # A warning in any of the processes is an error there, as it is in the test's own.
            "PYTHONWARNINGS": "error",
            # Several servers share the cores of a test machine, and threads of torch that wait for each other spin.
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "executor_host.supervision.entry", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._arrived = threading.Condition()
        self._awake = threading.Event()
        self._awake.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._clients = ThreadPoolExecutor(64)
        self._connections: list[socket.socket] = []
        self._commands: list[subprocess.Popen[str]] = []
        self.url = ""

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._awake.wait()
            with self._arrived:
                self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    def read_no_more(self) -> None:
        """Leave the log in its pipe, as a pager does that nobody scrolls."""
        self._awake.clear()

    def read_on(self) -> None:
        """Read the log again."""
        self._awake.set()

    # Facts

    def log(self) -> str:
        return "\n".join(self.lines)

    def line(self, *parts: str, after: int = 0) -> str:
        """The first log line from index `after` on that contains all `parts`."""
        end = time.monotonic() + GUARD_S
        with self._arrived:
            while True:
                for line in self.lines[after:]:
                    if all(part in line for part in parts):
                        return line
                left = end - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no line with {parts}\n{self.log()}")
                self._arrived.wait(min(left, 0.2))

    def opened(self) -> Framehost:
        """Wait until the port is open."""
        line = self.line("serving", " at http://")
        self.url = line.split(" at ")[1].split()[0]
        return self

    def status(self) -> dict[str, Any]:
        """What `framehost status` knows."""
        with self._our_runtime_directory():
            return status_command.ask(self.port)

    def order(self, action: str, model: str, **settings: Any) -> Outcome:
        """An operator's order to its end, without the command in between."""
        with self._our_runtime_directory(), connected(self.port) as supervisor:
            supervisor.say(Order(action=action, model=model, settings=settings))
            while not isinstance(message := supervisor.hear(patient=True), Outcome):
                pass
            return message

    def first_answer(self, action: str, model: str) -> Message:
        """What an order without settings is answered first; nobody hears the rest."""
        with self._our_runtime_directory(), connected(self.port) as supervisor:
            supervisor.say(Order(action=action, model=model, settings={}))
            return supervisor.hear()

    @contextmanager
    def _our_runtime_directory(self) -> Iterator[None]:
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        try:
            yield
        finally:
            if before is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = before

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def host(self, model: str | None = None) -> dict[str, Any]:
        """The supervisor's report of one model's host."""
        hosts = self.status()["hosts"]
        return next(host for host in hosts if model is None or host["model"] == model)

    def model(self, name: str | None = None) -> dict[str, Any]:
        """The front's report of one model."""
        front = self.wait(lambda: self.status()["front"], "the front answers")
        models: dict[str, dict[str, Any]] = front["models"]
        return models[name or next(iter(models))]

    def front_pid(self) -> int:
        return int(self.status()["front_process"]["pid"])

    def wait(self, fact: Callable[[], Any], what: str) -> Any:
        return wait_for(fact, what, self.log)

    def idle(self) -> bool:
        """No permit, no open request, nothing queued, nothing at the host."""
        front = self.status()["front"]
        return (
            bool(front)
            and front["requests"]["open"] == 0
            and front["ingress"]["outstanding"] == 0
            and all(
                model["scheduler"]["waiting"] == model["scheduler"]["running"] == 0
                and all(layer["outstanding"] == layer["held"] == 0 for layer in model["admissions"])
                and (model["link"] is None or model["link"]["outstanding"] == 0)
                for model in front["models"].values()
            )
        )

    def queued(self, number: int, model: str | None = None) -> None:
        """Wait until exactly `number` units wait for the permit of the model."""
        self.wait(lambda: self.model(model)["scheduler"]["waiting"] == number, f"{number} queued")

    def running(self, model: str | None = None) -> None:
        """Wait until a unit is in the host's hands."""
        self.wait(lambda: self.model(model)["scheduler"]["running"] == 1, "a unit runs")

    def family(self) -> list[psutil.Process]:
        """The supervisor and everything below it."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    # Asking

    def get(self, path: str) -> Answer:
        return self._http("GET", path, None, {})

    def post(self, body: bytes | dict[str, Any], path: str = "/v1/systemone", **headers: str) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._http("POST", path, raw, {key.replace("_", "-"): value for key, value in headers.items()})

    def decide(self, state: Any, *, model: str | None = None, **headers: str) -> Answer:
        body: dict[str, Any] = {"state": state, "questions": QUESTION}
        if model is not None:
            body["model"] = model
        return self.post(body, **headers)

    def soon(self, state: Any, **options: Any) -> Future[Answer]:
        """`decide` in a thread."""
        return self._clients.submit(self.decide, state, **options)

    def open_request(self, state: Any, *, model: str | None = None) -> socket.socket:
        """A request whose answer has not been read: close it to leave."""
        document = {"state": state, "questions": QUESTION}
        return self.open_post(document if model is None else {**document, "model": model})

    def open_post(self, document: Any, path: str = "/v1/systemone", *fields: str) -> socket.socket:
        """A request to any path, with more header fields, whose answer has not been read."""
        body = json.dumps(document).encode()
        head = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *fields)
        return self.connect("\r\n".join((*head, f"Content-Length: {len(body)}", "", "")).encode() + body)

    def connect(self, sent: bytes = b"") -> socket.socket:
        """A connection to the port on which `sent` was sent. Closed with the server if not before."""
        connection = socket.create_connection(("127.0.0.1", self.port), GUARD_S)
        self._connections.append(connection)
        connection.sendall(sent)
        return connection

    def _http(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            content = response.read()
            return Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, content)
        finally:
            connection.close()

    # Operating

    def command(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """A `framehost` command to this server, running: its output is read with `communicate`."""
        command = subprocess.Popen(
            [sys.executable, "-m", "executor_host.supervision.entry", name, "--port", str(self.port), *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._commands.append(command)
        return command

    def swap(self, model: str, *arguments: str) -> tuple[int, str]:
        """`framehost swap` to its end: exit status, and what it printed."""
        with self.command("swap", model, *arguments) as process:
            out, err = process.communicate(timeout=GUARD_S)
        return process.returncode, out + err

    # Ending

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GUARD_S)

    def wait_exit(self) -> int:
        """The exit status, once it has ended by itself and its log has been read."""
        status = self.process.wait(GUARD_S)
        self._reader.join(GUARD_S)
        return status

    def close(self) -> None:
        """Kill what still runs. Whatever the test was about, no process of ours may be left after it."""
        for connection in self._connections:
            connection.close()
        for command in self._commands:
            command.kill()
            with command:  # closes its pipes and waits
                pass
        self.read_on()
        everyone: list[psutil.Process] = []
        if self.process.poll() is None:
            everyone = self.family()
            self.process.kill()
        self.process.wait(GUARD_S)
        wait_for(lambda: not any(map(alive, everyone)), f"the end of all of {everyone}", self.log)
        self._reader.join(GUARD_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._clients.shutdown(wait=True, cancel_futures=True)


def configuration(path: Path, models: dict[str, dict[str, Any]], **server: Any) -> Path:
    """A TOML file at `path`: models by name, each a family and the options of it; `server` are server keys."""
    lines = ["[server]", *(f"{key} = {json.dumps(value)}" for key, value in server.items())]
    for name, fields in models.items():
        bounds = ("max_requests", "max_cost", "execution_limit", "load_limit")
        own = ("path", *bounds, "resident", "pin", "keep_alive", "replicas", "spare")
        options = {key: value for key, value in fields.items() if key not in ("family", *own)}
        lines += [f"[models.{name}]", f"family = {json.dumps(fields.get('family', 'toy'))}"]
        lines += [f"{key} = {json.dumps(fields[key])}" for key in own if key in fields]
        lines += [f"[models.{name}.options]", *(f"{key} = {json.dumps(str(value))}" for key, value in options.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def running(
    runtime: Path,
    *models: str,
    config: Path | None = None,
    environment: dict[str, str] | None = None,
    wait: bool = True,
    arguments: Sequence[str] = (),
) -> Iterator[Framehost]:
    """A framehost on a free port with the given --model options (default: one toy called "toy"), or a config.

    `arguments` are added to the command line and win over it.
    """
    command = ["serve", "--port", "0"]
    if config is not None:
        command += ["--config", str(config)]
    else:
        for model in models or ("toy=toy",):
            command += ["--model", model]
    server = Framehost([*command, *arguments], runtime, environment)
    try:
        yield server.opened() if wait else server
    finally:
        server.close()


def tagged(mark: Path) -> list[str]:
    """The tags of the units that were started, in order."""
    return [line.split()[0] for line in mark.read_text().splitlines()] if mark.exists() else []


def streamed(answer: Answer) -> list[tuple[str, Any]]:
    """The events of a streamed decision that has ended, each with its data."""
    assert answer.headers["content-type"] == "text/event-stream", answer
    lines = [block.split("\n") for block in answer.body.decode().split("\n\n")[:-1]]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def received(connection: socket.socket) -> bytes:
    """Everything the server sends until it closes; b"" when it closed or reset without a word."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


__all__ = [
    "QUESTION",
    "Answer",
    "Framehost",
    "alive",
    "configuration",
    "received",
    "running",
    "streamed",
    "tagged",
    "wait_for",
]
