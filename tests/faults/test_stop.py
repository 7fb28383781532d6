"""Stopping: what was accepted is answered, what comes is refused, and it ends within its budget whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.process.harness import GUARD_S, ROOT, TOY, Framehost, alive, configuration, received, running

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


def nothing_left(server: Framehost, everyone: list[psutil.Process]) -> None:
    server.wait(lambda: not any(map(alive, everyone)), "nothing is left")
    assert list(next(server.runtime.glob("framehost-*")).iterdir()) == []


@SIGNALS
def test_a_stop_answers_what_it_has_accepted_and_refuses_what_comes(runtime: Path, number: signal.Signals) -> None:
    """Running and queued requests are answered 200, newcomers 503; then exit 0, no process, no socket."""
    until = runtime / "until"
    with running(runtime) as server:
        everyone = server.family()
        first = server.soon({"op": "wait", "until": str(until)})
        server.running()
        queued = [server.soon({"tag": tag}) for tag in "bc"]
        server.queued(2)
        server.process.send_signal(number)
        server.line("stopping")
        server.wait(lambda: server.get("/health").json["status"] == "draining", "the front drains")
        newcomer = server.decide("late")
        assert newcomer.status == 503
        assert int(newcomer.headers["retry-after"]) >= 1
        assert server.get("/health").status == 503
        assert server.get("/healthz").status == 200
        assert not first.done()
        until.touch()
        assert [request.result(30).status for request in (first, *queued)] == [200, 200, 200]
        assert server.wait_exit() == 0
        assert server.log().splitlines()[-1] == "[framehost] stopped: everything was finished; exit status 0"
        nothing_left(server, everyone)


def test_a_drain_that_takes_too_long_ends_and_says_so(runtime: Path) -> None:
    """A unit that never ends: the budget is kept, the client is told 503, the exit status is not that of a success."""
    config = configuration(runtime / "c.toml", {"toy": {}}, drain=0.3)
    with running(runtime, config=config) as server:
        everyone = server.family()
        running_one = server.soon({"op": "wait", "until": "never"})
        server.running()
        waiting_one = server.soon("b")
        server.queued(1)
        server.process.terminate()
        assert server.wait_exit() == 6
        assert running_one.result(30).status == waiting_one.result(30).status == 503
        assert "stopping" in waiting_one.result(30).json["detail"]["message"]
        last = server.log().splitlines()[-1]
        assert last == "[framehost] stopped: 2 requests still open after the drain budget of 0.3 s; exit status 6"
        nothing_left(server, everyone)


def test_a_drain_is_bounded_while_the_interpreter_lock_is_held(runtime: Path) -> None:
    """The host cannot even hear the stop: it is killed after the budget."""
    mark = runtime / "mark"
    config = configuration(runtime / "c.toml", {"toy": {}}, drain=0.3)
    with running(runtime, config=config) as server:
        everyone = server.family()
        server.soon({"op": "hold_gil", "seconds": 1000, "mark": str(mark)})
        server.wait(mark.exists, "the lock is held")
        server.process.terminate()
        assert server.wait_exit() == 6
        nothing_left(server, everyone)


@SIGNALS
def test_a_second_signal_ends_at_once(runtime: Path, number: signal.Signals) -> None:
    """Nobody who asks twice wants to wait for a drain of 30 s."""
    with running(runtime) as server:
        everyone = server.family()
        server.soon({"op": "wait", "until": "never"})
        server.running()
        server.process.send_signal(number)
        server.line("stopping")
        server.process.send_signal(number)
        assert server.wait_exit() == 130
        assert server.log().splitlines()[-1] == "[framehost] stopped: asked a second time; exit status 130"
        nothing_left(server, everyone)


SIGNALLED = """
import atexit, os, signal, sys
from executor_host.supervision import entry

looked = entry.shadowed
numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

def shadowed():
    for _ in range(int(sys.argv.pop())):
        os.kill(os.getpid(), signal.SIGTERM)
    return looked()

