# ruff: noqa: E501  (the tables read best with a metric a line)
"""The one table of everything that is published about a run of a job.

Two tuples are here: `FIELDS` (who and when) and `METRICS` (how much). The shared-memory row (`ROW`), the ClassAd
`JobLensUsage`, the Prometheus families and docs/metrics.md are all made from them. Adding a metric touches this table
and the one place that measures it.

A number that this kernel or this source can't give is *absent*, never 0: `ABSENT` in an integer column,
NaN in a floating-point one.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.model import classes, servers
from condor_joblens.model.endpoints import ENDPOINT, LISTED
from condor_joblens.model.levels import Level
from condor_joblens.model.servers import SERVER

SCHEMA = 1
"""Version of the meaning of the names below; goes into every record. A new name alone does not change it."""

PEEKED = ("First", "Second", "Third", "Fourth")
"""The variables that a job can ask for: names of its own would be too many for Prometheus."""

ABSENT = -1
"""An integer that could not be measured (every real one is >= 0)."""


class MetricKind(enum.Enum):
    """How a number behaves over time."""

    COUNTER = "counter"  # never goes backwards within a run
    GAUGE = "gauge"  # as it is at UpdateTime
    PEAK = "peak"  # the greatest value so far in the run


@dataclass(frozen=True)
class Field:
    """Something a row says about a run that is not a measurement."""

    name: str  # the column of the row
    type: str  # its numpy type; S<n> is UTF-8, cut at a character and padded with NUL
    attribute: str | None  # its name in the JobLensUsage ad, where it stands there
    help: str
    group: str = ""  # the nested ClassAd in which that name stands; empty: in none

    @property
    def path(self) -> str:
        """Where it stands in JobLensUsage: `Level`, `Hang.Cause`; empty if it does not."""
        return f"{self.group}.{self.attribute}" if self.group else self.attribute or ""

    @property
    def record_name(self) -> str:
        """Its name in the sinks' records: that in the ad, or its column in the same style."""
        return self.group + self.attribute if self.attribute else "".join(map(str.capitalize, self.name.split("_")))


def _underscored(words: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words).lower()


@dataclass(frozen=True)
class Metric:
    """One measurement of a run."""

    group: str  # the nested ClassAd it stands in
    name: str  # its name there; the unit is its last word where it has one
    kind: MetricKind
    unit: str  # seconds, bytes, cores, or what is counted
    help: str  # one definition, whatever the source
    level: Level = Level.BASIC
    member: str = ""  # one of several nested ClassAds within the group that have the same names: `Cvmfs` in `Fs`
    label: tuple[str, str] | None = None  # Prometheus: ("filesystem", "cvmfs"); the family then is without the class

    @property
    def column(self) -> str:
        """The column of the row: `Cpu.UserSeconds` is `cpu_user_seconds`."""
        return _underscored(self.group + self.member + self.name)

    @property
    def path(self) -> str:
        """Where it stands in JobLensUsage: `Cpu.UserSeconds`, `Fs.Cvmfs.Opens`."""
        return ".".join(part for part in (self.group, self.member, self.name) if part)

    @property
    def is_float(self) -> bool:
        """Times, ratios and a job's own values are floating-point; everything countable is a 64-bit integer."""
        return self.unit in ("seconds", "cores", "hours", "value")

    @property
    def family(self) -> str:
        """The Prometheus family, without the `_total` of a counter."""
        if self.label is None:
            column = re.sub("^hours_|_hours_|_hours$", lambda found: found[0].replace("hours", "seconds"), self.column)
            return "joblens_job_" + column
        name = self.name if self.member else "Seconds" if self.unit == "seconds" else ""
        return f"joblens_job_{_underscored(self.group + name)}"

    @property
    def exposed(self) -> str:
        """The name of its series in Prometheus: the family, with the `_total` of a counter."""
        return self.family + ("_total" if self.kind is MetricKind.COUNTER else "")

    @property
    def family_scale(self) -> int:
        """By what a value is multiplied there: Prometheus has all times in seconds."""
        return 3600 if self.unit == "hours" else 1

    @property
    def pattern(self) -> str:
        """`path` with the class as a placeholder, `Fs.<filesystem>.Opens`: what metrics of one meaning share."""
        if self.label is None or (self.unit == "seconds" and not self.member):
            return self.path
        return ".".join(part for part in (self.group, f"<{self.label[0]}>", self.name if self.member else "") if part)


