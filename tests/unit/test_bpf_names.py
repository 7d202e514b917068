"""What bpftool shows of us says whose it is: names begin with jl_, are whole in the kernel, and mean one thing."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from condor_joblens.tracer._bpf import ffi, lib

from condor_joblens.tracer import loader

LONGEST = 15
"""Characters that the kernel keeps of a name: BPF_OBJ_NAME_LEN - 1 (include/uapi/linux/bpf.h)."""

OBJECTS = sorted(path.name.partition(".")[0] for path in loader.OBJECTS.glob("*.bpf.o"))
INSTEAD = {
    "switch_reads": "switch",
    "syscalls_reads": "syscalls",
    "fuse_channels": "fuse",
    "sample_old": "sample",
    "waits_old": "waits",
    "crash_old": "crash",
}
"""Objects of which never more than one is loaded: they may have programs of the same name."""


def names(stem: str) -> tuple[list[str], list[str]]:
    """The programs and the maps of an object, as they are given to the kernel."""
    opened = lib.open_object(os.fsencode(loader.OBJECTS / f"{stem}.bpf.o"), f"jl_{stem}".encode(), ffi.NULL)
    assert opened != ffi.NULL
    try:
        maps = [loader._name(lib.bpf_map__name(each)) for each in loader.each_map(opened)]
        return [name for name, _ in loader.each_program(opened)], maps
    finally:
        lib.bpf_object__close(opened)


def test_there_are_objects() -> None:
    assert len(OBJECTS) >= 9


@pytest.mark.parametrize("stem", OBJECTS)
def test_every_name_has_the_prefix_and_is_whole_in_the_kernel(stem: str) -> None:
    programs, maps = names(stem)
    assert programs and maps
    assert [name for name in programs + maps if not name.startswith("jl_") or len(name) > LONGEST] == []


def test_no_two_programs_have_one_name() -> None:
    found = [name for stem in OBJECTS if stem not in INSTEAD for name in names(stem)[0]]
    assert [name for name, times in Counter(found).items() if times > 1] == []


def test_a_map_and_a_program_never_have_one_name() -> None:
    programs = {name for stem in OBJECTS for name in names(stem)[0]}
    assert programs.isdisjoint(name for stem in OBJECTS for name in names(stem)[1])
