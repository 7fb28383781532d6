"""What computes the vectors: numpy where it can, torch where it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from executor_host import checkpoints, devices
from executor_host.errors import ConfigurationError
from executor_host.executors.embedding import numpy_encoder
from executor_host.executors.embedding.cache import Vectors
from executor_host.executors.embedding.checkpoint import CONFIG, Checkpoint


class Encoder(Protocol):
    """A loaded model."""

    @property
    def backend(self) -> str:
        """What computes: numpy or torch."""
        ...

    @property
    def device(self) -> str:
        """Where, by name."""
        ...

    @property
    def max_pass_tokens(self) -> int:
        """Most tokens of one pass, padding included."""
        ...

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        ...

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        ...

    def settled(self) -> AbstractContextManager[None]:
        """Around everything that computes. The device has finished at the end of it, also of an error's; raises
        `FatalExecutionError` in place of an error after which the device is not to be trusted."""
        ...

    def pooled(self, rows: Sequence[NDArray[np.int32]]) -> Vectors:
        """One pass: a vector for each row of tokens, [rows, size], as it comes."""
        ...


def load(checkpoint: Checkpoint, options: Mapping[str, Any]) -> Encoder:
    """The encoder in `checkpoint` with the family's options. `auto`: numpy for a BERT in float32 where there is no
    GPU that torch could use, else torch. Raises `ConfigurationError`."""
    backend, device, dtype = options["backend"], options["device"], options["dtype"]
    fault = numpy_encoder.unsuited(checkpoint.architecture, checkpoints.read_json(checkpoint.path / CONFIG))
    if backend == "numpy" and fault is not None:
        raise ConfigurationError(f"{CONFIG}: {fault}, which the backend numpy reads; take torch")
    if backend == "auto":
        simple = fault is None and dtype == "float32" and (device == "cpu" or (device == "auto" and not devices.gpu()))
        backend = "numpy" if simple else "torch"
    if backend == "numpy":
        return numpy_encoder.NumpyEncoder(checkpoint)
    from executor_host.executors.embedding.torch_encoder import TorchEncoder

    name, dtype = devices.placement(device, dtype)
    return TorchEncoder(checkpoint, name, dtype)
