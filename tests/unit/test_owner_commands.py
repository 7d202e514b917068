"""ps, tail, get, env and others: what the child does that is a job's owner, on this user's files and processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.control.child_output import CONTENT, FAILED, MOST, NOTICE, SOURCE, WHOLE
from condor_joblens.owner_commands import beneath, children, env, get, head, job_processes, ls, tail
from condor_joblens.owner_commands.answers import Failed


class Job:
    """A folder as a job's, and a folder of processes as its cgroup: a file `cgroup.procs` names them."""

    def __init__(self, folder: Path) -> None:
        self.scratch, self.cgroup = folder / "scratch", folder / "cgroup"
        self.scratch.mkdir()
        self.cgroup.mkdir()
        self.has()

    def has(self, *pids: int) -> None:
        part = self.cgroup / "part"
        part.write_text("".join(f"{pid}\n" for pid in pids))
        part.rename(self.cgroup / "cgroup.procs")

    def ask(self, verb: str, **arguments: object) -> socket.socket:
        """Begins to answer; our end of the socket."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [os.open(folder, os.O_RDONLY) for folder in (self.scratch, self.cgroup)]

        def run() -> None:
            with theirs:
                children.run(children.VERBS[verb], theirs, dict(arguments), given)
            for each in given:
                os.close(each)

        self.child = threading.Thread(target=run, daemon=True)
        self.child.start()
        ours.settimeout(60)
        return ours

    def said(self, verb: str, **arguments: object) -> list[tuple[bytes, bytes]]:
        """All messages: kind and what belongs to it."""
        with self.ask(verb, **arguments) as ours:
            return [(packet[:1], packet[1:]) for packet in iter(lambda: ours.recv(MOST + 1), b"")]

    def tail(self, file: str = "log", lines: int = 10) -> bytes:
        """What is told of a file, which is whole."""
        *content, last = self.said("tail", file=file, lines=lines, follow=False)
        assert last == (WHOLE, b"") and {kind for kind, _ in content} <= {CONTENT}, last
        return b"".join(said for _, said in content)

    def failure(self, verb: str, **arguments: object) -> str:
        """Why it can't be done."""
        ((kind, said),) = self.said(verb, **arguments)
        assert kind == FAILED
        return said.decode()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that runs: just after its exec it has no memory yet that its numbers tell of."""
    command = [sys.executable, "-c", "print(flush=True); input()", "--password", "hunter2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as found:
        assert found.stdout is not None and found.stdout.readline() == b"\n"
        yield found
        found.kill()


# -- tail -----------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"a", b"bb\n", b"\n", b"\xff\x1b[2J\n"]), max_size=30), st.integers(0, 12))
def test_the_last_lines_are_those_of_a_list_of_lines(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], lines: int
) -> None:
    content = b"".join(parts)
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(content)
    with open(path, "rb") as file:
        at = tail.start_of_lines(file.fileno(), len(content), lines)
    assert content[at:] == b"".join(content.splitlines(keepends=True)[-lines:] if lines else [])
    assert all(end not in content for end in (b"\r", b"\v")), "bytes.splitlines would know other ends of lines"


@given(st.lists(st.sampled_from([b"a", b"bb\n", b"\n", b"\xff\x1b[2J\n"]), max_size=30), st.integers(0, 12))
def test_the_first_lines_are_those_of_a_list_of_lines(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], lines: int
) -> None:
    job = Job(tmp_path_factory.mktemp("head"))
    (job.scratch / "log").write_bytes(b"".join(parts))
    *content, last = job.said("head", file="log", lines=lines)
    wanted = b"".join(b"".join(parts).splitlines(keepends=True)[:lines])
    assert (b"".join(said for _, said in content), last) == (wanted, (WHOLE, b""))


def test_a_file_is_told_whole_up_to_the_bound(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(200_000)
    (job.scratch / "log").write_bytes(content)
    *told, last = job.said("cat", file="log")
    assert (b"".join(said for _, said in told), last) == (content, (WHOLE, b""))
    monkeypatch.setattr(head, "MOST_CAT", 100_000)
    *told, notice, last = job.said("cat", file="log")
    assert (b"".join(said for _, said in told), last) == (content[:100_000], (WHOLE, b""))
    assert notice == (NOTICE, b"100000 more bytes are not shown")


def test_a_folder_is_listed_and_no_link_is_followed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(job.scratch.iterdir()):
        name.unlink()
    (job.scratch / "logs").mkdir()
    (job.scratch / "logs" / "x").write_bytes(b"abc")
    os.mkfifo(job.scratch / "logs" / "fifo")
    os.symlink("/etc/passwd", job.scratch / "logs" / "out")
    (job.scratch / os.fsdecode(b"\xff\x1b[2J")).touch(mode=0o640)

    def listed(folder: str) -> dict[str, tuple[str, int, str]]:
        *entries, last = job.said("ls", folder=folder)
        assert last == (WHOLE, b"")
        found = [json.loads(said) for kind, said in entries if kind == CONTENT]
        return {each["Name"]: (each["Kind"], each["Bytes"], each["Target"]) for each in found}

    links = {"fifo": ("pipe", 0, ""), "out": ("link", 11, "/etc/passwd"), "x": ("file", 3, "")}
    assert listed("logs") == listed("./logs/") == listed("logs/../logs") == links
    assert listed(".")["logs"][0] == "folder" and listed(".")["\udcff\x1b[2J"] == ("file", 0, "")
    monkeypatch.setattr(ls, "MOST_ENTRIES", 2)
    *_, notice, _ = job.said("ls", folder="logs")
    assert notice == (NOTICE, b"it has more than 2 entries: the others are not shown")


@pytest.mark.parametrize("folder", ["..", "/", "/etc", "logs/../..", "out", "file", "none", "a\0b"])
def test_no_folder_outside_of_the_jobs_is_listed(folder: str, job: Job) -> None:
    (job.scratch / "logs").mkdir(exist_ok=True)
    (job.scratch / "file").touch()
    os.symlink("/etc", job.scratch / "out")
    assert job.failure("ls", folder=folder)


# -- log ------------------------------------------------------------------------------------------------------


def test_both_streams_are_told_each_under_its_file(job: Job) -> None:
    (job.scratch / "_condor_stdout").write_bytes(b"1\n2\n3\n")
    (job.scratch / "_condor_stderr").write_bytes(b"oh\n")
    said = job.said("log", lines=2, follow=False)
    where = os.fsencode(job.scratch)
    assert said == [
        (SOURCE, b"stdout: " + where + b"/_condor_stdout"),
        (CONTENT, b"2\n3\n"),
        (SOURCE, b"stderr: " + where + b"/_condor_stderr"),
        (CONTENT, b"oh\n"),
        (WHOLE, b""),
    ]


def test_what_is_followed_says_whenever_it_is_the_other_stream(job: Job, process: subprocess.Popen[bytes]) -> None:
    for name in ("stdout", "stderr"):
        (job.scratch / f"_condor_{name}").touch()
    job.has(process.pid)

    def writes(name: str, data: bytes) -> None:
        with open(job.scratch / f"_condor_{name}", "ab") as file:
            file.write(data)

    with job.ask("log", lines=2, follow=True) as ours:
        kinds = [ours.recv(MOST)[:1] for _ in range(2)]
        assert kinds == [SOURCE, SOURCE]
        writes("stderr", b"a\n")
        assert ours.recv(MOST) == CONTENT + b"a\n"
        writes("stdout", b"b\n")
        assert ours.recv(MOST).startswith(SOURCE + b"stdout: ") and ours.recv(MOST) == CONTENT + b"b\n"
        writes("stderr", b"c\n")
        assert ours.recv(MOST).startswith(SOURCE + b"stderr: ") and ours.recv(MOST) == CONTENT + b"c\n"
        job.has()
        assert ours.recv(MOST) == NOTICE + b"the job has ended"


@contextlib.contextmanager
def writing(stdout: int, stderr: int) -> Iterator[int]:
    """A process with these for its output; its id."""
    with subprocess.Popen(["sleep", "1000"], stdout=stdout, stderr=stderr) as found:
        try:
            yield found.pid
        finally:
            found.kill()


def test_outside_of_the_folder_it_is_the_very_file_that_the_job_has_open(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "out\x1b[2J"
    path.write_text("mine\n")
    with open(path, "ab") as out, writing(out.fileno(), out.fileno()) as pid:
        job.has(pid)
        os.rename(path, tmp_path / "moved")
        path.write_text("not what it has open\n")
        source, content, notice, last = job.said("log", lines=5, follow=False)
    assert source[0] == SOURCE and b"\x1b" not in source[1] and source[1].endswith(b"/moved")
    assert content == (CONTENT, b"mine\n") and notice == (NOTICE, b"stderr goes where stdout does")
    assert last == (WHOLE, b"")


def test_a_stream_that_is_no_file_is_named(job: Job) -> None:
    ours, theirs = os.pipe()
    with writing(theirs, theirs) as pid:
        job.has(pid)
        why = job.failure("log", lines=5, follow=False)
    assert "stdout: it is no regular file, but a pipe: pipe:[" in why and "stderr: " in why
    (job.scratch / "_condor_stdout").write_bytes(b"1\n")
    os.mkfifo(job.scratch / "_condor_stderr")
    source, content, notice, _ = job.said("log", lines=5, follow=False)
    assert (source[0], content, notice[0]) == (SOURCE, (CONTENT, b"1\n"), NOTICE)
    os.close(ours)
    os.close(theirs)


# -- get ------------------------------------------------------------------------------------------------------


def page(job: Job, **arguments: object) -> tuple[dict[str, object], bytes]:
    """Which file it is, and a page of it."""
    given = {"file": "log", "offset": 0, "most": 1 << 30, **arguments}
    (_, header), *content, last = job.said("get", **given)
    assert last == (WHOLE, b"")
    return json.loads(header), b"".join(said for _, said in content)


def test_a_file_comes_in_pages(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get, "PAGE", 70_000)
    whole = os.urandom(200_001)
    (job.scratch / "log").write_bytes(whole)
    (job.scratch / "log").chmod(0o640)
    pages = [page(job, offset=offset) for offset in range(0, 210_000, 70_000)]
    assert b"".join(content for _, content in pages) == whole
    assert {(each["Bytes"], each["Mode"]) for each, _ in pages} == {(200_001, 0o640)}
    assert len({each["File"] for each, _ in pages}) == 1
    assert page(job, offset=200_001)[1] == b""
    assert "nothing begins at 200002" in job.failure("get", file="log", offset=200_002, most=1 << 30)


def test_a_giant_is_not_fetched_however_sparse_it_is(job: Job) -> None:
    with open(job.scratch / "log", "wb") as file:
        file.truncate(1 << 40)
    why = job.failure("get", file="log", offset=0, most=1 << 30)
    assert (
        why == f"it has {1 << 40} bytes, and this node's JOBLENS_GET_MAX_BYTES is {1 << 30}: let HTCondor transfer it"
    )


@pytest.mark.parametrize("file", ["..", "/etc/passwd", "out", "fifo", "."])
@pytest.mark.parametrize("verb", ["get", "cat", "head", "tail"])
def test_nothing_but_a_file_below_the_folder_is_read(verb: str, file: str, job: Job) -> None:
    os.symlink("/etc/passwd", job.scratch / "out")
    os.mkfifo(job.scratch / "fifo")
    assert job.failure(verb, file=file, offset=0, most=1 << 30, lines=3, follow=False)


# -- env ------------------------------------------------------------------------------------------------------


def variables(job: Job, pid: int = 0, values: bool = True) -> dict[str, str | None]:
    *said, last = job.said("env", pid=pid, values=values)
    assert last == (WHOLE, b"")
    found = [json.loads(each) for kind, each in said if kind == CONTENT]
    return {each["Name"]: each.get("Value") for each in found}


@contextlib.contextmanager
def with_environment(environment: dict[bytes, bytes]) -> Iterator[int]:
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as found:
        try:
            while not Path(f"/proc/{found.pid}/environ").read_bytes():  # its exec is not over yet
                time.sleep(0.001)
            yield found.pid
        finally:
            found.kill()


def test_variables_without_what_is_a_secret(job: Job) -> None:
    environment = {
        b"PATH": b"/usr/bin:/bin",
        b"X509_USER_PROXY": b"/tmp/x509up_u1000",
        b"API_TOKEN": b"two words",
        b"DB_PASSWORD": b"line\nbreak",
        b"URL": b"https://me:hunter2@example.org/x",
        b"OPTIONS": b"--verbose --password hunter2",
        b"HOSTILE\xff": b"\x1b[2J",
        b"EMPTY": b"",
    }
    with with_environment(environment) as pid:
        job.has(pid)
        found = variables(job)
        assert found == {
            "PATH": "/usr/bin:/bin",
            "X509_USER_PROXY": "/tmp/x509up_u1000",
            "API_TOKEN": "***",
            "DB_PASSWORD": "***",
            "URL": "https://***@example.org/x",
            "OPTIONS": "--verbose --password ***",
            "HOSTILE\\xff": "\\x1b[2J",
            "EMPTY": "",
        }
        assert list(found) == sorted(found)
        assert variables(job, pid, values=False) == dict.fromkeys(found)


def test_an_endless_environment_is_cut_and_that_is_said(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "MOST_VARIABLES", 3)
    environment = {b"V%d" % number: b"x" for number in range(9)}
    environment[b"V0"] = b"secret " * 2000
    with with_environment(environment) as pid:
        job.has(pid)
        *told, notice, _ = job.said("env", pid=0, values=True)
    assert len(told) == 3 and notice == (NOTICE, b"it has more: 3 variables are shown")
    assert len(told[0][1]) < 5000 and json.loads(told[0][1])["Value"].endswith("...")


def test_no_other_process_shows_its_environment(job: Job, process: subprocess.Popen[bytes]) -> None:
    job.has(process.pid)
    for pid in (os.getpid(), 1, 1 << 22):
        assert job.failure("env", pid=pid, values=True) == f"process {pid} is none of the job"
    job.has()
    assert job.failure("env", pid=0, values=True) == "the job has no process"


# -- node -----------------------------------------------------------------------------------------------------


def test_the_machine_and_the_jobs_that_joblensd_names(job: Job) -> None:
    named = {"JobId": "12.0", "Slot": "slot1_1", "Level": "io", "StartTime": 7}
    (kind, machine), (_, listed), notice, last = job.said("node", jobs=[named], more=3)
    found = json.loads(machine)
    assert kind == CONTENT and found["Host"] == os.uname().nodename and found["Cpus"] == os.cpu_count()
    assert 0 < found["MemoryAvailableBytes"] < found["MemoryBytes"] and found["ScratchFreeBytes"] > 0
    assert json.loads(listed) == named
    assert (notice, last) == ((NOTICE, b"3 more jobs are not shown"), (WHOLE, b""))


def test_a_file_larger_than_the_bound_is_told_from_there(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST_BYTES", 100_000)
    (job.scratch / "log").write_bytes(b"x" * 300_000)
    notice, *told, last = job.said("tail", file="log", lines=1, follow=False)
    assert (b"".join(said for _, said in told), last) == (b"x" * 100_000, (WHOLE, b""))
    assert notice == (NOTICE, b"200000 bytes before these are not shown: no more than 100000 are")
    with open(job.scratch / "log", "r+b") as file:
        file.truncate(1 << 40)
    told = job.said("tail", file="log", lines=1, follow=False)
    assert b"".join(said for kind, said in told if kind == CONTENT) == bytes(100_000)


def test_a_followed_file_is_told_as_it_grows_until_the_job_ends(job: Job) -> None:
    log = job.scratch / "log"
    log.write_bytes(b"1\n2\n3\n")
    job.has(os.getpid())
    with job.ask("tail", file="log", lines=2, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"2\n3\n"
        with open(log, "ab") as file:
            file.write(b"4\n")
        assert ours.recv(MOST) == CONTENT + b"4\n"
        log.write_bytes(b"5\n")
        assert ours.recv(MOST) == NOTICE + b"log was truncated"
        assert ours.recv(MOST) == CONTENT + b"5\n"
        other = job.scratch / "other"
        other.write_bytes(b"6\n")
        other.rename(log)
        assert ours.recv(MOST) == NOTICE + b"log is another file now"
        assert ours.recv(MOST) == CONTENT + b"6\n"
        with open(log, "ab") as file:
            file.write(b"7\n")
        job.has()
        assert ours.recv(MOST) == CONTENT + b"7\n"
        assert ours.recv(MOST) == NOTICE + b"the job has ended"
        assert ours.recv(MOST) == WHOLE


def test_a_file_that_is_replaced_as_fast_as_it_can_be_is_told_as_whole_files_of_the_folder(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "PERIOD", 0.001)
    log, part, outside = job.scratch / "log", job.scratch / "part", job.scratch.parent / "outside"
    outside.write_text("of another user\n")
    stop, count = threading.Event(), 0

    def whole(number: int) -> bytes:
        return b"".join(b"line %d of file %d\n" % (line, number) for line in range(200))

    def replaces() -> None:
        nonlocal count
        while not stop.is_set():
            count += 1
            part.write_bytes(whole(count))
            part.rename(log)
            for strange in (os.mkfifo, lambda path: path.symlink_to(outside), lambda path: path.mkdir()):
                strange(part)
                with contextlib.suppress(OSError):  # a folder takes no file's place
                    part.rename(log)
            part.rmdir()
            log.unlink()

    log.write_bytes(whole(0))
    job.has(os.getpid())
    before = len(os.listdir("/proc/self/fd"))
    told, notices = [b""], 0
    thread = threading.Thread(target=replaces, daemon=True)
    with job.ask("tail", file="log", lines=1000, follow=True) as ours:
        while packet := ours.recv(MOST + 1):
            kind, said = packet[:1], packet[1:]
            if thread.ident is None:
                thread.start()  # the file has been opened: it is there at first
            if kind == NOTICE and said == b"log is another file now":
                notices += 1
                told.append(b"")
            elif kind == CONTENT:
                told[-1] += said
            if notices >= 20 and count >= 1000:
                job.has()
        assert kind == WHOLE
    stop.set()
    thread.join()
    job.child.join(60)
    numbers = [int(each.split()[4]) for each in told]
    assert [whole(number) for number in numbers] == told and numbers == sorted(set(numbers))
    assert len(os.listdir("/proc/self/fd")) < before + 10, "what is another file now is closed"


def test_what_is_written_too_fast_is_left_out_and_said(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST_A_SECOND", 0)
    log = job.scratch / "log"
    log.write_bytes(b"1\n")
    job.has(os.getpid())
    with job.ask("tail", file="log", lines=1, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        os.truncate(log, 1_000_002)  # a write of so much would be seen in part
        assert (
            ours.recv(MOST) == NOTICE + f"{1_000_000 - 65536} bytes are left out: they were written too fast".encode()
        )


def test_who_follows_and_leaves_ends_it(job: Job) -> None:
    (job.scratch / "log").write_bytes(b"1\n")
    job.has(os.getpid())
    ours = job.ask("tail", file="log", lines=1, follow=True)
    ours.recv(MOST)
    ours.close()
    job.child.join(60)
    assert not job.child.is_alive()


def test_output_is_found_by_the_starters_name_or_by_what_the_job_has_open(job: Job, tmp_path: Path) -> None:
    elsewhere = tmp_path / "out"
    with (
        open(elsewhere, "wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", "print('hello', flush=True); input()"], stdin=subprocess.PIPE, stdout=out
        ) as first,
    ):
        while not elsewhere.read_bytes():
            threading.Event().wait(0.01)
        job.has(first.pid)
        assert job.tail("stdout") == b"hello\n"
        (job.scratch / "_condor_stdout").write_bytes(b"by transfer\n")
        assert job.tail("stdout") == b"by transfer\n"
        first.kill()
    os.remove(job.scratch / "_condor_stdout")
    job.has()
    assert "first process" in job.failure("tail", file="stdout", lines=1, follow=False)


def test_output_that_is_a_pipe_is_said_to_be_one(job: Job) -> None:
    with subprocess.Popen(["sleep", "1000"], stdout=subprocess.PIPE) as first:
        job.has(first.pid)
        assert "a pipe" in job.failure("tail", file="stdout", lines=1, follow=False)
        first.kill()


def test_processes_in_many_cgroups_are_all_found(job: Job, process: subprocess.Popen[bytes]) -> None:
    """A job can make as many cgroups as it likes; none of its processes is left out in silence."""
    for number in range(300):
        (job.cgroup / f"part{number}").mkdir()
        (job.cgroup / f"part{number}" / "cgroup.procs").touch()
    last = job.cgroup / "part299" / "deep"
    last.mkdir()
    (last / "cgroup.procs").write_text(f"{process.pid}\n")
    ((_, said), end) = job.said("ps")
    assert json.loads(said)["Pid"] == process.pid and end == (WHOLE, b"")
    ((_, said), end) = job.said("kill", pid=process.pid, signal=signal.SIGTERM)
    assert json.loads(said)["Pid"] == process.pid and end == (WHOLE, b"")
    assert process.wait(60) == -signal.SIGTERM


def test_cgroups_beyond_the_bound_are_said(
    job: Job, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_processes, "MOST_CGROUPS", 2)
    for number in range(3):
        (job.cgroup / f"part{number}").mkdir()
    *_, notice, end = job.said("ps")
    assert notice == (NOTICE, b"only those in the job's first 4000 cgroups, 100 deep are shown") and end == (WHOLE, b"")
    why = job.failure("kill", pid=process.pid, signal=signal.SIGTERM)
    assert why == f"process {process.pid} is not in the job's first 4000 cgroups, 100 deep"


def test_cgroups_one_in_the_other_hide_no_process_in_silence(job: Job, process: subprocess.Popen[bytes]) -> None:
    folder = os.open(job.cgroup, os.O_RDONLY)
    for _ in range(1500):  # deeper than Python calls itself
        os.mkdir("x", dir_fd=folder)
        folder, above = os.open("x", os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    try:
        job.has(process.pid)
        (_, said), notice, end = job.said("ps")
        assert json.loads(said)["Pid"] == process.pid
        assert notice[0] == NOTICE and b"100 deep" in notice[1] and end == (WHOLE, b"")
        why = job.failure("kill", pid=os.getpid(), signal=signal.SIGTERM)
        assert why.endswith("100 deep")
    finally:
        subprocess.run(["rm", "-r", job.cgroup / "x"], check=True)  # pytest can't


def test_a_follow_ends_before_the_kernel_ends_it_and_says_so(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.scratch / "log").write_bytes(b"1\n")
    job.has(os.getpid())
    monkeypatch.setattr(tail, "FOLLOWED_CPU_SECONDS", 0.0)
    with job.ask("tail", file="log", lines=1, follow=True) as ours:
        assert ours.recv(MOST) == CONTENT + b"1\n"
        assert ours.recv(MOST) == NOTICE + b"a file is followed for 0 s of CPU time: ask again"
        assert ours.recv(MOST) == WHOLE
    assert children.VERBS["tail"].cpu_seconds > 3600 * 0.02, "an hour of a file that grows takes more than 15 s"


# -- which files ----------------------------------------------------------------------------------------------


HOSTILE = {
    "../secret": "outside of the job's folder",
    "/etc/passwd": "outside of the job's folder",
    "out": "outside of the job's folder",
    "up": "outside of the job's folder",
    "magic": "outside of the job's folder",
    "loop": "behind too many links",
    "folder/../../secret": "outside of the job's folder",
    "round/../../secret": "outside of the job's folder",
    "fifo": "a pipe",
    "socket": "a socket",
    "folder": "a folder",
    "null": "outside of the job's folder",
    "missing": "no such file",
    "log/x": "no such file",
    ".": "a folder",
}


@pytest.fixture
def hostile(job: Job) -> Iterator[Job]:
    at = job.scratch
    (at.parent / "secret").write_text("secret")
    (at / "log").write_text("log\n")
    (at / "folder").mkdir()
    (at / "folder" / "inner").write_text("inner\n")
    for name, target in {
        "out": "/etc/passwd",
        "up": "../secret",
        "magic": "/proc/self/root/etc/passwd",
        "loop": "loop",
        "null": "/dev/null",
        "inside": "folder/inner",
        "round": "folder/../folder",
    }.items():
        (at / name).symlink_to(target)
    os.mkfifo(at / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(at)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        yield job


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_but_a_regular_file_of_the_folder_is_opened(name: str, hostile: Job) -> None:
    said = hostile.failure("tail", file=name, lines=1, follow=False)
    assert HOSTILE[name] in said


@pytest.mark.parametrize("name", ["inside", "folder/inner", "./folder//inner", "round/inner", "folder/../inside"])
def test_a_way_that_stays_within_the_folder_leads_there(name: str, hostile: Job) -> None:
    assert hostile.tail(name) == b"inner\n"


def test_a_folder_that_is_moved_away_meanwhile_leads_nowhere(hostile: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """`..` goes back on the way that was taken, not to where the folder is now."""
    (hostile.scratch.parent / "away").mkdir()
    opened = beneath._opened

    def moved(held: contextlib.ExitStack, name: bytes, folder: int) -> int:
        found = opened(held, name, folder)
        if name == b"folder":
            (hostile.scratch / "folder").rename(hostile.scratch.parent / "away" / "folder")
        return found

    monkeypatch.setattr(beneath, "_opened", moved)
    assert hostile.tail("folder/../log") == b"log\n"


def test_a_name_that_takes_too_much_is_refused(hostile: Job) -> None:
    deep = hostile.scratch
    for _ in range(100):
        deep = deep / "d"
        deep.mkdir()
    assert hostile.failure("tail", file="/".join(["d"] * 100), lines=1, follow=False)
    with pytest.raises(Failed, match="NUL"):
        beneath.open_regular(0, "a\0b")


# -- ps -------------------------------------------------------------------------------------------------------


def test_the_processes_of_the_cgroup_and_no_other(job: Job, process: subprocess.Popen[bytes]) -> None:
    job.has(process.pid)
    (kind, said), last = job.said("ps")
    assert (kind, last) == (CONTENT, (WHOLE, b""))
    found = json.loads(said)
    assert (found["Pid"], found["ParentPid"], found["Threads"]) == (process.pid, os.getpid(), 1)
    assert found["MemoryBytes"] > 0 and found["CpuSeconds"] >= 0 and found["WallSeconds"] >= 0
    assert "input()" in found["Command"] and "hunter2" not in found["Command"]


def test_a_job_that_is_over_has_no_process(job: Job) -> None:
    job.has(1 << 22)
    assert job.said("ps") == [(WHOLE, b"")]


def test_the_main_process_is_the_oldest(job: Job, process: subprocess.Popen[bytes]) -> None:
    job.has(process.pid, os.getpid())
    cgroup = os.open(job.cgroup, os.O_RDONLY)
    try:
        assert job_processes.main_process(cgroup) == os.getpid()
    finally:
        os.close(cgroup)


# -- kill -----------------------------------------------------------------------------------------------------


def test_a_process_of_the_job_gets_the_signal(job: Job, process: subprocess.Popen[bytes]) -> None:
    job.has(process.pid)
    (_, said), last = job.said("kill", pid=0, signal=int(signal.SIGUSR1))
    assert json.loads(said)["Pid"] == process.pid and last[0] == WHOLE
    assert process.wait(60) == -signal.SIGUSR1


def test_a_process_that_is_none_of_the_job_gets_nothing(job: Job, process: subprocess.Popen[bytes]) -> None:
    job.has(os.getpid())
    assert "none of the job" in job.failure("kill", pid=process.pid, signal=9)
    assert "none of the job" in job.failure("kill", pid=(1 << 22) - 1, signal=9)
    job.has()
    assert "no process" in job.failure("kill", pid=0, signal=9)
    assert process.poll() is None


def test_an_id_that_is_used_again_meanwhile_is_not_signalled(
    job: Job, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends after it was held, and the job has another one of the same id by then."""
    job.has(process.pid)
    hold = os.pidfd_open

    def held(pid: int) -> int:
        found = hold(pid)
        process.kill()
        process.wait()
        return found

    monkeypatch.setattr(os, "pidfd_open", held)
    assert "has ended" in job.failure("kill", pid=process.pid, signal=9)


@pytest.mark.parametrize("is_named", [True, False])
def test_an_id_that_is_another_jobs_before_it_is_held_is_not_signalled(
    is_named: bool, job: Job, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's process has ended by the time that it would be held, and somebody else's has its id."""
    job.has(process.pid)
    hold = os.pidfd_open

    def held(pid: int) -> int:
        job.has(os.getpid())
        return hold(pid)

    monkeypatch.setattr(os, "pidfd_open", held)
    assert "none of the job" in job.failure("kill", pid=process.pid if is_named else 0, signal=9)
    assert process.poll() is None


def test_a_job_whose_files_are_gone_fails_in_words(job: Job) -> None:
    with pytest.raises(Failed):
        tail.open_file("stdout", os.open(job.scratch, os.O_RDONLY), os.open(job.cgroup, os.O_RDONLY))
