"""The flight recorder: which events of whom are in its rings, that no record is made of two, and who outlives whom."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from ground import Ground, Slot, forked, on_ground

from condor_joblens.tracer import map_layout
from condor_joblens.tracer.sensors import Recorder
from condor_joblens.tracer.sensors.recorder import NEVER, NODE_BYTES, Recording

pytestmark = [pytest.mark.guest, pytest.mark.recorder]

OWNER = 60123


@pytest.fixture
def slot(slot: Slot) -> Slot:
    record(slot, OWNER)
    slot.tracer.counters["awaits_exec"][slot.index] = map_layout.AWAITS_NOTHING
    return slot


def recorder(tracer: object) -> Recorder:
    sensor = tracer.sensors["recorder"].sensor  # type: ignore[attr-defined]
    assert isinstance(sensor, Recorder)
    return sensor


def record(slot: Slot, uid: int) -> None:
    recorder(slot.tracer).describe(slot.index, uid)
    assert slot.tracer.sensors["recorder"].start(slot.index), slot.tracer.missing


def recorded(slot: Slot) -> Recording:
    found = recorder(slot.tracer).recording(slot.index)
    assert found is not None
    return found


def become_owner() -> None:
    os.setgroups([])
    os.setresgid(OWNER, OWNER, OWNER)
    os.setresuid(OWNER, OWNER, OWNER)


def run(slot: Slot, *arguments: str) -> int:
    """A program of the owner's in the slot, to its end."""

    def act() -> None:
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        become_owner()
        os.execve(arguments[0], list(arguments), {"PATH": "/usr/bin:/bin"})

    return os.waitpid(slot.fork(act), 0)[1]


def python(slot: Slot, text: str) -> int:
    return run(slot, sys.executable, "-S", "-c", text)


def texts(found: Recording, kind: int) -> list[str]:
    """What the records of this kind are about, in order."""
    of_kind = found.records[found.records["kind"] == kind]
    return [bytes(text)[: int(size)].decode() for text, size in zip(of_kind["text"], of_kind["text_bytes"])]


def of_kind(found: Recording, kind: int) -> np.ndarray:
    records: np.ndarray = found.records[found.records["kind"] == kind]
    return records


# -- what is recorded ---------------------------------------------------------------------------------------------


def test_a_failed_call_with_its_path(slot: Slot) -> None:
    python(slot, "import os\ntry: os.stat('/nowhere/at all')\nexcept OSError: pass")
    found = recorded(slot)
    failed = of_kind(found, lib.RECORDED_FAILED)
    at = texts(found, lib.RECORDED_FAILED).index("/nowhere/at all")
    assert failed["value"][at] == 2 and failed["subject"][at] == lib.RECORDED_PATH and failed["pid"][at] > 0


def test_what_is_new_since_the_last_look(slot: Slot) -> None:
    sensor = recorder(slot.tracer)
    fails = "import os\ntry: os.open('/nowhere/NUMBER', 0)\nexcept OSError: pass"
    python(slot, fails.replace("NUMBER", "1"))
    first, last = sensor.rare_since(slot.index, NEVER)
    python(slot, fails.replace("NUMBER", "2"))
    later, end = sensor.rare_since(slot.index, last)
    paths = [[bytes(text).partition(b"\0")[0] for text in records["text"]] for records in (first, later)]
    assert b"/nowhere/1" in paths[0] and b"/nowhere/2" not in paths[0]
    assert b"/nowhere/2" in paths[1] and b"/nowhere/1" not in paths[1]
    assert later["begun"].min() > first["begun"].max()
    assert (len(sensor.rare_since(slot.index, end)[0]), sensor.rare_since(slot.index, end)[1]) == (0, end)


def test_what_is_new_of_a_job_that_is_recorded_again_in_another_place(slot: Slot, ground: Ground) -> None:
    sensor = recorder(slot.tracer)
    fails = "import os\ntry: os.open('/nowhere/NUMBER', 0)\nexcept OSError: pass"
    for number in range(3):
        python(slot, fails.replace("NUMBER", str(number)))
    _, last = sensor.rare_since(slot.index, NEVER)
    sensor.stop(slot.index)
    record(ground.slot("condor_slot2"), OWNER)  # it gets the place
    record(slot, OWNER)
    python(slot, fails.replace("NUMBER", "again"))
    found, last = sensor.rare_since(slot.index, last)
    paths = [bytes(text).partition(b"\0")[0] for text in found["text"]]
    assert b"/nowhere/again" in paths and b"/nowhere/0" not in paths
    assert len(sensor.rare_since(slot.index, last)[0]) == 0


