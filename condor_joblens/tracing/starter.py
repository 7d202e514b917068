"""The process that starts traces: it alone can attach probes, and keeps CAP_BPF and CAP_PERFMON for that.

joblensd starts it while it still is root: `python -m condor_joblens.tracing.starter UID GID TIMES`, with a socket as
descriptor 0. Deadlines are TIMES as long as they say: 1, but for tests on an emulated CPU. For each trace it forks a
child (child.py), which ends by itself, by SIGALRM if it has to.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys

from condor_joblens.common import descriptors, own_process, privilege, seccomp
from condor_joblens.common.starter import SERVES, Starter, serve
from condor_joblens.tracer import map_layout
from condor_joblens.tracing import answers, child, file_reader, probes

CAPABILITIES = ("CAP_BPF", "CAP_PERFMON")
MOST_REQUEST = 16_384

_DESCRIPTORS = 4096
_MEMORY_BYTES = 1 << 30
_CALLS = (
    *SERVES,
    # programs and maps of the kernel, and their probes
    "bpf", "memfd_create", "mbind",
    # children that are ended, and what they give up
    "capset", "kill", "setrlimit",
    # sockets to them
    "socketpair",
)  # fmt: skip


class TraceStarter(Starter):
    """Forks children that trace."""

    def __init__(self, channel: socket.socket) -> None:
        """On the socket of joblensd."""
        super().__init__(channel, [])
        self._last = probes.new_last()

    def confine(self) -> int | None:
        """It starts no program, connects to nobody, and opens files to read alone."""
        arguments: dict[str, seccomp.Argument] = {
            "clone": seccomp.NO_NAMESPACE,
            # what Python asks of descriptors that it opens: TCGETS, FIONBIO, FIONCLEX, FIOCLEX
            "ioctl": seccomp.OneOf(1, 0x5401, 0x5421, 0x5450, 0x5451),
            "openat": seccomp.ONLY_TO_READ,
            "prlimit64": seccomp.OneOf(0, 0),
            "setgroups": seccomp.OneOf(0, 0),
        }
        return seccomp.allow_told(_CALLS, arguments, ("socket", "connect", "bind"))[1]

    def _run(self, channel: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.dup2(channel, 0)
            answer(socket.socket(fileno=0), self._keep_last())
            code = 0
        finally:
            os._exit(code)

    def _keep_last(self) -> int:
        """Of what the starter has open, a trace has this alone; its descriptor there, -1 if there is none."""
        if self._last >= 0:
            os.dup2(self._last, 3, inheritable=False)
        os.closerange(3 + (self._last >= 0), 256)
        return 3 if self._last >= 0 else -1


def answer(channel: socket.socket, last: int) -> None:
    """Reads the one request that comes, and traces for as long as it says."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGALRM, *own_process.SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    for limit, value in ((resource.RLIMIT_DATA, _MEMORY_BYTES), (resource.RLIMIT_NOFILE, _DESCRIPTORS)):
        most = resource.getrlimit(limit)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    privilege.end_with_parent(signal.SIGKILL)
    most = 2 + len(map_layout.RECORDER_MAPS)
    packet, given = descriptors.receive(channel, MOST_REQUEST, most)
    if not packet or len(given) not in (2, most):
        return
    request = json.loads(packet)
    signal.setitimer(signal.ITIMER_REAL, min(float(request["seconds"]), child.MOST_SECONDS) + child.GRACE_SECONDS)
    child.main(channel, request, given, last)


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid = int(arguments[0]), int(arguments[1])
    answers.be_patient(float(arguments[2]))
    sys.dont_write_bytecode = True
    privilege.become_with(uid, gid, CAPABILITIES)
    file_reader.warm_up()
    gc.collect()
    gc.freeze()
    return serve(TraceStarter)


if __name__ == "__main__":
    own_process.run(main)
