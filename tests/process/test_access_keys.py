"""A served model with API keys: who gets in, how much of it at once, and what a change of the file does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from frontend.configuration.keys import ENVIRONMENT
from protocol.exits import ServeExit
from tests.process.conftest import short_directory
from tests.process.harness import GUARD_S, QUESTION, Framehost, running

ALICE = "alice-0123456789"
BOB = "bob-0123456789-b"
CAROL = "carol-0123456789"
ABOUT_KEYS = {"auth.bearer", "auth.missing", "auth.invalid"}
FILE = f"""
[keys.alice]
key = "{ALICE}"
max_requests = 1

[keys.bob]
key = "{BOB}"
max_cost = 2000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Framehost]:
    with short_directory() as directory:
        file = directory / "keys.toml"
        file.write_text(FILE)
        environment = {ENVIRONMENT: CAROL}
        with running(directory, environment=environment, arguments=["--keys", str(file)]) as server:
            yield server


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_only_a_valid_key_is_answered(server: Framehost) -> None:
    """Keys of the file and of the environment both work; without one the model is never asked."""
    completed = server.model()["scheduler"]["completed"]
    assert server.decide({"tag": "a"}).status == 401
    assert server.decide({"tag": "a"}, Authorization="Bearer not-a-key-of-anyone").status == 401
    assert [server.decide({"tag": "a"}, **bearer(key)).status for key in (ALICE, BOB, CAROL)] == [200] * 3
    server.wait(server.idle, "idle")
    assert server.model()["scheduler"]["completed"] == completed + 3


def test_one_keys_budget_is_its_own(server: Framehost, runtime: Path) -> None:
    """A key that has used up its requests gets 429, which names the bound; another key's request is queued."""
    until = runtime / "until"
    first = server.soon({"op": "wait", "until": str(until)}, **bearer(ALICE))
    server.running()
    refused = server.decide({}, **bearer(ALICE))
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "'alice key requests'" in refused.json["detail"]["message"]
    second = server.soon({}, **bearer(BOB))
    server.queued(1)
    until.touch()
    assert first.result(GUARD_S).status == second.result(GUARD_S).status == 200


def test_a_request_dearer_than_the_whole_budget_is_413(server: Framehost) -> None:
    """Waiting would not help, so it is told without Retry-After."""
    refused = server.decide({"text": "x" * 3000}, **bearer(BOB))
    assert refused.status == 413
    assert "retry-after" not in refused.headers
    assert "'bob key cost'" in refused.json["detail"]["message"]
    assert server.decide({"text": "x" * 3000}, **bearer(CAROL)).status == 200


def test_a_client_that_left_is_counted_until_its_unit_ends(server: Framehost, runtime: Path) -> None:
    """Leaving and coming back is no way around a bound: the unit still runs."""
    until = runtime / "until"
    body = json.dumps({"state": {"op": "wait", "until": str(until)}, "questions": QUESTION})
    head = (
        f"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nx-api-key: {ALICE}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    gone = server.connect((head + body).encode())
    server.running()
    gone.close()
    server.wait(lambda: server.model()["scheduler"]["abandoned"] == 1, "an abandoned unit")
    assert server.decide({}, **bearer(ALICE)).status == 429
    until.touch()
    server.wait(lambda: server.decide({}, **bearer(ALICE)).status == 200, "the slot back")


def test_hosts_never_see_the_keys(server: Framehost) -> None:
    """The environment variable ends at the front: a model's code has no business with it."""
    assert ENVIRONMENT not in psutil.Process(server.host()["pid"]).environ()
    assert ENVIRONMENT in psutil.Process(server.front_pid()).environ()


def test_status_names_the_accounts(server: Framehost) -> None:
    """An operator sees whose keys are valid, and that the file is in force."""
    report = server.status()["front"]["keys"]
    assert report["problem"] == ""
    assert set(report["accounts"]) == {"alice", "bob", "environment-1"}


def test_a_changed_file_is_in_force_without_a_restart(runtime: Path) -> None:
    """A key that was added works and one that was removed does not; a broken file changes nothing, and is told."""
    file = runtime / "keys.toml"
    file.write_text(f'[keys.alice]\nkey = "{ALICE}"\n')
    with running(runtime, arguments=["--keys", str(file)]) as server:
        before = server.front_pid()
        file.write_text(f'[keys.bob]\nkey = "{BOB}"\n')
        server.wait(lambda: server.decide({}, **bearer(BOB)).status == 200, "the new key")
        assert server.decide({}, **bearer(ALICE)).status == 401
        file.write_text("[keys.bob\n")
        server.line("keys.toml", "not TOML", "stay valid")  # without any request
        assert server.status()["front"]["keys"]["problem"]
        assert server.decide({}, **bearer(BOB)).status == 200
        file.unlink()
        os.mkfifo(file)
        server.line("keys.toml", "not a file", "stay valid")
        assert server.decide({}, **bearer(BOB)).status == 200, "nobody waits for who never writes"
        assert server.front_pid() == before


@pytest.mark.parametrize("text", ["", '[keys.a]\nkey = "short"\n'])
def test_a_start_with_a_wrong_file_is_refused(runtime: Path, text: str) -> None:
    """Wrong configuration, and no port is opened."""
    file = runtime / "keys.toml"
    file.write_text(text)
    with running(runtime, arguments=["--keys", str(file)], wait=False) as server:
        assert server.wait_exit() == ServeExit.CONFIGURATION
        assert "keys" in server.log()


def test_with_keys_other_machines_may_connect(runtime: Path) -> None:
    """An address that others can reach needs keys or --insecure."""
    arguments = ["--host", "0.0.0.0"]
    with running(runtime, arguments=arguments, wait=False) as server:
        assert server.wait_exit() == ServeExit.CONFIGURATION
        assert "--keys" in server.log()
    with running(runtime, arguments=arguments, environment={ENVIRONMENT: CAROL}, wait=False) as server:
        server.line("serving", " at http://0.0.0.0")


def test_jevcompat_finds_nothing_on_a_server_with_keys(runtime: Path, tmp_path: Path) -> None:
    """The suite passes every MUST and SHOULD that applies to a server with keys, those about keys included."""
    report = tmp_path / "report.json"
    with running(runtime, "sparrow=sparrow", environment={ENVIRONMENT: CAROL}) as server:
        suite = Path(sys.executable).with_name("jevcompat")
        run = subprocess.run(
            [suite, "test", server.url, "--key", CAROL, "--model", "sparrow", "--json", report],
            capture_output=True,
            text=True,
            timeout=2 * GUARD_S,
        )
        assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads(report.read_text())["results"]
    outcomes = Counter((entry["level"], entry["status"]) for entry in results)
    assert outcomes[("MUST", "pass")] == 32
    assert not [entry for entry in results if entry["status"] == "fail"]
    assert {entry["status"] for entry in results if entry["id"] in ABOUT_KEYS} == {"pass"}
