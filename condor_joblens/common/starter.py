"""Starts processes of one kind for joblensd, which can't become their user any more.

joblensd starts it while it still is root: `python -m condor_joblens.common.starter UID GID MODULE`, with a socket as
descriptor 0. It becomes that user for good, without any capability, and starts MODULE as often as it is asked. Each
process has the socket that comes with the request as its descriptor 0. They end with this one, and this one with
joblensd.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys

from condor_joblens.common import descriptors, own_process, privilege

START, KILL = 1, 2  # requests
STARTED, FAILED, ENDED = 1, 2, 3  # reports
REQUEST = struct.Struct("<BI")  # what, and the number of the process, which joblensd gives it
REPORT = struct.Struct("<BIi")  # what, the number, and its process id, an error's number, or how it ended

CHANNEL = 0
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ, *own_process.SIGNALS)  # here, and not to be by what it starts


class Starter:
    """The processes that have been started and not ended."""

    def __init__(self, channel: socket.socket, command: list[str]) -> None:
        self._channel, self._command = channel, command
        self._pids: dict[int, int] = {}  # number -> process id

    def serve(self) -> bool:
        """Does what one request asks for; False at the end of the connection. Raises ValueError for any other."""
        packet, given = descriptors.receive(self._channel, REQUEST.size + 1, 1)
        try:
            if not packet:
                return False
            if len(packet) != REQUEST.size:
                raise ValueError("a packet of another size")
            verb, number = REQUEST.unpack(packet)
            if verb == START and given and number not in self._pids:
                self._start(number, given[0])
            elif verb == KILL and not given:
                if number in self._pids:
                    os.kill(self._pids[number], signal.SIGKILL)
            else:
                raise ValueError("a request that joblensd does not make")
        finally:
            for descriptor in given:
                os.close(descriptor)
        return True

    def reap(self) -> None:
        """Reports those that have ended."""
        numbers = {pid: number for number, pid in self._pids.items()}
        while numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = numbers.pop(pid, None)
            if number is not None:
                del self._pids[number]
                self._report(ENDED, number, os.waitstatus_to_exitcode(status))

    def _start(self, number: int, channel: int) -> None:
        program, *_ = self._command
        try:
            actions = [(os.POSIX_SPAWN_DUP2, channel, 0)]
            pid = os.posix_spawn(
                program, self._command, own_process.ENVIRONMENT, file_actions=actions, setsigdef=_IGNORED
            )
        except OSError as error:
            self._report(FAILED, number, error.errno or 0)
        else:
            self._pids[number] = pid
            self._report(STARTED, number, pid)

    def _report(self, what: int, number: int, value: int) -> None:
        self._channel.send(REPORT.pack(what, number, value))


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid, module = int(arguments[0]), int(arguments[1]), arguments[2]
    privilege.become(uid, gid)
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    channel = socket.socket(fileno=CHANNEL)
    ended, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    starter = Starter(channel, own_process.command(module))
    channel.send(REPORT.pack(STARTED, 0, os.getpid()))
    while True:
        ready = select.select([channel, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 4096)
            starter.reap()
        if channel in ready and not starter.serve():
            return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")  # joblensd says the same of its end
        sys.exit(1)
