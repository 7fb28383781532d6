"""The families without a package that can be installed: prompts, tokens and arithmetic once more from their contracts,
through transformers and PEFT, every row by itself, in float32."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fidelity.comparing import Expected, Made, Subject
from tests.fidelity.requests import Shape
from tests.helpers import tiny_cua_s1, tiny_embedding, tiny_kev, tiny_nimble, tiny_open_jev


def dumps(value: Any, **how: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, **how)


def softmax(values: Sequence[float], temperature: float = 1.0) -> list[float]:
    top = max(values)
    weights = [math.exp((value - top) / temperature) for value in values]
    return [weight / math.fsum(weights) for weight in weights]


class Text:
    """A text model of transformers in float32 and a tokenizer: the last layer's states of a row."""

    def __init__(self, model: Any, tokenizer: Path) -> None:
        from tokenizers import Tokenizer

        self.model = model.eval()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.float()
        self._tokenizer = Tokenizer.from_file(str(tokenizer))

    def ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def states(self, tokens: Sequence[int]) -> Any:
        """[tokens, hidden size]."""
        import torch

        with torch.no_grad():
            return self.model(input_ids=torch.tensor([list(tokens)])).last_hidden_state[0]


def merged(model: Any, adapter: Path, *, safe: bool) -> Any:
    """What PEFT makes of a model and an adapter."""
    import peft

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about a name that transformers has given up
        return peft.PeftModel.from_pretrained(model, adapter).merge_and_unload(safe_merge=safe)


def qwen(kind: str, folder: Path, dtype: str) -> Any:
    import torch
    import transformers

    model_class = getattr(transformers, kind)
    return model_class.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="eager")


# cua-s1

CUA_S1 = (
    "You are a one-pass computer-use decision model. You are shown the current state of a screen and a fixed, closed"
    " list of candidate (element, action) options, each given a single letter. Choose exactly one option: the single"
    " best next action to take. Answer with ONLY that option's letter -- no words, no punctuation, no explanation."
)


class CuaS1:
    """One chat per question, read at the letters of the embedding that is tied to the output."""

    def __init__(self, folder: Path) -> None:
        model = merged(qwen("Qwen3_5ForCausalLM", folder, "bfloat16"), folder / "text", safe=False)
        self._text = Text(model.model, folder / "tokenizer.json")
        self._letters = model.get_output_embeddings().weight[32:58].float()

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        found, tokens = {}, 0
        for name, fields in questions.items():
            goal = dumps(fields.get("instructions") or "") if fields.get("instructions") is not None else ""
            lines = [
                f'{letter}. Decision "{json.dumps(option if text is None else dumps(text), ensure_ascii=False)[1:-1]}"'
                " -> select"
                for letter, (option, text) in zip(
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZ", fields["criteria"].items(), strict=False
                )
            ]
            user = (
                (f"Goal: {goal}\n\n" if goal else "")
                + "App: Cua Driver\nTask family: closed-candidate decision\n\nAccessibility tree:\n"
                + f"{dumps(state)}\n\nOptions:\n"
                + "\n".join(lines)
                + "\n\nAnswer with a single letter."
            )
            row = self._text.ids(
                f"<|im_start|>system\n{CUA_S1}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n"
                "<|im_start|>assistant\n<think>\n"
            )
            tokens += len(row)
            logits = self._letters[: len(lines)] @ self._text.states(row)[-1]
            found[name] = softmax(logits.tolist())
        return Expected(found, tokens)


def cua_s1(folder: Path) -> Made:
    tiny_cua_s1.write_base(folder, seed=21)
    tiny_cua_s1.write_adapter(folder / "text", folder, seed=22)
    return Made(folder, {"device": "cpu"}, CuaS1(folder))


# open-jev


