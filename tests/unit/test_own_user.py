"""Why joblensd stays root on some nodes, as far as that can be told without being root."""

from __future__ import annotations

from pathlib import Path

import pytest

from condor_joblens.agent import own_user

PROC = "proc /proc proc rw,nosuid,nodev,noexec,relatime{} 0 0\n"


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        ("", False),
        (",hidepid=0", False),
        (",hidepid=off", False),
        (",hidepid=2", True),
        (",gid=4,hidepid=invisible", True),
        (",hidepid=1", True),
    ],
)
def test_a_proc_that_hides_processes_is_known(tmp_path: Path, options: str, hides: bool) -> None:
    (tmp_path / "mounts").write_text("tmpfs /run tmpfs rw,hidepid=2 0 0\n" + PROC.format(options))
    assert own_user.hides_processes(str(tmp_path / "mounts")) is hides
