"""The joint head's arithmetic: the published vector, blocks of rows, and how much it holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from executor_host.executors.clef import head as clef_head  # noqa: E402
from executor_host.executors.clef.checkpoint import HeadSizes, head_shapes  # noqa: E402
from executor_host.executors.clef.encoding import Field  # noqa: E402
from executor_host.executors.clef.head import JointHead  # noqa: E402
from tests.unit.clef.helpers import GOLDEN  # noqa: E402

SIZES = HeadSizes(hidden_size=8, width=8, routing_layers=2, layers=2, heads=2, feedforward=16)
LENGTH = 20
FIELDS = [
    Field(0, (3, 5), ((6, 8), (9, 10)), (0, 1)),
    Field(1, (10, 11), ((11, 13), (13, 14), (14, 17)), (0, 1, 2)),
    Field(2, (17, 18), ((18, 19), (19, 20)), (0, 1)),
]
TOKENS = np.array([(3 * place + 1) % 11 for place in range(LENGTH)], np.int32)


def published(dtype: Any = torch.float64) -> tuple[JointHead, Any]:
    """The head and the hidden states of the published vector: every value follows from its place."""
    tensors = {}
    for number, (name, shape) in enumerate(head_shapes(SIZES).items()):
        count = math.prod(shape)
        values = torch.tensor([0.3 * math.sin(0.9 * number + 0.37 * i + 0.11) for i in range(count)], dtype=dtype)
        if "norm" in name and name.endswith("weight"):
            values += 1
        tensors[name] = values.reshape(shape)
    hidden = [[math.cos(0.5 * p + 0.7 * d) * (1 + 0.05 * p) for d in range(8)] for p in range(LENGTH)]
    table = [[math.sin(0.21 * row + 0.6 * d) for d in range(8)] for row in range(11)]
    return JointHead(SIZES, tensors, torch.tensor(table, dtype=dtype)), torch.tensor(hidden, dtype=dtype)


def test_the_published_head_has_86_tensors_and_3788_parameters() -> None:
    """And the released one 122 and 121,762,820: the table of shapes is the published one."""
    shapes = head_shapes(SIZES)
    assert (len(shapes), sum(map(math.prod, shapes.values()))) == (86, 3788)
    flash = head_shapes(HeadSizes(4096, width=1024, routing_layers=2, layers=4, heads=16, feedforward=4096))
    assert (len(flash), sum(map(math.prod, flash.values()))) == (122, 121_762_820)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_published_logits(dtype: str) -> None:
    """Every logit and every probability within 1e-6, in double and in single precision."""
    head, hidden = published(getattr(torch, dtype))
    found = head.logits(hidden, TOKENS, FIELDS)
    assert found.dtype is getattr(torch, dtype)
    vector = GOLDEN["head"]
    for part, logits, probabilities in zip(
        torch.split(found, [2, 3, 2]), vector["logits"], vector["probabilities"], strict=True
    ):
        assert part.tolist() == pytest.approx(logits, abs=1e-6)
        assert torch.softmax(part, 0).tolist() == pytest.approx(probabilities, abs=1e-6)


def test_questions_influence_each_other() -> None:
    """Asked alone the second question has other logits, the published ones."""
    head, hidden = published()
    alone = head.logits(hidden, TOKENS, FIELDS[1:2]).tolist()
    assert alone == pytest.approx(GOLDEN["head"]["logits_of_b_asked_alone"], abs=1e-6)
    together = head.logits(hidden, TOKENS, FIELDS)[2:5].tolist()
    assert max(abs(a - b) for a, b in zip(alone, together, strict=True)) > 1e-3


@pytest.mark.parametrize("name", ["prior_logit_scale", "joint_logit_scale"])
def test_the_scales_are_bounded(name: str) -> None:
    """Their exponentials are 100 at most, so what is learned beyond that changes nothing."""
    found = []
    for value in (math.log(100.0), 6.0, 50.0):
        head, hidden = published()
        head._tensors[name] = torch.tensor(value, dtype=torch.float64)
        found.append(head.logits(hidden, TOKENS, FIELDS).tolist())
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert found[1] == found[2]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 19, 20])
def test_blocks_change_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a block ends, in a span or between two: the same logits."""
    head, hidden = published()
    expected = head.logits(hidden, TOKENS, FIELDS)
    monkeypatch.setattr(clef_head, "BLOCK_ROWS", rows)
    assert head.logits(hidden, TOKENS, FIELDS).tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_means_of_spans_over_blocks() -> None:
    """Of random spans, some longer than a block, some of one row, with rows that are in none."""
    random = np.random.default_rng(3)
    for _ in range(30):
        cuts = np.sort(random.choice(np.arange(1, 60), size=int(random.integers(2, 12)) & ~1, replace=False))
        spans = [(int(a), int(b)) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        rows = torch.from_numpy(random.normal(size=(60, 5)))
        means = clef_head._Means(spans, rows)
        block = int(random.integers(1, 25))
        for start in range(0, 60, block):
            means.add(start, rows[start : start + block])
        expected = torch.stack([rows[first:stop].mean(0) for first, stop in spans])
        assert torch.allclose(means.means, expected, atol=1e-12)


class Largest(TorchDispatchMode):
    """Watches every operation and keeps the size of the largest floating-point storage that one has made."""

    def __init__(self, *known: Any) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in self.known:
                self.bytes = max(self.bytes, value.untyped_storage().nbytes())
        return result


def test_a_long_state_is_not_held_twice() -> None:
    """Of 16,384 tokens nothing is made that is nearly as large as their hidden states: the largest is the projected
    memory with its keys or values, and a block does not grow with the state."""
    sizes = HeadSizes(hidden_size=512, width=32, routing_layers=1, layers=1, heads=2, feedforward=32)
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in head_shapes(sizes).items()}
    table = torch.randn(100, sizes.hidden_size, generator=generator)
    head = JointHead(sizes, tensors, table)
    length = 16_384
    hidden = torch.randn(length, sizes.hidden_size, generator=generator)
    tokens = np.arange(length, dtype=np.int32) % 100
    fields = [Field(1, (16_300, 16_310), ((16_311, 16_320), (16_321, 16_383)), (0, 1))]
    with Largest(hidden, table, *tensors.values()) as seen:
        head.logits(hidden, tokens, fields)
    memory = length * sizes.width * 4
    block = clef_head.BLOCK_ROWS * sizes.hidden_size * 4
    assert 0 < seen.bytes <= max(memory, block)
    assert seen.bytes <= hidden.untyped_storage().nbytes() / 8
