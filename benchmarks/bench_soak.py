#!/usr/bin/env python3
"""What is left of jobs that are over: thousands of short ones go through one joblensd, and nothing of it has grown.

Real programs in the kernel and real cgroups, as in bench_agent.py; jobs of a twentieth of a second follow one another
in a few slots, every second one at level io. Before and after, when all is quiet, the same things are counted:
joblensd's memory and descriptors, entries of the kernel's maps, what is pinned, and files. A job at level io stays all
the time, so that its programs and maps are there to be counted.

What is meant to fill up once (the last thousand runs are kept) is full before counting begins.

With `--level profile` each job counts for a while, and is sampled often. Then what samples need is counted too: the
memory and descriptors of the reader, mappings and unwind tables in the kernel. Few artifacts are kept, so that they are
full before.

Every half minute a line says how many jobs are over, and what joblensd and each of its processes have resident. At
SIGTERM, or Ctrl-C, no further job starts; what is left of those until then is counted and kept as the result.

    bench_soak.py [--jobs N] [--level profile]      as root, after `make build` and bpftool; 2000 jobs
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from bench_agent import MIB, PROCESSES, Agent, Crowd, Ground, _until, ground, knobs  # noqa: E402
from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from results import Section  # noqa: E402

from condor_joblens.jobs.run_table import Ended  # noqa: E402
from condor_joblens.model.events import EventKind  # noqa: E402
from condor_joblens.profiles import pprof  # noqa: E402
from condor_joblens.profiles.profile import NOT_LOOKED_AT  # noqa: E402
from condor_joblens.shm.artifact_header import HEADER_BYTES  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402
from condor_joblens.shm.ring import EventReader  # noqa: E402
from condor_joblens.tracer import map_layout  # noqa: E402

AT_A_TIME = 8
FILL = Ended.KEPT + 200
"""Jobs before counting begins."""

MORE_MEMORY = 2.0
"""Megabytes that resident memory may differ by: what the allocator happens to keep."""

ARTIFACT_BYTES = 1 << 20
"""That are kept, at level profile: of a few hundred jobs."""

HASHES = ("jl_slot_index", "jl_endpoints", "jl_peak_locks")
OF_PROFILES = ("jl_mappings", "jl_unwind_rows", "jl_pythons")
"""Maps that nobody has pinned."""

BUSY_MS, PROFILE_HZ = 40, 999
"""Of a job at level profile: CPU time, and how often it is sampled. It has as many samples as in 400 ms at work."""

READER, LOOKERS = "condor_joblens.profiling.sample_reader", "condor_joblens.profiling.starter"
"""The modules of what starts the reader of samples, and of what starts children that open files of jobs."""

SAY_EVERY = 30.0
"""Seconds between two lines of how far it is."""

UNKNOWN = ("(unknown code)", NOT_LOOKED_AT.function)
"""Functions of frames of which nothing is known (profiling/names.py)."""

KEY_BYTES = 512
SETTLE = 12.0
"""Seconds: folders of jobs that are over are watched for five, connections walked over every five."""


@dataclass
class Course:
    """The way of jobs through joblensd: events by kind, and what was resident on the way."""

    agent: Agent
    events: EventReader
    jobs: int  # that there are to be
    happened: Counter[str] = field(default_factory=Counter)
    own: list[float] = field(default_factory=list)  # MB of joblensd, at each line
    is_enough: bool = False  # no further job is to start

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._due = self._began + SAY_EVERY

    @property
    def over(self) -> int:
        """Jobs that have ended."""
        return self.happened["RUN_END"]

    def stop(self, *_: object) -> None:
        """Somebody wants the result now."""
        self.is_enough = True

    def tenths(self) -> list[float]:
        """What joblensd had resident, ten times on the way."""
        return self.own[:: max(1, len(self.own) // 10)]

    def look(self) -> None:
        """Takes what has happened, and says now and then how far it is."""
        self.happened += told(self.events)
        if time.monotonic() >= self._due:
            self._due += SAY_EVERY
            self.say()

    def say(self) -> None:
        """One line, with resident megabytes."""
        self.own.append(own_memory(self.agent))
        spent = time.monotonic() - self._began
        resident = {"joblensd": self.own[-1], **resident_children(self.agent)}
        words = ", ".join(f"{name} {megabytes:.1f}" for name, megabytes in resident.items())
        print(
            f"  {self.over:,} of {self.jobs:,} jobs, {self.over / spent:.1f} a second; resident, MB: {words}",
            flush=True,
        )


def resident_children(agent: Agent) -> dict[str, float]:
    """Resident megabytes of each process that joblensd keeps, by its module, with its children if they are the same."""
    found: Counter[str] = Counter()
    for child in agent.process.children(recursive=True):
        try:
            words, resident = child.cmdline(), child.memory_info().rss / MIB
        except psutil.Error:  # it has ended meanwhile
            continue
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else Path(words[0]).name if words else child.name()
        found[".".join(module.split(".")[-2:])] += resident
    return dict(found)


def through(place: Ground, course: Course, kind: str) -> int:
    """Jobs of a kind of crowd.c (short, busy) from their starts to their ends: how many."""
    paths = [place.execute, place.base, place.folder / "ad.short", place.folder / "activate"]
    command = [place.folder / "crowd", *paths, course.jobs, kind, AT_A_TIME]
    process = subprocess.Popen([str(part) for part in command], start_new_session=True, stdout=subprocess.PIPE)
    place.started.append(process)
    while process.poll() is None:
        course.look()
        time.sleep(0.1)
        if course.is_enough:  # those that run go on
            process.terminate()
    assert process.stdout is not None
    if process.returncode != 0:
        raise SystemExit("bench_soak: the jobs could not be run")
    return int(process.stdout.read())


def census(place: Ground, agent: Agent) -> dict[str, float]:
    """Everything that must not grow, by name."""
    child = agent.memory()[2]
    pins = Path(f"/proc/{agent.process.pid}/root/sys/fs/bpf/joblens")
    pinned = sorted(str(path.relative_to(pins)) for path in pins.rglob("*"))
    maps = {path.name: path for path in pins.glob("*/*/maps/*")}
    counters = array(maps["jl_counters"], map_layout.COUNTERS)
    waiting = array(maps["jl_io_waiting"], map_layout.IO_WAITING)
    found: dict[str, float] = {
        "resident memory of joblensd, /run apart, MB": own_memory(agent),
        "resident memory of the policy child, MB": child,
        "descriptors of joblensd": agent.process.num_fds(),
        "descriptors of its children": sum(each.num_fds() for each in agent.process.children()),
        "its children": len(agent.process.children()),
        "watches over folders": watches(agent),
        "runs": agent.known(),
        "slots counted": int((counters["state"] != map_layout.FREE).sum()),
        "slots counted at io": int((counters["io_key"] > 0).sum()),
        "threads that wait, at io": int((waiting["since_ns"] > 0).sum()),
        "pins": len(pinned),
        "files in the folder of /run": len(files(place, False)),
        "bytes there, MB": sum(path.stat().st_size for path in files(place, False)) / MIB,
        "bytes of artifacts, MB": sum(path.stat().st_size for path in files(place, True)) / MIB,
        "folders of starters": len(list(place.execute.iterdir())),
        "cgroups": sum(1 for _ in place.base.rglob("*/")),
    }
    return found | {f"entries of {name}": entries(maps[name]) for name in HASHES}


def of_profiles(agent: Agent) -> dict[str, float]:
    """The same of what samples need."""
    (starter,) = (each for each in agent.process.children() if READER in each.cmdline())
    (reader,) = starter.children()
    found: dict[str, float] = {
        "resident memory of the reader of samples that is its own, MB": reader.memory_full_info().uss / MIB,
        "descriptors of the reader of samples": reader.num_fds(),
    }
    return found | {f"entries of {name}": count for name, count in unpinned(agent).items()}


def sampling_cpu(agent: Agent) -> float:
    """CPU seconds of what samples need beside joblensd: the reader, and children that open files of jobs."""
    starters = [each for each in agent.process.children() if {READER, LOOKERS} & {*each.cmdline()}]
    times = [each.cpu_times() for starter in starters for each in (starter, *starter.children())]
    return sum(each.user + each.system + each.children_user + each.children_system for each in times)


def in_artifacts(place: Ground, since: float) -> tuple[int, float]:
    """Of what is kept of jobs since then (Unix time): samples, and the percentage whose innermost function is known."""
    total = known = 0
    for path in files(place, True):
        if path.suffix == ".profile" and path.stat().st_mtime > since:
            profile = pprof.decode(path.read_bytes()[HEADER_BYTES:])
            total += profile.samples
            for stack, count in profile.stacks.items():
                known += count * (stack.frames[-1].function not in UNKNOWN)
    return total, 100 * known / max(1, total)


def unpinned(agent: Agent) -> dict[str, int]:
    """Entries of joblensd's maps by name: those that it has open."""
    infos = [path.read_text() for path in Path(f"/proc/{agent.process.pid}/fdinfo").iterdir()]
    numbers = {match[1] for info in infos if (match := re.search(r"^map_id:\s+(\d+)$", info, re.M))}
    found = {}
    for number in sorted(numbers):
        name = bpftool("map", "show", "id", number).get("name", "")
        if name in OF_PROFILES:
            found[name] = len(bpftool("map", "dump", "id", number))
    return found


