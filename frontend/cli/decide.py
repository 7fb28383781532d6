"""`framehost decide`: one decision from the command line, over HTTP, with the standard library alone."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any

from frontend.cli import client, ways
from frontend.cli.client import MAX_STRANGE_CHARS, UsageError
from frontend.cli.terminal import padded, short, visible, width

BAR_CELLS = 30
IN_ASCII = str.maketrans({"█": "#", "·": ".", "…": "~"})
ONLY = "answer"
"""The id of a question that was given none."""
EXAMPLE = "--choice billing='a charge, an invoice or a refund' --choice bug='something is broken'"


class _Part(argparse.Action):
    """Keeps options in the order they came: what follows a --question belongs to it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        namespace.parts = [*namespace.parts, (self.dest, values)]


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    decide = commands.add_parser(
        "decide",
        help="ask a running server",
        description="Ask a running server about one state. Write the criteria out: small models live from them. "
        "Several questions: begin each with --question ID. Exit status: 0 answered; 1 not answered, and why; 2 a "
        "mistake in the options.",
        epilog=f"example: framehost decide --state 'I was charged twice' {EXAMPLE}",
    )
    decide.set_defaults(run=run, parts=[])
    state = decide.add_mutually_exclusive_group()
    state.add_argument(
        "--state", help="the text to decide about; @FILE reads a file, - reads stdin (default: stdin, if redirected)"
    )
    state.add_argument("--state-file", metavar="FILE", help="the same as --state @FILE")
    decide.add_argument("--question", action=_Part, metavar="ID", help="what follows is the question of this id")
    decide.add_argument("--ask", action=_Part, metavar="TEXT", help="the question (instructions)")
    decide.add_argument("--choice", action=_Part, metavar="NAME[=TEXT]", help="an option; repeat it for every option")
    decide.add_argument("--noul", nargs="*", action=_Part, metavar="SIDE=TEXT",
        help="yes or no: true=TEXT and false=TEXT say what each side means; with --ask, neither is needed",
    )  # fmt: skip
    decide.add_argument(
        "--score", action=_Part, metavar="TEXT", help="a level; repeat it for every level, lowest first"
    )
    decide.add_argument("--model", default=None, help="which model (default: the server's)")
    client.add_options(decide)
    decide.add_argument("--json", action="store_true", help="print the response body as it came")


def run(arguments: argparse.Namespace) -> int:
    """Print the answer; exit status 1 when there is none, 2 when the options are wrong."""
    try:
        request = _request(arguments)
    except (UsageError, OSError) as error:
        return _say(client.told(error), 2)
    except UnicodeError:
        return _say("the options and the state have to be UTF-8 text", 2)
    try:
        status, content, moved = _ask(request, arguments.timeout)
    except (InvalidURL, ValueError):
        return _say(f"{arguments.url} is not an http address", 2)
    except HTTPException as error:
        return _no_answer(arguments.url, error)
    except OSError as error:
        if isinstance(getattr(error, "reason", error), TimeoutError):
            return _say(f"no answer from {arguments.url} within the --timeout of {arguments.timeout:g} s", 1)
        return _say(f"{client.unreachable(arguments.url, error)}; start a server with: framehost serve", 1)
    if status != 200:
        return _say(moved or f"{status}: {client.said(content)}", 1)
    if arguments.json:
        return _write(content)
    try:
        text = render(json.loads(content), colour=sys.stdout is not None and sys.stdout.isatty())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return _no_answer(arguments.url, error)
    return _write(_encoded(text))


def _request(arguments: argparse.Namespace) -> urllib.request.Request:
    content = json.dumps(request_body(arguments), ensure_ascii=False).encode()
    address = client.endpoint(arguments.url)
    return urllib.request.Request(address, content, client.headers(arguments.key_file))  # noqa: S310 - it is http


def _ask(request: urllib.request.Request, timeout: float) -> tuple[int, bytes, str]:
    """Status and body of whatever answers, and what to say if that sends us elsewhere."""
    try:
        with ways.opener(request.full_url).open(request, timeout=timeout) as response:
            return response.status, response.read(), ""
    except urllib.error.HTTPError as error:
        with error:
            moved = ways.elsewhere(error.code, error.headers) if error.code in ways.REDIRECTS else ""
            return error.code, error.read(), moved


