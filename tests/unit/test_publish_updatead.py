"""What may be lying where .update.ad should be, and that nothing but one attribute of it changes."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import classad2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.publish import updatead
from condor_joblens.publish.updatead import WriteResult

STARTD = 'Activity = "Busy"\nJobLensUsage = [Run="old#1"]\nCpus = 1\n'


class Directory:
    """A job's directory, open as the agent holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self.file = path / updatead.NAME
        self.temporary = path / updatead.TEMPORARY

    def replace(self, text: str = "[Schema=1]") -> WriteResult:
        written = self.written(text)
        assert self.temporary.is_dir() or not os.path.lexists(self.temporary), "left behind"
        assert written.version == (updatead.version(self.descriptor) if written.result is WriteResult.DONE else None)
        return written.result

    def written(self, text: str = "[A=1]", temporary: str = updatead.TEMPORARY) -> updatead.Written:
        return updatead.replace(self.descriptor, os.getuid(), os.getgid(), text, temporary)

    def startd_writes(self, content: str) -> None:
        """As it does, by a file of its own that it renames."""
        made = self.path / "startds"
        made.write_text(content)
        made.rename(self.file)

    def ad(self) -> Any:
        return classad2.parseOne(self.file.read_text())


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    directory = Directory(tmp_path)
    yield directory
    os.close(directory.descriptor)


def test_replaces_the_attribute_and_nothing_else(directory: Directory) -> None:
    directory.file.write_text(STARTD)
    directory.file.chmod(0o664)
    assert directory.replace('[Run="new#2"]') is WriteResult.DONE
    ad = directory.ad()
    assert (ad["Activity"], ad["Cpus"], ad["JobLensUsage"]["Run"]) == ("Busy", 1, "new#2")
    assert directory.file.read_text().count("JobLensUsage") == 1
    assert stat.S_IMODE(directory.file.stat().st_mode) == 0o664


def test_makes_the_file_where_it_is_missing(directory: Directory) -> None:
    assert directory.replace() is WriteResult.DONE
    assert stat.S_IMODE(directory.file.stat().st_mode) == 0o644
    assert directory.ad()["JobLensUsage"]["Schema"] == 1


def test_tells_when_the_startd_wrote_its_own(directory: Directory) -> None:
    assert updatead.version(directory.descriptor) is None
    directory.replace()
    ours = updatead.version(directory.descriptor)
    assert ours == updatead.version(directory.descriptor)
    directory.startd_writes(STARTD)
    assert updatead.version(directory.descriptor) not in (None, ours)


def test_tells_what_it_replaced(directory: Directory) -> None:
    first = directory.written()
    assert first.replaced is None
    second = directory.written()
    assert second.replaced == first.version, "our own"
    directory.startd_writes(STARTD)
    startds = updatead.version(directory.descriptor)
    assert directory.written().replaced == startds not in (None, second.version)


@pytest.mark.parametrize("before", ["", STARTD])
@pytest.mark.parametrize("call", ["write", "link"])
@pytest.mark.parametrize("times", [1, 2])
def test_what_the_startd_writes_meanwhile_is_not_lost(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, before: str, call: str, times: int
) -> None:
    """Between the reading of the old file and the new one's taking its place."""
    if before:
        directory.startd_writes(before)
    really, left = getattr(os, call), [f'Activity = "Suspended"\nCpus = {number}\n' for number in range(times)]

    def and_the_startd_writes(*arguments: Any, **options: Any) -> Any:
        done = really(*arguments, **options)
        if left:
            monkeypatch.setattr(os, call, really)  # the startd does not write by way of us
            directory.startd_writes(left.pop(0))
            monkeypatch.setattr(os, call, and_the_startd_writes)
        return done

    monkeypatch.setattr(os, call, and_the_startd_writes)
    ours = updatead.version(directory.descriptor)
    written = directory.written()
    monkeypatch.undo()
    ad = directory.ad()
    assert (ad["Activity"], ad["Cpus"], ad["JobLensUsage"]["A"]) == ("Suspended", times - 1, 1)
    assert written.replaced not in (None, ours)
    assert [path.name for path in directory.path.iterdir()] == [updatead.NAME]


