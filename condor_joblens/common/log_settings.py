"""What HTCondor's configuration says of a daemon's log: <SUBSYS>_LOG, <SUBSYS>_DEBUG and MAX_<SUBSYS>_LOG."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from condor_joblens.common.errors import printable

MACROS = "LOG|ALL_DEBUG|DEFAULT_DEBUG|MAX_DEFAULT_LOG|MAX_JOBLENS.*_LOG"
"""A regular expression of the macros that are read here, besides those that begin with JOBLENS."""

DEFAULT_FOLDER = "/var/log/condor"
"""The folder of logs if the configuration names none."""

CATEGORIES = (
    *("D_ALWAYS", "D_ERROR", "D_FAILURE", "D_STATUS", "D_GENERAL", "D_JOB", "D_MACHINE", "D_CONFIG", "D_PROTOCOL"),
    *("D_PRIV", "D_DAEMONCORE", "D_FULLDEBUG", "D_SECURITY", "D_COMMAND", "D_MATCH", "D_NETWORK", "D_KEYBOARD"),
    *("D_PROCFAMILY", "D_IDLE", "D_THREADS", "D_ACCOUNTANT", "D_SYSCALLS", "D_CRON", "D_HOSTNAME", "D_PERF_TRACE"),
    *("D_LOAD", "D_PROC", "D_NFS", "D_AUDIT", "D_TEST", "D_STATS", "D_MATERIALIZE", "D_CKPT", "D_ZKM", "D_DYE"),
)
OPTIONS = (
    *("D_ALL", "D_ANY", "D_PID", "D_FDS", "D_CAT", "D_CATEGORY", "D_LEVEL", "D_SUB_SECOND", "D_TIMESTAMP", "D_IDENT"),
    *("D_EXPR", "D_NOHEADER", "D_BACKTRACE"),
)
USED = ("D_FULLDEBUG", "D_PID", "D_CATEGORY", "D_SUB_SECOND")
"""The words that change something here. Other words of HTCondor's are accepted: a site may set ALL_DEBUG."""

_WORD = re.compile(r"([+-]?)(\w+)(?::(\d))?")
_SIZE = re.compile(r"(\d{1,15})\s*(bytes?|b|kb?|[Mm][Bb]|M|gb?|tb?)?", re.IGNORECASE)
_POWERS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class Flags:
    """What <SUBSYS>_DEBUG asks for."""

    full_debug: bool = False
    pid: bool = False
    category: bool = False
    sub_second: bool = False

    def header(self, category: str) -> str:
        """What stands before a message, as HTCondor's daemons have it: the local time at least."""
        now = time.time()
        text = time.strftime("%m/%d/%y %H:%M:%S", time.localtime(now))
        if self.sub_second:
            text += f".{int(now % 1 * 1000):03}"
        if self.pid:
            text += f" (pid:{os.getpid()})"
        if self.category:
            text += f" ({category})"
        return text


@dataclass(frozen=True)
class LogSettings:
    """Where a daemon's log is and what is in it."""

    path: str = ""
    greatest_bytes: int = 10 << 20  # HTCondor's own default; 0: without bound
    flags: Flags = field(default_factory=Flags)


DEFAULT = LogSettings()


def log_settings(subsystem: str, file_name: str, macros: Mapping[str, str]) -> tuple[LogSettings, list[str]]:
    """The settings that `macros` (name -> value) give the log of a daemon, and a line for each that is wrong.

    `subsystem` is the daemon's name in DAEMON_LIST; `file_name` is its log in the folder LOG if <SUBSYS>_LOG is unset.
    """
    given = {name.upper(): value.strip() for name, value in macros.items()}
    path = given.get(f"{subsystem}_LOG") or os.path.join(given.get("LOG") or DEFAULT_FOLDER, file_name)
    problems: list[str] = []
    size = DEFAULT.greatest_bytes
    for name in ("MAX_DEFAULT_LOG", f"MAX_{subsystem}_LOG"):
        if given.get(name):
            try:
                size = _bytes(given[name])
            except ValueError as error:
                problems.append(
                    f"{name} = {printable(given[name])} is not {error}: {size} bytes are used; "
                    "correct it and run condor_reconfig"
                )
    found = Flags()
    name = f"{subsystem}_DEBUG" if given.get(f"{subsystem}_DEBUG") else "DEFAULT_DEBUG"
    for macro in ("ALL_DEBUG", name):
        found, unknown = parse_debug(given.get(macro, ""), found)
        if unknown:
            problems.append(f"{macro}: {_remedy(unknown)}; correct it and run condor_reconfig")
    return LogSettings(path, size, found), problems


def parse_debug(value: str, flags: Flags = DEFAULT.flags) -> tuple[Flags, list[str]]:
    """`flags` with what the words in `value` add or take away, and the words that HTCondor does not know either.

    The words are HTCondor's, with comma, bar or space. Behind a word there may be `:0`, `:1` or `:2`. A `-` before
    it is the same as `:0`. D_FULLDEBUG is short for D_ALWAYS:2.
    """
    full_debug, pid, category, sub_second = flags.full_debug, flags.pid, flags.category, flags.sub_second
    unknown: list[str] = []
    for word, verbosity in _words(value, unknown):
        is_on = verbosity > 0
        if word == "D_FULLDEBUG":
            full_debug = is_on
        elif word in ("D_ALWAYS", "D_ANY", "D_ALL"):
            full_debug = verbosity > 1 or (full_debug and is_on)
        if word in ("D_PID", "D_ALL"):
            pid = is_on
        if word in ("D_CAT", "D_CATEGORY", "D_LEVEL", "D_ALL"):
            category = is_on
        elif word == "D_SUB_SECOND":
            sub_second = is_on
    return Flags(full_debug, pid, category, sub_second), unknown


def _words(value: str, unknown: list[str]) -> Iterator[tuple[str, int]]:
    """Each known word in upper case with its verbosity, 0 to 9; the others are put into `unknown`."""
    for text in re.split(r"[|,\s]+", value.strip("\"' \t")):
        found = _WORD.fullmatch(text)
        word = found[2].upper() if found else ""
        if found and word in (*CATEGORIES, *OPTIONS):
            yield word, int(found[3]) if found[3] else int(found[1] != "-")
        elif text:
            unknown.append(text)


def _remedy(unknown: list[str]) -> str:
    """One line for all unknown words."""
    named = ", ".join(printable(word, 40) for word in unknown[:5])
    near = difflib.get_close_matches(unknown[0].lstrip("+-").partition(":")[0].upper(), USED, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"what has an effect is {', '.join(USED)}"
    return f"HTCondor has no debug level {named}: {hint}"


def _bytes(value: str) -> int:
    """The bytes of a size as HTCondor writes it. Raises ValueError that says what would be right."""
    found = _SIZE.fullmatch(value)
    # HTCondor takes `m` for minutes
    if not found or found[2] == "m":
        raise ValueError("a size such as 10 Mb (this daemon's log is rotated by size, never by time)")
    return int(found[1]) << _POWERS[(found[2] or "b")[0].lower()]
