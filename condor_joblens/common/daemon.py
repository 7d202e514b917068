"""What every daemon of ours shares: the start under condor_master, signals, the log, and the configuration.

condor_master starts the programs in DAEMON_LIST as root, and starts them again some seconds after they have crashed.
SIGTERM ends them, and SIGHUP makes them read the configuration again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from condor_joblens import __version__
from condor_joblens.common import log_settings
from condor_joblens.common.condor_commands import ask
from condor_joblens.common.condor_config import COMMAND, arguments, parse_dump, values
from condor_joblens.common.log import open_log
from condor_joblens.common.privilege import forget_session_keys
from condor_joblens.common.signals import Signals
from condor_joblens.common.uncaught import log_uncaught


class Daemon:
    """One process of DAEMON_LIST. Make it first of all: the environment holds the pool's session keys."""

    def __init__(self, name: str, subsystem: str, log_file: str, macros: str, *interrupting: int) -> None:
        """`name` is for people, `subsystem` is its word in DAEMON_LIST, `log_file` its log in the folder LOG.

        `macros` is a regular expression of the macros that it reads besides JOBLENS*; `interrupting`: see Signals.
        Until `open_log` standard error is the log.
        """
        forget_session_keys()
        os.umask(0o022)
        self.name = name
        self.log = open_log(None)
        log_uncaught(name, self.log)
        self.signals = Signals(*interrupting)
        self.macros: dict[str, str] = {}
        self.pattern = f"JOBLENS.*|{log_settings.MACROS}|{macros}"
        self.dump: Callable[[], str] = lambda: ask(COMMAND, *arguments(self.pattern))  # HTCondor's configuration
        self.log_path = ""  # empty until `open_log`
        self._subsystem, self._log_file, self._has_log = subsystem, log_file, False

    def read_macros(self) -> dict[str, str]:
        """HTCondor's configuration as it is now. Raises JobLensError; `macros` stays as it was then."""
        began = time.monotonic()
        self.macros = values(parse_dump(self.dump()))
        took = time.monotonic() - began
        self.log.full_debug(f"{len(self.macros)} macros read from condor_config_val in {took * 1000:.0f} ms")
        return self.macros

    def open_log(self, owner: tuple[int, int] | None = None) -> None:
        """Opens the log, or opens it again, as `macros` say; for `owner` (user and group id), else its folder's owner.

        After a rotation by somebody else, or with another path, it goes on in the new file.
        """
        settings, problems = log_settings.log_settings(self._subsystem, self._log_file, self.macros)
        self.log.flags, self.log.greatest = settings.flags, settings.greatest_bytes
        self.log_path = settings.path
        self.log.reopen(settings.path, owner or owner_of(os.path.dirname(settings.path)))
        if not self._has_log:
            self._has_log = True
            self.log(f"{self.name} {__version__} starts, process {os.getpid()}")
        for problem in problems:
            self.log.error(problem)


def owner_of(folder: str) -> tuple[int, int] | None:
    """User and group id of a folder's owner; None if it is missing."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_uid, status.st_gid


def run(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and ends the process with its exit code, or 1 after an exception, which is logged.

    At once: no thread is waited for. A sink that hangs must not keep the process.
    """
    code = 1
    try:
        code = main()
    except Exception:
        sys.excepthook(*sys.exc_info())
    sys.stderr.flush()
    os._exit(code)
