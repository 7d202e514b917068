"""`joblens peek`: variables of a process that goes on, by its debug information, or by a type that a person writes."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples
from test_owner_commands import Job

from condor_joblens.control.child_output import CONTENT, FAILED, MOST, NOTICE, WHOLE
from condor_joblens.model.peek_spec import PeekSpec, parse
from condor_joblens.model.trace_spec import SpecError
from condor_joblens.owner_commands import children, tail
from condor_joblens.profiling import dwarf, peek_look, peek_messages, peek_values, reading_turn, variables
from condor_joblens.profiling.dwarf import Dwarf
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.peek_messages import Seen
from condor_joblens.profiling.reading_turn import ReadingTurn, shared_page
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
    "evnt": "is called evnt (is it one of these: event",
    "work::conter as long": "no symbol is called work::conter",
    "ratioo as float": "the name that nm shows (is it one of these: ratio",
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
    for verb in ("peek", peek_values.VERB):
        monkeypatch.setitem(children.VERBS, verb, VERBS[verb])
    return Job(tmp_path)


SHARES = {"files_share": 1e3, "looks_share": 1e3}
"""Nobody rests."""


def told(job: Job, spec: str, pid: int = 0) -> list[dict[str, Any]]:
    """What is said of each process."""
    *content, last = job.said("peek", spec=spec, pid=pid, follow=False)
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
    assert found["Why"] == peek_look.NOT_RESIDENT


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


STEPS = r"""
extern "C" { long read(int, void *, unsigned long); long write(int, const void *, unsigned long); }
long step;
int main()
{
	for (char c; write(1, "\n", 1) == 1 && read(0, &c, 1) == 1;)
		step++;
}
"""


@pytest.fixture
def steps(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that counts the bytes that it is given, and says a line after each."""
    subprocess.run(["gcc", "-x", "c++", "-g", "-o", folder / "steps", "-"], input=STEPS, text=True, check=True)
    with subprocess.Popen([folder / "steps"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        yield process
        process.kill()


def goes_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b".")
    process.stdin.flush()
    process.stdout.readline()


def test_a_series_follows_a_variable_until_the_job_ends(
    steps: subprocess.Popen[bytes], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Elf] = []
    monkeypatch.setattr(peek_look, "Dwarf", lambda elf: opened.append(elf) or Dwarf(elf))
    monkeypatch.setattr(dwarf, "MOST_ENTRIES", 100)  # which each value has anew
    job.has(steps.pid)
    with job.ask("peek", spec="steps:step", pid=0, follow=True, every=0.001, seconds=3600) as ours:
        values = [json.loads(ours.recv(MOST)[1:]) for _ in range(200)]
        assert {(each["Pid"], each["Value"]) for each in values} == {(steps.pid, "0")}
        times = [each["Time"] for each in values]
        assert times == sorted(times) and abs(times[-1] - time.time()) < 60
        for expected in ("1", "2"):
            goes_on(steps)
            while (value := json.loads(ours.recv(MOST)[1:])["Value"]) != expected:
                assert value == str(int(expected) - 1)
        job.has()
        while (packet := ours.recv(MOST))[:1] == CONTENT:
            pass
        assert packet == NOTICE + b"the job has ended" and ours.recv(MOST) == WHOLE
    assert len(opened) == 1, "its debug information is taken apart once"


def test_why_there_is_no_value_is_told_once_and_a_series_has_an_end(steps: subprocess.Popen[bytes], job: Job) -> None:
    job.has(steps.pid)
    asked = {"spec": "steps:stop", "follow": True, "every": 0.001, "seconds": 0.05}
    (kind, said), last = job.said("peek", pid=0, **asked)
    why = "no variable with a fixed place is called stop (is it one of these: step?)"
    assert kind == CONTENT and json.loads(said)["Why"] == why
    assert last == (WHOLE, b"")


def test_a_series_of_one_process_ends_with_it_and_who_leaves_ends_it(steps: subprocess.Popen[bytes], job: Job) -> None:
    job.has(steps.pid, os.getpid())
    asked = {"spec": "steps:step", "follow": True, "every": 0.001, "seconds": 3600}
    with job.ask("peek", pid=steps.pid, **asked) as ours:
        assert ours.recv(MOST)[:1] == CONTENT
        job.has(os.getpid())
        while (packet := ours.recv(MOST))[:1] == CONTENT:
            pass
        assert packet == NOTICE + f"process {steps.pid} has ended".encode() and ours.recv(MOST) == WHOLE
    job.has(steps.pid)
    with job.ask("peek", pid=0, **asked) as ours:
        ours.recv(MOST)
    job.child.join(60)
    assert not job.child.is_alive()


def test_a_file_that_no_process_has_any_more_is_said_once(steps: subprocess.Popen[bytes], job: Job) -> None:
    job.has(steps.pid)
    with job.ask("peek", pid=0, spec="steps:step", follow=True, every=0.001, seconds=3600) as ours:
        assert ours.recv(MOST)[:1] == CONTENT
        job.has(os.getpid())
        while (packet := ours.recv(MOST))[:1] == CONTENT:
            pass
        assert packet == NOTICE + b"no process of the job has a file like steps in its memory"
        job.has(steps.pid)
        assert json.loads(ours.recv(MOST)[1:])["Value"] == "0"


def test_a_series_ends_before_the_kernel_ends_it_and_says_so(
    steps: subprocess.Popen[bytes], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "FOLLOWED_CPU_SECONDS", 0.0)
    job.has(steps.pid)
    asked = {"spec": "steps:step", "pid": 0, "every": 0.001, "seconds": 3600}
    *values, notice, _ = job.said("peek", follow=True, **asked)
    assert len(values) == 2 and notice == (NOTICE, b"a variable is followed for 0 s of CPU time: ask again")
    verb = VERBS["peek"]
    assert verb.times({"follow": True})[1] > children.SECONDS and verb.times({}) == (children.SECONDS,) * 2


def test_what_a_job_has_asked_for_is_told_when_it_changes_and_stays_when_its_program_ends(
    steps: subprocess.Popen[bytes], job: Job
) -> None:
    specs = ["steps:step", "steps:stop", "other:x"]

    def heard(packet: bytes) -> list[Seen]:
        assert packet[:1] == CONTENT
        return peek_messages.understood(packet[1:], len(specs))

    job.has(os.getpid())
    with job.ask(peek_values.VERB, specs=specs, every=0.001, follow=True, **SHARES) as ours:
        assert [each.why for each in heard(ours.recv(MOST))] == [
            f"no process of the job has a file like {file} in its memory" for file in ("steps", "steps", "other")
        ]
        job.has(os.getpid(), steps.pid)
        first, second, _ = heard(ours.recv(MOST))
        assert (first.value, first.why) == ("0", "") and "(is it one of these: step?)" in second.why
        goes_on(steps)
        assert heard(ours.recv(MOST))[0] == Seen("1")
        job.has(os.getpid())
        assert heard(ours.recv(MOST))[0] == Seen("1")  # the other one's file has gone: only that has changed
        job.has()
        assert ours.recv(MOST)[:1] == NOTICE and ours.recv(MOST) == WHOLE


def test_who_reads_them_rests_as_long_as_its_looks_want_and_ends_by_itself(
    steps: subprocess.Popen[bytes], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first look, which reads the program, there is one more, and no third."""
    job.has(steps.pid)
    monkeypatch.setattr(peek_values, "SECONDS", 5.0)
    shares = {"files_share": 1.0, "looks_share": 1e-9}
    (kind, said), last = job.said(peek_values.VERB, specs=["steps:step"], every=0.001, follow=True, **shares)
    assert (kind, peek_messages.understood(said, 1), last) == (CONTENT, [Seen("0")], (WHOLE, b""))


def test_one_reader_at_a_time_reads_programs_and_the_next_one_rests(
    steps: subprocess.Popen[bytes], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peek_values, "_turns", page := shared_page())
    monkeypatch.setattr(peek_values, "SECONDS", 0.5)
    other = ReadingTurn(page)
    assert other.take() and other.take()
    job.has(steps.pid)
    asked = {"specs": ["steps:step"], "every": 0.001, "follow": True, **SHARES}
    (_, said), _ = job.said(peek_values.VERB, **asked)
    assert peek_messages.understood(said, 1) == [Seen(why=peek_look.NOT_YET)]
    assert other.give_back(used=0.0, share=1.0)
    (_, said), _ = job.said(peek_values.VERB, **asked)
    assert peek_messages.understood(said, 1) == [Seen("0")]
    assert not ReadingTurn(page).give_back(used=1.0, share=0.1)
    assert other.take() and other.give_back(used=1.0, share=0.01) and not other.take()


@given(st.binary(min_size=8, max_size=8))
def test_a_turn_comes_whatever_is_in_the_page(content: bytes) -> None:
    page = shared_page()
    page[:8] = content
    (until,), now = struct.unpack("=d", content), time.monotonic()
    assert ReadingTurn(page).take() or now < until <= now + reading_turn.MOST_SECONDS + 60


@given(st.lists(st.builds(Seen, st.text(), st.text())))
def test_what_is_told_of_them_is_understood(seen: list[Seen]) -> None:
    cut = [Seen(each.value[: peek_messages.MOST_VALUE], each.why[: peek_messages.MOST_WHY]) for each in seen]
    assert peek_messages.understood(peek_messages.packed(seen), len(seen)) == cut


@given(st.one_of(st.binary(), st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps)))
def test_what_can_not_be_told_of_them_is_refused(packet: bytes | str) -> None:
    try:
        (found,) = peek_messages.understood(packet if isinstance(packet, bytes) else packet.encode(), 1)
        assert isinstance(found.value, str) and isinstance(found.why, str)
    except ValueError:
        pass


def test_what_is_no_process_or_no_file_of_the_job_fails_in_words(running: int, job: Job) -> None:
    assert job.failure("peek", spec="reco:event", pid=0, follow=False) == "the job has no process"
    job.has(running)
    assert job.failure("peek", spec="reco:event", pid=1, follow=False) == "process 1 is none of the job"
    assert "has a file like other" in job.failure("peek", spec="other:event", pid=0, follow=False)
    assert "write FILE:NAME" in job.failure("peek", spec="event", pid=0, follow=False)
    assert [kind for kind, _ in job.said("peek", spec="other:event", pid=0, follow=True)] == [FAILED]


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
    look_into(bytes(content))


@pytest.mark.parametrize("attribute, form", [(0x49, 0x13), (0x47, 0x13), (0x0B, 0x0B), (0x3E, 0x0B)])
def test_a_number_that_is_a_text_is_refused(file: bytes, attribute: int, form: int) -> None:
    """A type, what is specified, a size, an encoding."""
    abbreviations = Elf.within(file).section(b".debug_abbrev", 1 << 30)
    begin, changed = file.find(abbreviations), 0
    for at in range(len(abbreviations) - 1):
        if abbreviations[at : at + 2] == bytes((attribute, form)):
            content = bytearray(file)
            content[begin + at + 1] = 0x08
            look_into(bytes(content))
            changed += 1
    assert changed


def look_into(content: bytes) -> None:
    """All variables of a file are shown, or it is refused."""
    memory = itertools.repeat(b"\x01" * 4096)
    try:
        information = Dwarf(Elf.within(content))
        for variable in information.variables("state"):
            Reader(information, lambda address, size: next(memory)[:size]).value(
                variable.address, variable.type, ["next"]
            )
    except (ElfError, variables.NoSuchPart, variables.NotResident, RecursionError, KeyError):
        pass


def test_what_is_in_an_ad_has_no_secrets() -> None:
    values = {
        "reco:event": ("4711", "4711"),
        "reco:work": ('{run = 22, phase = FIT (2), token = "abcd"}', '{run = 22, phase = FIT (2), token = "***"}'),
        "reco:options": ('"reco --password=hunter2 x"', '"reco --password=*** x"'),
        "reco:site.password": ('"hunter2"', "***"),
        "reco:key": ("7", "7"),
    }
    for spec, (value, shown) in values.items():
        assert peek_values.without_secrets(parse(spec), value) == shown
    cut = peek_values.without_secrets(parse("reco:text"), "x" * 190 + " half-a-secret")
    assert cut.startswith("x" * 190) and "half" not in cut