class OpenJev:
    """One chat per candidate, read by a head with one output."""

    def __init__(self, folder: Path) -> None:
        import torch

        model = merged(qwen("Qwen3_5TextModel", folder / "base", "bfloat16"), folder / "adapter", safe=True)
        self._text = Text(model, folder / "base" / "tokenizer.json")
        head = torch.load(folder / "head.pt", weights_only=True)
        self._weight, self._bias = head["weight"][0].double(), float(head["bias"][0])

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        found, tokens = {}, 0
        for name, fields in questions.items():
            asked, scores = dumps(fields["instructions"], sort_keys=True), []
            for middle in self._candidates(asked, fields):
                prompt = f"Context:\n{dumps(state, sort_keys=True)}\n\nQuestion: {middle} Answer Yes or No."
                row = self._text.ids(
                    f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
                )
                tokens += len(row)
                scores.append(float(self._text.states(row)[-1].double() @ self._weight) + self._bias)
            values = [0.0, *scores] if fields["type"] == "noul" else scores
            found[name] = softmax(values, tiny_open_jev.TEMPERATURE)
        return Expected(found, tokens)

    def _candidates(self, asked: str, fields: Mapping[str, Any]) -> list[str]:
        criteria = fields.get("criteria")
        if fields["type"] == "noul":
            if criteria is not None:
                yes, no = (dumps(criteria[side], sort_keys=True) for side in ("true", "false"))
                asked += f"\nYes means: {yes}\nNo means: {no}"
            return [f"{asked}\nIs the answer to this question yes?"]
        if fields["type"] == "choice":
            options = [
                option if text is None else f"{option}: {dumps(text, sort_keys=True)}"
                for option, text in criteria.items()
            ]
        else:
            options = [dumps(level, sort_keys=True) for level in criteria]
        return [f"{asked}\nProposed answer: {option}\nIs this proposed answer correct?" for option in options]


def open_jev(folder: Path) -> Made:
    tiny_open_jev.write_base(folder / "base", seed=23)
    tiny_open_jev.write_lora(folder, seed=24)
    options = {"device": "cpu", "unreleased": True, "base": str(folder / "base")}
    return Made(folder, options, OpenJev(folder))


# kev


class Kev:
    """One row per question, between rarely used control tokens; its end points at the ends of its options."""

    def __init__(self, folder: Path) -> None:
        import torch

        # In float32, in which it is served here: the sum is rounded to the dtype that the model computes in.
        model = merged(qwen("Qwen3_5TextModel", folder / "base", "float32"), folder, safe=False)
        self._text = Text(model, folder / "base" / "tokenizer.json")
        self._saved = torch.load(folder / "head.pt", weights_only=True)

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        head, found = self._saved["head"], {}
        start = [*self._mark("<|fim_prefix|>"), *self._part("\n".join(_lines(state)))]
        tokens = len(start)
        for name, fields in questions.items():
            row = [*start, *self._mark("<|fim_middle|>"), *self._part("\n".join(_lines(fields["instructions"])))]
            ends = []
            for option in _kev_options(fields):
                row += [*self._mark("<|box_start|>"), *self._part(option), *self._mark("<|box_end|>")]
                ends.append(len(row) - 1)
            row += self._mark("<|fim_suffix|>")
            tokens += len(row) - len(start)
            states = self._text.states(row)
            query = head["q.weight"] @ states[-1] + head["q.bias"]
            keys = states[ends] @ head["k.weight"].T + head["k.bias"]
            logits = (keys @ query) / self._saved["head_dim"] ** 0.5
            found[name] = softmax(logits.tolist(), self._saved["temperature"])
        return Expected(found, tokens)

    def _mark(self, text: str) -> list[int]:
        return self._text.ids(text)

    def _part(self, text: str) -> list[int]:
        import re

        return self._text.ids(re.sub(r"<\|([A-Za-z0-9_]+)\|>", "<¦\\1¦>", text))


