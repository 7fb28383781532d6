"""The benchmark for CUDA machines, as far as a CPU takes it: the tiny shape, every column, and what makes it fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from benchmarks import gpu, qwen  # noqa: E402

RUN = ["--shapes", "tiny", "--device", "cpu", "--repeats", "1"]


def test_the_tiny_shape_agrees_on_a_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Everything but the replays is read, agrees with plain transformers, and is in the table and the file."""
    file = tmp_path / "lines.json"
    assert gpu.main([*RUN, "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("CPU, ")
    lines = json.loads(file.read_text())["lines"]
    assert printed.count("\n| tiny |") == len(lines)
    measured = [line for line in lines if line["repeats"]]
    assert {line["mode"] for line in measured} == {"plain", "eager", "packed", "shared"}
    assert {line["workload"] for line in measured} == {workload.name for workload in gpu.TINY_WORKLOADS}
    for line in measured:
        assert line["problem"] is None
        assert line["median_ms"] > 0
        assert line["hidden"] < 1e-5 < line["control"]
    rest = [line for line in lines if not line["repeats"]]
    assert {(line["mode"], line["problem"]) for line in rest} == {("replay", "needs a CUDA device")}


def test_a_reading_that_differs_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A judge that loses the beginning of every row disagrees with all the others."""

    def lost(self: gpu.Plain, rows: qwen.Rows) -> Any:
        return read(self, [row[-gpu.KEPT :] for row in rows])

    read = gpu.Plain.read
    monkeypatch.setattr(gpu.Plain, "read", lost)
    monkeypatch.setattr(gpu, "TINY_WORKLOADS", gpu.TINY_WORKLOADS[:1])
    assert gpu.main(RUN) == 1
    assert "| NO: above 0.001 |" in capsys.readouterr().out


def test_no_such_device(capsys: pytest.CaptureFixture[str]) -> None:
    """It says so instead of measuring something else."""
    assert gpu.main(["--shapes", "tiny", "--device", "cuda:99"]) == 2
    assert "there is no device 'cuda:99'" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "billions"), [("2b", 1.9), ("4b", 4.2), ("27b", 25.6)])
def test_the_shapes_have_the_published_sizes(name: str, billions: float) -> None:
    """Without building them."""
    assert qwen.parameters(gpu.SHAPES[name]) / 1e9 == pytest.approx(billions, abs=0.15)
