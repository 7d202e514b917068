"""One process of the policy child, as joblensd holds it: no call of this file blocks."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable

from condor_joblens.common import own_process
from condor_joblens.common.process_starter import Process
from condor_joblens.policy.child_frames import MAX_REPLY, BadFrame, FrameReader, Message

Start = Callable[[socket.socket], Process]
"""Starts a process of MODULE with this socket as its descriptor 0. Raises OSError."""

MODULE = "condor_joblens.policy.child"
COMMAND = own_process.command(MODULE)
READS = 16  # of MAX_REPLY bytes in one go: a child that talks without end must not hold up joblensd


class ChildProcess:
    """A process and the socket to it. The socket ends first; `exit_code` tells when the process has."""

    def __init__(self, max_reply: int = MAX_REPLY, start: Start | None = None) -> None:
        """Start the process, by `start` if this one may not. Raises OSError."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._process: Process
        self._reader = FrameReader(max_reply, 0)
        self._unsent = b""
        self.connected = True
        try:
            self._process = start(theirs) if start is not None else own_process.start(COMMAND, theirs)
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)

    @property
    def pid(self) -> int:
        """Its process id; 0 as long as that isn't known."""
        return self._process.pid

    def fileno(self) -> int:
        """The socket, as long as the process is connected."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether `flush` must be called again when the socket can be written."""
        return bool(self._unsent)

    def send(self, frame: bytes) -> None:
        """Send what the socket takes now; `flush` sends the rest."""
        self._unsent += frame
        self.flush()

    def flush(self) -> None:
        """Go on with what could not be sent yet."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # it is dying: reading will tell

    def receive(self) -> list[Message]:
        """The messages that have come; `connected` is false after the last one. Raises BadFrame."""
        messages: list[Message] = []
        try:
            for _ in range(READS):
                data = self._socket.recv(MAX_REPLY)
                if not data:
                    self.kill()
                    break
                messages += [message for message, _ in self._reader.feed(data)]
        except BlockingIOError:
            pass
        except BadFrame:
            raise
        except OSError:
            self.kill()
        return messages

    def kill(self) -> None:
        """End it. If nobody may, the closed socket and its own limits do."""
        self.connected = False
        self._socket.close()
        with contextlib.suppress(PermissionError):
            self._process.kill()

    def cpu_seconds(self) -> float:
        """CPU time it has used so far, 0.0 when it is gone."""
        return own_process.cpu_seconds(self.pid)

    def exit_code(self) -> int | None:
        """As subprocess has it: negative for a signal; None while it lives."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Give a killed process this long to be gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
