"""`make models`: measures the small models on the labelled sets, and writes the table "which model" of docs/models.md.

    python -m benchmarks.models

Both models are served on a free port and asked by `framehost eval`. The figures go into `docs/models.json`, and from
there into the table: one test compares the two files, another one the first of them with what is served.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, servers

ROOT: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = ROOT / "docs" / "models.md"
FILE: Final = ROOT / "docs" / "models.json"

SETS: Final = ("tickets", "everyday")
SERVED: Final = {"minilm": "minilm=embedding:minilm", "sparrow": "sparrow=sparrow"}
"""What is measured, by name. The first has to be fetched before."""

_TABLE: Final = re.compile(r"(<!-- make models writes this table -->\n)(.*?)(\n\n)", re.DOTALL)


def written(text: str, measured: Mapping[str, Any]) -> str:
    """docs/models.md with the table of `measured`, the content of `docs/models.json`."""
    assert _TABLE.search(text), "docs/models.md has no place for the table"
    return _TABLE.sub(lambda found: found[1] + table(measured) + found[3], text)


def table(measured: Mapping[str, Any]) -> str:
    """A row for each model and set."""
    rows = [
        "| set | model | right | accuracy, 95 % interval | Brier | log loss | calibration error | 95 % right from |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in SETS:
        for model in SERVED:
            found = measured["sets"][name]["models"][model]
            low, high = found["interval_95"]
            wanted = found["precision"]
            enough = (
                "none" if wanted["threshold"] is None else f"{wanted['threshold']:.2f}: {wanted['answers']} answers"
            )
            rows.append(
                f"| {name} | `{model}` | {found['right']} of {found['expected']} "
                f"| {found['accuracy']:.0%}, {low:.0%} to {high:.0%} | {found['brier']:.2f} | {found['log_loss']:.2f} "
                f"| {found['calibration_error']:.2f} | {enough} |"
            )
    return "\n".join(rows)


def evaluated(url: str, name: str) -> dict[str, Any]:
    """What `framehost eval` says of both models on one set, without times, which are the machine's."""
    command = [sys.executable, "-m", "executor_host.supervision.entry", "eval", f"examples/{name}.jsonl", "--url", url]
    command += [*(part for model in SERVED for part in ("--model", model)), "--json", "--fit"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(ended.stdout)
    for found in report["models"].values():
        del found["latency_ms"]
    return report


def main() -> int:
    """Measure, and write both files."""
    command = (str(Path(sys.executable).with_name("framehost")), "serve")
    options = tuple(part for model in SERVED.values() for part in ("--model", model))
    target = servers.Target("models", "the small models", (*command, *options, "--port"))
    with tempfile.TemporaryDirectory(prefix="fh-") as directory, servers.started(target, Path(directory)) as server:
        sets = {name: evaluated(f"http://{servers.HOST}:{server.port}", name) for name in SETS}
    measured = {"written_by": "make models", "machine": machine.describe(), "sets": sets}
    FILE.write_text(json.dumps(measured, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8"), measured), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)} and {DOCUMENT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
