"""What is done to the server, by a schedule that a seed decides: who, what, when."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.chaos.clients import QUESTION, request
from tests.process.harness import GUARD_S, Framehost

HOLD_S = 0.4
"""How long a host is kept busy before it is killed."""

PAUSE_S = (0.4, 2.0)
"""Between two faults."""


@dataclass(frozen=True, slots=True)
class Injected:
    """One fault, from when to when it was going on, and whose hosts it was done to; "" for the front."""

    what: str
    model: str
    began: float
    ended: float


class Saboteur:
    """Injects one fault after the other. `injected` has them all."""

    def __init__(self, server: Framehost, models: list[str], *, seed: int, family: str = "toy") -> None:
        """`family`: of the models, also after a swap."""
        self._server = server
        self._family = family
        self._models = models
        self._choose = random.Random(seed)
        self._over = threading.Event()
        self.injected: list[Injected] = []
        self._open: list[socket.socket] = []
        """Requests of its own, which nobody reads."""
        self.faults: dict[str, Callable[[str], None]] = {
            "kill -9 a host": self._kill_host,
            "crash in a unit": lambda model: self._unit(model, self._crash()),
            "device error": lambda model: self._unit(model, {"op": "fatal"}),
            "hang beyond the execution limit": lambda model: self._unit(model, {"op": "spin", "until": "/nonexistent"}),
            "stop a host for a moment": self._stop_host,
            "swap start-first": lambda model: self._swap(model, "start-first"),
            "swap stop-first": lambda model: self._swap(model, "stop-first"),
            "unload a model": self._unload,
            "kill -9 the front": self._kill_front,
            "burst of 200 requests": self._burst,
        }

    def run(self, seconds: float) -> None:
        """Go on for so long. The first round has each fault once, whatever the seed."""
        end = time.monotonic() + seconds
        first = self._choose.sample(list(self.faults), len(self.faults))
        while time.monotonic() < end:
            what = first.pop() if first else self._choose.choice(list(self.faults))
            model = "" if what == "kill -9 the front" else self._choose.choice(self._models)
            began = time.monotonic()
            self.faults[what](model)
            self.injected.append(Injected(what, model, began, time.monotonic()))
            self._over.wait(self._choose.uniform(*PAUSE_S))
        for connection in self._open:
            connection.close()

    def _pid(self, model: str) -> int:
        hosts = [host for host in self._server.status()["hosts"] if host["model"] == model and host["pid"]]
        return int(self._choose.choice(hosts)["pid"]) if hosts else 0

    def _signal(self, pid: int, number: signal.Signals) -> None:
        try:
            if pid:
                os.kill(pid, number)
        except ProcessLookupError:
            pass

    def _kill_host(self, model: str) -> None:
        self._hold(model)
        self._signal(self._pid(model), signal.SIGKILL)

    def _stop_host(self, model: str) -> None:
        pid = self._pid(model)
        self._signal(pid, signal.SIGSTOP)
        self._over.wait(0.3)
        self._signal(pid, signal.SIGCONT)

    def _kill_front(self, model: str) -> None:
        self._signal(self._server.front_pid(), signal.SIGKILL)
        self._server.wait(lambda: self._server.status()["front"], "a new front")

    def _swap(self, model: str, mode: str) -> None:
        self._command("swap", f"{model}={self._family}", "--mode", mode)

    def _unload(self, model: str) -> None:
        self._command("unload", model)

    def _command(self, *arguments: str) -> None:
        process = self._server.command(*arguments)
        out, err = process.communicate(timeout=2 * GUARD_S)
        # What it wants may be impossible at that moment, and then it says so; it must not hang and not crash.
        assert process.returncode in (0, 1), out + err

    def _hold(self, model: str) -> None:
        """Occupy the host for a moment, so that there is a queue when it dies."""
        self._open.append(self._send(model, {"op": "hold_gil", "seconds": HOLD_S}))
        self._over.wait(HOLD_S / 2)

    def _unit(self, model: str, state: dict[str, Any]) -> None:
        self._hold(model)
        self._open.append(self._send(model, state))

    def _crash(self) -> dict[str, Any]:
        # Another one each time: a request that ends two hosts is refused.
        return {"op": self._choose.choice(["exit", "abort", "null"]), "tag": str(self._choose.random())}

    def _burst(self, model: str) -> None:
        connections = [self._send(model, {"op": "echo"}) for _ in range(200)]
        for connection in connections:
            connection.close()

    def _send(self, model: str, state: dict[str, Any]) -> socket.socket:
        """A request of the saboteur's own, which does not wait to be answered."""
        body = json.dumps({"model": model, "state": state, "questions": QUESTION}).encode()
        connection = socket.create_connection(("127.0.0.1", self._server.port), GUARD_S)
        connection.sendall(request(body, {}))
        return connection
