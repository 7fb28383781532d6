"""`make test-extra`: the clients that need an environment of their own, each in one below `.venv/clients`.

A client is a script `<name>.py` beside this one, which is given the server's address and ends with an exception when
something is not as it should be. Names on the command line run only these.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.process.conftest import short_directory
from tests.process.harness import ROOT, Framehost, running

ENVIRONMENTS = ROOT / ".venv" / "clients"
CLIENTS = {
    "openrouter": ("openrouter==1.3.84",),
    "pydecide": ("pydecide==0.2.19",),
    "system_one": ("system-one==0.4.0", "httpx2"),
    "jevkit": ("jevkit==0.1.1",),
    "pydantic_ai": ("pydantic-ai-slim==2.68.0",),
    "langchain_typesafe": ("langchain-typesafe==0.0.1a3",),
    "jevclient": ("jevclient==1.3.1",),
    "sys1bench": ("sys1bench==0.3.2",),
}
"""What each client's environment has."""

INTERPRETERS = {"jevclient": "python3.12"}
"""For clients that need a newer one than the tests; without it they are skipped."""

GUARD_S = 1200
"""For one client. The longest asks 1,600 times."""


def main(wanted: list[str]) -> int:
    """Run the clients, print a line for each, and return 0 when none has failed."""
    failed = 0
    with short_directory() as directory, running(directory, "sparrow=sparrow") as server:
        for name, packages in CLIENTS.items():
            if not wanted or name in wanted:
                failed += not run(server, name, packages)
    return min(failed, 1)


def run(server: Framehost, name: str, packages: tuple[str, ...]) -> bool:
    """Whether one client's script went through."""
    interpreter = shutil.which(INTERPRETERS[name]) if name in INTERPRETERS else sys.executable
    if interpreter is None:
        print(f"skipped {' '.join(packages)}: there is no {INTERPRETERS[name]}", flush=True)
        return True
    python = prepared(name, packages, interpreter)
    script = Path(__file__).with_name(f"{name}.py")
    # -P: the scripts have the names of the packages.
    ended = subprocess.run([python, "-P", script, server.url], capture_output=True, text=True, timeout=GUARD_S)
    print(f"{'ok    ' if ended.returncode == 0 else 'FAILED'} {' '.join(packages)}", flush=True)
    if ended.returncode:
        print(ended.stdout + ended.stderr, flush=True)
    return ended.returncode == 0


def prepared(name: str, packages: tuple[str, ...], interpreter: str) -> Path:
    """The interpreter of the client's environment, which is made when it is missing."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True, timeout=300)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True, timeout=600
    )
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
