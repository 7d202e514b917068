"""The one table of every knob.

There is no second configuration file: a knob is a macro `JOBLENS_*` in HTCondor's own. So condor_config_val shows it,
and condor_reconfig changes it. One value is read by knob_values.py, all of them by config_parser.py.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.endpoint_names import Names
from condor_joblens.common.endpoint_names import parse as parse_endpoint_names
from condor_joblens.common.filesystem_classes import Types
from condor_joblens.common.filesystem_classes import parse as parse_filesystem_classes
from condor_joblens.common.knob_values import (
    boolean,
    integer,
    level,
    names,
    number,
    one_of,
    page,
    path,
    path_or_none,
    paths,
)
from condor_joblens.model.levels import Level

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


def _knob(default: str, parse: Callable[[str], Any], unit: str, help: str, taken: str = "condor_reconfig") -> Any:
    """A field of Config. A new value is taken at condor_reconfig."""
    facts = {"default": default, "parse": parse, "unit": unit, "help": help, "taken": taken}
    return dataclasses.field(default_factory=functools.partial(parse, default), metadata=facts)


_at_restart = functools.partial(_knob, taken="restart")
"""The same for a knob whose new value is taken when the daemon starts."""


# fmt: off
@dataclass(frozen=True)
class Config:
    """Every knob there is, with the values in force. docs/configuration.md is made from this table.

    The first line of a knob has the default as an administrator would write it, the parser, and the unit. The help is
    below it.
    """

    period: float = _knob("1", number(0.1, 60), "seconds",
        "how often the numbers are taken from the kernel")
    pressure_period: float = _knob("10", number(1, 600), "seconds",
        "how often the pressure and memory files of a job's cgroup are read")
    memory_trend_seconds: float = _knob("600", number(10, 86400), "seconds",
        "over how long the growth of a job's memory is looked at, for Memory.GrowthBytesPerHour and HoursToLimit")
    default_level: Level = _knob("basic", level, "level",
        "the level of a job until a policy has decided, and where none can")
    max_level: Level = _knob("io", level, "level",
        "the closest that any job may be watched, whatever a user or a policy asks; profile and trace need a joblensd "
        "that started with them")
    max_jobs: int = _at_restart("1024", integer(16, 16384), "jobs",
        "jobs that can be watched at a time: sizes the tables in the kernel and in shared memory")
    buffer_bytes: int = _at_restart("75497472", integer(1 << 20, 1 << 34), "bytes",
        "shared memory for rows and events together; the ring of events gets what the rows of "
        "JOBLENS_MAX_JOBS leave. It should hold half a minute of events, of 256 bytes each")
    max_events: int = _knob("4000", integer(10, 1000000), "events per second",
        "starts and ends of programs that are recorded for one job; it can save up those of one second. What is "
        "beyond that is declared as lost for this job, and no number lacks it")
    arguments: bool = _knob("true", boolean, "true or false",
        "whether events of programs have their command lines, without secrets; false: the programs' names alone")
    artifact_bytes: int = _knob("1073741824", integer(0, 1 << 40), "bytes",
        "the most that all artifacts (profiles, hang reports) of the node take; beyond it the owner of jobs who "
        "holds most loses the oldest. One takes a quarter of that at most, and never more than 4 MiB. 0: none are kept")
    artifact_days: float = _knob("7", number(0.001, 10000), "days",
        "how long an artifact is kept")
    artifact_dir: str = _at_restart("/var/lib/joblens-agent/artifacts", path, "folder",
        "where artifacts are kept; it belongs to joblensd. What is below JOBLENS_RUN_DIR is in memory: 64 MiB at "
        "most are kept then. So it is, too, if the folder can't be made, or another joblensd has it")
    reports: bool = _knob("true", boolean, "true or false",
        "whether a job that asks for it (+JobLensReport = true) gets flame.svg, at level profile, and hang.txt, if it "
        "seems to hang, with its output")
    policy_dir: tuple[str, ...] = _knob("/usr/share/joblens/policies, /etc/joblens/policies.d", paths, "folders",
        "where the Lua policies are: ours, then the site's; files are read in name order")
    policy_cpu_milliseconds: int = _knob("20", integer(1, 10000), "ms of CPU",
        "what deciding about one job may cost; waiting for it is allowed fifty times that")
    policy_period: float = _knob("30", number(1, 3600), "seconds",
        "how often the policies are asked again about all running jobs")
    policy_hold: float = _knob("60", number(0, 86400), "seconds",
        "how long a level from a policy stands before a policy may change it. A cap, an entry that ends and a "
        "level given by hand act at once")
    triggers: tuple[str, ...] = _knob("/etc/joblens/triggers.d", paths, "folders",
        "where the site's triggers are (docs/triggers.md): Lua that is asked when something happens. Without a file "
        "there, there is no process for them")
    max_jobs_io: int = _at_restart("64", integer(0, 16384), "jobs",
        "jobs of the node that may be at level io or closer at a time. It sizes the kernel's wide counters "
        "(docs/sizing.md); the least important jobs step down")
    preload_io: bool = _at_restart("true", boolean, "true or false",
        "keep the programs of level io loaded, and attach them with the first job that needs them. That takes "
        "milliseconds, so a job that asks for io is counted from its first instruction. The kernel keeps "
        "their memory (docs/sizing.md), and runs none of them meanwhile. With false they are loaded when they "
        "are needed, which takes 0.2 s")
    filesystem_classes: Types = _knob("", parse_filesystem_classes, "TYPE=CLASS, ...",
        "file systems whose names JobLens does not know: types as /proc/self/mountinfo has them, and their "
        "classes, e.g. fuse.mysite=eos, wekafs=local")
    max_jobs_profile: int = _knob("4", integer(0, 16384), "jobs",
        "jobs of the node that may be watched at level profile or closer at a time; the least important step down")
    profile_hz: int = _at_restart("99", integer(1, 1000), "samples per second",
        "how often the program of level profile looks at what each CPU does, while a job is at that level")
    unwind_bytes: int = _at_restart("134217728", integer(1 << 20, 1 << 34), "bytes",
        "memory of the kernel for the unwind tables of programs that jobs at level profile run. If it is too "
        "small for all, the job that has most gives way. What it used least lately is then unwound by frame pointers")
    max_jobs_trace: int = _knob("1", integer(0, 16384), "jobs",
        "jobs of the node that may be watched at level trace at a time; the least important step down")
    recorder_bytes: int = _at_restart("1048576", integer(0, 16 << 20), "bytes",
        "memory of the kernel for the last events of one job at level trace, its flight recorder. All jobs together "
        "have 64 MiB; the least important go without, and their Note says so. 0: nothing is recorded")
    trace_python: bool = _knob("true", boolean, "true or false",
        "whether a job at level trace may ask for exceptions that end its Pythons, and for their calls (+JobLensTrace)")
    trace_shell: str = _knob("process", one_of("process", "node"), "process or node",
        "where bash scripts are traced (+JobLensTrace = \"bash\"). With process each shell of the job has a probe, and "
        "others pay nothing. What a shell does in its first tenths of a second is not seen. With node all processes "
        "of the node that run the same bash have one. Subshells are seen from their first command. While such a job "
        "runs, each command of anybody's bash costs more: docs/performance.md says how much")
    ask: bool = _knob("false", boolean, "true or false",
        "whether root may run BPF programs of his own about a job (joblens ask)")
    max_peeks: int = _knob("16", integer(0, 1024), "jobs",
        "jobs of the node whose variables are read each period, as they ask by +JobLensPeek; users share these places. "
        "Each is a process. 0: none is read")
    max_cpu: float = _knob("0.05", number(0.001, 64), "cores",
        "CPU that joblensd and its processes may use, smoothed over a minute. Above it the least important jobs step "
        "down, those at profile and trace first")
    hang_minutes: float = _knob("15", number(0, 1e6), "minutes",
        "a job that makes no progress for so long is looked at, to see whether it hangs: Hang.Suspected in its ad. "
        "No progress: less than 0.1 % of a core and less than 1 kB/s. 0: no job is looked at by itself")
    endpoint_names: Names = _knob("", parse_endpoint_names, "PREFIX[:PORT] = NAME, ...",
        "names for the servers that jobs at level io talk to, e.g. `[2001:db8::/32]:1094 = xrootd, *:3128 = "
        "squid`; the longest prefix wins, then the one with a port")
    ad_period: float = _knob("30", number(1, 3600), "seconds",
        "how often a young job's ad (condor_q) gets new numbers; its starter reads them at "
        "STARTER_UPDATE_INTERVAL")
    ad_max_period: float = _knob("300", number(1, 86400), "seconds",
        "how often the ad of an old job gets new numbers")
    ad_slowdown: float = _knob("0.05", number(0, 1), "share of its age",
        "a job's ad is refreshed after this share of its age, within the two periods above")
    slot_ad_period: float = _knob("60", number(1, 3600), "seconds",
        "how often a slot's ad (condor_status) gets new numbers, the slots in turn, and more rarely if there "
        "are more than 70. The collector sees them at the startd's UPDATE_INTERVAL")
    sinks: tuple[str, ...] = _knob("prometheus", names, "names",
        "where joblens-export sends or shows records; each has knobs of its own, JOBLENS_SINK_<NAME>_*: "
        "docs/sinks.md")
    linger: float = _knob("0.01", number(0, 5), "seconds",
        "how long joblens-export waits for more events before it hands on what it has: less is sooner, more is "
        "cheaper")
    spool_dir: str = _at_restart("/var/lib/joblens/spool", path, "folder",
        "where joblens-export keeps what a sink has not confirmed; it belongs to the user joblens")
    spool_bytes: int = _knob("1073741824", integer(0, 1 << 44), "bytes",
        "the most that is kept there for each sink; the oldest is dropped first, and counted. 0: nothing is kept")
    spool_seconds: float = _knob("604800", number(1, 1e9), "seconds",
        "the longest that a record is kept there")
    spool_fsync: str = _knob("segment", one_of("never", "segment", "always"), "word",
        "when a spool is forced to the disk, in case the machine goes down: never, every 8 MiB (segment), or "
        "at each write (always). A killed process loses nothing either way")
    export_max_bytes: int = _knob("536870912", integer(1 << 26, 1 << 40), "bytes",
        "memory beyond which joblens-export starts anew, because a sink leaks; its queues go to the spool")
    get_max_bytes: int = _knob("1073741824", integer(0, 1 << 50), "bytes",
        "the greatest file of a running job that `joblens get` fetches from this node. 0: none but empty ones")
    remote_commands: bool = _at_restart("false", boolean, "true or false",
        "take commands from afar, which a job's access point has signed. It needs the Python package cryptography "
        "(`make install EXTRAS=relay`), and JobLensKey in STARTD_JOB_ATTRS")
    staff_keys: str = _knob("/etc/joblens/staff.keys", path, "file",
        "whose keys count here as those of the site's staff, with JOBLENS_REMOTE_COMMANDS: docs/admin.md. A file that "
        "root alone can write, which is read at each command")
    door_key: str = _at_restart("/etc/joblens/door.key", path, "file",
        "the key by which joblens-door signs, on an access point; a file of root's alone, made if it is missing")
    door_socket: str = _at_restart("/run/joblens-door.sock", path, "file",
        "where people ask joblens-door to vouch for them, on an access point")
    door_afar_socket: str = _at_restart("", path_or_none, "file",
        "where joblens-relay hands joblens-door requests of users who are elsewhere, on an access point: "
        "/run/joblens-door-afar.sock. Not set: it takes none")
    relay_url: str = _at_restart("", str, "URL",
        "the site's relay server, to which joblens-relay connects: wss://relay.example.org/")
    relay_token_file: str = _at_restart("/etc/joblens/relay.token", path, "file",
        "the token by which the relay server knows this machine; a file of root's alone")
    relay_ca_file: str = _at_restart("", path_or_none, "file",
        "the authorities by which joblens-relay knows the relay server, in PEM; without it those of the system")
    relay_certificate_file: str = _at_restart("", path_or_none, "file",
        "this machine's certificate, in PEM, by which the site's proxy knows it; joblens-relay then has no token")
    relay_key_file: str = _at_restart("", path_or_none, "file",
        "the key of that certificate, if that file does not have it; a file of root's alone")
    relay_socket: str = _at_restart("", path_or_none, "file",
        "where users of an access point hand over what is to be carried: /run/joblens-relay.sock. Not set on nodes")
    relay_server: str = _knob("", str, "URL",
        "the relay server by which users of this machine reach their jobs of an access point elsewhere: "
        "wss://relay.example.org/. A user sets it in ~/.condor/user_config")
    relay_server_token_file: str = _knob("", path_or_none, "file",
        "the user's token for it, in a file of his alone; not set: .joblens/relay.token in his home")
    hub_key: str = _at_restart("", str, "key",
        "the key by which the relay server signs entries, as `joblens control key` says there: ed25519:... Without it "
        "a node takes no entries")
    hub_may: str = _knob("numbers", one_of("none", "numbers", "levels"), "none, numbers or levels",
        "what the relay server may do here by its own key: nothing, ask for numbers of jobs, or also change their "
        "levels by entries")
    hub_max_level: Level = _knob("io", level, "level",
        "the closest that jobs are watched because of an entry, if JOBLENS_MAX_LEVEL allows it")
    hub_pages: str = _knob("", page, "address",
        "where people look at the pages of the site's hub, for `joblens job ID --web`: https://joblens.example.org")
    event_log_dir: str = _at_restart("/var/lib/joblens/eventlog", path, "folder",
        "where joblens-eventlog keeps its cursor in HTCondor's EVENT_LOG, on an access point")
    source: str = _at_restart("auto", one_of("auto", "bpf", "procfs"), "auto, bpf or procfs",
        "where the numbers come from: counters in the kernel (bpf), or /proc and cgroup files (procfs). With "
        "auto, bpf if the kernel and joblensd's capabilities allow it, else procfs")
    base_cgroup: str = _at_restart("auto", str, "cgroup",
        "the cgroup directly below which slots appear, as a path below the cgroup v2 mount; auto: found from "
        "joblensd's own cgroup and BASE_CGROUP")
    run_dir: str = _at_restart("/run/joblens", path, "folder",
        "socket and shared memory; the job wrapper's helper knows the default alone")
# fmt: on


KNOBS: tuple[Knob, ...] = tuple(
    Knob(name=PREFIX + field.name.upper(), attribute=field.name, **field.metadata)
    for field in dataclasses.fields(Config)
)
