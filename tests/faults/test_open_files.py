"""A front that may not have many files open: nobody is shut out by those who only hold connections."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from tests.process.harness import Answer, Framehost, received, running

FILES = 160


def asked(server: Framehost) -> Answer | None:
    """What one more client is answered. One that still sends when it is refused may find its connection broken."""
    try:
        return server.get("/healthz")
    except OSError:
        return None


def connections(server: Framehost) -> dict[str, Any]:
    """The front's own count."""
    front = server.wait(lambda: server.status()["front"], "the front answers")
    counts: dict[str, Any] = front["connections"]
    return counts


def test_who_holds_connections_keeps_nobody_out(runtime: Path) -> None:
    """The longest idle one ends for a newcomer; where none is idle, the newcomer is told, and the log says why."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    with running(runtime) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        front = server.front_pid()
        assert resource.prlimit(front, resource.RLIMIT_NOFILE) == (hard, hard), "the front has raised it"
        resource.prlimit(front, resource.RLIMIT_NOFILE, (FILES, FILES))

        def answered(status: int) -> Answer | None:
            answer = asked(server)
            return answer if answer is not None and answer.status == status else None

        silent = [server.connect() for _ in range(FILES)]
        server.wait(lambda: answered(200), "the longest idle one makes room")
        assert received(silent[0]) == b""
        server.line("client connections are open", f"{FILES} files", "LimitNOFILE")
        shown = connections(server)
        assert 0 < shown["open"] <= shown["limit"] < FILES
        assert f"framehost_connections_limit {float(shown['limit'])}" in server.get("/metrics").body.decode()
        uploads = [
            server.connect(b"POST /v1/systemone HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            for _ in range(FILES)
        ]
        refusal = server.wait(lambda: answered(503), "nobody idle is left to make room")
        assert refusal.json["error"]["message"].startswith("the server has as many client connections as it may have")
        assert refusal.headers["retry-after"] == "1"
        for connection in (*silent, *uploads):
            connection.close()
        server.wait(lambda: answered(200), "there is room again")
        server.wait(lambda: connections(server)["open"] == 0, "nobody is forgotten")
