"""What joblensd tells its reader of samples, without a kernel."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from condor_joblens.agent.profiles import Profiles
from condor_joblens.profiling import reader_messages as messages


class Sensor:
    """Its maps have the same descriptors whenever it is loaded: the kernel gives out the lowest number that is free."""

    ring_bytes, slots, hz = 4096, 4, 99

    def __init__(self, descriptor: int) -> None:
        self.loaded = object()
        self._descriptor = descriptor

    def reader_maps(self) -> tuple[int, int, int]:
        return self._descriptor, self._descriptor, self._descriptor


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def ignore(*_: object) -> None:
    """What nobody asks for here."""


def told(theirs: socket.socket) -> list[int]:
    """The kinds of packets that have come."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(theirs.recv(1000)[0])
    return found


def test_maps_of_a_sensor_that_was_loaded_anew_are_handed_over(channel: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = channel
    sensor: Any = Sensor(ours.fileno())
    with selectors.DefaultSelector() as selector:
        profiles = Profiles(sensor, 1 << 20, None, ignore, ignore, ignore, selector, print)
        profiles._channel = ours
        profiles.begin(1, 0)
        profiles.begin(2, 1)
        assert told(theirs) == [messages.RING, messages.BEGIN, messages.BEGIN]
        for run in (1, 2):
            profiles.end(run)
        sensor.loaded = object()  # after the last job it was taken out
        profiles.begin(3, 0)
        assert told(theirs) == [messages.END, messages.END, messages.RING, messages.BEGIN]