FIELDS: tuple[Field, ...] = (
    Field(
        "run",
        "S176",
        "Run",
        "GlobalJobId, `#` and the number of this start of the job: an evicted job's rerun is a new run",
    ),
    Field("run_number", "u8", None, "the run's number on this node, never used twice: what events name it by"),
    Field("global_job_id", "S160", None, "GlobalJobId: schedd, cluster.proc and submit time"),
    Field("job_id", "S24", None, "ClusterId.ProcId"),
    Field("owner", "S64", None, "the user the job runs for"),
    Field("accounting_group", "S64", None, "AcctGroup: whom the job is accounted to"),
    Field("vo", "S64", None, "x509UserProxyVOName: the virtual organisation, by the user's proxy"),
    Field("executable", "S64", None, "the job's program, without its folder: the last part of Cmd"),
    Field("slot", "S64", None, "name of the slot on its node, e.g. slot1_3"),
    Field("execute", "S128", None, "EXECUTE folder of the slot's startd: several startds on a node share slot names"),
    Field(
        "cgroup",
        "S256",
        None,
        "the slot's cgroup, below the mount point of the cgroup v2 tree (of cpuacct, where there is version 1 alone)",
    ),
    Field(
        "source",
        "S8",
        "Source",
        "where the numbers come from: bpf (counters in the kernel) or procfs (/proc and cgroup files, less exact)",
    ),
    Field("level", "S8", "Level", "how closely the job is watched: off, basic, io, profile or trace"),
    Field("level_number", "i4", "LevelNumber", "the same as 0 to 4"),
    Field("requested", "S64", "Requested", "what +JobLensLevel asked for, as written; absent if it did not ask"),
    Field("policy", "S64", "Policy", "the policy rule that decided the level, or `by hand`"),
    Field("reason", "S128", "Reason", "why it decided so"),
    Field("sinks", "S64", None, "the sinks that get this run, with commas between; empty: all"),
    Field("user_note", "S120", None, "the user's own words about the job, +JobLensNote"),
    Field(
        "progress",
        "S128",
        "Progress",
        "how far the job says that it is (`joblens progress`), e.g. `30 %: step 3 of 10`; absent if it says nothing. Nobody checks it",
    ),
    Field("note", "S240", "Note", "what a reader of these numbers must know, in a sentence; absent if all is well"),
    Field(
        "period_seconds",
        "f8",
        "PeriodSeconds",
        "how often this run is sampled: every JOBLENS_PERIOD, or more rarely if a policy or the job says so",
    ),
    Field("start_time", "i8", "StartTime", "when the job's cgroup was made, epoch seconds"),
    Field("update_time", "i8", "UpdateTime", "when these numbers were taken, epoch seconds"),
    Field("final", "?", "Final", "true once the job's first process has ended"),
    Field(
        "death",
        "S240",
        "Death",
        "why the job died, in a sentence; absent while it runs, and if it ended well, was evicted, or left by its checkpoint exit code. At level profile with the functions in which a signal killed it",
    ),
    Field(
        "first_failure",
        "S200",
        "FirstFailure",
        "the first program that failed in a job that ended with exit code 0; absent if none did, and where Death says it",
    ),
    Field(
        "hang_cause",
        "S16",
        "Cause",
        "what a job that seems to hang waits for, a word of Cause (docs/cli.md). `busy`: it computes in the same places, which is less sure. Absent if it does not seem to hang. In records: HangCause",
        "Hang",
    ),
    Field(
        "profile_hottest",
        "S320",
        "Hottest",
        "the functions that were on a CPU most, with their shares of the run's samples. Their names are what the job's files say, as printable ASCII. Absent without samples. In records: ProfileHottest",
        "Profile",
    ),
    Field(
        "trace_functions",
        "S320",
        "Functions",
        "the functions that are traced for the job's life, with their calls and times since FromTime, the most important first. Their names are what the job's files say, as printable ASCII. In records: TraceFunctions",
        "Trace",
    ),
    Field(
        "peek_values",
        "S320",
        "Values",
        "the variables of its programs that the job has asked for (+JobLensPeek), and what each held last, as printable ASCII: `event = 4711; state.phase = FIT (2)`. In records: PeekValues",
        "Peek",
    ),
    Field("exits", "S320", None, "the job's last abnormal exits, the newest last"),
    Field(
        "complete",
        "?",
        "Complete",
        "false if something was lost, or counting began late or too early: see Lost and Note",
    ),
    Field(
        "corrects",
        "?",
        None,
        "true in a second last record of a run, which replaces the first: more was sent, or where it crashed is known",
    ),
    Field(
        "uncounted",
        "S160",
        "Uncounted",
        "what the level should count of this job and can't here, by name; absent if nothing",
    ),
    Field("lost", "i8", "Lost", "events that the kernel could not count for the node during this run"),
    Field("sequence", "u8", None, "how often new numbers of this run have been published"),
    Field("request_cpus", "f8", None, "RequestCpus of the job"),
    Field("request_memory_bytes", "i8", None, "RequestMemory of the job, in bytes"),
)

