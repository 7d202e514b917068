"""What a child does that has become a job's owner: it looks at the job once, and tells joblensd what it saw.

The surest comes first. What the kernel tells of threads can't be held up by anything. What they wait for is read from
/proc. Stacks come last: for those, files of the job are opened, and one on a dead mount never answers. What has been
told by then has arrived. Each part is a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from condor_joblens.common import descriptors
from condor_joblens.profiles import evidence_page
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiling import alike, demangle, full, program_files, python, threads, unwind, verdict
from condor_joblens.profiling.mixed import NativeFrame, PlacedFrame, mixed
from condor_joblens.profiling.process import Process, text_of
from condor_joblens.profiling.python import Interpreter
from condor_joblens.profiling.symbols import Code, Files
from condor_joblens.profiling.threads import Thread
from condor_joblens.profiling.wait import Cause, Wait
from condor_joblens.profiling.waits import Waits

PACKET = 60_000
TEXT = b'{"part":"text"}\n'
"""What a text begins with, in a packet of its own: a look for people. A later one is in the place of an earlier one."""

MOST_FRAMES = 20_000
"""Frames of all stacks that are told; stacks that are equal count once."""

MAY_BE_OF_THE_DEAD = frozenset({Cause.UNKNOWN, Cause.FUTEX, Cause.SEMAPHORE, Cause.QUEUE, Cause.MUTEX})
"""Waits that tell no owner. It may be a process that a signal has ended, as a worker of a pool that had its lock."""

MOST_NAME = 1000
"""Characters of a function or a file; the rest of a longer name is left out."""


def main(channel: socket.socket, request: dict[str, Any], given: Sequence[int]) -> None:
    """Answers a request, which has the node's jobs, and is given the kernel's iterator over the threads of one.

    A request with a heading wants a text as well, beneath that. Or it is the reader of samples who asks, for programs:
    it does so again and again.
    """
    if "programs" in request:
        program_files.serve(channel)
        return
    found = threads.parse(_read(given[0]))
    page = _Page(request["heading"]) if request.get("heading") else None
    for part in parts(found, request["jobs"], least=float(request.get("least", 0.0)), killed=request.get("killed", "")):
        text = json.dumps(part, separators=(",", ":")).encode() + b"\n"
        for at in range(0, len(text), PACKET):
            descriptors.send(channel, text[at : at + PACKET])
        if page is not None and page.is_due_after(part):
            descriptors.send(channel, TEXT + page.text())


class _Page:
    """What has been seen, as a text. Stacks may never come: so it is made without them, and again with more of them."""

    def __init__(self, heading: str) -> None:
        self._heading, self._seen, self._stacks = heading, Evidence(), 0

    def is_due_after(self, part: dict[str, Any]) -> bool:
        """Takes in another part. It is due after the first, second, fourth, eighth ... process's stacks."""
        self._seen.add(part)
        if part["part"] != "stacks":
            return part["part"] in ("summary", "end")
        self._stacks += 1
        return self._stacks & (self._stacks - 1) == 0

    def text(self) -> bytes:
        """As much of it as fits into a packet."""
        return evidence_page.file(self._heading, self._seen, PACKET - len(TEXT))


def parts(
    found: Sequence[Thread], jobs: dict[str, str], proc: str = "/proc", least: float = 0.0, killed: str = ""
) -> Iterator[dict[str, Any]]:
    """The parts of the answer; `jobs` has the ids of the node's jobs by their slots' cgroups.

    An answer that has been awaited for less than `least` seconds is not suspicious. `killed` says which process of the
    job a signal has ended last.
    """
    shown = alike.first_of(found)
    yield {"part": "threads", "threads": [_thread(thread) for thread in shown], "left_out": len(found) - len(shown)}
    waits = Waits(found, jobs, proc)
    pairs = [(thread, waits.of(thread)) for thread in found]
    said = verdict.judge(pairs)
    if said.cause in (Cause.SLEEP, Cause.RUNS):  # as who tries again
        said = verdict.with_fact(said, full.in_words(waits.processes.values()))
    said = verdict.with_fact(said, verdict.without_interpreter(pairs, said))
    if said.cause in MAY_BE_OF_THE_DEAD and killed:
        said = verdict.with_fact(said, f"before: {killed}: what it held, nobody gives back")
    of = {thread.tid: wait for thread, wait in pairs}
    beyond = alike.beyond(pairs, shown, (said.tid, *said.cycle))
    if len(found) > len(shown):
        shown += beyond.more
        more = [_thread(thread) for thread in beyond.more]
        yield {"part": "more", "threads": more, "alike": beyond.alike, "left_out": beyond.left_out}
    yield {
        "part": "waits",
        "cause": said.cause.value,
        "sentence": said.sentence,
        "tid": said.tid,
        "cycle": list(said.cycle),
        "waits": {str(thread.tid): _wait(of[thread.tid]) for thread in shown},
    }
    yield {
        "part": "summary",
        "cause": said.cause.value,
        "suspicious": said.is_suspicious and verdict.has_lasted(pairs, said, least),
        "fingerprint": verdict.fingerprint(pairs, said),
    }
    files, room = Files(), MOST_FRAMES
    for pid, process in waits.processes.items():
        mine = [thread for thread in shown if thread.pid == pid and thread.registers is not None]
        if mine:
            stacks = _stacks(Code(process, files), python.find(process, files), mine, room)
            room -= sum(len(stack["frames"]) for stack in stacks)
            yield {"part": "stacks", "pid": pid, "stacks": stacks, "refused": _refusal(process, proc)}
        process.close()
    yield {"part": "end"}