def bpftool(*words: str) -> Any:
    """What it says, as JSON."""
    return json.loads(subprocess.run(["bpftool", "-j", *words], check=True, capture_output=True, text=True).stdout)


def held(place: Ground, agent: Agent) -> Counter[str]:
    """What there is more than one number of, by name: joblensd's descriptors, and files in the folder of /run."""
    links = (os.readlink(path) for path in Path(f"/proc/{agent.process.pid}/fd").iterdir())
    kinds = Counter(re.sub(r"\d+", "N", link) for link in links)
    return kinds + Counter(str(path.relative_to(place.run_dir)) for path in files(place, False))


def files(place: Ground, of_artifacts: bool) -> list[Path]:
    """Below /run: those that are artifacts, or all others."""
    artifacts = place.run_dir / "artifacts"
    found = [path for path in place.run_dir.rglob("*") if path.is_file()]
    return [path for path in found if (artifacts in path.parents) == of_artifacts]


def own_memory(agent: Agent) -> float:
    """Resident megabytes without its files in /run, of which the ring of events fills up."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text().split()
    return sum(int(status[status.index(name) + 1]) for name in ("RssAnon:", "RssFile:")) / 1024


def array(path: Path, dtype: np.dtype[np.void]) -> np.ndarray:
    """All elements of a pinned array."""
    descriptor, found = lib.bpf_obj_get(os.fsencode(path)), []
    value = ffi.new("char[]", dtype.itemsize)
    while lib.bpf_map_lookup_elem(descriptor, ffi.new("__u32 *", len(found)), value) == 0:
        found.append(bytes(ffi.buffer(value)))
    os.close(descriptor)
    return np.frombuffer(b"".join(found), dtype)


def entries(path: Path) -> int:
    """How many a pinned hash has."""
    descriptor, count = lib.bpf_obj_get(os.fsencode(path)), 0
    last, key = ffi.NULL, ffi.new("char[]", KEY_BYTES)
    while lib.bpf_map_get_next_key(descriptor, last, key) == 0:
        last, key, count = key, ffi.new("char[]", KEY_BYTES), count + 1
    os.close(descriptor)
    return count


def watches(agent: Agent) -> int:
    """Its watches by inotify."""
    return sum(path.read_text().count("inotify wd:") for path in Path(f"/proc/{agent.process.pid}/fdinfo").iterdir())


def told(events: EventReader) -> Counter[str]:
    """How many new events of each kind there are."""
    found: Counter[str] = Counter()
    while len(new := events.read()):
        found.update(EventKind(kind).name for kind in new["kind"].tolist())
    return found


def quiet(agent: Agent) -> None:
    """Waits until one run is left."""
    _until(lambda: agent.known() == 1, "the ends of all runs")
    time.sleep(SETTLE)


def soak(jobs: int, fill: int, level: str, section: Section) -> int:
    """Fills up, counts, lets the jobs through, counts again; how many have run."""
    is_profile = level == "profile"
    kind, more = ("short", {})
    if is_profile:
        artifacts, often = str(ARTIFACT_BYTES), str(PROFILE_HZ)
        kind, more = f"busy{BUSY_MS}", {"JOBLENS_ARTIFACT_BYTES": artifacts, "JOBLENS_PROFILE_HZ": often}
    with ground(level, {**knobs(64, level), **more}) as place:
        (place.folder / "ad.short").write_text((place.folder / "ad").read_text().partition("\n")[2])
        agent = Agent(place)
        Crowd(place, 1)
        _until(lambda: agent.known(level) == 1, f"a job at {level}")
        events = EventReader(str(place.run_dir / "events"))
        through(place, Course(agent, events, fill), kind)
        quiet(agent)
        told(events)
        before, cpu = counted(place, agent, is_profile), agent.cpu()
        sampling, had = sampling_cpu(agent) if is_profile else 0.0, held(place, agent)
        course, began = Course(agent, events, jobs), time.time()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, course.stop)
        run = through(place, course, kind)
        took, used = time.time() - began, agent.cpu() - cpu
        quiet(agent)
        course.look()
        course.say()
        after = counted(place, agent, is_profile)
        for name, count in (held(place, agent) - had).items():
            print(f"  {count} more of {name}")
        for name, value in before.items():
            most = value + MORE_MEMORY if name.startswith(("resident", "bytes")) else value
            if name == "entries of jl_mappings":
                most = max(most, PROCESSES)  # of the job that stays
            section.add(name, after[name], "", most, f"{value:g} before")
        way = ", ".join(f"{megabytes:.1f}" for megabytes in course.tenths())
        section.add("the most that joblensd had resident on the way, MB", max(course.own), "", None, f"{way} in turn")
        section.add("jobs not seen to start", run - course.happened["RUN_START"], "", 0)
        section.add("jobs not seen to end", run - course.over, "", 0)
        section.add("losses", course.happened["LOSS"] + events.missed, "", 0)
        rows = Reader(str(place.run_dir / "ended")).rows()[0]
        section.add(f"of the last thousand jobs at {level}", int((rows["level"] == level.encode()).sum()), "")
        if is_profile:
            kept = sum(path.stat().st_mtime > began for path in files(place, True))
            section.add("artifacts of these jobs that are kept", kept, "", 1, "the newest", is_least=True)
            samples, known = in_artifacts(place, began)
            section.add(
                "samples in them", samples, "", 1, f"the innermost function of {known:.0f} % is known", is_least=True
            )
            what = "a job from start to end: CPU of the reader of samples and of what opens its files"
            section.add(what, 1000 * (sampling_cpu(agent) - sampling) / max(1, run), "ms")
        note = f"{run / took:.0f} jobs a second"
        section.add("a job from start to end: joblensd's CPU", 1000 * used / max(1, run), "ms", None, note)
        agent.stop()
    return run


def counted(place: Ground, agent: Agent, is_profile: bool) -> dict[str, float]:
    """All of it."""
    return census(place, agent) | (of_profiles(agent) if is_profile else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--fill", type=int, default=FILL, help=f"how many before counting begins (default: {FILL})")
    parser.add_argument("--level", choices=("io", "profile"), default="io", help="of the jobs (default: io)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench_soak: ended before there was a result"))
    is_profile = options.level == "profile"
    section = Section(
        "soak_profile" if is_profile else "soak",
        "What is left of jobs that were profiled" if is_profile else "What is left of jobs that are over",
        "",
    )
    run = soak(options.jobs, options.fill, options.level, section)
    cut = f" of {options.jobs:,}, then it was interrupted" if run < options.jobs else ""
    each = f"of {BUSY_MS + 50} ms, sampled {PROFILE_HZ} times a second," if is_profile else "of 50 ms"
    which = "all at level profile" if is_profile else "every second one at level io"
    section.explanation = (
        f"{run:,} jobs{cut} {each} through one joblensd, {AT_A_TIME} at a time, {which}. {options.fill:,} jobs before "
        "them fill the list of ended jobs. The target is the state before."
    )
    section.write()
    for name in section.missed:
        print(f"bench_soak: {name} is more than before")
    return 1 if section.missed else 0


if __name__ == "__main__":
    sys.exit(main())
