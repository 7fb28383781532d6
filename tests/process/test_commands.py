"""The other commands against a running server: status and decide, as a person calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil

from tests.process.harness import QUESTION, ROOT, Framehost, configuration, running


def framehost(server: Framehost, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "executor_host.supervision.entry", *arguments],
        cwd=ROOT,
        env=server.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_status_and_decide_of_a_running_server(runtime: Path) -> None:
    """Everything a person wants to know on one screen, everything a program wants as JSON, one decision in bars."""
    config = configuration(runtime / "c.toml", {"toy": {"max_requests": 7, "max_cost": 999}, "free": {}})
    with running(runtime, config=config) as server:
        psutil.Process(server.host("free")["pid"]).kill()
        server.line("free", "ended: killed by SIGKILL")
        server.wait(lambda: server.get("/health").json["status"] == "ok", "both are ready")
        decided = framehost(
            server, "decide", "--url", server.url, "--state", "s", "--choice", "a=x", "--choice", "b", "--model", "toy"
        )
        assert decided.returncode == 0, decided.stderr
        assert decided.stdout.splitlines()[0].startswith("a  (confidence")
        assert "50.0%" in decided.stdout
        shown = framehost(server, "status", "--port", str(server.port))
        assert shown.returncode == 0, shown.stderr
        for part in (
            f"{server.url}  port open",
            f"front   pid {server.front_pid()}",
            "requests open 0; ended: answered 1",
            "limits body_bytes 8388608, request_timeout_s 30.0, uploads 256, upload_bytes 67108864, depth 64",
            "model   toy (toy)  ready",
            "bound toy requests: 0 of 7",
            "cost 0 of 999",
            "restarts 1",
            "last death: killed by SIGKILL",
        ):
            assert part in shown.stdout, (part, shown.stdout)
        programs = framehost(server, "status", "--port", str(server.port), "--json")
        assert json.loads(programs.stdout)["front"]["models"]["toy"]["scheduler"]["completed"] == 1
        assert server.stop() == 0
        gone = framehost(server, "status", "--port", str(server.port))
        assert gone.returncode == 1
        assert "no framehost of this user is running" in gone.stderr


def test_a_batch_survives_the_death_of_a_host(runtime: Path) -> None:
    """Lines of a file are answered in order; a host that dies among them costs none."""
    source, output = runtime / "in.jsonl", runtime / "out.jsonl"
    states: list[object] = [f"state {number}" for number in range(40)]
    states[20] = {"op": "exit"}
    source.write_text("".join(json.dumps({"state": state, "questions": QUESTION}) + "\n" for state in states))
    with running(runtime) as server:
        arguments = ("batch", str(source), str(output), "--url", server.url, "--retry", "2", "--concurrency", "4")
        ended = framehost(server, *arguments)
        assert ended.returncode == 1, ended.stderr
        assert ended.stderr == "framehost batch: 40 of 40 lines are written, 1 of them errors\n"
        lines = [json.loads(line) for line in output.read_text().splitlines()]
        assert [line["line"] for line in lines] == list(range(1, 41))
        assert [line["line"] for line in lines if "error" in line] == [21]
        assert (lines[20]["status"], lines[0]["response"]["model"]) == (503, "toy")
        assert framehost(server, *arguments).returncode == 1
        assert output.read_text().count("\n") == 40
