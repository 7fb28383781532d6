"""A model family that does what a test tells it to. It is found only when this folder is on PYTHONPATH.

It is registered as any third party's family is: by the entry point in the .dist-info folder beside this file.
"""

from protocol.families import Family

FAMILY = Family(
    name="toy",
    processor="toy_front:ToyProcessor",
    executor="toy_host:ToyExecutor",
    payload="protocol.payloads:TextRequest",
)

FRAIL = Family(
    name="frail",
    processor="toy_front:ToyProcessor",
    executor="toy_host:ToyExecutor",
    payload="protocol.payloads:TextRequest",
    retire_on_error=True,
)
"""The same, with the rule that any execution error retires the host."""
