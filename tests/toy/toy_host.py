"""The toy family in the host: echo, wait, spin, hold the interpreter lock, crash, abort, leak, lie.

A state {"op": NAME, ...} selects what to do. Every op with "mark" appends its "tag" and the pid to that file
first, which is the proof that the unit was started. With "seen", `wait` appends its tag to that file when it
sees that it was cancelled, which is the proof that the cancel arrived; it goes on waiting all the same.

    wait        until the file "until" exists            (lets the lock go: the control thread answers)
    spin        the same without ever sleeping
    heed        until it is cancelled or its time is over, and then gives up
    hold_gil    one C call of "seconds" that keeps the interpreter lock; any signal ends it early
    backtrack   one C call that keeps the interpreter lock for years, whatever signals come
    exit        os._exit("status")          abort     os.abort() after printing "words"
    null        reads address 0
    raise       an ordinary exception       fatal     a device error       refuse    bad input
    deaf        waits, and has other plans for every signal that can be caught
    wedge       from now on the control thread hangs at its next message; "closed" is touched at a clean end
    leak        keeps "bytes" bytes
    lie         "huge": above the wire's limits, "deep": too deep for it, "unpackable": of no type it has,
                "foreign": not of this family, "nothing": no outputs at all, "nan": not finite
    child       leaves a background process behind that holds stdout, and returns its pid

As the model PATH: "noop" answers without reading the payload; "busy=MS" burns MS milliseconds of CPU.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toy_family import OPTIONS

from executor_host.errors import Abandoned, ConfigurationError, FatalExecutionError, InputRefused, NonFinite
from executor_host.executors.base import Call, Executor, Progress
from executor_host.host.control import ControlLane
from protocol.payloads import TextRequest

POLL_S = 0.001


class ToyExecutor(Executor):
    OPTIONS = OPTIONS

    def __init__(self, path: str | None, options: Mapping[str, object]) -> None:
        super().__init__(path, options)
        self._calls = 0
        self._closed: Path | None = None
        self._kept: list[bytes] = []
        self._threads: set[str] = set()
        self._busy_s = float(path.removeprefix("busy=")) / 1000 if path and path.startswith("busy=") else 0.0

    def load(self, progress: Progress) -> Mapping[str, object]:
        self._threads.add(threading.current_thread().name)
        progress(0.5, "half of the toy")
        gate = self.options["gate"]
        if gate:
            _wait_for(Path(gate))
        fail = self.options["fail"]
        if fail == "configuration":
            raise ConfigurationError("the toy's checkpoint is not a checkpoint")
        if fail == "load":
            raise RuntimeError("the toy cannot be loaded")
        if fail == "exit":
            print("last words of a toy that exits while it loads", flush=True)
            os._exit(3)
        if fail.startswith("until:") and not Path(fail.removeprefix("until:")).exists():
            raise RuntimeError("the toy cannot be loaded yet")
        if fail == "facts":
            return {"identity": "toy", "numbers": 2**64}
        if fail.startswith("second:"):
            try:
                Path(fail.removeprefix("second:")).touch(exist_ok=False)
            except FileExistsError as error:
                raise RuntimeError("the toy is loaded once already") from error
        identity = self.options["identity"].replace("{pid}", str(os.getpid()))
        return {"identity": identity, "name": "toy", "dtype": "none", "parameters": 0}

    def warm_up(self) -> None:
        self._threads.add(threading.current_thread().name)
        if self.options["fail"] == "warm_up":
            raise RuntimeError("the toy's first decision failed")

    def close(self) -> None:
        if self._closed is not None:
            self._closed.touch()
        if self.options["fail"] == "close":
            raise RuntimeError("the toy cannot be closed")
        if self.options["fail"] == "hanging close":
            threading.Event().wait()

    def execute(self, payload: object, call: Call) -> dict[str, Any]:
        self._calls += 1
        if self.path == "noop":
            return {"pid": 0}
        if self._busy_s:
            end = time.thread_time() + self._busy_s
            while time.thread_time() < end:
                pass
            return {"pid": 0}
        assert isinstance(payload, TextRequest)
        state = json.loads(payload.document)
        if not isinstance(state, dict):
            state = {"op": "echo"}
        if "mark" in state:
            _append(state["mark"], f"{state.get('tag', '')} {os.getpid()}")
        return self._do(state, call)

    def _do(self, state: dict[str, Any], call: Call) -> dict[str, Any]:
        op = state.get("op", "echo")
        answer: dict[str, Any] = {"pid": os.getpid(), "calls": self._calls, "tag": state.get("tag", "")}
        # The answer says in which threads the model was loaded, warmed up and asked.
        answer["threads"] = sorted({*self._threads, threading.current_thread().name})
        if op == "deaf":
            for number in {*signal.Signals} - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
        if op in ("wait", "deaf"):
            seen = False
            while not Path(state["until"]).exists():
                if "seen" in state and not seen and call.cancelled:
                    seen = True
                    _append(state["seen"], f"{state.get('tag', '')} {os.getpid()}")
                time.sleep(POLL_S)
            answer["cancelled"] = call.cancelled
        elif op == "spin":
            while not Path(state["until"]).exists():
                pass
        elif op == "heed":
            while not call.cancelled and call.remaining_ms != 0:
                pass
            raise Abandoned("the toy gives up")
        elif op == "hold_gil":
            # PyDLL keeps the lock during the call; usleep takes microseconds.
            ctypes.PyDLL(None).usleep(int(state["seconds"] * 1_000_000))
        elif op == "backtrack":
            re.match("(a+)+$", "a" * 100 + "b")
        elif op == "wedge":
            ControlLane._receive = lambda lane: time.sleep(1000)  # type: ignore[method-assign]
            self._closed = Path(state["closed"])
        elif op == "exit":
            os._exit(state.get("status", 1))
        elif op == "abort":
            print(state.get("words", "the toy aborts"), file=sys.stderr, flush=True)
            os.abort()
        elif op == "null":
            ctypes.string_at(0)
        elif op == "raise":
            raise RuntimeError("a secret of our insides")
        elif op == "fatal":
            raise FatalExecutionError("the toy device is on fire")
        elif op == "refuse":
            raise InputRefused(400, "max_tokens_exceeded", ("state",), "the toy's tokenizer counted too much")
        elif op == "leak":
            self._kept.append(bytes(state["bytes"]))
        elif op == "lie":
            return _lie(state["how"])
        elif op == "child":
            child = subprocess.Popen(["sleep", "1000"])
            answer["child"] = child.pid
        return answer


def _lie(how: str) -> dict[str, Any]:
    if how == "huge":
        return {"numbers": 2**64}
    if how == "deep":
        nested: dict[str, Any] = {"pid": 0}
        for _ in range(2_000):
            nested = {"pid": nested}
        return nested
    if how == "unpackable":
        return {"pid": object()}
    if how == "nothing":
        return None  # type: ignore[return-value]
    if how == "foreign":
        return {"something": "else"}
    raise NonFinite("the toy's numbers are not numbers")


def _append(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(POLL_S)
