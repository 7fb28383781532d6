"""`framehost status`: ask the running supervisor what there is, and show it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from frontend.cli import watch
from frontend.cli.control_client import NotRunning, connected, port_number
from frontend.cli.terminal import visible
from protocol.messages import Status

LOADED = ("ready", "draining")
"""States of a host that has loaded: while the next one loads, the time of the one before it is not its own."""


def add_to(commands: Any) -> None:
    """Add the command's parser."""
    status = commands.add_parser(
        "status",
        help="show a running server",
        description="Show the processes, queues and bounds of a running server. "
        "Exit status: 0 shown; 1 no server of this user has the port.",
    )
    status.add_argument("--port", type=port_number, default=8080, help="the port it serves (default 8080)")
    status.add_argument("--json", action="store_true", help="everything, for programs")
    status.add_argument("--watch", action="store_true", help="a table that stays and follows, until Ctrl-C")
    status.set_defaults(run=run)


def ask(port: int) -> dict[str, Any]:
    """The report of the supervisor behind `port`. Raises `NotRunning`."""
    with connected(port) as supervisor:
        supervisor.say(Status())
        message = supervisor.hear()
    if not isinstance(message, Status) or message.report is None:
        raise NotRunning(f"the supervisor of port {port} answered with something else")
    return message.report


def run(arguments: argparse.Namespace) -> int:
    """Print the report; exit status 1 when nothing runs there. With --watch, go on until Ctrl-C."""
    if arguments.watch:
        return watch.watch(lambda: _reading(arguments.port, for_programs=arguments.json))
    try:
        report = ask(arguments.port)
    except NotRunning as error:
        print(f"framehost: {visible(str(error))}", file=sys.stderr)
        return 1
    # What a model has printed, or a host on another machine has said of itself, is in it.
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(map(visible, render(report).split("\n"))))
    return 0


def _reading(port: int, *, for_programs: bool) -> list[str]:
    """What --watch shows now; a server that is not there is waited for."""
    now = time.strftime("%H:%M:%S")
    try:
        report = ask(port)
    except NotRunning as error:
        return [json.dumps({"error": str(error)})] if for_programs else [f"{now}  {error}; waiting for it"]
    return [json.dumps(report)] if for_programs else [now, *watch.table(report), ""]


def render(report: dict[str, Any]) -> str:
    """The report for people."""
    front, process = report["front"], report["front_process"]
    opening = "stopping" if report["stopping"] else "open" if process["serving"] else "closed"
    lines = [
        (
            f"{report['url']}  port {opening}  up {report['uptime_s']:g} s  supervisor pid {report['pid']}, "
            f"{_mib(report['supervisor_rss_bytes'])}"
        ),
        f"front   pid {process['pid']}, {_mib(process['rss_bytes'])}, restarts {process['restarts']}"
        + ("" if front else f", not answering for {process['silent_s']:.0f} s"),
        *([f"        probes at {report['health']}"] if report["health"] else []),
        *([f"        lines of the log lost: {report['log_lines_lost']}"] if report["log_lines_lost"] else []),
    ]
    if front:
        ended = ", ".join(f"{name} {count}" for name, count in sorted(front["requests"]["ended"].items())) or "none yet"
        ingress = front["ingress"]
        lines.append(f"        requests open {front['requests']['open']}; ended: {ended}")
        connections = front["connections"]
        lines.append(
            f"        connections {connections['open']} of {connections['limit']}, "
            f"ended to make room {connections['ended_idle']}, refused {connections['refused']}"
        )
        lines.append(
            f"        uploads {ingress['outstanding']} of {ingress['requests']}, "
            f"bytes {ingress['held']} of {ingress['cost']}, refused {ingress['rejected']}"
        )
        lines.append("        limits " + ", ".join(f"{name} {value}" for name, value in front["limits"].items()))
        lines += [_device(device) for device in front["devices"]]
        if front["sessions"]:
            lines.append(f"        sessions {front['sessions']}")
        lines += _keys(front["keys"])
    for host in report["hosts"]:
        lines += _host(host, front)
    return "\n".join(lines)


def _host(host: dict[str, Any], front: dict[str, Any] | None) -> list[str]:
    where = f"pid {host['pid']}, {_mib(host['rss_bytes'])}" if host["pid"] else "no process"
    threads = f", {host['threads']} threads" if host.get("threads") else ""
    loaded = f", loaded in {host['load_s']:.2f} s" if host["load_s"] and host["state"] in LOADED else ""
    spare = " (a spare)" if host["spare"] else ""
    by_requests = f" ({host['request_deaths']} caused by requests)" if host["request_deaths"] else ""
    lines = [
        (
            f"model   {host['model']} ({host['family']})  {host['state']}  deployment {watch.place(host)}, "
            f"incarnation {host['incarnation']}{spare}, {where}{threads}{loaded}, "
            f"restarts {host['restarts']}{by_requests}"
        )
    ]
    lines += _weights(host)
    lines += _presence(host, watch.counts(host, front))
    if host["progress"] and host["state"] in ("starting", "loading", "warming"):
        lines.append(f"        {watch.progress(host)}")
    if host["silent_s"] >= watch.SILENT_S:
        lines.append(f"        its control lane has been silent for {host['silent_s']:.0f} s: a long call, or it hangs")
    if host.get("native"):
        lines.append(f"        native dialect at {host['native']}")
    model = watch.counts(host, front)
    if model:
        queue = model["scheduler"]
        lines.append(
            f"        queue {queue['waiting']}, running {watch.running(model)}"
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


def _weights(host: dict[str, Any]) -> list[str]:
    """What it is made of: its checkpoint, what its host says that this is, and the options that were given."""
    words = [f"path {host['path']}"] if host["path"] else []
    words += [f"identity {host['identity']}"] if host["identity"] else []
    words += [f"options {json.dumps(host['options'], ensure_ascii=False)}"] if host["options"] else []
    return [f"        {', '.join(words)}"] if words else []


def _presence(host: dict[str, Any], model: dict[str, Any] | None) -> list[str]:
    """How long no request has asked for it, and for how long that may go on."""
    words = []
    if model and model["waiting_for_host"]:
        words.append(f"{model['waiting_for_host']} requests wait for it")
    if model and model["idle_s"] is not None and host["state"] == "ready":
        words.append(f"idle for {model['idle_s']:.0f} s")
    if host["pinned"]:
        words.append("pinned")
    elif host["keep_alive_s"]:
        words.append(f"kept for {host['keep_alive_s']:g} s without a request")
    return [f"        {', '.join(words)}"] if words else []


def _device(device: dict[str, Any]) -> str:
    over = f", {device['overage_bytes']} above it and in use" if device["overage_bytes"] else ""
    return (
        f"        device {device['device']}: {device['used_bytes']} of {device['limit_bytes']} bytes kept between "
        f"requests{over}"
    )


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
