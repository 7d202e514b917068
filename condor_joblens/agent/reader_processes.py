"""Processes without any right that make artifacts of recorded data (tracing/recorder_reader.py), a recording each."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from condor_joblens.agent.reader_answer import ReaderAnswer
from condor_joblens.common import descriptors
from condor_joblens.common.process_starter import Process, ProcessStarter

Answered = Callable[[bytes, str], None]
"""Called once with an artifact's content; or with none, and why."""


@dataclass(eq=False)
class _Reading:
    channel: socket.socket
    process: Process
    answer: ReaderAnswer
    answered: Answered
    until: float  # CLOCK_MONOTONIC


class ReaderProcesses:
    """So many of them at a time, each for so long."""

    def __init__(self, most: int, patience: float) -> None:
        """`patience` in seconds. None begins until `open`."""
        self._most, self._patience = most, patience
        self._readings: list[_Reading] = []
        self._starter: ProcessStarter | None = None
        self._selector: selectors.BaseSelector | None = None

    def open(self, starter: ProcessStarter | None, selector: selectors.BaseSelector) -> None:
        """From now on they begin. No `starter`: they can't."""
        self._starter, self._selector = starter, selector

    @property
    def can_be_had(self) -> bool:
        return self._starter is not None

    @property
    def has_place(self) -> bool:
        """Whether one more can begin now."""
        return self._starter is not None and len(self._readings) < self._most

    def begin(
        self,
        request: bytes,
        recorded: Sequence[int],
        most: int,
        now: float,
        answered: Answered,
        charge: Callable[[float], None] = lambda _: None,
    ) -> None:
        """One reads the files that the descriptors `recorded` are of, and answers with `most` bytes at most.

        `now` is time.monotonic(). `charge` is called at its end, with the seconds of CPU that it has used. Raises
        OSError if it can't begin; `answered` is not called then.
        """
        assert self._starter is not None and self._selector is not None
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.setblocking(False)
        try:
            with theirs:
                process = self._starter.start(theirs, charge=charge)
            with contextlib.suppress(ConnectionError):  # it has ended at once, which is heard as any end
                descriptors.send(channel, request, recorded)
        except OSError:
            channel.close()
            raise
        reading = _Reading(channel, process, ReaderAnswer(channel, most), answered, now + self._patience)
        self._readings.append(reading)
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._receive(reading))

    def tick(self, now: float) -> None:
        """Ends those that take too long; `now` is time.monotonic()."""
        for reading in [each for each in self._readings if now >= each.until]:
            reading.process.kill()
            self._end(reading, b"", "what reads it takes too long")

    def _receive(self, reading: _Reading) -> None:
        if reading not in self._readings:  # it was ended for another event of the same moment
            return
        made = reading.answer.receive()
        if made is not None:
            self._end(reading, made, "" if made else "what reads it has failed")

    def _end(self, reading: _Reading, made: bytes, why: str) -> None:
        assert self._selector is not None
        self._readings.remove(reading)
        self._selector.unregister(reading.channel)
        reading.channel.close()
        reading.answered(made, why)