_C, _G, _P = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.PEAK


def _syscalls() -> Iterator[Metric]:
    for name in classes.SYSCALLS:
        label = ("class", _underscored(name))
        yield Metric("Syscall", "Calls", _C, "calls", "system calls of the class that returned", Level.IO, name, label)
        yield Metric("Syscall", "Errors", _C, "calls", "those of them that failed", Level.IO, name, label)
        if name in classes.WITH_BYTES:
            yield Metric("Syscall", "Bytes", _C, "bytes", "bytes that they moved", Level.IO, name, label)


def _filesystems() -> Iterator[Metric]:
    for name in classes.FILESYSTEMS:
        label = ("filesystem", _underscored(name))
        for measured, unit, help in (
            ("Opens", "opens", "files opened"),
            (
                "FailedOpens",
                "opens",
                "opens that failed, by the mount with the longest prefix of their path, or by the folder of a relative "
                "path. Symbolic links, `..` and mounts that only a container sees are not followed",
            ),
            (
                "ReadBytes",
                "bytes",
                "bytes that calls read, and io_uring; a copy reads here and writes there. What a mapped file (a library) "
                "is read for is not in it: see Server.<filesystem>.MappedBytes",
            ),
            ("WriteBytes", "bytes", "bytes that calls wrote, and io_uring"),
            ("ReadCalls", "calls", "calls and requests of io_uring that read and did not fail"),
            ("WriteCalls", "calls", "calls and requests of io_uring that wrote and did not fail"),
        ):
            yield Metric("Fs", measured, _C, unit, help, Level.IO, name, label)


def _servers() -> Iterator[Metric]:
    for name in classes.SERVERS:
        label = ("filesystem", _underscored(name))
        for measured, unit, help in (
            ("Requests", "requests", "requests to file servers that were answered; what a cache answers is none"),
            ("SentBytes", "bytes", "bytes of these requests on the wire, or to the daemon of FUSE"),
            ("ReceivedBytes", "bytes", "bytes of their answers"),
            ("Seconds", "seconds", "time from request to answer, summed over requests, also of those at the same time"),
            ("Errors", "requests", "those that were answered with an error, as that there is no such file"),
        ):
            yield Metric("Server", measured, _C, unit, help, member=name, label=label)
        help = (
            "the part of ReceivedBytes that is in files, and for which no reading call asked: pages of programs, "
            "libraries and other mapped files. What is read ahead is in it, and what a cache has is not"
        )
        yield Metric("Server", "MappedBytes", _C, "bytes", help, member=name, label=label)


def _peeks() -> Iterator[Metric]:
    for name in PEEKED:
        help = (
            "what a variable that the job has asked for (+JobLensPeek) held last, by its place among those. Absent if it "
            "is no number of 0 or more"
        )
        yield Metric("Peek", name, _G, "value", help, label=("variable", _underscored(name)))


def _errors() -> Iterator[Metric]:
    for name in (*classes.ERRNOS, "Other"):
        help = "system calls that failed with this error; Other: with any that is not named here"
        yield Metric("Errors", name, _C, "calls", help, Level.IO, label=("errno", name))


