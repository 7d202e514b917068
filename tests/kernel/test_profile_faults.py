"""What goes wrong beside a job that is sampled, and what jobs do to it: it costs their profiles at most, and is said.

Some of it is in test_profile.py: a reader that was killed, one that hangs, and a program that is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ground import Slot, until
from test_evidence import Look, look, seen, thread_of
from test_profile import (
    DEEP,
    Profiled,
    Told,
    has_callers,
    lookers,
    profiled,
    programs,
    readers,
    share,
    start,
)

__all__ = ["look", "lookers", "profiled", "programs", "readers"]

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="unwind tables are read on x86-64 alone")

MAPPINGS = 100_000
MOST_MAPPINGS = Path("/proc/sys/vm/max_map_count")


@pytest.fixture
def room_for_mappings() -> Iterator[None]:
    """A process may have so many, which on many machines it may not."""
    before = int(MOST_MAPPINGS.read_text())
    MOST_MAPPINGS.write_text(str(max(before, MAPPINGS + 1000)))
    yield
    MOST_MAPPINGS.write_text(str(before))


def whole(window: Told, pid: int) -> float:
    """Of the samples of a process of ours that is busy, those with all callers."""
    of_it = {stack: count for stack, count in window.stacks.items() if stack.pid == pid}
    good = sum(count for stack, count in of_it.items() if has_callers(stack, ["main", *DEEP]))
    return good / sum(of_it.values()) if of_it else 0.0


def test_a_job_with_a_hundred_thousand_mappings_has_its_stacks(
    slot: Slot, profiled: Profiled, programs: dict[str, Path], look: Look, room_for_mappings: None
) -> None:
    """Those of its program and of libraries are at both ends of the list. A neighbour of it has its own as well."""
    pid, other = start(slot, programs["shared"], "thread", str(MAPPINGS)), start(slot, programs["shared"], "plain")
    until(lambda: Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") > MAPPINGS)
    profiled.until(lambda: profiled.knows(other))
    window = profiled.window(pid)
    assert share(window, lambda stack: stack.pid != pid or has_callers(stack, ["threaded", *DEEP])) >= 0.99
    assert whole(window, other) >= 0.99 and window.lost == 0
    assert profiled.said == [] and profiled.profiles.restarts == 0
    found = seen(look, lambda found: thread_of(found, pid).cause == "thread" and thread_of(found, pid).frames)
    thread = thread_of(found, pid)
    assert "main" in [frame.function for frame in thread.frames] and thread.is_whole
