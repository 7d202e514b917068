"""`joblens ask`: what it refuses before anything is compiled, and what it prints."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import pytest

from condor_joblens.ask import with_bcc
from condor_joblens.cli import ask
from condor_joblens.cli.main import main

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "ask").glob("*.c"))


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], source: bytes, *more: str) -> tuple[int, str]:
    (tmp_path / "x.c").write_bytes(source)
    code = main(["ask", "12.0", str(tmp_path / "x.c"), "--run-dir", str(tmp_path), *more])
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return code, said.err


def test_only_root_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "only root" in refused(tmp_path, capsys, b"")[1]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("probe", ["int kretprobe__vfs_read(void *c)", "KRETFUNC_PROBE(vfs_read)"])
def test_no_return_probe_is_taken(probe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = refused(tmp_path, capsys, probe.encode() + b"{ return 0; }")
    assert code == 2 and "is a return probe" in said and "sys_exit_" in said


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "act",
    [
        "LSM_PROBE(file_open, struct file *file) { return -1; }",
        "KMOD_RET(vfs_read) { return 1; }",
        "int kprobe__f(void *c) { bpf_send_signal(9); return 0; }",
        "int kprobe__f(void *c) { bpf_probe_write_user(c, c, 1); return 0; }",
        "int kprobe__f(void *c) { bpf_override_return(c, 1); return 0; }",
    ],
)
def test_a_program_that_acts_on_a_job_is_not_taken(
    act: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = refused(tmp_path, capsys, act.encode())
    assert code == 2 and "does something to who is looked at" in said


@pytest.mark.usefixtures("root")
def test_what_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "can't be read" in refused(tmp_path, capsys, b"\xff")[1]
    assert "has more than 1 MiB" in refused(tmp_path, capsys, b" " * (ask.MOST_BYTES + 1))[1]
    assert "joblensd" in refused(tmp_path, capsys, b"")[1], "which does not run here"


def run_by_shell(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiles and runs a program is this line of a shell, and a job is there."""
    (folder / "shell").write_text(f"#!/bin/sh\n{line}\n")
    (folder / "shell").chmod(0o755)
    monkeypatch.setattr(ask, "_python", lambda: str(folder / "shell"))
    monkeypatch.setattr(ask.client, "ask", lambda *_: {"cgroup": "/"})


@pytest.mark.usefixtures("root")
def test_what_runs_it_and_is_killed_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_by_shell("kill -KILL $$", tmp_path, monkeypatch)
    code, said = refused(tmp_path, capsys, b"")
    assert code == 1 and "ended with -9" in said


@pytest.mark.usefixtures("root")
def test_it_runs_in_a_folder_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_by_shell('printf \'{"note": "%s"}\\n\' "$PWD"', tmp_path, monkeypatch)
    (tmp_path / "x.c").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["ask", "12.0", "x.c", "--run-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "joblens: /\n"


def test_a_table_as_lines() -> None:
    rows = [[{"inode": 7, "name": "a\x1b[2J"}, 3], [12, [1, 2]]]
    table = {"table": "listed", "log2": False, "rows": rows, "left_out": 5}
    assert ask.page(table) == [
        "", "listed:", "  inode=7  name=a\\x1b[2J  3", f"  {'12':22}  1,2", "  and 5 more"
    ]  # fmt: skip
    rows = [[0, 1], [1, 2], [5, 7]]
    lines = ask.page({"table": "us", "log2": True, "rows": rows, "left_out": 0})
    assert lines == ["", "us:", "  0 to 0    1", "  1 to 1    2", "  16 to 31  7"]


def test_values_of_c_as_values_of_json() -> None:
    class Found(ctypes.Structure):
        _fields_ = (("pid", ctypes.c_uint), ("program", ctypes.c_char * 8), ("times", ctypes.c_ulong * 2))

    found = Found(7, b"a.out", (ctypes.c_ulong * 2)(1, 2))
    assert with_bcc.plain(found) == {"pid": 7, "program": "a.out", "times": [1, 2]}
    assert json.dumps([with_bcc.plain(ctypes.c_int(-1)), with_bcc.plain(b"x\0y")]) == '[-1, "x"]'


def test_nothing_is_attached_but_what_looks() -> None:
    class Program:
        """As bcc's class, which attaches by names."""

        def __init__(self, name: bytes) -> None:
            self.attached: list[bytes] = []
            getattr(self, "attach_" + name.decode().partition("__")[0])(fn_name=name)

        def attach_kprobe(self, fn_name: bytes) -> None:
            self.attached.append(fn_name)

        attach_kretprobe = attach_kretfunc = attach_lsm = attach_kprobe

    looking = with_bcc._looking_alone(Program)
    assert looking(b"kprobe__f").attached == [b"kprobe__f"]
    for name in (b"kretprobe__f", b"kretfunc__f", b"lsm__f"):
        with pytest.raises(RuntimeError, match=f"{name.decode()} is a return probe, or does more than look"):
            looking(name)


def test_the_examples_are_named_and_scoped_to_the_job() -> None:
    assert len(EXAMPLES) == 3
    for path in EXAMPLES:
        assert "JOB()" in path.read_text()
        ask.check(path.read_text())
