"""A Decider checkpoint served end to end: the System One dialect on the main port, its own on the native listener.

The checkpoint is a tiny one with random weights. A host that is stopped (SIGSTOP) is one that takes its time.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, ROOT, Answer, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the decider family needs framehost[torch]")

CHOICE = {"instructions": "Which team?", "criteria": {"billing": "a charge", "login": None, "sales": "prices"}}
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", **CHOICE},
    "refund": {"type": "noul", "instructions": "Does the customer want a refund?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["0: none", "1: some", "2: much"]},
}
BODY = {"state": {"text": "charged twice", "items": list(range(9))}, "questions": QUESTIONS}
SMALL = {"state": "x", "questions": {"q": CHOICE}}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.helpers import tiny_decider

    return tiny_decider.write(tmp_path_factory.mktemp("serve") / "tiny")


def written(
    directory: Path, checkpoint: Path, *, listen: str = "127.0.0.1:0", server: str = "", model: str = ""
) -> Path:
    """A configuration with the model "d" and its native listener."""
    file = directory / "c.toml"
    file.write_text(
        f"[server]\n{server}\n[models.d]\nfamily = 'decider'\npath = {json.dumps(str(checkpoint))}\n{model}\n"
        f"[models.d.options]\ndevice = 'cpu'\n[models.d.native]\nlisten = '{listen}'\n"
    )
    return file


@contextmanager
def served(directory: Path, checkpoint: Path, **settings: str) -> Iterator[Framehost]:
    with running(directory, config=written(directory, checkpoint, **settings)) as server:
        yield server


@pytest.fixture(scope="module")
def server(checkpoint: Path) -> Iterator[Framehost]:
    """One that nothing is done to but asking."""
    with short_directory() as directory, served(directory, checkpoint) as made:
        yield made


def native_port(server: Framehost) -> int:
    return int(server.line("own dialect at http://").rpartition(":")[2])


def native(
    server: Framehost, body: bytes | dict[str, Any] | None, path: str = "/v1/systemone", **headers: str
) -> Answer:
    """An answer of the native listener: POST with a body, GET without one."""
    connection = http.client.HTTPConnection("127.0.0.1", native_port(server), timeout=GUARD_S)
    try:
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        fields = {"Content-Type": "application/json", **{key.replace("_", "-"): v for key, v in headers.items()}}
        connection.request("GET" if raw is None else "POST", path, raw, fields)
        response = connection.getresponse()
        content = response.read()
        return Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, content)
    finally:
        connection.close()


@contextmanager
def stopped_host(server: Framehost) -> Iterator[psutil.Process]:
    """The host's process, which does not move inside the block."""
    host = psutil.Process(int(server.host()["pid"]))
    host.send_signal(signal.SIGSTOP)
    try:
        yield host
    finally:
        if host.is_running():
            host.send_signal(signal.SIGCONT)


def test_both_dialects_answer_the_same_request(server: Framehost) -> None:
    """One host, one checkpoint: equal up to the native rounding, each in its own shape."""
    main, own = server.post(BODY), native(server, BODY)
    assert (main.status, own.status) == (200, 200), (main, own)
    exact, rounded = main.json, own.json
    assert exact["model"] == "d"
    assert rounded["model"] == "decider-2b-v11"
    assert list(rounded) == ["model", "answers", "usage"]
    assert exact["usage"] == rounded["usage"]
    assert rounded["usage"]["input_tokens"] > 0
    assert list(exact["answers"]) == list(rounded["answers"]) == list(QUESTIONS)
    for name, answer in exact["answers"].items():
        mine = rounded["answers"][name]
        for option, value in answer.get("probabilities", {}).items():
            assert mine["probabilities"][option] == pytest.approx(value, abs=6e-5)
        if "probabilities" in answer:
            assert math.fsum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-12)
    assert rounded["answers"]["refund"]["noul"] == pytest.approx(exact["answers"]["refund"]["noul"], abs=6e-5)
    assert rounded["answers"]["team"]["choice"] == exact["answers"]["team"]["choice"]
    assert set(rounded["answers"]["harm"]) == {
        "type", "score", "confidence", "x_p_max", "certainty", "legend", "probabilities", "level_fit", "fit_mass",
    }  # fmt: skip
    assert rounded["answers"]["harm"]["legend"] == {"0": "0: none", "1": "1: some", "2": "2: much"}
    assert own.headers["content-type"] == "application/json"


def test_twelve_at_once_are_the_same_bytes(server: Framehost) -> None:
    """Nothing of one request reaches another."""
    with ThreadPoolExecutor(12) as clients:
        answers = [asked.result() for asked in [clients.submit(native, server, BODY) for _ in range(12)]]
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1


