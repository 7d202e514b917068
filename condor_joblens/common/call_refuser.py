"""The process that refuses system calls for processes of ours, and tells joblensd which: one line a call in its log.

Each of those processes has a list of the calls that it may make (seccomp.allow_told). For any other the kernel asks
this one, and the caller waits for its answer, which is EPERM always. So nothing of that costs as long as nobody is
refused. It is a process of its own because its descriptors can let any call pass: none of those held by the lists
may have them.

joblensd starts it while it still is root: `python -m condor_joblens.common.call_refuser UID GID`, with a socket as
descriptor 0. It becomes the user UID for good, without capability, and opens, connects and signals nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import select
import socket
import struct

from condor_joblens.common import descriptors, own_process, privilege, seccomp

CHANNEL = 0
READY = b"ready"
ASKER = struct.Struct("<I")
"""A packet from joblensd: the number that it gives a process. The descriptor of its list comes with it."""

REFUSED = struct.Struct("<II")
"""A packet to joblensd: that number, and the number of a system call. Each pair is told once."""

# include/uapi/linux/seccomp.h: struct seccomp_notif, of which the call's number stands at byte 16, and its answer
_NOTIFICATION, _ANSWER = 80, struct.Struct("=QqiI")
_ID, _CALL = struct.Struct("=Q"), struct.Struct("=16xi")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND

_CALLS = (*seccomp.INTERPRETERS, "fstat", "recvmsg", "sendmsg")
_LISTS = 64
"""Of processes, together."""


class Refuser:
    """Answers for all processes whose descriptors it has."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._askers: dict[int, int] = {}  # descriptor -> the process's number
        self._told: set[tuple[int, int]] = set()
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> bool:
        """Waits, and serves what has come; False at the end of the connection. Raises ValueError for a bad packet."""
        for descriptor, event in self._poll.poll():
            if descriptor == self._channel.fileno():
                if not self._receive():
                    return False
            elif event & select.POLLIN:
                self._refuse(descriptor)
            else:  # whom the list holds has ended, and all whom it has started
                self._poll.unregister(descriptor)
                del self._askers[descriptor]
                os.close(descriptor)
        return True

    def _receive(self) -> bool:
        packet, given = descriptors.receive(self._channel, ASKER.size, 1)
        if not packet:
            return False
        if len(packet) != ASKER.size or not given or len(self._askers) >= _LISTS:
            raise ValueError("a packet that joblensd does not send")
        (self._askers[given[0]],) = ASKER.unpack(packet)
        self._poll.register(given[0], select.POLLIN)
        return True

    def _refuse(self, descriptor: int) -> None:
        asked = bytearray(_NOTIFICATION)
        try:
            fcntl.ioctl(descriptor, _RECEIVE, asked)
            (number,), (call,) = _ID.unpack_from(asked), _CALL.unpack_from(asked)
            fcntl.ioctl(descriptor, _SEND, _ANSWER.pack(number, 0, -errno.EPERM, 0))
        except OSError:  # a signal came first, or ended it: it asks again, or never
            return
        refused = self._askers[descriptor], call & 0xFFFFFFFF
        if refused not in self._told:
            self._told.add(refused)
            with contextlib.suppress(BlockingIOError):
                self._channel.sendmsg([REFUSED.pack(*refused)], [], socket.MSG_DONTWAIT)


def main(arguments: list[str]) -> int:
    """Refuses until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid = (int(argument) for argument in arguments)
    channel = socket.socket(fileno=CHANNEL)
    confine(uid, gid)
    descriptors.send(channel, READY)
    gc.freeze()
    refuser = Refuser(channel)
    while refuser.serve():
        pass
    return 0


def confine(uid: int, gid: int) -> None:
    """Gives up all else. Raises OSError."""
    privilege.become(uid, gid)
    own_process.limit(_LISTS + 16)
    seccomp.allow_only(_CALLS, {"ioctl": seccomp.OneOf(1, _RECEIVE, _SEND)})


if __name__ == "__main__":
    own_process.run(main)
