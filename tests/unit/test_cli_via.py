"""`--via condor_tail` and `--via ssh`: what is started, what is said first, and that nothing of it goes on for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_joblens.cli import via
from condor_joblens.cli.main import main

Make = Callable[[str, str], Path]
ENDS = "joblens: condor_ssh_to_job: it ends an ssh session of yours to this job\n"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a program of that name, in the PATH; it writes its arguments, one a line, into the file that it gives."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def made(name: str, script: str) -> Path:
        given, program = tmp_path / f"{name}.given", tmp_path / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{given}\n{script}\n")
        program.chmod(0o755)
        return given

    return made


@pytest.mark.parametrize(
    "command, given",
    [
        (["tail", "12.0"], ["12.0"]),
        (["tail", "12.0", "stderr"], ["-no-stdout", "-stderr", "12.0"]),
        (["tail", "12.0", "a b"], ["-no-stdout", "12.0", "a b"]),
        (["tail", "12", "-f"], ["-follow", "12"]),
    ],
)
def test_condor_tail_and_what_it_reaches(
    command: list[str], given: list[str], make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = make("condor_tail", "printf 'a\\nb\\nc\\n'")
    assert main([*command, "-n", "2", "--via", "condor_tail"]) == 0
    out, err = capfd.readouterr()
    assert out == ("a\nb\nc\n" if "-f" in command else "b\nc\n")
    assert err.startswith("joblens: condor_tail: it reaches stdout, stderr and names in transfer_output_files")
    assert arguments.read_text().splitlines() == ["-maxbytes", str(1 << 20), *given]


@pytest.mark.parametrize(
    "command, there",
    [
        (["ps", "12.0"], "ps -o pid,ppid,stat,nlwp,time,etime,rss,args -u $(id -u)"),
        (["ls", "12.0"], "ls -la -- ."),
        (["ls", "12.0", "a b; reboot"], "ls -la -- 'a b; reboot'"),
        (["tail", "12.0", "-n", "3"], "tail -n 3 -- _condor_stdout"),
        (["tail", "12.0", "$(reboot)", "-f"], "tail -n 10 -f -- '$(reboot)'"),
        (["log", "12.0"], "tail -n 10 -v -- _condor_stdout _condor_stderr"),
    ],
)
def test_ssh_and_what_it_ends(command: list[str], there: str, make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = make("condor_ssh_to_job", "echo done")
    assert main([*command, "--via", "ssh"]) == 0
    out, err = capfd.readouterr()
    assert out == "done\n" and err.startswith(ENDS)
    assert ("of this job or not" in err) == (command[0] == "ps")
    assert arguments.read_text().splitlines() == ["-keygen-options", "-t ed25519", "12.0", there]


def test_what_hangs_is_ended_with_all_that_it_has_started(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(via, "SECONDS", 3)
    make("condor_tail", f"sleep 1000 & echo $! >{tmp_path}/child; wait")
    assert main(["tail", "12.0", "--via", "condor_tail"]) == 1
    assert "condor_tail was ended after 3 s: that is the limit" in capfd.readouterr().err
    wait_for_end(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_whoever_asked(number: signal.Signals, make: Make, tmp_path: Path) -> None:
    make("condor_tail", f"echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/program; exec sleep 1000")
    command = [sys.executable, "-m", "condor_joblens.cli.main", "tail", "12.0", "-f", "--via", "condor_tail"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asker:
        while not (tmp_path / "program").exists():
            assert asker.poll() is None
            time.sleep(0.01)
        asker.send_signal(number)
        assert asker.wait() == 128 + number
    wait_for_end(int((tmp_path / "program").read_text()))


def test_no_signal_is_taken_for_longer_than_that(make: Make) -> None:
    make("condor_ssh_to_job", "")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert main(["ps", "12.0", "--via", "ssh"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


def wait_for_end(pid: int) -> None:
    """A process whose parent has not yet asked for its exit code has ended, too."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)


def test_what_is_followed_has_a_longer_limit_and_silence_is_said(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(via, "SECONDS", 0.1)
    monkeypatch.setattr(via, "FOLLOWED_SECONDS", 1.0)
    make("condor_tail", "exec sleep 1000")
    assert main(["tail", "12.0", "-f", "--via", "condor_tail"]) == 1
    err = capfd.readouterr().err
    assert "has said nothing for 0.1 s" in err and "was ended after 1 s" in err


def test_what_never_stops_saying_is_cut_off(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(via, "MOST_BYTES", 1 << 20)
    make("condor_ssh_to_job", "exec yes")
    assert main(["log", "12.0", "--via", "ssh"]) == 1
    out, err = capfd.readouterr()
    assert len(out) <= 1 << 20 and "says more than 1 MiB" in err


def test_why_it_failed_is_its_last_word(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    make("condor_ssh_to_job", "printf 'first\\nno \\033[2Jssh\\n' >&2; exit 3")
    assert main(["ps", "12.0", "--via", "ssh"]) == 1
    assert "condor_ssh_to_job ended with 3: no \\x1b[2Jssh" in capfd.readouterr().err


@pytest.mark.parametrize(
    "wrong", [["ps", "slot1_1"], ["ps", "-x"], ["ls", "12.0", "--json"], ["tail", "12.0", "--json"]]
)
def test_what_it_does_not_take(wrong: list[str], make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    given = make("condor_ssh_to_job", "")
    try:
        code = main([*wrong, "--via", "ssh"])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code in (1, 2) and not given.exists() and capfd.readouterr().err


def test_names_that_condor_tail_would_take_for_options(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    given = make("condor_tail", "")
    assert main(["tail", "--via", "condor_tail", "12.0", "--", "-stderr"]) == 2
    assert not given.exists() and "begins with a hyphen" in capfd.readouterr().err


def test_without_it_nobody_starts_one(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = [make(name, "") for name in ("condor_tail", "condor_ssh_to_job")]
    for command in ("tail", "ps", "log", "ls"):
        assert main([command, "12.0", "--run-dir", str(tmp_path)]) == 1
    assert not any(each.exists() for each in given) and capfd.readouterr().err


@pytest.mark.parametrize("command", [["cat", "12.0"], ["get", "12.0", "x"], ["kill", "12.0"]])
def test_others_have_no_such_way(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--via", "ssh"])
    assert "--via" in capfd.readouterr().err
