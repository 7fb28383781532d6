"""The document at /openapi.json against a running server with the embedded model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import Framehost, running

MODEL = "sparrow"

ALIASES = "^/(systemone|decisions|alpha|api/alpha|static|api/v1/chat|v1/(chat|completions|embeddings|messages))"
"""Paths with the same handler as another one."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
SETTINGS = """\
[parameters]
"header.x-framehost-timeout-ms" = "20000"  # else some would have no time, and 504 is the right answer to those
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory, running(directory, f"{MODEL}={MODEL}") as server:
        yield server


def shape(value: Any) -> Any:
    """The value without its numbers, which are the model's."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return float if isinstance(value, float) else value


def test_every_example_is_answered_as_the_document_says(server: Framehost) -> None:
    """Each request of the document, sent to each of its paths: the status is the one it names, and the body is the one
    that is shown for it, to the letter but for probabilities."""
    document = server.get("/openapi.json").json
    sent = 0
    for path, methods in document["paths"].items():
        operation = methods.get("post", {})
        requests = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
        for name, example in requests.items():
            answer = server.post(example["value"], path)
            shown = operation["responses"][str(answer.status)]["content"]["application/json"]["examples"][name]
            assert example["summary"] == f"answered with {answer.status}", (path, name)
            assert shape(answer.json) == shape(shown["value"]), (path, name)
            sent += 1
    assert sent == 26


def test_generated_requests_are_answered_as_the_document_says(server: Framehost, tmp_path: Path) -> None:
    """Schemathesis makes valid and broken requests of the schemas: none gets a 5xx, and every response has a status,
    headers, a media type and a body that the document declares. The same requests in every run."""
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(SETTINGS)
    program = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(settings), "run"]
    bounds = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--generation-deterministic"]
    bounds += ["--no-shrink", "--suppress-health-check", "all", "--exclude-path-regex", ALIASES]
    command = [*program, f"{server.url}/openapi.json", "--checks", ",".join(CHECKS), *bounds, "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr + server.log()
    assert "14 selected" in done.stdout, "which paths are aliases has changed"
    assert not any("Traceback" in line or "ERROR" in line for line in server.lines), server.log()
