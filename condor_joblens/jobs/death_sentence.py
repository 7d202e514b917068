"""Why a job died: what is kept of a run's abnormal ends, and the one sentence that they make."""

from __future__ import annotations

import posixpath
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from condor_joblens.common.redact import clipped, command_line, printable
from condor_joblens.common.signals import signal_name
from condor_joblens.model.death_causes import BY_HTCONDOR

KEPT = 16
"""Abnormal ends of a run that are kept: the last ones."""

PROGRAM_BYTES = 48

CAUSE_BYTES = 120

HEAD_BYTES = 256
"""What is known of a process's arguments at most."""

EXIT: np.dtype[Any] = np.dtype(
    [
        ("time", "f8"),  # epoch seconds
        ("lived", "f8"),  # seconds
        ("pid", "u4"),  # in the kernel's own pid namespace; 0: nothing here
        ("parent", "u4"),
        ("code", "i4"),  # as wait(2) has it
        ("program", f"S{PROGRAM_BYTES}"),
        ("cause", f"S{CAUSE_BYTES}"),  # which of its failures it ended of, in words; empty: unknown
    ],
    align=True,
)
"""The end of a process that ended otherwise than with exit code 0."""

DEATH: np.dtype[Any] = np.dtype(
    [
        ("exits", EXIT, (KEPT,)),  # a ring
        ("count", "i8"),  # how many there have been
        ("first", EXIT),  # the first one that tells of a failure
        ("main", EXIT),  # that of the job's first process
        ("victim", EXIT),  # the OOM killer's last choice
        ("victim_bytes", "i8"),  # what it held then
    ],
    align=True,
)
"""What is kept a run."""

SAME_START_SECONDS = 1.0
"""Two readings of when a process began differ by less: by clocks that are read one after the other."""

RECENT_SECONDS = 60.0
"""A process that the OOM killer chose longer ago than this is not why the job ends."""

ENDING_SECONDS = 1800.0
"""A job may take as long to end after it has been told to: longer than a machine's usual MachineMaxVacateTime."""

PASSING_SECONDS = 1.0
"""A parent that ends as long after its child as this passes on an answer too, as `set -e` does."""

ANSWERS = frozenset({"test", "[", "grep", "egrep", "fgrep", "zgrep", "diff", "cmp", "which", "expr", "pgrep", "getent"})
"""Programs whose exit code 1 is an answer, and no failure."""

_INTERPRETER = re.compile(
    r"(?:python|perl|ruby|lua|tclsh)[\d.]*|(?:ba|da|z|k|c|tc)?sh|Rscript|node|java|julia|php[\d.]*|wish|pypy[\d.]*"
)
_SKIPS_A_WORD = frozenset({"-W", "-X", "-cp", "-classpath", "-o", "-I", "-r"})
_BY_E = frozenset({"pe", "ru", "no", "lu", "ju", "Rs"})
_WITHIN = {False: re.compile("-[a-z]*c"), True: re.compile("-[a-zA-Z]*[eE]|--eval")}
_TRANSFERRED = "condor_exec.exe"
"""What a job's executable can be called on the node, whatever its name is."""

_NONE: Mapping[int, Crashed] = MappingProxyType({})
_WRAPPER = "joblens_wrapper"
_NOT_STARTED = {
    127 << 8: "it, or the interpreter in its first line, is not on the node",
    126 << 8: "it can't be executed",
}
"""What a shell's exit code says of the program that it was to become: POSIX, sh(1), exit status of exec."""


@dataclass(frozen=True)
class RunEnding:
    """What is known of a run's end besides the ends of its processes."""

    code: int  # of the first process, as wait(2) has it
    time: float  # epoch seconds
    command: str  # the job's executable, by its own name; empty: unknown
    checkpoint_code: int  # -1: the job has none
    signal: int  # that was last sent to the first process from outside; 0: none
    signal_age: float  # seconds before the end
    by_htcondor: bool  # its sender was HTCondor
    sender: str  # the sender's program
    limit_bytes: int  # of the job's memory; -1: none is known


@dataclass(frozen=True)
class Crashed:
    """Where a process was when a signal killed it."""

    signal: int
    where: str  # functions, fit to print


@dataclass(frozen=True)
class Raised:
    """An exception that has ended a Python: it left the outermost frame, and Python then exits 1."""

    pid: int  # as EXIT has it; 0: unknown, because joblensd is in a pid namespace of its own
    started: float  # when that process began, epoch seconds
    words: str  # type, text and place, fit to print
    when: float = 0.0  # epoch seconds at which it said so


