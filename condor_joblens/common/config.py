"""The one table of every knob, and how their values are read from HTCondor's configuration.

There is no second configuration file: a knob is a macro `JOBLENS_*` in HTCondor's own, so that
condor_config_val shows it and condor_reconfig changes it. A wrong value costs one line in the log and
`joblens doctor`, and its default stands.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.endpoint_names import Names
from condor_joblens.common.endpoint_names import parse as parse_endpoint_names
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.filesystem_classes import Types
from condor_joblens.common.filesystem_classes import parse as parse_filesystem_classes
from condor_joblens.model.levels import CHOICES, Level, parse_level

PREFIX = "JOBLENS_"


@dataclass(frozen=True)
class Knob:
    """One macro of HTCondor's configuration."""

    name: str  # the macro: JOBLENS_PERIOD
    attribute: str  # its value in Config: period
    default: str  # as an administrator would write it
    parse: Callable[[str], Any]  # raises ValueError that says what would be right
    unit: str
    help: str
    taken: str  # when a new value is taken: at "condor_reconfig" or at a "restart" of the daemon


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return number

    return parse


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = value.strip('"').lower()
        if word not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return word

    return parse


def _level(value: str) -> Level:
    try:
        return parse_level(value.strip('"'))
    except ValueError:
        raise ValueError(f"one of {CHOICES}") from None


def _path(value: str) -> str:
    if not os.path.isabs(value) or "\0" in value:
        raise ValueError("an absolute path")
    return os.path.normpath(value)


def _paths(value: str) -> tuple[str, ...]:
    return tuple(_path(part) for part in value.replace(",", " ").split())


def _names(value: str) -> tuple[str, ...]:
    found = tuple(part.lower() for part in value.replace(",", " ").split())
    if not all(part.isalnum() for part in found):
        raise ValueError("a list of names")
    return found


def address(value: str) -> str:
    """HOST:PORT. Raises ValueError that says what would be right."""
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("HOST:PORT, e.g. 127.0.0.1:9753")
    return value


def _knob(default: str, parse: Callable[[str], Any], unit: str, help: str, taken: str = "condor_reconfig") -> Any:
    facts = {"default": default, "parse": parse, "unit": unit, "help": help, "taken": taken}
    return dataclasses.field(default_factory=functools.partial(parse, default), metadata=facts)


