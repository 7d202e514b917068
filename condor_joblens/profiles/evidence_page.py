"""Why a job stands still, in lines for a person: one sentence, then each thread and its wait."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.thread import Frame, Thread

MOST_GROUPS = 100
MOST_FRAMES = 8
MOST_LINE = 1000
"""Characters of a line in a file; the rest of a longer one is left out."""

_STARTERS = {"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone3"}
"""Functions in which every stack begins."""

_ENTRIES = {"do_syscall_64", "entry_SYSCALL_64_after_hwframe", "el0_svc", "el0t_64_sync", "el0t_64_sync_handler"}
"""The same in the kernel."""


def taken(first: float, last: float) -> str:
    """When two equal looks were taken; epoch seconds."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last))
    return f"as it was at {when}, and the same {last - first:.0f} s before:"


def file(heading: str, evidence: Evidence, most_bytes: int) -> bytes:
    """A text file: the heading, and as much of the page as fits."""
    lines = [heading, "", *page(evidence)]
    more, content = b"\nand more, for which there is no room\n", bytearray()
    for line in lines:
        cut = line if len(line) <= MOST_LINE else line[: MOST_LINE - 2] + ".."
        encoded = cut.encode("utf-8", "replace") + b"\n"
        if len(content) + len(encoded) + len(more) > most_bytes:
            return bytes(content + more)
        content += encoded
    return bytes(content)


def page(evidence: Evidence) -> list[str]:
    """The lines for a person; the first is the sentence that says why."""
    lines = [evidence.sentence, f"cause: {evidence.cause}", ""]
    found = groups(evidence.threads)
    shown = None
    for group in found[:MOST_GROUPS]:
        if group[0].pid != shown:
            shown = group[0].pid
            first = next((each for each in evidence.threads if each.tid == shown), group[0])
            lines.append(f"process {shown} ({first.name}), child of {first.parent}")
        lines += group_lines(group)
    if len(found) > MOST_GROUPS:
        lines.append(f"and {sum(map(len, found[MOST_GROUPS:]))} threads that wait for other things")
    return lines + endings(evidence)


def endings(evidence: Evidence) -> list[str]:
    """What is missing, in words."""
    lines = []
    if evidence.left_out:
        lines.append(f"and {evidence.left_out} threads that were not looked at")
    if not evidence.is_whole:
        lines.append("this is not all: a file or a process of the job did not answer in time")
    return lines


def groups(threads: Sequence[Thread]) -> list[list[Thread]]:
    """Threads of a process that do the same at the same place, the longest wait of each process first."""
    found: dict[tuple[object, ...], list[Thread]] = {}
    for thread in threads:
        key = (thread.pid, thread.state, thread.cause, thread.call, thread.object, thread.holder)
        found.setdefault((*key, tuple(frame.name for frame in thread.frames)), []).append(thread)
    order = {pid: place for place, pid in enumerate(dict.fromkeys(thread.pid for thread in threads))}
    return sorted(found.values(), key=lambda group: (order[group[0].pid], -max(each.waited for each in group)))


def group_lines(group: Sequence[Thread]) -> list[str]:
    """One wait, and where in the program it is."""
    thread = group[0]
    what = thread.cause if not thread.object else f"{thread.cause}: {thread.object}"
    held = f"; {thread.holder}" if thread.holder else ""
    where = f" in {thread.call}" if thread.call else ""
    lines = [f"  {named(group)}  {thread.state}{since(group)}{where}  {what}{held}"]
    kernel = [frame.function for frame in thread.kernel if frame.function not in _ENTRIES]
    if kernel:
        lines.append(f"      kernel  {' < '.join(kernel[:MOST_FRAMES])}")
    frames = [shown(frame) for frame in without_interpreter(own(thread.frames))]
    if frames:
        more = " < ..." if len(frames) > MOST_FRAMES or not thread.is_whole else ""
        lines.append(f"      at      {' < '.join(frames[:MOST_FRAMES])}{more}")
    return [*lines, *(f"      {line}" for line in others(group))]


def others(group: Iterable[Thread]) -> list[str]:
    """How many threads there are besides, of which no more is told; empty if there are none."""
    alike = sum(thread.alike for thread in group)
    return [f"and {alike} more that wait for the same; where was not read"] if alike else []


def named(group: Sequence[Thread]) -> str:
    """`thread 12 (a.out)`, or `50 threads (12, 13, 14 ...)`."""
    if len(group) == 1:
        return f"thread {group[0].tid} ({group[0].name})"
    some = ", ".join(str(thread.tid) for thread in group[:3])
    return f"{len(group)} threads ({some}{' ...' if len(group) > 3 else ''})"


def since(group: Iterable[Thread]) -> str:
    """` 12 s`, of the one that has waited for the longest time; empty for threads that run."""
    waited = max(thread.waited for thread in group)
    return f" {waited:.1f} s" if waited else ""


def own(frames: Sequence[Frame]) -> list[Frame]:
    """The frames without those in which every program begins."""
    end = len(frames)
    while end > 1 and (frames[end - 1].function in _STARTERS or _is_of_libc(frames[end - 1])):
        end -= 1
    return list(frames[:end])


def without_interpreter(frames: Sequence[Frame]) -> list[Frame]:
    """Of a thread that runs Python, the frames without those of CPython's own C; all if their order is a guess."""
    if not any(frame.is_python for frame in frames) or any(frame.is_guessed for frame in frames):
        return list(frames)
    return [frame for frame in frames if frame.is_python or not _is_of_python(frame)]


def shown(frame: Frame) -> str:
    """The frame's name; with a question mark if it is guessed."""
    return f"{frame.name}?" if frame.is_guessed else frame.name


def _is_of_python(frame: Frame) -> bool:
    return frame.file.rpartition("/")[2].startswith(("python", "libpython"))


def _is_of_libc(frame: Frame) -> bool:
    return not frame.function and frame.file.rpartition("/")[2].startswith(("libc.so", "libc-"))