def program_of(name: bytes, command: bytes) -> str:
    """What a process is called: the script that an interpreter runs, else its name, whole where the kernel cut it.

    `name` is the kernel's (15 bytes at most), `command` the head of its arguments, separated by NUL, or nothing.
    """
    own = name.decode("utf-8", "backslashreplace")
    arguments = command.decode("utf-8", "backslashreplace").split("\0")
    if len(command) == HEAD_BYTES:  # the last one goes on
        arguments[-1] = ""
    base = posixpath.basename(arguments[0])
    if _INTERPRETER.fullmatch(base.lstrip("-")):
        own = _script(base.lstrip("-"), arguments[1:]) or own
    elif base.startswith(own) and len(name) == 15:
        own = base
    # a name is anybody's choice, and may be a secret's as well
    return clipped(command_line(own.encode("utf-8", "backslashreplace")), PROGRAM_BYTES).decode()


def _script(interpreter: str, arguments: list[str]) -> str:
    skip = False
    for position, argument in enumerate(arguments):
        if skip or not argument:
            skip = False
        elif argument in ("-m", "-jar"):
            return posixpath.basename(arguments[position + 1]) if position + 1 < len(arguments) else ""
        elif argument.startswith("-"):
            if _WITHIN[interpreter[:2] in _BY_E].fullmatch(argument):
                return ""  # the program is within the arguments
            skip = argument in _SKIPS_A_WORD
        else:
            return posixpath.basename(argument)
    return ""


def keep(death: np.ndarray, ends: np.ndarray) -> None:
    """Adds `ends` (EXIT, in their order) to `death` (DEATH, shape (1,))."""
    count = int(death["count"][0])
    for end in ends[-KEPT:]:
        death["exits"][0, count % KEPT] = end
        count += 1
    death["count"] = int(death["count"][0]) + len(ends)
    if not death["first"]["pid"][0]:
        failures = [end for end in ends if is_failure(end)]
        if failures:
            death["first"] = failures[0]


def is_failure(end: np.void) -> bool:
    """Whether an abnormal end tells of something that went wrong."""
    code = int(end["code"])
    if code & 0x7F:
        return code & 0x7F != signal.SIGPIPE  # head, and whoever else has seen enough
    return not (code >> 8 == 1 and _text(end["program"]) in ANSWERS)


def last_exits(death: np.void) -> list[np.void]:
    """The abnormal ends that are kept, in their order."""
    count = int(death["count"])
    return [death["exits"][number % KEPT] for number in range(max(0, count - KEPT), count)]


def exits_in_words(death: np.void, width: int) -> bytes:
    """The last of them, the newest last, as many as fit into `width` bytes."""
    words: list[str] = []
    for end in reversed(last_exits(death)):
        word = f"{said(end)} after {_duration(float(end['lived']))}"
        if sum(len(each.encode()) + 2 for each in words) + len(word.encode()) > width:
            break
        words.insert(0, word)
    return "; ".join(words).encode()


def last_killed(death: np.void, now: float) -> str:
    """The last process that a signal ended, and how long ago that was at `now` (epoch seconds); empty if none did.

    `SIGKILL in worker.py (process 12), 6 min ago`
    """
    for end in reversed(last_exits(death)):
        if int(end["code"]) & 0x7F and is_failure(end):
            ago = _duration(max(0.0, now - float(end["time"])))
            return f"{said(end)} (process {int(end['pid'])}), {ago} ago"
    return ""


def said(end: np.void) -> str:
    """How a process ended: `xrdcp exited 54`, `SIGSEGV in reco (core dumped)`."""
    return _said(_text(end["program"]), end)


def sentence(
    death: np.void, ending: RunEnding, crashed: Mapping[int, Crashed] = _NONE, raised: Sequence[Raised] = ()
) -> str:
    """Why the job died, in a sentence; empty where it ended well, or left by its checkpoint code.

    `crashed` says of some processes, by pid, where a signal killed them, `raised` of which exceptions others ended.
    """
    code = ending.code
    if ending.checkpoint_code >= 0 and code == ending.checkpoint_code << 8:
        return ""
    told = ending.signal and ending.signal_age < ENDING_SECONDS
    if code == 0 and not told:
        return ""
    if _is_oom(death, ending):
        return _out_of_memory(death, ending)
    if told and ending.by_htcondor:
        return f"{BY_HTCONDOR} ({signal_name(ending.signal)}){_where(death['main'], ending.code, crashed)}"
    if code == 0:
        return ""
    chain = _innermost(death, ending)
    if len(chain) == 1 and code in _NOT_STARTED and _text(chain[0]["program"]) == _WRAPPER:
        return f"{printable(ending.command) or 'the job'} did not start: {_NOT_STARTED[code]} (exit code {code >> 8})"
    exception = _exception(chain[-1], raised)
    text = _said(_name(chain[-1], ending), chain[-1], exception) + _where(chain[-1], int(chain[-1]["code"]), crashed)
    if told and code & 0x7F == ending.signal and ending.sender:
        text += f", sent by {printable(ending.sender)}"
    if text.startswith(BY_HTCONDOR):
        text = f"program {text}"  # a program can have any name, and these words have a meaning
    return text + _before(death, chain)


