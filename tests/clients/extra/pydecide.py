"""pydecide: its three hosted backends, each in its dialect, and its error."""

import sys

import decide
from decide.backends.openai_decisions import OpenAIDecisionsBackend
from decide.backends.openrouter import OpenRouterBackend
from decide.backends.typesafe import TypeSafeBackend

url = sys.argv[1]
questions = {
    "team": decide.Choice("Which team?", {"billing": "a charge", "bug": "broken"}),
    "refund": decide.Noul("Refund?"),
    "harm": decide.Score("How large?", ["small", "large"]),
}
for backend, address in (
    (TypeSafeBackend, url),
    (OpenAIDecisionsBackend, f"{url}/v1"),
    (OpenRouterBackend, f"{url}/api"),
):
    with decide.Client([backend("any", base_url=address, model="sparrow")]) as client:
        answered = client.decide("I was charged twice", questions)
        assert answered["team"].choice in ("billing", "bug")
        assert 0 <= answered["refund"].noul <= 1
        assert 0 <= answered["harm"].score <= 1
    with decide.Client([backend("any", base_url=address, model="gpt")]) as client:
        try:
            client.decide("x", questions)
        except decide.AllBackendsFailed as error:
            assert "Unknown model" in str(error.errors), error.errors
        else:
            raise AssertionError("not refused")