def test_the_first_file_of_the_startd_comes_between_two_attempts_to_take_the_name(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        def renameat2(self, *arguments: Any) -> int:
            done = int(really.renameat2(*arguments))
            if done < 0:
                directory.startd_writes(STARTD)
            return done

    really = updatead._libc
    monkeypatch.setattr(updatead, "_libc", Late())
    assert directory.replace("[A=1]") is WriteResult.DONE
    assert (directory.ad()["Cpus"], directory.ad()["JobLensUsage"]["A"]) == (1, 1)


def test_two_who_write_all_the_time_lose_nothing_of_each_other(directory: Directory) -> None:
    """A startd that writes as fast as it can, and joblensd beside it."""
    rounds, writes = 300, 5
    script = (
        "import os, sys\n"
        "for line in sys.stdin:\n"
        f"    for number in range({writes}):\n"
        "        with open('startds', 'w') as file: file.write(f'Cpus = {int(line) + number}\\n')\n"
        f"        os.rename('startds', '{updatead.NAME}')\n"
        "    print(flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=directory.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as startd:
        assert startd.stdin and startd.stdout
        for number in range(0, rounds * writes, writes):
            startd.stdin.write(f"{number}\n")
            startd.stdin.flush()
            while not select.select([startd.stdout], [], [], 0)[0]:
                assert directory.written().result is WriteResult.DONE
            startd.stdout.readline()
            assert directory.written().result is WriteResult.DONE
            assert directory.ad()["Cpus"] == number + writes - 1
        startd.stdin.close()


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"", b"JobLensUsage = [A=1]\n"),
        (b"Cpus = 1", b"Cpus = 1\nJobLensUsage = [A=1]\n"),  # no newline at the end
        (b"jobLENSusage=0\nCpus = 1\n JobLensUsage = 3\n", b"Cpus = 1\nJobLensUsage = [A=1]\n"),
        # a blank line would end the ad for the starter
        (b"Cpus = 1\n\n \nDisk = 2\n", b"Cpus = 1\nDisk = 2\nJobLensUsage = [A=1]\n"),
        (b"JobLensUsageX = 1\n", b"JobLensUsageX = 1\nJobLensUsage = [A=1]\n"),
        (b"\xff\0 = 1\n", b"\xff\0 = 1\nJobLensUsage = [A=1]\n"),
    ],
)
def test_lines(content: bytes, result: bytes) -> None:
    assert updatead.with_attribute(content, "[A=1]") == result


@given(st.binary())
def test_any_content_gets_the_line_once(content: bytes) -> None:
    once = updatead.with_attribute(content, "[A=1]")
    assert once.endswith(b"JobLensUsage = [A=1]\n")
    assert updatead.with_attribute(once, "[A=1]") == once


def test_a_symbolic_link_is_replaced_and_its_target_untouched(directory: Directory, tmp_path_factory: Any) -> None:
    secret = tmp_path_factory.mktemp("other") / "secret"
    secret.write_text("Secret = 1\n")
    directory.file.symlink_to(secret)
    assert directory.replace() is WriteResult.DONE
    assert secret.read_text() == "Secret = 1\n"
    assert "Secret" not in directory.file.read_text()


def test_a_temporary_that_is_a_link_is_not_followed(directory: Directory, tmp_path_factory: Any) -> None:
    target = tmp_path_factory.mktemp("other") / "target"
    directory.temporary.symlink_to(target)
    assert directory.replace() is WriteResult.DONE
    assert not target.exists()


def test_a_fifo_does_not_hang(directory: Directory) -> None:
    os.mkfifo(directory.file)
    assert directory.replace() is WriteResult.DONE
    assert directory.file.is_file()


def test_a_large_file_is_replaced_unread(directory: Directory) -> None:
    with directory.file.open("wb") as file:
        file.truncate(updatead.MOST_DELETED)
    assert directory.replace() is WriteResult.DONE
    assert directory.file.stat().st_size < 100


def in_blocks(file: int) -> None:
    """Its blocks count, which its size need not tell."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    keep_size, size = 1, ctypes.c_int64(updatead.MOST_DELETED + (1 << 20))
    assert fallocate(file, keep_size, ctypes.c_int64(0), size) == 0, os.strerror(ctypes.get_errno())


@pytest.mark.parametrize("make", [lambda file: os.truncate(file, updatead.MOST_DELETED + 1), in_blocks])
def test_what_takes_long_to_delete_is_not_deleted_for_the_job(
    directory: Directory, make: Callable[[int], object]
) -> None:
    """In gigabytes of small pieces it keeps whoever deletes it for seconds, and with it all other jobs' ads."""
    for path, result in ((directory.file, WriteResult.TAKEN), (directory.temporary, WriteResult.BUSY)):
        with path.open("wb") as file:
            make(file.fileno())
        os.utime(path, (0, 0))
        inode = path.stat().st_ino
        assert directory.written().result is result
        assert path.stat().st_ino == inode
        path.unlink()
    assert directory.replace() is WriteResult.DONE


