"""The head of a Kev checkpoint, which lies in `head.pt`: it points from the end of a row at the ends of its options.

    q = Wq h[end] + bq        k_j = Wk h[end of option j] + bk        logit_j = q . k_j / sqrt(n) / T

with n values of q, and h the final-norm hidden states; all in float32. T is the checkpoint's own, the same for every
question.

The file is a pickle, of which tensors and plain values are read and nothing else is run.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from executor_host.errors import ConfigurationError
from protocol.contracts.kev import HEAD

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of the file. That of the 27B has 10 MB."""

DEFAULT_DIM: Final = 256

NAMES: Final = ("q.weight", "q.bias", "k.weight", "k.bias")

OFF: Final = ("option_isolation", "special_embeddings")
"""Ways of training that make another model, for which this architecture is not used."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the file says."""

    tensors: Mapping[str, Any]
    """By `NAMES`: float32 on the CPU; weights [dim, hidden size], biases [dim]."""
    temperature: float
    base: str
    """The base model."""
    base_revision: str | None


def read(file: Path, dim: int, hidden: int) -> Head:
    """The head in a file, of `dim` values for hidden states of `hidden`. Raises `ConfigurationError`."""
    import torch

    if file.stat().st_size > MAX_BYTES:
        raise ConfigurationError(f"{HEAD} has {file.stat().st_size} bytes; at most {MAX_BYTES} are read")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise ConfigurationError(f"{HEAD} cannot be read as tensors: {type(error).__name__}") from error
    if not isinstance(state, dict) or not isinstance(state.get("head"), dict):
        raise ConfigurationError(f"{HEAD}: an object with a head is expected")
    for key in OFF:
        if state.get(key):
            raise ConfigurationError(f"{HEAD}: {key} is {state[key]!r}; such checkpoints are not served")
    if state.get("head_dim", DEFAULT_DIM) != dim:
        raise ConfigurationError(f"{HEAD}: head_dim is {state.get('head_dim', DEFAULT_DIM)!r}, not {dim}")
    base, revision = state.get("base"), state.get("base_revision")
    if not isinstance(base, str) or not (revision is None or isinstance(revision, str)):
        raise ConfigurationError(f"{HEAD}: base is {base!r} and base_revision {revision!r}; texts are expected")
    return Head(_tensors(state["head"], dim, hidden), _temperature(state.get("temperature", 1.0)), base, revision)


def _tensors(found: Mapping[str, Any], dim: int, hidden: int) -> dict[str, Any]:
    import torch

    if found.keys() != set(NAMES):
        raise ConfigurationError(f"{HEAD}: the head has {sorted(map(str, found))}; {', '.join(NAMES)} are expected")
    for name in NAMES:
        value, shape = found[name], (dim, hidden) if name.endswith("weight") else (dim,)
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
            what = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ConfigurationError(f"{HEAD}: {name} is {what}; {list(shape)} is needed")
        if value.dtype is not torch.float32 or not bool(torch.isfinite(value).all()):
            raise ConfigurationError(f"{HEAD}: {name} is not finite float32")
    return {name: found[name] for name in NAMES}


def _temperature(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    raise ConfigurationError(f"{HEAD}: temperature is {value!r}; a finite number above 0 is expected")
