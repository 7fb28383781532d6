"""A Laya checkpoint served end to end, in both dialects. It is a tiny one with random weights, and one character
after which its numbers are none: what a device that failed does to an answer."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the laya family needs framehost[torch]")

POISON = "~"
QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", {"n": 1}, "much"]},
}
BODY: dict[str, Any] = {"state": {"text": "charged twice", "items": [1, 2]}, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    """The model "laya", with a listener of its own."""
    from tests.helpers import tiny_laya

    folder = json.dumps(str(tiny_laya.write(tmp_path_factory.mktemp("laya") / "tiny", poison=POISON)))
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            f"[models.laya]\nfamily = 'laya'\npath = {folder}\n[models.laya.options]\ndevice = 'cpu'\n"
            "[models.laya.native]\nlisten = '127.0.0.1:0'\n"
        )
        with running(directory, config=config) as running_server:
            yield running_server


def native(server: Framehost, body: dict[str, Any] | bytes | None, path: str = "/v1/systemone") -> tuple[int, Any]:
    """Status and document of the native listener: POST with a body, GET without one."""
    port = int(server.line("own dialect at http://").rpartition(":")[2])
    raw = json.dumps(body).encode() if isinstance(body, dict) else body
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        connection.request("GET" if raw is None else "POST", path, raw, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_both_dialects_answer_the_same_request(server: Framehost) -> None:
    """One host, one checkpoint: equal up to the native rounding, each in its own shape."""
    main = server.post({"model": "laya", **BODY})
    assert main.status == 200, main
    status, own = native(server, BODY)
    assert status == 200, own
    exact = main.json
    assert exact["model"] == "laya"
    assert own["model"] == "laya-rl-agent"
    assert own["routing"]["reason"] == "explicit model='english'"
    assert own["usage"] == exact["usage"]
    assert list(own["answers"]) == list(exact["answers"]) == list(QUESTIONS)
    for name, answer in exact["answers"].items():
        for option, value in answer.get("probabilities", {}).items():
            assert own["answers"][name]["probabilities"][option] == pytest.approx(value, abs=6e-5)
        if "probabilities" in answer:
            assert math.fsum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-12)
        act = own["answers"][name]["action"]["act_probability"]
        assert act == pytest.approx(exact["x_act_probability"][name], abs=6e-5)
    assert own["answers"]["refund"]["noul"] == pytest.approx(exact["answers"]["refund"]["noul"], abs=6e-5)
    assert own["answers"]["harm"]["legend"] == {"0": "none", "1": {"n": 1}, "2": "much"}


def test_what_is_refused(server: Framehost) -> None:
    """422 with the one field on the own listener; on the main port 422 with the place, and 400 for what is cut."""
    assert native(server, {**BODY, "model": "laya"}) == (422, {"error": "only model=english is supported"})
    assert native(server, {**BODY, "more": 1})[0] == 422
    many = {str(i): QUESTIONS["refund"] for i in range(17)}
    assert native(server, {**BODY, "questions": many}) == (422, {"error": "at most 16 questions per CUDA request"})
    answer = server.post({"model": "laya", **BODY, "questions": many})
    assert (answer.status, answer.json["detail"][0]["loc"]) == (422, ["body", "questions"])
    assert native(server, b"x" * (4 * 1024 * 1024 + 1)) == (413, {"error": "request body too large"})
    long = {**BODY, "state": "word @ " * 2000}
    answer = server.post({"model": "laya", **long})
    assert (answer.status, answer.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    status, own = native(server, long)
    assert (status, own["usage"]["input_tokens"]) == (200, 3 * 512)


def test_no_questions_and_health(server: Framehost) -> None:
    """An empty answer without the host; the original's two fields."""
    status, own = native(server, {"state": None, "questions": {}})
    assert (status, own["answers"], own["usage"]) == (200, {}, {"input_tokens": 0, "output_tokens": 0})
    assert native(server, None, "/health") == (200, {"status": "ready", "model": "laya-rl-agent"})


def test_a_host_that_fails_retires_and_comes_back(server: Framehost) -> None:
    """503 for the request it failed on, health says so until another host is warm, then the same answers again."""
    expected, pid = native(server, BODY), server.host()["pid"]
    status, lost = native(server, {**BODY, "state": POISON})
    assert (status, lost) == (503, {"error": "model inference failed"})
    # The next one takes seconds to load, so there is none yet.
    assert native(server, None, "/health") == (503, {"error": "CUDA worker unavailable"})
    assert server.get("/health?model=laya").status == 503
    # A valid request waits for it.
    assert native(server, BODY) == expected
    assert native(server, None, "/health")[0] == 200
    assert server.host()["pid"] != pid