def warm_up() -> None:
    """Loads what is needed, before anything is given up."""
    demangle.warm_up()


def _thread(thread: Thread) -> dict[str, Any]:
    return {
        "tid": thread.tid,
        "pid": thread.pid,
        "parent": thread.parent,
        "name": thread.name,
        "state": thread.state,
        "waited": round(thread.waited, 3),
        "call": thread.call,
        "kernel": [threads.function(frame) for frame in thread.kernel],
    }


def _wait(wait: Wait) -> dict[str, Any]:
    """What says nothing is left out, except of what readers of earlier versions need."""
    more = {
        "holder_job": wait.holder_job,
        "target": wait.target,
        "filesystem": wait.filesystem,
        "mount": wait.mount,
        "protocol": wait.protocol,
        "peer": wait.peer,
    }
    return {
        "cause": wait.cause.value,
        "object": wait.object[:MOST_NAME],
        "holder": wait.holder[:MOST_NAME],
        "holder_pid": wait.holder_pid,
        "holder_tid": wait.holder_tid,
        **({"descriptor": wait.descriptor} if wait.descriptor >= 0 else {}),
        **({"silent": True} if wait.is_silent else {}),
        **{name: value[:MOST_NAME] for name, value in more.items() if value},
    }


def _stacks(code: Code, interpreters: Sequence[Interpreter], mine: Sequence[Thread], room: int) -> list[dict[str, Any]]:
    """The stacks of a process's threads, equal ones once; those for whose frames there is no room have none."""
    calls = _calls(interpreters, mine)
    threads_of: dict[tuple[unwind.Stack, python.Calls], list[int]] = {}
    for thread in mine:
        if thread.registers is not None:
            key = unwind.unwind(code, *thread.registers), calls.get(thread.tid, python.NO_CALLS)
            threads_of.setdefault(key, []).append(thread.tid)
    found = []
    for (stack, called), tids in threads_of.items():
        native = [_native(code, step, interpreters) for step in stack.steps]
        frames = mixed(native, stack.is_whole, called)
        fits = len(frames) <= room
        frames = frames if fits else []
        room -= len(frames)
        is_whole = fits and stack.is_whole and called.is_whole
        found.append({"tids": tids, "frames": [_frame(frame) for frame in frames], "whole": is_whole})
    return found


def _calls(interpreters: Sequence[Interpreter], mine: Sequence[Thread]) -> dict[int, python.Calls]:
    """What the threads of a process run of Python, by their numbers."""
    found: dict[int, python.Calls] = {}
    for interpreter in interpreters:
        states = interpreter.threads()
        for thread in mine:
            if thread.thread_pointer in states:
                found[thread.tid] = interpreter.calls(states[thread.thread_pointer])
    return found


def _native(code: Code, step: unwind.Step, interpreters: Sequence[Interpreter]) -> NativeFrame:
    name = code.name(step.address)
    is_interpreter = any(each.is_at(step.address, name.function) for each in interpreters)
    return NativeFrame(name.function, name.file, name.offset, step.is_guessed, is_interpreter, name.build_id)


def _frame(placed: NativeFrame | PlacedFrame) -> dict[str, Any]:
    """`line` is a function's of Python alone, and `offset` any other's."""
    frame = placed.frame if isinstance(placed, PlacedFrame) else placed
    return {
        "function": frame.function[:MOST_NAME],
        "file": frame.file[:MOST_NAME],
        "offset": frame.offset if isinstance(frame, NativeFrame) else 0,
        "line": 0 if isinstance(frame, NativeFrame) else frame.line,
        "python": not isinstance(frame, NativeFrame),
        "guessed": placed.is_guessed,
        "build_id": frame.build_id if isinstance(frame, NativeFrame) else "",
    }


def _refusal(process: Process, proc: str) -> str:
    """Why no memory of the process could be read; empty if it could."""
    if not process.is_refused:
        return ""
    scope = text_of(f"{proc}/sys/kernel/yama/ptrace_scope").strip()
    return f"kernel.yama.ptrace_scope = {scope}" if scope not in ("", "0") else "the kernel refuses it"


def _read(descriptor: int) -> bytes:
    """All that the iterator tells. A machine whose threads have begun and ended meanwhile has them or not."""
    data = bytearray()
    while len(data) < threads.MOST_BYTES:
        with contextlib.suppress(InterruptedError, BlockingIOError):
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                break
            data += piece
    return bytes(data)
