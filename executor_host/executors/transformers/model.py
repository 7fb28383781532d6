"""A model that transformers can decide with: loaded by transformers, read by `backbones/causal.py`.

transformers knows the checkpoints, the prompts, the labels and the temperatures (its package `decision`), and all of
that is its own code here. Ours is what its pipeline leaves out: all prompts of a request together, what they share
once, and of the head only the rows of the labels.

    kind     the model                                  the numbers of a position
    head     `JevForDecision`                           its scores of all labels
    labels   a causal model with a decision config      the logits of the labels
    chat     any causal chat model                      the logits of the labels

Labels are read by giving the model a smaller head: those rows of its own that are labels. Everything else of its
forward stays, the scaling or capping of logits included.

None of this holds for every model, so it is tried while loading: some prompts are scored by transformers' own pipeline,
and as here. What does not agree is not done.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from executor_host import devices
from executor_host.backbones import loading
from executor_host.backbones.causal import Reader, Row, Way
from executor_host.backbones.kept import KeptPrefixes
from executor_host.errors import ConfigurationError
from executor_host.executors.transformers import heads
from executor_host.executors.transformers.checkpoint import Checkpoint

KINDS: Final = ("noul", "choice", "score")

TOLERANCE: Final = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.05}
"""How far apart two ways of reading may be, as a part of the largest score: rounding, with room to spare."""

BLIND: Final = 0.25
"""And as a part of what the options of a question differ by: more could hide a state that was lost or read wrongly."""

_TRIED_SEGMENT: Final = 16
"""Tokens: the example has several segments of so many."""

EXAMPLE_STATE: Final = "The customer was charged twice for one order last week and asks for the money back. " * 4
EXAMPLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "refund": {"type": "noul", "instructions": "Is the money asked back?", "criteria": None},
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "login": None}},
    "harm": {"type": "score", "instructions": "How large is the harm to the customer?", "criteria": ["none", "some"]},
    "spam": {"type": "noul", "instructions": None, "criteria": {"true": "unsolicited", "false": "a real request"}},
}
"""Every type of question, with ends of different lengths. Asked while loading, and of those that a model can read."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, and the questions that it answers."""

    row: Row
    """Its positions are where the questions are read, one each."""
    questions: tuple[Any, ...]
    """`transformers.decision.Question`."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What came out of the prompts of one request."""

    values: list[list[Any]]
    """Of each question of each prompt, torch float64 [options] on the CPU, in the order of the question's `options`,
    with the decision config's logits processors applied, and not normalised."""
    processed: int
    """Tokens the model read, padding not counted."""
    projected: int
    """Products of a hidden state and a row of the head."""
    shared: bool
    """Whether any tokens were read once for several prompts."""


