"""Makes anew what is removed of the runtime directory while the server runs.

Cleaners of temporary folders take what has not been touched for days, and the end of a user's session takes everything
under /run/user. A process that is connected stays so; a next host, a next front and the commands need the folders, the
lock and the management socket at their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zmq

from executor_host.supervision.directory import DirectoryError, RuntimeDirectory, socket_is_there
from protocol import addresses


class DirectoryRenewal:
    """Looks after the directories of a server's ports and the socket in the first of them."""

    def __init__(
        self, directories: list[RuntimeDirectory], listen_again: Callable[[str], None], say: Callable[[str, str], None]
    ) -> None:
        """`listen_again`: has the management socket bound at an address once more."""
        self._directories = directories
        self._listen_again = listen_again
        self._say = say
        self._trouble: list[str] = []

    def look(self) -> None:
        """Make anew what is missing, and say so; what cannot be made is said once and tried at every look."""
        made = False
        trouble = []
        for step in self._steps():
            try:
                made = step() or made
            except (DirectoryError, zmq.ZMQError) as error:
                trouble.append(str(error))
        if trouble != self._trouble:
            for text in trouble:
                self._say("framehost", f"something was removed from the runtime directory, and is missed: {text}")
            self._trouble = trouble
        if made and not trouble:
            self._say("framehost", f"something was removed from {self._directories[0].path}; it was made anew")

    def _steps(self) -> Iterator[Callable[[], bool]]:
        for directory in self._directories:
            yield directory.restore
        yield self._bind

    def _bind(self) -> bool:
        address = addresses.management(self._directories[0].launch)
        if socket_is_there(address):
            return False
        self._listen_again(address)
        return True
