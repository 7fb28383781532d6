"""`framehost eval` against a server of the test's own: any that speaks System One will do."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import supervisor

pytestmark = pytest.mark.slow  # a server of its own, and the whole command, each time

TEAM = {"type": "choice", "criteria": {"billing": "money", "bug": "broken"}}
REFUND = {"type": "noul", "criteria": {"true": "wants it", "false": "does not"}}
HARM = {"type": "score", "criteria": ["none", "some", "much"]}
CASES = [
    {"state": "charged twice", "questions": {"team": TEAM}, "expect": {"team": "billing"}},
    {"state": "it crashes", "questions": {"team": TEAM}, "expect": {"team": "bug"}},
    {"state": "money back", "questions": {"refund": REFUND}, "expect": {"refund": True}},
    {"state": "all is lost", "questions": {"harm": HARM}, "expect": {"harm": 2}},
]
TEXTS = {"charged twice": 0, "it crashes": 1, "money back": 0, "all is lost": 2}
"""Which candidate is right."""

Reply = Callable[[dict[str, Any]], tuple[int, Any]]


def answered(body: dict[str, Any], sure: float = 0.8, *, first: bool = False) -> tuple[int, Any]:
    """The right answers with probability `sure`; with `first`, always the first candidate."""
    answers: dict[str, Any] = {}
    for name, question in body["questions"].items():
        names = list(question["criteria"]) if question["type"] != "score" else ["0", "1", "2"]
        if question["type"] == "noul":
            answers[name] = {"type": "noul", "noul": sure}
            continue
        rank = {"billing": 0, "bug": 1}
        order = [rank.get(one, place) for place, one in enumerate(names)]
        best = 0 if first else order.index(min(TEXTS[body["state"]], max(order)))
        rest = (1 - sure) / (len(names) - 1)
        values = {one: sure if place == best else rest for place, one in enumerate(names)}
        answers[name] = {"type": question["type"], "probabilities": values}
    return 200, {"model": body["model"], "answers": answers, "usage": {}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.models: dict[str, Reply] = {}
        self.aliases: dict[str, str] = {}
        self.lists = True
        self.asked: list[Any] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        name = unquote(self.path.removeprefix("/v1/models").removeprefix("/"))
        if not self.server.lists:
            self._send(404, {"detail": {"message": "no such route"}})
        elif not name:
            self._send(200, {"data": [{"id": one} for one in self.server.models]})
        elif name in self.server.models or name in self.server.aliases:
            self._send(200, {"id": self.server.aliases.get(name, name)})
        else:
            self._send(404, {"error": {"message": "no such model"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        name = self.server.aliases.get(body["model"], body["model"])
        reply = self.server.models.get(name)
        self._send(*(reply(body) if reply else (404, {"detail": {"message": "Unknown model"}})))

    def _send(self, status: int, document: Any) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
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


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    file = tmp_path / "gold.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return file


def run(server: Server, gold: Path, *options: str) -> int:
    return supervisor.main(["eval", str(gold), "--url", server.url, *options])


def found(server: Server, gold: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run(server, gold, "--json", *options) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_all_models_are_measured_and_compared(server: Server, gold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right and wrong, the interval, calibration, thresholds, and who is right where the other is not."""
    server.models = {"good": answered, "first": lambda body: answered(body, 0.9, first=True)}
    report = found(server, gold, capsys)
    good, first = report["models"]["good"], report["models"]["first"]
    assert (good["right"], good["expected"], good["accuracy"]) == (4, 4, 1.0)
    assert good["interval_95"][0] == pytest.approx(0.5101, abs=1e-4)
    assert good["calibration_error"] == pytest.approx(0.2)
    assert good["precision"] == {"wanted": 0.95, "threshold": pytest.approx(0.8), "answers": 4}
    assert good["thresholds"][3] == [0.8, 4, 4]
    assert first["right"] == 2
    assert [(one["line"], one["said"], one["expected"]) for one in first["wrong"]] == [
        (2, "billing", "bug"), (4, "0", "2"),
    ]  # fmt: skip
    (pair,) = report["pairs"]
    assert (pair["models"], pair["first_alone"], pair["second_alone"]) == (["good", "first"], 2, 0)


