"""The one request every server here answers, and what counts as an answer to it.

A realistic System One body: a short text, a yes/no question and a choice. Compact on purpose, because the
framework's own cost per request is what is measured; parsing a larger body costs every server the same.
"""

from __future__ import annotations

import json

REQUEST = {
    "model": "jev-latest",
    "state": "Order 447 came today with a broken lid. I want my money back, not a new one, please.",
    "questions": {
        "refund": {"type": "noul", "instructions": "Is the customer asking for a refund?"},
        "team": {
            "type": "choice",
            "instructions": "Which team answers?",
            "criteria": {"returns": "damaged goods", "billing": "charges, invoices"},
        },
    },
}

BODY = json.dumps(REQUEST).encode()

ANSWERS = {
    "refund": {"type": "noul", "noul": 0.5},
    "team": {
        "type": "choice",
        "choice": "returns",
        "probabilities": {"returns": 0.5, "billing": 0.5},
        "confidence": 0.0,
    },
}
"""What the floors put into their answers, so that all answers have about the same size."""


def check(status: int, body: bytes) -> None:
    """Raise `ValueError` unless this is a full answer: a fast wrong server must not win."""
    if status != 200:
        raise ValueError(f"status {status}: {body[:300]!r}")
    answered = json.loads(body)["answers"].keys()
    if answered != ANSWERS.keys():
        raise ValueError(f"answered {sorted(answered)}: {body[:300]!r}")
