"""The `framehost` command's first code: makes sure that what it is about to import is framehost.

Our top-level packages have common names (`protocol`, `frontend`, `supervisor`), so framehost is installed as
an application in an environment of its own. Where it is not, another distribution may shadow one of them, and
the error would otherwise be an ImportError from the middle of foreign code.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path

from executor_host.supervision import output, stop_signals

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "supervisor"
OURS = (PROGRAM, "protocol", "frontend")

STDERR = 2

EXIT_CONFIGURATION = 2
"""`ServeExit.CONFIGURATION`, which cannot be imported before we know whose `protocol` it would come from."""

EXIT_INTERRUPTED = 130
"""`ServeExit.INTERRUPTED`."""

EXIT_OUTPUT = 74
"""Standard output cannot be written: EX_IOERR of sysexits.h, which no command means anything else by."""


def shadowed() -> str | None:
    """A sentence naming the first of our modules that would come from somewhere else; None when all is well."""
    for name in OURS:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        expected = (ROOT / f"{name}.py", ROOT / name / "__init__.py")
        if origin not in expected:
            return (
                f"the module {name!r} that Python finds is not framehost's: it is {origin or 'missing'}, "
                f"framehost is in {ROOT}. Install framehost in an environment of its own "
                "(pipx, uv tool, or a new venv), and check PYTHONPATH"
            )
    return None


def main() -> int:
    """Check, then hand over to the supervisor's command line. A Ctrl-C that no command takes, because its modules are
    still being imported, ends quietly, and so does what prints to a reader that has read enough (`| head`). Where
    standard output cannot be written, one line says why."""
    stdout = output.install()
    try:
        try:
            return _run()
        finally:
            if stdout is not None:  # it may have been closed before we began
                sys.stdout.flush()  # now, while it can be told
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        output.give_up()
        return 1
    except OSError as error:
        if stdout is None or stdout.failed is not error:
            raise  # it is about something else
        output.give_up()
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(f"framehost: standard output cannot be written: {error.strerror}", file=sys.stderr)
        return EXIT_OUTPUT


def open_standard_descriptors() -> None:
    """Put /dev/null where 0, 1 or 2 is closed (`framehost serve >&-`, some supervisors of services): a socket of ours
    that got the number would be read and written in place of the standard streams, in every child."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > STDERR:
            os.close(descriptor)
            return
        os.set_inheritable(descriptor, True)


def _run() -> int:
    open_standard_descriptors()
    if sys.argv[1:2] == ["serve"]:
        stop_signals.OURS.install()  # the rest of the imports takes long enough for a signal to come
    problem = shadowed()
    if problem is not None:
        print(f"framehost: {problem}", file=sys.stderr)
        return EXIT_CONFIGURATION
    if sys.argv[1:] == ["--version"]:
        from importlib import metadata  # slow, and no other command needs it

        print(f"framehost {metadata.version('framehost')}")
        return 0
    # By name, as Python's own scripts start a program: this room knows which one it is, and not what is in it.
    status: int = importlib.import_module(PROGRAM).main()
    return status


if __name__ == "__main__":
    sys.exit(main())
