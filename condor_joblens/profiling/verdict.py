"""What a job as a whole waits for: one cause and one sentence, from what each of its threads waits for.

Most threads of a job that hangs wait for each other. Those that wait for something else tell the cause; if they
contradict each other, the cause is unknown. A wrong cause is worse than none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from condor_joblens.profiles.thread import INTERPRETER_LOCK
from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.wait import FROZEN, Cause, Wait

Pair = tuple[Thread, Wait]


@dataclass(frozen=True)
class Verdict:
    """The cause, the thread that tells it (0: none alone does), and a sentence for a person."""

    cause: Cause
    sentence: str
    tid: int = 0
    is_suspicious: bool = False
    """Whether nothing but another thread, process or machine can end what it waits for, and it is no server."""

    cycle: tuple[int, ...] = ()
    """Threads of a deadlock: each waits for the next one or its process, and the last for the first."""


_IDLE = {Cause.EVENTS, Cause.CLIENT, Cause.FUTEX, Cause.SIGNAL, Cause.UNKNOWN, Cause.SLEEP, Cause.NOT_OURS}
"""What threads also wait for that have nothing to do, while others work."""

_PASSED_ON = {Cause.CHILD, Cause.THREAD, Cause.PIPE}
"""For which another process or thread of the job is waited for: what that one waits for tells more."""

_LOCKS = {Cause.FILE_LOCK, Cause.MUTEX}
_HELD_UP = _LOCKS | {Cause.NETWORK}
"""The same, if who has the lock, or is at the other end, waits for something itself."""

_SUSPICIOUS = _LOCKS | {
    Cause.DEADLOCK, Cause.PIPE, Cause.NETWORK, Cause.FILE, Cause.PAGE, Cause.TERMINAL, Cause.SEMAPHORE, Cause.QUEUE,
    Cause.STOPPED, Cause.THREAD, Cause.MEMORY,
}  # fmt: skip
"""What a job that is well does not wait for without end. Who listens for clients or signals, or sleeps, may."""

_SEEMS_HARMLESS = {Cause.STOPPED, Cause.SLEEP, Cause.EVENTS}
"""Which says little without who waits for that."""

_WITHIN = {Cause.FUTEX, Cause.MUTEX, Cause.THREAD, Cause.CHILD}
"""For which only threads of the job can end the wait."""

_BETWEEN_PROCESSES = {Cause.CHILD, Cause.PIPE, Cause.FILE_LOCK, Cause.NETWORK}
"""For which another process of the job can be waited for."""

_VERBS = {
    Cause.FILE_LOCK: "waits for", Cause.MUTEX: "waits for", Cause.THREAD: "waits for", Cause.FUTEX: "waits for",
    Cause.CHILD: "waits for the end of", Cause.SLEEP: "sleeps", Cause.PIPE: "waits for", Cause.NETWORK: "waits on",
    Cause.FILE: "waits for the file system:", Cause.PAGE: "waits for", Cause.TERMINAL: "waits for input from",
    Cause.EVENTS: "waits for", Cause.CLIENT: "waits for", Cause.SIGNAL: "waits for", Cause.SEMAPHORE: "waits for",
    Cause.QUEUE: "waits for", Cause.MEMORY: "waits for",
    Cause.STOPPED: "is stopped", Cause.ENDED: "has ended, and", Cause.UNKNOWN: "waits",
    Cause.NOT_OURS: "is a program of another user, and is not looked into",
}  # fmt: skip


def judge(pairs: Sequence[Pair]) -> Verdict:
    """The verdict on a job by all of its threads."""
    living = [pair for pair in pairs if pair[1].cause is not Cause.ENDED]
    running = [thread for thread, wait in living if wait.cause is Cause.RUNS]
    if not living:
        return Verdict(Cause.UNKNOWN, "no process of the job is there")
    if running:
        what = "thread runs" if len(running) == 1 else "threads run"
        return Verdict(Cause.RUNS, f"{len(running)} of {len(living)} {what}: the job does not wait", running[0].tid)
    circle = _circle(living)
    if circle:
        return _deadlock(circle)
    circle = _circle_of_processes(living)
    if circle:
        return _deadlock_of_processes(circle)
    telling = _telling(living)
    if telling is None:
        causes = sorted({wait.cause.value for _, wait in living})
        sentence = f"its {len(living)} threads wait for different things: {', '.join(causes)}"
        return Verdict(Cause.UNKNOWN, sentence, is_suspicious=_is_closed(living))
    thread, wait = telling
    if wait.cause is Cause.FUTEX:
        return Verdict(Cause.UNKNOWN, described(thread, wait), thread.tid, _is_closed(living))
    sleepers = [pair for pair in living if pair[0].is_first and pair[1].cause is Cause.SLEEP]
    if wait.cause is Cause.SLEEP and len({each.object for _, each in sleepers}) > 1:
        return Verdict(Cause.SLEEP, _sleeping(sleepers))
    is_suspicious = wait.cause in _SUSPICIOUS and not wait.has_deadline and wait.object != FROZEN
    sentence = _held_up(thread, wait, living) + described(thread, wait)
    return Verdict(wait.cause, sentence, thread.tid, is_suspicious)


def _held_up(telling: Thread, its: Wait, pairs: Sequence[Pair]) -> str:
    """`process 12 (a.out) waits for a lock on /x of 10; `: who waits for one that does not seem to hold anybody up."""
    if its.cause not in _SEEMS_HARMLESS or its.object == FROZEN:
        return ""
    for thread, wait in pairs:
        if wait.cause in (Cause.FILE_LOCK, Cause.PIPE) and wait.holder_pid == telling.pid != thread.pid:
            return f"{_named(thread)} {_awaited(wait)}{_whose(wait)}; "
    return ""


def _sleeping(pairs: Sequence[Pair]) -> str:
    """Who looks for something again and again sleeps as well as who has it: none of them tells more."""
    some = ", ".join(f"{thread.pid} ({thread.name}) {wait.object}" for thread, wait in pairs[:4])
    more = f", and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return f"{len(pairs)} processes sleep: {some}{more}"


def with_fact(said: Verdict, fact: str) -> Verdict:
    """The same, with what may be why; an empty fact is none."""
    return replace(said, sentence=f"{said.sentence}; {fact}") if fact else said


def has_lasted(pairs: Sequence[Pair], said: Verdict, least: float) -> bool:
    """Whether what is awaited of the network has been so for `least` seconds: no call tells a socket's own time-out.

    Other waits may be interrupted in the kernel, as by clients of file servers, and go on.
    """
    telling = {said.tid, *said.cycle}
    waited = [thread.waited for thread, wait in pairs if thread.tid in telling and wait.cause is Cause.NETWORK]
    return min(waited, default=least) >= least


def fingerprint(pairs: Sequence[Pair], said: Verdict) -> str:
    """32 hexadecimal digits, the same for two looks that found the same threads in the same waits at the same places.

    Threads that have a deadline, or wait for work, come and go: they are left out unless they tell the cause.
    """
    digest = hashlib.md5(said.cause.value.encode(), usedforsecurity=False)
    for thread, wait in sorted(pairs, key=lambda pair: pair[0].tid):
        if said.tid in (0, thread.tid) or not (wait.has_deadline or wait.cause in _IDLE or wait.cause is Cause.ENDED):
            digest.update(repr((thread.tid, thread.call, thread.registers, wait.cause.value, wait.object)).encode())
    return digest.hexdigest()


def _is_closed(pairs: Sequence[Pair]) -> bool:
    """Whether all threads wait for each other alone: nothing from outside will wake any of them."""
    return all((wait.cause in _WITHIN or wait.is_within) and not wait.has_deadline for _, wait in pairs)


def without_interpreter(pairs: Sequence[Pair], said: Verdict) -> str:
    """Who waits for the lock of the interpreter that the thread runs which tells the cause, and who has it.

    Empty if nobody does, or the cause says so.
    """
    pid = next((thread.pid for thread, _ in pairs if thread.tid == said.tid), 0)
    told = {said.tid, *said.cycle}
    others = [(thread, wait) for thread, wait in pairs if thread.pid == pid and thread.tid not in told]
    found = [(thread, wait) for thread, wait in others if _is_for_interpreter(wait)]
    if not found or said.cause is Cause.RUNS:
        return ""
    who = f"{_named(found[0][0])} waits" if len(found) == 1 else f"{len(found)} other threads of the process wait"
    holders = {wait.holder for _, wait in found}
    held = f", held by {holders.pop()}" if len(holders) == 1 and "" not in holders else ""
    return f"{who} for {INTERPRETER_LOCK}{held}"


def _is_for_interpreter(wait: Wait) -> bool:
    return wait.object == INTERPRETER_LOCK


def described(thread: Thread, wait: Wait) -> str:
    """`process 12 (a.out) waits for a lock on /x in flock since 12 s; held by process 10 (b)`."""
    words = [_named(thread), _awaited(wait), f"in {thread.call}" if thread.call else ""]
    if wait.is_silent:
        silent = "sent nothing" if wait.cause is Cause.NETWORK else "not answered"
        words[1] += f", which has {silent} for {_duration(thread.waited)}" + "," * bool(thread.call)
    elif wait.cause in (Cause.NOT_OURS, Cause.ENDED, Cause.STOPPED):
        words[2] = ""
    else:
        words.append(f"since {_duration(thread.waited)}")
    sentence = " ".join(word for word in words if word)
    return f"{sentence}; {_HOLDS.get(wait.cause, 'at the other end:')} {wait.holder}" if wait.holder else sentence


def _named(thread: Thread) -> str:
    return f"process {thread.pid} ({thread.name})" if thread.is_first else f"thread {thread.tid} ({thread.name})"


def _awaited(wait: Wait) -> str:
    """`waits for a lock on /x`."""
    server, _, port = wait.peer.rpartition(":")
    if port == _DNS:
        return f"waits for an answer of the DNS server {server} ({wait.object})"
    return f"{_VERBS[wait.cause]} {wait.object}".rstrip()


_DNS = "53"

_HOLDS = dict.fromkeys((Cause.FILE_LOCK, Cause.MUTEX, Cause.FUTEX), "held by")


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _circle(pairs: Sequence[Pair]) -> list[Pair]:
    """Threads each of which waits for the next, and the last for the first; empty if there are none."""
    by_tid = {thread.tid: (thread, wait) for thread, wait in pairs}
    done: set[int] = set()
    for tid in by_tid:
        path: list[int] = []
        while tid in by_tid and tid not in done:
            done.add(tid)
            path.append(tid)
            wait = by_tid[tid][1]
            tid = wait.holder_tid if wait.cause in (Cause.MUTEX, Cause.THREAD) or _is_for_interpreter(wait) else 0
        if tid in path:
            circle = [by_tid[each] for each in path[path.index(tid) :]]
            first = next((at for at, (_, wait) in enumerate(circle) if not _is_for_interpreter(wait)), 0)
            return circle[first:] + circle[:first]  # who wants Python's lock looks for it 200 times a second
    return []


def _deadlock(circle: list[Pair]) -> Verdict:
    thread, wait = circle[0]
    cycle = tuple(each.tid for each, _ in circle)
    if len(circle) == 1:
        sentence = f"thread {thread.tid} ({thread.name}) waits for {wait.object}, which it holds"
        return Verdict(Cause.DEADLOCK, sentence, thread.tid, True, cycle)
    parts = [f"{each.tid} waits for {wait.object} of {wait.holder_tid}" for each, wait in circle[:4]]
    more = f", and so on through {len(circle)} threads" if len(circle) > 4 else ""
    sentence = f"threads wait for each other: {', '.join(parts)}{more}"
    return Verdict(Cause.DEADLOCK, sentence, thread.tid, True, cycle)


def _circle_of_processes(pairs: Sequence[Pair]) -> list[Pair]:
    """A thread of each process that waits for the next one, and the last for the first; empty if there are none.

    As a parent that waits for its child, which waits until its parent reads what it has written. All threads of the
    job must wait for others of it, without a deadline: then no other thread comes and helps.
    """
    waits_for: dict[int, Pair] = {}
    pids = {thread.pid for thread, _ in pairs}
    for thread, wait in pairs:
        is_for_another = wait.cause in _BETWEEN_PROCESSES and wait.holder_pid in pids - {thread.pid}
        if wait.has_deadline or not (is_for_another or wait.cause in _WITHIN - _BETWEEN_PROCESSES):
            return []
        if is_for_another:
            waits_for.setdefault(thread.pid, (thread, wait))
    for pid in waits_for:
        path: list[int] = []
        while pid in waits_for and pid not in path:
            path.append(pid)
            pid = waits_for[pid][1].holder_pid
        if pid in path:
            return [waits_for[each] for each in path[path.index(pid) :]]
    return []


def _deadlock_of_processes(circle: list[Pair]) -> Verdict:
    parts = [f"{thread.pid} ({thread.name}) {_awaited(wait)}{_whose(wait)}" for thread, wait in circle[:4]]
    more = f", and so on through {len(circle)} processes" if len(circle) > 4 else ""
    sentence = f"processes wait for each other: {', '.join(parts)}{more}"
    return Verdict(Cause.DEADLOCK, sentence, circle[0][0].tid, True, tuple(thread.tid for thread, _ in circle))


def _whose(wait: Wait) -> str:
    """` of 12`: of a child that is told already."""
    return "" if wait.cause is Cause.CHILD else f" of {wait.holder_pid}"


def _telling(pairs: Sequence[Pair]) -> Pair | None:
    """The one whose wait holds the others up; None if several could."""
    outermost = [(thread, wait) for thread, wait in pairs if not _is_passed_on(thread, wait, pairs)]
    outermost = outermost or list(pairs)
    busy = [pair for pair in outermost if pair[1].cause not in _IDLE]
    first = [pair for pair in busy if pair[0].is_first] or busy
    for chosen in (first, [pair for pair in outermost if pair[0].is_first], outermost):
        if chosen and len({(wait.cause, wait.object) for _, wait in chosen}) == 1:
            return max(chosen, key=lambda pair: pair[0].waited)
        if chosen:
            causes = {wait.cause for _, wait in chosen}
            return max(chosen, key=lambda pair: pair[0].waited) if len(causes) == 1 else None
    return None


def _is_passed_on(thread: Thread, wait: Wait, pairs: Sequence[Pair]) -> bool:
    """Whether who is waited for is there, and tells more than this thread."""
    if _is_for_interpreter(wait):
        return wait.holder_tid not in (0, thread.tid)
    if wait.cause not in _PASSED_ON | _HELD_UP:
        return False
    if wait.holder_tid:
        holders = [pair for pair in pairs if pair[0].tid == wait.holder_tid]
    else:
        holders = [pair for pair in pairs if pair[0].pid == wait.holder_pid != thread.pid]
    if wait.cause in _PASSED_ON:
        return bool(holders)
    return any(other.cause not in _IDLE for _, other in holders)
