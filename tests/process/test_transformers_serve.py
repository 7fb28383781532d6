"""The transformers family served end to end, and its answers beside those of `transformers serve`.

All three kinds of checkpoint, tiny ones with random weights.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, POLL_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the transformers family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", {"n": 1}, "much"]},
    "spam": {"type": "noul", "instructions": "Spam?", "criteria": {"true": "unsolicited", "false": "a real request"}},
}
STATE: dict[str, Any] = {"text": "charged twice for one order " * 12, "items": [1, 2, 10**25]}
START_GUARD_S = 100.0
"""For what imports torch and much of transformers: 5 s of processor time, which a busy machine shares."""

pytestmark = pytest.mark.timeout(2 * START_GUARD_S + GUARD_S)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from tests.helpers import tiny_transformers as tiny

    root = tmp_path_factory.mktemp("transformers")
    return {
        "chat": tiny.write_chat(root / "chat"),
        "labels": tiny.write_labels(root / "labels"),
        "head": tiny.write_head(root / "head"),
    }


def until(fact: Callable[[], bool], process: subprocess.Popen[bytes], log: Callable[[], str]) -> None:
    """Wait for something that a starting process does."""
    end = time.monotonic() + START_GUARD_S
    while not fact():
        assert process.poll() is None, log()
        assert time.monotonic() < end, log()
        time.sleep(POLL_S)


def answers(port: int) -> bool:
    try:
        return post(port, None, "/health")[0] == 200
    except OSError:
        return False


@contextmanager
def serving(*folders: Path) -> Iterator[Framehost]:
    """A framehost with a model for each folder, named as it, on the CPU and on one thread each."""
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            "".join(
                f"[models.{folder.name}]\nfamily = 'transformers'\npath = {json.dumps(str(folder))}\n"
                f"[models.{folder.name}.options]\ndevice = 'cpu'\nmax_tokens = 1000\n"
                for folder in folders
            )
        )
        with running(directory, config=config, environment={"OMP_NUM_THREADS": "1"}, wait=False) as started:
            until(lambda: any("serving" in line for line in started.lines), started.process, started.log)
            yield started.opened()


@pytest.fixture(scope="module")
def chat(folders: dict[str, Path]) -> Iterator[Framehost]:
    """The chat model, served."""
    with serving(folders["chat"]) as started:
        yield started


@contextmanager
def transformers_serve(folder: Path, log: Path) -> Iterator[int]:
    """The port of a `transformers serve` that has loaded `folder`, on the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        until(lambda: answers(port), process, log.read_text)
        yield port
    finally:
        process.kill()
        process.wait()


def post(port: int, body: dict[str, Any] | None, path: str = "/v1/systemone") -> tuple[int, Any]:
    """Status and document; GET without a body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        method = "GET" if body is None else "POST"
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def check_answers(server: Framehost, name: str) -> None:
    answer = server.post({"model": name, "state": STATE, "questions": QUESTIONS})
    assert answer.status == 200, answer
    assert answer.json["model"] == name
    assert list(answer.json["answers"]) == list(QUESTIONS)
    assert [one["type"] for one in answer.json["answers"].values()] == ["choice", "noul", "score", "noul"]
    assert sum(answer.json["answers"]["harm"]["probabilities"].values()) == pytest.approx(1.0, abs=1e-12)
    again = server.post({"model": name, "state": STATE, "questions": QUESTIONS})
    assert again.body == answer.body


def test_a_chat_model_is_served(chat: Framehost) -> None:
    """Answers to every type of question, in request order, and the same ones again."""
    check_answers(chat, "chat")


def test_the_other_kinds_are_served(folders: dict[str, Path]) -> None:
    """A checkpoint with a decision config and one with a decision head, in one server."""
    with serving(folders["labels"], folders["head"]) as server:
        check_answers(server, "labels")
        check_answers(server, "head")


def test_what_is_refused(chat: Framehost) -> None:
    """Found in the host, answered with its status, and the next request is served by the same host."""
    pid = chat.host("chat")["pid"]
    wide = {"q": {"type": "choice", "criteria": {f"o{index}": None for index in range(27)}}}
    answer = chat.post({"model": "chat", "state": "s", "questions": wide})
    (fault,) = answer.json["detail"]
    assert answer.status == 422
    assert "at most 26" in fault["msg"]
    long = {"model": "chat", "state": "word " * 2000, "questions": {"q": QUESTIONS["refund"]}}
    answer = chat.post(long)
    assert (answer.status, answer.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    assert "the limit is 1000" in answer.json["detail"]["message"]
    assert chat.post({"model": "chat", "state": "s", "questions": QUESTIONS}).status == 200
    assert chat.host("chat")["pid"] == pid


def test_the_same_decisions_as_transformers_serve(chat: Framehost, folders: dict[str, Path], tmp_path: Path) -> None:
    """A chat model over HTTP on both sides: the same answers within 1e-4, and the same usage."""
    for package in ("fastapi", "uvicorn", "openai"):
        pytest.importorskip(package, reason="transformers serve needs transformers[serving]")
    states: list[Any] = [{**STATE, "items": [1, 2]}, "Charged twice. <|im_end|> A. 😀", ["a", {"role": "user"}]]
    with transformers_serve(folders["chat"], tmp_path / "log") as port:
        for state in states:
            body = {"state": state, "questions": QUESTIONS}
            status, theirs = post(port, body)
            assert status == 200, theirs
            ours = chat.post({"model": "chat", **body}).json
            assert ours["usage"] == theirs["usage"]
            for name, answer in ours["answers"].items():
                expected = theirs["answers"][name]
                assert answer.keys() == expected.keys()
                for field in ("noul", "score", "confidence", "probabilities"):
                    if field in answer:
                        assert answer[field] == pytest.approx(expected[field], abs=1e-4)
