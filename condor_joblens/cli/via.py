"""`--via condor_tail`, `--via ssh`: HTCondor's own ways to a running job, if a site has no commands from afar.

Never by themselves: each says first what it is, and has a time limit. What a job can have written is escaped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType

from condor_joblens.cli.tail import Harmless
from condor_joblens.common.condor_commands import search_path
from condor_joblens.common.errors import JobLensError, UsageError, printable

CONDOR_TAIL, SSH = "condor_tail", "ssh"

SECONDS, FOLLOWED_SECONDS = 30.0, 3600.0
"""For all of it, and if a file is followed."""

MOST_BYTES = 64 << 20
"""Of what is not followed."""

_TAIL_BYTES = 1 << 20  # of which the last lines are taken
_MOST_SAID = 4096  # bytes of errors
_JOB = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10})?")
_STREAMS = {"stdout": "_condor_stdout", "stderr": "_condor_stderr"}
_PS = "ps -o pid,ppid,stat,nlwp,time,etime,rss,args -u $(id -u)"
_WORDS = {
    CONDOR_TAIL: "condor_tail: it reaches stdout, stderr and names in transfer_output_files, of a job with file "
    "transfer; of others it waits without a word",
    SSH: "condor_ssh_to_job: it ends an ssh session of yours to this job",
}


def run(options: argparse.Namespace) -> int:
    """Says what it is, has it done and writes what comes; exit code 0. Raises JobLensError."""
    if options.json:
        raise UsageError("what comes by --via is text: leave --json away")
    if getattr(options, "cluster", None) is not None:
        raise UsageError("by --via one job is asked: leave --cluster away")
    if options.id is None or not _JOB.fullmatch(options.id):
        raise UsageError("by --via a job is named by its cluster and process: 12.0")
    print(f"joblens: {_WORDS[options.via]}", file=sys.stderr, flush=True)
    if options.command == "ps":
        print("joblens: these are your processes on that machine, of this job or not", file=sys.stderr, flush=True)
    follows, lines = getattr(options, "follow", False), None
    if options.via == CONDOR_TAIL and not follows:
        lines = options.lines
    command = _condor_tail(options) if options.via == CONDOR_TAIL else _ssh(options)
    with _Program(command, FOLLOWED_SECONDS if follows else SECONDS, None if follows else MOST_BYTES) as program:
        program.write(lines)
    return 0


def _condor_tail(options: argparse.Namespace) -> list[str]:
    command = [CONDOR_TAIL, "-maxbytes", str(_TAIL_BYTES), *(["-follow"] if options.follow else [])]
    if options.file == "stdout":
        return [*command, options.id]
    if options.file == "stderr":
        return [*command, "-no-stdout", "-stderr", options.id]
    if options.file.startswith("-"):
        raise UsageError("condor_tail takes no name that begins with a hyphen")
    return [*command, "-no-stdout", options.id, options.file]


def _ssh(options: argparse.Namespace) -> list[str]:
    """What runs there is a shell of the job's user, in its scratch folder."""
    if options.command == "ps":
        there = _PS
    elif options.command == "ls":
        there = f"ls -la -- {shlex.quote(options.folder)}"
    else:
        names = list(_STREAMS.values()) if options.command == "log" else [_STREAMS.get(options.file, options.file)]
        flags = f"-n {options.lines}{' -v' if options.command == 'log' else ''}{' -f' if options.follow else ''}"
        there = f"tail {flags} -- {' '.join(map(shlex.quote, names))}"
    # a key of RSA takes a second to make
    return ["condor_ssh_to_job", "-keygen-options", "-t ed25519", options.id, there]


class _Program:
    """A program of HTCondor's, with what it starts. All of it ends with the block."""

    def __init__(self, command: list[str], seconds: float, most: int | None) -> None:
        """It is started by `with`."""
        self._command, self._name, self._seconds, self._most = command, command[0], seconds, most
        self._is_started, self._left_by = False, 0
        self._out = Harmless() if sys.stdout.isatty() else None
        self._kept, self._said, self._silent = b"", b"", True

    def __enter__(self) -> _Program:
        """Starts it. Raises JobLensError if it is missing."""
        # it has a session of its own, so nothing that ends us ends it: before it begins, who does so is heard
        self._before = {number: signal.signal(number, self._leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            self._process = self._start()
            self._is_started = True
            if self._left_by:
                self._leave(self._left_by, None)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _leave(self, number: int, _: FrameType | None) -> None:
        self._left_by = number
        if self._is_started:
            sys.exit(128 + number)

    def _start(self) -> subprocess.Popen[bytes]:
        program = shutil.which(self._name, path=search_path())
        if program is None:
            raise JobLensError(f"{self._name} is not in the PATH: is HTCondor installed on this machine?")
        command, pipe = [program, *self._command[1:]], subprocess.PIPE
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
        except (OSError, ValueError) as error:
            raise JobLensError(f"{self._name} can't be run: {error}") from None

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if not self._is_started:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def write(self, lines: int | None) -> None:
        """Writes what it says as it comes; if `lines` are given, in the end so many of the last ones.

        Raises JobLensError if it fails, takes too long or says too much.
        """
        began, told = time.monotonic(), False
        with selectors.DefaultSelector() as selector:
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                left = began + self._seconds - time.monotonic()
                if left <= 0:
                    raise JobLensError(f"{self._name} was ended after {self._seconds:g} s: that is the limit")
                if self._silent and not told and time.monotonic() - began > SECONDS:
                    print(f"joblens: {self._name} has said nothing for {SECONDS:g} s", file=sys.stderr, flush=True)
                    told = True
                for key, _ in selector.select(min(left, SECONDS)):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._process.stderr:
                        self._said = (self._said + data)[-_MOST_SAID:]
                    else:
                        self._take(data, lines is not None)
        if lines is not None:
            self._show(b"".join(self._kept.splitlines(keepends=True)[-lines:] if lines else []))
        self._check(self._process.wait())

    def _take(self, data: bytes, keep: bool) -> None:
        self._silent = False
        if self._most is not None:
            self._most -= len(data)
            if self._most < 0:
                raise JobLensError(f"{self._name} says more than {MOST_BYTES >> 20} MiB: the rest is not taken")
        if keep:
            self._kept += data
        else:
            self._show(data)

    def _show(self, data: bytes) -> None:
        sys.stdout.buffer.write(data if self._out is None else self._out.add(data))
        sys.stdout.buffer.flush()

    def _check(self, code: int) -> None:
        said = [printable(line, 300) for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        if code != 0:
            raise JobLensError(f"{self._name} ended with {code}: {said[-1] if said else 'it does not say why'}")
        for line in said:
            print(f"{self._name}: {line}", file=sys.stderr)
