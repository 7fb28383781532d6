"""A front that may not have many files open: nobody is shut out by those who only hold connections."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.process.harness import Framehost, received, running

FILES = 160


def served(server: Framehost) -> bool:
    """Whether a decision gets through. Who still sends when it is refused may find its connection broken."""
    try:
        return server.decide("x").status == 200
    except OSError:
        return False


def test_who_holds_connections_keeps_nobody_out(runtime: Path) -> None:
    """The longest idle one ends for a newcomer; where none is idle, the newcomer is told, and the log says why."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    with running(runtime) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        front = server.front_pid()
        assert resource.prlimit(front, resource.RLIMIT_NOFILE) == (hard, hard), "the front has raised it"
        resource.prlimit(front, resource.RLIMIT_NOFILE, (FILES, FILES))
        silent = [server.connect() for _ in range(FILES)]
        server.wait(lambda: served(server), "the longest idle one makes room")
        assert received(silent[0]) == b""
        server.line("client connections are open", f"{FILES} files", "LimitNOFILE")
        shown = server.status()["front"]["connections"]
        assert 0 < shown["open"] <= shown["limit"] < FILES
        assert f"framehost_connections_limit {float(shown['limit'])}" in server.get("/metrics").body.decode()
        uploads = [
            server.connect(b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            for _ in range(FILES)
        ]
        server.wait(lambda: server.status()["front"]["connections"]["refused"] > 0, "somebody is refused")
        refusal = server.get("/healthz")
        assert refusal.status == 503
        assert refusal.json["error"]["message"].startswith("the server has as many client connections as it may have")
        for connection in (*silent, *uploads):
            connection.close()
        server.wait(lambda: served(server), "there is room again")
        server.wait(lambda: server.status()["front"]["connections"]["open"] == 0, "nobody is forgotten")