def _encoded(text: str) -> bytes:
    """For stdout as it is: where it has no bars, they are drawn in ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(IN_ASCII).encode(encoding, "backslashreplace")


def _write(content: bytes) -> int:
    """Print and return the exit status. A reader that has left needs no word about it."""
    if sys.stdout is None:
        return 0  # closed by our parent
    try:
        sys.stdout.buffer.write(content + b"\n")
        sys.stdout.flush()
    except OSError as error:
        # What is still buffered would raise again at the exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1 if isinstance(error, BrokenPipeError) else _say(f"the answer cannot be printed: {error}", 1)
    return 0


def _say(text: str, status: int) -> int:
    """One line on stderr, whatever is in the text."""
    print(f"framehost decide: {visible(text)}", file=sys.stderr)
    return status


def _no_answer(url: str, error: Exception) -> int:
    why = f"{type(error).__name__}: {short(str(error), MAX_STRANGE_CHARS)}"
    return _say(f"what answers at {url} is no framehost of this version ({why})", 1)


def request_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """The System One body of the options. Raises `UsageError`."""
    body: dict[str, Any] = {"questions": _questions(arguments.parts), "state": _state(arguments)}
    if arguments.model is not None:
        body["model"] = arguments.model
    return body


def _questions(parts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The questions by id, from the options in their order."""
    found: dict[str, list[tuple[str, Any]]] = {}
    current = ONLY
    for kind, value in parts:
        if kind != "question":
            found.setdefault(current, []).append((kind, value))
            continue
        if current == ONLY and ONLY in found:
            raise UsageError("with several questions, the first begins with --question as well")
        if not value or value in found:
            raise UsageError(f"--question {value!r}: every question needs an id of its own")
        current = value
        found[current] = []
    return {name: _question(name, options) for name, options in (found or {ONLY: []}).items()}


def _question(name: str, options: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    given: dict[str, list[Any]] = {}
    for kind, value in options:
        given.setdefault(kind, []).extend(value if kind == "noul" else [value])
    where = "" if name == ONLY else f"--question {name}: "
    asked = given.pop("ask", [])
    if len(asked) > 1:
        raise UsageError(f"{where}give --ask once; several questions begin with --question")
    if len(given) != 1:
        raise UsageError(f"{where}give one of --choice, --noul and --score; example: {EXAMPLE}")
    ((kind, values),) = given.items()
    question: dict[str, Any] = {"type": kind}
    if asked:
        question["instructions"] = asked[0]
    if kind == "choice":
        question["criteria"] = _described(values)
    elif kind == "score":
        question["criteria"] = values
    elif values:
        question["criteria"] = _described(values)
        if not question["criteria"].keys() <= {"true", "false"}:
            raise UsageError(f"{where}--noul takes true=TEXT and false=TEXT")
    if kind == "noul" and not asked and not any(question.get("criteria", {}).values()):
        raise UsageError(f"{where}--noul alone asks nothing: give the question with --ask, or true=TEXT and false=TEXT")
    return question


def _described(options: list[str]) -> dict[str, str | None]:
    described: dict[str, str | None] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not name or name in described:
            raise UsageError(f"{option!r}: every option needs a name of its own")
        described[name] = text if equals else None
    return described


def _state(arguments: argparse.Namespace) -> str:
    if arguments.state_file is not None:
        return Path(arguments.state_file).read_text(encoding="utf-8")
    if arguments.state is None:
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("give the text to decide about with --state or --state-file, or on stdin")
        return sys.stdin.read()
    if arguments.state == "-":
        return sys.stdin.read()
    if arguments.state.startswith("@"):
        return Path(arguments.state[1:]).read_text(encoding="utf-8")
    return str(arguments.state)


def render(response: dict[str, Any], *, colour: bool) -> str:
    """The answers with bars, for people; more than one has its question's id in front."""
    answers = response["answers"]
    lines: list[str] = []
    for name, answer in answers.items():
        lines += _answer("" if answers.keys() == {ONLY} else f"{visible(name)}: ", answer, colour=colour)
    lines.append(f"  {visible(response['model'])}, {response['usage']['input_tokens']} tokens")
    return "\n".join(lines)


def _answer(title: str, answer: dict[str, Any], *, colour: bool) -> list[str]:
    if answer["type"] == "noul":
        rows = [("yes", answer["noul"]), ("no", 1 - answer["noul"])]
        head = f"{'yes' if answer['noul'] >= 0.5 else 'no'}  (P(yes) {answer['noul']:.3f})"
    elif answer["type"] == "choice":
        rows = list(answer["probabilities"].items())
        head = f"{visible(answer['choice'])}  (confidence {answer['confidence']:.2f})"
    else:
        rows = [(f"{key} {short(answer['legend'][key])}", p) for key, p in answer["probabilities"].items()]
        head = f"{answer['score']:.2f}  (confidence {answer['confidence']:.2f})"
    if not all(0 <= p <= 1 for _, p in rows):
        raise ValueError("a probability is not in 0..1")
    rows = [(short(name), p) for name, p in rows]
    cells = max(width(name) for name, _ in rows)
    best = max(p for _, p in rows)
    lines = [title + head]
    for name, p in rows:
        full = round(p * BAR_CELLS)
        line = f"  {padded(name, cells)}  {'█' * full}{'·' * (BAR_CELLS - full)}  {p:6.1%}"
        lines.append(f"\x1b[1m{line}\x1b[0m" if colour and p == best else line)
    return lines