def _waiting() -> Iterator[Metric]:
    for name, label, what in (
        ("RunningSeconds", "running", "time on a CPU"),
        ("RunQueueSeconds", "run_queue", "time ready to run, without a CPU"),
        ("UninterruptibleSeconds", "uninterruptible", "time asleep in state D: mostly storage"),
        ("SleepSeconds", "sleep", "time asleep that a signal can end: timers, locks, children, FUSE"),
    ):
        yield Metric("Wait", name, _C, "seconds", f"{what}, summed over threads", Level.IO, label=("state", label))
    help = (
        "time that calls (flock, and fcntl with F_SETLKW or F_OFD_SETLKW) were blocked until they had a lock on a file, "
        "summed over threads. It is part of the two states of sleep, and in no BlockedSeconds of a file system"
    )
    yield Metric("Wait", "FileLockSeconds", _C, "seconds", help, Level.IO)
    for name in classes.FILESYSTEMS:
        help = (
            "time that calls were blocked in the file system class (Socket: in the network), summed over threads. "
            "A wait until somebody opens the other end of a FIFO is in Pipe. It is part of the two states of sleep. "
            "Calls by path are as for FailedOpens; page faults are in no class"
        )
        yield Metric("Wait", "BlockedSeconds", _C, "seconds", help, Level.IO, name, ("filesystem", _underscored(name)))


