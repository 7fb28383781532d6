"""`framehost batch`: every line its line, in order, whatever the server does and wherever it was stopped before."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import supervisor
from frontend.cli import batch
from frontend.cli.progress import ProgressBar
from frontend.cli.sender import Stopped, Target, Worker

GUARD_S = 20.0
QUESTIONS = {"q": {"type": "noul", "instructions": "so?"}}

Answered = tuple[int, dict[str, str], bytes]


def answer(state: Any) -> Answered:
    """What a server says of a state: its own text, so that a mix-up shows."""
    document = {"model": "m", "answers": {"q": {"type": "noul", "noul": 0.5}}, "usage": {}, "x_state": state}
    return 200, {}, json.dumps(document).encode()


class Server(ThreadingHTTPServer):
    """Asks `reply` for every request, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.weights = {"m": "the first weights"}
        self.reply: Callable[[Any], Answered] = lambda body: answer(body["state"])
        self.url = f"http://127.0.0.1:{self.server_port}"

    def states(self) -> list[Any]:
        return [body["state"] for body in self.asked]

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no error here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        listed = [{"name": name, "description": weights} for name, weights in self.server.weights.items()]
        self._answer(200, {}, json.dumps({"models": listed}).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            body = json.loads(raw)
        except ValueError:
            body = raw
        self.server.asked.append(body)
        self.server.headers.append(dict(self.headers))
        self._answer(*self.server.reply(body))

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


class Files:
    """An input of requests and the output of a batch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source, self.output = folder, folder / "in.jsonl", folder / "out.jsonl"

    def requests(self, states: list[Any]) -> None:
        lines = (json.dumps({"state": state, "questions": QUESTIONS}) for state in states)
        self.source.write_text("".join(f"{line}\n" for line in lines))

    def batch(self, server: Server, *options: str) -> int:
        return supervisor.main(["batch", str(self.source), str(self.output), "--url", server.url, *options])

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    def states(self) -> list[Any]:
        return [line["response"]["x_state"] for line in self.lines()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_answers_are_in_the_order_of_the_lines(server: Server, files: Files) -> None:
    """Also when the first is answered last: it is held back until the others are."""
    files.requests(list(range(5)))
    others = threading.Semaphore(0)

    def reply(body: Any) -> Answered:
        if body["state"] == 0:
            for _ in range(4):
                assert others.acquire(timeout=GUARD_S)
        else:
            others.release()
        return answer(body["state"])

    server.reply = reply
    assert files.batch(server, "--concurrency", "5") == 0
    assert files.states() == [0, 1, 2, 3, 4]
    assert [line["line"] for line in files.lines()] == [1, 2, 3, 4, 5]


def test_at_most_so_many_are_asked_at_a_time(server: Server, files: Files) -> None:
    """Two at a time here, on two connections that stay open."""
    files.requests(list(range(12)))
    lock, now, most = threading.Lock(), 0, 0
    pair = threading.Barrier(2, timeout=GUARD_S)

    def reply(body: Any) -> Answered:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        pair.wait()
        with lock:
            now -= 1
        pair.wait()
        return answer(body["state"])

    server.reply = reply
    assert files.batch(server, "--concurrency", "2") == 0
    assert most == 2
    assert files.states() == list(range(12))


def test_a_rerun_goes_on_where_the_last_one_stopped(server: Server, files: Files) -> None:
    """Nothing is asked twice, and a line that was torn is mended."""
    files.requests(["a", "b", "", "d"])
    assert files.batch(server) == 0
    whole = files.output.read_bytes()
    server.asked.clear()
    for kept in (0, 1, len(whole) // 2, len(whole) - 1):
        files.output.write_bytes(whole[:kept])
        assert files.batch(server) == 0
        assert files.output.read_bytes() == whole
    server.asked.clear()
    assert files.batch(server) == 0
    assert server.asked == []


def test_blank_lines_are_none(server: Server, files: Files) -> None:
    """The number is that of the line in its file."""
    files.requests(["a", "b"])
    first, second = files.source.read_text().splitlines()
    files.source.write_text(f"\n{first}\n  \n\n{second}")
    assert files.batch(server) == 0
    assert [line["line"] for line in files.lines()] == [2, 5]
    files.output.write_text(files.output.read_text().splitlines(keepends=True)[0])
    assert files.batch(server) == 0
    assert [line["line"] for line in files.lines()] == [2, 5]


def test_a_line_that_fails_has_a_line_with_the_error(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, also of a rerun that has nothing left to ask; the others are answered."""
    files.requests(["a", "bad", "c"])
    refused = b'{"detail": [{"loc": ["body", "state"], "msg": "is bad", "type": "value_error"}]}'
    server.reply = lambda body: (422, {}, refused) if body["state"] == "bad" else answer(body["state"])
    assert files.batch(server) == 1
    line = files.lines()[1]
    assert line.pop("request")
    assert line == {"line": 2, "status": 422, "error": "body.state: is bad"}
    assert files.lines()[2]["response"]["x_state"] == "c"
    assert files.batch(server) == 1
    assert len(server.asked) == 3
    assert capsys.readouterr().err.count("3 of 3 lines are written, 1 of them errors") == 2


def test_an_answer_that_is_none_is_an_error(server: Server, files: Files) -> None:
    """Something else listens there."""
    files.requests(["a"])
    server.reply = lambda _: (200, {}, b"<html>")
    assert files.batch(server) == 1
    assert files.lines()[0]["error"] == "the answer is no framehost's: <html>"


def test_a_busy_server_is_asked_again(server: Server, files: Files) -> None:
    """429 and 503, until it answers."""
    files.requests(["a"])
    replies = iter([(429, {"Retry-After": "0"}, b""), (503, {"Retry-After": "0"}, b""), answer("a")])
    server.reply = lambda _: next(replies)
    assert files.batch(server) == 0
    assert len(server.asked) == 3


def test_questions_and_a_model_for_lines_without(server: Server, files: Files) -> None:
    """A line may be a state alone, of any type; what a line says itself wins."""
    (files.folder / "q.json").write_text(json.dumps(QUESTIONS))
    own = {"state": "s", "questions": {"own": QUESTIONS["q"]}, "model": "own"}
    lines = ["text", {"a": 1}, [1, 2], {"state": "s"}, own]
    files.source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--questions", str(files.folder / "q.json"), "--model", "m", "--concurrency", "1"]
    assert files.batch(server, *options) == 0
    assert server.states() == ["text", {"a": 1}, [1, 2], "s", "s"]
    assert [body["model"] for body in server.asked] == ["m"] * 4 + ["own"]
    assert [list(body["questions"]) for body in server.asked] == [["q"]] * 4 + [["own"]]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"state": 1', "is not JSON text"),
        ('{"a": 1, "a": 2}', "a key twice"),
        ("7", None),
        ('"\\ud800"', "is not JSON text"),
        ("[" * 100_000, "is not JSON text"),
        ("9" * 5000, "is not JSON text"),
    ],
    ids=["torn", "twice", "number", "surrogate", "deep", "long number"],
)
def test_a_line_that_is_no_request_is_an_error_of_its_own(
    server: Server, files: Files, line: str, error: str | None
) -> None:
    """Nothing of it is sent; what is JSON but no state is for the server to refuse."""
    (files.folder / "q.json").write_text(json.dumps(QUESTIONS))
    files.source.write_text(f"{line}\n")
    assert files.batch(server, "--questions", str(files.folder / "q.json")) == (1 if error else 0)
    assert len(server.asked) == (0 if error else 1)
    if error:
        written = files.lines()[0]
        assert written["status"] is None
        assert error in written["error"]


