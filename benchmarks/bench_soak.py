#!/usr/bin/env python3
"""What is left of jobs that are over: thousands of short ones go through one joblensd, and nothing of it has grown.

Real programs in the kernel and real cgroups, as in bench_agent.py; jobs of a twentieth of a second follow one another
in a few slots, every second one at level io. Before and after, when all is quiet, the same things are counted:
joblensd's memory and descriptors, entries of the kernel's maps, what is pinned, and files. A job at level io stays all
the time, so that its programs and maps are there to be counted.

What is meant to fill up once (the last thousand runs are kept) is full before counting begins.

With `--level profile` each job counts for a third of a second, and is sampled. Then what samples need is counted too:
the memory and descriptors of the reader, mappings and unwind tables in the kernel. Few artifacts are kept, so that they
are full before.

    bench_soak.py [--jobs N] [--level profile]      as root, after `make build` and bpftool; 2000 jobs
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from bench_agent import MIB, Agent, Crowd, Ground, _until, ground, knobs  # noqa: E402
from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from results import Section  # noqa: E402

from condor_joblens.jobs.run_table import Ended  # noqa: E402
from condor_joblens.model.events import EventKind  # noqa: E402
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

READER = "condor_joblens.profiling.sample_reader"

KEY_BYTES = 512
SETTLE = 12.0
"""Seconds: folders of jobs that are over are watched for five, connections walked over every five."""


def through(place: Ground, jobs: int, kind: str, events: EventReader) -> tuple[float, Counter[str]]:
    """So many jobs of a kind of crowd.c (short, busy) from their starts to their ends: seconds, and events by kind."""
    paths = [place.execute, place.base, place.folder / "ad.short", place.folder / "activate"]
    command = [place.folder / "crowd", *paths, jobs, kind, AT_A_TIME]
    began = time.monotonic()
    process = subprocess.Popen([str(part) for part in command], start_new_session=True)
    place.started.append(process)
    happened: Counter[str] = Counter()
    while process.poll() is None:
        happened += told(events)
        time.sleep(0.1)
    if process.returncode != 0:
        raise SystemExit("bench_soak: the jobs could not be run")
    return time.monotonic() - began, happened


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


def soak(jobs: int, level: str, section: Section) -> None:
    """Fills up, counts, lets the jobs through, counts again."""
    is_profile = level == "profile"
    kind, more = ("busy", {"JOBLENS_ARTIFACT_BYTES": str(ARTIFACT_BYTES)}) if is_profile else ("short", {})
    with ground(level, {**knobs(64, level), **more}) as place:
        (place.folder / "ad.short").write_text((place.folder / "ad").read_text().partition("\n")[2])
        agent = Agent(place)
        Crowd(place, 1)
        _until(lambda: agent.known(level) == 1, f"a job at {level}")
        events = EventReader(str(place.run_dir / "events"))
        through(place, FILL, kind, events)
        quiet(agent)
        told(events)
        before, cpu = counted(place, agent, is_profile), agent.cpu()
        began = time.time()
        took, happened = through(place, jobs, kind, events)
        used = agent.cpu() - cpu
        quiet(agent)
        happened += told(events)
        after = counted(place, agent, is_profile)
        for name, value in before.items():
            most = value + MORE_MEMORY if name.startswith(("resident", "bytes")) else value
            section.add(name, after[name], "", most, f"{value:g} before")
        section.add("jobs not seen to start", jobs - happened["RUN_START"], "", 0)
        section.add("jobs not seen to end", jobs - happened["RUN_END"], "", 0)
        section.add("losses", happened["LOSS"] + events.missed, "", 0)
        rows = Reader(str(place.run_dir / "ended")).rows()[0]
        section.add(f"of the last thousand jobs at {level}", int((rows["level"] == level.encode()).sum()), "")
        if is_profile:
            kept = sum(path.stat().st_mtime > began for path in files(place, True))
            section.add("artifacts of these jobs that are kept", kept, "", 1, "the newest", is_least=True)
        note = f"{jobs / took:.0f} jobs a second"
        section.add("a job from start to end: joblensd's CPU", 1000 * used / jobs, "ms", None, note)
        agent.stop()


def counted(place: Ground, agent: Agent, is_profile: bool) -> dict[str, float]:
    """All of it."""
    return census(place, agent) | (of_profiles(agent) if is_profile else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--level", choices=("io", "profile"), default="io", help="of the jobs (default: io)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    is_profile = options.level == "profile"
    each = "of 330 ms of CPU time" if is_profile else "of 50 ms"
    which = "all at level profile" if is_profile else "every second one at level io"
    section = Section(
        "soak_profile" if is_profile else "soak",
        "What is left of jobs that were profiled" if is_profile else "What is left of jobs that are over",
        f"{options.jobs:,} jobs {each} through one joblensd, {AT_A_TIME} at a time, {which}. "
        f"{FILL:,} jobs before them fill the list of ended jobs. The target is the state before.",
    )
    soak(options.jobs, options.level, section)
    section.write()
    for name in section.missed:
        print(f"bench_soak: {name} is more than before")
    return 1 if section.missed else 0


if __name__ == "__main__":
    sys.exit(main())