class Model:
    """A loaded model on one device, with its tokenizer and its decision config. One thread."""

    def __init__(self, pipeline: Any, kind: str, kept_bytes: int = 0, segment: int | None = None) -> None:
        """`pipeline`: transformers' own `DecisionPipeline`. `kept_bytes`, `segment`: of prefixes that are kept, as for
        `Reader`. Raises `ConfigurationError` when none of the labels can be read."""
        self._pipeline, self.kind = pipeline, kind
        model, config = pipeline.model, pipeline.decision_config
        self._model, self._tokenizer, self._config = model, pipeline.tokenizer, config
        self.device = pipeline.device
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        text = self._text.config.get_text_config(decoder=True)
        self.context: int | None = getattr(text, "max_position_embeddings", None)
        """Most tokens that the model can read, where its configuration says."""
        self.together = _reads_together(config)
        """Whether the template writes one prompt for all questions of a request, so that they read each other."""
        self.labels = {name: self._usable(name, _labels(config, name)) for name in KINDS}
        if not any(len(labels) > 1 for labels in self.labels.values()):
            raise ConfigurationError("the labels of the answers are not single tokens of this tokenizer")
        self._kept: dict[int, int] = {}
        self._columns: dict[tuple[str, ...], list[int]] = {}
        self.label_rows: int | None = None
        """Rows of the head that are left; None: all."""
        self._way: Way = "alone"
        self._kept_bytes, self._segment = kept_bytes, segment
        self._reader = self._reader_of(self._way)

    def __repr__(self) -> str:
        return f"<Model {self.kind} {type(self._model).__name__} on {self.device} as {self.dtype}>"

    @property
    def kept(self) -> KeptPrefixes | None:
        """What is kept between requests; None when nothing is."""
        return self._reader.kept

    @property
    def execution(self) -> str:
        """`shared` or `rows`: how requests of several prompts are read."""
        return "rows" if self._way == "alone" else "shared"

    def parse(self, questions: Mapping[str, Any]) -> None:
        """Raises the `ValueError` of transformers' own parsing for a question that it, or this model, cannot read."""
        from transformers.decision import parse_questions

        for question in parse_questions(dict(questions), self._config):
            most = len(self.labels[question.type])
            if len(question.options) > most:
                raise ValueError(
                    f"{len(question.options)} options of a {question.type}; this model reads at most {most}"
                )

    def prepare(self, state: Any, questions: Mapping[str, Any]) -> list[Prompt]:
        """The prompts that transformers makes of a request. Raises what its parsing and its templates raise."""
        prompts = []
        for inputs, asked in self._config.prepare_inputs(
            {"state": state, "questions": dict(questions)}, self._tokenizer
        ):
            row = Row(inputs["input_ids"][0].numpy(), inputs["marks"].numpy() - 1)
            if len(row.positions) != len(asked):
                raise ConfigurationError(f"the template has {len(row.positions)} marks for {len(asked)} questions")
            prompts.append(Prompt(row, tuple(asked)))
        return prompts

    def score(self, prompts: Sequence[Prompt], check: Callable[[], None]) -> Scores:
        """The scores of all prompts. `check` is called before every pass of the model and ends it by raising."""
        return self._scores(self._reader, prompts, check)

    def close(self) -> None:
        """Drops the model."""
        self._pipeline = self._model = self._reader = None  # type: ignore[assignment]

    def fit(self, *, execution: str) -> None:
        """Find out what this model can do otherwise than transformers does, and do it from now on.

        `execution`: `auto`; `rows`, every prompt alone; `shared`, or it is a `ConfigurationError`.
        """
        import torch

        asked = {name: fields for name, fields in EXAMPLE.items() if len(self.labels[fields["type"]]) > 1}
        prompts = self.prepare(EXAMPLE_STATE, asked)
        # Every prompt asks whether the marks are in the vocabulary, which is made anew each time: 26 ms for 49,000
        # tokens (measured). The first prompt has added them, and nothing is added later.
        vocabulary = self._tokenizer.get_vocab()
        self._tokenizer.get_vocab = lambda: vocabulary
        with torch.inference_mode():
            expected = self._as_transformers_does(asked)
            if not all(bool(score.isfinite().all()) for scores in expected for score in scores):
                raise ConfigurationError(
                    f"the scores of this model are not finite: its weights are broken, or beyond {self.dtype}"
                )
            if self.kind != "head":
                self._keep_label_rows(prompts, expected)
            if not self._agrees(self._reader, prompts, expected):
                raise ConfigurationError("the scores of this model are not those of transformers' own pipeline")
            if execution != "rows":
                self._way = next((way for way in self._ways() if self._shares(way, prompts, expected)), "alone")
        if execution == "shared" and self._way == "alone":
            raise ConfigurationError("execution 'shared': the scores of this model change when prompts share a state")
        if self._kept_bytes and (self._way == "alone" or not self._keeps(prompts, expected)):
            raise ConfigurationError("prefix_cache_mb: this model cannot go on from a state as transformers reads it")
        self._reader = self._reader_of(self._way, kept_bytes=self._kept_bytes)

    def _ways(self) -> list[Way]:
        """The ways to share that this model may have, the cheapest first."""
        from transformers.cache_utils import DynamicLayer

        if getattr(self._text.config, "is_causal", True) is False:
            return []
        plain = all(type(layer) is DynamicLayer for layer in self._make_cache().layers)
        return ["packed", "forked"] if plain else ["forked"]

    def _shares(self, way: Way, prompts: Sequence[Prompt], expected: list[list[Any]]) -> bool:
        """Whether the scores are the same when every token that can be shared is."""
        return self._agrees(self._reader_of(way, least=1), prompts, expected)

    def _keeps(self, prompts: Sequence[Prompt], expected: list[list[Any]]) -> bool:
        """Whether the scores are the same from kept prefixes, read for the first time and found again."""
        reader = self._reader_of(self._way, kept_bytes=self._kept_bytes, segment=_TRIED_SEGMENT)
        return all(self._agrees(reader, prompts, expected) for _ in range(2))

    @property
    def _text(self) -> Any:
        """The model without a decision head."""
        return self._model.model if self.kind == "head" else self._model

    # Labels

    def _usable(self, kind: str, labels: Sequence[str]) -> list[str]:
        """The first of the labels, as many as the model can tell apart."""
        if self.kind == "head":
            head = self._model.config
            return list(labels[: max(0, head.num_verbalizers - head.offsets[kind])])
        from transformers.decision import label_token_ids

        for count in range(len(labels), 0, -1):
            try:
                label_token_ids(self._tokenizer, tuple(labels[:count]))
            except ValueError:
                continue
            return list(labels[:count])
        return []

    def _columns_of(self, question: Any) -> list[int]:
        """Which numbers of a position are those of the question's options, in order."""
        if self.kind == "head":
            first = self._model.config.offsets[question.type]
            return list(range(first, first + len(question.options)))
        labels = tuple(question.labels)
        columns = self._columns.get(labels)
        if columns is None:
            from transformers.decision import label_token_ids

            columns = label_token_ids(self._tokenizer, labels)
            if self.label_rows is not None:
                columns = [self._kept[token] for token in columns]
            self._columns[labels] = columns
        return columns

    def _keep_label_rows(self, prompts: Sequence[Prompt], expected: list[list[Any]]) -> None:
        """Give the model a head of the labels' rows alone, unless it answers otherwise then."""
        import torch
        from transformers.decision import label_token_ids

        whole = self._model.get_output_embeddings()
        if type(whole) is not torch.nn.Linear:
            return
        readable = [labels for labels in self.labels.values() if labels]
        rows = sorted({token for labels in readable for token in label_token_ids(self._tokenizer, labels)})
        head = torch.nn.Linear(
            whole.in_features, len(rows), whole.bias is not None, device=whole.weight.device, dtype=whole.weight.dtype
        )
        head.weight = torch.nn.Parameter(whole.weight[rows].clone(), requires_grad=False)
        if whole.bias is not None:
            head.bias = torch.nn.Parameter(whole.bias[rows].clone(), requires_grad=False)
        self._model.set_output_embeddings(head)
        self._kept = {token: column for column, token in enumerate(rows)}
        self.label_rows = len(rows)
        if not self._agrees(self._reader, prompts, expected):
            self._model.set_output_embeddings(whole)
            self.label_rows = None
            self._columns.clear()

    # Reading

    def _reader_of(self, way: Way, least: int | None = None, kept_bytes: int = 0, segment: int | None = None) -> Reader:
        segment = self._segment if segment is None else segment
        return Reader(
            self._forward, self._make_cache, self.device, way=way, least=least, kept_bytes=kept_bytes, segment=segment
        )

    def _make_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._text.config)

    def _forward(self, tokens: Any, wanted: Any, cache: Any, layout: Mapping[str, Any]) -> Any:
        """As `backbones.causal.Forward`."""
        import torch

        settings = {"use_cache": False} if cache is None else {"use_cache": True, "cache": cache}
        if self.kind != "head":
            return self._model(input_ids=tokens, logits_to_keep=wanted, **settings, **layout).logits
        hidden = self._text(input_ids=tokens, **settings, **layout).last_hidden_state
        at = torch.take_along_dim(hidden, wanted[..., None], dim=1)
        scores = self._model.proj(at.to(self._model.proj.weight.dtype))
        cap = self._model.config.softcap
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def _scores(self, reader: Reader, prompts: Sequence[Prompt], check: Callable[[], None]) -> Scores:
        import torch

        reading = reader.read([prompt.row for prompt in prompts], check)
        projected = 0
        values: list[list[Any]] = []
        with torch.inference_mode():
            for prompt, numbers in zip(prompts, reading.numbers, strict=True):
                projected += numbers.numel()
                numbers = numbers.double().cpu()
                # What transformers hands to the processors: the tokens behind the last mark.
                tail = torch.from_numpy(prompt.row.tokens[int(prompt.row.positions[-1]) + 1 :])
                values.append(
                    [
                        self._config.logits_processors[question.type](tail, numbers[index, self._columns_of(question)])
                        for index, question in enumerate(prompt.questions)
                    ]
                )
        return Scores(values, reading.processed, projected, reading.shared)

    # Trying

    def _as_transformers_does(self, asked: Mapping[str, Any]) -> list[list[Any]]:
        prompts = self._pipeline.preprocess({"state": EXAMPLE_STATE, "questions": dict(asked)})
        scores: list[list[Any]] = self._pipeline.forward(prompts)["scores"]
        return scores

    def _agrees(self, reader: Reader, prompts: Sequence[Prompt], expected: list[list[Any]]) -> bool:
        """Whether the reader gives the expected scores. One that cannot read these prompts does not."""
        import torch

        try:
            found = self._scores(reader, prompts, lambda: None).values
        except Exception as error:  # models raise whatever they like at calls they are not made for
            if devices.is_of_the_device(error, self.device.type):
                raise
            return False
        theirs = torch.cat([score.double().cpu() for scores in expected for score in scores])
        ours = torch.cat([score for scores in found for score in scores])
        apart = float((ours - theirs).abs().max())
        spread = max(float(score.max() - score.min()) for scores in expected for score in scores)
        return apart <= min(TOLERANCE[self.dtype] * float(theirs.abs().max()), BLIND * spread)


