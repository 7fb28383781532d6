"""pydantic-ai: an agent on the System One model class, with and without /v1 in the address, and its error."""

import sys
from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider

url = sys.argv[1]


class Ticket(BaseModel):
    """What to find out about a message."""

    team: Literal["billing", "bug"]
    refund: bool


for address in (url, f"{url}/v1"):
    model = SystemOneModel("sparrow", provider=SystemOneProvider(base_url=address))
    answered = Agent(model, output_type=Ticket).run_sync("I was charged twice")
    assert answered.output.team in ("billing", "bug")
    assert answered.usage.input_tokens > 0
try:
    Agent(SystemOneModel("gpt", provider=SystemOneProvider(base_url=url)), output_type=Ticket).run_sync("x")
except ModelHTTPError as error:
    assert error.status_code == 400
    assert "Unknown model" in str(error.body)
else:
    raise AssertionError("not refused")
