"""A job's folder, as its owner can have left it: nothing there makes us wait, read much, or read another file."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from condor_joblens.jobs.sandbox import MAX_AD_BYTES, JobSandbox, is_roots, parent_of
from condor_joblens.owner_files.operations import Operations

AD = b'GlobalJobId = "submit.example.org#1.0#1"\n'


@pytest.fixture
def execute(tmp_path: Path) -> Path:
    return tmp_path


def newer(execute: Path) -> tuple[Path, Path]:
    """The folders of HTCondor 24 and later: where .update.ad and .job.ad are."""
    folder = execute / "dir_7"
    for name in ("htcondor", "scratch"):
        (folder / name).mkdir(parents=True)
    return folder / "htcondor", folder / "scratch"


def older(execute: Path) -> tuple[Path, Path]:
    """The one folder of HTCondor 23."""
    (execute / "dir_7").mkdir()
    return execute / "dir_7", execute / "dir_7"


def opened(execute: Path) -> JobSandbox:
    sandbox = JobSandbox.open(Operations(), str(execute), 7)
    assert sandbox is not None
    return sandbox


@pytest.mark.parametrize("layout", [newer, older])
def test_both_layouts(execute: Path, layout: object) -> None:
    ads, scratch = layout(execute)  # type: ignore[operator]
    (ads / ".update.ad").write_bytes(b"State = 1\n")
    (scratch / ".job.ad").write_bytes(AD)
    if layout is older and os.geteuid() == 0:
        os.chown(scratch / ".job.ad", 12345, 12345)  # HTCondor's own user
    sandbox = opened(execute)
    assert (sandbox.update_ad(), sandbox.job_ad()) == (b"State = 1\n", AD)
    sandbox.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root knows users apart")
def test_an_ad_that_the_user_has_put_in_the_place_of_htcondors_is_none(execute: Path) -> None:
    _, scratch = older(execute)
    (scratch / ".job.ad").write_bytes(AD)
    sandbox = opened(execute)
    assert sandbox.is_users and sandbox.job_ad() is None
    sandbox.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root knows users apart")
def test_folders_that_a_user_has_named_like_htcondors_are_nothing_in_a_folder_of_his() -> None:
    """On HTCondor 23 the starter's folder is the user's, and folders can be transferred into it."""
    with tempfile.TemporaryDirectory() as folder:
        execute = Path(folder)
        execute.chmod(0o755)  # as EXECUTE is, above it too
        check_folders_of_a_user(execute)


def check_folders_of_a_user(execute: Path) -> None:
    ads, scratch = newer(execute)
    (ads / ".update.ad").write_bytes(b"State = 1\n")
    (scratch / ".job.ad").write_bytes(AD)
    (execute / "dir_7" / ".job.ad").write_bytes(b"the starter's")
    os.chown(execute / "dir_7", 12345, 12345)
    sandbox = opened(execute)
    assert sandbox.is_users and (sandbox.update_ad(), sandbox.job_ad()) == (None, b"the starter's")
    sandbox.close()


def test_no_sandbox(execute: Path) -> None:
    assert JobSandbox.open(Operations(), str(execute), 7) is None
    (execute / "dir_7").write_text("a file")
    assert JobSandbox.open(Operations(), str(execute), 7) is None


def test_a_link_in_place_of_a_folder_is_not_followed(execute: Path) -> None:
    elsewhere = execute / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".job.ad").write_bytes(b"secret")
    (execute / "dir_7").symlink_to(elsewhere)
    assert JobSandbox.open(Operations(), str(execute), 7) is None
    (execute / "dir_7").unlink()
    (execute / "dir_7").mkdir()
    (execute / "dir_7" / "scratch").symlink_to(elsewhere)
    sandbox = opened(execute)
    assert sandbox.job_ad() is None
    sandbox.close()


def link(ad: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    ad.symlink_to(tmp_path / "secret")


def great(ad: Path, tmp_path: Path) -> None:
    with ad.open("wb") as file:
        file.truncate(1 << 30)


def just_too_great(ad: Path, tmp_path: Path) -> None:
    ad.write_bytes(b"x" * (MAX_AD_BYTES + 1))


@pytest.mark.parametrize(
    "hostile",
    [
        link,
        great,
        just_too_great,
        lambda ad, tmp_path: os.mkfifo(ad),
        lambda ad, tmp_path: ad.mkdir(),
        lambda ad, tmp_path: ad.symlink_to("/dev/zero"),
        lambda ad, tmp_path: ad.symlink_to(ad.name),
        lambda ad, tmp_path: None,
    ],
    ids=["link", "great", "just too great", "fifo", "folder", "device", "loop", "missing"],
)
def test_what_is_no_ad_is_none(execute: Path, tmp_path: Path, hostile: object) -> None:
    _, scratch = newer(execute)
    hostile(scratch / ".job.ad", tmp_path)  # type: ignore[operator]
    sandbox = opened(execute)
    assert sandbox.job_ad() is None
    sandbox.close()


def test_the_greatest_ad_is_read_whole(execute: Path) -> None:
    _, scratch = newer(execute)
    (scratch / ".job.ad").write_bytes(b"x" * MAX_AD_BYTES)
    sandbox = opened(execute)
    assert sandbox.job_ad() == b"x" * MAX_AD_BYTES
    sandbox.close()


def test_a_lease_on_the_ad_is_not_waited_for(execute: Path) -> None:
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel tells the holder
    _, scratch = newer(execute)
    (scratch / ".job.ad").write_bytes(AD)
    with (scratch / ".job.ad").open("r+b") as leased:
        fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        sandbox = opened(execute)
        assert sandbox.job_ad() is None
        fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    signal.signal(signal.SIGIO, before)
    sandbox.close()


def test_a_folder_that_is_swapped_later_changes_nothing(execute: Path) -> None:
    _, scratch = newer(execute)
    (scratch / ".job.ad").write_bytes(AD)
    sandbox = opened(execute)
    evil = execute / "evil"
    evil.mkdir()
    (evil / ".job.ad").write_bytes(b"evil")
    (execute / "dir_7").rename(execute / "away")
    (execute / "dir_7").symlink_to(evil)
    assert sandbox.job_ad() == AD
    sandbox.close()


def test_descriptors_are_given_back(execute: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    newer(execute)
    before = descriptors()
    for _ in range(10):
        opened(execute).close()
    (execute / "dir_7" / "scratch").rmdir()
    for _ in range(10):
        opened(execute).close()
    assert descriptors() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read as somebody else")
def test_an_ad_that_its_owner_may_not_read_is_none(execute: Path) -> None:
    _, scratch = newer(execute)
    execute.chmod(0o755)
    os.chown(scratch, 12345, 12345)
    (scratch / ".job.ad").write_bytes(b"root's")
    (scratch / ".job.ad").chmod(0o600)
    sandbox = opened(execute)
    assert sandbox.job_ad() is None
    assert os.geteuid() == 0 and (scratch / ".job.ad").read_bytes() == b"root's"
    sandbox.close()


def test_whose_a_process_is() -> None:
    assert is_roots(os.getpid()) == (os.getuid() == 0)
    assert not is_roots(2**22 + 1)
    with subprocess.Popen(["sleep", "60"], user=12345 if os.geteuid() == 0 else None) as strangers:
        assert not is_roots(strangers.pid)
        strangers.kill()


def test_the_parent_of_a_process() -> None:
    assert parent_of(os.getpid()) == os.getppid()
    assert parent_of(2**22 + 1) == 0
    assert parent_of(-1) == 0
