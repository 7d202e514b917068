"""What can be asked of joblensd: each verb, its arguments, and the word that grants it. There is no other list.

Who may ask is in commands/authority.py, and what is done in commands/: one file a verb.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

from condor_joblens.control.door import BY_PROOF
from condor_joblens.control.frames import Words
from condor_joblens.model.levels import Level, parse_level

REFUSED = "refused"
"""The word of an answer that does not grant; its field `reason` says why."""

SEALED = "over"
"""The word of an END whose stream was sealed, and that of the verb `warrant`: how it ended is in what was sealed."""

MAX_SECONDS = 86400
"""The longest time for which a level is given."""


class Refused(Exception):
    """Why a request is not granted, in words for its sender."""


@dataclass(frozen=True)
class Vouched:
    """Who asks from afar, by the word of the job's access point or his own key, and about which run alone."""

    user: str  # the job's, as the schedd knows him: alice@pool
    by: str  # who asks: the same, a queue super user, or the name of one of the staff
    run: int  # the run's index
    is_staff: bool = False  # by his own key (staff.py)

    @property
    def is_his_own(self) -> bool:
        """Whether the job's user asks, or somebody who may edit the job as he may."""
        return not self.is_staff and (self.by == self.user or self.by.endswith(BY_PROOF))


Payer = Union[int, str]
"""Whose places, pace and share of CPU a command takes: a user id, or in words who has some of his own."""


@dataclass(frozen=True)
class Request:
    """What a process asks for, and who it is: pid and uid are the kernel's word, all else is the sender's."""

    verb: str
    arguments: dict[str, Any]
    pid: int
    uid: int
    vouched: Vouched | None = None  # then `uid` is the job's owner, whose part this is


class WithFile(dict[str, str]):
    """The fields of an answer with which a descriptor goes; that stays the sender's."""

    def __init__(self, fields: Mapping[str, str], descriptor: int) -> None:
        super().__init__(fields)
        self.descriptor = descriptor


@dataclass(frozen=True)
class Verb:
    """One thing that can be asked."""

    granted: str  # the first word of an answer that grants
    arguments: Mapping[str, Callable[[bytes], Any]]  # name -> parser, which raises ValueError with what is wrong
    required: tuple[str, ...] = ()
    streams: bool = False  # the answer has DATA before its end; only joblens/2 can carry it
    acts: bool = False  # twice is not the same as once


def text(most: int, least: int = 1) -> Callable[[bytes], str]:
    """A parser of text of `least` to `most` bytes. Bytes that are no UTF-8 come out of `os.fsencode` as they were."""

    def parse(value: bytes) -> str:
        if not least <= len(value) <= most:
            raise ValueError(f"has {len(value)} bytes: write {least} to {most}")
        return value.decode("utf-8", "surrogateescape")

    return parse


def raw(most: int) -> Callable[[bytes], bytes]:
    """A parser that takes 1 to `most` bytes as they are."""

    def parse(value: bytes) -> bytes:
        if not 0 < len(value) <= most:
            raise ValueError(f"has {len(value)} bytes: write 1 to {most}")
        return value

    return parse


def level(value: bytes) -> Level:
    """A level by its name or number."""
    try:
        return parse_level(value.decode("utf-8", "replace"))
    except ValueError as error:
        raise ValueError(f"{value[:20].decode('utf-8', 'replace')} {error}") from None


def seconds(value: bytes) -> int:
    """A whole number of seconds from 1 to MAX_SECONDS."""
    if not (value.isdigit() and len(value) < 8 and 0 < int(value) <= MAX_SECONDS):
        raise ValueError(f"a level is given for 1 s to {MAX_SECONDS // 3600} h")
    return int(value)


def flag(value: bytes) -> bool:
    """Yes (1) or no (0, or nothing)."""
    if value not in (b"", b"0", b"1"):
        raise ValueError("is 1 or 0")
    return value == b"1"


def number(most: int) -> Callable[[bytes], int]:
    """A parser of a whole number from 0 to `most`."""

    def parse(value: bytes) -> int:
        if not (value.isdigit() and len(value) < 20 and int(value) <= most):
            raise ValueError(f"is a whole number from 0 to {most}")
        return int(value)

    return parse