@dataclass(frozen=True)
class Config:
    """Every knob there is, with the values in force. docs/configuration.md is made from this table."""

    period: float = _knob("1", _number(0.1, 60), "seconds", "how often the numbers are taken from the kernel")
    pressure_period: float = _knob(
        "10", _number(1, 600), "seconds", "how often the pressure and memory files of a job's cgroup are read"
    )
    memory_trend_seconds: float = _knob(
        "600",
        _number(10, 86400),
        "seconds",
        "over how long the growth of a job's memory is looked at, for Memory.GrowthBytesPerHour and HoursToLimit",
    )
    default_level: Level = _knob(
        "basic", _level, "level", "the level of a job until a policy has decided, and where none can"
    )
    max_level: Level = _knob(
        "io", _level, "level", "the closest that any job may be watched, whatever a user or a policy asks"
    )
    max_jobs: int = _knob(
        "1024",
        _integer(16, 16384),
        "jobs",
        "jobs that can be watched at a time: sizes the tables in the kernel and in shared memory",
        "restart",
    )
    buffer_bytes: int = _knob(
        "67108864",
        _integer(1 << 20, 1 << 34),
        "bytes",
        "shared memory for rows and events together; what the rows of JOBLENS_MAX_JOBS leave is the ring of events, "
        "which should hold half a minute of them at 256 bytes each",
        "restart",
    )
    artifact_bytes: int = _knob(
        "4194304",
        _integer(4096, 1 << 30),
        "bytes",
        "the largest artifact (a profile, a trace segment, a hang report) that is kept; one never takes more than a "
        "quarter of JOBLENS_ARTIFACTS_BYTES",
    )
    artifacts_bytes: int = _knob(
        "67108864",
        _integer(0, 1 << 40),
        "bytes",
        "the most that all artifacts take in JOBLENS_RUN_DIR, a file system in memory; beyond it the owner of jobs who "
        "holds most loses the oldest. 0: none are kept",
    )
    artifact_seconds: float = _knob("86400", _number(1, 1e9), "seconds", "how long an artifact is kept")
    policy_dir: tuple[str, ...] = _knob(
        "/usr/share/joblens/policies, /etc/joblens/policies.d",
        _paths,
        "folders",
        "where the Lua policies are: ours, then the site's; files are read in name order",
    )
    policy_cpu_milliseconds: int = _knob(
        "20",
        _integer(1, 10000),
        "ms of CPU",
        "what deciding about one job may cost; waiting for it is allowed fifty times that",
    )
    policy_period: float = _knob(
        "30", _number(1, 3600), "seconds", "how often the policies are asked again about all running jobs"
    )
    policy_hold: float = _knob(
        "60",
        _number(0, 86400),
        "seconds",
        "how long a level that a policy gave stands before a policy may change it; a cap, an entry that ends and a "
        "level given by hand act at once",
    )
    max_jobs_io: int = _knob(
        "64",
        _integer(0, 16384),
        "jobs",
        "jobs of the node that may be watched at level io or closer at a time: sizes the kernel's wide counters "
        "(docs/sizing.md); the least important step down",
        "restart",
    )
    filesystem_classes: Types = _knob(
        "",
        parse_filesystem_classes,
        "TYPE=CLASS, ...",
        "file systems whose names JobLens does not know: types as /proc/self/mountinfo has them, and their classes, "
        "e.g. fuse.mysite=eos, wekafs=local",
    )
    max_jobs_profile: int = _knob(
        "4",
        _integer(0, 16384),
        "jobs",
        "jobs of the node that may be watched at level profile or closer at a time; the least important step down",
    )
    max_jobs_trace: int = _knob(
        "1",
        _integer(0, 16384),
        "jobs",
        "jobs of the node that may be watched at level trace at a time; the least important step down",
    )
    max_cpu: float = _knob(
        "0.05",
        _number(0.001, 64),
        "cores",
        "CPU that joblensd itself may use, smoothed over a minute; above it the least important jobs that are "
        "watched closer than basic step down",
    )
    endpoint_names: Names = _knob(
        "",
        parse_endpoint_names,
        "PREFIX[:PORT] = NAME, ...",
        "names for the servers that jobs at level io talk to, e.g. `[2001:db8::/32]:1094 = xrootd, *:3128 = squid`; "
        "the longest prefix wins, then the one with a port",
    )
    ad_period: float = _knob(
        "30",
        _number(1, 3600),
        "seconds",
        "how often a young job's ad (condor_q) gets new numbers; its starter reads them at STARTER_UPDATE_INTERVAL",
    )
    ad_max_period: float = _knob("300", _number(1, 86400), "seconds", "how often the ad of an old job gets new numbers")
    ad_slowdown: float = _knob(
        "0.05",
        _number(0, 1),
        "share of its age",
        "a job's ad is refreshed after this share of its age, within the two periods above",
    )
    slot_ad_period: float = _knob(
        "60",
        _number(1, 3600),
        "seconds",
        "how often a slot's ad (condor_status) gets new numbers, the slots in turn: more rarely where there are more "
        "than 70; the collector sees them at the startd's UPDATE_INTERVAL",
    )
    sinks: tuple[str, ...] = _knob(
        "prometheus",
        _names,
        "names",
        "where joblens-export sends or shows records; each has knobs of its own, JOBLENS_SINK_<NAME>_*: docs/sinks.md",
    )
    linger: float = _knob(
        "0.01",
        _number(0, 5),
        "seconds",
        "how long joblens-export waits for more events before it hands on what it has: less is sooner, more is cheaper",
    )
    spool_dir: str = _knob(
        "/var/lib/joblens/spool",
        _path,
        "folder",
        "where joblens-export keeps what a sink has not confirmed; it belongs to the user joblens",
        "restart",
    )
    spool_bytes: int = _knob(
        "1073741824",
        _integer(0, 1 << 44),
        "bytes",
        "the most that is kept there for each sink; the oldest is dropped first, and counted. 0: nothing is kept",
    )
    spool_seconds: float = _knob("604800", _number(1, 1e9), "seconds", "the longest that a record is kept there")
    spool_fsync: str = _knob(
        "segment",
        _one_of("never", "segment", "always"),
        "word",
        "when a spool is forced to the disk, in case the machine goes down: never, every 8 MiB (segment), or at each "
        "write (always); a process that is killed loses nothing of it either way",
    )
    export_max_bytes: int = _knob(
        "536870912",
        _integer(1 << 26, 1 << 40),
        "bytes",
        "memory beyond which joblens-export starts anew, because a sink leaks; its queues go to the spool",
    )
    source: str = _knob(
        "auto",
        _one_of("auto", "bpf", "procfs"),
        "auto, bpf or procfs",
        "where the numbers come from: counters in the kernel (bpf), /proc and cgroup files (procfs), or auto: bpf "
        "where the kernel and joblensd's capabilities allow it, else procfs",
        "restart",
    )
    base_cgroup: str = _knob(
        "auto",
        str,
        "cgroup",
        "the cgroup directly below which slots appear, as a path below the cgroup v2 mount; "
        "auto: found from joblensd's own cgroup and BASE_CGROUP",
        "restart",
    )
    run_dir: str = _knob(
        "/run/joblens",
        _path,
        "folder",
        "socket and shared memory; the job wrapper's helper knows the default alone",
        "restart",
    )