def test_a_failed_write_with_the_name_of_its_file(slot: Slot) -> None:
    python(slot, "import os\ntry: os.write(os.open('/dev/full', 1), b'x')\nexcept OSError: pass")
    found = recorded(slot)
    failed = of_kind(found, lib.RECORDED_FAILED)
    at = texts(found, lib.RECORDED_FAILED).index("full")
    assert failed["value"][at] == 28 and failed["subject"][at] == lib.RECORDED_FILE


def test_programs_their_ends_and_what_they_open(slot: Slot) -> None:
    run(slot, "/bin/sh", "-c", "/bin/cat /etc/hostname; exit 3")
    found = recorded(slot)
    programs = [text.rstrip("\0").split("\0") for text in texts(found, lib.RECORDED_EXEC)]
    assert programs == [["/bin/sh", "-c", "/bin/cat /etc/hostname; exit 3"], ["/bin/cat", "/etc/hostname"]]
    assert of_kind(found, lib.RECORDED_EXIT)["value"].tolist() == [0, 3 << 8]
    assert "/etc/hostname" in texts(found, lib.RECORDED_OPEN)
    assert len(of_kind(found, lib.RECORDED_FORK)) == 1
    assert (np.diff(found.records["time_ns"].astype("i8")) >= 0).all()


def test_a_signal_and_who_sent_it(slot: Slot) -> None:
    ready, begun = os.pipe()

    def act() -> None:
        os.dup2(begun, 1)
        become_owner()
        os.execv("/bin/sh", ["sh", "-c", "echo; exec sleep 1000"])

    pid = slot.fork(act)
    os.close(begun)
    assert os.read(ready, 1)
    os.close(ready)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    signals = of_kind(recorded(slot), lib.RECORDED_SIGNAL)
    assert signals["value"].tolist()[0] == signal.SIGTERM and texts(recorded(slot), lib.RECORDED_SIGNAL)[0]
    assert signals["other"].tolist()[0] == os.getpid()
    assert of_kind(recorded(slot), lib.RECORDED_EXIT)["value"].tolist() == [signal.SIGTERM]


def test_a_signal_of_a_timer_is_sent_by_nobody(slot: Slot) -> None:
    """It comes while any process runs, which has nothing to do with it."""
    script = (
        "import ctypes, time\nlibc, timer = ctypes.CDLL(None), ctypes.c_void_p()\n"
        "assert libc.timer_create(1, None, ctypes.byref(timer)) == 0\n"
        "soon = (ctypes.c_long * 4)(0, 0, 0, 10_000_000)\n"
        "assert libc.timer_settime(timer, 0, soon, None) == 0\ntime.sleep(300)"
    )
    assert python(slot, script) == signal.SIGALRM
    (told,) = of_kind(recorded(slot), lib.RECORDED_SIGNAL)
    assert (told["value"], told["other"]) == (signal.SIGALRM, 0)
    assert told["subject"] == lib.RECORDED_NOTHING and told["text_bytes"] == 0


def test_a_refused_connection(slot: Slot) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        python(slot, f"import socket\ntry: socket.create_connection(('127.0.0.1', {port}))\nexcept OSError: pass")
    failed = of_kind(recorded(slot), lib.RECORDED_FAILED)
    refused = failed[failed["subject"] == lib.RECORDED_ADDRESS]
    assert refused["value"].tolist() == [111]
    assert bytes(refused["text"][0])[2:8] == port.to_bytes(2, "big") + bytes([127, 0, 0, 1])


