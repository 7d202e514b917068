"""What the programs at basic keep in the kernel: a little for each job, however many CPUs there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from ground import BPFFS

from condor_joblens.tracer.bpf import Tracer

pytestmark = pytest.mark.guest

MOST_A_JOB = 2048
NO_PREALLOC = 1
PER_CPU = (5, 6, 10)  # include/uapi/linux/bpf.h: hash, array and LRU hash with a value a CPU


def maps_of(slots: int, pins: Path) -> dict[str, dict[str, int]]:
    """What the kernel says about each map of a tracer for so many slots."""
    tracer = Tracer(slots, pins)
    found = {}
    for name, descriptor in tracer.basic.maps.items():
        lines = [line.split() for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()]
        told = dict(line for line in lines if len(line) == 2)
        found[name] = {what: int(told[f"{what}:"]) for what in ("map_type", "max_entries", "memlock")}
        # made entry by entry, and at basic there are none; before 6.4 the kernel tells what it could become
        if int(told["map_flags:"], 0) & NO_PREALLOC:
            del found[name]
    tracer.close()
    return found


def test_a_job_at_basic_takes_two_kilobytes_at_most_on_any_machine(name: str) -> None:
    few, many = maps_of(64, BPFFS / name), maps_of(64 + 1024, BPFFS / name)
    grow = [each for each in few if many[each]["max_entries"] > few[each]["max_entries"]]
    assert "jl_counters" in grow
    assert not [each for each in grow if many[each]["map_type"] in PER_CPU]
    more = sum(many[each]["memlock"] - few[each]["memlock"] for each in grow)
    assert 0 < more / 1024 <= MOST_A_JOB
