"""The arithmetic of a static sparrow model, as the package does it and in its order, without doing it twice.

    state s, instructions q, options o    means of word vectors, of length 1
    features of an option                 o, s o, q o, s q o, o - mean(o), (s - mean(o)) o, and what the numbers add
    logits                                a small perceptron of those

The package computes all of it for each question. Most questions are asked again of other states, so what a question
brings is kept, and only what the state brings is computed. The products are the package's own, of the same shapes and
one question at a time, so that a probability is the same number to the last bit, alone or in company: products of
other shapes differ in the seventh digit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

KINDS: Final = {"noul": 0, "choice": 1, "score": 2}

Asked: TypeAlias = "tuple[str, str, Sequence[str]]"
"""Kind, instructions, and the text of each option, of which there are two at least."""

Request: TypeAlias = "tuple[str, Sequence[int], Sequence[Asked]]"
"""The state, its word pieces, and its questions."""

MAX_QUESTIONS: Final = 2_048
MAX_VALUES: Final = 2**20
"""Questions whose vectors are kept, and float32 values of all of them together: 4 MiB."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a question brings, whatever the state is: n options of d dimensions."""

    kind: str
    instructions: Vectors
    """d."""
    options: Vectors
    """n x d."""
    mean: Vectors
    """Of the options, 1 x d."""
    features: Vectors
    """Those of the options, with the state's blocks left out: n x width."""

    @property
    def values(self) -> int:
        """How many numbers are kept for it."""
        return self.features.size + self.options.size + 2 * self.mean.size


class StaticModel:
    """`model` is the package's, whose weights these are; `ids` makes the word pieces of a text."""

    def __init__(self, model: Any, ids: Callable[[str], Sequence[int]]) -> None:
        self._model = model
        self._ids = ids
        self._limit = int(model.max_len)
        weights = model.w
        self._table = weights["emb.weight"]
        self._kinds: Vectors = weights["kind.weight"]
        self._width = int(weights["mlp.0.weight"].shape[1])
        self._layers = [(weights[f"mlp.{number}.weight"].T, weights[f"mlp.{number}.bias"]) for number in (0, 2, 4)]
        self._temperatures = {kind: float(model.cfg.get("temperature_by_kind", {}).get(kind, 1.0)) for kind in KINDS}
        self._kept: OrderedDict[tuple[str, ...], Question] = OrderedDict()
        self._values = 0

    def __repr__(self) -> str:
        return f"<StaticModel questions={len(self._kept)}>"

    def probabilities(self, requests: Sequence[Request]) -> list[list[NDArray[np.float32]]]:
        """For each request one array per question."""
        rows: list[tuple[str, Vectors, Question]] = []
        for state, ids, asked in requests:
            vector = _unit(self._mean(ids))
            rows += [(state, vector, self._question(*question)) for question in asked]
        ends = np.cumsum([len(question.options) for _, _, question in rows]).tolist()
        parts = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        hidden = np.empty((ends[-1] if ends else 0, self._width), np.float32)
        for part, (state, vector, question) in zip(parts, rows, strict=True):
            self._fill(hidden[part], state, vector, question)
        for number, (weight, bias) in enumerate(self._layers):
            # One product for each question, as in the package; what is done element by element is done for all at once.
            products = np.empty((len(hidden), weight.shape[1]), np.float32)
            for part in parts:
                np.matmul(hidden[part], weight, out=products[part])
            products += bias
            hidden = products if number == len(self._layers) - 1 else _gelu(products)
        logits = hidden[:, 0]
        each = iter(
            _softmax(logits[part], self._temperatures[question.kind])
            for part, (_, _, question) in zip(parts, rows, strict=True)
        )
        return [[next(each) for _ in asked] for _, _, asked in requests]

    def _question(self, kind: str, instructions: str, options: Sequence[str]) -> Question:
        key = (kind, instructions, *options)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        about = _unit(self._mean(self._ids(instructions)) + self._kinds[KINDS[kind]])
        each = _unit(np.stack([self._mean(self._ids(text)) for text in options]))
        mean = each.mean(0, keepdims=True)
        features = np.zeros((len(each), self._width), np.float32)
        blocks = self._blocks(features)
        blocks[0][:] = each
        blocks[2][:] = about * each
        blocks[4][:] = each - mean
        found = Question(kind, about, each, mean, features)
        if found.values <= MAX_VALUES // 16:
            self._kept[key] = found
            self._values += found.values
            while len(self._kept) > MAX_QUESTIONS or self._values > MAX_VALUES:
                self._values -= self._kept.popitem(last=False)[1].values
        return found

    def _blocks(self, features: Vectors) -> list[Vectors]:
        size = self._table.shape[1]
        return [features[:, begin : begin + size] for begin in range(0, self._width, size)]

    def _fill(self, features: Vectors, state: str, vector: Vectors, question: Question) -> None:
        """The features of a question's options beside this state."""
        options, about = question.options, question.instructions
        features[:] = question.features
        blocks = self._blocks(features)
        np.multiply(vector, options, out=blocks[1])
        np.multiply(vector * about, options, out=blocks[3])
        np.multiply(vector - question.mean, options, out=blocks[5])
        if self._model.kv:
            numbers, bound = self._model._kv(state, options)
            np.multiply(numbers, options, out=blocks[6])
            np.multiply(numbers * about, options, out=blocks[7])
            blocks[8][:] = bound
            np.multiply(bound, about, out=blocks[9])

    def _mean(self, ids: Sequence[int]) -> Vectors:
        mean: Vectors = self._table[ids[: self._limit] or [0]].mean(0)
        return mean


def _unit(vectors: Vectors) -> Vectors:
    made: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return made


def _gelu(values: Vectors) -> Vectors:
    """0.5 x (1 + erf(x / sqrt 2)), erf by Abramowitz and Stegun 7.1.26, as the package has it, with arrays reused."""
    half = values * np.float32(0.5)
    values /= np.float32(2**0.5)
    sign = np.sign(values)
    size = np.abs(values, out=values)
    t = 1.0 / (1.0 + np.float32(0.3275911) * size)
    series = np.float32(1.061405429) * t
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series += np.float32(term)
        series *= t
    np.multiply(size, size, out=size)
    np.negative(size, out=size)
    series *= np.exp(size, out=size)
    np.subtract(1.0, series, out=series)
    series *= sign
    series += 1.0
    half *= series
    return half


def _softmax(logits: Vectors, temperature: float) -> Vectors:
    logits = logits / temperature
    raised = np.exp(logits - logits.max())
    made: Vectors = raised / raised.sum()
    return made
