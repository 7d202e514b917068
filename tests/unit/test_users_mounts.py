"""Files on FUSE that a job's user has mounted are not handed to who reads the samples of all jobs."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from condor_joblens.common import descriptors
from condor_joblens.profiling import program_files, users_mounts
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.users_mounts import is_roots, is_users

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:51 / /cvmfs/a.example.org ro,nosuid - fuse.cvmfs2 cvmfs2 ro,user_id=0,group_id=0,default_permissions,allow_other
41 22 0:52 / /home/alice/m rw,nosuid shared:9 master:2 - fuse.sshfs user_id=0 rw,user_id=1000,group_id=1000,allow_other
42 22 0:53 / /home/alice/n rw,nosuid - fuse x rw,user_id=01,group_id=0
43 22 0:54 / /run rw - tmpfs user_id=0 rw,user_id=0
44 22 0:56 / /host ro,relatime - virtiofs host rw
45 22 0:57 / /home/alice/v rw,nosuid - fuse.virtiofs virtiofs rw,user_id=1000,group_id=1000
46 22 0:58 / /home/alice/w rw,nosuid - virtiofs2 virtiofs rw,user_id=1000
"""


@pytest.mark.parametrize(
    "device, roots",
    [((0, 51), True), ((0, 52), False), ((0, 53), False), ((0, 54), False), ((0, 55), False), ((8, 1), False),
     ((0, 56), True), ((0, 57), False), ((0, 58), False)],
)  # fmt: skip
def test_who_has_mounted_it_says_the_kernel(device: tuple[int, int], roots: bool) -> None:
    """What is mounted in a job's own namespace is not among the node's mounts: there user 0 can be anybody."""
    assert is_roots(MOUNTS, os.makedev(*device)) is roots


def test_a_file_of_another_file_system_is_no_user_s() -> None:
    with open(__file__, "rb") as file:
        assert not is_users(file.fileno())
    assert is_users(1 << 20), "what can't be told is not handed out"


@pytest.mark.parametrize("is_fuse", [False, True])
def test_a_user_s_fuse_is_not_handed_to_the_reader(is_fuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_mounts, "_is_fuse", lambda file: is_fuse)
    process = Process(os.getpid())
    mapping = next(each for each in process.mappings if each.is_code and Path(each.path).is_file())
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        program_files._open_file(theirs, process, mapping.start)
        packet, given = descriptors.receive(ours, 1000, 1)
    assert json.loads(packet) == {"opened": mapping.start}
    assert len(given) == (0 if is_fuse else 1)
    for each in given:
        os.close(each)
