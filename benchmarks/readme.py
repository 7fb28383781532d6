"""`make readme`: runs the commands that README.md shows, and writes what they answer into it.

    python -m benchmarks.readme

The default model is served on a free port and asked what README asks. The answers and the times go into
`docs/readme.json`, and from there into the blocks and figures of README: a test compares the two files, another one the
first of them with what is served. To show another example, change the commands in README and run this again.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine, servers

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
FILE = ROOT / "docs" / "readme.json"

SERVERS = 5
"""How many are started for the median. The host of each is killed once: later restarts wait before they begin."""

_ASKED = re.compile(r"(<!-- make readme runs this command -->\n```\n)(curl .*?)(\n```\n)", re.DOTALL)
_ANSWERED = re.compile(r"(<!-- make readme writes this block -->\n```\n)(.*?)(```\n)", re.DOTALL)
_COMMAND = re.compile(
    r"(<!-- make readme runs this command, and writes what follows it -->\n```\n)(\$ .*?[^\\]\n)(.*?)(```\n)", re.DOTALL
)
_RECOVERY = re.compile(r"(it is answered,? )([\d.]+ s)")


def request(text: str) -> dict[str, Any]:
    """The body that README's curl command sends."""
    found = _ASKED.search(text)
    assert found, "README has no command for curl"
    words = shlex.split(found[2])
    body: dict[str, Any] = json.loads(words[words.index("-d") + 1])
    return body


def command(text: str) -> list[str]:
    """The arguments of README's `framehost decide`, without the program."""
    found = _COMMAND.search(text)
    assert found, "README has no framehost decide"
    return shlex.split(found[2].removeprefix("$ ").replace("\\\n", " "))[1:]


def written(text: str, measured: Mapping[str, Any]) -> str:
    """README with the answers and figures of `measured`, the content of `docs/readme.json`."""
    text = _ANSWERED.sub(lambda found: found[1] + shown(measured["answer"]) + found[3], text)
    text = _COMMAND.sub(lambda found: found[1] + found[2] + measured["decide"] + found[4], text)
    return _RECOVERY.sub(lambda found: f"{found[1]}{measured['recovery_s']:.1f} s", text)


def shown(answer: Mapping[str, Any]) -> str:
    """An answer as README shows it: a line for each question, three decimals."""
    rounded = _rounded(answer)
    questions = [f"  {json.dumps(name)}: {_line(value)}" for name, value in rounded["answers"].items()]
    rest = [f'"{key}": {_line(value)}' for key, value in rounded.items() if key not in ("answers", "model")]
    lines = [f'{{"model": {json.dumps(rounded["model"])},', ' "answers": {']
    return "\n".join((*lines, ",\n".join(questions) + "},", *(f" {line}" for line in rest))) + "}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return value


def measure(text: str) -> dict[str, Any]:
    """Serve the default model, ask what README asks, and kill its host; the last part `SERVERS` times.

    Raises `servers.ServerFailed`.
    """
    body = json.dumps(request(text)).encode()
    target = servers.Target("readme", "the default model", (str(_program()), "serve", "--port"))
    recovered = []
    for _ in range(SERVERS):
        with tempfile.TemporaryDirectory(prefix="fh-") as directory, servers.started(target, Path(directory)) as server:
            answer = _ask(server.port, body)
            arguments = [*command(text), "--url", f"http://{servers.HOST}:{server.port}"]
            decided = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=True).stdout
            recovered.append(_recovery(server.port, body, Path(directory)))
    return {
        "written_by": "make readme",
        "machine": machine.describe(),
        "load": round(os.getloadavg()[0], 1),
        "answer": answer,
        "decide": decided,
        "recovery_s": round(statistics.median(recovered), 3),
    }


def _program() -> Path:
    return Path(sys.executable).with_name("framehost")


def _recovery(port: int, body: bytes, runtime: Path) -> float:
    """Seconds from the SIGKILL of the host to the answer of the request that was sent after it."""
    status = subprocess.run(
        [_program(), "status", "--port", str(port), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
    )
    (host,) = json.loads(status.stdout)["hosts"]
    begin = time.perf_counter()
    os.kill(host["pid"], signal.SIGKILL)
    _ask(port, body)
    return time.perf_counter() - begin


def _ask(port: int, body: bytes) -> dict[str, Any]:
    connection = http.client.HTTPConnection(servers.HOST, port, timeout=servers.START_S)
    try:
        connection.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise servers.ServerFailed(f"status {response.status}: {content[:300]!r}")
    answer: dict[str, Any] = json.loads(content)
    return answer


def main() -> int:
    """Measure, and write both files."""
    text = README.read_text(encoding="utf-8")
    measured = measure(text)
    FILE.write_text(json.dumps(measured, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    README.write_text(written(text, measured), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)} and {README.name}: answered {measured['recovery_s']} s after a kill")
    return 0


if __name__ == "__main__":
    sys.exit(main())
