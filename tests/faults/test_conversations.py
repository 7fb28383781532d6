"""Conversations of a served model through everything that can end a turn: the budget is what it was before, or what is
held; the conversation goes on. Hosts are asked what they hold through a front that is new.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import short_directory
from tests.process.harness import QUESTION, Answer, Framehost, running

CONFIGURATION = """
[server]
restarts = 1000
[models.alpha]
family = "keeper"
[models.beta]
family = "keeper"
max_requests = 8
[models.plain]
family = "toy"
"""

LONG = "the order came twice "
HELD = 100 * len(LONG) + 1_000
"""Bytes of that text, as the toy reckons."""


@pytest.fixture
def server() -> Iterator[Framehost]:
    with short_directory() as directory:
        file = directory / "framehost.toml"
        file.write_text(CONFIGURATION)
        with running(directory, config=file) as server:
            yield server


def say(server: Framehost, text: str, session: str | None = "a", model: str = "alpha", **state: Any) -> Answer:
    """One turn."""
    body = {"model": model, "state": {"text": text, **state}, "questions": QUESTION}
    return server.post(body if session is None else {**body, "x_session": session})


def told(answer: Answer) -> str:
    """What Server-Timing says of the conversation."""
    assert answer.status == 200, answer
    timing = answer.headers["server-timing"]
    return timing.partition('session;desc="')[2].partition('"')[0]


def used(server: Framehost) -> int:
    """Bytes of the device's budget that are reserved or held."""
    (device,) = server.wait(lambda: server.status()["front"], "the front answers")["devices"]
    assert device["device"] == "toy:0"
    return int(device["used_bytes"])


def sessions(server: Framehost) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = server.get("/v1/sessions").json["data"]
    return listed


def delete(server: Framehost, name: str) -> int:
    return server._http("DELETE", f"/v1/sessions/{name}", None, {}).status


def test_a_turn_reads_what_is_new_and_is_charged_for_what_it_has_grown_by(server: Framehost) -> None:
    """A fresh conversation of the same text is charged in full; what was ended is not held any more."""
    assert told(say(server, LONG)) == "read in full: it is new"
    assert used(server) == HELD
    grown = LONG * 3
    assert told(say(server, grown)) == f"{len(LONG)} tokens kept"
    assert used(server) == 100 * len(grown) + 1_000
    say(server, grown, "b")
    assert used(server) == 2 * (100 * len(grown) + 1_000)
    first, second = sessions(server)
    assert (first["id"], first["turns"], first["tokens"], first["lost"]) == ("a", 2, len(grown), "")
    assert (second["id"], second["bytes"]) == ("b", 100 * len(grown) + 1_000)
    assert [delete(server, name) for name in ("a", "a", "b", "no")] == [200, 404, 200, 404]
    assert (used(server), sessions(server)) == (0, [])
    assert told(say(server, grown)) == "read in full: it is new"


def test_a_changed_text_falls_back_to_what_it_has_in_common(server: Framehost) -> None:
    """And a text that has nothing in common is read in full, and says why."""
    say(server, "abcdef")
    assert told(say(server, "abcxyz")) == "3 tokens kept"
    assert told(say(server, "quite another one")) == "read in full: its text has changed"


def test_a_model_that_keeps_nothing_says_so(server: Framehost) -> None:
    """400 that names the field, and no conversation."""
    answer = say(server, "x", model="plain")
    assert (answer.status, sessions(server)) == (400, [])
    assert "x_session" in answer.json["detail"]["message"]


@pytest.mark.parametrize("session", ["", "x" * 129, "a\nb", 7])
def test_a_name_that_is_none_is_refused(server: Framehost, session: Any) -> None:
    """422 that says where."""
    answer = say(server, "x", session)
    assert answer.status == 422, answer
    assert answer.json["detail"][0]["loc"] == ["body", "x_session"]


def test_a_host_that_dies_costs_one_full_read(server: Framehost) -> None:
    """What it held is given back at once; the conversation goes on."""
    say(server, LONG)
    os.kill(server.host("alpha")["pid"], signal.SIGKILL)
    server.wait(lambda: used(server) == 0, "what the dead host held is given back")
    assert sessions(server)[0]["lost"] == "its host has ended"
    assert told(say(server, LONG)) == "read in full: its host has ended"
    assert told(say(server, LONG)) == f"{len(LONG)} tokens kept"
    assert used(server) == HELD


def test_a_host_that_dies_with_a_turn_gives_its_bytes_back(server: Framehost) -> None:
    """The turn is 503, and is not counted as held."""
    say(server, LONG)
    assert say(server, LONG * 2, op="exit").status == 503
    server.wait(lambda: used(server) == 0, "nothing is held")
    assert told(say(server, LONG)) == "read in full: its host has ended"


def test_a_front_that_is_new_asks_the_hosts_what_they_hold(server: Framehost) -> None:
    """Before it admits: the conversation goes on without a full read, and is charged as before."""
    say(server, LONG)
    say(server, LONG * 2, "b", model="beta")
    before = used(server)
    pid = server.front_pid()
    os.kill(pid, signal.SIGKILL)
    server.wait(lambda: server.front_pid() not in (0, pid) and server.status()["front"], "a new front")
    server.wait(lambda: server.get("/health").status == 200, "it serves")
    assert used(server) == before
    assert [(one["id"], one["model"], one["tokens"]) for one in sessions(server)] == [
        ("a", "alpha", len(LONG)),
        ("b", "beta", 2 * len(LONG)),
    ]
    assert told(say(server, LONG)) == f"{len(LONG)} tokens kept"
    assert delete(server, "a") == delete(server, "b") == 200
    assert used(server) == 0