def signal_number(value: bytes) -> int:
    """A signal by its number."""
    found = number(signal.NSIG - 1)(value)
    if found == 0:
        raise ValueError("0 is no signal")
    return found


def trace_seconds(value: bytes) -> int:
    """A whole number of seconds from 1 to MOST_TRACE_SECONDS: for a trace, or a series of values."""
    found = number(MOST_TRACE_SECONDS)(value)
    if found == 0:
        raise ValueError("is at least 1")
    return found


def share(value: bytes) -> float:
    """A number from 0 to 1: 0.3."""
    if not _SHARE.fullmatch(value):
        raise ValueError("is a number from 0 to 1: 0.3")
    return float(value)


MOST_TRACE_SECONDS = 3600

_SHARE = re.compile(rb"0(?:\.[0-9]{1,6})?|1(?:\.0{1,6})?")

MOST_SAID = 100
"""Bytes of what a job says of itself."""

MOST_TRACEBACK = 15_000
MOST_VARIABLES = 12_000
"""Bytes of a traceback (hooks/python/joblens_python.c)."""

MOST_NOTICE = 1000
"""Bytes of what a job is told."""

MOST_LINES = 100_000
MOST_PID = 1 << 22
MOST_ENTRIES_BYTES = 61440
"""Of a list of entries (entries.py)."""

MOST_PACKET = 16384
"""Bytes of a warrant (warrants.py)."""

JOB = text(256)
"""How a person names a run: 12.0, 12, a GlobalJobId, a run, a slot with or without its host."""