KNOBS: tuple[Knob, ...] = tuple(
    Knob(name=PREFIX + field.name.upper(), attribute=field.name, **field.metadata)
    for field in dataclasses.fields(Config)
)

OTHERS_NAMES = re.compile(r"JOBLENS(D|_EXPORT)?(_(LOG|ARGS|ENVIRONMENT|DEBUG|CONTROLLER))?$|JOBLENS_(SLOT|JOB)_.*")
"""Macros with our prefix that HTCondor itself reads: daemons, their arguments and logs."""


def parse(macros: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The configuration that `macros` (name -> value) mean, and a line for each that is wrong.

    A wrong value leaves the default in force, a wrong entry of a table the others. Names are compared without regard
    to case, as HTCondor does.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    known = {knob.name: knob for knob in KNOBS}
    for name, value in sorted(macros.items()):
        upper = name.upper()
        knob = known.get(upper)
        if knob is None:
            # what a sink is told is the exporter's to judge: sinks/registry.py
            if upper.startswith(PREFIX) and not OTHERS_NAMES.match(upper) and not upper.startswith(PREFIX + "SINK_"):
                problems.append(_unknown(upper, list(known)))
            continue
        if not value.strip():
            continue  # an empty macro is an unset one
        try:
            values[knob.attribute] = parsed = knob.parse(value.strip())
            # a table says itself which of its entries are wrong: the others are used
            problems += [
                f"{knob.name}: {line}; correct it and run condor_reconfig" for line in getattr(parsed, "problems", ())
            ]
        except ValueError as error:
            problems.append(
                f"{knob.name} = {printable(value)} is not {error}: the default {knob.default} is used; "
                "correct it and run condor_reconfig"
            )
    return Config(**values), problems


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    remedy = f"did you mean {near[0]}?" if near else "see `joblens config` for those there are"
    return f"{printable(name)} is no knob of JobLens and has no effect: {remedy}"


def read_macros(pattern: str) -> dict[str, str]:
    """The macros of HTCondor's configuration whose names match the regular expression, expanded.

    Raises JobLensError where HTCondor's configuration can't be read. One process of condor_config_val costs
    20 ms and nothing afterwards; importing htcondor2 would cost 10 MB for the daemon's whole life.
    """
    program = shutil.which("condor_config_val", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
    if program is None:
        raise JobLensError("condor_config_val is not in the PATH: is HTCondor installed on this machine?")
    try:
        done = subprocess.run(
            [program, "-dump", "-expanded", pattern],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobLensError(f"{program} -dump -expanded does not answer: {error}") from None
    if done.returncode != 0:
        raise JobLensError(f"{program} -dump -expanded fails: {printable(done.stderr.strip(), 200)}")
    macros = {}
    for line in done.stdout.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            macros[name.strip()] = value.strip()
    return macros
