"""The table of system calls: made from one source, and right about the kernel's numbers."""

from __future__ import annotations

import errno
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from condor_joblens.tracer._bpf import lib

from condor_joblens.model import classes
from condor_joblens.sample import io_counters

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = CHECKOUT / "bpf_programs" / "io"
GENERATED = (PROGRAMS / "syscalls.h").read_text()


@pytest.fixture(scope="module")
def table() -> ModuleType:
    specification = importlib.util.spec_from_file_location("syscalls", PROGRAMS / "syscalls.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def entries(architecture: str) -> dict[str, tuple[int, str, int]]:
    """Name -> number, class and kind, as the generated header has them."""
    part = GENERATED.split(f"__TARGET_ARCH_{architecture})")[1].split("#e")[0]
    found = re.findall(r"\[(\d+)\] = CALL\((\d+), (\w+)\),\s/\* (\w+) \*/", part)
    return {name: (int(number), kind, int(group)) for number, group, kind, name in found}


@pytest.mark.parametrize("architecture", ["x86", "arm64"])
def test_calls_that_are_singled_out_have_the_table_s_numbers(table: ModuleType, architecture: str) -> None:
    part = GENERATED.split(f"__TARGET_ARCH_{architecture})")[1].split("#e")[0]
    found = {name.lower(): int(number) for name, number in re.findall(r"#define NUMBER_(\w+) (\d+)", part)}
    assert found == {name: entries(architecture)[name][0] for name in table.SINGLED_OUT}


@pytest.mark.parametrize("architecture", ["x86", "arm64"])
def test_the_header_says_what_the_table_says(table: ModuleType, architecture: str) -> None:
    for name, (_, kind, group) in entries(architecture).items():
        assert table.NAMES[name] == (list(classes.SYSCALLS)[group], kind), name


@pytest.mark.parametrize(
    ("architecture", "name", "number"),
    [
        ("x86", "read", 0), ("x86", "openat", 257), ("x86", "copy_file_range", 326), ("x86", "openat2", 437),
        ("arm64", "read", 63), ("arm64", "openat", 56), ("arm64", "copy_file_range", 285), ("arm64", "openat2", 437),
        ("arm64", "sendfile", 71), ("arm64", "newfstatat", 79),
    ],
)  # fmt: skip
def test_numbers_are_the_kernels(architecture: str, name: str, number: int) -> None:
    assert entries(architecture)[name][0] == number


def test_numbers_are_those_of_this_machines_headers(table: ModuleType) -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.fail("linux-libc-dev is not installed: run `make test`, which installs it")
    known = entries("x86")
    for name, number in table.numbers(header.read_text()).items():
        if name in table.NAMES:
            assert known[name][0] == number, name


def test_made_again_it_is_the_same(table: ModuleType) -> None:
    numbers = [
        {name: number for name, (number, _, _) in entries(architecture).items()} for architecture in ("x86", "arm64")
    ]
    assert table.generate(*numbers) == GENERATED


def test_no_call_is_in_two_classes(table: ModuleType) -> None:
    names = [name for kinds in table.TABLE.values() for text in kinds.values() for name in text.split()]
    assert len(names) == len(set(names))
    assert set(table.TABLE) <= set(classes.SYSCALLS)


def test_calls_whose_result_is_bytes_are_in_classes_with_bytes(table: ModuleType) -> None:
    for name, (group, kind) in table.NAMES.items():
        assert (kind in ("READS", "WRITES", "COPIES", "SPLICES", "SENDS")) <= (group in classes.WITH_BYTES), name


def test_errors_have_the_numbers_of_this_machine() -> None:
    part = GENERATED.split("#define ERRORS_BY_NUMBER")[1]
    lines = re.findall(r"\[(\d+)\] = (\d+),\s/\* (\w+)", part)
    found = {name: (int(number), int(place)) for number, place, name in lines}
    assert found == {name: (getattr(errno, name), place) for place, name in enumerate(classes.ERRNOS)}


def test_the_kernels_side_has_as_many_classes_as_ours() -> None:
    assert (len(classes.SYSCALLS), len(classes.FILESYSTEMS)) == (lib.CALL_CLASSES, lib.FILE_CLASSES)
    assert len(classes.ERRNOS) + 1 == lib.ERROR_CLASSES
    files = (PROGRAMS / "files.bpf.h").read_text()
    order = re.findall(r"FILE_(\w+)", files.split("enum {")[1].split("}")[0])
    assert order == [name.upper() for name in classes.FILESYSTEMS]


def test_every_kind_of_the_uncounted_has_a_name() -> None:
    assert sorted(io_counters.UNCOUNTED) == list(range(len(io_counters.UNCOUNTED)))
    assert len(io_counters.UNCOUNTED) <= lib.UNCOUNTED_KINDS
