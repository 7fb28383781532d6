"""openrouter: both of its decision resources, and its exceptions; `decisions` needs the address with every call."""

import sys

from openrouter import OpenRouter, errors
from openrouter.utils import BackoffStrategy, RetryConfig

url = sys.argv[1]
questions = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": {"billing": "a charge", "bug": "broken"}},
    "refund": {"type": "noul", "instructions": "Refund?", "criteria": {"true": "money back", "false": "no"}},
    "harm": {"type": "score", "instructions": "How large?", "criteria": ["small", "large"]},
}
asked = {"model": "typesafe/jev-latest", "state": "I was charged twice", "questions": questions}
# The client's own retries go on for an hour.
retries = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), False)
with OpenRouter(api_key="any", server_url=f"{url}/api/v1", retry_config=retries) as client:
    for answered in (
        client.system_one.create(**asked),
        client.alpha.decisions.create(**asked, server_url=url),
    ):
        assert answered.model == "sparrow"
        assert answered.answers["team"].choice in ("billing", "bug")
        assert 0 <= answered.answers["refund"].noul <= 1
        assert answered.usage.input_tokens > 0
    options = {str(number): "x" for number in range(256)}
    too_many = {"q": {"type": "choice", "instructions": "?", "criteria": options}}
    for bad in ({**asked, "model": "gpt"}, {**asked, "questions": too_many}):
        try:
            client.system_one.create(**bad)
        except errors.BadRequestResponseError as error:
            assert error.data.error.code == 400
            assert error.data.error.message
        else:
            raise AssertionError("not refused")
