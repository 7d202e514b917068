"""Finds out what each thread of a job waits for, by its system call, its arguments, and /proc.

Only what the kernel says is told. It does not say who will wake a condition variable: the cause is `futex` then. Of
what is not known here it is `unknown`.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from condor_joblens.common.errors import printable
from condor_joblens.profiles.thread import INTERPRETER_LOCK
from condor_joblens.profiling import calls, file_locks, mutexes, python_lock, rwlocks, semaphores, sockets, uring
from condor_joblens.profiling.process import Descriptor, Process, text_of
from condor_joblens.profiling.threads import Thread, function
from condor_joblens.profiling.wait import FROZEN, Cause, Wait

_OPEN_FILE_LOCK_WAITS = 38  # F_OFD_SETLKW
_LOCK_WAITS = {7, _OPEN_FILE_LOCK_WAITS}  # F_SETLKW
_FUTEX_PRIVATE = 0x80
_FUTEX_OPERATION, _FUTEX_WAITS = 0x7F, {0, 6, 9, 13}  # FUTEX_WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
_OF_ITSELF = "something of its own process (which has no other thread)"
_NOT_THERE = "which this process does not have: it has ended, or fork left it behind"
_CAN_NOT_BE_SEEN = "which has ended, or can't be seen from here"
_SHARED = "/dev/shm/"
_ACCEPTS_NOBODY = "whose server accepts no more connections"
_UNIX_ADDRESS_BYTES = 110  # struct sockaddr_un

_WRITES_ONLY, _ACCESS = os.O_WRONLY, os.O_ACCMODE
_MOST_LINKS = 20_000
"""Open files that are looked at to find the other ends of pipes, and as many for those of sockets."""


class Waits:
    """The waits of all threads of a job."""

    def __init__(self, threads: Sequence[Thread], jobs: Mapping[str, str], proc: str = "/proc") -> None:
        """`jobs` has the id of each job on this node, by its slot's cgroup."""
        self._proc, self._jobs = proc, jobs
        self._threads: dict[int, list[Thread]] = {}
        for thread in threads:
            self._threads.setdefault(thread.pid, []).append(thread)
        # as the process itself names its threads, for what it has written into its locks
        self._peers = {pid: {thread.inner_tid: thread for thread in threads} for pid, threads in self._threads.items()}
        self.processes = {pid: Process(pid, proc) for pid in self._threads}
        self._locks: list[file_locks.FileLock] | None = None
        self._pipes: dict[str, list[tuple[int, int]]] | None = None
        self._sockets_of: dict[str, list[int]] | None = None
        self._of_rings: dict[int, Wait] = {}  # process, of which any thread that waits for its rings waits for the same
        self._gone: dict[tuple[int, int], bool] = {}  # process, and owner of a mutex
        self._interpreter_locks: dict[tuple[int, int], Thread | None] = {}  # process and place -> who has it

    def of(self, thread: Thread) -> Wait:
        """What it waits for."""
        if thread.state == "Z":
            return Wait(Cause.ENDED, "its parent has not waited for it", holder_pid=thread.parent)
        if not thread.is_owners:
            return Wait(Cause.NOT_OURS)
        if thread.state in "Tt":
            return Wait(Cause.STOPPED, "by a signal" if thread.state == "T" else "by a debugger")
        if thread.state == "F":
            return Wait(Cause.STOPPED, FROZEN)
        if thread.state == "R":
            return Wait(Cause.RUNS)
        inner = {function(frame) for frame in thread.kernel}
        # the compiler may have put the trap into its only caller, which itself does not wait
        if thread.kernel and function(thread.kernel[0]) in ("do_freezer_trap", "get_signal"):
            return Wait(Cause.STOPPED, FROZEN)
        if inner & _OVER_MEMORY_HIGH:
            return Wait(Cause.MEMORY, "memory of its cgroup to be given back: it has more than memory.high")
        wait = self._in_call(thread)
        if _is_unanswered(wait, inner):
            return replace(wait, is_silent=True)
        if wait.object == INTERPRETER_LOCK:
            return wait
        return replace(wait, has_deadline=True) if calls.has_deadline(thread.call, thread.arguments) else wait

    def _in_call(self, thread: Thread) -> Wait:
        call, arguments = thread.call, thread.arguments
        inner = {function(frame) for frame in thread.kernel}
        if inner & (_FAULTS if call else _FAULTS | _IN_FAULTS):  # what a call is given can be in a file as well
            return self._paged_file(thread)
        if not call:
            return Wait(Cause.UNKNOWN)
        if call == "flock" or (call == "fcntl" and arguments[1] in _LOCK_WAITS):
            return self._file_lock(thread)
        if call in ("futex", "futex_wait"):
            return self._futex(thread)
        if call in calls.SLEEPS:
            return Wait(Cause.SLEEP, self._time(thread))
        if call in calls.CHILDREN or (call in calls.CLONES and _is_vfork(thread)):
            return self._child(thread)
        if call in calls.POLLS:
            return self._events(thread)
        if call == "connect" or call in calls.ON_DESCRIPTORS:
            return self._descriptor(thread)
        if call in calls.ON_PATHS:
            return self._path(thread)
        if call == "io_uring_enter":
            if thread.pid not in self._of_rings:
                self._of_rings[thread.pid] = self._requests(self.processes[thread.pid])
            return self._of_rings[thread.pid]
        if call in calls.SEMAPHORES:
            _, operations, count, *_ = arguments
            number, process = _number(arguments[0]), self.processes[thread.pid]
            return Wait(Cause.SEMAPHORE, semaphores.awaited(process, number, operations, count, self._proc))
        return Wait(*_SIMPLE.get(call, (Cause.UNKNOWN, "")))

    def _paged_file(self, thread: Thread) -> Wait:
        """The file whose page is awaited, if only one of the process's can be it."""
        if any(function(frame) == "handle_userfault" for frame in thread.kernel):
            return Wait(Cause.PAGE, "memory that another thread or process has to bring (userfaultfd)")
        process = self.processes[thread.pid]
        remote = {device: kind for device, kind in process.devices.items() if kind[0].startswith(_REMOTE)}
        files = {(mapping.path, *remote[mapping.device]) for mapping in process.mappings if mapping.device in remote}
        if len(files) == 1:
            ((path, kind, mounted),) = files
            words = f"a page of {path} ({kind} at {mounted})"
            return Wait(Cause.PAGE, words, target=path, filesystem=kind, mount=mounted)
        return Wait(Cause.PAGE, "memory that has to be read from a file first")

    # -- locks ----------------------------------------------------------------------------------------------

    def _file_lock(self, thread: Thread) -> Wait:
        process = self.processes[thread.pid]
        descriptor = process.descriptor(_number(thread.arguments[0]))
        what = f"a lock on {_target(process, descriptor)}"
        if self._locks is None:
            self._locks = file_locks.parse(text_of(f"{self._proc}/locks"))
        inode = descriptor.inode if descriptor is not None else 0
        of_open_file = thread.call == "fcntl" and thread.arguments[1] == _OPEN_FILE_LOCK_WAITS
        found = file_locks.holders(self._locks, thread.pid, inode, of_open_file)
        wait = _on(Wait(Cause.FILE_LOCK, what), process, descriptor)
        if found:
            return self._lock_holder(wait, found[0])
        # in a pid namespace the table leaves out locks whose taker has ended, though a child may have the open file
        if (thread.call == "flock" or of_open_file) and (pid := self._who_has_open(inode, thread.pid)):
            return replace(wait, holder=self._named(pid), holder_pid=pid)
        return replace(wait, holder="no process on this node that can be seen")

    def _lock_holder(self, wait: Wait, lock: file_locks.FileLock) -> Wait:
        """A lock of flock(2) is named after the process that took it, and stays with those who have its open file."""
        if lock.pid in self._threads:
            return replace(wait, holder=self._named(lock.pid), holder_pid=lock.pid)
        if lock.kind != "POSIX" and (pid := self._who_has_open(lock.inode)):
            return replace(wait, holder=self._named(pid), holder_pid=pid)
        if lock.pid < 0:
            return replace(wait, holder="who has that file open: the kernel names no process")
        words, job = self._stranger(lock.pid)
        return replace(wait, holder=words, holder_job=job)

    def _who_has_open(self, inode: int, but: int = 0) -> int:
        """A process of the job that has the open file of a lock on this one; 0: none has, `but` is not asked."""
        for pid, process in self.processes.items():
            for number, _ in process.targets() if inode and pid != but else ():
                held = process.descriptor(number)
                if held is not None and any(f" {inode} " in f" {line.replace(':', ' ')} " for line in held.locks):
                    return pid
        return 0

    def _named(self, pid: int) -> str:
        return f"process {pid} ({self.processes[pid].command})"

    def _stranger(self, pid: int) -> tuple[str, str]:
        """A process of another job, or of none, and that job; of another user's no more than its job is told."""
        process = Process(pid, self._proc)
        cgroup = process.cgroup
        job = next((name for slot, name in self._jobs.items() if f"{cgroup}/".startswith(f"{slot}/")), "")
        if not cgroup:
            return "a process that has ended, or can't be seen from here", ""
        try:
            is_own = os.stat(f"{self._proc}/{pid}").st_uid == os.geteuid()
        except OSError:
            is_own = False
        if job:
            return f"job {job}" + (f", process {pid} ({process.command})" if is_own else ""), job
        own = f"process {pid} ({process.command}), which is no job's"
        return own if is_own else "a process of another user", ""

    # -- threads of one process -----------------------------------------------------------------------------

    def _futex(self, thread: Thread) -> Wait:
        address, operation, value = thread.arguments[:3]
        if thread.call == "futex" and operation & _FUTEX_OPERATION not in _FUTEX_WAITS:
            return Wait(Cause.UNKNOWN)
        peers = self._peers[thread.pid]
        process = self.processes[thread.pid]
        if (lock := rwlocks.awaited(thread, process)) is not None:
            return self._read_write_lock(thread, lock)
        is_private = bool(thread.call == "futex" and operation & _FUTEX_PRIVATE)
        if is_private and calls.has_deadline(thread.call, thread.arguments) and _is_pythons(process, address):
            return self._interpreter_lock(process, address)
        memory = process.read(address, mutexes.SIZE)
        if len(memory) < mutexes.LEAST:
            return Wait(Cause.FUTEX, self._waker(thread, is_private, address))
        now, owner = mutexes.state_and_owner(memory)
        # the kernel itself ends the wait for a thread, and it knows no private addresses; a thread's number can be 2
        if not is_private and value == now and value in peers and peers[value] is not thread:
            joined = peers[value]
            return Wait(Cause.THREAD, f"the end of thread {joined.tid}", holder_pid=joined.pid, holder_tid=joined.tid)
        if value == now == mutexes.CONTENDED and owner in peers:
            return _owned(f"a mutex at {address:#x}", thread, peers[owner])
        if is_private and mutexes.is_held(thread, memory, process) and self._is_gone(process, owner):
            return _orphaned(f"a mutex at {address:#x}", thread, owner)
        shared = None if is_private else self._shared_mutex(thread, memory)
        return shared or Wait(Cause.FUTEX, self._waker(thread, is_private, address))

    def _interpreter_lock(self, process: Process, address: int) -> Wait:
        """Python's, and who has it, if that one waits itself."""
        wait, lock = Wait(Cause.FUTEX, INTERPRETER_LOCK), python_lock.place(process, address)
        if lock and (process.pid, lock) not in self._interpreter_locks:
            found = python_lock.holder(process, lock, self._threads[process.pid])
            self._interpreter_locks[process.pid, lock] = found
        holder = self._interpreter_locks.get((process.pid, lock))
        if holder is None:
            return wait
        name = f"thread {holder.tid} ({holder.name})"
        return replace(wait, holder=name, holder_pid=holder.pid, holder_tid=holder.tid)

    def _read_write_lock(self, thread: Thread, lock: rwlocks.Awaited) -> Wait:
        """Who writes is known, and of those who read how often they have it."""
        what = f"a read-write lock (to {'write' if lock.writes else 'read'}) at {lock.address:#x}"
        process, peers = self.processes[thread.pid], self._peers[thread.pid]
        if lock.readers:
            times = "once" if lock.readers == 1 else f"{lock.readers} times"
            alone = ", and its process has no other thread" if process.has_one_thread else ""
            return Wait(Cause.FUTEX, what, f"readers, {times}{alone}")
        if lock.writer in peers:
            return _owned(what, thread, peers[lock.writer])
        if self._is_gone(process, lock.writer):
            return _orphaned(what, thread, lock.writer)
        return Wait(Cause.FUTEX, self._waker(thread, is_private=True, address=lock.address))

    def _shared_mutex(self, thread: Thread, memory: bytes) -> Wait | None:
        """A mutex that processes share; None if it is none for sure, or its owner may have another number here."""
        process, address = self.processes[thread.pid], thread.arguments[0]
        mapping, (_, owner) = process.mapping_at(address), mutexes.state_and_owner(memory)
        if mapping is None or not mutexes.is_held(thread, memory, process):
            return None
        so_called = [each for threads in self._threads.values() for each in threads if each.inner_tid == owner]
        if thread.inner_tid != thread.tid or any(each.tid != owner for each in so_called):
            return None
        where = f" in {mapping.path}" if mapping.path.startswith(_SHARED) else ""
        wait = Wait(Cause.MUTEX, f"a mutex at {address:#x}{where}")
        for holder in so_called:
            if any(mapping.is_same_file(each) for each in self.processes[holder.pid].mappings):
                name = f"thread {holder.tid} ({holder.name}) of {self._named(holder.pid)}"
                name = self._named(holder.pid) if holder.is_first else name
                return replace(wait, holder=name, holder_pid=holder.pid, holder_tid=holder.tid)
        is_there = so_called or os.path.exists(f"{self._proc}/{owner}")
        return None if is_there else replace(wait, holder=f"thread {owner}, {_CAN_NOT_BE_SEEN}")

    def _is_gone(self, process: Process, owner: int) -> bool:
        """Of a number that none of its threads has: whether none has come since they were told, which could have it.

        Thousands may wait for one owner, and its threads are listed once for all of them.
        """
        key = process.pid, owner
        if key not in self._gone:
            self._gone[key] = process.tids == {thread.tid for thread in self._threads[process.pid]}
        return self._gone[key]

    def _waker(self, thread: Thread, is_private: bool, address: int) -> str:
        """Who could end its wait: a private address is its process's own (futex(2), FUTEX_PRIVATE_FLAG).

        So is one in private memory. libstdc++ has no flag for std::future and std::atomic.
        """
        process = self.processes[thread.pid]
        mapping = None if is_private else process.mapping_at(address)
        where = f" in {mapping.path}" if mapping is not None and mapping.path.startswith(_SHARED) else ""
        if not process.has_one_thread:
            return f"something of another thread{where}"
        is_own = is_private or (mapping is not None and mapping.is_private)
        return _OF_ITSELF if is_own else f"something of another process{where}"

    def _child(self, thread: Thread) -> Wait:
        children = [first for first in self._firsts() if first.parent == thread.pid]
        wanted = _number(thread.arguments[0]) if thread.call == "wait4" else -1
        chosen = [child for child in children if child.tid == wanted] or children
        if len(chosen) == 1:
            pid = chosen[0].pid
            return Wait(Cause.CHILD, f"process {pid} ({chosen[0].name})", holder_pid=pid)
        if chosen:
            return Wait(Cause.CHILD, f"any of {len(chosen)} processes", holder_pid=chosen[0].pid)
        return Wait(Cause.CHILD, "a child that is not in the job")

    def _firsts(self) -> list[Thread]:
        return [thread for threads in self._threads.values() for thread in threads if thread.is_first]

    # -- several descriptors --------------------------------------------------------------------------------

    def _events(self, thread: Thread) -> Wait:
        """Told as a wait for one thing only where all of the descriptors are of one kind."""
        process, wanted = self.processes[thread.pid], self._polled(thread)
        found = [process.descriptor(number) for number in list(wanted)[:_MOST_POLLED]]
        known = [descriptor for descriptor in found if descriptor is not None]
        several = Wait(Cause.EVENTS, f"any of {len(wanted)} descriptors" if wanted else "any of several descriptors")
        if not known or len(known) < len(wanted):
            return several
        inodes = [sockets.inode_of(descriptor.target) for descriptor in known]
        if all(inodes):
            found_one = self._sockets(process, known, inodes) or several
            is_silent = found_one.cause is Cause.NETWORK and wanted == {known[0].number: False}
            return replace(found_one, is_silent=is_silent)
        if len(known) == 1 and known[0].target.startswith("pipe:"):
            return self._pipe(thread, process, known[0], wanted[known[0].number])
        if len(known) == 1 and _is_terminal(known[0].target):
            return _on(Wait(Cause.TERMINAL, _target(process, known[0])), process, known[0])
        if not all(each.target.startswith("pipe:") for each in known):
            return several
        pipes = [self._pipe(thread, process, each, wanted[each.number]) for each in known]
        if (outputs := self._outputs(thread, known, pipes)) is not None:
            return outputs
        # who has both ends of one alone may be waiting for a signal, whose handler writes there
        if all(each.is_within and each.holder_pid != thread.pid for each in pipes):
            return Wait(Cause.EVENTS, f"any of {len(pipes)} pipes of the job's own processes", is_within=True)
        return several

    def _outputs(self, thread: Thread, known: Sequence[Descriptor], pipes: Sequence[Wait]) -> Wait | None:
        """Any of several pipes that are read, if one other process alone has written to all: as of a child's output."""
        if not all(each.flags & _ACCESS == os.O_RDONLY for each in known):
            return None
        (holder, pid), *others = {(each.holder, each.holder_pid) for each in pipes}
        if others or pid in (0, thread.pid) or holder != self._named(pid):
            return None
        return Wait(Cause.PIPE, f"data from any of {len(known)} pipes", holder, pid, is_within=True)

    def _sockets(self, process: Process, known: Sequence[Descriptor], inodes: Sequence[int]) -> Wait | None:
        """Any of so many sockets, if they are all of one kind."""
        found = [sockets.find(process, inode) for inode in inodes]
        ends = [end for end in found if end is not None]
        listening = sum(end.is_listening for end in ends)
        if len(ends) < len(inodes) or 0 < listening < len(ends):
            return None
        if listening:
            return Wait(Cause.CLIENT, "somebody who connects")
        # of a pair (socketpair(2)), by which event loops wake themselves and processes talk: nobody tells who has the
        # other end
        named = [place for place, end in enumerate(ends) if end != sockets.NAMELESS]
        if not named:
            return Wait(Cause.FUTEX, "something of another thread or process")
        wait = _at(ends[named[0]], process, known[named[0]])
        if len(ends) == 1:
            return self._behind(wait, ends[0], process)
        words = f"{wait.object}, and {len(ends) - 1} others"
        return replace(wait, object=words) if len(named) == 1 else Wait(Cause.NETWORK, words)

    def _requests(self, process: Process) -> Wait:
        """Of io_uring: which connection is told if the process has no other."""
        waiting = uring.operations(process)
        if uring.is_for_clients(waiting):
            return Wait(Cause.CLIENT, "somebody who connects, by io_uring")
        if not uring.is_for_connections(waiting):
            return Wait(Cause.EVENTS, "requests of io_uring")
        found = [(process.descriptor(number), target) for number, target in process.targets()]
        inodes = [(each, sockets.inode_of(target)) for each, target in found if each is not None]
        ends = [(sockets.find(process, inode) or sockets.UNKNOWN, each) for each, inode in inodes if inode]
        ends = [(end, each) for end, each in ends if not end.is_listening]
        if len(ends) != 1:
            return Wait(Cause.NETWORK, f"any of {len(ends)} connections, by io_uring")
        end, descriptor = ends[0]
        wait = self._behind(_at(end, process, descriptor), end, process)
        return replace(wait, object=f"{wait.object}, by io_uring")

    def _polled(self, thread: Thread) -> dict[int, bool]:
        """The descriptors that are waited for, and whether room to write is what is awaited."""
        process, arguments = self.processes[thread.pid], thread.arguments
        if thread.call in ("poll", "ppoll"):
            entries = process.read(arguments[0], _POLLED.size * min(arguments[1], _MOST_POLLED))
            whole = entries[: len(entries) // _POLLED.size * _POLLED.size]
            return {number: not events & 1 for number, events, _ in _POLLED.iter_unpack(whole) if number >= 0}
        if thread.call in ("select", "pselect6"):
            size = 8 * ((min(_number(arguments[0]), _MOST_POLLED) + 63) // 64)
            found: dict[int, bool] = {}
            for address, writes in ((arguments[2], True), (arguments[1], False)):
                bits = int.from_bytes(process.read(address, size) if address else b"", "little")
                found.update((number, writes) for number in range(bits.bit_length()) if bits >> number & 1)
            return found
        return dict.fromkeys(process.polled_by(_number(arguments[0])), False)

    # -- files and sockets ----------------------------------------------------------------------------------

    def _descriptor(self, thread: Thread) -> Wait:
        process = self.processes[thread.pid]
        number = _number(thread.arguments[0])
        descriptor = process.descriptor(number)
        if descriptor is None:
            return Wait(Cause.UNKNOWN, f"descriptor {number}")
        inner = {function(frame) for frame in thread.kernel}
        if inode := sockets.inode_of(descriptor.target):
            if "unix_wait_for_peer" in inner and thread.call == "connect":
                return self._full_server(thread, process, descriptor)
            # the kernel gives up a connection that is not answered
            end = sockets.find(process, inode) or sockets.UNKNOWN
            wait = self._behind(_at(end, process, descriptor), end, process)
            return replace(wait, has_deadline=thread.call == "connect", is_silent=thread.call in calls.READS)
        if descriptor.target.startswith("pipe:") or inner & _IN_PIPES:
            return self._pipe(thread, process, descriptor, thread.call in calls.WRITES)
        if descriptor.target in _PROGRAMS_BEHIND_TERMINALS:
            return _on(Wait(Cause.UNKNOWN, "for what is written to a pseudo-terminal of its own"), process, descriptor)
        if _is_terminal(descriptor.target) or inner & {"n_tty_read", "tty_read"}:
            return _on(Wait(Cause.TERMINAL, _target(process, descriptor)), process, descriptor)
        if descriptor.target.startswith("anon_inode:"):
            return _on(Wait(Cause.EVENTS, descriptor.target.removeprefix("anon_inode:")), process, descriptor)
        what = f"{_target(process, descriptor)} at byte {descriptor.position}"
        return _on(Wait(Cause.FILE, what), process, descriptor)

    def _full_server(self, thread: Thread, process: Process, descriptor: Descriptor) -> Wait:
        """Of Unix sockets: who connects waits without end for room among those who wait to be accepted."""
        _, place, size, *_ = thread.arguments
        raw = process.read(place, min(size, _UNIX_ADDRESS_BYTES))[2:]
        is_abstract = raw[:1] == b"\0"
        name = ("@" if is_abstract else "") + raw[is_abstract:].partition(b"\0")[0].decode("utf-8", "replace")
        end = sockets.Socket(f"the unix socket {printable(name) or 'without a name'}, {_ACCEPTS_NOBODY}", "unix")
        return _at(end, process, descriptor)

    def _pipe(self, thread: Thread, process: Process, descriptor: Descriptor, writes: bool) -> Wait:
        what = f"{'room in' if writes else 'data from'} {_target(process, descriptor)}"
        wait = _on(Wait(Cause.PIPE, what), process, descriptor)
        others = [
            pid
            for pid, flags in self._ends(descriptor.target)
            if flags & _ACCESS == os.O_RDWR or (flags & _ACCESS == _WRITES_ONLY) != writes
        ]
        wait = replace(wait, is_within=bool(others))
        apart = [pid for pid in dict.fromkeys(others) if pid != thread.pid]
        if len(apart) == 1:
            return replace(wait, holder=self._named(apart[0]), holder_pid=apart[0])
        if apart:
            some = ", ".join(self._named(pid) for pid in apart[:3])
            return replace(wait, holder=f"{len(apart)} processes: {some}", holder_pid=apart[0])
        if others:
            return replace(wait, holder="itself alone", holder_pid=thread.pid)
        return replace(wait, holder="nobody in the job")

    def _ends(self, target: str) -> list[tuple[int, int]]:
        """Process and flags of all who have this pipe open, in the job."""
        if self._pipes is None:
            self._pipes = {}
            for pid, number, name in self._links():
                if name.startswith("pipe:") or name == target:
                    end = self.processes[pid].descriptor(number)
                    if end is not None:
                        self._pipes.setdefault(name, []).append((pid, end.flags))
        return self._pipes.get(target, [])

    def _behind(self, wait: Wait, end: sockets.Socket, process: Process) -> Wait:
        """The same, with the process at a socket's other end, if only another process of the job has that."""
        inode = sockets.other_end(process, end)
        others = set(self._owners(f"socket:[{inode}]")) if inode else set()
        if len(others) != 1 or process.pid in others:
            return wait
        (pid,) = others
        return replace(wait, holder=self._named(pid), holder_pid=pid)

    def _owners(self, target: str) -> list[int]:
        """The processes of the job that have this socket open."""
        if self._sockets_of is None:
            self._sockets_of = {}
            for pid, _, name in self._links():
                if name.startswith("socket:"):
                    self._sockets_of.setdefault(name, []).append(pid)
        return self._sockets_of.get(target, [])

    def _links(self) -> Iterator[tuple[int, int, str]]:
        """What the job's processes have open: process, number and name; of very many the first."""
        left = _MOST_LINKS
        for pid, process in self.processes.items():
            for number, name in process.targets():
                left -= 1
                if left < 0:
                    return
                yield pid, number, name

    def _path(self, thread: Thread) -> Wait:
        inner = {function(frame) for frame in thread.kernel}
        if inner & {"wait_for_partner", "fifo_open"}:
            path = self._path_of(thread)
            return Wait(Cause.PIPE, f"somebody who opens the other end of {path or 'a FIFO'}", target=path)
        path = self._path_of(thread)
        return Wait(Cause.FILE, path, target=path)

    def _path_of(self, thread: Thread) -> str:
        place = 1 if thread.call.endswith("at") or thread.call in ("openat2", "statx") else 0
        text = self.processes[thread.pid].read(thread.arguments[place], 4096)
        return text.partition(b"\0")[0].decode("utf-8", "replace")

    def _time(self, thread: Thread) -> str:
        place = 2 if thread.call == "clock_nanosleep" else 0
        is_until = thread.call == "clock_nanosleep" and thread.arguments[1] & 1
        memory = self.processes[thread.pid].read(thread.arguments[place], 16)
        if len(memory) < 16 or is_until:
            return "until a time"
        seconds, nanoseconds = struct.unpack("<qq", memory)
        return f"for {seconds + nanoseconds * 1e-9:.6g} s"


_SIMPLE: dict[str, tuple[Cause, str]] = {
    **dict.fromkeys(calls.ACCEPTS, (Cause.CLIENT, "somebody who connects")),
    **dict.fromkeys(calls.SIGNALS, (Cause.SIGNAL, "a signal")),
    **dict.fromkeys(calls.QUEUES, (Cause.QUEUE, "a message queue")),
    "restart_syscall": (Cause.SLEEP, "or a poll, which was interrupted and goes on"),
    "sync": (Cause.FILE, "all file systems"),
}

_IN_PIPES = {"pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write", "fifo_pipe_read", "fifo_pipe_write"}


_OVER_MEMORY_HIGH = {"mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high"}
_FAULTS = {"filemap_fault", "do_swap_page", "handle_userfault"}
"""A page that has to be read, or that somebody has to bring (userfaultfd(2))."""

_IN_FAULTS = {"__do_fault", "do_read_fault", "handle_mm_fault"}
"""The same, of a thread that is in no call."""

_REQUESTS = {"request_wait_answer", "rpc_wait_bit_killable", "wait_for_response", "ptlrpc_set_wait"}
"""A file server's answer: FUSE, NFS, SMB, Lustre."""

_ON_PAGES = {"folio_wait_bit_common", "wait_on_page_bit_common", "__lock_page", "__lock_page_killable"}
"""A page; on a file system that a server stands behind it is that server's."""

_REMOTE = ("fuse", "nfs", "cifs", "smb", "ceph", "lustre", "afs", "gpfs", "beegfs")
_POLLED = struct.Struct("<ihh")  # struct pollfd; POLLIN is 1
_MOST_POLLED = 1024


def _is_unanswered(wait: Wait, inner: set[str]) -> bool:
    """Whether the server of a file system has been asked for it, and has not answered."""
    if wait.cause not in (Cause.FILE, Cause.PAGE):
        return False
    return bool(inner & _REQUESTS or (wait.filesystem.startswith(_REMOTE) and inner & _ON_PAGES))


def _is_pythons(process: Process, address: int) -> bool:
    """Whether it is in what a Python keeps at a fixed place; of what it waits for there, only its lock is timed."""
    mapping = process.mapping_at(address)
    if mapping is not None and not mapping.path:  # what is 0 at the beginning is behind what the file has
        mapping = process.mapping_at(mapping.start - 1)
    return mapping is not None and bool(_PYTHONS.fullmatch(mapping.path.rpartition("/")[2]))


_PYTHONS = re.compile(r"python\d[\d.]*|libpython\d[\d.]*\.so[\d.]*")


def _is_vfork(thread: Thread) -> bool:
    return any(function(frame) == "wait_for_vfork_done" or "vfork" in function(frame) for frame in thread.kernel)


def _owned(what: str, thread: Thread, holder: Thread) -> Wait:
    name = "itself" if holder is thread else f"thread {holder.tid} ({holder.name})"
    return Wait(Cause.MUTEX, what, name, holder.pid, holder.tid)


def _orphaned(what: str, thread: Thread, owner: int) -> Wait:
    number = f"thread {owner}" if thread.inner_tid == thread.tid else f"thread {owner} of its own namespace"
    return Wait(Cause.MUTEX, what, f"{number}, {_NOT_THERE}")


_PROGRAMS_BEHIND_TERMINALS = ("/dev/ptmx", "/dev/pts/ptmx")
"""Who reads these is what a terminal is for others: script(1), or pexpect in Python."""


def _is_terminal(target: str) -> bool:
    is_other_side = target in _PROGRAMS_BEHIND_TERMINALS
    return target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")) and not is_other_side


def _number(argument: int) -> int:
    """An argument that is an int in C: the upper half of the register says nothing."""
    value = argument & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _on(wait: Wait, process: Process, descriptor: Descriptor | None) -> Wait:
    """The same, with what is open there."""
    if descriptor is None:
        return wait
    kind, mounted = process.filesystems.get(descriptor.mount, ("", ""))
    if not descriptor.target.startswith("/"):
        kind = mounted = ""
    return replace(wait, descriptor=descriptor.number, target=descriptor.target, filesystem=kind, mount=mounted)


def _at(end: sockets.Socket, process: Process, descriptor: Descriptor) -> Wait:
    return _on(Wait(Cause.NETWORK, end.words, protocol=end.protocol, peer=end.peer), process, descriptor)


_STANDARD = {0: "standard input, ", 1: "standard output, ", 2: "standard error, "}


def _target(process: Process, descriptor: Descriptor | None) -> str:
    """The path of an open file, and its file system."""
    if descriptor is None:
        return "a file"
    kind, mounted = process.filesystems.get(descriptor.mount, ("", ""))
    which = f"{_STANDARD.get(descriptor.number, '')}{descriptor.target}"
    return f"{which} ({kind} at {mounted})" if kind and descriptor.target.startswith("/") else which
