"""Decision heads that are shipped next to the weights of the model that they read, checked without loading them.

    decision_config.json  with `codes`: the decision models of vLLM. head.safetensors, or readout.safetensors (d3,
                          pplx-decider), which has the weight alone: their readout has no bias
    judge_config.json     with `slots`, and calibration.json: JEV, with head.safetensors

What is said here is what transformers makes of these files (`JevConfig`); what it would pass over in silence, a bias
beside a readout that has none or a head file too many, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from executor_host import checkpoints
from executor_host.errors import ConfigurationError

HEAD: Final = "head.safetensors"
READOUT: Final = "readout.safetensors"
BIAS: Final = "proj.bias"
"""The tensor that a readout lacks; it is zero then."""

DECISION: Final = "decision_config.json"
JUDGE: Final = "judge_config.json"
CALIBRATION: Final = "calibration.json"

READ_BY: Final = ("gemma4", "qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_text")
"""Types of the models that transformers reads such a head with."""

PROMPTS: Final = ("pplx", "d3")
KINDS: Final = ("noul", "choice", "score")
DTYPES: Final = ("F16", "BF16", "F32")

MAX_ROWS: Final = 4096
"""Of a head: labels that are read with it. The published ones have 8 to 255."""


def shipped(folder: Path, config: Mapping[str, Any]) -> str:
    """The name of the head's weights file, "" when there is no head. `config`: the object in config.json.

    Raises `ConfigurationError` naming file and key for a head that would not be loaded, or not as it is.
    """
    rows = _rows(folder)
    found = [name for name in (HEAD, READOUT) if (folder / name).is_file()]
    if rows is not None and config.get("model_type") not in READ_BY:
        raise ConfigurationError(f"config.json: model_type is {config.get('model_type')!r}; no head is read beside it")
    if rows is None:
        if found:
            raise ConfigurationError(f"{found[0]} is a head without a configuration: {DECISION} with codes, or {JUDGE}")
        return ""
    if len(found) != 1:
        said = "are both there; which is meant?" if found else f"are both missing in {folder}"
        raise ConfigurationError(f"{HEAD} and {READOUT} {said}")
    (name,) = found
    text = config.get("text_config", config)
    hidden = checkpoints.count(text if isinstance(text, dict) else {}, "config.json", "hidden_size", 2**31)
    expected: dict[str, tuple[int, ...]] = {"proj.weight": (rows, hidden), BIAS: (rows,)}
    if name == READOUT:
        expected = {"weight": (rows, hidden)}
    tensors = checkpoints.safetensors_table(folder / name)
    for key in sorted(expected.keys() ^ tensors.keys()):
        raise ConfigurationError(f"{name}: {key} is {'missing' if key in expected else 'foreign'}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key] or tensor.dtype not in DTYPES:
            wanted = f"{' or '.join(DTYPES)} {list(expected[key])}"
            raise ConfigurationError(f"{name}: {key} is {tensor.dtype} {list(tensor.shape)}; {wanted} is needed")
    return name


def _rows(folder: Path) -> int | None:
    """How many labels the head reads, None when nothing configures one."""
    if (folder / DECISION).is_file():
        decision = checkpoints.read_json(folder / DECISION)
        if "codes" in decision:
            return _codes(decision)
    return _slots(folder) if (folder / JUDGE).is_file() else None


def _codes(decision: Mapping[str, Any]) -> int:
    codes = decision["codes"]
    if not isinstance(codes, list) or not 2 <= len(codes) <= MAX_ROWS or not all(isinstance(c, str) for c in codes):
        raise ConfigurationError(f"{DECISION}: codes is not a list of 2 to {MAX_ROWS} texts")
    if decision.get("prompt", PROMPTS[0]) not in PROMPTS:
        raise ConfigurationError(f"{DECISION}: prompt is {decision['prompt']!r}, not {' or '.join(PROMPTS)}")
    _check_temperature(decision.get("temperature"), f"{DECISION}: temperature")
    return len(codes)


def _slots(folder: Path) -> int:
    slots = checkpoints.read_json(folder / JUDGE).get("slots")
    if not isinstance(slots, dict):
        raise ConfigurationError(f"{JUDGE}: slots is not an object")
    rows = checkpoints.count(slots, f"{JUDGE}: slots", "num_slots", MAX_ROWS)
    labels, ranges = slots.get("verbalizers"), slots.get("ranges")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConfigurationError(f"{JUDGE}: slots: verbalizers is not a list of texts")
    if not isinstance(ranges, dict) or ranges.keys() != set(KINDS):
        raise ConfigurationError(f"{JUDGE}: slots: ranges is not an object of {', '.join(KINDS)}")
    for kind, span in ranges.items():
        whole = isinstance(span, list) and len(span) == 2 and all(type(end) is int for end in span)
        if not whole or not 0 <= span[0] < span[1] <= min(rows, len(labels)):
            raise ConfigurationError(f"{JUDGE}: slots: ranges: {kind} is {span!r}, no part of the {rows} slots")
    if not (folder / CALIBRATION).is_file():
        raise ConfigurationError(f"{CALIBRATION} is missing in {folder}")
    by_kind = checkpoints.read_json(folder / CALIBRATION).get("per_kind")
    if not isinstance(by_kind, dict):
        raise ConfigurationError(f"{CALIBRATION}: per_kind is not an object")
    for kind, value in by_kind.items():
        _check_temperature(value, f"{CALIBRATION}: per_kind: {kind}")
    return rows


def _check_temperature(value: object, where: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not value > 0:  # type: ignore[arg-type,operator]
        raise ConfigurationError(f"{where} is {value!r}; a finite number above 0 is expected")
