"""One target under atheris, which is libFuzzer for Python: `python -m tests.fuzz.loop TARGET [libFuzzer's flags]`.

Only what is ours is instrumented: coverage of the parsers leads the fuzzer, not that of their libraries.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["frontend", "protocol"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS

name, *flags = sys.argv[1:]
atheris.Setup([sys.argv[0], *flags], TARGETS[name].run)
atheris.Fuzz()
