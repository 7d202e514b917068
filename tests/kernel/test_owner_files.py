"""The process that alone may become another user: what it does for joblensd, and what it can't be made to do."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from condor_joblens.common import descriptors, inotify
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.privilege import CAPABILITIES
from condor_joblens.owner_files import client, messages, notices
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.client import Helper
from condor_joblens.owner_files.messages import MAX_ADS, Request, Verb
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.operations import Ad, AdWrite
from condor_joblens.owner_files.reports import Report, ReportResult
from condor_joblens.publish.updatead import WriteResult

CHECKOUT = Path(__file__).resolve().parents[2]
OWN, CONDOR, ALICE, SYSTEM, DISK = 64001, 990, 12345, 33, 6
ALLOWED = AllowedIds(1000, (CONDOR,), 1000, (CONDOR,))


@pytest.fixture
def helper() -> Iterator[Helper]:
    helper = Helper(ALLOWED, OWN, OWN)
    yield helper
    helper.stop()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may pass through, as EXECUTE is."""
    with tempfile.TemporaryDirectory(prefix="joblens-execute", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


def folder(place: Path, starter: int, uid: int, gid: int | None = None, mode: int = 0o700) -> Path:
    folder = place / f"dir_{starter}"
    folder.mkdir()
    os.chown(folder, uid, uid if gid is None else gid)
    folder.chmod(mode)
    return folder


def opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def write_one(helper: Helper, folder: Path) -> WriteResult:
    descriptor = opened(folder)
    try:
        return helper.write_ads([AdWrite(descriptor, "[A=1]", False)])[0].result
    finally:
        os.close(descriptor)


# -- what it does ----------------------------------------------------------------------------------------------------


@pytest.mark.guest
def test_two_hundred_ads_in_one_exchange(helper: Helper, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = []
    send = descriptors.send
    monkeypatch.setattr(descriptors, "send", lambda *arguments: (packets.append(arguments), send(*arguments)))
    folders = [folder(place, number, ALICE + number % 3) for number in range(MAX_ADS)]
    opened_ones = [opened(each) for each in folders]
    texts = [f"[A={number};B={'x' * (number * 20)}]" for number in range(MAX_ADS)]
    written = helper.write_ads([AdWrite(*pair, False) for pair in zip(opened_ones, texts)])
    assert len(packets) == 1
    assert [each.result for each in written] == [WriteResult.DONE] * MAX_ADS
    assert helper.versions(opened_ones) == [each.version for each in written] and len(packets) == 2
    for number, each in enumerate(folders):
        ad = each / ".update.ad"
        assert ad.read_text() == f"JobLensUsage = {texts[number]}\n"
        assert (ad.stat().st_uid, ad.stat().st_gid) == (ALICE + number % 3,) * 2
        assert os.listdir(each) == [".update.ad"]
    for descriptor in opened_ones:
        os.close(descriptor)


@pytest.mark.guest
def test_a_report_is_written_as_the_owner_and_replaces_nothing_of_the_jobs(helper: Helper, place: Path) -> None:
    job = folder(place, 7, ALICE)
    descriptor = opened(job)
    for content in (b"<!-- written by JobLens -->1", b"<!-- written by JobLens -->" + bytes(1 << 20)):
        assert helper.write_report(descriptor, Report.FLAME, content) is ReportResult.DONE
        file = job / "flame.svg"
        assert file.read_bytes() == content and (file.stat().st_uid, file.stat().st_gid) == (ALICE, ALICE)
    file.write_bytes(b"the job's own")
    assert helper.write_report(descriptor, Report.FLAME, content) is ReportResult.TAKEN
    assert file.read_bytes() == b"the job's own" and os.listdir(job) == ["flame.svg"]
    os.close(descriptor)


@pytest.mark.guest
def test_a_job_is_told_something_as_its_owner(helper: Helper, place: Path) -> None:
    job = folder(place, 8, ALICE)
    descriptor = opened(job)
    for line in (b"1\n", b"x" * (notices.MOST_BYTES - 1) + b"\n"):
        assert helper.add_notice(descriptor, line) is NoticeResult.DONE
    file = job / ".joblens" / "notices"
    assert file.read_bytes() == b"1\n" + line
    for made in (file, file.parent):
        assert (made.stat().st_uid, made.stat().st_gid) == (ALICE, ALICE)
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert helper.add_notice(descriptor, line) is NoticeResult.TAKEN
    for wrong in (b"", line + b"x"):
        with pytest.raises(ValueError):
            helper.add_notice(descriptor, wrong)
    os.close(descriptor)


def test_nothing_that_is_mounted_in_a_jobs_folder_is_asked(helper: Helper, place: Path) -> None:
    """Its owner's FUSE could keep the one helper of all jobs waiting."""
    job, elsewhere = folder(place, 8, ALICE), folder(place, 9, ALICE)
    (elsewhere / "progress").write_text("30%")
    (job / ".joblens").mkdir()
    descriptor = opened(job)
    subprocess.run(["mount", "--bind", elsewhere, job / ".joblens"], check=True)
    try:
        assert helper.progress([descriptor]) == [b""]
        assert helper.add_notice(descriptor, b"1\n") is NoticeResult.TAKEN
    finally:
        subprocess.run(["umount", "-l", job / ".joblens"], check=True)
    (job / ".joblens" / "progress").touch()
    subprocess.run(["mount", "--bind", elsewhere / "progress", job / ".joblens/progress"], check=True)
    try:
        assert helper.progress([descriptor]) == [b""]
    finally:
        subprocess.run(["umount", "-l", job / ".joblens/progress"], check=True)
    os.close(descriptor)


REPORT = b"<!-- written by JobLens -->"


@pytest.mark.parametrize("name", ["flame.svg", ".update.ad.tmp"])
def test_a_report_takes_nothing_that_is_mounted_for_a_file_of_the_folder(
    name: str, helper: Helper, place: Path
) -> None:
    job, elsewhere = folder(place, 8, ALICE), folder(place, 9, ALICE)
    descriptor = opened(job)
    assert helper.write_report(descriptor, Report.FLAME, REPORT + b"1") is ReportResult.DONE
    for path in (elsewhere / "file", job / name):
        path.write_bytes(REPORT)
        os.chown(path, ALICE, ALICE)
    before = (job / "flame.svg").read_bytes()
    subprocess.run(["mount", "--bind", elsewhere / "file", job / name], check=True)
    try:
        written = helper.write_report(descriptor, Report.FLAME, REPORT + b"2")
        assert written is (ReportResult.TAKEN if name == "flame.svg" else ReportResult.FAILED)
        assert (elsewhere / "file").read_bytes() == REPORT
    finally:
        subprocess.run(["umount", "-l", job / name], check=True)
    assert (job / "flame.svg").read_bytes() == before
    os.close(descriptor)


_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def deaf(path: Path, kind: int = 0o100000) -> Iterator[None]:
    """In here this file, or folder, is one of FUSE, whose server answers nothing."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode={kind:o},user_id={ALICE},group_id={ALICE},allow_other"
    try:
        failed = _libc.mount(b"deaf", str(path).encode(), b"fuse", 0, options.encode())
        assert not failed, os.strerror(ctypes.get_errno())
        yield
    finally:
        left = _libc.umount2(str(path).encode(), 2)  # MNT_DETACH
        os.close(device)  # whoever waits is told that it has ended
        assert not left, os.strerror(ctypes.get_errno())


def test_a_server_that_answers_nothing_keeps_no_report_waiting(helper: Helper, place: Path) -> None:
    """A job's owner has mounted it in his folder, over the file that is to be written."""
    job = folder(place, 8, ALICE)
    descriptor = opened(job)
    (job / "flame.svg").touch()
    with deaf(job / "flame.svg"):
        assert helper.write_report(descriptor, Report.FLAME, REPORT) is ReportResult.TAKEN
    os.close(descriptor)


@pytest.mark.parametrize("name", [".update.ad", ".update.ad.tmp", ".job.ad"])
def test_a_server_that_answers_nothing_keeps_no_ad_waiting(name: str, helper: Helper, place: Path) -> None:
    """Up to HTCondor 23 all of these lie in the folder of the job's owner."""
    job = folder(place, 8, ALICE)
    descriptor = opened(job)
    (job / name).touch()
    with deaf(job / name):
        helper.lease_ads([descriptor])
        (written,) = helper.write_ads([AdWrite(descriptor, "[A=1]", True)])
        assert written.result is (WriteResult.DONE if name == ".job.ad" else WriteResult.TAKEN)
        assert (helper.versions([descriptor]) == [None]) is (name != ".job.ad")
        assert helper.open_ad(descriptor, Ad.JOB) is None
        assert (helper.open_ad(descriptor, Ad.UPDATE) is None) is (name != ".job.ad")
    os.close(descriptor)


@pytest.mark.parametrize("name", [".update.ad", ".update.ad.tmp"])
def test_no_ad_is_read_or_written_where_something_is_mounted(name: str, helper: Helper, place: Path) -> None:
    job, elsewhere = folder(place, 8, ALICE), folder(place, 9, ALICE)
    for path in (elsewhere / "file", job / name):
        path.write_bytes(b"A = 1\n")
        os.chown(path, ALICE, ALICE)
        os.utime(path, (0, 0))  # as one that a startd has left there when it was killed
    descriptor = opened(job)
    subprocess.run(["mount", "--bind", elsewhere / "file", job / name], check=True)
    try:
        assert helper.write_ads([AdWrite(descriptor, "[A=2]", True)])[0].result is WriteResult.TAKEN
        assert helper.open_ad(descriptor, Ad.UPDATE) is None
    finally:
        subprocess.run(["umount", "-l", job / name], check=True)
    assert (elsewhere / "file").read_bytes() == (job / name).read_bytes() == b"A = 1\n"
    assert helper.write_ads([AdWrite(descriptor, "[A=2]", True)])[0].result is WriteResult.DONE
    assert (job / ".update.ad").read_bytes().endswith(b"JobLensUsage = [A=2]\n")
    os.close(descriptor)


@pytest.mark.parametrize("over", ["dir_8", "dir_8/scratch"])
def test_a_server_that_answers_nothing_over_a_jobs_folder_keeps_no_other_job_waiting(
    over: str, helper: Helper, place: Path
) -> None:
    """Its owner has mounted it before joblensd starts again: over the only folder, or over that beside its ads."""
    os.chown(place, CONDOR, CONDOR)
    job = folder(place, 8, CONDOR if "/" in over else ALICE, mode=0o755)
    for name, uid in (("htcondor", CONDOR), ("scratch", ALICE)):
        (job / name).mkdir()
        os.chown(job / name, uid, uid)
    folder(place, 9, ALICE)
    with deaf(place / over, 0o40000):
        assert helper.open_folders(str(place), 8) is None, "and nobody takes the folder above it for the job's"
        other = helper.open_folders(str(place), 9)
    for starter, found in ((9, other), (8, helper.open_folders(str(place), 8))):
        assert found is not None and os.fstat(found[1]).st_uid == ALICE, starter
        for each in {*found}:
            os.close(each)


@pytest.mark.parametrize("over", ["dir_8", "dir_8/scratch"])
def test_a_disk_that_is_mounted_for_a_job_is_its_folder(over: str, helper: Helper, place: Path) -> None:
    """HTCondor can give each job a volume of its own (LVM)."""
    os.chown(place, CONDOR, CONDOR)
    job = folder(place, 8, CONDOR if "/" in over else ALICE, mode=0o755)
    if "/" in over:
        for name in ("htcondor", "scratch"):
            (job / name).mkdir()
        os.chown(job / "htcondor", CONDOR, CONDOR)
    volume = folder(place, 9, ALICE)
    if os.major(volume.stat().st_dev) == 0:
        pytest.skip("/tmp is on no disk here")
    subprocess.run(["mount", "--bind", volume, place / over], check=True)
    try:
        found = helper.open_folders(str(place), 8)
        assert found is not None and os.fstat(found[1]).st_ino == volume.stat().st_ino
        for each in {*found}:
            os.close(each)
    finally:  # as HTCondor does it (volume_manager.cpp); the helper closes its own descriptors after it has answered
        subprocess.run(["umount", "-l", place / over], check=True)


def test_folders_that_a_job_has_made_beside_its_ads_are_not_asked(helper: Helper, place: Path) -> None:
    """Up to HTCondor 23, where `htcondor` and `scratch` have no meaning."""
    job = folder(place, 8, ALICE)
    (job / "scratch").mkdir()
    (job / "htcondor").mkdir()
    with deaf(job / "htcondor", 0o40000), deaf(job / "scratch", 0o40000):
        found = helper.open_folders(str(place), 8)
    assert found is not None and found[0] == found[1]
    os.close(found[0])


@pytest.mark.guest
def test_what_jobs_say_in_a_file_is_read_as_its_owner(helper: Helper, place: Path) -> None:
    folders = [folder(place, number, ALICE + number % 2) for number in range(2 * messages.MAX_PROGRESS)]
    for number, each in enumerate(folders[1:], 1):
        file = each / ".joblens" / "progress"
        file.parent.mkdir()
        file.write_text(str(number))
        for made in (file, file.parent):
            os.chown(made, ALICE + number % 2, ALICE)
            made.chmod(0o700)
    os.chown(folders[7] / ".joblens" / "progress", 0, 0)  # no file of the owner's: he may not read it
    opened_ones = [opened(each) for each in folders]
    wanted = [b"" if number in (0, 7) else str(number).encode() for number in range(len(folders))]
    assert helper.progress(opened_ones) == wanted
    for descriptor in opened_ones:
        os.close(descriptor)


@pytest.mark.guest
def test_a_leased_ad_is_written_in_place_and_otherwise_let_go(helper: Helper, place: Path) -> None:
    job = folder(place, 1, ALICE)
    descriptor = opened(job)
    write_one(helper, job)
    file = job / ".update.ad"

    def is_written_in_place(number: int) -> bool:
        before = file.stat().st_ino
        helper.lease_ads([descriptor])
        (written,) = helper.write_ads([AdWrite(descriptor, f"[A={number}]", False)])
        assert written.result is WriteResult.DONE and [written.version] == helper.versions([descriptor])
        with file.open() as ad:  # it would wait for 45 s if the lease were still there
            assert ad.read().split() == ["JobLensUsage", "=", f"[A={number}]"]
        return file.stat().st_ino == before

    # on a machine that stands still for a moment a lease ends by itself
    assert any(is_written_in_place(number) for number in range(20))
    helper.lease_ads([descriptor])
    assert helper.versions([descriptor])  # by now it has the lease
    assert file.read_text()
    assert (file.stat().st_uid, os.listdir(job)) == (ALICE, [".update.ad"])
    os.close(descriptor)


@pytest.mark.guest
def test_folders_and_ads_of_others_are_opened(helper: Helper, place: Path) -> None:
    os.chown(place, CONDOR, CONDOR)
    outer = folder(place, 7, CONDOR, mode=0o755)
    for name, uid in (("htcondor", CONDOR), ("scratch", ALICE)):
        (outer / name).mkdir(mode=0o700)
        os.chown(outer / name, uid, uid)
    ad = outer / "scratch" / ".job.ad"
    ad.write_bytes(b"A = 1\n")
    os.chown(ad, ALICE, ALICE)
    ad.chmod(0o600)
    found = helper.open_folders(str(place), 7)
    assert found is not None and [os.fstat(each).st_uid for each in found] == [CONDOR, ALICE]
    file = helper.open_ad(found[1], Ad.JOB)
    assert file is not None and os.read(file, 100) == b"A = 1\n"
    assert helper.open_ad(found[1], Ad.JOB, not_owners=True) is None
    assert helper.open_ad(found[0], Ad.UPDATE) is None
    assert helper.open_folders(str(place), 8) is None
    watches = inotify.Inotify()
    watch = helper.watch(watches.fileno(), found[0])
    assert watch is not None and helper.write_ads([AdWrite(found[0], "[A=1]", False)])
    assert (watch, inotify.MOVED_TO, b".update.ad") in list(watches.take())
    watches.close()
    for each in {*found, file}:
        os.close(each)


def test_up_to_htcondor_23_there_is_one_folder(helper: Helper, place: Path) -> None:
    folder(place, 7, ALICE)
    found = helper.open_folders(str(place), 7)
    assert found is not None and found[0] == found[1]
    os.close(found[0])


@pytest.mark.guest
def test_numbers_of_another_user_s_process(helper: Helper) -> None:
    job = subprocess.Popen(["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "sleep", "60"])
    try:
        while Path(f"/proc/{job.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.01)
        assert helper.process_io(job.pid).startswith(b"rchar: ")
    finally:
        job.kill()
        job.wait()
    with pytest.raises(OSError):
        helper.process_io(os.getpid())  # root's


def test_a_log_is_opened_in_htcondor_s_folder_alone(helper: Helper, place: Path) -> None:
    theirs, users = folder(place, 1, CONDOR, mode=0o755), folder(place, 2, ALICE, mode=0o755)
    file = helper.open_log(str(theirs / "JobLensdLog"))
    os.write(file, b"line\n")
    os.close(file)
    assert (theirs / "JobLensdLog").stat().st_uid == CONDOR
    for path in (users / "JobLensdLog", theirs / "authorized_keys", place / "JobLensdLog"):
        with pytest.raises(PermissionError):
            helper.open_log(str(path))
        assert not path.exists()


# -- for whom it does nothing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", [0, SYSTEM])
def test_not_for_root_or_a_user_of_the_system(helper: Helper, place: Path, uid: int) -> None:
    its = folder(place, 7, uid, mode=0o700)
    (its / ".job.ad").write_text("A = 1\n")
    assert helper.open_folders(str(place), 7) is None
    assert write_one(helper, its) is WriteResult.DENIED
    descriptor = opened(its)
    assert helper.open_ad(descriptor, Ad.JOB) is None and helper.versions([descriptor]) == [None]
    assert helper.watch(descriptor, descriptor) is None
    os.close(descriptor)
    assert os.listdir(its) == [".job.ad"]


def test_a_group_of_the_system_is_not_worked_for(helper: Helper, place: Path) -> None:
    its = folder(place, 7, ALICE, gid=DISK)
    assert write_one(helper, its) is WriteResult.DONE
    assert ((its / ".update.ad").stat().st_uid, (its / ".update.ad").stat().st_gid) == (ALICE, OWN)


def test_an_ad_of_several_lines_is_not_sent(helper: Helper, place: Path) -> None:
    descriptor = opened(folder(place, 7, ALICE))
    with pytest.raises(ValueError):
        helper.write_ads([AdWrite(descriptor, "[A=1]\nOwner = 1", False)])
    assert helper.versions([descriptor]) == [None]
    os.close(descriptor)


@pytest.mark.parametrize("text", [b"[A=1]\nOwner = 1", b"[A=1]\rOwner = 1"])
def test_nor_taken(helper: Helper, place: Path, text: bytes) -> None:
    its = folder(place, 7, ALICE)
    descriptor = opened(its)
    os.pwrite(helper._memory, text, 0)
    descriptors.send(
        helper._channel, messages.encode(Request(Verb.WRITE_ADS, writes=((len(text), False),))), [descriptor]
    )
    assert helper._receive() == (b"", [])
    os.close(descriptor)
    assert os.listdir(its) == []


# -- what it is ------------------------------------------------------------------------------------------------------


@pytest.mark.guest
def test_it_has_two_capabilities_and_is_not_root(helper: Helper) -> None:
    text = Path(f"/proc/{helper.pid}/status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    wanted = sum(1 << CAPABILITIES[name] for name in ("CAP_SETUID", "CAP_SETGID"))
    assert [int(status[f"Cap{name}"], 16) for name in ("Eff", "Prm", "Bnd", "Inh", "Amb")] == [wanted] * 3 + [0, 0]
    assert status["Uid"].split() == status["Gid"].split() == [str(OWN)] * 4
    assert (status["Groups"].split(), status["NoNewPrivs"], status["Seccomp"]) == ([], "1", "2")
    assert len(os.listdir(f"/proc/{helper.pid}/fd")) == 4  # the socket, nothing twice, and the memory
    assert os.stat(f"/proc/{helper.pid}/mem").st_uid == 0  # not dumpable


TRIES = """
import ctypes, json, os, sys
from condor_joblens.agent.refused_calls import RefusedCalls
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.helper import Users, confine
users = Users(AllowedIds(1000, (990,), 1000, (990,)), 64001, 64001)
shadow, parent, x86 = os.open("/etc", os.O_RDONLY), os.getppid(), os.uname().machine == "x86_64"
refused = RefusedCalls(lambda line: None, 64002, 64002)
filtered, listener = confine(users, 64001, 64001)
assert filtered
refused.watch("this process", listener)
libc = ctypes.CDLL(None, use_errno=True)
libc.setfsuid.restype = ctypes.c_uint32
tries = {
    "setuid": lambda: libc.setuid(0), "setuid of a user": lambda: libc.setuid(12345),
    "setreuid": lambda: libc.setreuid(0, 0), "setresuid": lambda: libc.setresuid(0, 0, 0),
    "setgid": lambda: libc.setgid(0), "setregid": lambda: libc.setregid(0, 0),
    "setresgid": lambda: libc.setresgid(0, 0, 0), "setgroups": lambda: libc.setgroups(0, None),
    "unshare": lambda: libc.unshare(0x10000000), "setns": lambda: libc.setns(0, 0), "fork": lambda: libc.fork(),
    "vfork": lambda: libc.syscall(58 if x86 else 220, 0, 0, 0, 0, 0),
    "socket": lambda: libc.socket(1, 1, 0), "connect": lambda: libc.connect(0, None, 0),
    "kill": lambda: libc.kill(parent, 0), "ptrace": lambda: libc.ptrace(16, parent, 0, 0),
    "execve": lambda: libc.execv(b"/bin/true", None), "mount": lambda: libc.mount(None, b"/tmp", None, 0, None),
    "chroot": lambda: libc.chroot(b"/"), "prctl": lambda: libc.prctl(8, 1, 0, 0, 0),
    "capset": lambda: libc.capset(None, None), "io_uring_setup": lambda: libc.syscall(425, 1, 0),
    "keyctl": lambda: libc.syscall(250 if x86 else 219, 0), "bpf": lambda: libc.syscall(321 if x86 else 280, 0, 0, 0),
    "mkfifo": lambda: libc.mknodat(-100, b"/tmp/joblens-no", 0o010600, 0), "memfd": lambda: libc.memfd_create(b"x", 0),
    "chmod": lambda: libc.fchmodat(-100, b"/tmp", 0, 0),
    "symlink": lambda: libc.symlinkat(b"a", -100, b"/tmp/joblens-no"),
}
found = {name: (act(), ctypes.get_errno()) for name, act in tries.items()}
for uid in (0, 33, 999):
    libc.setfsuid(uid)
    found[f"setfsuid {uid}"] = (-1, 1) if libc.setfsuid(0xFFFFFFFF) == 64001 else (0, 0)
    libc.setfsgid(uid)
    found[f"setfsgid {uid}"] = (-1, 1) if libc.setfsgid(-1) == 64001 else (0, 0)
for uid in (990, 12345):
    libc.setfsuid(uid)
    assert libc.setfsuid(0xFFFFFFFF) == uid
    try:
        os.open("shadow", os.O_RDONLY, dir_fd=shadow)
    except PermissionError:
        found[f"shadow as {uid}"] = -1, 1
os.write(1, json.dumps(found).encode())
"""


@pytest.mark.guest
def test_once_it_is_compromised_it_can_become_no_more_than_a_user() -> None:
    """As far as files are concerned, that is: nothing else of a user is his."""
    environment = {"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", TRIES]
    done = subprocess.run(command, capture_output=True, cwd="/", env=environment, timeout=60)
    assert done.stderr == b""
    found = json.loads(done.stdout)
    assert {name: result for name, result in found.items() if result != [-1, 1]} == {}
    assert len(found) > 30 and "shadow as 12345" in found


# -- its end ---------------------------------------------------------------------------------------------------------


def test_its_loss_is_noticed() -> None:
    helper = Helper(ALLOWED, OWN, OWN)
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(HelperLost, match="was ended by signal 9"):
        helper.process_io(1)
    assert not issubclass(HelperLost, Exception)  # no guard of a single run takes it for its own


@pytest.mark.parametrize("packet", [b"", b"\xff", b"\1", bytes([Verb.WATCH]), b"x" * messages.MAX_PACKET * 2])
def test_a_packet_that_joblensd_would_not_send_ends_it(packet: bytes) -> None:
    helper = Helper(ALLOWED, OWN, OWN)
    descriptors.send(helper._channel, packet)
    with pytest.raises(HelperLost):
        helper.versions([0])
    helper.stop()


def test_it_ends_with_joblensd() -> None:
    script = f"""
import os
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.client import Helper
print(Helper(AllowedIds(1000, (), 1000, ()), {OWN}, {OWN}).pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env={"PYTHONPATH": str(CHECKOUT)})
    until = time.monotonic() + 30
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_descriptors_are_given_back(helper: Helper, place: Path) -> None:
    folder(place, 7, ALICE)
    before = len(os.listdir(f"/proc/{helper.pid}/fd")), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        found = helper.open_folders(str(place), 7)
        assert found is not None
        helper.write_ads([AdWrite(found[0], "[A=1]", True)])
        file = helper.open_ad(found[0], Ad.UPDATE)
        assert file is not None
        for each in {*found, file}:
            os.close(each)
    until = time.monotonic() + 30  # it closes them when it has answered
    while (len(os.listdir(f"/proc/{helper.pid}/fd")), len(os.listdir("/proc/self/fd"))) != before:
        assert time.monotonic() < until


def test_without_its_user_it_does_not_start_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(client.privilege, "user", lambda name: None)
    with pytest.raises(JobLensError, match="run systemd-sysusers"):
        client.open_owner_files(ALLOWED, said.append)


def test_a_socket_is_all_that_it_is_given(helper: Helper) -> None:
    assert isinstance(helper._channel, socket.socket)
    environment = Path(f"/proc/{helper.pid}/environ").read_bytes().split(b"\0")
    assert {name.partition(b"=")[0] for name in environment if name} == {b"PATH", b"LC_ALL", b"TZ", b"PYTHONPATH"}


def test_a_signal_to_all_of_joblensds_processes_is_joblensds_to_obey(helper: Helper) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(helper.pid, number)
    assert helper.versions([]) == [] and helper.open_folders("/nowhere", 7) is None
