"""joblensd's end of the process that loads programs (loader_process.py): a Maker that asks that one."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Optional

from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.process_starter import Process, ProcessStarter
from condor_joblens.tracer import loader_messages as messages
from condor_joblens.tracer.loader import Given, Loaded, Part
from condor_joblens.tracer.makers import ROWS, Wanted

MODULE = "condor_joblens.tracer.loader_process"

LOAD_SECONDS = 60.0
"""Until then the kernel has checked all programs of a sensor, also on a machine that is busy or emulated."""

SINGLE_SECONDS = 5.0
"""The same for an array or a clock, for which joblensd waits with all else."""

_LOOK_EVERY = 0.1


class NotLoaded(JobLensError):
    """What loads programs has failed at it, and not because the kernel refuses them: another try can succeed."""


class LoaderProcess:
    """Makes what this process has no right to make. Loading may be asked for by any thread, all else by one."""

    def __init__(self, starter: ProcessStarter, slots: int) -> None:
        """For a tracer with so many slots; `starter` runs MODULE."""
        self._starter, self._slots = starter, slots
        self._singles: Optional[tuple[socket.socket, Process]] = None

    def begin(self) -> int:
        """Its child for arrays and clocks is there from now on; its process id, 0 if there is none."""
        made = self.array(ROWS, 1)
        if made < 0 or self._singles is None:
            return 0
        os.close(made)
        return self._singles[1].pid

    def load(self, wanted: Wanted, _parts: Iterable[Part], given: Given, is_wanted: Callable[[], bool]) -> Loaded:
        """As a Maker does. Raises NotLoaded if it is to be tried again."""
        asked = messages.request(messages.Asked(self._slots, wanted), given.shared)
        try:
            channel, process = self._connect(*asked)
        except OSError as error:
            raise NotLoaded(f"what loads programs can't be asked: {error.strerror}") from None
        with channel:
            packet, found = _answer(channel, process, is_wanted)
        if not packet:
            raise NotLoaded("what loads programs has failed")
        try:
            return messages.loaded_of(packet, found)
        except (ValueError, RecursionError) as error:
            for descriptor in found:
                os.close(descriptor)
            raise NotLoaded(f"what loads programs says what makes no sense: {error}") from None

    def array(self, kind: int, entries: int) -> int:
        """As a Maker does."""
        return self._single(messages.ARRAY, kind, entries)

    def clock(self, cpu: int, hz: int) -> int:
        """As a Maker does."""
        return self._single(messages.CLOCK, cpu, hz)

    def _single(self, what: int, first: int, second: int) -> int:
        """Asks twice if its child has ended in between."""
        for _ in range(2):
            try:
                if self._singles is None:
                    self._singles = self._connect(messages.SINGLE, [])
                    self._singles[0].settimeout(SINGLE_SECONDS)
                channel, _process = self._singles
                channel.send(messages.SINGLE_OF.pack(what, first, second))
                packet, found = descriptors.receive(channel, messages.MADE_OF.size, 1)
                if packet:
                    return found[0] if found else int(*messages.MADE_OF.unpack(packet))
            except (OSError, ValueError):  # it has ended, or hangs
                pass
            self.close()
        return -errno.EIO

    def _connect(self, packet: bytes, given: list[int]) -> tuple[socket.socket, Process]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = self._starter.start(theirs)
            descriptors.send(ours, packet, given)
        except OSError:
            ours.close()
            raise
        return ours, process

    def close(self) -> None:
        """Ends its child for arrays and clocks; the next one has another."""
        if self._singles is not None:
            channel, process = self._singles
            self._singles = None
            channel.close()
            process.kill()


def _answer(channel: socket.socket, process: Process, is_wanted: Callable[[], bool]) -> tuple[bytes, list[int]]:
    """What it says, with descriptors; empty if it has ended or hangs. Raises JobLensError if nobody wants it."""
    channel.settimeout(_LOOK_EVERY)
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        try:
            return descriptors.receive(channel, messages.MOST_ANSWER_BYTES, messages.MOST_DESCRIPTORS)
        except socket.timeout:
            if not is_wanted():
                process.kill()
                raise JobLensError("loading was given up") from None
        except (OSError, ValueError):
            break
    process.kill()
    return b"", []
