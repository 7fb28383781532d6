"""What both halves of the open-jev family agree on: options, file names, limits, identity. Pure.

Two layouts are served, told apart by the file that only they have: in a *merged export* everything lies in one folder,
under the manifest that was written last; a *LoRA checkpoint* has the adapter and the calibration, and tokenizer and
weights are its base model's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from protocol.contracts import agreement, placement
from protocol.contracts.agreement import ContractError
from protocol.options import Option, OptionTable

MANIFEST: Final = "open_jev_export.json"
FORMAT: Final = "open-jev-text-merged/1"
"""Of the manifest; the only one there is."""

MODEL: Final = "model.json"
TEMPERATURE: Final = "temperature.json"
TOKENIZER: Final = "tokenizer.json"
FRONT_FILES: Final = (MANIFEST, MODEL, TEMPERATURE, TOKENIZER)
"""What the front reads of a folder: of these, those that its layout has."""

DEFAULT_MAX_LENGTH: Final = 4096
MAX_LENGTH: Final = 16_384
"""Tokens of one prompt, the chat included: unless an export or the configuration says otherwise, and at most. Longer
ones are refused, never cut."""

MAX_ROWS: Final = 65_536
"""Candidates of one request."""

MAX_TOKENS: Final = 16_777_216
"""Tokens of all rows of one request: ours, because the family has no bound but those above and 4,096 questions, whose
product is a message of a gigabyte. These are 64 MiB, and minutes of the fastest card."""

OPTIONS: Final = OptionTable(
    (
        Option(
            "base", str, None, "a LoRA checkpoint's base model: its folder, with tokenizer and weights", side="both"
        ),
        Option(
            "max_length",
            int,
            None,
            "most tokens of one prompt",
            side="both",
            least=1,
            most=MAX_LENGTH,
            unset=f"the export's, or {DEFAULT_MAX_LENGTH}",
        ),
        Option("unreleased", bool, False, "serve a checkpoint of another revision or size than the released ones"),
        placement.DEVICE,
        placement.DTYPE,
        Option(
            "execution",
            str,
            "auto",
            "how candidates are read; auto: packed for the 27B on a CPU, else rows",
            choices=placement.EXECUTIONS,
        ),
        Option("graphs", bool, False, "record and replay groups of candidates on a GPU; not with shared"),
        placement.PREFIX_CACHE,
        placement.PREFIX_SEGMENT,
    ),
    rules=(placement.no_graphs_of_shared, placement.no_graphs_of_kept),
)


@dataclass(frozen=True, slots=True)
class Chat:
    """What stands around a prompt: one message of a user, and the answer that begins without thinking."""

    prefix: str
    suffix: str


DEFAULT_CHAT: Final = Chat("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
"""The base models' template, for checkpoints that do not bring it rendered."""


@dataclass(frozen=True, slots=True)
class Release:
    """A published checkpoint."""

    alias: str
    """Its own name, which clients of the family's worker may call it by."""
    base_revision: str
    checkpoint_revision: str
    sizes: tuple[int, ...]
    """Of the text model, as `SIZES` names them."""
    packed: bool
    """Whether reading the candidates of a request together was validated for it."""


SIZES: Final = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "linear_num_key_heads",
    "linear_num_value_heads",
)

RELEASES: Final[Mapping[str, Release]] = {
    "Qwen/Qwen3.8-27B": Release(
        "open-jev-27b-v1.1",
        "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0",
        "28cf73067d5b337860bbef3c85b8b82ba8730956",
        (5120, 17408, 64, 24, 4, 16, 48),
        packed=True,
    ),
    "Qwen/Qwen3.5-9B": Release(
        "open-jev-9b",
        "c202236235762e1c871ad0ccb60c8ee5ba337b9a",
        "47e966881e489511c0c7f5633a9e1960a676a551",
        (4096, 12288, 32, 16, 4, 16, 32),
        packed=False,
    ),
}
"""By base model."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a checkpoint's documents say of how it is asked."""

    model_id: str
    """The base model, which is what this family's own worker answers with."""
    base_revision: str
    checkpoint_revision: str | None
    """None where the files do not say: a LoRA checkpoint knows only its base model's."""
    temperature: float
    """Of every question, whatever its type."""
    max_length: int
    chat: Chat
    rank: int | None
    """Of a LoRA checkpoint's adapter; None for an export."""

    @property
    def release(self) -> Release | None:
        """The release whose base model this has, whether it is the released one or not."""
        return RELEASES.get(self.model_id)


def read_export(manifest: Mapping[str, Any]) -> Terms:
    """The terms of a merged export. Raises `ContractError` naming file and key."""
    if manifest.get("format") != FORMAT:
        raise ContractError(f"{MANIFEST}: format is {manifest.get('format')!r}, not {FORMAT!r}")
    model_id, base_revision, revision, prefix, suffix = (
        agreement.text(manifest, MANIFEST, key)
        for key in ("model_id", "base_revision", "checkpoint_revision", "chat_prefix", "chat_suffix")
    )
    temperature = _temperature(manifest, MANIFEST)
    longest = agreement.count(manifest, MANIFEST, "max_length", MAX_LENGTH)
    return Terms(model_id, base_revision, revision, temperature, longest, Chat(prefix, suffix), None)


def read_lora(model: Mapping[str, Any], calibration: Mapping[str, Any]) -> Terms:
    """The terms of a LoRA checkpoint, from the objects in `MODEL` and `TEMPERATURE`. Raises as `read_export`."""
    model_id, revision, _ = (agreement.text(model, MODEL, key) for key in ("model_id", "revision", "method"))
    agreement.count(model, MODEL, "max_length", 2**31)  # of the training, which is not what is served
    rank = agreement.count(model, MODEL, "lora_rank", 4096)
    temperature = _temperature(calibration, TEMPERATURE)
    return Terms(model_id, revision, None, temperature, DEFAULT_MAX_LENGTH, DEFAULT_CHAT, rank)


def identity(
    name: str, files: Mapping[str, str], dtype: str, device: str, execution: str, batch: tuple[int, int], longest: int
) -> str:
    """Equal exactly for equal answers: weights, prompts, calibration, and arithmetic. `files`: sha256 by name; `batch`:
    most rows and tokens that are read together; `longest`: tokens of one prompt."""
    rows, tokens = batch
    how = (agreement.arithmetic(dtype, device), f"{execution}:{rows}x{tokens}", f"max_length:{longest}")
    return agreement.identity(name, files, *how)


def _temperature(document: Mapping[str, Any], name: str) -> float:
    value = document.get("temperature")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond every float
            number = 0.0
        if isfinite(number) and number > 0.0:
            return number
    raise ContractError(f"{name}: temperature is {value!r}; a finite number above 0 is expected")
