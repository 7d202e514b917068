"""`joblens peek`: variables of a process that goes on, by its debug information, or by a type that a person writes."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_owner_commands import Job

from condor_joblens.control.child_output import CONTENT, FAILED, NOTICE, WHOLE
from condor_joblens.model.peek_spec import PeekSpec, parse
from condor_joblens.model.trace_spec import SpecError
from condor_joblens.owner_commands import children
from condor_joblens.profiling import peek, variables
from condor_joblens.profiling.dwarf import Dwarf
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.starter import VERBS
from condor_joblens.profiling.variables import Reader

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="programs are compiled for x86-64")

SOURCE = r"""
extern "C" {
int pause(void), open(const char *, int, ...);
long write(int, const void *, unsigned long);
void *mmap(void *, unsigned long, int, int, int, long);
}
enum Phase { READ = 1, FIT };
struct Base { long base; };
struct Inner { int run[4]; double mean; };
struct State : Base {
	Inner inner; const char *name; Phase phase; bool done; State *next; char tag[8];
	unsigned bits : 3; const char *none;
};
int event = 4711;
float ratio = 0.5f;
namespace work { State state; long counter = -7; struct S { static int made; }; int S::made = 3; }
namespace other { long counter = 8; }
volatile unsigned char small = 200;
thread_local int own;
const char *unread;
int fit() { static int calls = 9; return ++calls + own; }
int main(int, char **arguments)
{
	work::state.base = 5;
	work::state.inner.run[2] = 22;
	work::state.inner.mean = 2.5;
	work::state.name = "run7.root";
	work::state.phase = FIT;
	work::state.done = true;
	work::state.next = &work::state;
	work::state.tag[0] = 'a';
	fit();
	unread = (const char *)mmap(0, 4096, 1, 2, open(arguments[0], 0), 0);	// nobody reads what is there
	write(1, "ready\n", 6);
	for (;;)
		pause();
}
"""
WAYS = {
    "gcc": ("gcc", "-g"),
    "version 4": ("gcc", "-g", "-gdwarf-4", "-O1"),
    "packed": ("gcc", "-g", "-gz=zlib"),
    "clang": ("clang", "-g", "-gdwarf-5"),
}
VALUES = {
    "event": ("int", "4711"),
    "ratio": ("float", "0.5"),
    "work::state.inner.run[2]": ("int", "22"),
    "state.next->inner.mean": ("double", "2.5"),
    "state.next->next.base": ("long", "5"),
    "state.name": ("char *", '"run7.root"'),
    "state.none": ("char *", "NULL"),
    "state.tag": ("char[8]", '"a"'),
    "state.phase": ("Phase", "FIT (2)"),
    "state.done": ("bool", "true"),
    "work::counter": ("long", "-7"),
    "work::S::made": ("int", "3"),
    "fit::calls": ("int", "10"),
    "small": ("unsigned char", "200"),
    "event as int": ("int", "4711"),
    "ratio as float": ("float", "0.5"),
    "_ZN4work7counterE as long": ("long", "-7"),
}
REFUSED = {
    "state.nothing": "State has no member nothing: it has",
    "state.inner.run[4]": "it has 4 elements: the last one is 3",
    "event.x": "int has no member x",
    "event[0]": "int has no elements",
    "state.none[3].x": "it is NULL",
    "state.bits": "a bit field",
    "counter": "2 variables are called so: write more of the name (other::counter, work::counter)",
    "nope": "no variable with a fixed place is called nope",
    "own": "no variable with a fixed place is called own",
    "nope as long": "no symbol is called nope",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peek")


def compiled(folder: Path, compiler: str, *options: str) -> Path:
    program = folder / "reco"
    command = [compiler, "-x", "c++", "-fno-asynchronous-unwind-tables", *options, "-o", program, "-"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return program


@pytest.fixture(scope="module", params=WAYS)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process of the program; its pid."""
    program = compiled(tmp_path_factory.mktemp("peek"), *WAYS[request.param])
    with subprocess.Popen([program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setitem(children.VERBS, "peek", VERBS["peek"])
    return Job(tmp_path)


def told(job: Job, spec: str, pid: int = 0) -> list[dict[str, Any]]:
    """What is said of each process."""
    import json

    *content, last = job.said("peek", spec=spec, pid=pid)
    assert last == (WHOLE, b""), last
    return [json.loads(said) for kind, said in content if kind == CONTENT]


def test_each_value_by_its_type(running: int, job: Job) -> None:
    job.has(running)
    for name, (kind, value) in VALUES.items():
        (found,) = told(job, f"reco:{name}")
        assert found["Type"].replace("long int", "long") == kind and found["Value"] == value, (name, found)
        assert (found["Pid"], found["File"].rpartition("/")[2]) == (running, "reco")


def test_a_structure_with_all_that_it_has(running: int, job: Job) -> None:
    job.has(running)
    (found,) = told(job, "reco:work::state")
    for part in ("Base = {base = 5}", "inner = {run = {0, 0, 22, 0}, mean = 2.5}", "bits = (not shown)", "none = NULL"):
        assert part in found["Value"], found


def test_what_can_not_be_shown_says_why(running: int, job: Job) -> None:
    job.has(running)
    for name, why in REFUSED.items():
        (found,) = told(job, f"reco:{name}")
        assert why in found["Why"] and "Value" not in found, (name, found)


def test_memory_that_nobody_has_used_is_said_to_be_so(running: int, job: Job) -> None:
    """A page of the file that is in no memory of the process is not fetched."""
    job.has(running)
    (found,) = told(job, "reco:unread")
    assert found["Value"].endswith("(not resident)"), found
    (found,) = told(job, "reco:unread[0]")
    assert found["Why"] == peek.NOT_RESIDENT


def test_without_debug_information_a_person_says_the_type(folder: Path, job: Job) -> None:
    program = compiled(folder, "gcc")
    with subprocess.Popen([program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        job.has(process.pid)
        (found,) = told(job, "reco:event")
        assert found["Why"] == (
            "the file has no debug information: compile with -g, or write its type: 'reco:event as long'"
        )
        (found,) = told(job, "reco:event as int")
        assert found["Value"] == "4711"
        process.kill()


def test_what_is_no_process_or_no_file_of_the_job_fails_in_words(running: int, job: Job) -> None:
    assert job.failure("peek", spec="reco:event", pid=0) == "the job has no process"
    job.has(running)
    assert job.failure("peek", spec="reco:event", pid=1) == "process 1 is none of the job"
    assert "has a file like other" in job.failure("peek", spec="other:event", pid=0)
    assert "write FILE:NAME" in job.failure("peek", spec="event", pid=0)
    assert {kind for kind, _ in job.said("peek", spec="other:event", pid=0)} == {FAILED} and NOTICE != FAILED


def test_a_spec_has_members_elements_and_a_type() -> None:
    assert parse("lib*.so:a::b.c[3]->d") == PeekSpec("lib*.so", "a::b", ("c", 3, "d"))
    assert parse("reco:x").shown == "x" and parse("reco:a.b[1]").shown == "a.b[1]"
    spec = parse("reco:x as unsigned int")
    assert spec.type is not None and spec.type.name == "unsigned int"
    for wrong in (
        "reco",
        "reco:",
        ":x",
        "reco:x.",
        "reco:x as complex",
        "reco:x.y as int",
        "reco:" + ".a" * 20,
        "a:b\x1b",
    ):
        with pytest.raises(SpecError):
            parse(wrong)
    with pytest.raises(SpecError, match="at most"):
        parse("reco:x" + ".a" * 11)


@pytest.fixture(scope="module")
def file(folder: Path) -> bytes:
    (folder / "whole").mkdir()
    return compiled(folder / "whole", "gcc", "-g").read_bytes()


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_whatever_a_file_says_it_is_read_or_refused(file: bytes, data: st.DataObject) -> None:
    """Some bytes of its debug information are others."""
    elf = Elf.within(file)
    content = bytearray(file)
    for name in (b".debug_info", b".debug_abbrev"):
        section = elf.section(name, 1 << 30)
        at = file.find(section)
        for _ in range(data.draw(st.integers(0, 8))):
            content[at + data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    memory = itertools.repeat(b"\x01" * 4096)
    try:
        information = Dwarf(Elf.within(bytes(content)))
        for variable in information.variables("state"):
            Reader(information, lambda address, size: next(memory)[:size]).value(
                variable.address, variable.type, ["next"]
            )
    except (ElfError, variables.NoSuchPart, variables.NotResident, RecursionError, KeyError):
        pass
