"""The process that asks the schedd, its configuration and the system's users: a shell, as HTCondor's own user.

It has the network, and no key. One question at a time; no call of this file blocks.
"""

from __future__ import annotations

import os
import socket
import subprocess

from condor_joblens.accesspoint.queue_answer import ATTRIBUTES, SEPARATOR
from condor_joblens.common import without_privilege
from condor_joblens.common.condor_commands import search_path
from condor_joblens.control.verbs import Refused

SECONDS = 15
"""How long the schedd is waited for."""

MAX_BYTES = 1 << 20
"""Of one answer, which is one job's. A job's owner can make it longer: of that only what may be its end is kept."""

_LONGEST_END = 64
"""Bytes that hold the last line of an answer."""

SCRIPT = r"""
trap '' HUP INT QUIT TERM
while read -r number uid job; do
    [ "$uid" = -1 ] || timeout -s KILL "$1" getent passwd "$uid" </dev/null 2>/dev/null
    printf '%s\n' "$3"
    {
        timeout -s KILL "$1" condor_q -allusers "$job" -json -attributes "$2" </dev/null 2>/dev/null
        printf '\n= %s %s\n' "$number" "$?"
    } | {
        supers=$(timeout -s KILL "$1" condor_config_val -subsystem SCHEDD QUEUE_SUPER_USERS </dev/null 2>/dev/null) &&
            printf '%s\n' "$supers"
        printf '%s\n' "$3"
        cat
    }
done
"""
"""For each line `number uid job`: the user's line of passwd, super users, the job's ad, and `= number exit-code`.

User -1 is nobody of this machine (from_afar.AFAR). Between these are separators. The last two programs run at a time.
If the configuration can't be asked, nobody is a super user.
"""

_PASSED_ON = ("CONDOR_CONFIG", "HOME")


class QueueChild:
    """The shell, and the socket to it."""

    def __init__(self, user: tuple[int, int] | None) -> None:
        """Starts it as `user` (uid, gid), as ourselves if that is None. Raises OSError."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._number, self._said, self._is_too_long = 0, b"", False
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        program = ["/bin/sh", "-c", SCRIPT, "joblens_ask_schedd", str(SECONDS), ",".join(ATTRIBUTES), SEPARATOR]
        try:
            self._process = subprocess.Popen(
                without_privilege.command(program, read_only=False),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                close_fds=True,
                cwd="/",
                env=without_privilege.environment({**passed_on, "LC_ALL": "C", "PATH": search_path()}),
                user=None if user is None else user[0],
                group=None if user is None else user[1],
                extra_groups=None if user is None else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._socket.close()
            raise OSError(getattr(error, "errno", None) or 0, str(error)) from None
        finally:
            theirs.close()
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Readable when `take` may have something."""
        return self._socket.fileno()

    def ask(self, uid: int, job: str) -> None:
        """Asks about a user, and a job (12.0). Raises OSError."""
        self._number, self._said, self._is_too_long = self._number + 1, b"", False
        self._socket.send(f"{self._number} {uid} {job}\n".encode())

    def take(self) -> tuple[bytes, int] | None:
        """All that was said to the last question, and condor_q's exit code; None if it is not whole.

        Raises OSError if the process has ended, and Refused if the answer is whole but was too long to keep.
        """
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return None
        self._said += data
        if not data:
            raise OSError(0, "what asks the schedd has ended")
        said, found, code = self._said.partition(b"\n= %d " % self._number)
        if not found or not code.endswith(b"\n"):
            self._is_too_long |= len(self._said) > MAX_BYTES
            if self._is_too_long:
                self._said = self._said[-_LONGEST_END:]
            return None
        if self._is_too_long or len(said) > MAX_BYTES:
            raise Refused(f"the schedd says more than {MAX_BYTES >> 20} MiB of this job")
        return said, int(code) if code.strip().isdigit() else 1

    def close(self) -> None:
        """Closes the connection; the process ends then."""
        self._socket.close()
        self._process.wait()
