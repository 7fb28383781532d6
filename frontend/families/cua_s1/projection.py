"""From the last hidden state of a prompt to the logits of its letters: the part of the head this family needs.

The host reads the 26 letter rows from its tied embedding and hands them over with its facts; the front multiplies.
Sums are float64 and are rounded to float32 once per logit. The rows of letters that a
question does not use are not read, so they cannot change its answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontend.errors import InternalError
from frontend.families.base import AssetError
from protocol.contracts.cua_s1 import LETTER_IDS, LETTERS


class Letters:
    """The letter rows of one checkpoint. Never changed; safe to use from several threads."""

    __slots__ = ("_rows", "sha256")

    def __init__(self, rows: NDArray[np.float32]) -> None:
        """`rows`: [26, hidden size], in the order of the letters."""
        self.sha256 = hashlib.sha256(np.ascontiguousarray(rows, "<f4").tobytes()).hexdigest()
        self._rows = rows.astype(np.float64)

    @classmethod
    def of(cls, facts: Mapping[str, object]) -> Letters:
        """The rows in a host's facts: `letters` is {ids, rows, sha256}. Raises `AssetError` for anything else."""
        letters = facts.get("letters")
        if not isinstance(letters, Mapping):
            raise AssetError("the host has handed over no letter rows")
        ids, rows = letters.get("ids"), letters.get("rows")
        if not isinstance(ids, (list, tuple)) or tuple(ids) != LETTER_IDS:
            raise AssetError("the host's letters are not the tokens that this family answers with")
        if not (isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.ndim == 2):
            raise AssetError("the host's letter rows are not one table of float32")
        if len(rows) != len(LETTERS) or not rows.shape[1] or not np.isfinite(rows).all():
            raise AssetError(f"the host's letter rows are not {len(LETTERS)} rows of finite numbers")
        made = cls(rows)
        if letters.get("sha256") != made.sha256:
            raise AssetError("the host's letter rows are not those it has the sha256 of")
        return made

    def __repr__(self) -> str:
        return f"<Letters {self._rows.shape[0]}x{self._rows.shape[1]} {self.sha256[:12]}>"

    def logits(self, output: object, count: int) -> tuple[float, ...]:
        """The logits of the first `count` letters, each the float64 of its float32, from a unit's output.

        The output is `{"hidden": float32 [hidden size], ...}`. Raises `InternalError` for any other, and when a
        logit is not finite.
        """
        hidden: Any = output.get("hidden") if isinstance(output, Mapping) else None
        if not (isinstance(hidden, np.ndarray) and hidden.dtype == np.float32):
            raise InternalError("the model's output is not a hidden state of float32")
        if hidden.shape != self._rows.shape[1:]:
            raise InternalError(f"the hidden state has shape {list(hidden.shape)}; {self._rows.shape[1]} is expected")
        # Not a matrix product: for 30 to 110 us of work (measured) that would wake the linear algebra's own threads.
        with np.errstate(over="ignore", invalid="ignore"):
            products = self._rows[:count] * hidden.astype(np.float64)
            logits: list[float] = products.sum(axis=1).astype(np.float32).tolist()
        for letter, logit in zip(LETTERS, logits, strict=False):
            if not isfinite(logit):
                raise InternalError(f"the model's logit of {letter} is {logit}")
        return tuple(logits)
