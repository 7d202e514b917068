"""The process that loads programs, and makes maps and clocks: it alone keeps CAP_BPF and CAP_PERFMON.

joblensd starts it while it still is root: `python -m condor_joblens.tracer.loader_process UID GID -`, with a socket as
descriptor 0. It forks a child for each connection. That either loads one sensor and ends, or makes arrays and clocks
until joblensd closes the connection. What they make is handed over, and stays joblensd's.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys

from condor_joblens.common import descriptors, landlock, own_process, privilege, seccomp
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.starter import SERVES, Starter, serve
from condor_joblens.tracer import loader_messages as messages
from condor_joblens.tracer.cpus import possible_cpus
from condor_joblens.tracer.makers import OwnMaker
from condor_joblens.tracer.sensor import Sensor
from condor_joblens.tracer.sensors import REQUEST_SENSORS, SENSORS, Basic, Failing, NodeSensor, Recorder

CAPABILITIES = ("CAP_BPF", "CAP_PERFMON")

_CALLS = (
    *SERVES,
    # programs, maps and clocks of the kernel
    "bpf", "ftruncate", "memfd_create", "mbind", "perf_event_open", "pwrite64", "sched_setaffinity",
    # children that are ended
    "kill",
)  # fmt: skip


class MakerStarter(Starter):
    """Forks children that make what takes these capabilities."""

    def __init__(self, channel: socket.socket) -> None:
        """On the socket of joblensd."""
        super().__init__(channel, [])

    def confine(self) -> int | None:
        """It starts no program, connects to nobody, changes no file, and opens files to read alone."""
        landlock.allow_only(landlock.CHANGE, {})
        arguments: dict[str, seccomp.Argument] = {
            "clone": seccomp.NO_NAMESPACE,
            # what Python asks of descriptors that it opens: TCGETS, FIONBIO, FIONCLEX, FIOCLEX; and of clocks
            "ioctl": seccomp.OneOf(1, 0x5401, 0x5421, 0x5450, 0x5451, 0x2400, 0x2401, 0x40042408),
            "openat": seccomp.ONLY_TO_READ,
            "prlimit64": seccomp.OneOf(0, 0),
            "socketpair": seccomp.OneOf(0, socket.AF_UNIX),  # a sensor has one
        }
        return seccomp.allow_told(_CALLS, arguments, ("socket", "connect", "bind"))[1]

    def _run(self, channel: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.dup2(channel, 0)
            os.closerange(3, 256)
            privilege.end_with_parent(signal.SIGKILL)
            # the kernel gives up checking a program for which a signal waits
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            answer(socket.socket(fileno=0))
            code = 0
        finally:
            os._exit(code)


def answer(channel: socket.socket) -> None:
    """Does what one connection asks for. Raises ValueError for what joblensd does not ask, and OSError."""
    packet, given = descriptors.receive(channel, messages.MOST_REQUEST_BYTES, messages.MOST_DESCRIPTORS)
    if packet != messages.SINGLE:
        if packet:
            _load(channel, *messages.asked_of(packet, given))
        return
    while packet := channel.recv(messages.SINGLE_OF.size + 1):
        if len(packet) != messages.SINGLE_OF.size:
            raise ValueError("a packet of another size")
        made = _made(*messages.SINGLE_OF.unpack(packet))
        descriptors.send(channel, messages.MADE_OF.pack(min(0, made)), [made] if made >= 0 else [])
        if made >= 0:
            os.close(made)


def _made(what: int, first: int, second: int) -> int:
    """An array, or a clock: its descriptor, or -errno."""
    if what == messages.ARRAY and 0 < second <= messages.MOST_ENTRIES.get(first, 0):
        return OwnMaker().array(first, second)
    if what == messages.CLOCK and first < possible_cpus() and 0 < second <= messages.MOST_HZ:
        return OwnMaker().clock(first, second)
    return -errno.EINVAL


def _load(channel: socket.socket, asked: messages.Asked, shared: dict[str, int]) -> None:
    try:
        loaded = _sensor(asked).load(shared)
        packet, given = messages.answer(loaded, loaded.attach_where_named())
    except JobLensError as error:
        channel.send(messages.refusal(str(error)))
    else:
        descriptors.send(channel, packet, given)


def _sensor(asked: messages.Asked) -> Sensor:
    """As joblensd has it, which alone counts with it. Raises ValueError if there is none of this name."""
    basic, wanted = Basic(asked.slots, possible_cpus(), 0), asked.wanted
    for closer in SENSORS:
        if closer.name == wanted.sensor:
            sensor = closer(basic, wanted.jobs)
            if isinstance(sensor, Recorder):
                sensor.bytes_a_job = wanted.job_bytes
            return sensor
    of_node: tuple[type[NodeSensor], ...] = (*REQUEST_SENSORS, Failing)
    for kind in of_node:
        if kind.name == wanted.sensor:
            return kind(basic)
    raise ValueError("no such sensor")


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid = int(arguments[0]), int(arguments[1])
    sys.dont_write_bytecode = True
    privilege.become_with(uid, gid, CAPABILITIES)
    gc.collect()
    gc.freeze()
    return serve(MakerStarter)


if __name__ == "__main__":
    own_process.run(main)