def test_what_is_put_in_its_place_at_that_moment_is_not_deleted_either(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.file.write_text("A = 1\n")
    present = updatead._present

    def and_then_the_job_grows_it(folder: int, name: str, owner: int) -> Any:
        found = present(folder, name, owner)
        os.truncate(directory.file, 1 << 30)
        return found

    monkeypatch.setattr(updatead, "_present", and_then_the_job_grows_it)
    assert directory.written().result is WriteResult.DONE
    assert directory.temporary.stat().st_size == 1 << 30
    assert directory.written().result is WriteResult.BUSY


def test_another_owners_file_is_not_shown(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.file.write_text("Secret = 1\n")
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    assert updatead.replace(directory.descriptor, os.getuid() + 1, os.getgid(), "[A=1]").result is WriteResult.DONE
    assert "Secret" not in directory.file.read_text()


def test_a_directory_in_its_place_fails_alone(directory: Directory) -> None:
    directory.file.mkdir()
    assert directory.replace() is WriteResult.DONE
    assert directory.file.is_file()
    # his directory now has the temporary file's name, and can't be removed for him
    assert directory.replace() is WriteResult.BUSY


def test_waits_for_the_startd_and_removes_what_a_killed_one_left(directory: Directory) -> None:
    directory.temporary.write_text("half")
    assert directory.written().result is WriteResult.BUSY
    assert directory.temporary.read_text() == "half"
    for mtime in (time.time() - updatead.ABANDONED - 1, time.time() + 1000):
        directory.temporary.write_text("half")
        os.utime(directory.temporary, (mtime, mtime))
        assert directory.replace() is WriteResult.DONE


def test_the_job_is_gone(directory: Directory) -> None:
    directory.path.rmdir()
    assert directory.replace() is WriteResult.GONE


@pytest.mark.parametrize(
    ("call", "number", "outcome"),
    [
        ("write", errno.ENOSPC, WriteResult.FULL),
        ("write", errno.EDQUOT, WriteResult.FULL),
        ("fchmod", errno.EPERM, WriteResult.DENIED),
        ("fstat", errno.EIO, WriteResult.FAILED),
    ],
)
def test_a_fault_leaves_the_old_file_and_nothing_else(
    directory: Directory, monkeypatch: pytest.MonkeyPatch, call: str, number: int, outcome: WriteResult
) -> None:
    directory.file.write_text(STARTD)
    directory.file.chmod(0o664)

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fails)
    result = directory.replace()
    monkeypatch.undo()
    assert result is outcome
    assert directory.file.read_text() == STARTD


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
def test_a_file_system_that_cannot_exchange(directory: Directory, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    class CannotExchange:
        def renameat2(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(updatead, "_libc", CannotExchange())
    directory.file.write_text(STARTD)
    assert directory.replace("[A=1]") is WriteResult.DONE
    assert directory.ad()["JobLensUsage"]["A"] == 1

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rename", fails)
    assert directory.replace("[A=2]") is {errno.ENOENT: WriteResult.GONE, errno.EIO: WriteResult.FAILED}[number]
    assert directory.ad()["JobLensUsage"]["A"] == 1


@pytest.mark.skipif(os.getuid() != 0, reason="another user's directory can be made by root alone")
def test_the_file_belongs_to_the_directorys_owner(directory: Directory) -> None:
    os.chown(directory.path, 12345, 12346)
    assert updatead.replace(directory.descriptor, 12345, 12346, "[A=1]").result is WriteResult.DONE
    status = directory.file.stat()
    assert (status.st_uid, status.st_gid) == (12345, 12346)


def test_what_the_owner_writes_into_the_file_is_another_version(directory: Directory) -> None:
    directory.replace()
    ours, status = updatead.version(directory.descriptor), directory.file.stat()
    assert updatead.version(directory.descriptor) == ours
    with directory.file.open("r+") as file:
        file.write("F")
    os.utime(directory.file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert updatead.version(directory.descriptor) != ours


def test_the_startd_s_file_in_the_making_is_left_alone(directory: Directory) -> None:
    half_written = directory.path / updatead.STARTDS_TEMPORARY
    half_written.write_text("Activity = ")
    assert directory.replace() is WriteResult.DONE
    assert half_written.read_text() == "Activity = "
    # in a folder that is the job's there is the one name for both
    assert directory.written(temporary=updatead.STARTDS_TEMPORARY).result is WriteResult.BUSY


def test_what_the_startd_writes_at_the_same_moment_and_ours_are_never_mixed(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that is the job's the startd opens whatever has its temporary file's name, and writes into it."""
    lines = [f"Attribute{number} = {number}\n" for number in range(200)]
    half_written, really = directory.path / updatead.STARTDS_TEMPORARY, os.write

    def the_startd_is_quicker(file: int, content: bytes) -> int:
        half_written.write_text("".join(lines))
        half_written.rename(directory.file)
        return really(file, content)

    directory.file.write_text(STARTD)
    monkeypatch.setattr(os, "write", the_startd_is_quicker)
    directory.written(temporary=updatead.STARTDS_TEMPORARY)
    monkeypatch.undo()
    found = set(directory.file.read_text().splitlines(True))
    assert found <= {*lines, *STARTD.splitlines(True), "JobLensUsage = [A=1]\n"}
    assert not half_written.exists()


def test_a_file_system_without_unnamed_files(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.open

    def has_none(path: str, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        return really(path, flags, *arguments, **options)

    monkeypatch.setattr(os, "open", has_none)
    directory.file.write_text(STARTD)
    assert directory.replace("[A=1]") is WriteResult.DONE
    assert (directory.ad()["Cpus"], directory.ad()["JobLensUsage"]["A"]) == (1, 1)
