"""No family's buffers change their dtype by a cast of its model.

What a model computes once and keeps as a buffer (rotary frequencies above all) is float32 whatever the weights are: in
bfloat16 they are other frequencies, and every answer to a long text moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol import families

torch = pytest.importorskip("torch", reason="torch is not installed: pip install framehost[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install framehost[torch]")

from tests.helpers import (  # noqa: E402  need what was just looked for
    tiny_clef,
    tiny_cua_s1,
    tiny_decider,
    tiny_embedding,
    tiny_kev,
    tiny_laya,
    tiny_nimble,
    tiny_open_jev,
    tiny_transformers,
)


def _cua_s1(folder: Path) -> dict[str, object]:
    tiny_cua_s1.write_base(folder)
    tiny_cua_s1.write_adapter(folder / "text", folder)
    return {}


def _open_jev(folder: Path) -> dict[str, object]:
    tiny_open_jev.write_base(folder / "base")
    tiny_open_jev.write_lora(folder)
    return {"base": str(folder / "base"), "unreleased": True}


def _kev(folder: Path) -> dict[str, object]:
    tiny_kev.write(folder)
    return {"base": str(folder / "base")}


def _nimble(folder: Path) -> dict[str, object]:
    tiny_nimble.write(folder)
    return {"base": str(folder / "base")}


def _plain(write: Callable[[Path], object]) -> Callable[[Path], dict[str, object]]:
    def made(folder: Path) -> dict[str, object]:
        write(folder)
        return {}

    return made


CHECKPOINTS: dict[str, Callable[[Path], dict[str, object]]] = {
    "clef": _plain(tiny_clef.write),
    "cua-s1": _cua_s1,
    "decider": _plain(tiny_decider.write),
    "embedding": _plain(tiny_embedding.write),
    "kev": _kev,
    "laya": _plain(tiny_laya.write),
    "nimble": _nimble,
    "open-jev": _open_jev,
    "transformers": _plain(tiny_transformers.write_head),
}
"""What writes a tiny checkpoint of each family, and the options that it is loaded with."""


def modules(holder: object, seen: set[int]) -> Iterator[Any]:
    """The torch modules that an object of ours holds, however deep."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, torch.nn.Module):
        yield holder
    elif type(holder).__module__.startswith("executor_host."):
        slots = (getattr(holder, name, None) for name in getattr(type(holder), "__slots__", ()))
        for value in (*vars(holder).values(), *slots) if hasattr(holder, "__dict__") else slots:
            yield from modules(value, seen)


@pytest.mark.parametrize("family", CHECKPOINTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_buffers_keep_their_dtype(family: str, dtype: str, tmp_path: Path) -> None:
    """Loaded, warmed up, and in either arithmetic: every number that a model keeps for itself is float32."""
    options = CHECKPOINTS[family](tmp_path)
    executor = families.resolve(families.find(family).executor)(
        str(tmp_path), {"device": "cpu", "dtype": dtype, **options}
    )
    try:
        executor.load(lambda fraction, note: None)
        found = {
            f"{type(module).__name__}.{name}": buffer
            for module in modules(executor, set())
            for name, buffer in module.named_buffers()
            if buffer.is_floating_point()
        }
        assert found or family == "embedding", "a tiny encoder with learned positions has none; all others rotate"
        assert {name: str(buffer.dtype) for name, buffer in found.items() if buffer.dtype != torch.float32} == {}
    finally:
        executor.close()


def test_every_torch_family_is_looked_at() -> None:
    """A family with an option `dtype` casts."""
    options = {name: family.options.options for name, family in families.BUILT_IN.items()}
    assert set(CHECKPOINTS) == {name for name, table in options.items() if any(one.name == "dtype" for one in table)}