METRICS: tuple[Metric, ...] = (
    Metric(
        "Cpu",
        "Seconds",
        _C,
        "seconds",
        "CPU time of all processes, children and sub-cgroups included, from the cgroup's cpu.stat",
    ),
    Metric("Cpu", "UserSeconds", _C, "seconds", "the part of Cpu.Seconds spent in user mode"),
    Metric("Cpu", "SystemSeconds", _C, "seconds", "the part of Cpu.Seconds spent in the kernel"),
    Metric(
        "Cpu",
        "RecentCores",
        _G,
        "cores",
        "CPU seconds a second over the last 15 seconds, or since the start of a younger run",
    ),
    Metric("Cpu", "AverageCores", _G, "cores", "CPU seconds a second since StartTime"),
    Metric(
        "Cpu",
        "IdleSeconds",
        _G,
        "seconds",
        "how long RecentCores has been below 0.01; a suspended job is frozen, not idle",
    ),
    Metric(
        "Cpu",
        "RunQueueSeconds",
        _C,
        "seconds",
        "run-queue delay: time that threads were ready to run and waited for a CPU, summed over threads",
    ),
    Metric(
        "Cpu", "PressureSomeSeconds", _C, "seconds", "time in which at least one thread waited for a CPU (cpu.pressure)"
    ),
    Metric(
        "Memory",
        "ResidentBytes",
        _G,
        "bytes",
        "resident memory summed over processes; a page that two share counts twice",
    ),
    Metric(
        "Memory",
        "ResidentPeakBytes",
        _P,
        "bytes",
        "the greatest ResidentBytes that was seen, once a period: what comes and goes in between is not in it",
    ),
    Metric("Memory", "AnonBytes", _G, "bytes", "the anonymous part of ResidentBytes: heap and stacks"),
    Metric("Memory", "FileBytes", _G, "bytes", "the rest of ResidentBytes: mapped files and shared memory"),
    Metric("Memory", "SwapBytes", _G, "bytes", "anonymous memory of the processes that is swapped out"),
    Metric(
        "Memory",
        "CgroupBytes",
        _G,
        "bytes",
        "memory charged to the cgroup, page cache and kernel included (memory.current)",
    ),
    Metric("Memory", "CgroupPeakBytes", _P, "bytes", "the greatest CgroupBytes so far (memory.peak)"),
    Metric(
        "Memory",
        "LargestProcessPeakBytes",
        _P,
        "bytes",
        "the greatest resident memory that any single process has had (its maxrss)",
    ),
    Metric(
        "Memory",
        "CgroupAnonBytes",
        _G,
        "bytes",
        "the anonymous part of CgroupBytes: a page that two processes share counts once (memory.stat)",
    ),
    Metric(
        "Memory",
        "CgroupFileBytes",
        _G,
        "bytes",
        "the part of CgroupBytes that caches files, tmpfs included; the kernel takes most of it back if memory is short",
    ),
    Metric(
        "Memory",
        "CgroupKernelBytes",
        _G,
        "bytes",
        "the part of CgroupBytes that the kernel itself uses for the job: stacks, page tables, slab",
    ),
    Metric(
        "Memory",
        "CgroupSwapBytes",
        _G,
        "bytes",
        "memory charged to the cgroup that is swapped out (memory.swap.current)",
    ),
    Metric(
        "Memory",
        "LimitBytes",
        _G,
        "bytes",
        "the memory limit of the slot's cgroup, the lowest if there are several (memory.max); absent if there is none",
    ),
    Metric(
        "Memory",
        "GrowthBytesPerHour",
        _G,
        "bytes/hour",
        "how fast anonymous memory has grown over the last JOBLENS_MEMORY_TREND_SECONDS, by least squares; 0 if it has shrunk",
    ),
    Metric(
        "Memory",
        "GrowthErrorBytesPerHour",
        _G,
        "bytes/hour",
        "the standard error of that slope, widened if its residuals are not independent",
    ),
    Metric(
        "Memory",
        "HoursToLimit",
        _G,
        "hours",
        "when anonymous and kernel memory will reach LimitBytes, or RequestMemory if there is no limit. It is present only if the growth is a leak: more than three standard errors, even over the time, and still going on",
    ),
    Metric("Memory", "MajorFaults", _C, "faults", "page faults that had to read from storage"),
    Metric("Memory", "MinorFaults", _C, "faults", "page faults served from memory"),
    Metric("Memory", "OomKills", _C, "processes", "processes that the kernel killed because memory was short"),
    Metric(
        "Memory",
        "PressureSomeSeconds",
        _C,
        "seconds",
        "time in which at least one thread waited for memory (memory.pressure)",
    ),
    Metric(
        "Io",
        "CallReadBytes",
        _C,
        "bytes",
        "bytes that read() and its kin returned, from files and pipes; recv() is not in it",
    ),
    Metric(
        "Io",
        "CallWriteBytes",
        _C,
        "bytes",
        "bytes that write() and its kin took, to files and pipes; send() is not in it",
    ),
    Metric("Io", "ReadCalls", _C, "calls", "read() calls and their kin"),
    Metric("Io", "WriteCalls", _C, "calls", "write() calls and their kin"),
    Metric("Io", "StorageReadBytes", _C, "bytes", "bytes fetched from block devices and NFS; FUSE is not in it"),
    Metric("Io", "StorageWriteBytes", _C, "bytes", "bytes that the processes made dirty for block devices and NFS"),
    Metric(
        "Io", "PressureSomeSeconds", _C, "seconds", "time in which at least one thread waited for I/O (io.pressure)"
    ),
    Metric(
        "Tcp", "SentBytes", _C, "bytes", "payload sent over TCP, each byte once: without retransmissions, SYN and FIN"
    ),
    Metric("Tcp", "ReceivedBytes", _C, "bytes", "payload received over TCP"),
    Metric("Tcp", "Connected", _C, "connections", "connections that the job made"),
    Metric("Tcp", "Accepted", _C, "connections", "connections made to sockets of the job"),
    Metric("Tcp", "Failed", _C, "connections", "connections that the job tried to make and could not"),
    Metric("Tcp", "Open", _G, "connections", "connections that are open now"),
    Metric(
        "Tcp",
        "UnsentBytes",
        _G,
        "bytes",
        "written by the job and not yet sent. The kernel sends it after the end of the job too. A second last record has what it sent then",
    ),
    Metric("Tcp", "Retransmits", _C, "segments", "segments that had to be sent again"),
    Metric(
        "Tcp", "RttSeconds", _G, "seconds", "mean over the run's connections of their last smoothed round-trip time"
    ),
    Metric("Tcp", "Refused", _C, "connections", "those of Failed that the other side refused", Level.IO),
    Metric(
        "Tcp", "TimedOut", _C, "connections", "those of Failed that got no answer until the kernel gave up", Level.IO
    ),
    Metric(
        "Tcp",
        "Unreachable",
        _C,
        "connections",
        "those of Failed for which a router or the kernel reported no route. A connect for which this machine has no route is not begun; it is in Errors.ENETUNREACH alone",
        Level.IO,
    ),
    Metric(
        "Tcp",
        "LoopbackSentBytes",
        _C,
        "bytes",
        "the part of SentBytes that stayed on this machine's loopback, of connections that were open at level io or later",
        Level.IO,
    ),
    Metric("Tcp", "LoopbackReceivedBytes", _C, "bytes", "the same part of ReceivedBytes", Level.IO),
    Metric("Udp", "SentBytes", _C, "bytes", "payload sent over UDP, from level io on", Level.IO),
    Metric("Udp", "ReceivedBytes", _C, "bytes", "payload received over UDP", Level.IO),
    Metric(
        "Udp",
        "Sends",
        _C,
        "calls",
        "sends that the kernel took: a datagram each, or several if the program lets the kernel cut them (QUIC)",
        Level.IO,
    ),
    Metric("Udp", "Receives", _C, "calls", "receives: a datagram each, or several if the kernel joined them", Level.IO),
    Metric("Udp", "DnsQueries", _C, "calls", "those of Sends that went to port 53", Level.IO),
    Metric(
        "Udp",
        "DnsAnswers",
        _C,
        "calls",
        "those of Receives that came from port 53; on a socket without a fixed peer: since it last asked that port",
        Level.IO,
    ),
    Metric("Process", "Live", _G, "processes", "processes that live now"),
    Metric("Process", "Threads", _G, "threads", "threads that live now"),
    Metric("Process", "Runnable", _G, "threads", "threads that run or wait for a CPU now"),
    Metric(
        "Process", "Uninterruptible", _G, "threads", "threads in uninterruptible sleep now (state D): mostly storage"
    ),
    Metric("Process", "Forked", _C, "processes", "processes that the job's processes created"),
    Metric("Process", "Executed", _C, "programs", "programs that were started (exec)"),
    Metric("Process", "Exited", _C, "processes", "processes that ended"),
    Metric("Process", "Failed", _C, "processes", "processes that ended with an exit code other than 0"),
    Metric("Process", "Signalled", _C, "processes", "processes that a signal ended"),
    Metric("Process", "CoreDumps", _C, "processes", "processes that dumped core"),
    Metric(
        "Process", "EventsLost", _C, "events", "starts and ends beyond JOBLENS_MAX_EVENTS: counted, but no event tells"
    ),
    Metric(
        "Hang",
        "Seconds",
        _G,
        "seconds",
        "how long the job has made no progress: less than 0.1 % of a core and less than 1 kB/s through calls, TCP and UDP. Time in which it was suspended is not in it. Of a job that is suspected to be busy without progress: how long it has been so",
    ),
    Metric(
        "Hang",
        "Suspected",
        _G,
        "jobs",
        "1 if it has made no progress for JOBLENS_HANG_MINUTES, and two looks at its threads found the same wait without a deadline. At level profile also if it has computed in the same places for so long, and moved less than 1 kB/s; else 0",
    ),
    Metric(
        "Profile",
        "NotOurs",
        _C,
        "samples",
        "samples of level profile that hit processes with other credentials than the job owner's, as set-user-id programs, or with memory that may not be dumped. These are left alone: nothing of them is in a profile",
        Level.PROFILE,
    ),
    Metric(
        "Profile",
        "LostSamples",
        _C,
        "samples",
        "samples of level profile that are in no profile. They came faster than they were read, what reads them ended, or there was no room to keep them. The latter two are known when the next part of the profile is, so a job that ends before lacks them here",
        Level.PROFILE,
    ),
    Metric(
        "Trace",
        "Calls",
        _C,
        "calls",
        "calls of the functions that are traced for the job's life (+JobLensTrace), from FromTime on, as of a second ago at most",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "Unwound",
        _C,
        "calls",
        "those of them that an exception, longjmp or the end of their thread has ended",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "Seconds",
        _C,
        "seconds",
        "time from entry to exit, summed over calls that returned or left by a jump",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "UnseenSeconds",
        _G,
        "seconds",
        "for so long processes had run before their probes were there, summed over the processes of the function of which this is most. Calls in that time, and processes that came and went between two looks, are not counted",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "FromTime",
        _G,
        "epoch seconds",
        "when the first of these functions was first probed; if tracing was interrupted, since it goes on",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "Commands",
        _C,
        "commands",
        "simple commands of the job's bash scripts, if they are traced for its life (+JobLensTrace), as of a second ago at most. Those of a shell before it is traced are not counted",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "FailedCommands",
        _C,
        "commands",
        "those of them that ended with another status than 0, also where a script expects that, as in `if`",
        Level.TRACE,
    ),
    Metric(
        "Trace",
        "CommandsCountedAlone",
        _C,
        "commands",
        "those of them of which nothing more is known, because reading all would take more than their trace's share of JOBLENS_MAX_CPU",
        Level.TRACE,
    ),
    *_peeks(),
    *_servers(),
    *_syscalls(),
    *_filesystems(),
    *_errors(),
    *_waiting(),
)

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(metric.group for metric in METRICS))
"""The nested ClassAds of JobLensUsage that have metrics, in order."""

