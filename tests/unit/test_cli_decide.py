"""`framehost decide`: options to a question, an answer to lines, and errors that say what to do."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import supervisor
from frontend.cli import client, decide
from frontend.cli.terminal import short, width


def body(*arguments: str) -> dict[str, Any]:
    return decide.request_body(supervisor.parser().parse_args(["decide", *arguments]))


def test_a_choice_with_and_without_descriptions() -> None:
    """NAME=TEXT describes, NAME alone does not; the text may contain an equals sign."""
    made = body("--state", "s", "--ask", "which?", "--choice", "a=x=1", "--choice", "b", "--model", "m")
    assert made == {
        "model": "m",
        "state": "s",
        "questions": {
            "answer": {"type": "choice", "instructions": "which?", "criteria": {"a": "x=1", "b": None}},
        },
    }


def test_the_other_two_kinds() -> None:
    """Yes or no, with or without sides; levels in the order they were given."""
    assert body("--state", "s", "--ask", "so?", "--noul")["questions"]["answer"] == {
        "type": "noul",
        "instructions": "so?",
    }
    assert body("--state", "s", "--noul", "true=yes")["questions"]["answer"]["criteria"] == {"true": "yes"}
    assert body("--state", "s", "--score", "low", "--score", "high")["questions"]["answer"] == {
        "type": "score",
        "criteria": ["low", "high"],
    }


def test_a_state_from_a_file_and_from_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """@FILE and -, as curl has it."""
    (tmp_path / "state").write_text("from a file: é")
    assert body("--state", f"@{tmp_path / 'state'}", "--noul", "true=y")["state"] == "from a file: é"
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin"))
    assert body("--state", "-", "--noul", "true=y")["state"] == "from stdin"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--state", "s", "--noul", "true=y", "--question", "b", "--noul", "true=y"],
            "the first begins with --question",
        ),
        (["--state", "s", "--question", "b"], "--question b: give one of"),
        (["--state", "s", "--question", "", "--noul", "true=y"], "an id of its own"),
        (["--state", "s", *["--question", "b", "--noul", "true=y"] * 2], "an id of its own"),
        (["--state", "s", "--ask", "a", "--ask", "b", "--noul"], "give --ask once"),
        (["--state", "s", "--noul", "true=y", "--key-file", "/no/such"], "decide: /no/such: No such file"),
        (["--state", "s", "--noul", "true=y", "--key-file", os.devnull], "there is no API key in"),
        (["--state", "s", "--noul", "true=y", "--key-file", "/bin/ls"], "the API key in /bin/ls is not one line of"),
        (["--state", "s"], "give one of --choice, --noul and --score; example: --choice billing="),
        (["--state", "s", "--noul", "--score", "a"], "give one of"),
        (["--state", "s", "--choice", "=x"], "a name of its own"),
        (["--state", "s", "--choice", "a", "--choice", "a=x"], "a name of its own"),
        (["--state", "s", "--noul"], "--noul alone asks nothing: give the question with --ask"),
        (["--state", "s", "--noul", "true"], "--noul alone asks nothing"),
        (["--state", "s", "--noul", "true=a", "--noul", "true=b"], "a name of its own"),
        (["--state", "s\udcff", "--noul", "true=y"], "UTF-8"),
        (["--state", "s", "--noul", "true=y", "--url", "nowhere"], "is not an http address"),
        (["--state", "s", "--noul", "true=y", "--url", "http://127.0.0.1:x"], "is not an http address"),
        (["--state", "s", "--noul", "true=y", "--url", "http://[::1"], "is not an http address"),
        (["--state", "s", "--noul", "maybe=x"], "--noul takes true=TEXT and false=TEXT"),
        (["--state", "@there is no such file", "--noul", "true=y"], "there is no such file: No such file"),
        (["--state", "s", "--noul", "true=y", "--url", "ftp://127.0.0.1/"], "is not an http address"),
        (["--state", "s", "--noul", "true=y", "--url", "http://127.0.0.1:99999"], "is not an http address, as http"),
    ],
)
def test_options_that_make_no_question_are_exit_status_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr; nothing was sent."""
    assert supervisor.main(["decide", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("framehost decide: ")
    assert message in said.err


ANSWERS: dict[str, Any] = {
    "noul": {"type": "noul", "noul": 0.25},
    "choice": {
        "type": "choice",
        "choice": "billing",
        "confidence": 0.5,
        "probabilities": {"billing": 0.75, "bug": 0.25},
    },
    "score": {
        "type": "score",
        "score": 1.5,
        "confidence": 0.5,
        "legend": {"1": "low", "2": "a very long level " * 5},
        "probabilities": {"1": 0.5, "2": 0.5},
    },
}


def response(kind: str) -> dict[str, Any]:
    return {"model": "m", "answers": {"answer": ANSWERS[kind]}, "usage": {"input_tokens": 7, "output_tokens": 0}}


def test_an_answer_is_a_headline_bars_and_the_cost() -> None:
    """The whole rendering of a choice, as a person sees it."""
    assert decide.render(response("choice"), colour=False).splitlines() == [
        "billing  (confidence 0.50)",
        f"  billing  {'█' * 22}{'·' * 8}   75.0%",
        f"  bug      {'█' * 8}{'·' * 22}   25.0%",
        "  m, 7 tokens",
    ]


def test_the_best_row_stands_out_on_a_terminal() -> None:
    """Bold, and only there."""
    lines = decide.render(response("choice"), colour=True).splitlines()
    assert [line.startswith("\x1b[1m") for line in lines] == [False, True, False, False]


def test_a_probability_of_yes_is_an_answer() -> None:
    """Below a half it reads "no", with the number it came from."""
    lines = decide.render(response("noul"), colour=False).splitlines()
    assert lines[0] == "no  (P(yes) 0.250)"
    assert [line.split()[0] for line in lines[1:3]] == ["yes", "no"]


def test_long_levels_are_cut() -> None:
    """No row is wider than a terminal."""
    lines = decide.render(response("score"), colour=False).splitlines()
    assert lines[0] == "1.50  (confidence 0.50)"
    assert all(len(line) < 100 for line in lines)
    assert "…" in lines[2]


def test_several_questions_of_one_call() -> None:
    """What follows a --question is its own; the order is that of the line."""
    made = body(
        *("--state", "s", "--question", "team", "--ask", "which?", "--choice", "a", "--choice", "b=x"),
        *("--question", "refund", "--noul", "true=y", "--noul", "false=n"),
        *("--question", "harm", "--score", "low", "--score", "high"),
    )
    assert list(made["questions"].items()) == [
        ("team", {"type": "choice", "instructions": "which?", "criteria": {"a": None, "b": "x"}}),
        ("refund", {"type": "noul", "criteria": {"true": "y", "false": "n"}}),
        ("harm", {"type": "score", "criteria": ["low", "high"]}),
    ]


def test_several_answers_have_their_ids() -> None:
    """In the order of the answer, with one line of cost."""
    answers = {"refund": ANSWERS["noul"], "team": ANSWERS["choice"]}
    lines = decide.render({**response("noul"), "answers": answers}, colour=False).splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "refund: no  (P(yes) 0.250)",
        "team: billing  (confidence 0.50)",
    ]
    assert lines[-1] == "  m, 7 tokens"


def test_a_state_from_a_file_by_name_and_from_a_redirected_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may begin with an @; a terminal is not waited for."""
    (tmp_path / "@state").write_text("from a file")
    assert body("--state-file", str(tmp_path / "@state"), "--noul", "true=y")["state"] == "from a file"
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin"))
    assert body("--noul", "true=y")["state"] == "from stdin"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(decide.UsageError, match="--state-file, or on stdin"):
        body("--noul", "true=y")


@pytest.mark.parametrize(
    ("name", "cells"), [("日本語", 6), ("e\u0301te\u0301", 3), ("👍", 2), ("한국어 옵션", 11), ("zero\u0301", 4)]
)
def test_columns_stay_where_characters_are_wide_or_have_no_width(name: str, cells: int) -> None:
    """Two cells for a wide character, none for a mark: the bars begin below each other."""
    answer = {"type": "choice", "choice": name, "confidence": 0.5, "probabilities": {name: 0.75, "billing": 0.25}}
    lines = decide.render({**response("choice"), "answers": {"answer": answer}}, colour=False).splitlines()
    column = max(cells, len("billing"))
    assert lines[1].startswith(f"  {name}{' ' * (column - cells)}  █")
    assert lines[2].startswith(f"  billing{' ' * (column - len('billing'))}  █")


def test_wide_names_are_cut_by_their_cells() -> None:
    """Forty cells are twenty wide characters."""
    cut = short("漢" * 50)
    assert width(cut) <= 40
    assert cut.endswith("漢…")
    assert short("漢" * 20) == "漢" * 20


class Reply(BaseHTTPRequestHandler):
    reply: tuple[int, bytes] = (200, b"{}")
    asked: list[Any]

    def do_POST(self) -> None:
        type(self).asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        status, content = type(self).reply
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url() -> Iterator[str]:
    Reply.asked = []
    with HTTPServer(("127.0.0.1", 0), Reply) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_answer_is_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; the request went to the one route there is, with or without a slash in the address."""
    Reply.reply = (200, json.dumps(response("noul")).encode())
    assert supervisor.main(["decide", "--url", url + "/", "--state", "s", "--noul", "true=y"]) == 0
    assert capsys.readouterr().out.startswith("no  (P(yes) 0.250)\n")
    assert Reply.asked == [
        ("/v1/systemone", {"state": "s", "questions": {"answer": {"type": "noul", "criteria": {"true": "y"}}}})
    ]


def test_json_is_printed_as_it_came(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: the bytes of the server, unchanged."""
    Reply.reply = (200, b'{ "answers" : 1 }')
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y", "--json"]) == 0
    assert capsys.readouterr().out == '{ "answers" : 1 }\n'


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (
            422,
            b'{"detail": [{"loc": ["body", "state"], "msg": "is missing", "type": "missing"}]}',
            "422: body.state: is missing",
        ),
        (503, b'{"detail": {"error_type": "x", "message": "model is restarting"}}', "503: model is restarting"),
        (502, b"<html>Bad Gateway</html>", "502: <html>Bad Gateway</html>"),
        (500, b"[1]", "500: [1]"),
        (500, b"\xff", "500: \ufffd"),
    ],
)
def test_what_the_server_says_is_shown(
    url: str, status: int, content: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1 and the server's own sentence, whichever error shape it used."""
    Reply.reply = (status, content)
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 1
    assert capsys.readouterr().err == f"framehost decide: {message}\n"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_loopback_is_never_asked_through_a_proxy(url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy elsewhere does not know this machine's own servers."""
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    Reply.reply = (200, json.dumps(response("noul")).encode())
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 0


class Away(BaseHTTPRequestHandler):
    """Sends everybody to `place`."""

    place = ""
    status = 307

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Location", self.place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_key_is_never_sent_to_another_address(
    url: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is told, for whoever knows whether it can be trusted; nothing is asked there."""
    monkeypatch.setenv("FRAMEHOST_API_KEY", "a-key-that-is-long-enough")
    Away.place, Away.status = f"{url}/v1/systemone", status
    with HTTPServer(("127.0.0.1", 0), Away) as away:
        thread = threading.Thread(target=away.serve_forever, args=(0.01,))
        thread.start()
        asked = ["decide", "--url", f"http://127.0.0.1:{away.server_port}", "--state", "s", "--noul", "true=y"]
        assert supervisor.main(asked) == 1
        away.shutdown()
        thread.join()
    said = capsys.readouterr().err
    assert f"{status}: " in said
    assert f"{url}/v1/systemone" in said
    assert Reply.asked == []


@pytest.mark.parametrize("content", [b"", b"not json", b"{}", b'{"answers": {}}', b"[]", b'{"answers": {"answer": 1}}'])
def test_an_answer_that_is_none_is_an_error(url: str, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Something else listens there, or another version: exit 1 with one line, never a traceback."""
    Reply.reply = (200, content)
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("framehost decide: ")
    assert said.count("\n") == 1


def test_a_state_file_that_is_no_text_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and one line."""
    (tmp_path / "state").write_bytes(b"\xff\xfe")
    assert supervisor.main(["decide", "--state", f"@{tmp_path / 'state'}", "--noul", "true=y"]) == 2
    assert "UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", ["-1", "0", "nan", "inf", "1e10", "x"])
def test_a_timeout_that_is_none_is_a_usage_error(timeout: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Said by the parser, before anything is asked."""
    with pytest.raises(SystemExit) as ended:
        supervisor.main(["decide", "--state", "s", "--noul", "true=y", f"--timeout={timeout}"])
    assert ended.value.code == 2
    assert "is not seconds above 0" in capsys.readouterr().err


def test_a_strangers_page_is_one_short_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A proxy's error page, with its line breaks and more."""
    Reply.reply = (404, b"<html>\n" + b"<p>\x1b[2J no such page</p>\n" * 100)
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("framehost decide: 404: <html> <p>\\x1b[2J no")
    assert said.count("\n") == 1
    assert len(said) < 150


@pytest.mark.parametrize("p", [-0.1, 1.1, 1e12, float("nan"), float("inf")])
def test_a_probability_that_is_none_is_an_error(url: str, p: float, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be a bar of any length."""
    answer = {**response("noul"), "answers": {"answer": {"type": "noul", "noul": p}}}
    Reply.reply = (200, json.dumps(answer).encode())
    assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 1
    assert "is no framehost of this version" in capsys.readouterr().err


def test_control_characters_are_shown_and_the_columns_stay() -> None:
    """An option's name may hold anything; it must not move the cursor."""
    names = {"a\x1b[2J\nb": 0.75, "b": 0.25}
    answer = {"type": "choice", "choice": "a\x1b[2J\nb", "confidence": 0.5, "probabilities": names}
    lines = decide.render({**response("choice"), "answers": {"answer": answer}}, colour=False).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("a\\x1b[2J\\nb  (")
    assert len(lines[1]) == len(lines[2])


def decided(url: str, redirection: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a shell starts it."""
    command = (
        f"{sys.executable} -m executor_host.supervision.entry decide --url {url} --state s --noul true=y {redirection}"
    )
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=Path(supervisor.__file__).parent,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
    )


def test_where_there_are_no_bars_they_are_ascii(url: str) -> None:
    """Also names that cannot be written are readable."""
    Reply.reply = (200, json.dumps({**response("noul"), "model": "é"}).encode())
    ended = decided(url, "", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"######" in ended.stdout
    assert b"\\xe9, 7 tokens" in ended.stdout


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [(">&-", 0, b""), ("| (exec <&-; sleep 1)", 1, b""), (">/dev/full", 1, b"the answer cannot be printed")],
)
def test_a_stdout_that_takes_nothing_is_no_traceback(url: str, redirection: str, status: int, said: bytes) -> None:
    """Closed, a reader that has left, a full disk."""
    Reply.reply = (200, json.dumps(response("noul")).encode())
    ended = decided(url, redirection)
    assert ended.returncode == status
    assert ended.stderr.count(b"\n") == (1 if said else 0), ended.stderr
    assert said in ended.stderr


def test_nobody_there_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The most common error of all."""
    assert supervisor.main(["decide", "--url", "http://127.0.0.1:1", "--state", "s", "--noul", "true=y"]) == 1
    said = capsys.readouterr().err
    assert "nothing answers at http://127.0.0.1:1 (Connection refused)" in said
    assert "framehost serve" in said


def test_an_address_that_speaks_no_tls_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    """https by habit: somebody answers there, and not in TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        assert supervisor.main(["decide", "--url", url, "--state", "s", "--noul", "true=y"]) == 1
        thread.join()
    assert f"no TLS connection to {url} (WRONG_VERSION_NUMBER)" in capsys.readouterr().err


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_the_address_may_end_as_the_sdks_want_it(end: str) -> None:
    """Who copies the base URL of the OpenAI client means the same server."""
    assert client.endpoint(f"http://127.0.0.1:8080/judge{end}") == "http://127.0.0.1:8080/judge/v1/systemone"


def test_a_server_that_is_slow_is_not_said_to_be_away(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever believed that would start a second one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = ["--url", url, "--timeout", "0.01", "--state", "s", "--noul", "true=y"]
        assert supervisor.main(["decide", *options]) == 1
    assert capsys.readouterr().err == f"framehost decide: no answer from {url} within the --timeout of 0.01 s\n"


def test_status_of_nothing_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`framehost status` for a port nobody serves: exit 1, and the command that would."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert supervisor.main(["status", "--port", "4711"]) == 1
    assert "framehost serve --port 4711" in capsys.readouterr().err
