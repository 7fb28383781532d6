"""What the exit status of each process means: the last message it can send.

The supervisor reads a host's status to decide whether a restart can help. A status outside these tables
(a signal, 1 for an uncaught exception) is a crash and is restarted within the budget.
"""

from __future__ import annotations

import enum


class HostExit(enum.IntEnum):
    """Exit statuses of an executor host and of the front."""

    CLEAN = 0
    """Asked to stop, drained, gone."""
    USAGE = 2
    """Wrong arguments: a bug of its launcher."""
    CONFIGURATION = 64
    """The checkpoint or the configuration is wrong. Starting again gives the same, so it is not retried."""
    LOAD_FAILED = 65
    """Loading failed for a reason that may pass (memory, a file system)."""
    WARM_UP_FAILED = 66
    """Loaded, but the first real decision failed."""
    RETIRED = 67
    """A fatal execution failure was reported and the host ended itself."""
    PARENT_DIED = 68
    """The guard found the supervisor gone."""
    LOST = 69
    """A remote host and its server have lost each other; either says so of the other."""
    REFUSED = 70
    """A remote host could not dial in, or was sent away."""


class ServeExit(enum.IntEnum):
    """Exit statuses of `framehost serve`."""

    CLEAN = 0
    """A requested stop, everything drained in time."""
    FAILED = 1
    """An error of framehost itself."""
    CONFIGURATION = 2
    """The configuration or the command line is wrong; the message names the file, the line and the key."""
    PORT_IN_USE = 3
    """Another process, ours or not, has the port; the message says which."""
    MODEL_FAILED = 4
    """A model could not be started, or its restart budget is spent and no other model serves."""
    FRONT_FAILED = 5
    """The frontend's restart budget is spent."""
    NOT_DRAINED = 6
    """A requested stop, but work was still running when the drain budget ended."""
    INTERRUPTED = 130
    """A second signal asked for an immediate stop."""