def _reads_together(config: Any) -> bool:
    from transformers.utils.chat_template_utils import _get_template_variables

    return config.chat_template is not None and "questions" in _get_template_variables(config.chat_template)


def _labels(config: Any, kind: str) -> list[str]:
    """The labels of a type of question: the config's, or transformers' own."""
    return list(config.labels.get(kind) or (["Yes", "No"] if kind == "noul" else string.ascii_uppercase))


def load(
    checkpoint: Checkpoint,
    *,
    device: str,
    dtype: str,
    execution: str,
    kept_bytes: int = 0,
    segment: int | None = None,
) -> Model:
    """The model of a checkpoint. Nothing is downloaded, no code of the checkpoint is run, no pickle is opened.

    Raises `ConfigurationError`: not a model that transformers can load as one of the kinds, weights that are missing,
    no such device.
    """
    torch, transformers, target = loading.prepare(device)
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(checkpoint.path), "local_files_only": True}
    if checkpoint.gguf:
        where["gguf_file"] = checkpoint.gguf
    try:
        from transformers.pipelines import DecisionPipeline

        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        tokenizer.model_input_names = ["input_ids", "attention_mask"]  # what a causal model is asked with
        config = transformers.AutoConfig.from_pretrained(**where)
        arguments = {**where, "dtype": getattr(torch, dtype)}
        model, decision_config, kind = _model(transformers, config, arguments, unbiased=checkpoint.unbiased)
        # Which puts the model on the device, and the adapter of the decision config onto the model.
        pipeline = DecisionPipeline(
            model=model.eval().requires_grad_(False),
            tokenizer=tokenizer,
            decision_config=decision_config,
            device=target,
        )
        loaded = Model(pipeline, kind, kept_bytes, segment)
        loaded.fit(execution=execution)
    except ConfigurationError:
        raise
    except Exception as error:  # transformers raises whatever the first thing that it stumbles over raises
        if devices.is_of_the_device(error, target.type):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(f"transformers cannot load it: {type(error).__name__}: {reason}") from error
    return loaded


