"""`framehost decide`: one decision from the command line, over HTTP, with the standard library alone."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

BAR_CELLS = 30
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
    decide.add_argument("--choice", action="append", metavar="NAME[=TEXT]", help="an option; give two or more")
    decide.add_argument("--noul", nargs="*", metavar="true=TEXT", help="yes or no, with what each side means")
    decide.add_argument("--score", action="append", metavar="TEXT", help="a level, lowest first; give two or more")
    decide.add_argument("--model", default=None, help="which model (default: the server's)")
    decide.add_argument("--url", default="http://127.0.0.1:8080", help="the server (default %(default)s)")
    decide.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds (default %(default)s)")
    decide.add_argument("--json", action="store_true", help="print the response body as it came")
    decide.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer; exit status 1 when there is none, 2 when the options are wrong."""
    try:
        body = request_body(arguments)
    except (UsageError, OSError, UnicodeDecodeError) as error:
        print(f"framehost decide: {error}", file=sys.stderr)
        return 2
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked below
        arguments.url.rstrip("/") + "/v1/systemone",
        data=json.dumps(body, ensure_ascii=False).encode(),
        headers={"Content-Type": "application/json"},
    )
    if request.type not in ("http", "https"):
        print(f"framehost decide: {arguments.url} is not an http address", file=sys.stderr)
        return 2
    try:
        with urllib.request.urlopen(request, timeout=arguments.timeout) as response:  # noqa: S310
            text = response.read().decode()
    except urllib.error.HTTPError as error:
        print(f"framehost decide: {error.code}: {_message(error.read())}", file=sys.stderr)
        return 1
    except (HTTPException, UnicodeDecodeError) as error:
        return _no_answer(arguments.url, error)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "reason", error)
        print(
            f"framehost decide: nothing answers at {arguments.url} ({reason}); start a server with: framehost serve",
            file=sys.stderr,
        )
        return 1
    if not arguments.json:
        try:
            text = render(json.loads(text), colour=sys.stdout.isatty())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _no_answer(arguments.url, error)
    print(text)
    return 0


def _no_answer(url: str, error: Exception) -> int:
    print(
        f"framehost decide: what answers at {url} is no framehost of this version ({type(error).__name__}: {error})",
        file=sys.stderr,
    )
    return 1


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
    except (ValueError, KeyError, TypeError):
        return body[:300].decode("utf-8", "replace")


def render(response: dict[str, Any], *, colour: bool) -> str:
    """The answer with bars, for people."""
    answer = response["answers"]["answer"]
    if answer["type"] == "noul":
        rows = [("yes", answer["noul"]), ("no", 1 - answer["noul"])]
        head = f"{'yes' if answer['noul'] >= 0.5 else 'no'}  (P(yes) {answer['noul']:.3f})"
    elif answer["type"] == "choice":
        rows = list(answer["probabilities"].items())
        head = f"{answer['choice']}  (confidence {answer['confidence']:.2f})"
    else:
        rows = [(f"{key} {_short(answer['legend'][key])}", p) for key, p in answer["probabilities"].items()]
        head = f"{answer['score']:.2f}  (confidence {answer['confidence']:.2f})"
    width = min(40, max(len(name) for name, _ in rows))
    best = max(p for _, p in rows)
    lines = [head]
    for name, p in rows:
        cells = round(p * BAR_CELLS)
        bar = "█" * cells + "·" * (BAR_CELLS - cells)
        line = f"  {_short(name, width):<{width}}  {bar}  {p:6.1%}"
        lines.append(f"\x1b[1m{line}\x1b[0m" if colour and p == best else line)
    lines.append(f"  {response['model']}, {response['usage']['input_tokens']} tokens")
    return "\n".join(lines)


def _short(value: object, limit: int = 40) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"
