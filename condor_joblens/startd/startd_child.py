"""The process that asks startds: a shell that runs condor_status as HTCondor's own user. No call of this file blocks.

joblensd opens no connection, and parses nothing on one. A shell of one megabyte stays for as long as joblensd lives, so
that a question costs no copy of joblensd's own memory.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess

from condor_joblens.common import without_privilege

SECONDS = 10
"""How long one startd is waited for."""

MAX_BYTES = 16 << 20
"""Of one answer: a thousand slots have less."""

MAX_LINE = 4096
"""Bytes of a line, which has one attribute. A job's owner may edit his job's: of longer ones the value is left out, or
one job could keep the startd's word from all."""

HAS_JOB = "JobId isnt undefined"

SCRIPT = r"""
trap '' HUP INT QUIT TERM
while read -r number attributes files; do
    for file in $files; do
        address=
        read -r address <"$file"
        [ -n "$address" ] && timeout -s KILL "$1" \
            condor_status -pool "$address" -json -constraint "$2" -attributes "$attributes" </dev/null
        printf '\n= %s %s %s\n' "$number" "$?" "$file"
    done
    printf '\n= %s\n' "$number"
done
"""
"""For each line `number attributes file...`: what each startd says, a line `= number exit-code file` behind each, and
a line `= number` behind all. The files have the startds' addresses.

A signal to all of joblensd's processes is joblensd's to obey: the shell ends when its input is closed."""

_TOO_LONG = b"its answer is longer than %d bytes\n= %%d 1 -\n" % MAX_BYTES
_PASSED_ON = ("PATH", "CONDOR_CONFIG", "HOME")
_LONG_LINE = re.compile(rb"^[^\n]{%d,}" % (MAX_LINE + 1), re.MULTILINE)
_END = re.compile(rb"\n= [0-9]+\n")
_READS = 16
_READ_BYTES = 1 << 20
_END_BYTES = 64


class StartdChild:
    """The shell, and the socket to it."""

    def __init__(self, user: tuple[int, int] | None) -> None:
        """Starts it as `user` (uid, gid), as ourselves if that is None. Raises OSError."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._said = bytearray()
        self._searched = 0  # bytes of it in which no end of an answer begins
        self._line = b""  # that has no end yet
        self._is_too_long = False
        self.received = 0
        """Bytes that it has said since the last `ask`."""
        self.connected = True
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in _PASSED_ON or name.upper().startswith("_CONDOR_")
        }
        environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        program = ["/bin/sh", "-c", SCRIPT, "joblens_ask_startd", str(SECONDS), HAS_JOB]
        try:
            self._process = subprocess.Popen(
                without_privilege.command(program, read_only=False),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=theirs.fileno(),
                close_fds=True,
                cwd="/",
                env=without_privilege.environment({**environment, "LC_ALL": "C"}),
                user=None if user is None else user[0],
                group=None if user is None else user[1],
                extra_groups=None if user is None else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._socket.close()
            raise OSError(getattr(error, "errno", None) or 0, getattr(error, "strerror", None) or str(error)) from None
        finally:
            theirs.close()
        self._socket.setblocking(False)
        self.pid = self._process.pid

    def fileno(self) -> int:
        """The socket, as long as the process is connected."""
        return self._socket.fileno()

    def ask(self, number: int, attributes: list[str], files: list[str]) -> None:
        """Asks the startds whose addresses are in `files`; `take` gives the answer."""
        self.received = 0
        line = f"{number} {','.join(attributes)} {' '.join(files)}\n".encode()
        try:
            if self._socket.send(line) < len(line):
                self.end()
        except OSError:
            self.end()

    def take(self, number: int) -> bytes | None:
        """All that it has said to the question of this number, or None if that is not complete."""
        self._read()
        end = b"\n= %d\n" % number
        place = self._said.find(end, self._searched)
        if place < 0:
            self._searched = max(0, len(self._said) - len(end))
            return None
        said = bytes(self._said[:place])
        del self._said[: place + len(end)]
        self._searched = 0
        if self._is_too_long:
            self._is_too_long = False
            return _TOO_LONG % number
        return _END.split(said)[-1] + b"\n"  # behind the answers to questions that were given up

    def _read(self) -> None:
        try:
            for _ in range(_READS):
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    self.end()
                    return
                self._add(data)
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def _add(self, data: bytes) -> None:
        self.received += len(data)
        lines, end, rest = (self._line + data).rpartition(b"\n")
        self._said += _LONG_LINE.sub(_without_value, lines + end)
        self._line = rest if len(rest) <= MAX_LINE else rest[: MAX_LINE + 1] + rest[-1:]
        if len(self._said) > MAX_BYTES:
            del self._said[:-_END_BYTES]
            self._is_too_long, self._searched = True, 0

    def end(self) -> None:
        """Closes its input, at which it ends: it may be another user's, and joblensd may signal nobody."""
        self.connected = False
        self._socket.close()
        self._process.poll()

    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None


def _without_value(found: re.Match[bytes]) -> bytes:
    """An attribute's line as condor_status prints it in JSON, without its value."""
    line = found[0]
    return line[:MAX_LINE].partition(b":")[0] + b": null" + (b"," if line.endswith(b",") else b"")
