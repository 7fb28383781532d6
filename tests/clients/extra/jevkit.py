"""jevkit: its address is a constant of the module; its choices send `options`, which is told and not guessed."""

import sys

import jevkit.client

jevkit.client.API = f"{sys.argv[1]}/api/alpha/decisions"
client = jevkit.client.Client("any", model="sparrow")
refund = client.noul("refund", "Refund?", {"true": "money back", "false": "no"}, state="I was charged twice")
assert 0 <= refund <= 1
try:
    client.choice("team", "Which team?", ["billing", "bug"], state="I was charged twice")
except RuntimeError as error:
    assert "HTTP 400" in str(error), error
    assert "`options` is not read" in str(error), error
else:
    raise AssertionError("not refused")