def test_what_only_the_own_dialect_takes(server: Framehost) -> None:
    """Numbers as states, second names, lists of options, no questions at all; any model name."""
    questions = {"a": {"question": "Which?", "options": ["u", "v"]}, "b": {"type": "bool", "criteria": {"true": "y"}}}
    answer = native(server, {"model": "whatever", "state": 7, "questions": questions, "unknown": 1})
    assert answer.status == 200, answer
    assert [entry["type"] for entry in answer.json["answers"].values()] == ["choice", "noul"]
    empty = native(server, {"state": None, "questions": {}})
    assert empty.json == {
        "model": "decider-2b-v11",
        "answers": {},
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    assert server.post({"state": 7, "questions": questions}).status == 422


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{invalid", "invalid JSON"),
    "a key twice": (b'{"state":1,"state":2,"questions":{}}', 'duplicate JSON key "state"'),
    "no state": (b'{"questions":{}}', "missing state"),
    "no questions": (b'{"state":1}', "missing questions"),
    "one option": (
        b'{"state":1,"questions":{"q":{"instructions":"i","criteria":["a"]}}}',
        "Choice requires 2..255 options",
    ),
    "a switch": (b'{"state":1,"questions":{},"independent":false}', "unsupported independent: expected true"),
    "an image": (b'{"state":1,"questions":{"q":{"type":"image"}}}', 'unknown question type "image"'),
    "too many rows": (
        json.dumps({"state": "x", "questions": {str(i): QUESTIONS["harm"] for i in range(342)}}).encode(),
        "request exceeds expanded row budget",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_body_is_422_in_the_original_words(server: Framehost, case: str) -> None:
    body, expected = BAD[case]
    answer = native(server, body)
    assert answer.status == 422
    assert list(answer.json) == ["detail"]
    assert answer.json["detail"].startswith(expected)


def test_the_transport_refuses_before_the_dialect(server: Framehost) -> None:
    """415 and 413 with the one field; another route has no other shape."""
    assert native(server, b"{invalid", Content_Type="text/plain").status == 415
    large = native(server, b"x" * (8 * 1024 * 1024 + 1))
    assert (large.status, list(large.json)) == (413, ["detail"])
    assert native(server, None, "/v1/models").status == 404


def test_the_main_port_says_what_is_wrong_for_this_family(server: Framehost) -> None:
    """The System One grammar, then the family's limits, in the System One shape."""
    single = {"type": "choice", "instructions": "i", "criteria": {"only": None}}
    answer = server.post({"state": "x", "questions": {"q": single}})
    assert answer.status == 422
    assert answer.json["detail"][0]["loc"] == ["body", "questions", "q", "criteria"]
    long = server.post({"state": "word " * 40_000, "questions": {"q": {"type": "choice", **CHOICE}}})
    assert (long.status, long.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    assert server.post({"model": "other", **BODY}).status == 400


def test_health_tells_the_original_fields(server: Framehost) -> None:
    """Every field of the original, the temperatures as they are written in the checkpoint, counts that grow."""
    answer = native(server, None, "/health")
    assert answer.status == 200
    found = answer.json
    assert list(found) == [
        "status", "model", "checkpoint_revision", "reference_revision", "dtype", "execution", "temperatures",
        "batch_limits", "prefix_mode", "prefix", "graph",
    ]  # fmt: skip
    assert (found["status"], found["model"], found["dtype"]) == ("ready", "decider-2b-v11", "float32")
    assert found["temperatures"] == {"choice": 1.164, "noul": 1.624, "score": 1.124}
    assert found["batch_limits"] == {"rows": 4, "tokens": 4096}
    assert (found["execution"], found["prefix_mode"]) == ("auto", "auto")
    assert found["graph"]["enabled"] is False
    native(server, BODY)
    before = native(server, None, "/health").json["prefix"]["auto_independent_requests"]
    native(server, BODY)
    assert native(server, None, "/health").json["prefix"]["auto_independent_requests"] == before + 1


def test_a_full_model_is_503_and_a_bad_body_is_422_meanwhile(runtime: Path, checkpoint: Path) -> None:
    """One slot for both listeners: taken on either, refused on both, each in its own words; free again afterwards."""
    with served(runtime, checkpoint, model="max_requests = 1") as server:
        with stopped_host(server), ThreadPoolExecutor(1) as client:
            first = client.submit(native, server, SMALL)
            server.running()
            refused = native(server, SMALL)
            assert (refused.status, refused.json) == (503, {"detail": "native execution capacity exhausted"})
            assert 1 <= int(refused.headers["retry-after"]) <= 5
            assert native(server, b'{"state":1}').status == 422
            assert server.post(BODY).status == 429
            psutil.Process(int(server.host()["pid"])).send_signal(signal.SIGCONT)
            assert first.result(GUARD_S).status == 200
        server.wait(server.idle, "idle")
        assert native(server, SMALL).status == 200
        assert server.stop() == 0


def test_a_request_above_the_whole_token_budget_is_422(runtime: Path, checkpoint: Path) -> None:
    """What never fits is not told to come back; what fits while another one runs is."""
    with served(runtime, checkpoint, model="max_cost = 60") as server:
        never = native(server, BODY)
        assert (never.status, list(never.json)) == (422, ["detail"])
        assert "retry-after" not in never.headers
        assert server.post(BODY).status == 413
        assert native(server, SMALL).status == 200
        with stopped_host(server), ThreadPoolExecutor(1) as client:
            first = client.submit(native, server, SMALL)
            server.running()
            refused = native(server, SMALL)
            assert (refused.status, refused.json) == (503, {"detail": "native execution capacity exhausted"})
            psutil.Process(int(server.host()["pid"])).send_signal(signal.SIGCONT)
            assert first.result(GUARD_S).status == 200


def test_a_deadline_is_504_while_the_host_takes_its_time(runtime: Path, checkpoint: Path) -> None:
    """Running and queued; the host's late answer is dropped, and the next request gets its own."""
    with served(runtime, checkpoint) as server:
        expected = native(server, SMALL).body
        with stopped_host(server):
            for _ in range(2):
                late = native(server, BODY, x_framehost_timeout_ms="100")
                assert (late.status, late.json) == (504, {"detail": "request timed out"})
        assert native(server, SMALL).body == expected
        server.wait(server.idle, "idle")


def test_a_host_that_is_killed_loses_nothing_that_it_had_not_taken(runtime: Path, checkpoint: Path) -> None:
    """503 and an unhealthy health until the next incarnation, which answers with the same bytes: what waited in the
    queue, and what had been sent to the host while it was stopped."""
    with served(runtime, checkpoint) as server:
        expected = native(server, SMALL).body
        with stopped_host(server) as host, ThreadPoolExecutor(2) as clients:
            sent = clients.submit(native, server, SMALL)
            server.running()
            queued = clients.submit(native, server, SMALL)
            server.queued(1)
            host.kill()
            server.wait(lambda: server.get("/health").status == 503, "the front knows")
            # The next incarnation takes seconds to load, so there is none yet.
            for body in (json.dumps(SMALL).encode(), b"{invalid"):
                unready = native(server, body)
                assert (unready.status, unready.json) == (503, {"detail": "model unavailable"})
            health = native(server, None, "/health")
            assert (health.status, health.json["status"]) == (503, "unavailable")
            assert health.json["execution"] == "unavailable"
            assert health.json["graph"]["enabled"] is False
            assert [request.result(GUARD_S).body for request in (sent, queued)] == [expected, expected]
        assert native(server, None, "/health").status == 200
        assert native(server, SMALL).body == expected
        server.wait(server.idle, "idle")


def test_a_new_front_has_the_native_listener_too(runtime: Path, checkpoint: Path) -> None:
    """The sockets are the supervisor's: the same two ports, the host still warm."""
    with served(runtime, checkpoint) as server:
        expected, pid = native(server, SMALL).body, server.host()["pid"]
        old = server.front_pid()
        psutil.Process(old).kill()
        server.wait(lambda: server.status()["front_process"]["pid"] not in (0, old), "another front")
        assert native(server, SMALL).body == expected
        assert server.post(BODY).status == 200
        assert server.host()["pid"] == pid


def test_the_ports_stay_closed_until_the_model_is_warm(runtime: Path, checkpoint: Path) -> None:
    """Bound and locked from the start, listened on after the last warm-up; a second server is refused meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = written(runtime, checkpoint, listen=f"127.0.0.1:{port}")
    with running(runtime, config=config, wait=False) as server:
        server.line("loading")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), GUARD_S)
        for arguments in (["--config", str(config), "--port", "0"], ["--port", str(port), "--model", "s=sparrow"]):
            ended = subprocess.run(
                [sys.executable, "-m", "executor_host.supervision.entry", "serve", *arguments],
                cwd=ROOT,
                env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
                capture_output=True,
                text=True,
                timeout=GUARD_S,
            )
            assert ended.returncode == 3, ended.stderr
            assert f"port {port}" in ended.stderr
        server.opened()
        assert native(server, SMALL).status == 200
        shown = subprocess.run(
            [sys.executable, "-m", "executor_host.supervision.entry", "status", "--port", str(port)],
            cwd=ROOT,
            env=server.environment,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
        )
        assert f"native dialect at http://127.0.0.1:{port}" in shown.stdout
        assert server.stop() == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), GUARD_S)


def test_a_stop_finishes_what_the_native_listener_has(runtime: Path, checkpoint: Path) -> None:
    """The drain waits for both listeners' requests."""
    with served(runtime, checkpoint) as server, ThreadPoolExecutor(1) as client:
        host = psutil.Process(int(server.host()["pid"]))
        host.send_signal(signal.SIGSTOP)
        first = client.submit(native, server, SMALL)
        server.running()
        server.process.send_signal(signal.SIGTERM)
        server.line("stopping")
        host.send_signal(signal.SIGCONT)
        assert first.result(GUARD_S).status == 200
        assert server.wait_exit() == 0


def test_a_broken_checkpoint_ends_the_start_with_its_file_and_key(runtime: Path, checkpoint: Path) -> None:
    """Exit status 2, not retried, the reason in the log: the same that `framehost check` says."""
    broken = runtime / "broken"
    broken.mkdir()
    for file in checkpoint.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    with running(runtime, config=written(runtime, broken), wait=False) as server:
        assert server.wait_exit() == 2
        assert "config.json: model_type is 'llama'" in server.log()