VERBS: dict[str, Verb] = {
    # a process of a job, of its own run: how far that is
    "say": Verb("heard", {"words": text(MOST_SAID, least=0), "share": share}),
    # a Python of a job, of its own run: the exception that ends it, in a line and whole, and FILE:LINE
    "raised": Verb(
        "heard",
        {"line": text(1000), "place": text(1000), "traceback": text(MOST_TRACEBACK)},
        required=("line", "traceback"),
    ),
    # a Python of a job that was asked for them, right after `raised`: local variables, a line each
    "variables": Verb("heard", {"lines": text(MOST_VARIABLES)}, required=("lines",)),
    # a Python of a job, of its own run: with the answer comes a ring for its calls (tracing/python_ring.py), and
    # patterns of the files whose calls are recorded
    "python": Verb("recorded", {"version": text(16)}, required=("version",)),
    # a job's wrapper: the job is about to start. In the local universe a job has no slot
    "activate": Verb("traced", {"slot": text(256, least=0), "scratch": text(4096, least=0)}),
    # a person: the level of a running job is changed for a while, or only told
    "level": Verb("done", {"job": JOB, "level": level, "for": seconds, "clear": flag}, required=("job",), acts=True),
    # a person: the job's row (metrics.ROW) now, and again whenever its numbers are taken, until the run is over.
    # `schema` is metrics.SCHEMA_HASH in hexadecimal digits, by which both sides know that they mean the same columns
    "watch": Verb("over", {"job": JOB, "schema": text(16)}, required=("job", "schema"), streams=True),
    # a person: what each thread of the job does and waits for, in lines of JSON, the surest first
    "evidence": Verb("over", {"job": JOB}, required=("job",), streams=True),
    # a person: what the job did last is kept as an artifact, as if it had died now
    "last": Verb("done", {"job": JOB}, required=("job",), acts=True),
    # root: the folder of the job's cgroup, to ask about it by a BPF program of his own (condor_joblens/ask)
    "ask": Verb("done", {"job": JOB}, required=("job",)),
    # a person: the headers (struct joblens_artifact) of what is kept about a run that lives or is over; with a name, or
    # a kind, of which the newest is meant: that file, in pieces. `all`: of every run and job that `job` means
    "artifacts": Verb("over", {"job": JOB, "name": text(64), "all": flag}, required=("job",), streams=True),
    # a person: what follows is done by the job's owner (owner_commands/), whose messages child_output.py describes.
    # The job's processes, each a JSON object
    "ps": Verb("over", {"job": JOB}, required=("job",), streams=True),
    # the last lines of a file below the job's folder, or of `stdout` or `stderr`, and what is written from then on
    "tail": Verb(
        "over",
        {"job": JOB, "file": text(4096), "lines": number(MOST_LINES), "follow": flag},
        required=("job", "file", "lines"),
        streams=True,
    ),
    # its first lines; all of it; and what is in a folder below the job's, each entry a JSON object
    "head": Verb(
        "over", {"job": JOB, "file": text(4096), "lines": number(MOST_LINES)}, ("job", "file", "lines"), streams=True
    ),
    # of stdout and stderr, as tail; SOURCE says of which
    "log": Verb("over", {"job": JOB, "lines": number(MOST_LINES), "follow": flag}, ("job", "lines"), streams=True),
    # which file it is, as a JSON object, and a page of it
    "get": Verb("over", {"job": JOB, "file": text(4096), "offset": number(1 << 62)}, ("job", "file"), streams=True),
    # the variables of one process, without `pid` of the job's first, each a JSON object
    "env": Verb("over", {"job": JOB, "pid": number(MOST_PID)}, ("job",), streams=True),
    # a variable of the job's processes, or of one (model/peek_spec.py), each a JSON object; with `follow` again after
    # `every` seconds each, for so many `seconds`
    "peek": Verb(
        "over",
        {
            "job": JOB,
            "spec": text(1000),
            "pid": number(MOST_PID),
            "follow": flag,
            "every": trace_seconds,
            "seconds": trace_seconds,
        },
        required=("job", "spec"),
        streams=True,
    ),
    # the job's machine, and the asker's jobs on it, each a JSON object
    "node": Verb("over", {"job": JOB}, ("job",), streams=True),
    "cat": Verb("over", {"job": JOB, "file": text(4096)}, required=("job", "file"), streams=True),
    "ls": Verb("over", {"job": JOB, "folder": text(4096)}, required=("job",), streams=True),
    # a signal for one process of the job, without `pid` for its first; what has got it, as a JSON object
    "kill": Verb(
        "over",
        {"job": JOB, "pid": number(MOST_PID), "signal": signal_number},
        required=("job", "signal"),
        streams=True,
        acts=True,
    ),
    # the job is told something, in a file of its scratch folder (owner_files/notices.py). Nothing comes but the end
    "notify": Verb("over", {"job": JOB, "text": text(MOST_NOTICE)}, required=("job", "text"), streams=True, acts=True),
    # calls of the functions that `spec` means (model/trace_spec.py), for so long: messages as of the three above, with
    # JSON objects: `calls` as they end, and in the end a `summary`. `follow`: of the trace that stands for the job's
    # life, without `spec`
    "trace": Verb(
        "over",
        {"job": JOB, "spec": text(1000), "seconds": trace_seconds, "follow": flag},
        required=("job",),
        streams=True,
        acts=True,
    ),
    # whoever carries it: another verb, for which the job's access point vouches (warrants.py). `job` only says where to
    # look for its key. From the moment that the warrant is taken the answer is sealed (sealed_answers.py)
    "warrant": Verb(SEALED, {"job": JOB, "packet": raw(MOST_PACKET)}, required=("job", "packet"), streams=True),
    # whoever carries it: what the site's server has signed (entries.py) holds from now on
    "entries": Verb("taken", {"packet": raw(MOST_ENTRIES_BYTES)}, required=("packet",), streams=True),
    # the same about an entry that does not hold yet: how many jobs it would be for, as a JSON object
    "preview": Verb("counted", {"packet": raw(MOST_ENTRIES_BYTES)}, required=("packet",), streams=True),
}


def understand(words: Words, pid: int, uid: int, version: int) -> Request:
    """The request that `words` make. Raises Refused with the argument that is wrong.

    Arguments that the verb does not have are ignored in version 1 and refused in version 2.
    """
    verb = VERBS.get(words.word)
    if verb is None:
        raise Refused(f"no such verb: {words.word[:20]}")
    if verb.streams and version == 1:
        raise Refused(f"{words.word} needs joblens/2")
    arguments = {}
    for name, value in words.fields.items():
        parse = verb.arguments.get(name)
        if parse is None:
            if version > 1:
                raise Refused(f"{words.word} has no argument {name[:20]}")
            continue
        try:
            arguments[name] = parse(value)
        except ValueError as error:
            raise Refused(f"{name}: {error}") from None
    for name in verb.required:
        if name not in arguments:
            raise Refused(f"{words.word} needs the argument {name}")
    return Request(words.word, arguments, pid, uid)
