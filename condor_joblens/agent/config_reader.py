"""The process that reads HTCondor's configuration, and users' names, for joblensd, which can start no program any more.

It is root, because root alone can read some sites' configuration and policies, but has no capability, and changes
nothing. Users can come from a directory service, and joblensd makes no socket. What it runs is fixed when it is
started: nobody tells it which folders to look into.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from condor_joblens.common import own_process, without_privilege
from condor_joblens.common.condor_commands import search_path
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.policy.policy_files import Policies
from condor_joblens.policy.print_policies import parsed

WHAT = "the process that reads HTCondor's configuration"

SECONDS = 20
"""How long condor_config_val is waited for."""

SCRIPT = r"""
trap '' HUP INT QUIT TERM
exec 3>&2 2>/dev/null
seconds=$1
python=$2
modules=$3
shift 3
while read -r number user; do
    if [ "$user" = policies ]; then
        PYTHONPATH=$modules timeout -s KILL "$seconds" "$python" -s -m condor_joblens.policy.print_policies "$@" \
            </dev/null 2>/dev/null
        printf '\n= %s %s\n' "$number" "$?"
        continue
    fi
    if [ -n "$user" ]; then
        (
            found=$(timeout -s KILL "$seconds" getent passwd "$user" </dev/null 2>/dev/null)
            printf '%s %.500s\n' "$user" "$found" >&3
        ) >/dev/null &
        continue
    fi
    timeout -s KILL "$seconds" "$@" </dev/null 2>/dev/null
    code=$?
    if [ "$code" != 0 ]; then
        printf '\n'
        timeout -s KILL "$seconds" "$@" </dev/null 2>&1 >/dev/null | tail -n 1
    fi
    printf '\n= %s %s\n' "$number" "$code"
done
"""
"""For each line `number`: what the command prints, or the last line that it says of its failure, and a line
`= number exit-code`. For a line `0 uid`: a packet at descriptor 3 with the uid and that user's line of passwd, whatever
else is done meanwhile. For `number policies`: the policies. It ends when its input is closed."""

_MOST_PACKET = 4096


class ConfigReader:
    """A shell that runs one command, or getent, as often as it is asked."""

    def __init__(self, command: list[str]) -> None:
        """`command` is what prints the configuration. Raises OSError."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._names, their_names = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._names.setblocking(False)
        self._number = 0
        python = [sys.executable, own_process.ENVIRONMENT["PYTHONPATH"]]
        program = ["/bin/sh", "-c", SCRIPT, "joblens_read_config", str(SECONDS), *python, *command]
        try:
            self._process = subprocess.Popen(
                without_privilege.command(program, read_only=True),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=their_names.fileno(),
                close_fds=True,
                cwd="/",
                env=without_privilege.environment({**os.environ, "LC_ALL": "C", "PATH": search_path()}),
            )
        except OSError:
            self._channel.close()
            self._names.close()
            raise
        finally:
            theirs.close()
            their_names.close()
        self.pid = self._process.pid

    def read(self) -> str:
        """What the command prints now. Raises JobLensError if it fails, and HelperLost if nobody can run it."""
        output, code = self._ask("")
        if code == 0:
            return output
        if code in (124, 137):
            raise JobLensError(f"condor_config_val does not answer within {SECONDS} s")
        raise JobLensError(f"condor_config_val fails: {printable(output.strip().rpartition(chr(10))[2], 200)}")

    def fileno(self) -> int:
        """Readable when `receive_names` has something to do."""
        return self._names.fileno()

    def ask_name(self, uid: int) -> None:
        """Has a user's name looked up, without waiting for anything: `learn` is called later by `receive_names`."""
        with contextlib.suppress(OSError):
            self._channel.send(b"0 %d\n" % uid, socket.MSG_DONTWAIT)

    def receive_names(self, learn: Callable[[int, str | None], object]) -> None:
        """Tells `learn` of each user that was looked up: the id, and the name if there is one. Raises HelperLost."""
        while True:
            try:
                packet = self._names.recv(_MOST_PACKET)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                own_process.lost(self._process, WHAT)
            uid, _, line = packet.decode("utf-8", "replace").partition(" ")
            if uid.isdecimal():  # else it is what a shell says of its own troubles
                name, _, rest = line.partition(":")
                learn(int(uid), name if rest.split(":")[1:2] == [uid] else None)

    def policies(self) -> Policies:
        """The policies of JOBLENS_POLICY_DIR as it is now, root's own included. Raises HelperLost."""
        output, _ = self._ask("policies")
        try:
            return parsed(output)
        except (ValueError, TypeError):
            return [], ["the policies of root alone can't be read: none is in force; condor_reconfig tries again"]

    def triggers(self) -> Policies:
        """The triggers of JOBLENS_TRIGGERS, likewise. Raises HelperLost."""
        output, _ = self._ask("policies")
        try:
            return parsed(output, triggers=True)
        except (ValueError, TypeError):
            return [], ["the triggers of root alone can't be read: none is in force; condor_reconfig tries again"]

    def _ask(self, what: str) -> tuple[str, int]:
        """What is printed, and the exit code."""
        self._number += 1
        end = b"\n= %d " % self._number
        said = b""
        until = time.monotonic() + 2 * SECONDS + own_process.START_SECONDS
        with contextlib.suppress(OSError):
            self._channel.sendall(f"{self._number} {what}\n".encode())
            while time.monotonic() < until:
                self._channel.settimeout(max(0.001, until - time.monotonic()))
                if not (data := self._channel.recv(1 << 16)):
                    break
                said += data
                output, found, code = said.partition(end)
                if found and code.endswith(b"\n"):
                    return output.decode("utf-8", "replace"), int(code)
        own_process.lost(self._process, WHAT)

    def stop(self) -> None:
        """Closes the connection; the process ends then."""
        self._channel.close()
        self._process.wait()
        self._names.close()
