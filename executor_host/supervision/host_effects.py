"""What the life of a host slot does to the world: the seam between `host_life.py` and `host_slot.py`."""

from __future__ import annotations

from typing import Protocol

from protocol.messages import Message


class Effects(Protocol):
    """What a slot does to the world. None of these calls the slot back before it returns."""

    def launch(self, incarnation: str) -> None:
        """Make a process; `launched`, or `ended` without one, follows."""

    def abandon(self) -> None:
        """Wait no longer for a process that another machine would start; `ended` follows."""

    def tell(self, message: Message) -> None:
        """Send to the process, on its control lane."""

    def terminate(self) -> None:
        """Ask the process to end by a signal."""

    def take_stacks(self) -> None:
        """Have the process write its stacks; `stacks_taken` follows."""

    def kill(self) -> None:
        """End the process; `ended` follows."""

    def wait(self, seconds: float) -> None:
        """`waited` follows, unless `wait_no_more` comes first."""

    def wait_no_more(self) -> None:
        """Forget the wait."""

    def tell_front(self, message: Message) -> None:
        """Send to the front, if there is one."""

    def ready(self) -> None:
        """The host is ready, and the front has accepted it."""

    def warm(self) -> None:
        """A spare is ready, and the front knows nothing of it."""

    def died(self, how: str) -> None:
        """A process has ended without being asked to."""

    def changed(self) -> None:
        """A process has ended, and what follows is decided."""

    def rests(self) -> None:
        """Nothing runs here, and nothing will by itself."""