def test_a_connection_that_is_refused_to_a_program_that_does_not_wait_for_it(slot: Slot) -> None:
    """It is told by SO_ERROR. That of another socket says nothing."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        python(
            slot,
            "import select, socket\n"
            "a, b = socket.socket(), socket.socketpair()\n"
            "a.setblocking(False)\n"
            f"assert a.connect_ex(('127.0.0.1', {port})) == 115\n"
            "p = select.poll(); p.register(a, select.POLLOUT); p.poll()\n"
            "for s in (b[0], a, a): s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)",
        )
    (refused,) = of_kind(recorded(slot), lib.RECORDED_REFUSED)
    assert (refused["value"], refused["subject"]) == (111, lib.RECORDED_ADDRESS)
    told = socket.AF_INET.to_bytes(2, sys.byteorder) + port.to_bytes(2, "big") + bytes([127, 0, 0, 1])
    assert bytes(refused["text"])[: len(told)] == told


def test_one_of_ipv6_as_well(slot: Slot) -> None:
    with socket.socket(socket.AF_INET6) as unused:
        unused.bind(("::1", 0))
        port = unused.getsockname()[1]
        python(slot, f"import socket\ntry: socket.create_connection(('::1', {port}), 1000)\nexcept OSError: pass")
    (refused,) = of_kind(recorded(slot), lib.RECORDED_REFUSED)
    told = socket.AF_INET6.to_bytes(2, sys.byteorder) + port.to_bytes(2, "big") + bytes(4) + bytes(15) + b"\x01"
    assert (bytes(refused["text"]).ljust(28, b"\0"), refused["text_bytes"]) == (told + bytes(4), 28)


def test_nothing_of_the_wrapper(ground: Ground) -> None:
    slot = ground.slot()
    record(slot, OWNER)
    ground.tracer.begin_at_next_exec(slot.index)
    slot.call(lambda: (become_owner(), [os.path.exists("/of the wrapper") for _ in range(3)]))
    assert "/of the wrapper" not in texts(recorded(slot), lib.RECORDED_FAILED)
    run(slot, "/bin/cat", "/of the job")
    assert "/of the job" in texts(recorded(slot), lib.RECORDED_FAILED)


# -- of whom ------------------------------------------------------------------------------------------------------


def test_nothing_of_a_task_that_is_not_the_owners(slot: Slot) -> None:
    """A set-user-id program, and one that may not be dumped."""

    def as_another() -> None:
        os.setresuid(OWNER, 0, 0)
        os.path.exists("/of root")

    def not_dumpable() -> None:
        become_owner()  # which makes it so
        os.path.exists("/not to be dumped")

    slot.call(as_another)
    slot.call(not_dumpable)
    found = recorded(slot)
    assert found.not_ours >= 2
    assert texts(found, lib.RECORDED_FAILED) == []


def test_nothing_of_a_job_that_is_not_recorded(ground: Ground, slot: Slot) -> None:
    other = ground.slot("condor_slot2")
    ground.tracer.counters["awaits_exec"][other.index] = map_layout.AWAITS_NOTHING
    python(other, "open('/dev/null')")
    assert len(recorded(slot).records) == 0
    assert recorder(ground.tracer).recording(other.index) is None


def test_a_row_that_another_job_had_has_nothing_of_it(ground: Ground, slot: Slot) -> None:
    run(slot, "/bin/cat", "/of the first job")
    ground.tracer.sensors["recorder"].stop(slot.index)
    other = ground.slot("condor_slot2")
    ground.tracer.counters["awaits_exec"][other.index] = map_layout.AWAITS_NOTHING
    record(other, OWNER)
    run(other, "/bin/cat", "/of the second job")
    found = texts(recorded(other), lib.RECORDED_FAILED)
    assert "/of the second job" in found and "/of the first job" not in found


# -- rings --------------------------------------------------------------------------------------------------------


def small(name: str, max_jobs: int = 2) -> object:
    return on_ground(name, max_jobs={"recorder": max_jobs}, recorder_bytes=64 * map_layout.RECORDED.itemsize)


def started(ground: Ground, name: str) -> Slot:
    slot = ground.slot(name)
    ground.tracer.counters["awaits_exec"][slot.index] = map_layout.AWAITS_NOTHING
    return slot


def test_one_job_overwrites_its_own_events_alone(name: str) -> None:
    with small(name) as ground:  # type: ignore[attr-defined]
        quiet, loud = started(ground, "condor_slot1"), started(ground, "condor_slot2")
        record(quiet, OWNER)
        record(loud, OWNER)
        run(quiet, "/bin/cat", "/of the quiet one")
        python(loud, "import os\nfor i in range(5000): os.path.exists(f'/{i}')")
        assert "/of the quiet one" in texts(recorded(quiet), lib.RECORDED_FAILED)
        found = recorded(loud)
        paths = texts(found, lib.RECORDED_FAILED)
        assert paths[-14:] == [f"/{number}" for number in range(4986, 5000)]
        assert found.overwritten >= 4900 and found.rare_since > found.since
        assert found.lost == 0


def test_no_record_is_made_of_two(name: str) -> None:
    """Threads on all CPUs that write to few places: what they say of themselves is in each record."""
    text = (
        "import os, threading\n"
        "def many(n):\n"
        " for i in range(5000): os.path.exists('/' + str(n) * 150)\n"
        "ts = [threading.Thread(target=many, args=(n,)) for n in range(8)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]"
    )
    command = ["p", "-S", "-c", text]
    with small(name) as ground:  # type: ignore[attr-defined]
        slot = started(ground, "condor_slot1")
        record(slot, OWNER)
        children = {slot.fork(lambda: (become_owner(), os.execv(sys.executable, command))) for _ in range(2)}
        while children:
            for path in texts(recorded(slot), lib.RECORDED_FAILED):
                assert not path[1:2].isdigit() or path == "/" + path[1] * 150
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG) != (0, 0)}
        whole = [path for path in texts(recorded(slot), lib.RECORDED_FAILED) if path[1:2].isdigit()]
        assert whole and all(path == "/" + path[1] * 150 for path in whole)


def test_jobs_beyond_the_room_go_without(name: str) -> None:
    with small(name, max_jobs=1) as ground:  # type: ignore[attr-defined]
        first, second = started(ground, "condor_slot1"), started(ground, "condor_slot2")
        record(first, OWNER)
        recorder(ground.tracer).describe(second.index, OWNER)
        assert not ground.tracer.sensors["recorder"].start(second.index)
        ground.tracer.sensors["recorder"].stop(first.index)
        assert ground.tracer.sensors["recorder"].start(second.index)


def test_all_jobs_together_have_no_more_than_the_node_gives(ground: Ground) -> None:
    sensor = Recorder(ground.tracer.basic, 1000)
    assert sensor.rows == 64 and sensor.sizes()["jl_records"] * map_layout.RECORDED.itemsize <= NODE_BYTES
    sensor.bytes_a_job = 0
    assert sensor.rows == 0


# -- joblensd's end -----------------------------------------------------------------------------------------------


def test_rings_outlive_who_made_them(name: str) -> None:
    """As after kill -9: a child makes them and is gone, and what the job does meanwhile is recorded."""

    def make() -> None:
        ground = Ground(name)
        slot = started(ground, "condor_slot1")
        record(slot, OWNER)
        run(slot, "/bin/cat", "/before")

    try:
        assert os.waitpid(forked(make), 0)[1] == 0
        path = Ground.place(name) / "condor_slot1"
        pid = forked(
            lambda: (
                (path / "cgroup.procs").write_text("0"),
                become_owner(),
                os.execv("/bin/cat", ["cat", "/meanwhile"]),
            )
        )
        os.waitpid(pid, 0)
    finally:
        with on_ground(name) as ground:
            slot = Slot(Path(ground.base / "condor_slot1"), ground.tracer)
            assert ground.tracer.adopted
            failed = texts(recorded(slot), lib.RECORDED_FAILED)
            assert "/meanwhile" in failed[failed.index("/before") :]


def test_other_sizes_cost_no_counter(name: str) -> None:
    assert os.waitpid(forked(lambda: record(started(Ground(name), "condor_slot1"), OWNER)), 0)[1] == 0
    with on_ground(name, max_jobs={"recorder": 3}) as ground:
        slot = Slot(Path(ground.base / "condor_slot1"), ground.tracer)
        assert ground.tracer.adopted and recorder(ground.tracer).recording(slot.index) is None
        record(slot, OWNER)
        assert len([pin for pin in ground.pins.glob("*/recorder-*")]) == 1


def test_it_is_gone_with_its_last_job(ground: Ground, slot: Slot) -> None:
    assert "jl_rec_call" in ground.tracer.attached()
    slot.tracer.stop(slot.index)
    ground.tracer.settle()
    ground.tracer.settle()
    assert "jl_rec_call" not in ground.tracer.attached()