def _model(transformers: Any, config: Any, arguments: dict[str, Any], *, unbiased: bool) -> tuple[Any, Any, str]:
    """The model, its decision config and its kind, chosen as transformers' own pipeline and server choose. `unbiased`:
    whether its head's bias is not in the checkpoint, and zero."""
    from transformers.decision import DecisionConfig
    from transformers.decision.modeling_utils import DecisionMixin

    folder = arguments["pretrained_model_name_or_path"]
    arguments = {**arguments, "output_loading_info": True, "use_safetensors": True}
    decision_config, kind = None, ""
    architecture = transformers.MODEL_FOR_DECISION_MAPPING.get(type(config), None)
    if architecture is not None:
        head = config
        if config.model_type != architecture.config_class.model_type:  # perhaps a head next to a model's weights
            head, decision_config = architecture.checkpoint_config(folder, local_files_only=True)
        if head is not None:
            if architecture is not transformers.JevForDecision:
                raise ConfigurationError(f"the decision head {architecture.__name__} is not known here")
            # As the mixin's own, which cannot tell what is missing.
            model, loading = super(DecisionMixin, architecture).from_pretrained(**arguments, config=head)
            kind = "head"
    if not kind:
        causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
        if not causal and type(config) not in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
            raise ConfigurationError(
                f"transformers has no decision model and no causal model of the type {config.model_type!r}"
            )
        auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForImageTextToText
        model, loading = auto.from_pretrained(**arguments, config=config)
    absent = sorted([*loading["missing_keys"], *(str(key[0]) for key in loading["mismatched_keys"])])
    if unbiased and absent == [heads.BIAS]:
        model.proj.bias.requires_grad_(False).zero_()
        absent = []
    if absent:
        raise ConfigurationError(f"the weights lack {absent[0]}, or it has another shape ({len(absent)} such tensors)")
    if decision_config is None:
        decision_config = DecisionConfig.from_pretrained(folder, local_files_only=True)
    if not kind:
        kind = "chat" if decision_config == DecisionConfig() else "labels"
    return model, decision_config, kind