def test_a_swap_costs_one_full_read(server: Framehost) -> None:
    """The bytes of the old one are given back with its process."""
    say(server, LONG)
    assert server.swap("alpha=keeper")[0] == 0
    assert told(say(server, LONG)).startswith("read in full: ")
    server.wait(lambda: used(server) == HELD, "what the former one held is given back")


def test_prefixes_make_room_and_then_idle_conversations_the_oldest_first(server: Framehost) -> None:
    """Of all models of the device; what is refused is told with its four numbers, and nothing has changed."""
    say(server, LONG, None, model="beta")
    say(server, LONG, "old")
    say(server, LONG, "new", model="beta")
    assert used(server) == 3 * HELD
    assert server.order("budget", "toy:0", bytes=2 * HELD).code == "done"
    server.wait(lambda: used(server) == 2 * HELD, "the prefix has gone")
    server.order("budget", "toy:0", bytes=HELD)
    server.wait(lambda: used(server) == HELD, "the older conversation has gone")
    lost = {one["id"]: one["lost"] for one in sessions(server)}
    assert lost == {"old": "its bytes were needed", "new": ""}
    refused = say(server, LONG, "third")
    assert refused.status == 413
    message = refused.json["detail"]["message"]
    for words in ("'toy:0'", "bytes requested ", f"in use {HELD}", f"limit {HELD}", "short by "):
        assert words in message
    assert used(server) == HELD
    assert "third" not in {one["id"] for one in sessions(server)}
    assert say(server, LONG, None).status == 200, "a request of no conversation keeps less, and is answered"
    server.order("budget", "toy:0", bytes=None)
    assert told(say(server, LONG, "old")) == "read in full: its bytes were needed"


def test_a_budget_that_is_none_is_refused(server: Framehost) -> None:
    """By the order and by the command."""
    for settings in ({}, {"bytes": -1}, {"bytes": "1"}, {"bytes": True}, {"bytes": 1, "more": 2}):
        assert server.order("budget", "toy:0", **settings).code == "invalid", settings
    with server.command("budget", "toy:0", "1e9") as command:
        assert command.wait() == 2
    with server.command("budget", "toy:0", "123456") as command:
        assert "123456 bytes" in command.communicate()[0]
    (device,) = server.status()["front"]["devices"]
    assert device["limit_bytes"] == 123456


def test_a_new_front_has_the_budget_of_the_former_one(server: Framehost) -> None:
    """The supervisor remembers it."""
    server.order("budget", "toy:0", bytes=777_777)
    pid = server.front_pid()
    os.kill(pid, signal.SIGKILL)
    server.wait(lambda: server.front_pid() not in (0, pid) and server.status()["front"], "a new front")
    server.wait(lambda: server.status()["front"]["devices"], "it knows the hosts")
    assert server.status()["front"]["devices"][0]["limit_bytes"] == 777_777


OUTCOMES: dict[str, tuple[dict[str, Any], dict[str, str], int]] = {
    # What the turn does, its headers, the status.
    "ok": ({}, {}, 200),
    "bad input": ({"op": "refuse"}, {}, 400),
    "an error of the executor": ({"op": "raise"}, {}, 500),
    "an answer that is none": ({"op": "lie", "how": "foreign"}, {}, 500),
    "host death": ({"op": "exit"}, {}, 503),
    "a device that fails": ({"op": "fatal"}, {}, 503),
    "deadline": ({"op": "heed"}, {"x-framehost-timeout-ms": "200"}, 504),
}


@pytest.mark.parametrize("session", ["a", None], ids=["conversation", "no conversation"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_however_a_turn_ends_nothing_stays_reserved(server: Framehost, outcome: str, session: str | None) -> None:
    """What is used at the end is what the hosts hold, and the last `DELETE` leaves zero bytes."""
    say(server, LONG)
    state, headers, status = OUTCOMES[outcome]
    body = {"model": "alpha", "state": {"text": LONG * 2, **state}, "questions": QUESTION}
    asked = body if session is None else {**body, "x_session": session}
    assert server.post(asked, **{name.replace("-", "_"): value for name, value in headers.items()}).status == status
    server.wait(server.idle, "idle")
    assert say(server, LONG).status == 200
    delete(server, "a")
    server.order("budget", "toy:0", bytes=0)
    server.wait(lambda: used(server) == 0, "every byte is given back")


def test_a_client_that_leaves_gives_its_bytes_back_when_its_turn_has_ended(server: Framehost, runtime: Path) -> None:
    """Not before: the host may still be reading."""
    until = runtime / "until"
    document = {
        "model": "alpha",
        "state": {"text": LONG, "op": "wait", "until": str(until)},
        "questions": QUESTION,
        "x_session": "a",
    }
    connection = server.open_post(document)
    server.running("alpha")
    reserved = used(server)
    assert reserved > HELD, "what it may come to hold"
    connection.close()
    server.wait(lambda: server.model("alpha")["scheduler"]["abandoned"] == 1, "it has left")
    assert used(server) == reserved
    until.touch()
    server.wait(lambda: used(server) == HELD, "what its turn has left is the conversation's")
    assert told(say(server, LONG)) == f"{len(LONG)} tokens kept"


def test_a_conversation_that_is_ended_during_its_turn_leaves_nothing(server: Framehost, runtime: Path) -> None:
    """The turn is answered; what it has pinned goes with it."""
    until = runtime / "until"
    turn = server._clients.submit(say, server, LONG, "a", "alpha", op="wait", until=str(until))
    server.running("alpha")
    assert delete(server, "a") == 200
    until.touch()
    assert turn.result().status == 200
    server.wait(lambda: used(server) == 0, "nothing is held")
    assert told(say(server, LONG)) == "read in full: it is new"
