"""From a checkpoint's folders to the text model with its adapter merged, and to a merged export of it.

    W' = bfloat16(W + bfloat16(scaling * B @ A))      B @ A in float32 on the CPU, W as bfloat16

This is what peft's `merge_and_unload` gives for a bfloat16 model on a CPU, bit for bit, so a LoRA checkpoint that
is merged while it is loaded answers as its export does. Only then is the model moved to its device and dtype.

    python -m executor_host.executors.open_jev.merge --base FOLDER --checkpoint FOLDER --out FOLDER

writes an export. The manifest is written last, to another name first: a folder that has it is complete.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from executor_host import devices
from executor_host.backbones import loading, qwen3_5
from executor_host.errors import ConfigurationError, HostError
from executor_host.executors.open_jev import checkpoint as folders
from protocol.contracts import open_jev as contract

SHARD: Final = "5GB"

_LEFT_OUT: Final = re.compile(r"(model\.)?(visual|mtp)\.|lm_head\.")
"""Tensors of a base model that are no part of the text model: they may be there, and are not loaded."""


def load(checkpoint: folders.Checkpoint, *, device: str, dtype: str, settings: qwen3_5.Settings) -> qwen3_5.Qwen35:
    """The checkpoint's text model on a device, merged. Raises `ConfigurationError` as `qwen3_5.load` does."""
    torch, transformers, target = loading.prepare(device)
    model = text_model(checkpoint, torch, transformers)
    model = devices.placed(model, target, getattr(torch, dtype)).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        # A parameter that was never filled, or lies elsewhere, answers all the same, and wrongly.
        if parameter.device != target and not (target.index is None and parameter.device.type == target.type):
            raise ConfigurationError(f"the checkpoint cannot be loaded: {name} is on {parameter.device}")
    return qwen3_5.Qwen35(model, settings)


def text_model(checkpoint: folders.Checkpoint, torch: Any, transformers: Any) -> Any:
    """The merged `Qwen3_5TextModel` in bfloat16 on the CPU."""

    def left_out(name: str) -> bool:
        return checkpoint.adapter is not None and _LEFT_OUT.match(name) is not None

    model = loading.from_folder(transformers.Qwen3_5TextModel, checkpoint.weights, torch.bfloat16, left_out)
    if checkpoint.adapter is not None:
        with torch.inference_mode(False), torch.no_grad():
            merge(model, checkpoint.adapter)
    return model


def merge(model: Any, adapter: folders.Adapter) -> None:
    """Adds the adapter to the model's weights, in place. The model is bfloat16 on the CPU.

    Raises `ConfigurationError` for a module the model lacks, a shape that does not fit, numbers that are none.
    """
    import torch
    from safetensors import safe_open

    name = f"{folders.ADAPTER}/{folders.ADAPTER_WEIGHTS}"
    with safe_open(adapter.weights, framework="pt", device="cpu") as tensors:
        for module in adapter.modules:
            weight = model.get_submodule(module).weight
            down, up = (tensors.get_tensor(folders.adapter_key(module, side)).float() for side in "AB")
            if down.shape != (adapter.rank, weight.shape[1]) or up.shape != (weight.shape[0], adapter.rank):
                raise ConfigurationError(
                    f"{name}: {module} is {list(up.shape)} x {list(down.shape)} for a weight {list(weight.shape)}"
                )
            weight += ((up @ down) * adapter.scaling).to(weight.dtype)
            if not bool(torch.isfinite(weight).all()):
                raise ConfigurationError(f"{name}: {module} is not finite when it is merged")


def export(checkpoint: str, base: str, out: str, *, max_length: int, unreleased: bool = False) -> None:
    """Writes a merged export of the LoRA checkpoint to the folder `out`, which must not exist.

    Raises `ConfigurationError`. What was written by then stays, without a manifest, and is refused by every loader.
    """
    torch, transformers, _ = loading.prepare("cpu")
    target = Path(out)
    if target.exists():
        raise ConfigurationError(f"{out} exists; an export is written to a new folder")
    source = folders.verify(
        checkpoint, base=base, max_length=max_length, unreleased=unreleased, progress=lambda fraction, note: None
    )
    release = source.terms.release
    if release is None and not unreleased:
        raise ConfigurationError(f"{contract.MODEL}: model_id is {source.terms.model_id!r}")
    model = text_model(source, torch, transformers)
    model.save_pretrained(target, max_shard_size=SHARD)
    shutil.copyfile(source.tokenizer, target / contract.TOKENIZER)
    manifest = {
        "format": contract.FORMAT,
        "model_id": source.terms.model_id,
        "base_revision": source.terms.base_revision,
        "checkpoint_revision": release.checkpoint_revision if release is not None else "unreleased",
        "temperature": source.terms.temperature,
        "max_length": source.terms.max_length,
        "chat_prefix": source.terms.chat.prefix,
        "chat_suffix": source.terms.chat.suffix,
        "head_weight": source.head_weight.tolist(),
        "head_bias": float(source.head_bias),
    }
    unfinished = target / f".{contract.MANIFEST}"
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(json.dumps(manifest, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(target / contract.MANIFEST)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. 0, or 1 with what is wrong on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m executor_host.executors.open_jev.merge",
        description="Merge an Open-Jev LoRA checkpoint into its base model and write an export. Needs memory for the"
        " model in bfloat16, and no GPU.",
    )
    parser.add_argument("--base", required=True, help="folder of the base model")
    parser.add_argument("--checkpoint", required=True, help="folder with adapter/, head.pt, model.json")
    parser.add_argument("--out", required=True, help="folder to write; must not exist")
    parser.add_argument("--max-length", type=int, default=contract.DEFAULT_MAX_LENGTH, help="tokens of one prompt")
    parser.add_argument("--unreleased", action="store_true", help="accept other revisions and sizes")
    given = parser.parse_args(arguments)
    if not 1 <= given.max_length <= contract.MAX_LENGTH:
        parser.error(f"--max-length is a number from 1 to {contract.MAX_LENGTH}")
    try:
        export(given.checkpoint, given.base, given.out, max_length=given.max_length, unreleased=given.unreleased)
    except HostError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
