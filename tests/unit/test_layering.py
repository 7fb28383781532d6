"""Who may import whom, asked of a fresh interpreter per package: what the tests have imported cannot hide it."""

from __future__ import annotations

import ast
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import executor_host
import frontend
import protocol

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"protocol": protocol, "frontend": frontend, "executor_host": executor_host}
OURS = (*PACKAGES, "supervisor")

MOST_ROOMS = 12
"""At the top of a package: what a reader can hold in the head at once."""

ROOMS: dict[str, dict[str, set[str]]] = {
    # From the bottom to the top; beside each, the rooms of its own package that it may import.
    "frontend": {
        "errors": set(),
        "limits": set(),
        "requests": {"errors", "limits"},
        "runtime": {"errors"},
        "families": {"errors", "limits", "requests"},
        "configuration": {"errors", "families", "limits", "requests", "runtime"},
        "observation": {"configuration", "errors", "runtime"},
        "serving": {"configuration", "errors", "families", "limits", "observation", "requests", "runtime"},
        "http": {"configuration", "errors", "families", "limits", "observation", "requests", "runtime", "serving"},
        "cli": {"configuration"},
        "main": {"configuration", "http", "limits", "observation", "serving"},
    },
    "executor_host": {
        "errors": set(),
        "checkpoints": {"errors"},
        "devices": {"errors"},
        "backbones": {"checkpoints", "devices", "errors"},
        "executors": {"backbones", "checkpoints", "devices", "errors"},
        "host": {"errors", "executors"},
        "main": {"devices", "errors", "executors", "host"},
        "remote": {"errors", "executors", "host", "main"},
        "inspection": {"checkpoints", "errors", "executors"},
        "launch": {"host", "remote"},
        "supervision": {"launch"},
    },
}
"""The rooms of the two packages and every arrow that there may be between them."""


def modules(package: str) -> list[str]:
    """Every module of a package, by name. The two that run a process when imported as `__main__` only are fine."""
    if package == "supervisor":
        return ["supervisor"]
    found = pkgutil.walk_packages(PACKAGES[package].__path__, prefix=f"{package}.")
    return [package, *(entry.name for entry in found)]


def imported(*names: str, forbid: tuple[str, ...] = ()) -> set[str]:
    """The top-level names in a fresh interpreter after importing `names`; `forbid` cannot be imported there."""
    code = (
        "import importlib, json, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        f"for name in {forbid!r}: sys.modules[name] = None\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name, module in sys.modules.items() if module})))\n"
        "print(json.dumps(sorted(name for name, module in sys.modules.items() if module)))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    tops, everything = ended.stdout.splitlines()
    return set(json.loads(tops)) | set(json.loads(everything))


