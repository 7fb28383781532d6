"""An Open-Jev LoRA checkpoint served end to end, in both dialects. It is a tiny one with random weights.

That its merged export gives the same answers is tested where starting it is cheaper.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, Framehost, running

for needed in ("torch", "transformers", "tokenizers"):
    pytest.importorskip(needed, reason="the open-jev family needs framehost[torch]")

QUESTIONS: dict[str, Any] = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "refund": {"type": "noul", "instructions": "Is the money asked back?"},
    "harm": {"type": "score", "instructions": "How large is the harm?", "criteria": ["none", {"n": 1}, "much"]},
}
BODY: dict[str, Any] = {"state": {"text": "charged twice", "items": [1, 2]}, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framehost]:
    """The model "jev", with a listener of its own."""
    from tests.helpers import tiny_open_jev

    made = tmp_path_factory.mktemp("open_jev")
    base, lora = (str(made / name) for name in ("base", "lora"))
    tiny_open_jev.write_base(made / "base")
    tiny_open_jev.write_lora(made / "lora")
    with short_directory() as directory:
        config = directory / "c.toml"
        config.write_text(
            f"[models.jev]\nfamily = 'open-jev'\npath = {json.dumps(lora)}\n"
            f"[models.jev.options]\ndevice = 'cpu'\nunreleased = true\nmax_length = 300\nbase = {json.dumps(base)}\n"
            "[models.jev.native]\nlisten = '127.0.0.1:0'\n"
        )
        with running(directory, config=config) as running_server:
            yield running_server


def native(server: Framehost, body: bytes | None, path: str = "/v1/systemone") -> tuple[int, Any]:
    """Status and document of the native listener: POST with a body, GET without one."""
    port = int(server.line("own dialect at http://").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD_S)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_both_dialects_give_the_same_answers(server: Framehost) -> None:
    """Within 1e-6, each in its own shape."""
    main = server.post({"model": "jev", **BODY})
    assert main.status == 200, main
    assert main.json["model"] == "jev"
    status, own = native(server, json.dumps({"model": "open-jev", **BODY}).encode())
    assert status == 200, own
    assert own["model"] == "Qwen/Qwen3.8-27B"
    assert own["usage"] == main.json["usage"]
    assert own["metadata"]["candidate_sequences"] == 6
    assert own["metadata"]["max_length"] == 300
    assert list(own["answers"]) == list(QUESTIONS)
    for name, answer in main.json["answers"].items():
        assert own["answers"][name].keys() == answer.keys()
        for field in ("noul", "score", "confidence", "probabilities"):
            if field in answer:
                assert own["answers"][name][field] == pytest.approx(answer[field], abs=1e-6)


def test_what_is_refused(server: Framehost) -> None:
    """422 with the one field for everything on the own listener, 400 and 422 in their shapes on the main port."""
    assert native(server, b"{") == (422, {"error": native(server, b"{")[1]["error"]})
    unknown = json.dumps({"model": "jev", **BODY}).encode()
    assert native(server, unknown) == (422, {"error": "requested model is not loaded"})
    long = {"state": "x " * 400, "questions": {"refund": QUESTIONS["refund"]}}
    status, document = native(server, json.dumps(long).encode())
    assert status == 422
    assert document["error"].startswith("question refund: ")
    assert document["error"].endswith(" tokens exceeds max_length=300; no silent truncation")
    answer = server.post({"model": "jev", **long})
    assert (answer.status, answer.json["detail"]["error_type"]) == (400, "max_tokens_exceeded")
    half = {"model": "jev", "state": "s", "questions": {"q": QUESTIONS["refund"] | {"criteria": {"true": "yes"}}}}
    answer = server.post(half)
    assert (answer.status, answer.json["detail"][0]["loc"]) == (422, ["body", "questions", "q", "criteria"])


def test_health(server: Framehost) -> None:
    """The original's two fields."""
    assert native(server, None, "/health") == (200, {"status": "ready", "model": "Qwen/Qwen3.8-27B"})
