"""What a scrape says, what an answer says of its own time, what the log says: after requests with known ends."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontend.configuration.keys import ApiKey, KeyRing
from frontend.observation.metrics import SECONDS, Histogram
from frontend.serving.replica import Availability
from frontend.serving.retention import Retention
from protocol.messages import Result, Status
from protocol.retention import Cost
from tests.helpers.fake_host import failure, until
from tests.http.main_port import QUESTION, Main

ROOT = Path(__file__).resolve().parents[2]
HOST = {"model": "m", "replica": 0, "role": "current", "state": "ready", "progress": ["loading", 0.5, "secret words"]}
MADE = {"family": "decider", "path": "/models/v2", "options": {"truncate": True}, "identity": "5c2f0b6a"}
COUNTS = {"turns": 2, "request_deaths": 3, "last_death": "killed by SIGKILL\nsecret words"}
REPORT: Mapping[str, Any] = {
    "uptime_s": 12.5,
    "supervisor_rss_bytes": 3,
    "log_lines_lost": 0,
    "front_process": {"restarts": 2, "rss_bytes": 4},
    "hosts": [
        {**HOST, **MADE, "deployment": "m@1", "restarts": 7, "rss_bytes": 5, "load_s": 0.5, **COUNTS},
        {
            **HOST,
            **MADE,
            "deployment": "m@2",
            "restarts": 0,
            "rss_bytes": 6,
            "load_s": 0.25,
            **COUNTS,
            "role": "coming",
            "identity": "",
            "path": None,
        },
    ],
    "deaths": [
        {"at": 1.0, "who": "m", "how": "killed by SIGKILL"},
        {"at": 2.0, "who": "front", "how": "exit status 1"},
    ],
    "swaps": {"m": {"done": 2, "failed": 1}},
}


KEPT = {"hits": 3, "misses": 2, "kept_tokens": 512, "evicted": 1, "nodes": 4, "bytes": 4096, "limit_bytes": 8192}
"""What a host says of the prefixes that it keeps."""


async def answered_with(main: Main, statistics: object) -> None:
    """One request, and what its host says with the answer."""
    asked = asyncio.create_task(main.post())
    outputs = {"call": 1, "statistics": statistics}
    main.host.answer((await main.host.unit()).call, Result(outputs=outputs, elapsed_us=1))
    assert (await asked).status == 200


async def test_every_end_is_counted_once_with_its_model_dialect_outcome_and_status(main: Main) -> None:
    """Answered, refused, failed: also those that ended before they had a model."""
    await main.answered()
    await main.answered()
    assert (await main.post("cost:11")).status == 413
    failing = asyncio.create_task(main.post())
    main.host.answer((await main.host.unit()).call, failure())
    assert (await failing).status == 500
    assert (await main.client.post(f"{main.url}/v1/systemone", data=b"{")).status == 422
    samples = await main.scrape()
    assert {key[1:]: value for key, value in samples.items() if key[0] == "framehost_requests_total"} == {
        ("m", "systemone", "answered", "200"): 2,
        ("m", "systemone", "refused", "413"): 1,
        ("m", "systemone", "failed", "500"): 1,
        ("", "systemone", "refused", "422"): 1,
    }


async def test_what_a_host_keeps_of_prefixes_is_told_by_replica(main: Main) -> None:
    """As its last answer said; what is no count of ours is not told, and another host begins anew."""

    async def answered(statistics: object) -> dict[tuple[str, ...], float]:
        await answered_with(main, statistics)
        return {key: value for key, value in (await main.scrape()).items() if "kept_prefix" in key[0]}

    assert await answered({"kept": KEPT}) == {
        ("framehost_kept_prefix_bytes", "m", "0"): 4096,
        ("framehost_kept_prefix_limit_bytes", "m", "0"): 8192,
        ("framehost_kept_prefix_lookups_total", "m", "0", "hit"): 3,
        ("framehost_kept_prefix_lookups_total", "m", "0", "miss"): 2,
        ("framehost_kept_prefix_tokens_total", "m", "0"): 512,
        ("framehost_kept_prefix_evicted_total", "m", "0"): 1,
    }
    for foreign in ({"kept": {"hits": -1, "bytes": "secret"}}, {"kept": 7}, "words", None):
        assert await answered(foreign) == {}


async def test_a_clients_words_never_become_labels(main: Main) -> None:
    """A thousand made-up models would be a thousand series."""
    before = set(await main.scrape())
    for number in range(3):
        assert (await main.post(model=f"made-up-{number}")).status == 400
        assert (await main.client.get(f"{main.url}/made-up-{number}")).status == 404
    after = await main.scrape()
    assert not [key for key in after if "made-up" in str(key)]
    assert after["framehost_requests_total", "", "systemone", "refused", "400"] == 3
    assert {key[1] for key in set(after) - before if len(key) > 1} == {""}


async def test_a_histogram_has_the_requests_that_got_to_its_part(main: Main) -> None:
    """All of them have prepared, two have waited and run, one was answered."""
    await main.answered("units:3", units=3)
    failing = asyncio.create_task(main.post())
    main.host.answer((await main.host.unit()).call, failure())
    await failing
    await main.post("cost:11")
    samples = await main.scrape()
    counts = {
        part: samples[f"framehost_request_{part}_seconds_count", "m"]
        for part in ("prepare", "queue_wait", "execute", "finish", "duration")
    }
    assert counts == {"prepare": 3, "queue_wait": 2, "execute": 2, "finish": 1, "duration": 1}


async def test_a_request_that_gives_up_in_the_queue_has_waited(main: Main) -> None:
    """Its wait is the one an operator wants to see."""
    running = asyncio.create_task(main.post())
    unit = await main.host.unit()
    headers = {"x-framehost-timeout-ms": "20"}
    body = {"state": "x", "questions": QUESTION}
    late = await main.client.post(f"{main.url}/v1/systemone", json=body, headers=headers)
    assert late.status == 504
    samples = await main.scrape()
    assert samples["framehost_request_queue_wait_seconds_count", "m"] == 1
    assert samples["framehost_request_queue_wait_seconds_sum", "m"] > 0
    assert samples["framehost_requests_total", "m", "systemone", "expired", "504"] == 1
    main.host.answer(unit.call)
    await running


async def test_queues_permits_and_refusals_are_those_of_now(main: Main) -> None:
    """One unit runs, one waits, a third request finds no slot."""
    asked = [asyncio.create_task(main.post("cost:2")) for _ in range(2)]
    unit = await main.host.unit()
    await until(lambda: main.deployment.scheduler.statistics().waiting == 1, "one waits")
    assert (await main.post()).status == 429
    samples = await main.scrape()
    assert samples["framehost_queue_depth", "m"] == samples["framehost_units_running", "m"] == 1
    assert samples["framehost_permits", "m", "requests"] == samples["framehost_permits_limit", "m", "requests"] == 2
    assert (samples["framehost_cost", "m", "cost"], samples["framehost_cost_limit", "m", "cost"]) == (4, 10)
    assert samples["framehost_rejected_total", "m", "requests"] == 1
    assert samples["framehost_requests_open",] == 2
    assert samples["framehost_permits", "", "ingress"] == 0
    main.host.answer(unit.call)
    main.host.answer((await main.host.unit()).call)
    await asyncio.gather(*asked)


async def test_a_body_that_is_refused_was_not_admitted(main: Main) -> None:
    """Although its slot was reserved before it came, whichever layer refuses it. Two units of a request are one."""
    assert (await main.post(model=5)).status == 422
    assert (await main.post("cost:11")).status == 413
    samples = await main.scrape()
    assert samples["framehost_admitted_total", "m", "requests"] == samples["framehost_admitted_total", "m", "cost"] == 0
    await main.answered("units:2", units=2)
    samples = await main.scrape()
    assert samples["framehost_admitted_total", "m", "requests"] == samples["framehost_admitted_total", "m", "cost"] == 1
    assert samples["framehost_admitted_total", "", "ingress"] == 3


async def test_the_budgets_of_keys_are_admissions_like_the_others(main: Main) -> None:
    """Under the key's name, which is the operator's; a key without bounds has none to show."""
    bounded = ApiKey(name="alice", sha256=bytes(32), max_requests=3)
    main.server.keys = KeyRing(None, [bounded, ApiKey(name="free", sha256=b"x" * 32)])
    samples = await main.scrape()
    assert samples["framehost_permits_limit", "", "alice key requests"] == 3
    assert not [key for key in samples if "free" in str(key)]


async def test_a_client_that_leaves_is_cancelled_and_its_running_unit_abandoned(main: Main) -> None:
    """And the result that nobody wants is counted when it comes."""
    asked = asyncio.create_task(main.post())
    unit = await main.host.unit()
    asked.cancel()
    await main.host.cancelled()
    samples = await main.scrape()
    assert samples["framehost_units_abandoned", "m"] == 1
    assert samples["framehost_requests_total", "m", "systemone", "cancelled", "499"] == 1
    main.host.answer(unit.call)
    await until(lambda: not main.deployment.scheduler.statistics().running, "it has ended")
    assert (await main.scrape())["framehost_results_dropped_total", "m"] == 1


async def test_the_supervisors_part_is_there_when_it_answers(main: Main) -> None:
    """And is missing, not zero, when it does not. In the middle of a swap a model has two hosts and one series."""
    assert ("framehost_front_restarts_total",) not in await main.scrape()

    async def answer() -> Mapping[str, Any]:
        return REPORT

    main.server.ask_supervisor = answer
    samples = await main.scrape()
    assert samples["framehost_front_restarts_total",] == 2
    assert samples["framehost_host_restarts_total", "m", "0"] == 7
    assert samples["framehost_host_request_deaths_total", "m", "0"] == 6
    assert samples["framehost_model_turns_total", "m"] == 4
    assert samples["framehost_host_resident_memory_bytes", "m", "0"] == 11
    assert samples["framehost_host_load_seconds", "m", "0"] == 0.5
    options = '{"truncate": true}'
    former = ("m", "m@1", "decider", "5c2f0b6a", options, "/models/v2", "current")
    assert samples["framehost_model_info", *former] == 1
    assert samples["framehost_model_info", "m", "m@2", "decider", "", options, "", "coming"] == 1
    assert samples["framehost_swaps_total", "m", "done"] == 2
    assert samples["framehost_process_resident_memory_bytes", "front"] == 4


async def test_what_a_host_says_of_itself_is_in_the_scrape_after_its_answer(main: Main) -> None:
    """Device memory and how long its unit has run; a scrape does not wait for it."""
    assert ("framehost_host_device_memory_bytes", "m", "0") not in await main.scrape()
    main.host.tell(Status(report={"busy": True, "busy_s": 1.5, "device_bytes": 1024}))
    await until(lambda: main.deployment.statistics().host, "the report has come")
    samples = await main.scrape()
    assert samples["framehost_host_device_memory_bytes", "m", "0"] == 1024
    assert samples["framehost_host_busy_seconds", "m", "0"] == 1.5


async def test_states_of_a_model_are_exclusive(main: Main) -> None:
    """Exactly one is 1."""
    samples = await main.scrape()
    assert {key[2]: value for key, value in samples.items() if key[0] == "framehost_model_state"} == {
        state.value: float(state is Availability.READY) for state in Availability
    }


async def test_the_loops_lag_is_measured(main: Main) -> None:
    """A blocked loop comes late to its timer, and the histogram says by how much."""
    main.server.metrics.watch_lag()
    lag = main.server.metrics.lag
    await until(lambda: sum(lag.counts), "a first look")
    main.server.metrics.close()
    assert (await main.scrape())["framehost_event_loop_lag_seconds_count",] == sum(lag.counts)


async def test_openmetrics_is_spoken_to_those_who_ask_for_it(main: Main) -> None:
    """Prometheus asks for it; a browser gets plain text."""
    openmetrics = await main.client.get(
        f"{main.url}/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert openmetrics.headers["Content-Type"].startswith("application/openmetrics-text")
    assert (await openmetrics.text()).endswith("# EOF\n")
    plain = await main.client.get(f"{main.url}/metrics")
    assert plain.headers["Content-Type"].startswith("text/plain")
    assert plain.headers["x-request-id"]


async def test_an_answer_says_how_long_its_parts_took(main: Main) -> None:
    """Four parts in milliseconds, on answers only."""
    response = await main.answered()
    timed = {
        name: float(duration)
        for name, _, duration in (part.partition(";dur=") for part in response.headers["Server-Timing"].split(", "))
    }
    assert timed.keys() == {"queue", "prepare", "execute", "finish"}
    assert timed["execute"] > 0
    assert "Server-Timing" not in (await main.post("cost:11")).headers


async def test_the_log_line_of_a_request_is_logfmt(main: Main, caplog: pytest.LogCaptureFixture) -> None:
    """Id, end, times and tokens; nothing of the state."""
    with caplog.at_level(logging.INFO, "framehost.access"):
        await main.answered("a secret state")
        await main.post("cost:11")
    first, second = (dict(field.split("=", 1) for field in record.getMessage().split()) for record in caplog.records)
    assert (first["outcome"], first["status"], first["model"], first["dialect"]) == (
        "answered",
        "200",
        "m",
        "systemone",
    )
    assert first["input_tokens"] == "1"
    assert {"upload_ms", "prepare_ms", "queue_ms", "execute_ms", "finish_ms", "total_ms"} <= first.keys()
    assert "execute_ms" not in second, "it did not get there"
    assert "secret" not in caplog.text


@pytest.mark.parametrize("name", ["two words", 'quo"ted', "a=b", "back\\slash"])
async def test_a_name_that_is_no_bare_word_is_quoted(main: Main, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """A line must have the same fields whatever a model is called."""
    main.server.deployments[name] = main.server.deployments.pop("m")
    main.server.default = name
    main.deployment.name = name
    with caplog.at_level(logging.INFO, "framehost.access"):
        await main.answered()
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    assert f' model="{escaped}" ' in caplog.text


@pytest.mark.parametrize("document", ["grafana.json", "operations.md", "alerts.yml"])
async def test_every_metric_that_a_document_names_exists(main: Main, document: str) -> None:
    """A dashboard with a panel that is empty for ever, or an alert that cannot fire, is worse than none."""

    async def answer() -> Mapping[str, Any]:
        return REPORT

    main.server.ask_supervisor = answer
    main.server.metrics.watch_lag()
    main.host.tell(Status(report={"busy": False, "busy_s": 0.0, "device_bytes": 1024}))
    await until(lambda: main.deployment.statistics().host, "the report has come")
    await answered_with(main, {"kept": KEPT})
    devices = main.server.devices
    Retention("m", "m@1/1", devices).host_up("cpu", {"keeps": Cost(1, 1, 1, 1).to_wire()}, lambda _: None)
    devices.conversations.open("", "m", "a")
    samples = {key[0] for key in await main.scrape()}
    served = samples | {name.removesuffix("_bucket") for name in samples}
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:framehost|process)_[a-z_]+[a-z]\b", text)) - {"process_name"}
    assert named, "the document names metrics"
    assert {name for name in named if name not in served} == set()
    main.server.metrics.close()


async def test_every_metric_of_ours_is_documented(main: Main) -> None:
    """By the name it is served under; of a histogram, by the name of the whole."""

    async def answer() -> Mapping[str, Any]:
        return REPORT

    main.server.ask_supervisor = answer
    text = await (await main.client.get(f"{main.url}/metrics")).text()
    families = {family.name for family in text_string_to_metric_families(text) if family.name.startswith("framehost_")}
    documented = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {name for name in families if f"`{name}" not in documented} == set()


def test_a_value_is_in_the_first_bucket_that_it_is_not_above() -> None:
    """As Prometheus' `le` says; the last count is for what is above all bounds."""
    histogram = Histogram()
    for value in (0.0, SECONDS[0], 0.00011, 31.0):
        histogram.observe(value)
    assert histogram.counts == [2, 1, *[0] * (len(SECONDS) - 2), 1]
    assert histogram.sum == pytest.approx(31.00021)
