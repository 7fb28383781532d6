"""The nimble family in the front: one request in, a token row per question out, logits in, answers out.

    rendering   the schema of state and questions that the model was trained on
    rows        chat, tokens, limits, cost
    grammar     the family's own request body     } for the native profile
    native      its arithmetic and its bodies     }
    checkpoint  what the folder says

The unit is one whole request. The host returns raw logits of the codes, and with its facts the temperature that goes
with its adapter; softmax and everything after it are done here, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from frontend.errors import InternalError
from frontend.families import answering, checkpoints, documents
from frontend.families.base import Decision, Prepared, context_of
from frontend.families.checkpoints import CheckpointProcessor
from frontend.families.logits import BYTES_PER_LOGIT, read
from frontend.families.nimble import rendering, rows
from frontend.families.nimble.checkpoint import Checkpoint, load
from frontend.families.refusal import Refused
from frontend.requests.answers import softmax
from frontend.requests.questions import DecisionRequest, Question
from protocol.contracts import nimble as contract


@dataclass(frozen=True, slots=True)
class _Context:
    """What `finish` needs of a prepared request."""

    questions: tuple[Question, ...]
    compiled: rows.Compiled


class NimbleProcessor(CheckpointProcessor[Checkpoint]):
    """Prepares and finishes for `executor_host.executors.nimble.executor`. One `RowsRequest` per request."""

    OPTIONS = contract.OPTIONS
    PREPARE_WEIGHT: ClassVar[int] = 32
    """As of the other families that tokenize here: about 2.5 MB/s, where JSON is read at 64 MB/s (measured there)."""

    def __init__(self, facts: Mapping[str, object], options: Mapping[str, object], path: str | None = None) -> None:
        """As `Processor`. `facts["temperature"]` is that of the host's adapter."""
        super().__init__(facts, options, path)
        self._divisor: float | None = None
        if facts:
            with checkpoints.agreed():
                self._divisor = contract.read_temperature(facts.get("temperature"), "the host's temperature")

    def read_checkpoint(self) -> Checkpoint:
        """As `CheckpointProcessor`."""
        return load(self.path, unreleased=self.options["unreleased"])

    @property
    def fill(self) -> bool:
        """Whether an option without a description is described by its name."""
        return bool(self.options["undescribed"] == "name")

    @property
    def divisor(self) -> float:
        """What logits are divided by: the adapter's temperature, and not the configuration's. Raises `InternalError`
        before there has been a host."""
        if self._divisor is None:
            raise InternalError("the host has not said its temperature")
        return self._divisor

    def compile(self, state: object, questions: Sequence[rendering.Rendered]) -> rows.Compiled:
        """The rows of a request. Raises `Refused` as `rows.compile_rows`."""
        return self.checkpoint.compile(state, questions, self.options["max_length"])

    def prepare(self, request: DecisionRequest) -> Prepared:
        """The rows of the whole request; their cost is their tokens, state and all questions counted in each.

        Raises `InvalidRequest` for what this model cannot be asked (64 questions at most; ids, states, option names and
        instructions that are not blank; 1 to 255 options, or 26 where the tokenizer has no more codes), and
        `TokensExceeded` for a prompt above `max_length`.
        """
        most = len(self.checkpoint.codes.names)

        def render(name: str, fields: Mapping[str, object]) -> rendering.Rendered:
            return rendering.question(name, fields, fill=self.fill, most=most)

        try:
            rows.check_questions(len(request.questions))
            questions = [documents.rendered(question, render) for question in request.questions]
            compiled = self.compile(request.state, questions)
        except Refused as error:
            raise error.for_systemone() from None
        work = BYTES_PER_LOGIT * int(compiled.payload.candidates.sum())
        return Prepared(
            (compiled.payload,), cost=compiled.tokens, work=work, context=_Context(request.questions, compiled)
        )

    def finish(self, prepared: Prepared, outputs: Sequence[object]) -> Decision:
        """The answers in float64, unrounded, from the output that `families.logits.read` describes."""
        context = context_of(prepared, _Context)
        logits = read(outputs, context.compiled.payload.candidates.tolist())
        answers = answering.answers(
            context.questions,
            logits,
            lambda question, found: answering.answer(question, softmax(found, self.divisor)),
        )
        return Decision(answers, input_tokens=context.compiled.tokens)
