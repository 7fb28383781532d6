"""The bookkeeping of recorded forwards, with a recorder that records Python calls: no GPU, no torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from executor_host.backbones.graphs import MAX_RECORDINGS, Graphs


class Tensor:
    """As much of a torch tensor as the bookkeeping touches."""

    def __init__(self, value: Any) -> None:
        self.value = np.array(value)

    def clone(self) -> Tensor:
        return Tensor(self.value)

    def copy_(self, other: Tensor) -> None:
        self.value[...] = other.value


class Recorder:
    """Records a run by keeping it; a replay fills the same tensor again. Fails on request."""

    def __init__(self) -> None:
        self.failing = False
        self.synchronized = 0

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        if self.failing:
            raise RuntimeError("operation not permitted when stream is capturing")
        filled = Tensor(np.zeros_like(run().value))  # not launched: nothing is in it yet
        return lambda: filled.copy_(run()), filled

    def synchronize(self) -> None:
        self.synchronized += 1


class Device:
    """Graphs around a forward that counts how often it really runs."""

    def __init__(self, capacity: int = MAX_RECORDINGS) -> None:
        self.recorder = Recorder()
        self.graphs = Graphs(self.forward, self.recorder, capacity=capacity)

    def forward(self, tokens: Tensor, last: Tensor) -> Tensor:
        return Tensor(tokens.value[np.arange(len(tokens.value)), last.value] * 2)

    def run(self, *rows: list[int]) -> list[int]:
        width = max(map(len, rows))
        tokens = Tensor([row + [0] * (width - len(row)) for row in rows])
        last = Tensor([len(row) - 1 for row in rows])
        result: list[int] = self.graphs.run(tuple(map(len, rows)), tokens, last).value.tolist()
        return result


def test_the_first_of_a_shape_runs_and_the_others_are_replayed() -> None:
    """With their own tokens, and without another recording."""
    device = Device()
    assert device.run([1, 2], [3]) == [4, 6]
    assert device.run([5, 6], [7]) == [12, 14]
    assert device.run([8, 9], [10]) == [18, 20]
    assert device.graphs.statistics() == {
        "enabled": True,
        "cached_shapes": 1,
        "requested": 3,
        "captures": 1,
        "replays": 2,
        "fallbacks": 1,
        "invalidations": 0,
    }


def test_the_order_of_the_lengths_is_part_of_the_key() -> None:
    """The positions that are read belong to the recording."""
    device = Device()
    assert device.run([1, 2], [3]) == [4, 6]
    assert device.run([3], [1, 2]) == [6, 4]
    assert device.graphs.statistics()["captures"] == 2


def test_a_result_survives_the_next_replay() -> None:
    """It is a copy, not the tensor that replays fill."""
    device = Device()
    tokens, last = Tensor([[1, 2]]), Tensor([1])
    device.graphs.run((2,), tokens, last)
    first = device.graphs.run((2,), tokens, last)
    device.graphs.run((2,), Tensor([[1, 9]]), last)
    assert first.value.tolist() == [4]


def test_the_oldest_recording_makes_room_after_the_device_is_done() -> None:
    """First in, first out, whatever was used last."""
    device = Device(capacity=2)
    for length in (1, 2):
        device.run([7] * length)
    device.run([7])  # used again, and still the oldest
    waited = device.recorder.synchronized
    device.run([7] * 3)
    assert device.recorder.synchronized > waited
    assert device.graphs.statistics()["cached_shapes"] == 2
    replays = device.graphs.statistics()["replays"]
    device.run([7] * 2)
    assert device.graphs.statistics()["replays"] == replays + 1
    device.run([7])
    assert device.graphs.statistics()["captures"] == 4


def test_a_failed_recording_turns_them_off_for_good_and_keeps_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    """The call that met it is answered, the ones after it run eagerly, and stderr says so once."""
    device = Device()
    device.run([1])
    device.recorder.failing = True
    assert device.run([1, 2]) == [4]
    device.recorder.failing = False
    assert device.run([5]) == [10]
    assert device.run([1, 2, 3]) == [6]
    statistics = device.graphs.statistics()
    assert (statistics["enabled"], statistics["cached_shapes"], statistics["captures"]) == (False, 0, 1)
    assert (statistics["fallbacks"], statistics["replays"], statistics["invalidations"]) == (4, 0, 1)
    assert capsys.readouterr().err.count("CUDA graphs are off") == 1
    assert "off" in repr(device.graphs)


def test_an_error_of_the_forward_is_the_callers() -> None:
    """Recordings stay on: nothing is known against them."""
    device = Device()
    with pytest.raises(IndexError):
        device.graphs.run((1,), Tensor([[1]]), Tensor([5]))
    assert device.graphs.enabled


def test_closing_twice_is_closing() -> None:
    """And waits for the device only where there is something to drop."""
    device = Device()
    device.graphs.close()
    assert device.recorder.synchronized == 0
    device.run([1])
    device.graphs.close()
    device.graphs.close()
    assert device.graphs.statistics()["cached_shapes"] == 0


def test_room_for_nothing_is_refused() -> None:
    """Graphs are turned off by not making any."""
    with pytest.raises(ValueError):
        Device(capacity=0)
