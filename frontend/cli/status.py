"""`framehost status`: ask the running supervisor what there is, and show it."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import zmq

from protocol import addresses
from protocol.errors import ProtocolError
from protocol.frames import decode, encode
from protocol.messages import Lane, Status

ANSWER_MS = 3_000
"""A running supervisor answers in milliseconds, also while its front is dead; then it waits one second for it."""


class NotRunning(Exception):
    """No supervisor answers for this port; the text says what was found instead."""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    status = commands.add_parser(
        "status", help="show a running server", description="Show the processes, queues and bounds of a running server."
    )
    status.add_argument("--port", type=int, default=8080, help="the port it serves (default 8080)")
    status.add_argument("--json", action="store_true", help="everything, for programs")
    status.set_defaults(run=run)


def ask(port: int) -> dict[str, Any]:
    """The report of the supervisor behind `port`. Raises `NotRunning`."""
    directory = addresses.runtime_directory(port)
    info = directory / addresses.INFO_NAME
    if not _locked(directory / addresses.LOCK_NAME):
        raise NotRunning(f"no framehost is running on port {port}; start one with: framehost serve --port {port}")
    try:
        management: str = json.loads(info.read_text())["management"]
    except (OSError, ValueError, KeyError) as error:
        raise NotRunning(f"the framehost on port {port} is just starting or stopping ({info}: {error})") from None
    me = f"cli-{secrets.token_hex(4)}"
    context = zmq.Context()
    try:
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IDENTITY, me.encode())
            socket.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
            socket.connect(management)
            socket.send_multipart(encode(Status(), incarnation=me, call=1))
            message = decode(socket.recv_multipart(), lane=Lane.MANAGEMENT, incarnation=me).message
    except zmq.Again:
        raise NotRunning(f"the supervisor of port {port} holds its lock and does not answer") from None
    except ProtocolError as error:
        raise NotRunning(f"the supervisor of port {port} speaks another protocol: {error}") from None
    finally:
        context.destroy(linger=0)
    if not isinstance(message, Status) or message.report is None:
        raise NotRunning(f"the supervisor of port {port} answered with something else")
    return message.report


def _locked(path: Path) -> bool:
    """Whether a supervisor holds the lock: the one thing that does not outlive it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; exit status 1 when nothing runs there."""
    try:
        report = ask(arguments.port)
    except NotRunning as error:
        print(f"framehost: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=2) if arguments.json else render(report))
    return 0


def render(report: dict[str, Any]) -> str:
    """The report for people."""
    front, process = report["front"], report["front_process"]
    door = "stopping" if report["stopping"] else "open" if process["serving"] else "closed"
    lines = [
        (
            f"{report['url']}  port {door}  up {report['uptime_s']:g} s  supervisor pid {report['pid']}, "
            f"{_mib(report['supervisor_rss_bytes'])}"
        ),
        f"front   pid {process['pid']}, {_mib(process['rss_bytes'])}, restarts {process['restarts']}"
        + ("" if front else ", not answering"),
    ]
    if front:
        ended = ", ".join(f"{name} {count}" for name, count in sorted(front["requests"]["ended"].items())) or "none yet"
        ingress = front["ingress"]
        lines.append(f"        requests open {front['requests']['open']}; ended: {ended}")
        lines.append(
            f"        uploads {ingress['outstanding']} of {ingress['requests']}, "
            f"bytes {ingress['held']} of {ingress['cost']}, refused {ingress['rejected']}"
        )
        lines += _keys(front["keys"])
    for host in report["hosts"]:
        lines += _host(host, front)
    return "\n".join(lines)


def _host(host: dict[str, Any], front: dict[str, Any] | None) -> list[str]:
    where = f"pid {host['pid']}, {_mib(host['rss_bytes'])}" if host["pid"] else "no process"
    lines = [
        (
            f"model   {host['model']} ({host['family']})  {host['state']}  incarnation {host['incarnation']}, {where}, "
            f"loaded in {host['load_s']:.2f} s, restarts {host['restarts']}"
        )
    ]
    if host.get("native"):
        lines.append(f"        native dialect at {host['native']}")
    model = front["models"].get(host["model"]) if front else None
    if model:
        queue = model["scheduler"]
        lines.append(
            f"        queue {queue['waiting']}, running {queue['running']}"
            f"{' (its client has left)' if queue['abandoned'] else ''}, completed {queue['completed']}, "
            f"failed {queue['failed']}, withdrawn {queue['withdrawn']}"
        )
        lines += [_bound(layer) for layer in model["admissions"]]
        if not model["admissions"]:
            lines.append("        bound none")
    for title in ("failed", "last_death"):
        if host[title]:
            head, *tail = host[title].splitlines()
            lines.append(f"        {title.replace('_', ' ')}: {head}")
            lines += [f"          | {line}" for line in tail[-8:]]
    return lines


def _keys(report: dict[str, Any] | None) -> list[str]:
    if report is None:
        return []
    lines = [f"        API keys {len(report['accounts'])}"]
    if report["problem"]:
        lines[0] += f"; the key file is not in force: {report['problem']}"
    for layers in report["accounts"].values():
        lines += [_bound(layer) for layer in layers]
    return lines


def _bound(layer: dict[str, Any]) -> str:
    cost = f", cost {layer['held']} of {layer['cost']}" if layer["cost"] else ""
    return (
        f"        bound {layer['name']}: {layer['outstanding']} of {layer['requests']}{cost}, "
        f"refused {layer['rejected']}"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
