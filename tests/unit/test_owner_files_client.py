"""joblensd's end of the process that works in jobs' folders, if that is not our program any more."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from condor_joblens.common import descriptors
from condor_joblens.common.own_process import HelperLost
from condor_joblens.owner_files import client as client_module
from condor_joblens.owner_files.client import Helper
from condor_joblens.owner_files.operations import Ad, AdWrite


@pytest.fixture
def theirs() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(10)
    theirs.settimeout(10)
    helper = object.__new__(Helper)
    helper._channel, helper._memory = ours, os.memfd_create("ads")
    os.ftruncate(helper._memory, client_module.messages.MEMORY_BYTES)
    helper._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    HELPERS[theirs] = helper
    yield theirs
    theirs.close()
    helper._process.kill()
    helper.stop()


HELPERS: dict[socket.socket, Helper] = {}


def answered(theirs: socket.socket, packet: bytes, given: list[int], call: Callable[[Helper], object]) -> object:
    """What a call comes to that gets this answer."""

    def answer() -> None:
        for descriptor in descriptors.receive(theirs, 8192, 253)[1]:
            os.close(descriptor)
        descriptors.send(theirs, packet, given)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return call(HELPERS[theirs])
    finally:
        thread.join()


CALLS: dict[str, Callable[[Helper], object]] = {
    "open_folders": lambda helper: helper.open_folders("/x", 1),
    "open_ad": lambda helper: helper.open_ad(0, Ad.JOB),
    "write_ads": lambda helper: helper.write_ads([AdWrite(0, "[]", False)]),
    "versions": lambda helper: helper.versions([0]),
    "watch": lambda helper: helper.watch(0, 0),
    "process_io": lambda helper: helper.process_io(1),
    "open_log": lambda helper: helper.open_log("/x"),
}


@pytest.mark.parametrize("name", CALLS)
def test_descriptors_that_nobody_asked_for_are_closed(theirs: socket.socket, name: str) -> None:
    gc.collect()  # what other tests have left open, and what would be closed at any time
    before = set(os.listdir("/proc/self/fd"))
    with open("/dev/null") as null, pytest.raises(HelperLost):
        answered(theirs, b"\0", [null.fileno()] * 3, CALLS[name])
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name, packet", [
    ("write_ads", b"\0xyz"), ("write_ads", b"\0"), ("versions", b"\0" + b"\xff" * 18), ("versions", b"\0" + b"\0" * 48),
    ("watch", b"\0-1"), ("watch", b"\0" + b"9" * 5000), ("open_log", b"\0"),
])  # fmt: skip
def test_an_answer_that_makes_no_sense_is_the_end_of_it(theirs: socket.socket, name: str, packet: bytes) -> None:
    with pytest.raises(HelperLost):
        answered(theirs, packet, [], CALLS[name])


def test_an_ad_that_is_no_file_is_not_read(theirs: socket.socket, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ad")
    fifo = os.open(tmp_path / "ad", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(HelperLost):
        answered(theirs, b"\0", [fifo], CALLS["open_ad"])
    os.close(fifo)


def test_no_answer_is_waited_for_for_ever(theirs: socket.socket) -> None:
    HELPERS[theirs]._channel.settimeout(0.05)
    with pytest.raises(HelperLost, match="hangs"):
        HELPERS[theirs].process_io(1)
