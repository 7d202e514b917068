"""The job's wrapper in a slot: it isn't counted, and what the job's environment makes it do isn't hidden."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import ground as grounds
import pytest
from ground import CHECKOUT, Slot, assert_io_of

from condor_joblens.jobs.wrapper_programs import WrapperPrograms

pytestmark = pytest.mark.guest

HOOKS = CHECKOUT / "hooks"
CHILDREN = 2
WRAPPERS = {"process_forked": 1, "process_executed": 2, "process_exited": 1, "process_failed": 1}
"""What the wrapper and its helper add if they are counted."""


class Wrapped:
    """Jobs of one slot behind the wrapper, and a joblensd that hears its call."""

    def __init__(self, slot: Slot, folder: Path) -> None:
        self.slot = slot
        self.wrapper, self.helper = folder / "joblens_wrapper", folder / "joblens_activate"
        self.wrapper.write_bytes((HOOKS / "joblens_wrapper").read_bytes())
        self.wrapper.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        grounds.ACTIVATE_SOCKET.unlink(missing_ok=True)
        self._listener.bind(str(grounds.ACTIVATE_SOCKET))
        self._listener.listen()
        self._listener.settimeout(300)
        shutil.copy(grounds.helper_program(), self.helper)
        self.preload = grounds.preload_library()
        self.programs = WrapperPrograms([str(self.wrapper)])

    def run(self, **environment: str) -> Mapping[str, float]:
        """The job to its end; what was counted for it."""
        arguments = [str(self.wrapper), str(grounds.JOB), "children", str(CHILDREN)]
        job = self.slot.start(before_exec=lambda: os.execve(arguments[0], arguments, environment))
        connection, _ = self._listener.accept()
        connection.recv(4096)
        self.heard()
        connection.send(b"joblens/1\0traced\0level=basic\0")
        self.ended = job.wait()
        connection.close()
        return self.slot.totals()

    def heard(self) -> None:
        """As joblensd, if nothing speaks against it."""
        count = self.slot.tracer.counters[self.slot.index]
        pairs = zip(count["program_devices"], count["program_inodes"])
        self.known = [self.programs.knows(int(device), int(inode)) for device, inode in pairs]
        self.slot.tracer.begin_at_next_exec(self.slot.index)

    def close(self) -> None:
        self._listener.close()
        grounds.ACTIVATE_SOCKET.unlink()

    @property
    def is_kept(self) -> bool:
        """Whether the kernel says that more than the wrapper has run."""
        return bool(self.slot.tracer.counters["kept_early"][self.slot.index])


@pytest.fixture
def wrapped(slot: Slot, tmp_path: Path) -> Iterator[Wrapped]:
    made = Wrapped(slot, tmp_path)
    yield made
    made.close()


def processes(totals: Mapping[str, float]) -> dict[str, float]:
    return {name: totals[name] for name in WRAPPERS}


JOBS = {"process_forked": CHILDREN, "process_executed": 1 + CHILDREN, "process_exited": 1 + CHILDREN}


def test_nothing_of_the_wrapper_is_counted(wrapped: Wrapped) -> None:
    totals = wrapped.run()
    assert wrapped.known == [True, True], "its shell and its helper are the first programs of the slot"
    assert processes(totals) == {**JOBS, "process_failed": 0}
    assert_io_of(wrapped.slot, wrapped.ended)
    assert not wrapped.is_kept
    assert wrapped.slot.tracer.counters["main_exit_code"][wrapped.slot.index] == wrapped.ended.status


def test_a_large_environment_is_the_wrappers_to_read(wrapped: Wrapped) -> None:
    totals = wrapped.run(**{f"V{number}": "x" * 100_000 for number in range(5)})
    assert processes(totals) == {**JOBS, "process_failed": 0} and not wrapped.is_kept


@pytest.mark.parametrize("late", [{}, {"JOBLENS_PRELOAD_LATE": "1"}], ids=["before the call", "after it"])
@pytest.mark.parametrize("what", ["fork", "exec", "read", "thread", "touch", "spin", "connect"])
def test_what_a_preload_does_in_the_wrappers_shell_is_counted(
    wrapped: Wrapped, what: str, late: Mapping[str, str]
) -> None:
    totals = wrapped.run(LD_PRELOAD=str(wrapped.preload), JOBLENS_PRELOAD=what, **late)
    assert wrapped.is_kept
    forked = {"fork": 5, "exec": 1}.get(what, 0)
    assert totals["process_forked"] == JOBS["process_forked"] + WRAPPERS["process_forked"] + forked
    assert totals["process_failed"] == WRAPPERS["process_failed"] + (5 if what == "fork" else 0)
    if what in ("read", "thread"):
        assert totals["io_call_read_bytes"] >= 64 << 20
    if what == "touch":
        assert totals["memory_minor_faults"] >= 64 << 20 >> 12


def test_a_preload_that_does_nothing_hides_nothing(wrapped: Wrapped) -> None:
    totals = wrapped.run(LD_PRELOAD=str(wrapped.preload))
    assert processes(totals) == {**JOBS, "process_failed": 0} and not wrapped.is_kept


def test_another_program_under_the_helpers_name_is_not_the_helper(wrapped: Wrapped, tmp_path: Path) -> None:
    copy = tmp_path / "other" / "joblens_activate"
    copy.parent.mkdir()
    copy.write_bytes(wrapped.helper.read_bytes())
    copy.chmod(0o755)
    wrapped.wrapper = copy.parent / "joblens_wrapper"
    wrapped.wrapper.write_bytes((HOOKS / "joblens_wrapper").read_bytes())
    wrapped.wrapper.chmod(0o755)
    wrapped.run()
    assert wrapped.known == [True, False]


def test_an_upgraded_helper_is_known_at_once(wrapped: Wrapped) -> None:
    new = wrapped.helper.with_suffix(".new")
    new.write_bytes(wrapped.helper.read_bytes())
    new.chmod(0o755)
    new.rename(wrapped.helper)
    wrapped.run()
    assert wrapped.known == [True, True]