def arrows(package: str) -> dict[str, dict[str, str]]:
    """For each room of `package`, the rooms of the same package that it imports, each with a file that does."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        room = file.relative_to(ROOT / package).with_suffix("").parts[0]
        to = found.setdefault(room, {})
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: imports of ours are absolute"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                top, _, rest = name.partition(".")
                if top == package and (other := rest.partition(".")[0]) != room:
                    to[other] = str(file.relative_to(ROOT))
    del found["__init__"]
    return found


@pytest.mark.parametrize("package", ROOMS)
def test_no_arrow_leads_upwards(package: str) -> None:
    """Imports between rooms are those of the table, also such that a function does; and the table has no more."""
    found = arrows(package)
    allowed = ROOMS[package]
    assert found.keys() == allowed.keys()
    wrong = [
        f"{room} -> {other} ({file})"
        for room, to in found.items()
        for other, file in to.items()
        if other not in allowed[room]
    ]
    assert wrong == []
    unused = [f"{room} -> {other}" for room, to in allowed.items() for other in to if other not in found[room]]
    assert unused == [], "an arrow that nobody needs is one that somebody would use"


@pytest.mark.parametrize("package", ROOMS)
def test_the_table_of_rooms_goes_from_the_bottom_to_the_top(package: str) -> None:
    """Each room imports rooms above it in the table only, so there is no circle between rooms."""
    below: set[str] = set()
    for room, to in ROOMS[package].items():
        assert to <= below, f"{room} -> {sorted(to - below)}"
        below.add(room)


@pytest.mark.parametrize("package", ROOMS)
def test_a_package_has_few_rooms(package: str) -> None:
    """Files at the top count as rooms."""
    entries = {entry.name for entry in (ROOT / package).iterdir() if entry.suffix == ".py" or entry.is_dir()}
    assert len(entries - {"__init__.py", "__pycache__"}) <= MOST_ROOMS


def test_protocol_is_pure() -> None:
    """Bytes to messages and back: nothing of ours, no socket, no loop, no device library, no array library."""
    seen = imported(*(name for name in modules("protocol") if not name.startswith("protocol.transport")))
    assert seen.isdisjoint({"frontend", "executor_host", "supervisor", "zmq", "asyncio", "torch", "numpy", "socket"})


def test_the_transport_knows_only_the_protocol() -> None:
    """The one package of the protocol with sockets in it; front, host and supervisor all use it."""
    seen = imported(*modules("protocol"))
    assert seen.isdisjoint({"frontend", "executor_host", "supervisor", "torch", "numpy", "aiohttp"})
    assert "zmq" in seen, "the walk has found the modules"


def test_one_file_uses_the_private_parts_of_the_socket_library() -> None:
    """`zmq.backend` in `protocol/transport/calls.py`; how sockets are watched and who is let in, in that package."""
    private: dict[str, set[str]] = {"zmq.backend": set(), "zmq.auth": set(), "zmq.utils": set(), "get_monitor": set()}
    for package in (*PACKAGES, "supervisor.py"):
        for file in [ROOT / package] if package.endswith(".py") else (ROOT / package).rglob("*.py"):
            text = file.read_text()
            for part, users in private.items():
                if part in text:
                    users.add(str(file.relative_to(ROOT)))
    transport = "protocol/transport/"
    assert private == {
        "zmq.backend": {f"{transport}calls.py"},
        "zmq.auth": {f"{transport}authentication.py", f"{transport}keys.py"},
        "zmq.utils": {f"{transport}monitor.py"},
        "get_monitor": {f"{transport}monitor.py"},
    }


def test_the_front_knows_no_host_and_no_torch() -> None:
    """Every processor included: requests live in one process, tensors in another."""
    seen = imported(*modules("frontend"))
    assert seen.isdisjoint({"executor_host", "supervisor", "torch", "transformers"})
    assert "aiohttp" in seen, "the walk has found the modules"


def test_the_host_knows_no_front() -> None:
    """No executor may reach for requests, HTTP or the supervisor."""
    seen = imported(
        *(name for name in modules("executor_host") if not name.startswith("executor_host.supervision.entry"))
    )
    assert seen.isdisjoint({"frontend", "supervisor", "aiohttp"})


def test_the_launchers_need_no_executor() -> None:
    """The supervisor imports them, so they import neither torch nor what would."""
    rooms = ("executor_host.launch", "executor_host.supervision")
    launchers = [name for name in modules("executor_host") if name.startswith(rooms)]
    seen = imported(*launchers)
    assert seen.isdisjoint({"torch", "transformers", "aiohttp", "executor_host.executors", "executor_host.main"})


def test_the_supervisor_is_small() -> None:
    """It survives everybody else, so it carries neither a web server nor a device library."""
    seen = imported("supervisor", *(name for name in modules("frontend") if name.startswith("frontend.cli.")))
    assert seen.isdisjoint({"torch", "transformers", "aiohttp", "numpy", "uvloop"})
    assert "zmq" in seen


def test_the_commands_work_without_the_web_server() -> None:
    """`framehost decide`, `batch`, `eval` and `status` are for machines that only ask."""
    imported(
        "frontend.cli.decide",
        "frontend.cli.batch",
        "frontend.cli.evaluation.command",
        "frontend.cli.fetch",
        "frontend.cli.status",
        forbid=("aiohttp", "torch", "numpy", "uvloop"),
    )


def test_importing_a_processor_does_not_need_torch() -> None:
    """With torch impossible to import, every module of the front and the supervisor still loads."""
    imported(*modules("frontend"), "supervisor", forbid=("torch", "transformers"))


@pytest.mark.slow
@pytest.mark.parametrize("package", OURS)
def test_every_module_can_be_imported_alone(package: str) -> None:
    """No cycle that works only because somebody else was imported first."""
    names = modules(package)
    code = (
        "import importlib, os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        # Foreign and slow: loaded once, before the forks.
        "import zmq, json, argparse, asyncio, logging, msgpack, numpy, orjson\n"
        f"if {package!r} == 'frontend': import aiohttp.web, prometheus_client\n"
        "failed = []\n"
        f"for name in {names!r}:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            importlib.import_module(name)\n"
        "        except BaseException as error:\n"
        "            print(name, repr(error), flush=True)\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_package_files_are_empty(package: str) -> None:
    """Importing a package imports nothing."""
    for file in (ROOT / package).rglob("__init__.py"):
        assert file.read_text() == "", file


def test_no_source_subscribes_for_what_must_arrive() -> None:
    """PUB and SUB lose the first message and match prefixes; there are none in the tree."""
    for package in (*PACKAGES, "supervisor.py"):
        files = [ROOT / package] if package.endswith(".py") else (ROOT / package).rglob("*.py")
        for file in files:
            text = file.read_text()
            assert "zmq.PUB" not in text, file
            assert "zmq.SUB" not in text, file
            assert "asyncio.wait_for(" not in text, f"{file}: asyncio.wait_for swallows a cancellation on 3.11"
            assert "pickle.loads" not in text, file
