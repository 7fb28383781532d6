"""What `framehost status` prints of a host: what it is made of, and how long its load took."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.cli.status import render

HOST: dict[str, Any] = {
    "model": "judge",
    "family": "decider",
    "deployment": "judge@1",
    "replica": 0,
    "role": "current",
    "spare": False,
    "state": "ready",
    "incarnation": "1-9f1c2ab4",
    "pid": 4711,
    "rss_bytes": 2**20,
    "load_s": 1.5,
    "restarts": 0,
    "request_deaths": 0,
    "progress": None,
    "progress_age_s": 0.0,
    "silent_s": 0.0,
    "pinned": False,
    "keep_alive_s": None,
    "failed": "",
    "last_death": "",
    "path": "/models/v2",
    "options": {"truncate": True},
    "identity": "5c2f0b6a",
}


def lines(**host: Any) -> list[str]:
    """The lines of one host, in a server whose front does not answer."""
    process = {"serving": True, "pid": 1, "rss_bytes": 0, "restarts": 0, "silent_s": 1.0}
    report = {
        "url": "http://127.0.0.1:8080", "stopping": False, "uptime_s": 1.0, "pid": 2, "supervisor_rss_bytes": 0,
        "health": "", "log_lines_lost": 0, "front": None, "front_process": process, "hosts": [{**HOST, **host}],
    }  # fmt: skip
    return render(report).split("\n")[2:]


def test_a_host_is_shown_with_what_it_is_made_of() -> None:
    """The path of its checkpoint, what it says of the weights, the options that were given."""
    assert lines()[1] == '        path /models/v2, identity 5c2f0b6a, options {"truncate": true}'


def test_what_is_not_known_of_a_host_is_not_shown() -> None:
    """Weights that come with the family have no path, those that are not loaded have no identity."""
    assert len(lines(path=None, identity="", options={})) == 1
    assert lines(path=None, identity="")[1] == '        options {"truncate": true}'


@pytest.mark.parametrize("state", ["starting", "loading", "warming", "restarting", "dead", "absent"])
def test_the_time_of_a_load_is_not_that_of_the_one_before(state: str) -> None:
    """While the next host loads, and after the last one has gone."""
    assert "loaded in 1.50 s" in lines()[0]
    assert "loaded in" not in lines(state=state)[0]