def _lines(value: Any) -> list[str]:
    """The lines of a value, without margins."""
    if isinstance(value, dict):
        lines: list[str] = []
        for key, inner in value.items():
            below = _lines(inner)
            if isinstance(inner, (dict, list)):
                lines += [f"{key}:", *(_indented(below) if below else [""])]
            else:
                lines.append(f"{key}: {below[0]}")
        return lines
    if isinstance(value, list):
        lines = []
        for inner in value:
            first, *rest = _lines(inner) or [""]
            lines += [f"- {first.lstrip() if isinstance(inner, str) else first}", *_indented(rest)]
        return lines
    return ["" if value is None else str(value)]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _kev_options(fields: Mapping[str, Any]) -> list[str]:
    criteria = fields.get("criteria") or {}
    if fields["type"] == "score":
        return ["\n".join(_lines(level)) for level in criteria]
    pairs = (
        [("no", criteria.get("false")), ("yes", criteria.get("true"))]
        if fields["type"] == "noul"
        else list(criteria.items())
    )
    return [name if text in (None, "") else f"{name}: " + "\n".join(_lines(text)) for name, text in pairs]


def kev(folder: Path) -> Made:
    tiny_kev.write(folder, seed=25)
    return Made(folder, {"device": "cpu", "base": str(folder / "base")}, Kev(folder))


# nimble


class Nimble:
    """All questions in each prompt, read at the output rows of the codes."""

    def __init__(self, folder: Path) -> None:
        from tests.unit.nimble.reference import Reference

        self._reference = Reference(folder, folder / "base")

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        from tests.unit.nimble.reference import prompts

        reference = self._reference
        found = zip(questions, reference.logits(state, questions), strict=True)
        tokens = sum([len(reference.ids(prompt)) for prompt in prompts(state, questions, reference.codes)])
        return Expected({name: softmax(logits) for name, logits in found}, tokens)


def nimble(folder: Path) -> Made:
    tiny_nimble.write(folder, seed=26)
    options = {"device": "cpu", "base": str(folder / "base"), "max_length": 32_768}
    return Made(folder, options, Nimble(folder))


# embedding


class Embedding:
    """Means of the last layer, compared by cosine, all texts in one padded batch."""

    SCALE = 20.0

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers
        from tokenizers import Tokenizer

        self._model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(tiny_embedding.MAX_SEQ_LENGTH)

    def answer(self, state: Any, questions: dict[str, Any]) -> Expected:
        texts, parts = [dumps(state)], {}
        for name, fields in questions.items():
            own = self._texts(fields)
            parts[name] = (len(texts), len(own))
            texts += own
        rows = [self._tokenizer.encode(text).ids for text in texts]
        cosines = self._cosines(rows)
        found = {
            name: softmax([self.SCALE * value for value in cosines[at : at + n]]) for name, (at, n) in parts.items()
        }
        return Expected(found, sum(map(len, rows)))

    def _texts(self, fields: Mapping[str, Any]) -> list[str]:
        criteria = fields["criteria"]
        if fields["type"] == "noul":
            return [dumps(criteria["false"]), dumps(criteria["true"])]
        if fields["type"] == "score":
            return [dumps(level) for level in criteria]
        return [name if text is None else f"{name}: {dumps(text)}" for name, text in criteria.items()]

    def _cosines(self, rows: list[list[int]]) -> list[float]:
        import torch

        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in rows])
        with torch.no_grad():
            states = self._model(input_ids=tokens, attention_mask=mask).last_hidden_state
        means = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        vectors = torch.nn.functional.normalize(means, dim=1)
        values: list[float] = (vectors @ vectors[0]).tolist()
        return values


def embedding(folder: Path) -> Made:
    tiny_embedding.write(folder, seed=27)
    return Made(folder, {"truncate": True, "scale": Embedding.SCALE}, Embedding(folder))


CONTRACT = "the contract written once more, with transformers and PEFT"

SUBJECTS = (
    Subject("cua-s1", "cua-s1", CONTRACT, Shape(kinds=("choice",), most_options=26, null_instructions=True), cua_s1),
    Subject("open-jev", "open-jev", CONTRACT, Shape(sides="both or none", most_options=20), open_jev),
    Subject("kev", "kev", CONTRACT, Shape(), kev),
    Subject("nimble", "nimble", CONTRACT, Shape(), nimble),
    Subject("embedding", "embedding", "its rules written once more, with transformers", Shape(sides="both"), embedding),
)