def first_failure(death: np.void, ending: RunEnding) -> str:
    """What failed first in a job that ended well none the less; empty where nothing did."""
    first = death["first"]
    if ending.code != 0 or not first["pid"]:
        return ""
    return f"{said(first)}, {_duration(max(0.0, ending.time - float(first['time'])))} before the end"


def _said(program: str, end: np.void, exception: str = "") -> str:
    code, cause = int(end["code"]), exception or _text(end["cause"])
    how = f"{program} exited {code >> 8 & 0xFF}"
    if code & 0x7F:
        how = f"{signal_name(code & 0x7F)} in {program}{' (core dumped)' if code & 0x80 else ''}"
    return f"{how}: {cause}" if cause else how


def _where(end: np.void, code: int, crashed: Mapping[int, Crashed]) -> str:
    """A signal that the process has handled is not the one that it died of."""
    known = crashed.get(int(end["pid"]))
    return f" at {known.where}" if known is not None and known.signal == code & 0x7F else ""


def _exception(end: np.void, raised: Sequence[Raised]) -> str:
    """Of which exception a process ended; empty if of none that is known. Of two the last one counts."""
    if int(end["code"]) != 1 << 8 or not end["pid"]:
        return ""
    for one in reversed(raised):
        if one.pid == end["pid"]:
            return one.words
    started = float(end["time"]) - float(end["lived"])
    near = [(abs(one.started - started), one.words) for one in reversed(raised) if not one.pid]
    apart, words = min(near, key=lambda each: each[0], default=(SAME_START_SECONDS, ""))
    return words if apart < SAME_START_SECONDS else ""


def _is_oom(death: np.void, ending: RunEnding) -> bool:
    victim = death["victim"]
    if not victim["pid"]:
        return False
    return bool(victim["pid"] == death["main"]["pid"]) or ending.time - float(victim["time"]) < RECENT_SECONDS


def _out_of_memory(death: np.void, ending: RunEnding) -> str:
    name, held = _name(death["victim"], ending), int(death["victim_bytes"])
    if ending.limit_bytes < 0:
        return f"out of memory: {name} held {in_gib(held)}"
    return f"out of memory: {name} held {in_gib(held)} of {in_gib(ending.limit_bytes)}"


def _innermost(death: np.void, ending: RunEnding) -> list[np.void]:
    """From the first process inwards: each the child whose code its parent has passed on, as wrappers do.

    A parent whose other child has failed after it, and that went on, may have the code by chance. It can have killed
    others because of it.
    """
    main = death["main"].copy()
    main["code"] = ending.code
    chain, went_on = [main], False
    for end in reversed(last_exits(death)):
        outer = chain[-1]
        if not main["pid"] or end["parent"] != outer["pid"]:
            continue
        if not _passes_on(int(end["code"]), int(outer["code"])):
            went_on = went_on or (is_failure(end) and not int(end["code"]) & 0x7F)
            continue
        at_once = float(outer["time"]) - float(end["time"]) < PASSING_SECONDS
        if at_once or (is_failure(end) and not went_on):
            chain.append(end)
            went_on = False
    return chain


def _passes_on(inner: int, outer: int) -> bool:
    if outer & 0x7F:
        return False
    return outer == (inner & ~0x80 if not inner & 0x7F else (128 + (inner & 0x7F)) << 8)


def _before(death: np.void, chain: list[np.void]) -> str:
    first, last = death["first"], chain[-1]
    if not first["pid"] or any(first["pid"] == end["pid"] for end in chain) or not last["pid"]:
        return ""
    before = float(last["time"]) - float(first["time"])
    if before < PASSING_SECONDS and (first["program"], first["code"]) == (last["program"], last["code"]):
        return ""  # it is the same failure, of a process between that nobody has seen
    return f"; first failure: {said(first)}, {_duration(before)} before" if before >= 0 else ""


def _name(end: np.void, ending: RunEnding) -> str:
    name = _text(end["program"])
    if ending.command and name in ("", _TRANSFERRED):
        return printable(ending.command)
    return name or "the job"


def _text(name: Any) -> str:
    return bytes(name).decode("utf-8", "replace")


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def in_gib(size: int) -> str:
    """3.98 GiB, 512 MiB, 4 GiB."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{size / 1024:.0f} KiB"
