"""The job wrapper: whatever joblensd, the helper and the record do, the job gets what it would have had."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples
from wrapper_site import Site, run, traced

SHELLS = ("dash", "bash")

# Prints its own argv, NUL-terminated: /proc has it byte for byte.
SHOW_ARGV = ["/bin/sh", "-c", 'cat "/proc/$$/cmdline"']
CONDOR_ENVIRONMENT = {"_CONDOR_SLOT": "slot1_7", "_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_4711"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short, unlike pytest's own (a socket's path has at most 107 bytes), and open to other users."""
    path = Path(tempfile.mkdtemp(prefix="joblens-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def sites(folder: Path) -> dict[tuple[str, bool], Site]:
    """By shell, and whether the tester is who may write the record."""
    built = {}
    for shell in SHELLS:
        for is_owner in (True, False):
            path = folder / f"{shell}{is_owner:d}"
            path.mkdir()
            built[shell, is_owner] = Site(path, shell, os.getuid() + (not is_owner))
    return built


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(sites: dict[tuple[str, bool], Site], shell: str) -> Site:
    sites[shell, True].reset()
    return sites[shell, True]


@pytest.fixture
def patient_site(site: Site) -> Site:
    site.be_patient()
    return site


@pytest.fixture
def strangers_site(sites: dict[tuple[str, bool], Site], shell: str) -> Site:
    """Here the record belongs to someone who has no say in it."""
    sites[shell, False].reset()
    return sites[shell, False]


# --- the conversation with joblensd ---


def test_request_names_slot_and_scratch(patient_site: Site) -> None:
    with patient_site.joblensd() as requests:
        assert run([patient_site.wrapper, "/bin/true"], env=CONDOR_ENVIRONMENT).returncode == 0
    assert requests == [b"joblens/1\0activate\0slot=slot1_7\0scratch=/var/lib/condor/execute/dir_4711\0"]


def test_request_by_hand_has_no_claims(patient_site: Site) -> None:
    with patient_site.joblensd() as requests:
        assert run([patient_site.wrapper, "/bin/echo", "by hand"], env={}).stdout == b"by hand\n"
    assert requests == [b"joblens/1\0activate\0"]


@pytest.mark.parametrize("excess", [0, 1, 100_000])
def test_claim_that_does_not_fit_is_left_out(patient_site: Site, excess: int) -> None:
    head, tail = b"joblens/1\0activate\0slot=", b"scratch=/s\0"
    slot = b"x" * (4096 - len(head) - 1 - len(tail) + excess)
    with patient_site.joblensd() as requests:
        run([patient_site.wrapper, "/bin/true"], env={"_CONDOR_SLOT": slot, "_CONDOR_SCRATCH_DIR": "/s"})
    (request,) = requests
    assert len(request) <= 4096
    # One byte too many pushes out the last field; far too many push out the long one alone.
    assert (
        request
        == {
            0: head + slot + b"\0" + tail,
            1: head + slot + b"\0",
            100_000: b"joblens/1\0activate\0" + tail,
        }[excess]
    )


@pytest.mark.parametrize("reply", [b"joblens/1\0traced\0level=basic\0", b"joblens/1\0refused\0reason=no slot\0"])
def test_job_starts_after_the_reply(patient_site: Site, tmp_path: Path, reply: bytes) -> None:
    answered = tmp_path / "answered"
    left: list[bytes] = []

    def behave(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.1)
        answered.touch()
        connection.send(reply)
        left.append(connection.recv(1))

    with patient_site.joblensd(behave):
        result = run([patient_site.wrapper, "/bin/ls", answered])
    assert (result.returncode, result.stderr) == (0, b"")
    assert left == [b""]  # an orderly end for joblensd, not ECONNRESET


@pytest.fixture(scope="module")
def no_core(folder: Path) -> Path:
    """A library with which an hour goes by after a process has first looked at the clock: others had all cores."""
    source, library = folder / "no_core.c", folder / "no_core.so"
    source.write_text(
        "#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n"
        "int clock_gettime(clockid_t clock, struct timespec *now) {\n"
        "\tstatic int hours;\n\tint failed = syscall(SYS_clock_gettime, clock, now);\n"
        "\tnow->tv_sec += 3600 * hours;\n\thours = 1;\n\treturn failed;\n}\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library)], check=True)
    return library


def test_the_time_before_its_request_is_no_time_that_joblensd_had(
    patient_site: Site, tmp_path: Path, no_core: Path
) -> None:
    answered = tmp_path / "answered"

    def behave(connection: socket.socket, request: bytes) -> None:
        time.sleep(0.1)
        answered.touch()
        traced(connection, request)

    with patient_site.joblensd(behave):
        result = run([patient_site.wrapper, "/bin/ls", answered], env={"LD_PRELOAD": str(no_core)})
    assert (result.returncode, result.stderr) == (0, b""), "it waited for the answer"


SHOW_PYTHONPATH = ["/bin/sh", "-c", 'printf "%s %s" "${PYTHONPATH-unset}" "$1"', "sh", "own argument"]


def python_is_traced(connection: socket.socket, request: bytes) -> None:
    connection.send(b"joblens/1\0traced\0level=trace\0python=raises\0")


CALLS_ARE_RECORDED = b"joblens/1\0traced\0level=trace\0python=calls\0"


@pytest.fixture
def python_folder(patient_site: Site) -> Iterator[Path]:
    """What is loaded into Pythons lies beside the wrapper."""
    folder = patient_site.wrapper.parent / "joblens_python"
    folder.mkdir()
    (folder / "sitecustomize.py").touch()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("own, after", [(None, ""), ("", ""), ("/a b:c", ":/a b:c")])
def test_pythons_of_a_job_that_asks_for_it_find_what_traces_them(
    patient_site: Site, python_folder: Path, own: str | None, after: str
) -> None:
    environment = CONDOR_ENVIRONMENT if own is None else {**CONDOR_ENVIRONMENT, "PYTHONPATH": own}
    with patient_site.joblensd(python_is_traced):
        result = run([patient_site.wrapper, *SHOW_PYTHONPATH], env=environment)
    assert (result.returncode, result.stdout.decode()) == (0, f"{python_folder}{after} own argument")


@pytest.mark.parametrize("environment", [{}, {"PWD": "/"}, {**CONDOR_ENVIRONMENT, "PYTHONPATH": "/a"}])
@pytest.mark.parametrize("is_chained", [False, True])
def test_pythons_whose_calls_are_recorded_find_another_folder(
    patient_site: Site, python_folder: Path, tmp_path: Path, environment: dict[str, str], is_chained: bool
) -> None:
    folder = shutil.copytree(python_folder, f"{python_folder}_calls")
    chained = tmp_path / "chained"
    chained.write_text('#!/bin/sh\nexec "$@"\n')
    chained.chmod(0o755)
    if is_chained:
        patient_site.chain(f"{chained}\n")
    own = f":{environment['PYTHONPATH']}" if "PYTHONPATH" in environment else ""
    try:
        with patient_site.joblensd(lambda connection, _: connection.send(CALLS_ARE_RECORDED) and None):
            result = run([patient_site.wrapper, *SHOW_PYTHONPATH], env=environment)
    finally:
        shutil.rmtree(folder)
    assert (result.returncode, result.stdout.decode()) == (0, f"{folder}{own} own argument")


REPLIES_WITHOUT_PYTHON = (
    b"joblens/1\0traced\0level=basic\0",
    b"joblens/1\0refused\0reason=python=raises\0",
    b"joblens/1\0traced\0xpython=1\0",
    b"python=1",
)


@pytest.mark.parametrize("own", [None, "", "/a b:c"])
@pytest.mark.parametrize("reply", REPLIES_WITHOUT_PYTHON)
def test_pythons_of_no_other_job_do(patient_site: Site, python_folder: Path, own: str | None, reply: bytes) -> None:
    environment = CONDOR_ENVIRONMENT if own is None else {**CONDOR_ENVIRONMENT, "PYTHONPATH": own}
    with patient_site.joblensd(lambda connection, request: connection.send(reply) and None):
        result = run([patient_site.wrapper, *SHOW_PYTHONPATH], env=environment)
    assert result.stdout.decode() == f"{'unset' if own is None else own} own argument"


def test_where_it_is_not_installed_nothing_changes(patient_site: Site) -> None:
    with patient_site.joblensd(python_is_traced):
        result = run([patient_site.wrapper, *SHOW_PYTHONPATH], env=CONDOR_ENVIRONMENT)
    assert result.stdout == b"unset own argument"


def test_a_chained_wrapper_runs_also_where_pythons_are_traced(patient_site: Site, tmp_path: Path) -> None:
    chained = tmp_path / "chained"
    chained.write_text('#!/bin/sh\necho "chained: $#"\nexec "$@"\n')
    chained.chmod(0o755)
    patient_site.chain(f"{chained}\n")
    with patient_site.joblensd(python_is_traced):
        result = run([patient_site.wrapper, "/bin/echo", "a b"], env={})
    assert result.stdout == b"chained: 2\na b\n"


def says_nothing(connection: socket.socket, request: bytes) -> None:
    pass


def hangs_up(connection: socket.socket, request: bytes) -> None:
    connection.close()


def talks_garbage(connection: socket.socket, request: bytes) -> None:
    connection.send(bytes(range(256)) * 8)


def talks_unterminated(connection: socket.socket, request: bytes) -> None:
    connection.send(b"joblens/1\0traced")


def talks_a_lot(connection: socket.socket, request: bytes) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    packet = b"joblens/1\0traced\0level=" + b"9" * (1 << 20)
    while len(packet) > 1000:  # the kernel's own limit (net.core.wmem_max) may refuse the whole megabyte
        try:
            connection.send(packet)
            return
        except OSError:
            packet = packet[: len(packet) // 2]


def repeats_itself(connection: socket.socket, request: bytes) -> None:
    for _ in range(1000):
        connection.send(b"joblens/1\0traced\0", socket.MSG_DONTWAIT)


@pytest.mark.parametrize(
    "behave", [says_nothing, hangs_up, talks_garbage, talks_unterminated, talks_a_lot, repeats_itself]
)
def test_job_runs_whatever_the_server_does(site: Site, behave: object) -> None:
    with site.joblensd(behave) as requests:  # type: ignore[arg-type]
        result = run([site.wrapper, "/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    assert len(requests) == 1
    assert (result.returncode, result.stdout, result.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.parametrize("lies_there", ["a dead socket", "nothing", "a file"])
def test_job_runs_when_nobody_listens(site: Site, lies_there: str) -> None:
    if lies_there == "a dead socket":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as once:
            once.bind(str(site.socket))
    elif lies_there == "a file":
        site.socket.touch()
    result = run([site.wrapper, "/bin/echo", "ran"])
    assert (result.returncode, result.stdout, result.stderr) == (0, b"ran\n", b"")


def test_job_runs_when_the_backlog_is_full(site: Site) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(site.socket))
        listener.listen(0)
        waiting = []
        with pytest.raises(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
                waiting[-1].connect(str(site.socket))
        result = run([site.wrapper, "/bin/echo", "ran"])
        for connection in waiting:
            connection.close()
    assert (result.returncode, result.stdout, result.stderr) == (0, b"ran\n", b"")


# --- the job's arguments, environment and everything else a process inherits ---


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(st.binary().map(lambda argument: argument.replace(b"\0", b""))))
def test_arguments_pass_through(site: Site, arguments: list[bytes]) -> None:
    result = run([site.wrapper, *SHOW_ARGV, *arguments])
    assert result.stdout.split(b"\0")[:-1] == [*map(os.fsencode, SHOW_ARGV), *arguments]


@pytest.mark.parametrize(
    "argument", ["", " ", "a  b", "'", '"', "\\", "$HOME `id` $(id)", "*", "a\nb\n", "-n", "--", "\x01\xff"]
)
@pytest.mark.parametrize("chained", [False, True])
def test_awkward_argument(site: Site, tmp_path: Path, argument: str, chained: bool) -> None:
    if chained:
        site.chain(f"{site_wrapper(tmp_path)}\n")
    result = run([site.wrapper, *SHOW_ARGV, argument, "", argument])
    assert result.stdout.split(b"\0")[:-1] == [os.fsencode(a) for a in (*SHOW_ARGV, argument, "", argument)]


@pytest.mark.parametrize("chained", [False, True])
def test_hundred_thousand_arguments(site: Site, tmp_path: Path, chained: bool) -> None:
    if chained:
        site.chain(f"{site_wrapper(tmp_path)}\n")
    arguments = [str(number) for number in range(100_000)]
    result = run([site.wrapper, *SHOW_ARGV, *arguments])
    assert result.stdout.decode().split("\0")[:-1] == [*SHOW_ARGV, *arguments]


def test_no_command(site: Site) -> None:
    with site.joblensd():
        result = run([site.wrapper])
    assert (result.returncode, result.stdout) == (127, b"")
    assert result.stderr == b"joblens_wrapper: no command to run\n"


@pytest.mark.parametrize("code", [0, 1, 2, 40, 100, 102, 126, 127, 254, 255])
def test_exit_code(site: Site, code: int) -> None:
    assert run([site.wrapper, "/bin/sh", "-c", f"exit {code}"]).returncode == code


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGUSR1])
def test_death_by_signal(site: Site, number: signal.Signals) -> None:
    assert run([site.wrapper, "/bin/sh", "-c", f"kill -{number.value} $$"]).returncode == -number


def test_command_that_can_not_be_executed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    assert run([site.wrapper, "/nonexistent"]).returncode == 127
    assert run([site.wrapper, tmp_path / "data"]).returncode == 126


@pytest.mark.parametrize("helper_works", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"PWD": "/", "SHLVL": "7", "A": "1"},
        {"XPWD": "1", "PWDX": "2", "PW": "3", "OLDPWD": "/tmp"},
        {"PATH": "/nowhere", "IFSX": "\n", "LONG": "x" * 100_000, "A": "PWD=", "EMPTY": ""},
    ],
)
def test_environment_is_untouched(site: Site, shell: str, given: dict[str, str], helper_works: bool) -> None:
    if not helper_works:
        site.helper.unlink()
    result = run([site.wrapper, "/usr/bin/env", "-0"], env=given, cwd="/")
    seen = dict(line.split("=", 1) for line in result.stdout.decode().split("\0")[:-1])
    expected = dict(given)
    if shell == "bash":  # sets it, exports it, and has no way to be told not to
        expected.setdefault("SHLVL", "0")
    if not helper_works:  # nobody to tell that the job had none
        expected.setdefault("PWD", "/")
    assert seen == expected


def test_shell_options_of_the_job_do_no_harm(site: Site, shell: str) -> None:
    """bash takes them from the environment: errexit, and exporting whatever is assigned."""
    site.helper.unlink()
    options = "allexport:errexit:nounset:noglob"
    result = run([site.wrapper, "/usr/bin/env"], env={"SHELLOPTS": options})
    names = {line.split("=", 1)[0] for line in result.stdout.decode().splitlines()}
    assert "SHELLOPTS" in names
    assert not [name for name in names if "joblens" in name]


def inherited(command: list[str | Path], ignored: set[signal.Signals], blocked: set[signal.Signals]) -> bytes:
    """What the kernel says of a process that was started with unusual things to inherit."""

    def unusual() -> None:
        os.umask(0o137)
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
        resource.setrlimit(resource.RLIMIT_STACK, (4 << 20, 8 << 20))

    look = [
        "/bin/grep",
        "-E",
        "^(Umask|Sig(Blk|Ign|Cgt|Pnd)|ShdPnd|Max|Seccomp|NoNewPrivs|Cap...|Cpus_allowed)",
    ]
    result = run([*command, *look, "/proc/self/status", "/proc/self/limits"], preexec_fn=unusual, restore_signals=False)
    assert result.returncode == 0, result
    return result.stdout


@pytest.mark.parametrize("behave", [traced, says_nothing])
def test_process_state_is_untouched(site: Site, shell: str, behave: object) -> None:
    ignored, blocked = {signal.SIGINT, signal.SIGPIPE, signal.SIGUSR2}, set()
    if shell == "bash":  # dash catches SIGCHLD and waits for children with nothing blocked, in every script
        ignored |= {signal.SIGCHLD}
        blocked |= {signal.SIGUSR1, signal.SIGALRM, signal.SIGTERM}
    with site.joblensd(behave) as requests:  # type: ignore[arg-type]
        assert inherited([site.wrapper], ignored, blocked) == inherited([], ignored, blocked)
    assert len(requests) == 1


@pytest.mark.parametrize("stdin_is_open", [True, False])
def test_descriptors_are_untouched(site: Site, folder: Path, stdin_is_open: bool) -> None:
    def seen(command: list[str | Path]) -> bytes:
        with open(folder / "inherited", "w") as file:
            result = run(
                [*command, "/bin/ls", "-l", "/proc/self/fd"],
                pass_fds=[file.fileno()],
                preexec_fn=lambda: None if stdin_is_open else os.close(0),
            )
        return re.sub(rb"pipe:.*|/proc/.*", b"", b"\n".join(re.findall(rb"\d+ -> .*", result.stdout)))

    with site.joblensd():
        assert b"inherited" in seen([])
        assert seen([site.wrapper]) == seen([])


def test_streams_belong_to_the_job(site: Site) -> None:
    with site.joblensd() as requests:
        result = run([site.wrapper, "/bin/cat"], input=b"line 1\nline 2\n")
    assert len(requests) == 1
    assert (result.stdout, result.stderr) == (b"line 1\nline 2\n", b"")


def test_same_process(site: Site) -> None:
    """The starter watches the process that it started: it must become the job."""
    with subprocess.Popen([site.wrapper, "/bin/sh", "-c", "echo $$"], stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert int(job.stdout.read()) == job.pid


# --- a helper that doesn't work ---


def remove(helper: Path) -> None:
    helper.unlink()


def forbid(helper: Path) -> None:
    helper.chmod(0o644)


def empty(helper: Path) -> None:
    helper.write_bytes(b"")


def tear_header(helper: Path) -> None:
    helper.write_bytes(helper.read_bytes()[:20])


def tear_body(helper: Path) -> None:
    helper.write_bytes(helper.read_bytes()[:4000])


def move_to_another_machine(helper: Path) -> None:
    image = bytearray(helper.read_bytes())
    image[18] ^= 0xFF  # the low byte of e_machine in the ELF header
    helper.write_bytes(image)


def replace_by_folder(helper: Path) -> None:
    helper.unlink()
    helper.mkdir()


def script(helper: Path, text: str) -> None:
    helper.write_text(f"#!/bin/sh\n{text}\n")


def crash(helper: Path) -> None:
    script(helper, "kill -SEGV $$")


def be_killed(helper: Path) -> None:
    script(helper, "kill -KILL $$")


def chatter(helper: Path) -> None:
    script(helper, "echo noise; echo noise >&2; cat; exit 1")


def fail_like_a_shell(helper: Path) -> None:
    script(helper, "exit 2")


def fail_like_a_bash(helper: Path) -> None:
    script(helper, "exit 254")


BROKEN = [
    *(remove, forbid, empty, tear_header, tear_body, move_to_another_machine, replace_by_folder),
    *(crash, be_killed, chatter, fail_like_a_shell, fail_like_a_bash),
]


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("damage", BROKEN)
def test_broken_helper_costs_the_job_nothing(site: Site, tmp_path: Path, damage: object, chained: bool) -> None:
    damage(site.helper)  # type: ignore[operator]
    if chained:
        site.chain(f"{site_wrapper(tmp_path)}\n")
    job = ["/bin/sh", "-c", 'cat; echo "$SITE|$1"; echo err >&2; exit 5', "sh", "a  b"]
    result = run([site.wrapper, *job], input=b"in\n", env={})
    answer = b"in\nset by the site|a  b\n" if chained else b"in\n|a  b\n"
    assert (result.returncode, result.stdout, result.stderr) == (5, answer, b"err\n")


def test_signal_while_waiting_ends_the_job(site: Site) -> None:
    """HTCondor removes a job by SIGTERM: also one that is still on its way."""
    script(site.helper, "kill -TERM $PPID; exec sleep 0.1")
    result = run([site.wrapper, "/bin/echo", "ran"])
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, b"")


@pytest.fixture(scope="module")
def no_fork(folder: Path) -> Path:
    """A library with which no process can be started, as at the limit of processes, and no sleep is long."""
    source, library = folder / "no_fork.c", folder / "no_fork.so"
    source.write_text(
        "#include <errno.h>\n#include <unistd.h>\n"
        "pid_t fork(void) { errno = EAGAIN; return -1; }\n"
        "pid_t vfork(void) { errno = EAGAIN; return -1; }\n"
        "unsigned sleep(unsigned seconds) { (void)seconds; return 0; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize("chained", [False, True])
def test_job_runs_where_no_process_can_be_started(site: Site, tmp_path: Path, no_fork: Path, chained: bool) -> None:
    if chained:
        site.chain(f"{site_wrapper(tmp_path)}\n")
    with site.joblensd() as requests:
        result = run([site.wrapper, "/usr/bin/printenv", "SITE", "X"], env={"LD_PRELOAD": str(no_fork), "X": "1"})
    assert requests == []
    assert (result.stdout, result.stderr) == (b"set by the site\n1\n" if chained else b"1\n", b"")


# --- the wrapper that the site had before ---


def site_wrapper(folder: Path, name: str = "site_wrapper") -> Path:
    """A site's wrapper: sets up the environment, then becomes the job."""
    path = folder / name
    path.write_text('#!/bin/sh\nSITE="set by the site" exec "$@"\n')
    path.chmod(0o755)
    return path


def was_chained(site: Site) -> bool:
    result = run([site.wrapper, "/bin/sh", "-c", 'echo "${SITE-none}|$1"', "sh", "an argument"], env={})
    assert (result.returncode, result.stderr) == (0, b"")
    answer, argument = result.stdout.split(b"|")
    assert argument == b"an argument\n"
    return answer == b"set by the site"


@pytest.fixture(params=["helper", "no helper"])
def either_site(site: Site, request: pytest.FixtureRequest) -> Site:
    """The record must be judged alike by the helper and by the shell that has none."""
    if request.param == "no helper":
        site.helper.unlink()
    return site


@pytest.mark.parametrize("form", ["{}\n", "{}", "  {} \n", "{}\n/a/second/line\n"])
@pytest.mark.parametrize("name", ["site_wrapper", "with  two spaces", "ünïcode'\"$x"])
def test_chained_wrapper_runs(either_site: Site, tmp_path: Path, form: str, name: str) -> None:
    either_site.chain(form.format(site_wrapper(tmp_path, name)))
    assert was_chained(either_site)


def test_record_may_be_a_link(either_site: Site, tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text(f"{site_wrapper(tmp_path)}\n")
    either_site.record.symlink_to(record)
    assert was_chained(either_site)


def test_chained_wrapper_is_called_without_arguments_too(either_site: Site, tmp_path: Path) -> None:
    wrapper = tmp_path / "counts"
    wrapper.write_text('#!/bin/sh\necho "$0 $#"\n')
    wrapper.chmod(0o755)
    either_site.chain(f"{wrapper}\n")
    result = run([either_site.wrapper])
    assert (result.returncode, result.stdout.decode()) == (0, f"{wrapper} 0\n")


def test_exit_code_of_the_chained_wrapper(either_site: Site, tmp_path: Path) -> None:
    wrapper = tmp_path / "refuses"
    wrapper.write_text("#!/bin/sh\nexit 42\n")
    wrapper.chmod(0o755)
    either_site.chain(f"{wrapper}\n")
    assert run([either_site.wrapper, "/bin/true"]).returncode == 42


@pytest.mark.parametrize("way", ["itself", "symlink", "hard link", "dotted"])
def test_never_chained_to_itself(either_site: Site, way: str) -> None:
    wrapper, other = either_site.wrapper, either_site.wrapper.with_name("other")
    other.unlink(missing_ok=True)
    if way == "symlink":
        other.symlink_to(wrapper)
    elif way == "hard link":
        os.link(wrapper, other)
    names = {"itself": wrapper, "dotted": f"{wrapper.parent}/../{wrapper.parent.name}/./{wrapper.name}"}
    either_site.chain(f"{names.get(way, other)}\n")
    assert not was_chained(either_site)


def test_never_chained_to_itself_when_called_by_a_link(either_site: Site) -> None:
    link = either_site.wrapper.with_name("link")
    link.unlink(missing_ok=True)
    link.symlink_to(either_site.wrapper)
    either_site.chain(f"{either_site.wrapper}\n")
    assert run([link, "/bin/echo", "ran"]).stdout == b"ran\n"


@pytest.mark.parametrize("text", ["", "\n", "site_wrapper\n", "./site_wrapper\n", "# /bin/false\n", "\0\xff\n", "/\n"])
def test_record_that_is_no_absolute_path(
    either_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    either_site.chain(text)
    site_wrapper(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert not was_chained(either_site)


@pytest.mark.parametrize("target", ["missing", "not executable", "folder"])
def test_vanished_wrapper(either_site: Site, tmp_path: Path, target: str) -> None:
    path = tmp_path / "target"
    if target == "folder":
        path.mkdir()
    elif target == "not executable":
        site_wrapper(tmp_path, "target").chmod(0o644)
    either_site.chain(f"{path}\n")
    assert not was_chained(either_site)


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666, 0o622])
def test_record_that_others_may_write(either_site: Site, tmp_path: Path, mode: int) -> None:
    either_site.chain(f"{site_wrapper(tmp_path)}\n", mode)
    assert not was_chained(either_site)


@pytest.mark.parametrize("helper_works", [True, False])
def test_record_of_a_stranger(strangers_site: Site, tmp_path: Path, helper_works: bool) -> None:
    if not helper_works:
        strangers_site.helper.unlink()
    strangers_site.chain(f"{site_wrapper(tmp_path)}\n")
    assert not was_chained(strangers_site)


def test_record_that_is_no_file(either_site: Site) -> None:
    either_site.record.mkdir()
    assert not was_chained(either_site)
    either_site.record.rmdir()
    os.mkfifo(either_site.record)
    assert not was_chained(either_site)


def test_job_can_not_redirect_us(site: Site, tmp_path: Path) -> None:
    """Neither the helper nor the record is looked for where a job's environment says."""
    evil = site_wrapper(tmp_path, "joblens_activate")
    (tmp_path / "chained_wrapper").write_text(f"{evil}\n")
    names = ("JOBLENS_SOCKET", "JOBLENS_CHAIN", "_joblens_record", "_joblens_chain")
    environment = {name: str(tmp_path / "chained_wrapper") for name in names}
    with site.joblensd() as requests:
        result = run(
            [site.wrapper, "/usr/bin/env"],
            env={**environment, "PATH": str(tmp_path), "ENV": str(evil)},
            cwd=tmp_path,
        )
    assert len(requests) == 1
    assert b"SITE=" not in result.stdout