AD_GROUPS: tuple[str, ...] = tuple(dict.fromkeys((*GROUPS, *(field.group for field in FIELDS if field.group))))
"""All of them."""

ROW: np.dtype[Any] = np.dtype(
    [(field.name, field.type) for field in FIELDS]
    + [(metric.column, "f8" if metric.is_float else "i8") for metric in METRICS]
    + [("endpoints", ENDPOINT, (LISTED + 1,)), ("servers", SERVER, (servers.LISTED + 1,))],
    align=True,
)
"""One run of one job: a row of the double buffer. The last columns are LISTS."""

LISTS: tuple[str, ...] = ("endpoints", "servers")
"""The columns that are no single values: see model/endpoints.py and model/servers.py."""

SINGLE: list[str] = [name for name in ROW.names or () if name not in LISTS]
"""The columns that hold a single value, in order: `rows[SINGLE].tolist()` costs nothing for the others."""

SCHEMA_HASH = int.from_bytes(hashlib.sha256(repr((SCHEMA, ROW.descr)).encode()).digest()[:8], "little")
"""Tells a reader of another version that its idea of a row is not the writer's."""


def patterns() -> dict[str, Metric]:
    """Every pattern, in order, and the first metric of it: what a table for people has a line for."""
    found: dict[str, Metric] = {}
    for metric in METRICS:
        found.setdefault(metric.pattern, metric)
    return found


