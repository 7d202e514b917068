"""Calls of real Pythons of several versions, each with its own C library, as in a container, as a ring has them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ground import until

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT / "tests" / "unit"))  # its scripts
sys.path.append(str(CHECKOUT / "tests" / "kernel"))

from hooked_python import SCRIPTS, Hearer, Script, compiled, run  # noqa: E402
from test_python_hook import NAMES, Inside, inside_of  # noqa: E402

from condor_joblens.common import descriptors  # noqa: E402
from condor_joblens.control import frames  # noqa: E402
from condor_joblens.profiles import traced_calls  # noqa: E402
from condor_joblens.profiles.traced_calls import TracedCalls  # noqa: E402
from condor_joblens.tracing import python_ring  # noqa: E402

pytestmark = pytest.mark.traces

FIT = """
import os
import threading


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(n):
    for each in range(n):
        yield each


def fails(n):
    if n:
        fails(n - 1)
    raise KeyError(n)


def work():
    assert fib(10) == 55 and sum(numbers(5)) == 10
    for _ in range(3):
        try:
            fails(2)
        except KeyError:
            pass


work()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork()
if not child:
    fib(5)
    os._exit(0)
os.waitpid(child, 0)
print(os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd') else '')
"""
RETURNS = """
class Meta(type):
    def __getattribute__(cls, name):
        print('talks', name)
        return type.__getattribute__(cls, name)


class Thing(metaclass=Meta):
    def __repr__(self):
        print('talks')
        return 'x'

    def fit(self, event, *rest, run=0):
        event, inner = 1, lambda: run
        return inner()


class Text(str):
    __repr__ = __str__ = lambda self: print('talks')


class Number(int):
    __repr__ = __index__ = __int__ = lambda self: print('talks')


def f(value):
    return value


for each in (
    *(None, True, -7, 1 << 20000, 0.1, float('nan'), 'it\\n', '\\udcff', 'é\\'', b'abc'),
    *([1], Thing(), Text('x'), Number(3), int, Thing),
):
    f(each)
Thing().fit('it', 5, run=7)
Thing().fit(Text('x'))
"""
RAISES = """
class Mine(Exception):
    def __str__(self):
        print('talks')
        return 'x'

    __repr__ = __str__


def inner(key):
    if key:
        return {}[key]


def outer():
    try:
        inner(3)
    finally:
        inner(0)


for _ in range(2):
    try:
        outer()
    except KeyError:
        pass
try:
    1 / 0
except ZeroDivisionError:
    pass
try:
    raise Mine(1)
except Mine:
    pass
"""
CAUGHT_IN_C = """
class Thing:
    def __getattr__(self, name):
        raise AttributeError(name)


def raises():
    raise AttributeError('own')


def outer():
    for _ in range(3):
        hasattr(thing, 'x')
    for _ in range(3):
        hasattr(thing, 'x')
        try:
            raise AttributeError('here')
        except AttributeError:
            pass
        try:
            raises()
        except AttributeError:
            pass
    try:
        thing.passes
    except AttributeError:
        pass


thing = Thing()
outer()
"""
MANY = """
def again():
    pass


again()
for n in range(MANY):
    exec(f'def f{n}(): pass\\nf{n}()')
for _ in range(20000):
    again()
"""
FIBS = 3 * 177 + 15
"""Calls of fib: fib(10) is 177 of them, fib(5) 15."""


class Giver(Hearer):
    """joblensd's part: it gives each Python that asks a ring, and keeps it."""

    def __init__(
        self,
        folder: Path,
        files: Sequence[str] = (),
        *,
        values: bool = False,
        arguments: Sequence[str] = (),
        is_limited: bool = False,
    ) -> None:
        super().__init__(folder)
        self.rings: list[int] = []
        self.begun: list[float] = []
        self.asked: list[str] = []
        self._fields = {f"file{number}": each.encode() for number, each in enumerate(files)}
        self._fields |= {f"call{number}": each.encode() for number, each in enumerate(arguments)}
        self._fields |= {"values": b"plain", "raised": b"types"} if values else {}
        self._fields |= {"limited": b"calls"} if is_limited else {}

    def __enter__(self) -> Giver:
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for ring in self.rings:
            os.close(ring)

    def answer(self, connection: socket.socket, packet: bytes) -> None:
        if frames.version_of(packet) == 2:  # of an exception that ends it
            super().answer(connection, packet)
            return
        words = frames.decode_packet(packet)
        self.asked.append(f"{words.word} {words.fields['version'].decode()}")
        self.begun.append(time.time())
        self.rings.append(python_ring.create())
        recorded = frames.encode_packet("recorded", self._fields, frames.MAX_ANSWER_1)
        descriptors.send(connection, recorded, self.rings[-1:])

    def read(self) -> TracedCalls:
        """What all of them have."""
        about = python_ring.About(self.begun, time.time(), time.time() - time.monotonic(), [])
        rings = [os.pread(each, python_ring.RING_BYTES, 0) for each in self.rings]
        return traced_calls.decode(python_ring.made_of(rings, about))


NEW, OLD = ("3.13", "3.14"), ("3.9", "3.11")
"""Those that have sys.monitoring, and those that are recorded in bursts: here they are close to each other."""

BURSTS = """
import os
import sys
import time


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def numbers(n):
    for each in range(n):
        yield each


def fails(n):
    if n:
        fails(n - 1)
    raise KeyError(n)


def work():
    assert sys.getprofile() is None
    assert fib(10) == 55 and sum(numbers(5)) == 10
    try:
        fails(2)
    except KeyError:
        pass


def of_child():
    work()


def works(again):
    until = time.process_time() + 0.5
    while time.process_time() < until:
        again()


works(work)
child = os.fork()
if not child:
    works(of_child)
    os._exit(0)
os.waitpid(child, 0)
print(len(os.listdir('/proc/self/fd')) if os.path.exists('/proc/self/fd') else '')
"""
PROFILES = """
import cProfile
import sys
import threading
import time


def spin():
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass


def own(frame, event, value):
    seen.add(event)


seen = set()
spin()
sys.setprofile(own)
spin()
assert sys.getprofile() is own
sys.setprofile(None)
spin()
profile = cProfile.Profile()
print(profile.runcall(lambda: 7), len(profile.getstats()) > 0)
spin()
assert sys.getprofile() is None
print(sorted(seen), threading.active_count())
sys.addaudithook(lambda event, _: print(event) if event.startswith('sys.') else None)
spin()
sys.settrace(None)
"""
PROFILES_IN_C = """
import sys
import time

sys.path.append(FOLDER)
import profiles_in_c


def spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


spin(0.05)
profiles_in_c.begin()
spin(0.3)
before = profiles_in_c.count()
spin(0)
print(before > 100, profiles_in_c.count() > before)
"""
AUDITS_IN_A_THREAD = """
import os
import sys
import threading
import time


def before():
    pass


def spin(is_over):
    until = time.process_time() + 0.04  # of its own time: beside others it may have had none of 0.04 s
    while time.process_time() < until or not is_over():
        before()


def after():
    pass


def audits():
    sys.addaudithook(lambda *_: None)


for _ in range(8):
    child = os.fork()
    if not child:
        spin(lambda: True)
        thread = threading.Thread(target=audits)
        thread.start()
        spin(lambda: not thread.is_alive())
        for _ in range(1000):
            after()
        os._exit(0)
    os.waitpid(child, 0)
"""
IMPORTS = """
import builtins
import os


def own(name, *rest):
    os.write(1, b'imports')
    return before(name, *rest)


before, builtins.__import__ = builtins.__import__, own
child = os.fork()
if not child:
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
LIMITED = """
def often(n):
    return n


def rarely(n):
    return sum(often(each) for each in range(n))


def down(n):
    return down(n - 1) if n else 0


for _ in range(5):
    rarely(1000)
for _ in range(300):
    down(4)
"""


@pytest.fixture
def inside(request: pytest.FixtureRequest) -> Iterator[Inside]:
    with inside_of(request.param, calls=True) as found:
        yield found


def does_the_same(inside: Inside, script: Script) -> None:
    """With the hook as without it."""
    python, where = [f"/usr/bin/python{inside.version}"], (inside.folder / "job", inside.path("job"), inside.enter)
    bare = run(python, script, where[0], "", *where[1:])
    assert run(python, script, where[0], inside.path("hook"), *where[1:]) == bare, script.name


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_each_call_is_counted_with_how_it_ended(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"]) as giver:
        does_the_same(inside, Script("fit", FIT))
        assert [each.rpartition(".")[0] for each in giver.asked] == [f"python {inside.version}"]
        kept = giver.read()
    counts = {each.name.partition(" ")[0]: each.counts for each in kept.functions}
    assert set(counts) == {"<module>", "fib", "numbers", "fails", "work"}
    assert (counts["fib"]["Calls"], counts["fib"]["Returned"]) == (FIBS, FIBS)
    assert (counts["fails"]["Calls"], counts["fails"]["Unwound"], counts["fails"]["Returned"]) == (27, 27, 0)
    assert (counts["numbers"]["Calls"], counts["numbers"]["Returned"], counts["work"]["Calls"]) == (3, 3, 3)
    assert counts["<module>"]["Calls"] == counts["<module>"]["Returned"] == 1
    names = {each.name: each for each in kept.functions}
    assert {"fib (script.py:6)", "fails (script.py:15)"} <= set(names)
    assert names["fib (script.py:6)"].file.endswith("/job/script.py") or names["fib (script.py:6)"].file == "script.py"
    lasts = [call for call in kept.calls if kept.functions[call.function].name.startswith("fails")]
    assert {call.result for call in lasts} == {"left at line 17", "left at line 18"}
    assert len({call.tid for call in kept.calls}) == 4 and len({call.pid for call in kept.calls}) == 2
    parents = {
        (kept.functions[node.function].name.partition(" ")[0], kept.functions[kept.tree[node.parent].function].name)
        for node in kept.tree
        if node.parent >= 0
    }
    assert ("fib", "work (script.py:21)") in parents and ("fails", "fails (script.py:15)") in parents
    assert sum(node.calls for node in kept.tree if names["fib (script.py:6)"] is kept.functions[node.function]) == FIBS


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_an_older_python_is_recorded_in_bursts(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"]) as giver:
        does_the_same(inside, Script("bursts", BURSTS))
        kept = giver.read()
    functions = {each.name.partition(" ")[0]: each for each in kept.functions}
    counts = {name: each.counts for name, each in functions.items()}
    assert set(counts) >= {"fib", "numbers", "fails", "work"}
    assert counts["fib"]["Calls"] > 1000 and 0 < counts["fib"]["Returned"] <= counts["fib"]["Calls"]
    assert 0 < counts["fails"]["Unwound"] <= counts["fails"]["Calls"] and counts["fails"]["Returned"] == 0
    assert counts["numbers"]["Calls"] < 1.1 * counts["work"]["Calls"] + 10  # not each time that it goes on
    assert all(0 < each.share < 1 for each in kept.functions)
    (note,) = [note for note in kept.notes if "older than 3.12" in note]
    assert note.startswith("1 Pythons") and "% of the time" in note
    assert counts["of_child"]["Calls"] > 10


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_bursts_leave_profile_functions_of_the_jobs_alone(inside: Inside) -> None:
    with Giver(inside.folder):
        does_the_same(inside, Script("profiles", PROFILES))


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_bursts_leave_profilers_in_c_alone(inside: Inside) -> None:
    compiled(CHECKOUT / "tests" / "kernel" / "profiles_in_c.c", inside.folder / "profiles_in_c.so")
    with Giver(inside.folder):
        does_the_same(inside, Script("profiles in C", PROFILES_IN_C.replace("FOLDER", repr(inside.path(".")))))


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_a_burst_ends_when_another_thread_adds_an_audit_hook(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"]) as giver:
        does_the_same(inside, Script("audits", AUDITS_IN_A_THREAD))
        names = {each.name.partition(" ")[0] for each in giver.read().functions}
    assert "before" in names and "after" not in names


LATE_SECONDS = 0.3
LATE_THREADS = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5"); /* which older systems have, too */
typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
struct start {{ void *(*run)(void *); void *with; }};
static void *late(void *given)
{{
	struct start start = *(struct start *)given;

	usleep({int(LATE_SECONDS * 1e6)});
	return start.run(start.with);
}}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with)
{{
	struct start *start = malloc(sizeof *start);

	*start = (struct start){{ run, with }};
	return ((create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, late, start);
}}
"""


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_a_program_begins_after_the_thread_of_bursts(inside: Inside) -> None:
    """Else one that is over at once can end while that thread begins: of Python 3.9 it then ended by a SIGSEGV."""
    library = inside.folder / "late.so"
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(command, input=LATE_THREADS, text=True, check=True)
    environment = {"PYTHONPATH": inside.path("hook"), "LD_PRELOAD": inside.path("late.so")}
    with Giver(inside.folder):
        before = time.monotonic()
        done = subprocess.run(
            [f"/usr/bin/python{inside.version}", "-c", "import time; print(time.monotonic())"],
            env=environment, preexec_fn=inside.enter, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
    assert float(done.stdout) >= before + LATE_SECONDS


@pytest.mark.parametrize("inside", OLD, indirect=True)
def test_a_forked_child_imports_nothing_more(inside: Inside) -> None:
    with Giver(inside.folder):
        does_the_same(inside, Script("imports", IMPORTS))


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_of_a_limited_function_the_first_calls_are_counted(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"], is_limited=True) as giver:
        does_the_same(inside, Script("limited", LIMITED))
        kept = giver.read()
    functions = {each.name.partition(" ")[0]: each for each in kept.functions}
    told = {name: (each.counts["Calls"], each.truths["SwitchedOff"]) for name, each in functions.items()}
    assert (told["often"], told["rarely"], told["down"]) == ((1000, True), (5, False), (1000, True))
    assert functions["often"].counts["Returned"] == 1000 and functions["rarely"].counts["Returned"] == 5
    assert functions["down"].counts["Returned"] == 1000
    assert functions["often"].seconds["CoveredSeconds"] < functions["rarely"].seconds["CoveredSeconds"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("inside", (*OLD, *NEW), indirect=True)
def test_scripts_do_the_same(inside: Inside) -> None:
    with Giver(inside.folder, values=True) as giver:
        for script in SCRIPTS:
            if script.name in NAMES:
                does_the_same(inside, script)
        assert len(giver.asked) >= len(NAMES)
        assert any(each.counts["Calls"] for each in giver.read().functions)


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_files_that_were_not_chosen_are_not_recorded(inside: Inside) -> None:
    cuts = "def cut():\n    pass\n"
    script = Script("two", "import own.cuts, json\njson.dumps([1])\nown.cuts.cut()", files={"own/cuts.py": cuts})
    for pattern, names in (("own/*.py", ["<module> (cuts.py:1)", "cut (cuts.py:1)"]), ("none.py", [])):
        with Giver(inside.folder, [pattern]) as giver:
            does_the_same(inside, script)
            assert sorted(each.name for each in giver.read().functions) == names
        os.unlink(inside.folder / "s")


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_returned_values_are_told_without_running_code_of_the_jobs(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"], values=True) as giver:
        does_the_same(inside, Script("returns", RETURNS))
        kept = giver.read()
    of_f = [call.result for call in kept.calls if kept.functions[call.function].name.startswith("f ")]
    assert of_f == [
        *(
            "None",
            "True",
            "-7",
            "an int of more than 64 bits",
            "0.1",
            "nan",
        ),
        *("'it\\n'", "'\\udcff'", '"é\'"', "3 bytes"),
        *("<list>", "<Thing>", "<Text>", "<Number>", "<type>", "<Meta>"),
    ]


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_each_exception_is_told_once_where_it_was_raised(inside: Inside) -> None:
    with Giver(inside.folder, ["script.py"], values=True) as giver:
        does_the_same(inside, Script("raises", RAISES))
        kept = giver.read()
    raised = [call for call in kept.calls if call.end == "raised"]
    assert [(kept.functions[call.function].name.partition(" ")[0], call.result) for call in raised] == [
        *(("inner", f"KeyError at line {line}") for line in (12, 12)),
        *(("<module>", "ZeroDivisionError at line 28"), ("<module>", "Mine at line 32")),
    ]


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_arguments_are_told_by_their_names_without_running_code_of_the_jobs(inside: Inside) -> None:
    asked = ["f,value", "Thing.fit,run,event", "fit,rest", "f,nothing"]
    with Giver(inside.folder, arguments=asked) as giver:
        does_the_same(inside, Script("returns", RETURNS))
        kept = giver.read()
    assert {each.name.partition(" ")[0] for each in kept.functions} == {"f", "Thing.fit"}
    told = [call.arguments for call in kept.calls]
    assert told[:6] == [
        [f"value = {each}"] for each in ("None", "True", "-7", "an int of more than 64 bits", "0.1", "nan")
    ]
    assert told[11:13] == [["value = <Thing>"], ["value = <Text>"]]
    assert told[-2:] == [["run = 7", "event = 'it'"], ["run = 0", "event = <Text>"]]


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_an_exception_that_c_code_catches_hides_no_other(inside: Inside) -> None:
    """Its address is the next one's."""
    with Giver(inside.folder, ["script.py"], values=True) as giver:
        does_the_same(inside, Script("caught in C", CAUGHT_IN_C))
        kept = giver.read()
    raised = [kept.functions[call.function].name.partition(" ")[0] for call in kept.calls if call.end == "raised"]
    assert raised == ["Thing.__getattr__"] * 3 + ["Thing.__getattr__", "outer", "raises"] * 3 + ["Thing.__getattr__"]


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_a_python_that_is_killed_leaves_its_ring(inside: Inside) -> None:
    text = "import os\ndef ends():\n    os.kill(os.getpid(), 9)\n\n\nends()\n"
    with Giver(inside.folder) as giver:
        does_the_same(inside, Script("killed", text))
        kept = giver.read()
    last = max((call for call in kept.calls if call.end == "entered"), key=lambda call: call.depth)
    assert (kept.functions[last.function].name, last.end, last.seconds) == ("ends (script.py:2)", "entered", None)


FORKS = """
import os
import sys

reads, writes = os.pipe()
if os.fork():
    os._exit(0)
os.close(writes)
print("goes on", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("inside", (*NEW, "3.11"), indirect=True)
def test_a_ring_is_over_with_the_last_process_that_was_forked(inside: Inside) -> None:
    with Giver(inside.folder) as giver:
        command = [f"/usr/bin/python{inside.version}", "-c", FORKS]
        environment = {"PYTHONPATH": inside.path("hook")}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, preexec_fn=inside.enter
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.wait() == 0 and process.stdout.readline() == b"goes on\n"
        assert not python_ring.is_over(giver.rings[0])
        process.stdin.close()
        assert process.stdout.read() == b""
        until(lambda: python_ring.is_over(giver.rings[0]))
        kept = giver.read()
        assert kept.functions or inside.version not in NEW  # an older one may have had no burst
        process.stdout.close()


@pytest.mark.parametrize("inside", NEW, indirect=True)
def test_more_than_a_ring_has_room_for(inside: Inside) -> None:
    text = MANY.replace("MANY", str(python_ring.CODES + 50))
    with Giver(inside.folder) as giver:
        does_the_same(inside, Script("many", text))
        kept = giver.read()
    assert any("found no room" in note for note in kept.notes) and any("the tree is" in note for note in kept.notes)
    counts = {each.name: each.counts["Calls"] for each in kept.functions}
    assert counts["again (script.py:2)"] == 20001 and counts["f0 (<string>:1)"] == 1
    assert 700 < len(counts) <= python_ring.CODES
