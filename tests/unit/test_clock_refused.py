"""Level profile: what a job's note says if the kernel gives no clock to sample by."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from condor_joblens.tracer.sensors import profile

WHY = "the kernel refuses a clock on CPU 1: "


@pytest.mark.parametrize(
    ("number", "paranoid", "said"),
    [
        (
            errno.EACCES,
            "3\n",
            f"{WHY}Permission denied. kernel.perf_event_paranoid is 3: set it to 2 or less (sysctl)",
        ),
        (errno.EACCES, "2\n", f"{WHY}Permission denied"),
        (errno.EACCES, "-1\n", f"{WHY}Permission denied"),
        (errno.ENOENT, "4\n", f"{WHY}No such file or directory"),
        (errno.EACCES, "", f"{WHY}Permission denied"),
    ],
)
def test_the_remedy_is_named_where_a_setting_forbids_clocks(
    number: int, paranoid: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's kernels forbid them to joblensd by a sysctl."""
    setting = tmp_path / "perf_event_paranoid"
    setting.write_text(paranoid)
    monkeypatch.setattr(profile, "PARANOID", setting)
    assert profile.clock_refused(1, number) == said
    setting.unlink()
    assert profile.clock_refused(1, errno.EACCES) == f"{WHY}Permission denied"