def placeholders(group: str) -> dict[str, list[str]]:
    """Placeholder of the group's patterns -> the names that it stands for, in order."""
    found: dict[str, list[str]] = {}
    for metric in METRICS:
        if metric.group == group and metric.label and metric.pattern != metric.path:
            names = found.setdefault(metric.label[0], [])
            name = metric.member or metric.name
            if name not in names:
                names.append(name)
    return found


def empty_rows(count: int) -> np.ndarray:
    """`count` rows in which nothing is known yet: texts empty, every metric absent."""
    rows: np.ndarray = np.repeat(_empty_row(), count)
    return rows


@functools.lru_cache(maxsize=1)
def _empty_row() -> np.ndarray:
    row: np.ndarray = np.zeros(1, ROW)
    for metric in METRICS:
        row[metric.column] = np.nan if metric.is_float else ABSENT
    return row


def text(value: bytes) -> str:
    """A text column's value; bytes that are not UTF-8 are shown as such, never raised."""
    return value.decode("utf-8", "backslashreplace")


ELLIPSIS = "..."
"""In the place of what was left out; an ad is plain ASCII where it can be."""

LONGEST_WORD = 48
"""Bytes that are given up for the sake of a whole word at most: a path can be longer than all the rest."""


def shortened(value: str, size: int) -> str:
    """`value` in at most `size` bytes of UTF-8: it loses its end at a word, and an ellipsis says so."""
    whole = value.encode("utf-8", "backslashreplace")
    if len(whole) <= size:
        return whole.decode()
    if size <= len(ELLIPSIS):
        return ""
    room = size - len(ELLIPSIS)
    head = whole[:room].decode("utf-8", "ignore")
    before = head.rpartition(" ")[0]
    if whole[room : room + 1] != b" " and before and len(head) - len(before) <= LONGEST_WORD:
        head = before
    return head.rstrip(" ;,:") + ELLIPSIS


def cut_words(value: str, column: str) -> bytes:
    """The sentence `value` as it fits into the text column."""
    return shortened(value, ROW[column].itemsize).encode()


def cut(value: str, column: str) -> bytes:
    """`value` as it fits into the text column: cut at a character, never within one."""
    size = ROW[column].itemsize
    return value.encode("utf-8", "backslashreplace")[:size].decode("utf-8", "ignore").encode()
