"""system-one: its HTTP backend, and its error."""

import sys

from system_one import APIError, Choice, HTTPConfig, Noul, Score, SystemOne

url = sys.argv[1]
questions = {
    "team": Choice(instructions="Which team?", criteria={"billing": "a charge", "bug": "broken"}),
    "refund": Noul(instructions="Refund?"),
    "harm": Score(instructions="How large?", criteria=["small", "large"]),
}
client = SystemOne(HTTPConfig(base_url=url, model="jev-latest", api_key="any"))
answered = client.ask("I was charged twice", questions)
assert answered.answers["team"].choice in ("billing", "bug")
assert 0 <= answered.answers["refund"].noul <= 1
assert 0 <= answered.answers["harm"].score <= 1
try:
    SystemOne(HTTPConfig(base_url=url, model="gpt", api_key="any")).ask("x", questions)
except APIError as error:
    assert error.status == 400
    assert "Unknown model" in error.body
else:
    raise AssertionError("not refused")
