"""joblensd's end of the process that refuses system calls (common/call_refuser.py): a line in the log names each."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

from condor_joblens.common import descriptors, own_process, privilege
from condor_joblens.common.call_refuser import ASKER, REFUSED
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.system_calls import name_of

MODULE = "condor_joblens.common.call_refuser"


class RefusedCalls:
    """Processes of ours are told apart by what they are for."""

    def __init__(self, log: Callable[[str], None], uid: int, gid: int) -> None:
        """Starts it as this user. Raises JobLensError if it does not come up."""
        self._log = log
        self._names: list[str] = []
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said, reason = b"", ""
        try:
            with theirs:
                self._process = own_process.start(own_process.command(MODULE, str(uid), str(gid)), theirs)
            self._channel.settimeout(own_process.START_SECONDS)
            said = self._channel.recv(64)
        except OSError as error:
            reason = f" ({error.strerror or error})"
        if not said:
            self._channel.close()
            raise JobLensError(f"what names refused system calls can't be started{reason}")
        self._channel.setblocking(False)
        self.pid = self._process.pid

    def watch(self, name: str, listener: int | None) -> None:
        """From now on it answers for the process `name`, whose list was given this descriptor. It is closed here."""
        if listener is None:
            return
        try:
            descriptors.send(self._channel, ASKER.pack(len(self._names)), [listener])
        except OSError:
            return  # it has ended, as the loop is about to hear
        finally:
            os.close(listener)
        self._names.append(name)

    def fileno(self) -> int:
        """Readable when `receive` has something to do."""
        return self._channel.fileno()

    def receive(self) -> None:
        """Logs what was refused. Raises HelperLost."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    packet = self._channel.recv(REFUSED.size)
                except BlockingIOError:
                    raise
                except OSError:
                    packet = b""
                if not packet:
                    own_process.lost(self._process, "the process that refuses system calls")
                number, call = REFUSED.unpack(packet) if len(packet) == REFUSED.size else (len(self._names), 0)
                if number >= len(self._names):
                    raise HelperLost("the process that refuses system calls said what it was not to say")
                self._log(f"{self._names[number]} may not make the system call {name_of(call)}; it failed with EPERM")

    def stop(self) -> None:
        """Closes the connection; the process ends then."""
        self._channel.close()
        self._process.wait()


def open_refused_calls(log: Callable[[str], None]) -> RefusedCalls | None:
    """It, if this process is root; else calls are refused without a word."""
    user = privilege.unprivileged_user() if os.geteuid() == 0 else None
    if user is None:
        return None
    try:
        return RefusedCalls(log, user.pw_uid, user.pw_gid)
    except JobLensError as error:
        log(f"{error}; what our own lists refuse fails with ENOSYS")
        return None
