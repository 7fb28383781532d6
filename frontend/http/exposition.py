"""GET /metrics: what the front has counted and what the supervisor knows, in the formats Prometheus reads.

    request counts, histograms      of this front; they begin again with a new one, as counters may
    queues, permits                 of this front, now
    restarts, memory, hosts         the supervisor's, asked at a scrape; they outlive a front

A scrape costs the event loop a few milliseconds and touches no request. When the supervisor does not answer in time,
its part is missing from that scrape, which is what a missing fact should look like.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from frontend.http import routes
from frontend.observation.audit import AuditStatistics
from frontend.observation.metrics import SECONDS, Histogram
from frontend.runtime.admission import AdmissionStatistics
from frontend.serving.devices import Devices
from frontend.serving.replica import Availability
from frontend.serving.server import Server
from frontend.serving.statistics import DeploymentStatistics

MODEL = ["model"]
REPLICA = ["model", "replica"]


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics."""
    server = request.app[routes.SERVER]
    for deployment in server.deployments.values():
        deployment.ask_host()
    report = await server.ask_supervisor()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FrontCollector(server))
    ProcessCollector(registry=registry)
    if report is not None:
        registry.register(SupervisorCollector(report))
    encoder, content_type = _encoder(request.headers.get(hdrs.ACCEPT, ""))
    return routes.respond(request, encoder(registry), content_type)


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """What the scraper reads best; what cannot be read of its wish is no wish."""
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError, IndexError):  # the library takes versions and escapings for well-formed
        return choose_encoder("")