def test_without_options_a_line_is_sent_as_it_is(server: Server, files: Files) -> None:
    """The server says best what is wrong with it: a key twice must not become one on the way."""
    files.source.write_text('{"state": "a", "state": "b", "questions": {}}\nnot json\n')
    seen: list[bytes] = []
    server.reply = lambda body: seen.append(body) or (422, {}, b'{"detail": {"message": "no"}}')  # type: ignore[func-returns-value]
    assert files.batch(server) == 1
    assert b"not json\n" in seen


def test_the_key_is_sent(server: Server, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment, or from a file, which wins."""
    files.requests(["a"])
    monkeypatch.setenv("FRAMEHOST_API_KEY", "from-the-environment")
    assert files.batch(server) == 0
    (files.folder / "key").write_text("from-a-file\n")
    files.output.unlink()
    assert files.batch(server, "--key-file", str(files.folder / "key")) == 0
    assert [headers["Authorization"] for headers in server.headers] == [
        "Bearer from-the-environment",
        "Bearer from-a-file",
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_valid_ends_the_batch(
    server: Server, files: Files, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every further line would fail the same way: exit 3, and the file is as if it had not been asked."""
    files.requests(["a", "b"])
    server.reply = lambda body: (status, {}, b'{"detail": {"message": "the API key is not valid"}}')
    assert files.batch(server, "--concurrency", "1") == 3
    assert files.output.read_bytes() == b""
    assert "the API key is not valid; 0 of 2 lines are written" in capsys.readouterr().err


def test_a_server_that_was_never_there_ends_the_batch_at_once(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong address is not waited for."""
    files.requests(["a"])
    arguments = ["batch", str(files.source), str(files.output), "--url", "http://127.0.0.1:1"]
    assert supervisor.main(arguments) == 3
    assert "nothing answers at http://127.0.0.1:1" in capsys.readouterr().err


def test_two_batches_do_not_write_one_file(server: Server, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is exit 2 and touches nothing."""
    files.requests(["a"])
    with files.output.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert files.batch(server) == 2
    assert "another batch is writing it" in capsys.readouterr().err
    assert server.asked == []


@pytest.mark.parametrize(
    "content",
    ["my diary", "my diary\n", '{"a": 1}\n', '{"line":7,"status":200}\n', '{"line":1}\n{"line":2}\n', "[]\n"],
)
def test_a_file_that_is_no_output_of_this_input_is_left_alone(server: Server, files: Files, content: str) -> None:
    """Exit 2: a mistyped name must not cost a file."""
    files.requests(["a"])
    files.output.write_text(content)
    assert files.batch(server) == 2
    assert files.output.read_text() == content
    assert server.asked == []


def test_the_input_is_not_written_over(server: Server, files: Files) -> None:
    """Nor cut, where it ends without a line break."""
    files.source.write_text('{"line": 1')
    files.output = files.source
    assert files.batch(server) == 2
    assert files.source.read_text() == '{"line": 1'


@pytest.mark.parametrize(
    "options",
    [
        ["--questions", "/no/such"],
        ["--questions", __file__],
        ["--url", "ftp://x"],
        ["--url", "http://[::1"],
        ["--key-file", "/no/such"],
        ["--key-file", os.devnull],
    ],
)
def test_options_that_are_wrong_are_exit_status_two(files: Files, server: Server, options: list[str]) -> None:
    """Before anything is asked or written."""
    files.requests(["a"])
    assert files.batch(server, *options) == 2
    assert server.asked == []
    assert not files.output.exists()


@pytest.mark.parametrize("number", ["0", "-1", "x", "257", "9" * 50, "²"])
def test_a_concurrency_that_is_none_is_a_usage_error(files: Files, server: Server, number: str) -> None:
    """Said by the parser."""
    files.requests(["a"])
    with pytest.raises(SystemExit) as ended:
        files.batch(server, f"--concurrency={number}")
    assert ended.value.code == 2


def test_an_interrupted_batch_keeps_what_it_has_and_goes_on(server: Server, files: Files) -> None:
    """Ctrl-C while an answer is on its way: exit 130 without waiting for it, and the rerun asks only the rest."""
    files.requests(["a", "b", "c"])
    held, release = threading.Event(), threading.Event()

    def reply(body: Any) -> Answered:
        if body["state"] == "b" and not release.is_set():
            held.set()
            release.wait(GUARD_S)
        return answer(body["state"])

    server.reply = reply
    command = [sys.executable, "-m", "executor_host.supervision.entry", "batch", str(files.source), str(files.output)]
    process = subprocess.Popen(
        [*command, "--url", server.url, "--concurrency", "1"],
        cwd=Path(supervisor.__file__).parent,
        stderr=subprocess.PIPE,
    )
    assert held.wait(GUARD_S)
    deadline = time.monotonic() + GUARD_S
    while not (files.output.exists() and files.output.read_bytes().endswith(b"\n")):
        assert time.monotonic() < deadline, "the answer to the first line was never written"
        release.wait(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=GUARD_S)
    assert process.returncode == 130
    assert said == b"framehost batch: interrupted; 1 of 3 lines are written, and the same command goes on there\n"
    assert files.states() == ["a"]
    release.set()
    server.asked.clear()
    assert files.batch(server) == 0
    assert files.states() == ["a", "b", "c"]
    assert sorted(server.states()) == ["b", "c"]


def test_a_disk_that_is_full_stops_it(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 3: with room it goes on."""
    files.requests(["a"])

    def full(output: batch.Output, line: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(batch.Output, "write", full)
        assert files.batch(server) == 3
    assert "No space left on device; 0 of 1 lines are written" in capsys.readouterr().err
    assert files.batch(server) == 0


def test_an_output_that_is_no_file_is_refused(server: Server, files: Files) -> None:
    """What cannot be read again cannot be continued, and reading a device may never end."""
    files.requests(["a"])
    files.output.symlink_to("/dev/full")
    assert files.batch(server) == 2


def test_an_input_that_cannot_be_read_again_is_refused(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines are counted, compared and sent: of a pipe nothing would be left to send."""
    os.mkfifo(files.source)
    assert files.batch(server) == 2
    assert "in.jsonl: not a file" in capsys.readouterr().err


def test_an_input_that_shrinks_meanwhile_is_no_success(
    server: Server, files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0 means that every line that was there has its answer."""
    files.requests(["a", "b"])
    found = batch.Output.found

    def shrink(output: batch.Output, *arguments: Any) -> Any:
        files.requests(["a"])
        return found(output, *arguments)

    monkeypatch.setattr(batch.Output, "found", shrink)
    assert files.batch(server) == 3
    assert "1 of 2 lines are written" in capsys.readouterr().err


# A rerun knows its own lines


def test_other_questions_on_the_same_output_are_another_job(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, the first line that differs is named, nothing is asked, nothing is written; --overwrite begins anew."""
    files.source.write_text('"a"\n"b"\n')
    for name, question in (("one", {"q": {"type": "noul", "instructions": "so?"}}), ("two", {"p": {"type": "noul"}})):
        (files.folder / name).write_text(json.dumps(question))
    assert files.batch(server, "--questions", str(files.folder / "one")) == 0
    before, asked = files.output.read_bytes(), len(server.asked)
    capsys.readouterr()
    assert files.batch(server, "--questions", str(files.folder / "two")) == 2
    assert "line 1 answers another request than line 1 of" in capsys.readouterr().err
    assert (files.output.read_bytes(), len(server.asked)) == (before, asked)
    assert files.batch(server, "--questions", str(files.folder / "two"), "--overwrite") == 0
    assert [set(body["questions"]) for body in server.asked[asked:]] == [{"p"}, {"p"}]


def test_an_input_that_was_edited_is_another_job(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that was changed is named; one that was only added is asked."""
    files.requests(["a", "b", "c"])
    assert files.batch(server) == 0
    files.requests(["a", "b", "c", "d"])
    assert files.batch(server) == 0
    assert server.states()[3:] == ["d"]
    files.requests(["a", "other", "c", "d"])
    capsys.readouterr()
    assert files.batch(server) == 2
    assert "line 2 answers another request" in capsys.readouterr().err


def test_answers_of_other_weights_are_not_continued(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file holds the answers of one model: half of it by another one would look like the same."""
    files.requests(["a"])
    assert files.batch(server) == 0
    files.requests(["a", "b"])
    server.weights["m"] = "the second weights"
    capsys.readouterr()
    assert files.batch(server) == 2
    assert "was answered by other weights than 'm' has now" in capsys.readouterr().err
    server.weights.clear()  # a server that does not say
    assert files.batch(server) == 0


def test_weights_that_are_replaced_meanwhile_are_told(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every line is answered, and the status still is not 0."""
    files.requests(["a", "b"])

    def reply(body: Any) -> Answered:
        server.weights["m"] = "the second weights"
        return answer(body["state"])

    server.reply = reply
    assert files.batch(server) == 1
    assert "m was given other weights meanwhile" in capsys.readouterr().err


def test_errors_are_asked_again_in_their_places(server: Server, files: Files) -> None:
    """What was answered is not asked twice, and stays byte for byte."""
    files.requests(list("abcd"))
    server.reply = lambda body: (500, {}, b"no") if body["state"] in "bc" else answer(body["state"])
    assert files.batch(server) == 1
    before, asked = files.output.read_bytes().splitlines(), len(server.asked)
    files.requests(list("abcde"))
    server.reply = lambda body: (500, {}, b"still no") if body["state"] == "c" else answer(body["state"])
    files.output.chmod(0o640)
    assert files.batch(server, "--retry-errors") == 1
    assert sorted(server.states()[asked:]) == ["b", "c", "e"]
    after = files.output.read_bytes().splitlines()
    assert [line.get("error") for line in files.lines()] == [None, None, "still no", None, None]
    assert (after[0], after[3]) == (before[0], before[3])
    assert files.output.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in files.folder.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_a_line_that_was_mended_is_asked_again_in_its_place(server: Server, files: Files) -> None:
    """Nothing is lost by it; without --retry-errors it is another job, and so is an answer to another request."""
    files.source.write_text(json.dumps({"state": "a", "questions": QUESTIONS}) + "\nno JSON\n")
    server.reply = lambda body: answer(body["state"]) if isinstance(body, dict) else (422, {}, b"no JSON")
    assert files.batch(server) == 1
    files.requests(["a", "b"])
    assert files.batch(server) == 2
    assert files.batch(server, "--retry-errors") == 0
    assert files.states() == ["a", "b"]
    files.requests(["other", "b"])
    assert files.batch(server, "--retry-errors") == 2
    assert files.states() == ["a", "b"]


def test_a_link_to_the_answers_stays_one(server: Server, files: Files) -> None:
    """What it points to is replaced."""
    real = files.folder / "real.jsonl"
    files.output.symlink_to(real)
    files.requests(["a", "b"])
    server.reply = lambda body: (500, {}, b"no") if body["state"] == "b" else answer(body["state"])
    assert files.batch(server) == 1
    server.reply = lambda body: answer(body["state"])
    assert files.batch(server, "--retry-errors") == 0
    assert files.output.is_symlink()
    assert [json.loads(line)["response"]["x_state"] for line in real.read_text().splitlines()] == ["a", "b"]


def test_a_retry_that_is_stopped_keeps_everything(server: Server, files: Files) -> None:
    """What was retried is there, the rest is as it was."""
    files.requests(list("abcd"))
    server.reply = lambda body: (500, {}, b"no") if body["state"] in "bd" else answer(body["state"])
    assert files.batch(server) == 1
    server.reply = lambda body: (401, {}, b"no key") if body["state"] == "d" else answer(body["state"])
    assert files.batch(server, "--retry-errors", "--concurrency", "1") == 3
    assert [line.get("error") for line in files.lines()] == [None, None, None, "no"]


# Where lines come from and go to


def test_a_lines_id_is_copied_and_not_sent(server: Server, files: Files) -> None:
    """A text or a number, so that answers find their rows; anything else stays where it is."""
    lines: list[Any] = [
        {"id": "ticket-7", "state": "a", "questions": QUESTIONS},
        {"id": 8, "state": "b", "questions": QUESTIONS},
        {"id": ["x"], "state": "c", "questions": QUESTIONS},
    ]
    files.source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert files.batch(server) == 0
    assert [line.get("id") for line in files.lines()] == ["ticket-7", 8, None]
    assert [body.get("id") for body in sorted(server.asked, key=lambda body: body["state"])] == [None, None, ["x"]]


def test_a_byte_order_mark_is_no_part_of_the_first_line(server: Server, files: Files) -> None:
    """As some editors write it."""
    files.source.write_bytes(b"\xef\xbb\xbf" + json.dumps({"state": "a", "questions": QUESTIONS}).encode() + b"\n")
    assert files.batch(server) == 0
    assert server.states() == ["a"]


def rows(files: Files, content: str) -> list[str]:
    """The options for a CSV file of that content."""
    files.source = files.folder / "in.csv"
    files.source.write_bytes(content.encode())
    (files.folder / "questions.json").write_text(json.dumps(QUESTIONS))
    return ["--questions", str(files.folder / "questions.json")]


def test_rows_of_a_csv_file(server: Server, files: Files) -> None:
    """A column `state` is the state, else the row is; `id` is copied; quoted fields may hold commas and line breaks."""
    options = rows(files, '\ufeffid,state\r\n7,"a, b\nc"\r\n\r\n8,d\r\n')
    assert files.batch(server, *options) == 0
    assert [(line["line"], line["id"]) for line in files.lines()] == [(3, "7"), (5, "8")]
    assert files.states() == ["a, b\nc", "d"]
    files.output.unlink()
    assert files.batch(server, *rows(files, "id,subject,text\n1,hello,world\n")) == 0
    assert files.states() == [{"subject": "hello", "text": "world"}]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("a,b\n1\n", "line 2: 1 fields, and the first line names 2"),
        ("a,a\n1,2\n", "line 1: the columns need names"),
        ('a\n"1\n', "line 2: unexpected end of data"),
    ],
)
def test_a_csv_file_that_is_none(
    server: Server, files: Files, capsys: pytest.CaptureFixture[str], content: str, told: str
) -> None:
    """File and line; nothing is asked."""
    assert files.batch(server, *rows(files, content)) == 2
    assert told in capsys.readouterr().err
    assert server.asked == []


def test_a_csv_file_needs_questions(server: Server, files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are states."""
    rows(files, "state\na\n")
    assert files.batch(server) == 2
    assert "the questions come from --questions" in capsys.readouterr().err


def test_from_a_pipe_to_a_pipe(server: Server, files: Files) -> None:
    """`-` for both: nothing is kept, and standard output holds answers alone."""
    files.requests(["a", "b"])
    command = [sys.executable, "-m", "executor_host.supervision.entry", "batch", "-", "-", "--url", server.url]
    ended = subprocess.run(command, input=files.source.read_bytes(), capture_output=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line)["response"]["x_state"] for line in ended.stdout.splitlines()] == ["a", "b"]
    assert ended.stderr == b"framehost batch: 2 of 2 lines are written\n"


def test_a_pipe_to_a_file_goes_on_too(server: Server, files: Files) -> None:
    """The same lines come again; those that are answered are not asked."""
    files.requests(["a"])
    command = [sys.executable, "-m", "executor_host.supervision.entry", "batch", "-", str(files.output)]
    for count in (1, 2):
        files.requests(["a", "b"][:count])
        ended = subprocess.run(
            [*command, "--url", server.url],
            input=files.source.read_bytes(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    assert server.states() == ["a", "b"]


# One worker, on a clock of the test


class Waits:
    """A stop that never comes, whose waiting moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return False


def worker(url: str, waits: Waits, *, reached: bool = True, retry_s: float = 10.0) -> Worker:
    event = threading.Event()
    if reached:
        event.set()
    target = Target.of(url, {}, 5.0, retry_s)
    return Worker(target, waits, event, clock=lambda: waits.now)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "waited"), [("2", 2.0), ("0", 0.2), ("9999", 30.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0), ("", 1.0)]
)
def test_a_wait_is_what_the_server_said_within_bounds(server: Server, header: str, waited: float) -> None:
    """Whole seconds from a framehost; a proxy may say anything."""
    replies = iter([(503, {"Retry-After": header} if header else {}, b""), answer("a")])
    server.reply = lambda _: next(replies)
    waits = Waits()
    one = worker(server.url, waits, retry_s=100.0)
    assert one.ask(b'{"state": 1}').error is None
    assert waits.waits == [waited]
    one.close()


def test_a_server_that_stays_busy_is_an_error_of_the_line_after_the_budget(server: Server) -> None:
    """Tries at 0, 4 and 8 seconds; the next would be beyond ten."""
    server.reply = lambda _: (429, {"Retry-After": "4"}, b'{"detail": {"message": "full"}}')
    waits = Waits()
    one = worker(server.url, waits)
    outcome = one.ask(b'{"state": 1}')
    assert (outcome.status, outcome.error) == (429, "full")
    assert waits.waits == [4.0, 4.0]
    one.close()


def test_a_server_that_ends_before_its_first_answer_is_waited_for(files: Files) -> None:
    """A connection that was accepted is a server's; the next one is answered."""
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        lost = iter([True])

        def reply(body: Any) -> Answered:
            if next(lost, False):
                raise ConnectionAbortedError("the front is killed")
            return answer(body["state"])

        made.reply = reply
        files.requests(["a"])
        try:
            assert files.batch(made) == 0
        finally:
            made.shutdown()
            thread.join()
    assert files.states() == ["a"]


def test_a_server_that_goes_away_is_waited_for_within_the_budget() -> None:
    """It may be starting again. A line without any answer is no line of the output: the batch stops."""
    waits = Waits()
    with pytest.raises(Stopped, match="nothing answers"):
        worker("http://127.0.0.1:1", waits, retry_s=2.0).ask(b"{}")
    assert waits.waits == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_what_a_proxy_says_of_a_server_that_is_away_is_tried_again(server: Server, status: int) -> None:
    """nginx answers for a framehost that is started again, in HTML and without Retry-After."""
    replies = iter([(status, {}, b"<html>Bad Gateway</html>"), answer("a")])
    server.reply = lambda _: next(replies)
    waits = Waits()
    one = worker(server.url, waits)
    assert one.ask(b'{"state": 1}').error is None
    assert waits.waits == [1.0]
    one.close()


def test_a_deadline_of_the_servers_own_is_an_answer(server: Server) -> None:
    """The request had its time, and trying again would take as much of it."""
    server.reply = lambda _: (504, {}, b'{"detail": {"error_type": "timeout_error", "message": "too slow"}}')
    waits = Waits()
    one = worker(server.url, waits)
    outcome = one.ask(b'{"state": 1}')
    assert (outcome.status, outcome.error, waits.waits) == (504, "too slow", [])
    one.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_ends_the_batch_with_the_address(
    server: Server, files: Files, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be every line's, and following it would take the key to somebody else."""
    files.requests(["a", "b"])
    server.reply = lambda _: (status, {"Location": "https://elsewhere.example/v1/systemone"}, b"")
    assert files.batch(server, "--concurrency", "1") != 0
    assert "https://elsewhere.example/v1/systemone" in capsys.readouterr().err
    assert files.output.read_text() == "", "an empty error for each line says nothing"


def test_loopback_is_never_asked_through_a_proxy(server: Server, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    files.requests(["a"])
    assert files.batch(server) == 0
    assert files.states() == ["a"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_of_a_terminal_is_one_line() -> None:
    """How far, how fast, how long still, how many errors; what was done before counts as done and not as speed."""
    now = 0.0
    stream = Terminal()
    bar = ProgressBar(stream, 100, 40, clock=lambda: now)
    for _ in range(10):
        now += 0.5
        bar.advance(failed=now > 4.8)
    shown = stream.getvalue().split("\r\x1b[K")[-1]
    assert shown == f"{'█' * 12}{'░' * 12}  50%  50 of 100, 2/s, 0:00:25 left, 1 errors"
    bar.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_log_file_gets_no_progress() -> None:
    """It would be thousands of lines."""
    stream = io.StringIO()
    ProgressBar(stream, 2, 0).advance(failed=False)
    assert stream.getvalue() == ""
