"""A Cua-S1 checkpoint served end to end: letter rows from the host to every front, both dialects.

The checkpoint is a tiny one with random weights, a base model with its adapter.
"""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.process.harness import GUARD_S, Answer, Framehost, running, streamed

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the cua-s1 family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "close": {"type": "choice", "instructions": "Close it.", "criteria": {"ok": "OK", "wait": "Wait"}},
    "_sa": {"type": "choice", "instructions": None, "criteria": {"a": {"action": "click"}, "b": None, "c": ["x"]}},
}
STATE = {"app": "Settings", "elements": [{"id": "e1", "label": "Location", "on": True}]}
BODY = {"model": "cua-s1-4b-0.2", "state": STATE, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.helpers import tiny_cua_s1

    folder = tiny_cua_s1.write_base(tmp_path_factory.mktemp("serve") / "base")
    tiny_cua_s1.write_adapter(folder / "text", folder)
    return folder


def written(directory: Path, checkpoint: Path) -> Path:
    """A configuration with the model under its own name, and its native listener."""
    file = directory / "c.toml"
    file.write_text(
        f'[models."cua-s1-4b-0.2"]\nfamily = "cua-s1"\npath = {json.dumps(str(checkpoint))}\n'
        '[models."cua-s1-4b-0.2".options]\ndevice = "cpu"\n'
        '[models."cua-s1-4b-0.2".native]\nlisten = "127.0.0.1:0"\n'
    )
    return file


def native(server: Framehost, body: bytes | None, path: str = "/v1/systemone") -> Answer:
    """An answer of the native listener: POST with a body and no media type, GET without one."""
    port = int(server.line("own dialect at http://").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        content = response.read()
        return Answer(response.status, {key.lower(): value for key, value in response.getheaders()}, content)
    finally:
        connection.close()


def test_a_decision_through_three_processes(runtime: Path, checkpoint: Path) -> None:
    """Both dialects agree, twelve clients get the same bytes, and a new front gets the letters again."""
    body = json.dumps(BODY).encode()
    with running(runtime, config=written(runtime, checkpoint)) as server:
        main, own = server.post(body), native(server, body)
        assert (main.status, own.status) == (200, 200), (main, own)
        assert main.json["model"] == "cua-s1-4b-0.2"
        assert own.json["model"] == "cua-ai/cua-s1-4b-0.2@16818868b0cc7813808aae4e87b417657046ab79:text"
        assert list(own.json) == ["model", "answers", "usage"]
        assert list(own.json["answers"]) == list(main.json["answers"]) == list(QUESTIONS)
        for name, answer in main.json["answers"].items():
            mine = own.json["answers"][name]
            assert mine["choice"] == answer["choice"]
            assert mine["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
        assert own.json["usage"] == main.json["usage"]
        with ThreadPoolExecutor(12) as clients:
            answers = list(clients.map(lambda _: server.post(body), range(12)))
        assert {answer.body for answer in answers} == {main.body}
        events = streamed(server.post(body, accept="text/event-stream"))
        assert [name for name, _ in events] == ["admitted", "answer", "answer", "done"]
        assert {data["id"]: data["answer"] for name, data in events if name == "answer"} == main.json["answers"]

        for bad, status, detail in (
            (body.replace(b"Close it.", b"\\ud800"), 400, "request body is not valid JSON: "),
            (body.replace(b'"choice"', b'"noul"'), 422, "question 'close': type 'noul' is not supported"),
            (body.replace(b"Close it.", b"a b c d " * 9000), 413, "question 'close': "),
            (b" " * ((4 << 20) + 1), 413, "request body too large"),
        ):
            refused = native(server, bad)
            assert (refused.status, list(refused.json)) == (status, ["detail"])
            assert refused.json["detail"].startswith(detail)
        assert server.post(body.replace(b'"choice"', b'"noul"')).status == 422
        assert native(server, None, "/health").json == {"status": "ready", "model": own.json["model"]}

        old, host = server.front_pid(), server.host()["pid"]
        psutil.Process(old).kill()
        server.wait(lambda: server.status()["front_process"]["pid"] not in (0, old), "another front")
        assert server.post(body).body == main.body
        assert native(server, body).body == own.body
        assert server.host()["pid"] == host
        server.wait(server.idle, "idle")
        assert server.stop() == 0
