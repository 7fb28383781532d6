"""Clients of every kind, each with its own seeded choices: patient, hurried, vanishing, slow, wrong."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTION = {"q": {"type": "choice", "criteria": {"yes": "it is so", "no": "it is not"}}}

ANSWER_S = 60.0
"""A client that has waited longer than any deadline of the server's has been forgotten, which is what we look for."""

KINDS = {"plain": 60, "hurried": 10, "leaves": 12, "slow": 6, "breaks off": 4, "wrong": 8}
"""Of a hundred requests."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request and how it ended: a status, "left" (by the client's own choice), "closed" or "forgotten"."""

    tag: str
    model: str
    kind: str
    began: float
    ended: float
    outcome: int | str
    error_type: str = ""
    message: str = ""
    retry_after: str = ""


class Crowd:
    """Clients in threads; `models` with how often of a hundred requests they are asked. `records` grows until `stop`;
    times are of the monotonic clock."""

    def __init__(
        self, port: int, models: Mapping[str, int], mark: Path, *, clients: int, seed: int, twins: bool = False
    ) -> None:
        """`twins`: every fourth request is asked twice at the same time."""
        self._port = port
        self._twins = twins
        self._models = models
        self._mark = mark
        self._over = threading.Event()
        self.records: list[Record] = []
        self._threads = [
            threading.Thread(target=self._live, args=(number, random.Random(seed * 1000 + number)), daemon=True)
            for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No new requests; returns when the last one has ended, and raises when a client is stuck."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)
            assert not thread.is_alive(), "a client never got an end of its request"

    def counts(self) -> Counter[str]:
        """How the requests ended so far."""
        return Counter(str(record.outcome) for record in self.records)

    def _live(self, number: int, choose: random.Random) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            (kind,) = choose.choices(list(KINDS), list(KINDS.values()))
            (model,) = choose.choices(list(self._models), list(self._models.values()))
            tag = f"{number}-{count}"
            if self._twins and kind != "wrong" and choose.random() < 0.25:
                body = self._body(tag, model, kind, choose)
                other = threading.Thread(
                    target=lambda tag=tag, model=model, body=body: self.records.append(
                        self._ask(tag, model, "plain", random.Random(0), body)
                    )
                )
                other.start()
                self.records.append(self._ask(tag, model, kind, choose, body))
                other.join()
            else:
                self.records.append(self._ask(tag, model, kind, choose))
            self._over.wait(choose.expovariate(1 / 0.05))

    def _ask(self, tag: str, model: str, kind: str, choose: random.Random, body_bytes: bytes | None = None) -> Record:
        began = time.monotonic()
        headers = {"x-framehost-timeout-ms": str(choose.randint(20, 400))} if kind == "hurried" else {}
        sent = request(body_bytes or self._body(tag, model, kind, choose), headers)
        try:
            with socket.create_connection(("127.0.0.1", self._port), ANSWER_S) as connection:
                if kind in ("slow", "breaks off"):
                    half = len(sent) - 20
                    connection.sendall(sent[:half])
                    self._over.wait(choose.uniform(0.01, 0.3))
                    if kind == "breaks off":
                        return Record(tag, model, kind, began, time.monotonic(), "left")
                    connection.sendall(sent[half:])
                else:
                    connection.sendall(sent)
                if kind == "leaves":
                    self._over.wait(choose.uniform(0, 0.05))
                    return Record(tag, model, kind, began, time.monotonic(), "left")
                head, _, body = received(connection).partition(b"\r\n\r\n")
        except TimeoutError:
            return Record(tag, model, kind, began, time.monotonic(), "forgotten")
        except OSError:
            head = b""
        if not head:
            return Record(tag, model, kind, began, time.monotonic(), "closed")
        lines = head.decode("latin-1").split("\r\n")
        detail = json.loads(body).get("detail", {})
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        told = detail if isinstance(detail, dict) else {}
        return Record(
            tag,
            model,
            kind,
            began,
            time.monotonic(),
            int(lines[0].split()[1]),
            told.get("error_type", ""),
            told.get("message", ""),
            fields.get("retry-after", ""),
        )

    def _body(self, tag: str, model: str, kind: str, choose: random.Random) -> bytes:
        if kind == "wrong":
            return choose.choice([b"{", b"[]", b'{"model":"' + model.encode() + b'","state":1,"questions":{}}'])
        state: Any = {"op": "echo", "tag": tag, "mark": str(self._mark)}
        if choose.random() < 0.3:
            state |= {"op": "hold_gil", "seconds": round(choose.uniform(0.001, 0.03), 4)}
        return json.dumps({"model": model, "state": state, "questions": QUESTION}).encode()


def request(body: bytes, headers: dict[str, str]) -> bytes:
    """One request on a connection that ends with it."""
    lines = ["POST /v1/systemone HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    data = b""
    while chunk := connection.recv(65536):
        data += chunk
    return data
