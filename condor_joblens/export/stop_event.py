"""The word that something ends, for threads that sleep until then."""

from __future__ import annotations

from condor_joblens.shm._shm import ffi, lib


class StopEvent:
    """What threading.Event is, but its seconds are those of the clock that nobody sets.

    threading's are so from Python 3.11 on; before, whoever waits while the wall clock goes back by an hour, waits an
    hour more.
    """

    def __init__(self) -> None:
        self._word = ffi.new("struct joblens_header *")  # for its futex

    def set(self) -> None:
        """Wakes all who wait, and whoever will."""
        lib.wake_readers(self._word)

    def is_set(self) -> bool:
        """Whether it has come to that."""
        return bool(lib.joblens_wake_word(self._word))

    def wait(self, seconds: float) -> bool:
        """Sleeps until it is set, for so long at most, or a little less; whether it is."""
        lib.joblens_wait(self._word, 0, max(0.0, seconds))
        return self.is_set()