class FrontCollector(Collector):
    """What this front has counted, and where its requests are now."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._now()
        statistics = [deployment.statistics() for deployment in self._server.deployments.values()]
        yield from _queues(statistics)
        keys = () if self._server.keys is None else self._server.keys.statistics()
        yield from _devices(self._server.devices)
        yield from _permits((self._server.ingress.statistics(), *keys), statistics)
        yield from _models(statistics)

    def _requests(self) -> Iterator[Metric]:
        models = self._server.metrics.models
        requests = CounterMetricFamily(
            "framehost_requests",
            "Requests that have ended; model is empty for those that ended before they had one.",
            labels=["model", "dialect", "outcome", "status"],
        )
        tokens = CounterMetricFamily("framehost_input_tokens", "Tokens of answered requests.", labels=MODEL)
        for name, model in models.items():
            for (dialect, outcome, status), count in model.requests.items():
                requests.add_metric([name, dialect, outcome.value, str(status)], count)
            tokens.add_metric([name], model.input_tokens)
        yield requests
        yield tokens
        for part, text in (
            ("duration", "Answered requests, from the first byte to the answer."),
            ("queue_wait", "Waiting for the model's executor, summed over the units of a request."),
            ("load", "Waiting for a model that was not there: being loaded, or in the middle of a swap."),
            ("prepare", "Parsing, validating and rendering a request."),
            ("execute", "At the executor host and on the way, summed over the units of a request."),
            ("finish", "Making answers of the model's outputs."),
        ):
            family = HistogramMetricFamily(f"framehost_request_{part}_seconds", text, labels=MODEL)
            for name, model in models.items():
                _add(family, [name], getattr(model, part))
            yield family

    def _now(self) -> Iterator[Metric]:
        server = self._server
        yield GaugeMetricFamily(
            "framehost_requests_open", "Requests that have begun and not ended.", server.requests.statistics().open
        )
        denied = CounterMetricFamily(
            "framehost_requests_denied", "Requests refused before the upload, on any port.", labels=["reason"]
        )
        for reason, count in server.metrics.denied.items():
            denied.add_metric([reason.value], count)
        yield denied
        noted = CounterMetricFamily("framehost_audit_lines", "Lines of the audit log.", labels=["result"])
        lines = AuditStatistics(0, 0) if server.audit is None else server.audit.statistics()
        noted.add_metric(["written"], lines.written)
        noted.add_metric(["lost"], lines.lost)
        yield noted
        poisoned = server.poison.report()
        yield GaugeMetricFamily(
            "framehost_poisoned_requests", "Requests that have ended two hosts and are refused.", poisoned["requests"]
        )
        yield CounterMetricFamily(
            "framehost_poisoned_refused", "How often such a request was refused.", poisoned["refused"]
        )
        connections = server.clients.report()
        yield GaugeMetricFamily("framehost_connections", "Open client connections.", connections["open"])
        yield GaugeMetricFamily(
            "framehost_connections_limit", "Client connections from which on newcomers need room.", connections["limit"]
        )
        turned = CounterMetricFamily(
            "framehost_connections_ended", "Client connections ended by the server.", labels=["reason"]
        )
        turned.add_metric(["idle"], connections["ended_idle"])
        turned.add_metric(["refused"], connections["refused"])
        turned.add_metric(["unread"], connections["aborted"])
        yield turned
        keys = server.keys
        yield GaugeMetricFamily(
            "framehost_key_file_not_in_force",
            "1 while the key file cannot be used and the keys before it are in force.",
            keys is not None and bool(keys.problem),
        )
        yield GaugeMetricFamily("framehost_draining", "1 once a stop has been asked for.", server.draining)
        lag = HistogramMetricFamily("framehost_event_loop_lag_seconds", "How late the event loop came to a timer.")
        _add(lag, [], server.metrics.lag)
        yield lag


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    total, buckets = 0, []
    for bound, count in zip((*map(str, SECONDS), "+Inf"), histogram.counts, strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.sum)


def _queues(statistics: list[DeploymentStatistics]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("framehost_queue_depth", "Units that wait for the executor.", labels=MODEL)
    running = GaugeMetricFamily(
        "framehost_units_running", "Units at the executors, one per replica at most.", labels=MODEL
    )
    abandoned = GaugeMetricFamily("framehost_units_abandoned", "Running units whose client has left.", labels=MODEL)
    units = CounterMetricFamily("framehost_units", "Units by their end.", labels=["model", "end"])
    staged = GaugeMetricFamily("framehost_units_staged", "Units sent ahead and not begun with.", labels=MODEL)
    joined = GaugeMetricFamily("framehost_units_joined", "Units that wait for the end of an equal one.", labels=MODEL)
    batches = CounterMetricFamily("framehost_batches", "Batches sent, of one unit or more.", labels=MODEL)
    saved = CounterMetricFamily(
        "framehost_units_not_executed", "Units answered by an equal one, and how.", labels=["model", "by"]
    )
    dropped = CounterMetricFamily("framehost_results_dropped", "Results whose client had left.", labels=MODEL)
    hostless = GaugeMetricFamily("framehost_requests_waiting_for_host", "Requests whose model loads.", labels=MODEL)
    late = CounterMetricFamily(
        "framehost_replies_unmatched", "Replies of the present host that no unit waited for.", labels=REPLICA
    )
    for model in statistics:
        scheduler = model.scheduler
        depth.add_metric([model.name], scheduler.waiting)
        running.add_metric([model.name], scheduler.running)
        abandoned.add_metric([model.name], scheduler.abandoned)
        staged.add_metric([model.name], scheduler.staged)
        joined.add_metric([model.name], scheduler.joined)
        batches.add_metric([model.name], scheduler.batches)
        saved.add_metric([model.name, "joining"], scheduler.joins)
        saved.add_metric([model.name, "answer_cache"], scheduler.answers_kept)
        for end in ("completed", "refused", "withdrawn"):
            units.add_metric([model.name, end], getattr(scheduler, end))
        units.add_metric([model.name, "failed"], scheduler.failed - scheduler.refused)
        dropped.add_metric([model.name], scheduler.dropped_results)
        hostless.add_metric([model.name], model.waiting_for_host)
        for replica in model.replicas:
            if replica.link is not None:
                late.add_metric([model.name, str(replica.replica)], replica.link.late + replica.link.unknown)
    yield from (depth, running, abandoned, staged, joined, batches, units, saved, dropped, hostless, late)
    yield from _answer_caches(statistics)
    yield from _kept_prefixes(statistics)


def _answer_caches(statistics: list[DeploymentStatistics]) -> Iterator[Metric]:
    held = GaugeMetricFamily("framehost_answer_cache_bytes", "Bytes of answers that are kept.", labels=MODEL)
    most = GaugeMetricFamily("framehost_answer_cache_limit_bytes", "Bytes of answers kept at most.", labels=MODEL)
    asked = CounterMetricFamily(
        "framehost_answer_cache_lookups", "Answers looked for, by result.", labels=["model", "result"]
    )
    evicted = CounterMetricFamily("framehost_answer_cache_evicted", "Answers dropped for others.", labels=MODEL)
    for model in statistics:
        kept = model.answers
        held.add_metric([model.name], kept.size)
        most.add_metric([model.name], kept.limit)
        asked.add_metric([model.name, "hit"], kept.hits)
        asked.add_metric([model.name, "miss"], kept.misses)
        evicted.add_metric([model.name], kept.evicted)
    yield from (held, most, asked, evicted)


def _kept_prefixes(statistics: list[DeploymentStatistics]) -> Iterator[Metric]:
    held = GaugeMetricFamily("framehost_kept_prefix_bytes", "Bytes of prefixes that a host keeps.", labels=REPLICA)
    most = GaugeMetricFamily("framehost_kept_prefix_limit_bytes", "Bytes of prefixes kept at most.", labels=REPLICA)
    asked = CounterMetricFamily(
        "framehost_kept_prefix_lookups", "Prefixes looked for, by result.", labels=[*REPLICA, "result"]
    )
    spared = CounterMetricFamily("framehost_kept_prefix_tokens", "Tokens that were not read again.", labels=REPLICA)
    evicted = CounterMetricFamily("framehost_kept_prefix_evicted", "Segments dropped for others.", labels=REPLICA)
    for model in statistics:
        for replica in model.replicas:
            if replica.kept:
                labels = [model.name, str(replica.replica)]
                held.add_metric(labels, replica.kept.get("bytes", 0))
                most.add_metric(labels, replica.kept.get("limit_bytes", 0))
                asked.add_metric([*labels, "hit"], replica.kept.get("hits", 0))
                asked.add_metric([*labels, "miss"], replica.kept.get("misses", 0))
                spared.add_metric(labels, replica.kept.get("kept_tokens", 0))
                evicted.add_metric(labels, replica.kept.get("evicted", 0))
    yield from (held, most, asked, spared, evicted)


def _devices(devices: Devices) -> Iterator[Metric]:
    used = GaugeMetricFamily("framehost_device_kept_bytes", "Bytes kept on a device, or reserved.", labels=["device"])
    most = GaugeMetricFamily("framehost_device_kept_limit_bytes", "Bytes kept on a device at most.", labels=["device"])
    for device in devices.statistics():
        used.add_metric([device.device], device.used_bytes)
        most.add_metric([device.device], device.limit_bytes)
    open_ = GaugeMetricFamily("framehost_sessions", "Conversations.", labels=MODEL)
    tokens = GaugeMetricFamily("framehost_session_tokens", "Tokens held of conversations.", labels=MODEL)
    count, held = Counter[str](), Counter[str]()
    for one in devices.conversations:
        count[one.model] += 1
        held[one.model] += one.tokens
    for model, number in sorted(count.items()):
        open_.add_metric([model], number)
        tokens.add_metric([model], held[model])
    yield from (used, most, open_, tokens)


def _permits(shared: Sequence[AdmissionStatistics], statistics: list[DeploymentStatistics]) -> Iterator[Metric]:
    labels = ["model", "admission"]
    used = GaugeMetricFamily("framehost_permits", "Requests that an admission holds.", labels=labels)
    bound = GaugeMetricFamily("framehost_permits_limit", "Requests that an admission holds at most.", labels=labels)
    cost = GaugeMetricFamily("framehost_cost", "Cost that an admission holds: tokens or bytes.", labels=labels)
    most = GaugeMetricFamily("framehost_cost_limit", "Cost that an admission holds at most.", labels=labels)
    admitted = CounterMetricFamily("framehost_admitted", "Requests that an admission let in.", labels=labels)
    rejected = CounterMetricFamily("framehost_rejected", "Requests that an admission refused.", labels=labels)
    layers = [(["", layer.name], layer) for layer in shared]
    for model in statistics:
        layers += [([model.name, layer.name.removeprefix(f"{model.name} ")], layer) for layer in model.admissions]
    for where, layer in layers:
        used.add_metric(where, layer.outstanding)
        bound.add_metric(where, layer.requests)
        if layer.cost is not None:
            cost.add_metric(where, layer.held)
            most.add_metric(where, layer.cost)
        admitted.add_metric(where, layer.admitted)
        rejected.add_metric(where, layer.rejected)
    yield from (used, bound, cost, most, admitted, rejected)


def _models(statistics: list[DeploymentStatistics]) -> Iterator[Metric]:
    state = GaugeMetricFamily("framehost_model_state", "1 for the state a model is in.", labels=["model", "state"])
    device = GaugeMetricFamily(
        "framehost_host_device_memory_bytes", "Device memory that a host's allocator holds.", labels=REPLICA
    )
    busy = GaugeMetricFamily("framehost_host_busy_seconds", "How long the running unit has run.", labels=REPLICA)
    for model in statistics:
        for availability in Availability:
            state.add_metric([model.name, availability.value], model.availability == availability.value)
        for replica in model.replicas:
            place = [model.name, str(replica.replica)]
            if isinstance(held := replica.host.get("device_bytes"), int):
                device.add_metric(place, held)
            if isinstance(seconds := replica.host.get("busy_s"), float):
                busy.add_metric(place, seconds)
    yield from (state, device, busy)


class SupervisorCollector(Collector):
    """What the supervisor knows of the processes. Its counts do not begin again with a new front."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        report = self._report
        front = report["front_process"]
        yield GaugeMetricFamily("framehost_uptime_seconds", "Since the supervisor started.", report["uptime_s"])
        yield CounterMetricFamily("framehost_front_restarts", "Fronts started after a death.", front["restarts"])
        yield CounterMetricFamily(
            "framehost_log_lines_lost", "Lines of the log that its reader did not take.", report["log_lines_lost"]
        )
        memory = GaugeMetricFamily(
            "framehost_process_resident_memory_bytes", "Resident memory of the front and the supervisor.",
            labels=["process"],
        )  # fmt: skip
        memory.add_metric(["front"], front["rss_bytes"])
        memory.add_metric(["supervisor"], report["supervisor_rss_bytes"])
        yield memory
        restarts = CounterMetricFamily("framehost_host_restarts", "Hosts started after a death.", labels=REPLICA)
        by_requests = CounterMetricFamily(
            "framehost_host_request_deaths", "Deaths of hosts that a request caused.", labels=REPLICA
        )
        resident = GaugeMetricFamily(
            "framehost_host_resident_memory_bytes", "Resident memory of hosts.", labels=REPLICA
        )
        load = GaugeMetricFamily("framehost_host_load_seconds", "How long the last load took.", labels=REPLICA)
        # During a swap a model has the hosts of two deployments, and a series must not be there twice.
        places: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for host in report["hosts"]:
            places.setdefault((host["model"], str(host["replica"])), []).append(host)
        for place, hosts in places.items():
            restarts.add_metric(place, sum(host["restarts"] for host in hosts))
            by_requests.add_metric(place, sum(host["request_deaths"] for host in hosts))
            resident.add_metric(place, sum(host["rss_bytes"] for host in hosts))
            load.add_metric(place, max(host["load_s"] for host in hosts))
        yield _info(report["hosts"])
        turns = CounterMetricFamily(
            "framehost_model_turns", "How often a model made room although it was busy.", labels=MODEL
        )
        for model in {host["model"] for host in report["hosts"]}:
            made = {host["deployment"]: host["turns"] for host in report["hosts"] if host["model"] == model}
            turns.add_metric([model], sum(made.values()))
        yield from (restarts, by_requests, resident, load, turns)
        swaps = CounterMetricFamily("framehost_swaps", "Swaps by their result.", labels=["model", "result"])
        for model, results in report["swaps"].items():
            for result, count in results.items():
                swaps.add_metric([model, result], count)
        yield swaps


def _info(hosts: Sequence[Mapping[str, Any]]) -> Metric:
    """What each deployment is made of. Its replicas have one series: of the weights that the first loaded one says."""
    labels = ["model", "deployment", "role", "family", "path", "identity", "options"]
    info = GaugeMetricFamily("framehost_model_info", "1 for what a model is made of.", labels=labels)
    made: dict[str, list[Mapping[str, Any]]] = {}
    for host in hosts:
        made.setdefault(host["deployment"], []).append(host)
    for replicas in made.values():
        one = next((host for host in replicas if host["identity"]), replicas[0])
        options = json.dumps(one["options"], ensure_ascii=False, sort_keys=True)
        texts = [str(one[label] or "") for label in labels[:-1]]
        info.add_metric([*texts, options], 1)
    return info
