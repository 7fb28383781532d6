"""langchain-typesafe: its classifier, and its error."""

import sys

from langchain_typesafe import Choice, Noul, Score, TypeSafeClassifier
from langchain_typesafe.client import TypeSafeBadRequestError

url = sys.argv[1]
asked = {
    "state": "I was charged twice",
    "questions": {
        "team": Choice(instructions="Which team?", criteria={"billing": "a charge", "bug": "broken"}),
        "refund": Noul(instructions="Refund?"),
        "harm": Score(instructions="How large?", criteria=["small", "large"]),
    },
}
answered = TypeSafeClassifier(api_key="any", base_url=url).invoke(asked)
assert answered.choices["team"].choice in ("billing", "bug")
assert 0 <= answered.nouls["refund"].noul <= 1
assert 0 <= answered.scores["harm"].score <= 1
try:
    TypeSafeClassifier(api_key="any", base_url=url, model="gpt").invoke(asked)
except TypeSafeBadRequestError as error:
    assert error.status_code == 400
else:
    raise AssertionError("not refused")
