"""A model family that does what a test tells it to. It is found only when this folder is on PYTHONPATH.

It is registered as any third party's family is: by the entry point in the .dist-info folder beside this file.
"""

from dataclasses import replace

from protocol.families import Family
from protocol.options import Option, OptionTable

OPTIONS = OptionTable(
    (
        Option("fail", str, "", "how loading fails, see toy_host", side="both"),
        Option("gate", str, "", "a file that has to exist before loading goes on"),
        Option("identity", str, "toy", "what the host calls its model; {pid} is replaced"),
    )
)

FAMILY = Family(
    name="toy",
    processor="toy_front:ToyProcessor",
    executor="toy_host:ToyExecutor",
    payload="protocol.payloads:TextRequest",
    options=OPTIONS,
)

FRAIL = Family(
    name="frail",
    processor="toy_front:ToyProcessor",
    executor="toy_host:ToyExecutor",
    payload="protocol.payloads:TextRequest",
    options=OPTIONS,
    retire_on_error=True,
)
"""The same, with the rule that any execution error retires the host."""

SHARING = replace(FAMILY, name="sharing", pure=True)
"""The same, which says of itself that equal payloads have equal answers. Who asks it twice does not look at the pid."""

KEEPER = replace(FAMILY, name="keeper", executor="toy_keeper:KeeperExecutor")
"""The same, which keeps what it has read."""
