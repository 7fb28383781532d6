"""What the servers of the throughput table are asked, and the models that answer."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks import request
from benchmarks.servers import ROOT

REQUESTS: Final = 16_384
"""Different requests: more than the fastest server here answers in a turn."""

WORDS: Final = "order refund charge login error broken cannot money twice small large none invoice late again".split()  # noqa: SIM905
SENTENCE: Final = "The customer was charged twice for one order last week and asks for the money back. "
FIRST: Final = json.dumps({name: value for name, value in request.REQUEST.items() if name != "model"}).encode()
"""The request of all benchmarks, without a model's name."""

CHAT: Final[dict[str, Any]] = {
    "hidden_size": 384,
    "intermediate_size": 1152,
    "num_hidden_layers": 8,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "vocab_size": 16_384,
}
"""20.5 million parameters, 6.3 of them embeddings."""

LAYA: Final[dict[str, Any]] = {
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "local_attention": 128,
    "global_attn_every_n_layers": 3,
}
"""The released shape but for the vocabulary, of which few rows are read."""


def fixed() -> list[bytes]:
    """The request of all benchmarks."""
    return [request.BODY]


def distinct(repeats: float = 0.0) -> list[bytes]:
    """Short states with two questions; the part `repeats` of them has one of eight states, no other has one twice."""
    choose = random.Random(0)
    found = []
    for number in range(REQUESTS):
        again = choose.random() < repeats
        words = random.Random(choose.randrange(8) if again else 10**9 + number).choices(WORDS, k=8)
        found.append(_asked(" ".join(words if again else [*words, str(number)])))
    return found


def mixed() -> list[bytes]:
    """As `distinct`, from 8 to 128 words."""
    choose = random.Random(1)
    states = (
        " ".join([*choose.choices(WORDS, k=choose.choice((8, 16, 32, 64, 128))), str(n)]) for n in range(REQUESTS)
    )
    return [_asked(state) for state in states]


def short() -> list[bytes]:
    """Short states with one yes/no question, all different."""
    return [
        _asked(f"Order {number}: {SENTENCE}", {"refund": {"type": "noul", "instructions": "Is the money asked back?"}})
        for number in range(1024)
    ]


def again(tokens: int) -> list[bytes]:
    """One state of about so many tokens, and another question about it each time."""
    state = SENTENCE * (tokens // 17)
    return [
        _asked(state, {"about": {"type": "noul", "instructions": f"{number}: is the {word} named by the customer?"}})
        for number in range(64)
        for word in WORDS
    ]


def _asked(state: str, questions: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"state": state, "questions": questions or request.REQUEST["questions"]}).encode()


def encoder(folder: Path, *, tiny: bool) -> Path:
    """all-MiniLM-L6-v2, fetched if need be; a random one when it need only work."""
    sys.path.insert(0, str(ROOT))
    from tests.helpers import minilm, tiny_embedding

    if not tiny:
        return minilm.fetch_minilm()
    made = tiny_embedding.write(folder / "encoder", max_position_embeddings=512)
    # What the tests' encoder says of itself is shorter than these texts.
    (made / "sentence_bert_config.json").write_text('{"max_seq_length": 512, "do_lower_case": false}')
    return made


def laya(folder: Path, *, tiny: bool) -> Path:
    """A Laya checkpoint with random weights."""
    from tests.helpers import tiny_laya

    return tiny_laya.write(folder / "laya", **({} if tiny else {"sizes": LAYA}))


def chat(folder: Path, *, tiny: bool) -> Path:
    """A causal chat model with random weights."""
    from tests.helpers import tiny_transformers

    return tiny_transformers.write_chat(folder / "chat", **({} if tiny else CHAT))
