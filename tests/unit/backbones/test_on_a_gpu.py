"""What is another thing on a GPU: how rows are read where nobody says, in settings, facts and identity alike, and an
error of its allocator. No GPU is needed: a device of that name is a CPU here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from executor_host import devices  # noqa: E402
from executor_host.backbones import qwen3_5  # noqa: E402
from executor_host.errors import DeviceMemory, FatalExecutionError  # noqa: E402
from executor_host.executors.cua_s1.executor import CuaS1Executor  # noqa: E402
from executor_host.executors.decider.executor import DeciderExecutor  # noqa: E402
from executor_host.executors.kev import model as kev_model  # noqa: E402
from tests.helpers import tiny_decider  # noqa: E402

OPTIONS: dict[str, Any] = {"execution": "auto", "graphs": False, "prefix_cache_mb": 0, "prefix_segment": None}


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
@pytest.mark.parametrize("auto", qwen3_5.EXECUTIONS)
@pytest.mark.parametrize("graphs", [False, True])
def test_auto_is_rows_on_a_gpu(device: str, auto: qwen3_5.Execution, graphs: bool) -> None:
    """Whatever the family means by it on a CPU, recorded or not; what is asked for by name is done."""
    options = {**OPTIONS, "graphs": graphs}
    assert qwen3_5.settings_of(options, 4, 4096, device=device, auto=auto).execution == "rows"
    assert qwen3_5.settings_of(options, 4, 4096, device="cpu", auto=auto).execution == auto
    for execution in ("rows", "packed", "shared"):
        named = {**options, "execution": execution}
        assert qwen3_5.settings_of(named, 4, 4096, device=device, auto=auto).execution == execution


@pytest.mark.parametrize(("device", "execution"), [("cpu", "auto"), ("cuda", "rows")])
def test_facts_and_identity_tell_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, execution: str
) -> None:
    """Two hosts of one model on a GPU and on a CPU are not taken for each other."""
    tiny_decider.write(tmp_path)
    monkeypatch.setattr("executor_host.devices.placement", lambda *_: (device, "float32"))
    monkeypatch.setattr("executor_host.devices.find", lambda name: torch.device("cpu"))
    executor = DeciderExecutor(str(tmp_path), {})
    facts = executor.load(lambda fraction, note: None)
    assert facts["execution"] == execution
    assert f"float32@{device}/{execution}:4x4096" in str(facts["identity"])
    assert executor.max_units == (1 if execution == "rows" else qwen3_5.JOINT_UNITS)
    executor.close()


def test_prompts_of_a_batch_are_read_one_by_one_on_a_gpu() -> None:
    """Those of cua-s1, of which each is a request of its own."""
    executor = CuaS1Executor(None, {})
    assert [executor._on(name).execution for name in ("cpu", "cuda:0")] == ["packed", "rows"]


def test_kev_reads_every_row_alone_on_a_gpu() -> None:
    """But where prefixes are kept, which is asked for, and is to go on from states."""
    assert [kev_model.way_of(kind, 0) for kind in ("cpu", "cuda")] == ["forked", "alone"]
    assert kev_model.way_of("cuda", 1 << 20) == "forked"


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), DeviceMemory),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), FatalExecutionError),
        (MemoryError(), FatalExecutionError),
        (RuntimeError("a bug"), RuntimeError),
    ],
)
def test_what_an_error_says_about_the_device(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    """One of the allocator leaves it whole; one of the driver, or of the machine's own memory, does not."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    with pytest.raises(raised) as found, devices.synchronised(torch.device("cuda")):
        raise error
    assert type(found.value) is raised


def test_an_executor_gives_up_what_makes_it_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept prefixes, recordings, and then what the allocator keeps; it answers as before."""
    tiny_decider.write(tmp_path)
    executor = DeciderExecutor(str(tmp_path), {"device": "cpu", "prefix_cache_mb": 8, "prefix_segment": 16})
    executor.relieve()
    executor.load(lambda fraction, note: None)
    executor.warm_up()
    assert executor.kept is not None
    model = executor._model
    assert model is not None
    steps: list[object] = []

    class Recorded:
        def close(self) -> None:
            steps.append("recordings")

    monkeypatch.setattr(model, "_graphs", Recorded())
    monkeypatch.setattr(executor.kept, "allow", lambda count: steps.append(count))
    monkeypatch.setattr(model, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: steps.append("allocator"))
    executor.relieve()
    assert steps == [0, "recordings", "allocator"]
    monkeypatch.undo()
    executor.relieve()
    executor.warm_up()
    executor.close()


def test_the_device_is_the_current_one_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that ask for none get the model's; before anything is loaded, and not on a CPU."""
    steps: list[object] = []
    monkeypatch.setattr(torch.cuda, "set_device", steps.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(DeciderExecutor, "verify", lambda *_, **__: steps.append("verify") or 1 / 0)
    for device in ("cuda:3", "cuda", "cpu"):
        with pytest.raises(ZeroDivisionError):
            DeciderExecutor(str(tmp_path), {"device": device}).load(lambda fraction, note: None)
    assert steps == [3, "verify", 0, "verify", "verify"]
