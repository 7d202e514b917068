"""What a path of a process leads to, by its mounts: containers, a private /tmp, mounts over mounts, nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.owner_commands.mount_table import MountTable, beneath

SCRATCH = b"/execute/dir_7/scratch"
NODE = b"""\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:22 / /proc rw shared:2 - proc proc rw
23 21 8:2 / /execute rw shared:3 - ext4 /dev/sdb1 rw
24 21 0:23 / /tmp rw shared:4 - tmpfs tmpfs rw
"""
PRIVATE_TMP = NODE.replace(b"shared", b"master") + b"99 24 8:2 /dir_7/scratch/tmp /tmp rw - ext4 /dev/sdb1 rw\n"
CONTAINER = b"""\
41 30 0:50 / / ro - overlay overlay ro
42 41 8:2 /dir_7/scratch /srv rw - ext4 /dev/sdb1 rw
43 41 8:2 /dir_7/scratch/tmp /tmp rw - ext4 /dev/sdb1 rw
44 42 0:51 / /srv/over rw - tmpfs tmpfs rw
45 41 8:1 /home/alice\\040b /home/alice rw - ext4 /dev/sda1 rw
"""
FOLDER = (b"8:2", b"/dir_7/scratch")


@pytest.mark.parametrize(
    "table, path, place",
    [
        (NODE, SCRATCH, FOLDER),
        (NODE, b"/executed", (b"8:1", b"/executed")),
        (NODE, b"/tmp/x", (b"0:23", b"/x")),
        (PRIVATE_TMP, b"/tmp", (b"8:2", b"/dir_7/scratch/tmp")),
        (PRIVATE_TMP, b"/tmp/a/b", (b"8:2", b"/dir_7/scratch/tmp/a/b")),
        (CONTAINER, b"/srv", FOLDER),
        (CONTAINER, b"/srv/over/x", (b"0:51", b"/x")),
        (CONTAINER, b"/home/alice/x", (b"8:1", b"/home/alice b/x")),
        (CONTAINER, b"/", (b"0:50", b"/")),
        # a mount hides those that were below it before
        (NODE + b"25 23 0:30 / /execute/dir_7 rw - tmpfs t rw\n" + b"26 21 0:31 / /exec rw - tmpfs t rw\n", SCRATCH,
         (b"0:30", b"/scratch")),
        (b"23 21 8:2 / /a/b rw - ext4 x rw\n" + NODE + b"30 21 0:40 / /a rw - tmpfs t rw\n", b"/a/b/c",
         (b"0:40", b"/b/c")),
        # one on the other
        (NODE + b"25 24 0:30 / /tmp rw - tmpfs t rw\n", b"/tmp/x", (b"0:30", b"/x")),
        (NODE + b"25 21 0:30 / / rw - tmpfs t rw\n", b"/x", (b"0:30", b"/x")),
        # nobody knows
        (b"", b"/x", None),
        (b"23 21 8:2 / /execute rw - ext4 x rw\n", b"/x", None),
        (b"23 24 8:2 / / rw - ext4 x rw\n24 23 8:3 / / rw - ext4 x rw\n", b"/x", None),
        (b"21 1 8:1 / / rw - ext4 x rw", b"/x", None),  # the end of a table that is too long
        (b"\xff\x00 nonsense\n1 2 3\n- - - - - - -\n21 1 8:1 nowhere nothing rw - x y z\n", b"/x", None),
    ],
)  # fmt: skip
def test_a_path_leads_to_a_place(table: bytes, path: bytes, place: tuple[bytes, bytes] | None) -> None:
    assert MountTable(table).place(path) == place


def test_a_place_has_the_paths_that_lead_there_and_are_not_hidden() -> None:
    assert MountTable(NODE).paths(FOLDER) == [SCRATCH]
    assert MountTable(CONTAINER).paths(FOLDER) == [b"/srv"]
    assert MountTable(CONTAINER).paths((b"8:2", b"/dir_7/scratch/tmp")) == [b"/srv/tmp", b"/tmp"]
    assert MountTable(CONTAINER).paths((b"8:2", b"/dir_8/scratch")) == []
    hidden = NODE + b"25 23 0:30 / /execute/dir_7 rw - tmpfs t rw\n"
    assert MountTable(hidden).paths(FOLDER) == []


def test_a_place_has_a_name_in_a_folder() -> None:
    assert beneath(FOLDER, FOLDER) == b"."
    assert beneath(FOLDER, (b"8:2", b"/dir_7/scratch/a/b")) == b"a/b"
    for other in ((b"8:1", b"/dir_7/scratch/a"), (b"8:2", b"/dir_7/scratch2"), (b"8:2", b"/dir_7")):
        assert beneath(FOLDER, other) is None
    assert beneath((b"8:2", b"/"), (b"8:2", b"/a")) == b"a"


_NUMBERS = st.integers(1, 6).map(lambda number: b"%d" % number)
_PARTS = st.lists(st.sampled_from([b"a", b"b", b"tmp", b"\\040"]), max_size=3)
_PATHS = _PARTS.map(lambda parts: b"/" + b"/".join(parts))


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _PATHS, _PATHS), max_size=8), _PATHS)
def test_whatever_a_job_mounts_there_is_an_answer(mounts: list[tuple[bytes, ...]], path: bytes) -> None:
    lines = [b"%b %b 8:1 %b %b rw - ext4 x rw\n" % mount for mount in mounts]
    table = MountTable(b"".join(lines))
    for each in (path, b"/", b"/a/b/tmp"):
        place = table.place(each)
        assert place is None or (place[0] == b"8:1" and place[1].startswith(b"/"))
    assert all(each.startswith(b"/") for each in table.paths((b"8:1", path)))
