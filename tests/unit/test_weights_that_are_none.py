"""A checkpoint with a weight that is no number: every family that loads one finds it before anybody is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from executor_host.errors import ConfigurationError
from protocol import families
from tests.helpers import (
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

for needed in ("torch", "transformers", "tokenizers", "safetensors"):
    pytest.importorskip(needed, reason="these families need framehost[torch]")


def _cua_s1(folder: Path) -> Path:
    tiny_cua_s1.write_base(folder)
    tiny_cua_s1.write_adapter(folder / "text", folder)
    return folder


def _open_jev(folder: Path) -> Path:
    tiny_open_jev.write_base(folder / "base")
    return tiny_open_jev.write_lora(folder / "lora")


@dataclass(frozen=True)
class Kind:
    """How a checkpoint of a family is made, and what it is loaded with."""

    write: Callable[[Path], Path]
    options: dict[str, Any] = field(default_factory=dict)


KINDS = {
    "decider": Kind(tiny_decider.write),
    "cua-s1": Kind(_cua_s1),
    "open-jev": Kind(_open_jev, {"unreleased": True}),
    "clef": Kind(tiny_clef.write),
    "kev": Kind(tiny_kev.write),
    "laya": Kind(tiny_laya.write),
    "nimble": Kind(tiny_nimble.write),
    "embedding": Kind(tiny_embedding.write),
    "transformers": Kind(tiny_transformers.write_chat),
}


def test_all_families_with_weights_are_here() -> None:
    """All but the embedded one, whose file is checked number by number."""
    assert KINDS.keys() == families.BUILT_IN.keys() - {"sparrow"}


def poison(folder: Path) -> None:
    """One weight of a norm that every token goes through."""
    import torch
    from safetensors.torch import load_file, save_file

    for file in sorted(folder.rglob("model*.safetensors")):
        tensors = load_file(file)
        norms = sorted(name for name in tensors if "norm" in name.lower() and name.endswith("weight"))
        if norms:
            tensors[norms[0]].view(-1)[0] = torch.nan
            save_file(tensors, file, {"format": "pt"})
            return
    raise AssertionError("no norm to poison")


@pytest.mark.parametrize("name", KINDS)
def test_a_weight_that_is_no_number_ends_the_start(name: str, tmp_path: Path) -> None:
    """As a mistake of the configuration, which is not tried again, and says that numbers are not finite."""
    import torch

    torch.set_num_threads(1)
    kind = KINDS[name]
    path = kind.write(tmp_path / "model")
    poison(tmp_path / "model")
    options = {"device": "cpu", **kind.options}
    if name in ("kev", "nimble", "open-jev"):
        options["base"] = str(tmp_path / "model" / "base")
    executor = families.resolve(families.find(name).executor)(str(path), options)

    def start() -> None:
        executor.load(lambda fraction, note: None)
        executor.warm_up()

    with pytest.raises(ConfigurationError, match="finite"):
        start()
    executor.close()
