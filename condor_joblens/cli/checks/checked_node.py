"""The machine that is looked at, and what a check may say of it."""

from __future__ import annotations

import enum
import functools
import os
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from condor_joblens.common import condor_commands, condor_config, config, config_parser
from condor_joblens.common.condor_config import Macro
from condor_joblens.common.errors import JobLensError

COMMAND_TIMEOUT = 10
"""Seconds that a command of HTCondor's may take."""

ANSWER_TIMEOUT = 3.0
"""Seconds that joblensd may take to answer; wrappers of jobs wait 40 ms."""

_QUESTION = b"joblens/1\0doctor\0"  # which it refuses, and that is an answer

MACROS = (
    condor_config.OURS + "|JOBLENSD|DAEMON_LIST|LIBEXEC|USER_JOB_WRAPPER|STARTD_CRON_JOBLIST|STARTD_CRON_JOBLENS_.*"
    r"|(STARTER\.|STARTD\.)?STARTD_CRON_JOBLENS_METRICS|STARTER_(INITIAL_)?UPDATE_INTERVAL"
    "|SHADOW_QUEUE_UPDATE_INTERVAL|(PROTECTED|IMMUTABLE|STARTD)_JOB_ATTRS|JOB_TRANSFORM_NAMES|LOG"
    "|EVENT_LOG(_FORMAT_OPTIONS|_JOB_AD_INFORMATION_ATTRS)?"
)


REPORTED = "doctor.txt"
"""In a bug report: what doctor found on the machine."""


class State(enum.Enum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"  # works, but less than it could, or could not be seen
    FAIL = "FAIL"  # does not work before this is done


@dataclass(frozen=True)
class Finding:
    """What a check found, and what to do about it."""

    state: State
    text: str
    remedy: str = ""
    unseen: bool = False  # this user may not look: nothing is known to be wrong


def ok(text: str) -> Finding:
    """All is well."""
    return Finding(State.OK, text)


def warn(text: str, remedy: str) -> Finding:
    """It works, but."""
    return Finding(State.WARN, text, remedy)


def fail(text: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(State.FAIL, text, remedy)


Check = Callable[["CheckedNode"], Iterator[Finding]]
"""Yields what it found. Raises PermissionError where this user may not look, JobLensError where it can't."""


@dataclass(frozen=True)
class CheckedNode:
    """A machine: the one that this runs on, or a copy of another one's files below `root`.

    In a copy the output of a command NAME is the file `commands/NAME`.
    """

    root: str = "/"
    run_dir_option: str | None = None
    uid: int = field(default_factory=os.geteuid)
    cost_seconds: float = 0.0  # for how long the kernel is to measure its programs; 0: not at all
    missed: list[str] = field(default_factory=list, compare=False)
    """What was looked for and is not in a bug report: that says nothing of the machine."""

    @functools.cached_property
    def is_report(self) -> bool:
        """Whether it is a copy of few files, with what doctor found on the machine (bug_report.py)."""
        return not self.live and os.path.exists(os.path.join(self.root, REPORTED))

    @property
    def live(self) -> bool:
        """Whether it is the machine that this runs on."""
        return self.root == "/"

    def path(self, absolute: str) -> str:
        """Where the file `absolute` of the machine is."""
        return self._noted(os.path.join(self.root, absolute.lstrip("/")))

    def of_joblensd(self, name: str) -> str:
        """Where a file of joblensd's run folder is."""
        return self._noted(os.path.join(self.run_dir, name))

    def _noted(self, path: str) -> str:
        if self.is_report and not os.path.exists(path):
            self.missed.append(path)
        return path

    def exists(self, absolute: str) -> bool:
        """Whether there is such a file. Raises PermissionError where a folder above it may not be entered."""
        try:
            os.stat(self.path(absolute))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def mode(self, absolute: str) -> int:
        """The permissions of a file; 0 if it is not there."""
        try:
            return stat.S_IMODE(os.stat(self.path(absolute)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def read(self, absolute: str, limit: int = 1 << 20) -> str | None:
        """The last `limit` bytes of a file as text; None where it is not there."""
        try:
            with open(self.path(absolute), "rb") as file:
                # files of /proc and /sys have no size to seek by
                size = os.fstat(file.fileno()).st_size
                if size > limit:
                    file.seek(size - limit)
                return file.read(limit).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, absolute: str) -> list[str]:
        """What is in a folder; nothing where it is not there."""
        try:
            return sorted(os.listdir(self.path(absolute)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @functools.cached_property
    def administrator(self) -> int:
        """The user whose files can be trusted: root, or who made the copy."""
        return 0 if self.live else os.stat(self.root).st_uid

    def runs(self, module: str) -> int | None:
        """The process id of a `python -m MODULE`; None where there is none that this user may see."""
        if self.is_report:
            self.missed.append(module)  # processes are not copied
        for name in self.names("/proc"):
            if name.isdigit() and self.is_module(int(name), module):
                return int(name)
        return None

    def is_module(self, pid: int, module: str) -> bool:
        """Whether the process `pid` is a `python -m MODULE`."""
        try:
            arguments = (self.read(f"/proc/{pid}/cmdline") or "").split("\0")
        except OSError:
            return False  # it ended meanwhile, or is hidden from this user
        return "-m" in arguments and module in arguments

    def ask(self, name: str, *arguments: str) -> str:
        """What a command prints. Raises JobLensError where it fails."""
        if not self.live:
            output = self.read(f"/commands/{name}")
            if output is None:
                raise JobLensError(f"{self.path('/commands/' + name)} is not there")
            return output
        return condor_commands.ask(name, *arguments, timeout=COMMAND_TIMEOUT)

    @functools.cached_property
    def _configuration(self) -> tuple[dict[str, Macro], str]:
        try:
            dump = self.ask("condor_config_val", *condor_config.arguments(MACROS, "-verbose"))
        except JobLensError as error:
            return {}, str(error)
        return condor_config.parse_dump(dump), ""

    @property
    def macros(self) -> dict[str, Macro]:
        """What is looked at of HTCondor's configuration; nothing where it can't be read."""
        return self._configuration[0]

    @property
    def trouble(self) -> str:
        """Why HTCondor's configuration can't be read; nothing where it can."""
        return self._configuration[1]

    def macro(self, name: str, default: str = "") -> str:
        """The value of a macro; `default` where it is not set."""
        found = self.macros.get(name)
        return found.value if found and found.value else default

    def words(self, name: str) -> list[str]:
        """The words of a macro that is a list, in upper case."""
        return self.macro(name).replace(",", " ").upper().split()

    @functools.cached_property
    def config(self) -> config.Config:
        """Our knobs; what is wrong with them is another check's."""
        return config_parser.parse(condor_config.values(self.macros))[0]

    @property
    def run_dir(self) -> str:
        """The folder of the socket and of the shared memory, below `root`."""
        return self.run_dir_option or self.path(self.config.run_dir)

    def gets_no_answer(self, path: str) -> str:
        """Asks at the control socket at `path`; why there was no answer, or nothing."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(ANSWER_TIMEOUT)
            try:
                client.connect(path)
                client.send(_QUESTION)
                return "" if client.recv(4096) else "it hangs up instead of answering"
            except OSError as error:
                return error.strerror or f"no answer within {ANSWER_TIMEOUT:g} s: joblensd hangs, and jobs start late"
