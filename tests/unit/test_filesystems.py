"""Types and mounts of file systems, and the classes they belong to."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common import config_parser
from condor_joblens.common.filesystem_classes import parse
from condor_joblens.tracer.filesystems import CLASSES, KNOWN, Mounts, built_in, class_of, mount_prefixes


def named(classes: dict[str, int]) -> dict[str, str]:
    return {name: CLASSES[number] for name, number in classes.items()}


@pytest.mark.parametrize(
    ("filesystem", "has_device", "known"),
    [
        ("fuse.cvmfs2", False, "Cvmfs"),
        ("fuse.sshfs", False, "Fuse"),
        ("fuse", False, "Fuse"),
        ("nfs4", False, "Nfs"),
        ("btrfs", False, "Local"),
        ("newfs", True, "Local"),
        ("newfs", False, "Other"),
        ("proc", False, "Other"),
    ],
)
def test_a_type_has_the_class_that_the_table_says(filesystem: str, has_device: bool, known: str) -> None:
    assert CLASSES[class_of(filesystem, has_device, built_in())] == known


def test_every_class_that_has_types_is_one_there_is_and_no_type_is_in_two() -> None:
    types = " ".join(KNOWN.values()).split()
    assert set(KNOWN) <= set(CLASSES) and len(types) == len(set(types))
    # the kernel compares that many characters
    assert max(map(len, types)) < 40


def test_a_site_names_its_own() -> None:
    types = parse("fuse.cvmfs2=local, fuse.mysite=EOS wekafs=local,")
    assert named(types.numbers) == {"fuse.cvmfs2": "Local", "fuse.mysite": "Eos", "wekafs": "Local"}
    assert types.problems == ()


@pytest.mark.parametrize("wrong", ["x", "=eos", "x=", "x=nothing", "x=y=eos", "a" * 40 + "=eos", "t\x07=eos"])
def test_nonsense_is_one_line_and_the_rest_is_used(wrong: str) -> None:
    types = parse(f"one=eos, {wrong}, two=nfs")
    assert named(types.numbers) == {"one": "Eos", "two": "Nfs"}
    (problem,) = types.problems
    assert problem.isprintable() and "cvmfs" in problem
    _, (line,) = config_parser.parse({"JOBLENS_FILESYSTEM_CLASSES": f"one=eos, {wrong}, two=nfs"})
    assert line.startswith("JOBLENS_FILESYSTEM_CLASSES: ") and line.endswith("correct it and run condor_reconfig")


@given(st.text())
def test_whatever_is_written_there_is_understood_or_a_line_of_its_own(text: str) -> None:
    types = parse(text)
    assert all(0 <= number < len(CLASSES) and name.isprintable() for name, number in types.numbers.items())
    assert all("\n" not in problem for problem in types.problems)


MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 0:40 / /cvmfs/atlas.cern.ch ro,nosuid - fuse.cvmfs2 cvmfs2 ro
31 22 0:41 / /data\\040disk/a rw shared:5 master:2 - nfs4 server:/export rw
32 22 0:42 / /data\\040disk/a rw - tmpfs tmpfs rw
not a line
"""


def test_mount_points_end_with_a_slash_and_the_last_mount_counts() -> None:
    prefixes = mount_prefixes(MOUNTINFO, built_in())
    assert {path: CLASSES[number] for path, number in prefixes.items()} == {
        b"/": "Local", b"/proc/": "Other", b"/cvmfs/atlas.cern.ch/": "Cvmfs", b"/data disk/a/": "Tmpfs",
    }  # fmt: skip


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x85", "\u2028"])
def test_a_mount_point_may_hold_what_ends_a_line_elsewhere(end: str) -> None:
    found = mount_prefixes(f"30 22 0:26 / /home/a{end}b rw - fuse.sshfs host rw\n", built_in())
    assert found == {f"/home/a{end}b/".encode(): CLASSES.index("Fuse")}


@given(st.lists(st.text(alphabet=string.printable + "\\é", max_size=300), max_size=20))
def test_no_mount_table_breaks_it(lines: list[str]) -> None:
    prefixes = mount_prefixes("\n".join(lines), built_in())
    assert all(path.endswith(b"/") and len(path) < 248 for path in prefixes)


def test_more_mounts_than_there_is_room_for_leave_the_longest_out() -> None:
    lines = [f"1 1 0:1 / /auto/{'x' * (number % 50)}{number} rw - nfs4 s rw" for number in range(5000)]
    prefixes = mount_prefixes("\n".join(lines), built_in())
    assert len(prefixes) == 4000


def test_this_machines_mounts_are_read_and_do_not_change_by_themselves() -> None:
    mounts = Mounts()
    assert b"/" in mount_prefixes(mounts.read(), built_in())
    mounts.changed()
    assert not mounts.changed()
    mounts.close()
