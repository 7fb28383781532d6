"""The two halves of the decider family around one tiny checkpoint, without a wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frontend.families.base import AssetError
from frontend.families.decider.processor import DeciderProcessor
from frontend.http.systemone import parse_request
from protocol.payloads import RowsRequest

pytest.importorskip("torch", reason="needs framehost[torch]")
pytest.importorskip("transformers", reason="needs framehost[torch]")
decider = pytest.importorskip("executor_host.executors.decider.executor")


class _Call:
    cancelled = False
    remaining_ms = None


def test_a_decision(tmp_path: Path) -> None:
    """Facts fit, labels and temperatures are the same on both sides, and every question has its answer."""
    from tests.helpers import tiny_decider

    folder = str(tiny_decider.write(tmp_path / "one"))
    executor = decider.DeciderExecutor(folder, {"device": "cpu"})
    try:
        facts = executor.load(lambda fraction, note: None)
        executor.warm_up()
        processor = DeciderProcessor(facts, {}, folder)
        assert list(processor.checkpoint.vocabulary.labels) == facts["label_ids"]
        temperatures = processor.checkpoint.temperatures
        assert facts["temperatures"] == {k: getattr(temperatures, k) for k in ("choice", "noul", "score")}
        questions: dict[str, Any] = {
            "c": {"type": "choice", "instructions": "Which?", "criteria": {str(i): None for i in range(12)}},
            "n": {"type": "noul", "instructions": "Is it?"},
            "s": {"type": "score", "instructions": "How?", "criteria": ["low", "middle", "high"]},
        }
        prepared = processor.prepare(parse_request({"state": {"a": [1] * 9}, "questions": questions}))
        (unit,) = prepared.units
        assert isinstance(unit, RowsRequest)
        output = executor.execute(RowsRequest.from_wire(unit.to_wire()), _Call())
        decision = processor.finish(prepared, [output])
        assert [name for name, _ in decision.answers] == ["c", "n", "s"]
        assert prepared.cost == len(unit.tokens)
    finally:
        executor.close()
    other = tmp_path / "other"
    document = tiny_decider.write_texts(other)
    assert document
    (other / "decider_config.json").write_text((other / "decider_config.json").read_text() + "\n")
    with pytest.raises(AssetError, match=r"decider_config\.json"):
        DeciderProcessor(facts, {}, str(other))