def test_order_and_company_are_tried(server: Server, gold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that takes the first option whatever it is changes every winner of a choice; one that looks at the
    number of questions changes its probabilities. Without the checks each line is asked once."""
    server.models = {
        "first": lambda body: answered(body, 0.9, first=True),
        "distracted": lambda body: answered(body, 0.8 if len(body["questions"]) == 1 else 0.7),
    }
    report = found(server, gold, capsys)
    first, distracted = report["models"]["first"], report["models"]["distracted"]
    assert first["turned"] == {"compared": 2, "winners": 2, "largest": pytest.approx(0.8)}
    assert first["accompanied"] == {"compared": 4, "winners": 0, "largest": 0.0}
    assert distracted["turned"]["winners"] == 0
    assert distracted["accompanied"] == {"compared": 4, "winners": 0, "largest": pytest.approx(0.1)}
    server.asked.clear()
    assert found(server, gold, capsys, "--no-checks", "--model", "first")["models"]["first"]["turned"] is None
    assert len(server.asked) == 4


def test_lines_without_an_answer_count_as_wrong(server: Server, gold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal is told with its line, and so is a 200 that is no answer; the rest is measured."""

    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        if body["state"] == "it crashes":
            return 422, {"detail": [{"loc": ["body"], "msg": "no"}]}
        if body["state"] == "money back":
            return 200, {"answers": {"refund": {"type": "noul", "noul": 7}}}
        return answered(body)

    server.models = {"m": reply}
    model = found(server, gold, capsys, "--min-accuracy", "0.5")["models"]["m"]
    assert (model["right"], model["expected"]) == (2, 4)
    assert model["unanswered"]["2"] == "422: body: no"
    assert "no probabilities" in model["unanswered"]["3"]


def test_a_model_below_the_minimum_is_status_1(server: Server, gold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And is named; the tables are printed all the same, with every wrong answer."""
    server.models = {"good": answered, "first": lambda body: answered(body, 0.9, first=True)}
    assert run(server, gold, "--min-accuracy", "0.75") == 1
    shown = capsys.readouterr()
    assert shown.err == "framehost eval: below 75%: first\n"
    assert "good   4 of 4  100.0%" in shown.out
    assert "good is right on 2 that first misses, first on 0 that good misses" in shown.out
    assert "line 2             team      billing  0.900  bug" in shown.out
    assert run(server, gold, "--min-accuracy", "0.5") == 0


def test_a_temperature_is_proposed(server: Server, gold: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model that is right and unsure: below 1."""
    server.models = {"m": answered}
    fit = found(server, gold, capsys, "--fit")["models"]["m"]
    assert fit["fit"]["temperature"] < 0.1
    assert fit["fit"]["log_loss"] < fit["log_loss"]


def test_a_diagram_is_drawn(server: Server, gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every model, in the format of its ending; an ending that is none is said in one line."""
    server.models = {"m": answered}
    assert run(server, gold, "--plot", str(tmp_path / "out.png")) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert run(server, gold, "--plot", str(tmp_path / "bare")) == 0
    assert (tmp_path / "bare.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_written_is_said_before_anything_is_asked(
    server: Server, gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder, a folder in its place, no format, a file that may not be written, no matplotlib. The check itself
    leaves nothing."""
    server.models = {"m": answered}
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "kept.png").write_bytes(b"old")
    before = sorted(tmp_path.iterdir())

    def refused(place: Path, words: str) -> None:
        assert run(server, gold, "--plot", str(place)) == 2
        assert words in capsys.readouterr().err

    refused(tmp_path / "none" / "p", f"{tmp_path}/none/p.png cannot be written: No such file")
    refused(tmp_path / "folder.png", "is a folder")
    refused(tmp_path / "folder", "folder.png is a folder")
    refused(tmp_path / "out.nothing", "out.nothing: 'nothing' is no format")
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda *_, **__: False)
        refused(tmp_path / "kept.png", "kept.png cannot be written: Permission denied")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
        refused(tmp_path / "out.png", "a plot needs matplotlib")
    assert server.asked == []
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "kept.png").read_bytes() == b"old"


def test_a_model_that_the_server_does_not_have_is_said_before_anything_is_asked(
    server: Server, gold: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the names that there are; one wrong name among right ones is enough."""
    server.models = {"org/good": answered, "first": answered}
    assert run(server, gold, "--model", "misspelt") == 2
    assert run(server, gold, "--model", "org/good", "--model", "mis/spelt?", "--model", "\udcff") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"framehost eval: there is no model 'misspelt' at {server.url}; there are: org/good, first"
    assert "no model 'mis/spelt?', '\\udcff' at" in second
    assert server.asked == []


def test_an_alias_and_a_model_of_a_server_without_a_listing_are_asked(
    server: Server, gold: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An alias is in no listing, and the server knows it. A server that lists nothing is asked for what is named."""
    server.models, server.aliases = {"org/good": answered}, {"jev-latest": "org/good"}
    report = found(server, gold, capsys, "--model", "jev-latest", "--model", "org/good")
    assert [report["models"][name]["right"] for name in ("jev-latest", "org/good")] == [4, 4]
    server.lists = False
    assert found(server, gold, capsys, "--model", "org/good")["models"]["org/good"]["right"] == 4
    assert run(server, gold) == 3
    server.models, server.lists = {}, True
    assert run(server, gold) == 3
    assert "lists no model; name one with --model" in capsys.readouterr().err


def test_a_model_that_answers_no_line_is_not_measured(
    server: Server, gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1 and words, beside one that is measured, too; no accuracy, pair or diagram of what is not there."""
    server.models = {"good": answered, "silent": lambda _: (422, {"detail": [{"loc": ["body"], "msg": "no"}]})}
    assert run(server, gold, "--model", "silent", "--plot", str(tmp_path / "out.png")) == 1
    shown = capsys.readouterr()
    assert shown.err == "framehost eval: no line was answered by silent\n"
    assert "silent  no answer to 4" in shown.out
    assert "line 1: 422: body: no" in shown.out
    assert "0.0%" not in shown.out
    assert not (tmp_path / "out.png").exists()
    assert run(server, gold, "--json", "--min-accuracy", "0.9") == 1
    shown = capsys.readouterr()
    assert shown.err == "framehost eval: no line was answered by silent\n"
    assert json.loads(shown.out)["pairs"] == []


def test_mistakes_are_said_in_one_line(
    server: Server, gold: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong file, an address that is none, nobody there, a key that is not valid."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert run(server, bad) == 2
    assert supervisor.main(["eval", str(tmp_path / "none"), "--url", server.url]) == 2
    assert supervisor.main(["eval", str(gold), "--url", "nowhere"]) == 2
    assert supervisor.main(["eval", str(gold), "--url", "http://127.0.0.1:9", "--model", "m"]) == 3
    assert supervisor.main(["eval", str(gold), "--url", "http://127.0.0.1:9"]) == 3
    server.models = {"m": lambda body: (401, {"detail": {"message": "no key"}})}
    assert run(server, gold) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("framehost eval: ") for line in lines)
    assert "line 1: it has no questions" in lines[0]
    assert lines[5] == "framehost eval: 401: no key"