entry.shadowed = shadowed
atexit.register(lambda: [os.kill(os.getpid(), number) for number in numbers])
sys.exit(entry.main())
"""


@pytest.mark.parametrize(("signals", "status"), [(1, 0), (2, 130)])
def test_a_signal_in_the_first_or_the_last_moments_has_the_status_that_the_log_says(
    runtime: Path, signals: int, status: int
) -> None:
    """While modules are imported, and when the interpreter ends: the stop is one, and not a kill."""
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED, "serve", "--model", "toy=toy", "--port", "0", str(signals)],
        cwd=ROOT,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": f"{TOY}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
    )
    assert ended.returncode == status, ended.stderr
    assert ended.stderr.splitlines()[-1].endswith(f"; exit status {status}")
    assert "ready in" not in ended.stderr


def test_a_stop_while_loading_does_not_wait_for_the_load(runtime: Path) -> None:
    """A host that is not ready has nothing to finish: it is ended, the exit is clean."""
    config = configuration(runtime / "c.toml", {"toy": {"gate": runtime / "never"}, "other": {}})
    with running(runtime, config=config, wait=False) as server:
        server.line("toy", "loading")
        server.line("other", "ready in")
        everyone = server.family()
        server.process.terminate()
        assert server.wait_exit() == 0
        assert "starting again" not in server.log()
        nothing_left(server, everyone)


def test_a_stop_between_two_starts_does_not_start_again(runtime: Path) -> None:
    """The back-off before a restart ends with the stop."""
    config = configuration(runtime / "c.toml", {"toy": {"fail": "load"}})
    with running(runtime, config=config, wait=False) as server:
        server.line("starting again in 1 s")
        server.process.terminate()
        assert server.wait_exit() == 0
        assert "starting again in 2 s" not in server.log()


@pytest.mark.parametrize("host", ["that loads", "in back-off"])
def test_a_stop_answers_who_waits_for_a_host_that_is_started_again(runtime: Path, host: str) -> None:
    """Nobody is started during a stop, and a load is not waited for: 503 at once, and the stop is clean."""
    works = runtime / "works"
    works.touch()
    option = {"gate": works} if host == "that loads" else {"fail": f"until:{works}"}
    config = configuration(runtime / "c.toml", {"toy": option})
    with running(runtime, config=config) as server:
        running_one = server.soon({"op": "wait", "until": "never"})
        server.running()
        queued = server.soon("b")
        server.queued(1)
        works.unlink()
        psutil.Process(server.host()["pid"]).kill()
        assert running_one.result(GUARD_S).status == 503
        server.line("[toy@1 3-", "loading") if host == "that loads" else server.line("starting again in 1 s")
        assert server.stop() == 0
        answer = queued.result(GUARD_S)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "the server is stopping and starts no host of model 'toy'" in answer.json["detail"]["message"]


def test_idle_connections_and_endless_uploads_do_not_prolong_a_stop(runtime: Path) -> None:
    """Neither a client that says nothing nor one that never finishes its body outlasts the budget."""
    config = configuration(runtime / "c.toml", {"toy": {}}, drain=0.5)
    with running(runtime, config=config) as server:
        everyone = server.family()
        silent = server.connect()
        kept = server.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        partial = server.connect(b"POST /v1/systemone HTTP/1.1\r\nHo")
        upload = server.connect(
            b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
        )
        server.wait(lambda: server.status()["front"]["requests"]["open"] == 1, "the upload is open")
        server.process.terminate()
        assert server.wait_exit() == 6, "one request was open to the end"
        for connection in (silent, kept, partial, upload):
            received(connection)
        nothing_left(server, everyone)


def test_a_client_that_does_not_read_does_not_prolong_a_stop(runtime: Path) -> None:
    """Its answer is ready and larger than what the sockets hold: after the budget the connection goes."""
    names = {f"{number:03}" + "x" * 4000: None for number in range(255)}
    questions = {str(number): {"type": "choice", "criteria": names} for number in range(7)}
    body = json.dumps({"state": "s", "questions": questions}).encode()
    config = configuration(runtime / "c.toml", {"toy": {}}, drain=0.5)
    with running(runtime, config=config) as server:
        everyone = server.family()
        head = f"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        reader = server.connect(head.encode() + body)
        assert reader.recv(1), "the answer has begun"
        server.process.terminate()
        assert server.wait_exit() == 6, "it was not read to the end"
        nothing_left(server, everyone)


def test_an_idle_connection_alone_does_not_spoil_a_stop(runtime: Path) -> None:
    """A keep-alive connection is no request: the exit is clean and does not wait for the budget."""
    with running(runtime) as server:
        kept = server.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        server.connect()
        assert server.stop() == 0


def test_a_stop_with_a_dead_front_is_still_a_stop(runtime: Path) -> None:
    """Killed in the moment of the stop, the front is not waited for."""
    with running(runtime) as server:
        everyone = server.family()
        psutil.Process(server.front_pid()).suspend()
        server.process.terminate()
        server.line("stopping")
        next(process for process in everyone if "frontend.main" in process.cmdline()).kill()
        assert server.wait_exit() == 6, "it had been asked to drain and could not"
        nothing_left(server, everyone)


def test_a_stopped_host_does_not_hold_up_the_end(runtime: Path) -> None:
    """Nobody waits for a host once the front has gone: what does not react is ended, not waited for."""
    with running(runtime) as server:
        everyone = server.family()
        host = psutil.Process(server.host()["pid"])
        host.suspend()
        server.process.terminate()
        assert server.wait_exit() == 0
        nothing_left(server, everyone)
