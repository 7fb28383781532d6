"""`framehost decide`: one decision from the command line, over HTTP, with the standard library alone."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from http.client import HTTPException, InvalidURL
from pathlib import Path
from typing import Any

BAR_CELLS = 30
IN_ASCII = str.maketrans({"█": "#", "·": ".", "…": "~"})
MAX_TIMEOUT_S = 86_400
MAX_STRANGE_CHARS = 100
"""How much of an answer that is not framehost's is shown."""
EXAMPLE = "--choice billing='a charge, an invoice or a refund' --choice bug='something is broken'"


class UsageError(Exception):
    """The options do not make a question; the text says which."""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    decide = commands.add_parser(
        "decide",
        help="ask a running server one question",
        description="Ask a running server one question. Write the criteria out: small models live from them.",
        epilog=f"example: framehost decide --state 'I was charged twice' {EXAMPLE}",
    )
    decide.add_argument("--state", required=True, help="the text to decide about; @FILE reads a file, - reads stdin")
    decide.add_argument("--ask", default=None, metavar="TEXT", help="the question (instructions)")
    decide.add_argument(
        "--choice", action="append", metavar="NAME[=TEXT]", help="an option; repeat it for every option"
    )
    decide.add_argument("--noul", nargs="*", action="extend", metavar="SIDE=TEXT",
        help="yes or no: true=TEXT and false=TEXT say what each side means; with --ask, neither is needed",
    )  # fmt: skip
    decide.add_argument(
        "--score", action="append", metavar="TEXT", help="a level; repeat it for every level, lowest first"
    )
    decide.add_argument("--model", default=None, help="which model (default: the server's)")
    decide.add_argument("--url", default="http://127.0.0.1:8080", help="the server (default %(default)s)")
    decide.add_argument("--timeout", type=seconds, default=30.0, metavar="S", help="seconds (default %(default)s)")
    decide.add_argument("--json", action="store_true", help="print the response body as it came")
    decide.set_defaults(run=run)


def seconds(text: str) -> float:
    """A time to wait, as an option. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds above 0 and at most {MAX_TIMEOUT_S}")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Print the answer; exit status 1 when there is none, 2 when the options are wrong."""
    try:
        request = _request(arguments)
    except (UsageError, OSError) as error:
        return _say(str(error), 2)
    except UnicodeError:
        return _say("the options and the state have to be UTF-8 text", 2)
    try:
        status, content = _ask(request, arguments.timeout)
    except (InvalidURL, ValueError):
        return _say(f"{arguments.url} is not an http address", 2)
    except HTTPException as error:
        return _no_answer(arguments.url, error)
    except OSError as error:
        reason = getattr(error, "reason", error)
        return _say(f"nothing answers at {arguments.url} ({reason}); start a server with: framehost serve", 1)
    if status != 200:
        return _say(f"{status}: {_message(content)}", 1)
    if arguments.json:
        return _write(content)
    try:
        text = render(json.loads(content), colour=sys.stdout is not None and sys.stdout.isatty())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return _no_answer(arguments.url, error)
    return _write(_encoded(text))


def _request(arguments: argparse.Namespace) -> urllib.request.Request:
    content = json.dumps(request_body(arguments), ensure_ascii=False).encode()
    address = arguments.url.rstrip("/") + "/v1/systemone"
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked below
            address, data=content, headers={"Content-Type": "application/json"}
        )
    except ValueError:
        request = None
    if request is None or request.type not in ("http", "https"):
        raise UsageError(f"{arguments.url} is not an http address")
    return request


def _ask(request: urllib.request.Request, timeout: float) -> tuple[int, bytes]:
    """Status and body of whatever answers."""
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


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
        return 0  # closed by whoever started us
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
    print(f"framehost decide: {_visible(text)}", file=sys.stderr)
    return status


def _no_answer(url: str, error: Exception) -> int:
    why = f"{type(error).__name__}: {_short(str(error), MAX_STRANGE_CHARS)}"
    return _say(f"what answers at {url} is no framehost of this version ({why})", 1)


def request_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """The System One body of the options. Raises `UsageError`."""
    kinds = [kind for kind in ("choice", "noul", "score") if getattr(arguments, kind) is not None]
    if len(kinds) != 1:
        raise UsageError(f"give one of --choice, --noul and --score; example: {EXAMPLE}")
    kind = kinds[0]
    question: dict[str, Any] = {"type": kind}
    if arguments.ask is not None:
        question["instructions"] = arguments.ask
    if kind == "choice":
        question["criteria"] = _described(arguments.choice)
    elif kind == "score":
        question["criteria"] = arguments.score
    elif arguments.noul:
        question["criteria"] = _described(arguments.noul)
        if not question["criteria"].keys() <= {"true", "false"}:
            raise UsageError("--noul takes true=TEXT and false=TEXT")
    if kind == "noul" and arguments.ask is None and not any(question.get("criteria", {}).values()):
        raise UsageError("--noul alone asks nothing: give the question with --ask, or true=TEXT and false=TEXT")
    body: dict[str, Any] = {"state": _text(arguments.state), "questions": {"answer": question}}
    if arguments.model is not None:
        body["model"] = arguments.model
    return body


def _described(options: list[str]) -> dict[str, str | None]:
    described: dict[str, str | None] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not name or name in described:
            raise UsageError(f"{option!r}: every option needs a name of its own")
        described[name] = text if equals else None
    return described


def _text(argument: str) -> str:
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        return Path(argument[1:]).read_text(encoding="utf-8")
    return argument


def _message(body: bytes) -> str:
    """What the server said was wrong, whichever error shape it used."""
    try:
        detail = json.loads(body)["detail"]
        if isinstance(detail, list):
            return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in detail)
        return str(detail["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _short(" ".join(body.decode("utf-8", "replace").split()), MAX_STRANGE_CHARS)


def render(response: dict[str, Any], *, colour: bool) -> str:
    """The answer with bars, for people."""
    answer = response["answers"]["answer"]
    if answer["type"] == "noul":
        rows = [("yes", answer["noul"]), ("no", 1 - answer["noul"])]
        head = f"{'yes' if answer['noul'] >= 0.5 else 'no'}  (P(yes) {answer['noul']:.3f})"
    elif answer["type"] == "choice":
        rows = list(answer["probabilities"].items())
        head = f"{_visible(answer['choice'])}  (confidence {answer['confidence']:.2f})"
    else:
        rows = [(f"{key} {_short(answer['legend'][key])}", p) for key, p in answer["probabilities"].items()]
        head = f"{answer['score']:.2f}  (confidence {answer['confidence']:.2f})"
    if not all(0 <= p <= 1 for _, p in rows):
        raise ValueError("a probability is not in 0..1")
    rows = [(_short(name), p) for name, p in rows]
    width = max(len(name) for name, _ in rows)
    best = max(p for _, p in rows)
    lines = [head]
    for name, p in rows:
        cells = round(p * BAR_CELLS)
        bar = "█" * cells + "·" * (BAR_CELLS - cells)
        line = f"  {name:<{width}}  {bar}  {p:6.1%}"
        lines.append(f"\x1b[1m{line}\x1b[0m" if colour and p == best else line)
    lines.append(f"  {_visible(response['model'])}, {response['usage']['input_tokens']} tokens")
    return "\n".join(lines)


def _short(value: object, limit: int = 40) -> str:
    text = _visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _visible(text: str) -> str:
    """Control characters escaped: what a server or an option name says must not move the cursor."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
