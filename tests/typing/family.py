"""What a family's entry point may hold, and what the type checker tells it."""

from __future__ import annotations

from typing import assert_type

from protocol.families import Family, find
from protocol.options import Option, OptionTable

FAMILY = Family(
    name="parrot",
    processor="parrot_front:ParrotProcessor",
    executor="parrot_host:ParrotExecutor",
    payload="protocol.payloads:TextRequest",
    options=OptionTable((Option("words", int, 100, "how many it knows"),)),
    default_max_requests=None,
    marks=("*.parrot",),
)
assert_type(FAMILY.default_max_cost, int | None)
assert_type(find("sparrow"), Family)

Family(name="parrot", processor="a:b", executor="c:d")  # expect: call-arg
Family(name="parrot", processor=object, executor="c:d", payload="e:f")  # expect: arg-type
Family(name="parrot", processor="a:b", executor="c:d", payload="e:f", marks=["*"])  # expect: arg-type
Family(name="parrot", processor="a:b", executor="c:d", payload="e:f", options={"words": 1})  # expect: arg-type
FAMILY.name = "raven"  # expect: misc
find(FAMILY)  # expect: arg-type
