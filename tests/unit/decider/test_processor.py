"""The processor of the decider family: System One requests in, payloads out, logits in, answers out."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from frontend.errors import InternalError, InvalidRequest, RequestTooLarge, TokensExceeded, Unavailable
from frontend.families.base import AssetError, Prepared
from frontend.families.decider.checkpoint import load
from frontend.families.decider.processor import DeciderProcessor
from frontend.http.systemone import parse_request, render
from frontend.requests.questions import DecisionRequest
from protocol import families
from protocol.options import OptionError
from protocol.payloads import RowsRequest
from tests.unit.decider.helpers import rows_of
from tests.unit.test_layering import imported

np = pytest.importorskip("numpy")

CHOICE = {"type": "choice", "instructions": "Which?", "criteria": {"a": "first", "b": None, "c": {"k": 1}}}
NOUL = {"type": "noul", "criteria": {"true": "refund"}}
SCORE = {"type": "score", "instructions": {"ask": "How?"}, "criteria": ["0: low", {"n": 1}]}
ALL = {"c": CHOICE, "n": NOUL, "s": SCORE}


@pytest.fixture
def processor(folder: Path) -> DeciderProcessor:
    """A processor whose host has loaded the same files."""
    return DeciderProcessor({"files": dict(load(str(folder)).sha256)}, {}, str(folder))


def prepare(processor: DeciderProcessor, state: Any = "s", questions: Any = None) -> Prepared:
    """A System One request, prepared."""
    return processor.prepare(parse_request({"state": state, "questions": ALL if questions is None else questions}))


def output(prepared: Prepared, logits: list[float]) -> dict[str, Any]:
    """What the host would say."""
    (payload,) = prepared.units
    assert isinstance(payload, RowsRequest)
    return {"logits": np.array(logits, np.float32), "counts": payload.candidates.copy(), "execution": "rows"}


def test_one_unit_and_its_cost(processor: DeciderProcessor) -> None:
    """The whole request is one payload that survives the wire; its cost is the tokens of all rows."""
    prepared = prepare(processor)
    (payload,) = prepared.units
    assert isinstance(payload, RowsRequest)
    assert payload.candidates.tolist() == [3, 2, 2, 2]
    assert prepared.cost == len(payload.tokens) == sum(map(len, rows_of(payload)))
    back = RowsRequest.from_wire(payload.to_wire())
    assert rows_of(back) == rows_of(payload)


def test_answers_are_exact(processor: DeciderProcessor) -> None:
    """Temperatures by type, float64, unrounded, levels as they were sent, the hosted fields and no others."""
    prepared = prepare(processor)
    decision = processor.finish(prepared, [output(prepared, [1, 3, 2, 0, 1, 0, 2, 0, 1])])
    body = render(DecisionRequest(None, "", ()), "m", decision)
    temperatures = processor.checkpoint.temperatures
    weights = np.exp(np.array([1, 3, 2]) / temperatures.choice)
    choice = body["answers"]["c"]
    assert choice["choice"] == "b"
    assert list(choice["probabilities"].values()) == pytest.approx(weights / weights.sum(), abs=1e-15)
    noul = 1 / (1 + np.exp(-1 / temperatures.noul))
    assert body["answers"]["n"] == {"type": "noul", "noul": pytest.approx(noul, abs=1e-15)}
    fits = 1 / (1 + np.exp(-np.array([2, 1]) / temperatures.score))
    score = body["answers"]["s"]
    assert list(score["probabilities"].values()) == pytest.approx(fits / fits.sum(), abs=1e-15)
    assert score["legend"] == {"0": "0: low", "1": {"n": 1}}
    assert set(body) == {"model", "answers", "usage"}
    assert 0 < decision.input_tokens < prepared.cost


def test_a_cut_is_reported(folder: Path) -> None:
    """`truncate` answers from the first tokens and says so; without it the request is refused."""
    processor = DeciderProcessor({}, {"truncate": True}, str(folder))
    prepared = prepare(processor, "x " * 40_000, {"n": NOUL})
    decision = processor.finish(prepared, [output(prepared, [0, 1])])
    total = len(processor.checkpoint.vocabulary.encode("Context:\n" + "x " * 40_000))
    assert decision.extras == {"x_truncated": {"kept": 32_768, "total": total}}
    with pytest.raises(TokensExceeded, match="32768"):
        prepare(DeciderProcessor({}, {}, str(folder)), "x " * 40_000, {"n": NOUL})


@pytest.mark.parametrize(
    ("questions", "error", "place"),
    [
        ({"q": CHOICE | {"criteria": {"a": None}}}, InvalidRequest, ("questions", "q", "criteria")),
        ({"q": CHOICE | {"instructions": None}}, InvalidRequest, ("questions", "q", "instructions")),
        ({"q": CHOICE | {"instructions": ""}}, InvalidRequest, ("questions", "q", "instructions")),
        ({"q": SCORE | {"criteria": ["low"]}}, InvalidRequest, ("questions", "q", "criteria")),
        ({"q": NOUL | {"instructions": "long " * 40_000}}, TokensExceeded, None),
        ({str(i): SCORE | {"criteria": ["x"] * 10} for i in range(103)}, RequestTooLarge, None),
    ],
)
def test_the_limits_of_the_family(
    processor: DeciderProcessor, questions: Any, error: type[Exception], place: tuple[str, ...] | None
) -> None:
    """422 with its place for what cannot be asked, 400 for one text too long, 413 for too much in total."""
    with pytest.raises(error) as caught:
        prepare(processor, "s", questions)
    if isinstance(caught.value, InvalidRequest):
        assert caught.value.faults[0].loc == place


@pytest.mark.parametrize(
    "change",
    [
        {"logits": None},
        {"logits": [0.0] * 9},
        {"logits": np.zeros(9)},
        {"logits": np.zeros(8, np.float32)},
        {"logits": np.zeros((9, 1), np.float32)},
        {"counts": np.array([2, 3, 2, 2], np.int32)},
        {"counts": np.array([3, 2, 2], np.int32)},
        {"counts": [3, 2, 2, 2]},
        {"logits": np.full(9, np.nan, np.float32)},
    ],
)
def test_an_output_that_is_no_answer(processor: DeciderProcessor, change: dict[str, Any]) -> None:
    """Every wrong shape, type and number is an internal error, never an answer."""
    prepared = prepare(processor)
    with pytest.raises(InternalError):
        processor.finish(prepared, [output(prepared, [0.0] * 9) | change])
    with pytest.raises(InternalError):
        processor.finish(prepared, [])


def test_without_a_folder_it_says_so(tmp_path: Path) -> None:
    """A front starts whatever lies at the path; requests are told. A host with facts is refused."""
    for path in (None, str(tmp_path)):
        processor = DeciderProcessor({}, {}, path)
        with pytest.raises(Unavailable, match="cannot be prepared for"):
            prepare(processor)
        with pytest.raises(AssetError):
            DeciderProcessor({"files": {}}, {}, path)


def test_another_host_is_refused(folder: Path) -> None:
    """Facts that name other files, or none."""
    for facts in ({"files": {"tokenizer.json": "0"}}, {"identity": "x"}):
        with pytest.raises(AssetError):
            DeciderProcessor(facts, {}, str(folder))


def test_options() -> None:
    """Those of both halves are checked where the configuration is read."""
    known = DeciderProcessor.OPTIONS.complete({"truncate": True, "device": "cuda:0", "batch_rows": 2})
    assert (known["truncate"], known["device"], known["graphs"]) == (True, "cuda:0", False)
    for options in ({"truncate": 1}, {"batch_rows": True}, {"packing": 4}):
        with pytest.raises(OptionError):
            DeciderProcessor.OPTIONS.complete(options)


def test_the_family_is_registered() -> None:
    """Bounded by requests and by tokens, and any execution error retires its host (decisions 13 and 26)."""
    family = families.find("decider")
    assert families.resolve(family.processor) is DeciderProcessor
    assert families.resolve(family.payload) is RowsRequest
    assert (family.default_max_requests, family.default_max_cost) == (1024, 1_048_576)
    assert family.retire_on_error


def test_requests_in_threads_share_one_tokenizer(processor: DeciderProcessor) -> None:
    """Prepared at the same time in several threads, each has the rows it has alone."""
    states = [f"state {i} " * (50 + i) for i in range(16)]
    alone = [rows_of(prepare(processor, state).units[0]) for state in states]  # type: ignore[arg-type]
    with ThreadPoolExecutor(4) as pool:
        together = [rows_of(one.units[0]) for one in pool.map(lambda state: prepare(processor, state), states * 4)]  # type: ignore[arg-type]
    assert together == alone * 4


async def test_tokenizing_lets_the_loop_go_on(folder: Path) -> None:
    """While a pool thread reads a large state, the event loop gets its turns."""
    processor = await asyncio.to_thread(DeciderProcessor, {}, {"truncate": True}, str(folder))
    request = parse_request({"state": "some words of a state, " * 60_000, "questions": {"n": NOUL}})
    turns = 0
    done = threading.Event()

    def work() -> float:
        start = time.perf_counter()
        processor.prepare(request)
        done.set()
        return time.perf_counter() - start

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(work)
        while not done.is_set():
            await asyncio.sleep(0.002)
            turns += 1
        seconds = job.result()
    assert turns >= 10, f"{turns} turns of the loop in {seconds:.2f} s"


def test_naming_the_family_loads_nothing() -> None:
    """The supervisor checks options with the processor's class, so its modules import no array or token library."""
    seen = imported("frontend.families.decider.processor")
    assert seen.isdisjoint({"numpy", "tokenizers", "torch", "transformers", "aiohttp"})
