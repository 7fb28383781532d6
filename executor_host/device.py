"""What this process holds on its devices."""

from __future__ import annotations

import sys


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
