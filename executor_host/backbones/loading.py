"""Models of transformers from a folder: the libraries, their settings, and what of a checkpoint must fit.

Nothing is downloaded, no code of a checkpoint is run, and no pickle is opened.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from executor_host import devices
from executor_host.errors import ConfigurationError

KERNEL_PACKAGES: Final = ("causal_conv1d", "fla")
"""transformers takes the linear layers' kernels from these when they are installed, on every device."""


def causal_lm(path: Path, *, device: str, dtype: str) -> tuple[Any, Any]:
    """A checkpoint's `Qwen3_5ForCausalLM` without gradients, still on the CPU, and the device that it is meant for.

    Raises `ConfigurationError`: torch or transformers missing, no such device, tensors missing, left over or of another
    shape.
    """
    torch, transformers, target = prepare(device)
    model = from_folder(transformers.Qwen3_5ForCausalLM, path, getattr(torch, dtype))
    return model.eval().requires_grad_(False), target


def from_folder(model_class: Any, path: Path, dtype: Any, left_out: Callable[[str], bool] = lambda name: False) -> Any:
    """A model of a transformers class, on the CPU. `left_out`: whether a tensor of the folder may have no place in it.
    Raises `ConfigurationError` as `causal_lm` does."""
    try:
        model, report = model_class.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ConfigurationError(f"the checkpoint cannot be loaded: {error}") from error
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        names = sorted(map(str, report.get(what) or ()))
        if what == "unexpected_keys":
            names = [name for name in names if not left_out(name)]
        if names:
            what = what.replace("_", " ")
            raise ConfigurationError(f"the checkpoint does not fit its configuration: {what} {names[0]}")
    return model


def prepare(device: str) -> tuple[Any, Any, Any]:
    """torch, transformers and the device of that name, ready for a model to be loaded: the settings of both libraries
    that this architecture needs there are made. Raises `ConfigurationError` as `causal_lm` does."""
    torch, transformers = libraries()
    target = devices.find(device)
    if target.type == "cpu":
        # They are CUDA kernels, and are called with CPU tensors all the same.
        present = [name for name in KERNEL_PACKAGES if importlib.util.find_spec(name) is not None]
        if present:
            raise ConfigurationError(f"the package {present[0]} cannot be installed where Qwen3.5 runs on a CPU")
        transformers.utils.logging.set_verbosity_error()  # which tells, of a CPU, that it has no CUDA kernels
    else:
        # Wrong finite values for the masked attention of a row's end against a longer state.
        # Before the model is built, because recordings keep the kernel they were made with.
        torch.backends.cuda.enable_cudnn_sdp(False)
    transformers.utils.logging.disable_progress_bar()
    return torch, transformers, target


def libraries() -> tuple[Any, Any]:
    """torch and transformers, imported. `ConfigurationError` says what to install when they are not there."""
    try:
        import torch
        import transformers

        # Lazily resolved: a transformers without the architecture says so here.
        transformers.Qwen3_5ForCausalLM  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"this family needs framehost[torch]: {error}") from error
    return torch, transformers
