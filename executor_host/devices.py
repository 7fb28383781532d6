"""Which device and dtype a model gets, what this process holds there, and what an error says about the device.

For families that run on torch, which is imported when it is needed.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from executor_host.errors import ConfigurationError, DeviceMemory, FatalExecutionError

DTYPES: Final = {"cpu": "float32", "cuda": "bfloat16"}
"""By device, when the configuration names none. bfloat16 on a CPU was 13 times slower."""

GPU_FILES: Final = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""One of them is there where a driver for CUDA, ROCm or WSL is."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """The CPU as torch describes it, for models that run there without torch."""

    type: str = "cpu"


def torch_library() -> Any:
    """torch, imported. `ConfigurationError` says what to install when it is not there."""
    try:
        import torch
    except ImportError as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    return torch


def gpu() -> bool:
    """Whether torch can use a GPU here. torch, which takes a second, is imported only where there may be one."""
    if importlib.util.find_spec("torch") is None or not any(map(os.path.exists, GPU_FILES)):
        return False
    return bool(torch_library().cuda.is_available())


def placement(device: str, dtype: str) -> tuple[str, str]:
    """Device and dtype by name, `auto` replaced: a GPU where there is one, and the dtype of `DTYPES`."""
    if device == "auto":
        device = "cuda" if torch_library().cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = DTYPES.get(device.partition(":")[0], "float32")
    return device, dtype


def find(name: str) -> Any:
    """The `torch.device` called `cpu`, `cuda` or `cuda:N`. Raises `ConfigurationError` when it is not there."""
    torch = torch_library()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f"there is no device {name!r}") from error
    if device.type == "cuda":
        if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
            raise ConfigurationError(
                f"there is no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices"
            )
    elif device.type != "cpu":
        raise ConfigurationError(f"the device is cpu or cuda, not {name!r}")
    return device


def use(name: str) -> None:
    """Make the device of this name the one that this thread's libraries mean when none is named, as kernels and
    recordings do. Nothing for a CPU. Raises `ConfigurationError` as `find`."""
    if name == "cpu":  # of which torch is not asked: numpy computes there, too
        return
    device = find(name)
    if device.type == "cuda":
        torch_library().cuda.set_device(device.index or 0)


def placed(model: Any, device: Any, dtype: Any) -> Any:
    """`model` itself on `device`, its parameters as `dtype`. Its buffers keep their dtype: rotary frequencies that are
    rounded to bfloat16 turn the last of 3,399 positions by another angle (0.1 becomes 0.10009765625)."""
    model.to(device)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def synchronize(device: Any) -> None:
    """Waits until `device` has done everything; nothing to wait for on a CPU."""
    if device.type == "cuda":
        torch_library().cuda.synchronize(device)


@contextmanager
def synchronised(device: Any) -> Iterator[None]:
    """The torch device has finished at the end of the block, also when an error ends it.

    Raises `DeviceMemory` in place of an error of the device's allocator, and `FatalExecutionError` in place of another
    one after which the device is not to be trusted.
    """
    try:
        try:
            yield
        finally:
            synchronize(device)
    except (MemoryError, RuntimeError) as error:
        if is_of_its_allocator(error):
            raise DeviceMemory(f"the device has no memory left: {type(error).__name__}") from error
        if is_of_the_device(error, device.type):
            raise FatalExecutionError(f"the device failed: {type(error).__name__}") from error
        raise


def is_of_the_device(error: BaseException, kind: str) -> bool:
    """Whether a device of this kind is not to be trusted after this error: a CUDA error, or no memory left."""
    if isinstance(error, MemoryError):
        return True
    torch = sys.modules.get("torch")
    if torch is None:  # what computes here is numpy
        return False
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return kind == "cuda" and isinstance(error, torch.AcceleratorError)


def is_of_its_allocator(error: BaseException) -> bool:
    """Whether torch had no memory for a tensor. Nothing was written; the device does what it is told next."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def release(device: Any) -> None:
    """Gives back what torch's allocator keeps of this device unused. Tensors in cycles are collected first."""
    gc.collect()
    if device.type == "cuda":
        torch_library().cuda.empty_cache()


def memory_bytes() -> int | None:
    """Bytes that PyTorch's allocator has taken from all CUDA devices; None when nothing here uses one.

    What the driver and the libraries take for themselves is not in it. For the thread that uses the devices; it never
    makes PyTorch load or initialise anything.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    held: int = sum(torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count()))
    return held
