"""Probes in the kernel: the program, where it is attached, and what it tells.

All of it ends with the process that has made it: nothing is pinned.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.trace_spec import Spec
from condor_joblens.tracer import loader, map_layout
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracing.calls import Hit, Kind
from condor_joblens.tracing.commands import CommandHit
from condor_joblens.tracing.functions import Function
from condor_joblens.tracing.throws import Throw

WINDOW_NS = 1 << 26
"""Pieces of time in which hits are forgotten (WINDOW_SHIFT of calls.bpf.c)."""

BURST_COST_NS = 15_000_000
"""What all probes together may cost in one piece. Until what is switched off has no probe takes 5 to 25 ms more."""

SHELL_BURST_COST_NS = 25_000_000
"""Of commands, which take longer than calls: fewer of them fit into what it takes to switch them off."""

COST_SHARE = 0.04
"""Of a core, that they may cost for long: with a burst, less than 5 % of any ten seconds."""

LEAST_COST_NS = 4_000
"""Of a hit, if the trial says less: most instructions are single-stepped."""

MOST_COST_NS = 100_000

MOST_CLOSING = 8
"""Threads that close links of processes that are gone."""

MOST_LINKS = 1000
"""At a time: what is there of processes that are gone may not be closed as fast as others begin."""

TRIAL_HITS, TRIALS = 200, 5
MOST_FUNCTIONS = 32  # TRACED_FUNCTIONS
MOST_POINTS = 4096  # TRACED_POINTS
MOST_TAKEN = lib.TRACED_RING_BYTES // lib.TRACED_SHORT_BYTES
"""Hits at a time: more than the ring can have."""

ALL = 1 << 62
CALLS, THROWS, COMMANDS = "calls", "throws", "commands"
"""Programs for the kernel, by the names of their files."""

_RECORDS = {CALLS: ("traced_texts", 2048), THROWS: ("traced_throw", 64), COMMANDS: ("traced_command", 1024)}
"""What each tells, and how much of it is taken at a time."""
_ENTRIES = lib.TRACED_ENTRY, lib.TRACED_COMMAND, lib.TRACED_SHELL_END
"""What is attached last. Of a shell all is, by one link: a command whose end is not seen is told as such."""

_KINDS = {int(kind): kind for kind in Kind}
_ATTACH_UPROBES = 48  # BPF_TRACE_UPROBE_MULTI
_MOST_INT = 1 << 31


@dataclass(frozen=True)
class Rings:
    """The flight recorder's, of a job."""

    maps: Sequence[int]  # descriptors of map_layout.RECORDER_MAPS
    slot: int
    places: Sequence[int]  # of the rare ring and of the frequent one
    last: int = -1
    """Descriptor of what all traces share, so that what two of them see is in the rings once (`new_last`); -1: none."""


LAST_MAP = "jl_rec_last"


def new_last() -> int:
    """What Rings.last is; -1 on a kernel that can't have it, which can't trace functions either."""
    return max(-1, int(lib.new_task_storage(LAST_MAP.encode(), ffi.sizeof("struct traced_recorded"))))


class Probes:
    """The program in the kernel for one job."""

    def __init__(
        self,
        cgroup: int,
        uid: int,
        *,
        of: str = CALLS,
        share: float = 1.0,
        is_for_all: bool = False,
        rings: Rings | None = None,
    ) -> None:
        """For the tasks of the cgroup whose folder is open, and of this user alone. Raises JobLensError.

        `of`: CALLS, THROWS or COMMANDS. `share`: of what the probes of a job may cost it. `is_for_all`: one probe is in
        all processes of the node that have the file, and looks at the job's alone. Else each of its own has one.
        `rings`: what is hit goes into them too.
        """
        if os.uname().machine != "x86_64":
            raise JobLensError("functions are traced on x86-64 alone")
        self._of, self._cost_share, self.is_for_all = of, share, is_for_all
        self._object, self._program, maps = _loaded(of, uid, rings)
        self._shells, self._names = maps.get("jl_shells", -1), maps.get("jl_names", -1)
        self._telling = _mapped(maps.get("jl_telling", -1), "traced_telling")
        self._points, self._job = maps["jl_points"], maps["jl_traced_job"]
        self.functions: Any = _mapped(maps["jl_traced"], "traced_function", MOST_FUNCTIONS)
        self.may_tell(ALL)
        self._ring_map = maps["jl_hits"]
        self._ring = lib.map_ring_for(self._ring_map, lib.THROW_PAGES if of == THROWS else 1)
        if self._ring == ffi.NULL:
            raise JobLensError(f"the ring of hits can't be mapped: {os.strerror(ffi.errno)}")
        self._told = _mapped(maps.get("jl_told", -1), "traced_ring")
        record, room = _RECORDS[of]
        self._hits = ffi.new(f"struct {record}[]", room)
        self._count = self._point_count = 0
        # links by function and process (0: of all); exits before entries
        self._links: dict[tuple[int, int], list[int]] = {}
        self._closing: list[threading.Thread] = []
        self.cost_ns = self._trial()
        self._set_job(cgroup)

    def _set_job(self, cgroup: int) -> None:
        if lib.bpf_map_update_elem(self._job, ffi.new("__u32 *", 0), ffi.new("__u32 *", cgroup), 0):
            raise JobLensError(f"the kernel refuses the job's cgroup: {os.strerror(ffi.errno)}")

    def fileno(self) -> int:
        """Readable when a function has been switched off; of throws and commands, also if there are any."""
        return int(self._ring_map)

    # -- a trial on ourselves -------------------------------------------------------------------------------

    def _trial(self) -> int:
        """What a hit costs: ns. Raises JobLensError if this kernel can't do it, or not in all threads of a process."""
        address = int(lib.trial_address())
        path, offset = _own_file(address)
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        trial, point = MOST_FUNCTIONS - 1, MOST_POINTS - 1
        self.functions[trial].allowed = 1 << 62
        self._put_point(point, ffi.new("struct traced_point *", {"function": trial, "kind": lib.TRACED_TRIAL}))
        try:
            link = self._attached(file, [offset], [point], os.getpid())
        finally:
            os.close(file)
        try:
            took: list[int] = []
            thread = threading.Thread(target=lambda: took.extend(lib.run_trial(TRIAL_HITS) for _ in range(TRIALS)))
            thread.start()
            thread.join()
        finally:
            os.close(link)
        while self._taken():
            pass
        self.functions[trial].lost = 0
        if not took or self.functions[trial].hits < TRIAL_HITS * TRIALS:
            raise JobLensError("this kernel's probes count a process's first thread alone: functions can't be traced")
        return int(min(max(min(took) // TRIAL_HITS, LEAST_COST_NS), MOST_COST_NS))

    def _put_point(self, number: int, point: Any) -> None:
        if lib.bpf_map_update_elem(self._points, ffi.new("__u32 *", number), point, 0):
            raise JobLensError(f"the kernel refuses a probe: {os.strerror(ffi.errno)}")

    # -- functions ------------------------------------------------------------------------------------------

    def add(self, function: Function, spec: Spec) -> list[int]:
        """A function is known from now on; the numbers of its points. Raises JobLensError if there is no room."""
        if self._count >= MOST_FUNCTIONS - 1 or self._point_count + len(function.places) > MOST_POINTS - 1:
            raise JobLensError("too many functions are traced at a time: write more of the name")
        number, self._count = self._count, self._count + 1
        self.functions[number].texts = spec.texts
        self.functions[number].has_arguments = bool(spec.arguments)
        if self._names >= 0:
            self._put_name(number, function.name)
        points = []
        for place in function.places:
            point = ffi.new("struct traced_point *")
            point.function, point.kind = number, place.kind
            point.base, point.index, point.scale, point.is_memory = (
                place.base,
                place.index,
                place.scale,
                place.is_memory,
            )
            point.displacement = place.displacement
            cold, length = function.cold
            ranges = (
                -place.distance,
                function.size - place.distance,
                cold - place.distance,
                cold + length - place.distance,
            )
            if any(abs(each) >= _MOST_INT for each in ranges):
                raise JobLensError(f"{function.name} has parts that are too far apart")
            point.main_start, point.main_end, point.cold_start, point.cold_end = ranges
            self._put_point(self._point_count, point)
            points.append(self._point_count)
            self._point_count += 1
        if function.variables:
            shell = ffi.new("struct traced_shell *", function.variables)
            if lib.bpf_map_update_elem(self._shells, ffi.new("__u32 *", number), shell, 0):
                raise JobLensError(f"the kernel refuses a shell: {os.strerror(ffi.errno)}")
        self._share()
        return points

    def _put_name(self, number: int, name: str) -> None:
        """What the flight recorder calls a function."""
        text = name.encode("utf-8", "replace")[: lib.RECORDED_TEXT_BYTES - 1]
        named = ffi.new("struct traced_name *", {"bytes": len(text), "text": text})
        if lib.bpf_map_update_elem(self._names, ffi.new("__u32 *", number), named, 0):
            raise JobLensError(f"the kernel refuses a name: {os.strerror(ffi.errno)}")

    @property
    def count(self) -> int:
        """How many functions are known."""
        return self._count

    def _share(self) -> None:
        """Each function may cost the same."""
        for number in range(self._count):
            hits = self._cost_share / self.cost_ns / self._count
            burst = SHELL_BURST_COST_NS if self._of == COMMANDS else BURST_COST_NS
            self.functions[number].allowed = int(burst * hits)
            self.functions[number].forgotten = int(WINDOW_NS * COST_SHARE * hits)

    def attach(self, number: int, file: int, function: Function, points: Sequence[int], pid: int) -> None:
        """Probes a function in one process, and in no other unless it is for all. Raises JobLensError.

        Exits come first, and go last: whoever enters meanwhile is seen to leave.
        """
        pid = 0 if self.is_for_all else pid
        probes = [
            (function.offset + place.distance, point, place.kind) for place, point in zip(function.places, points)
        ]
        exits = [each for each in probes if each[2] not in _ENTRIES]
        entries = [each for each in probes if each[2] in _ENTRIES]
        made: list[int] = []
        try:
            for part in (exits, entries):
                if part:
                    made.append(self._attached(file, [each[0] for each in part], [each[1] for each in part], pid))
        except JobLensError:
            _close(made)  # exits alone tell nothing
            raise
        self._links.setdefault((number, pid), []).extend(made)

    def is_off(self, number: int) -> bool:
        """Whether the program in the kernel does not look at the function any more, because it is called too often."""
        return bool(self.functions[number].off_ns)

    def detach(self, number: int) -> None:
        """The function will not be probed any more, as soon as can be: each hit still costs the job.

        To close a link waits for the kernel (RCU), for up to 70 ms: so the links are closed beside each other.
        """
        links = [self._links.pop(each) for each in list(self._links) if each[0] == number]
        self._close_beside([each[-1] for each in links])  # entries
        self._close_beside([link for each in links for link in each[:-1]])

    def forget(self, living: Collection[int]) -> None:
        """Processes that are not among these are gone. What was theirs is closed: each hit goes through all links.

        A hit is slower by each, also in other jobs that have the same file. As many as can be are closed at a time.
        """
        self._closing = [each for each in self._closing if each.is_alive()]
        gone = [each for each in self._links if each[1] and each[1] not in living]
        beside = max(0, MOST_CLOSING - len(self._closing))
        for begin in range(min(beside, len(gone))):
            self._close_beside([link for each in gone[begin::beside] for link in self._links.pop(each)])

    @property
    def is_full(self) -> bool:
        """Whether there are too many links: those of processes that are gone are to be closed first."""
        return sum(map(len, self._links.values())) >= MOST_LINKS

    def _close_beside(self, links: Sequence[int]) -> None:
        closing = threading.Thread(target=_close, args=(links,))
        closing.start()
        self._closing.append(closing)

    def close(self) -> None:
        """Nothing is probed any more."""
        for closing in self._closing:
            closing.join()
        for at in (slice(-1, None), slice(-1)):  # entries, exits
            _close([link for each in self._links.values() for link in each[at]])
        self._links.clear()

    def _attached(self, file: int, offsets: Sequence[int], points: Sequence[int], pid: int) -> int:
        path = f"/proc/self/fd/{file}".encode()
        places, cookies = ffi.new("uint64_t[]", list(offsets)), ffi.new("uint64_t[]", list(points))
        link = int(lib.attach_to_functions(self._program, path, places, cookies, len(offsets), pid))
        if link < 0:
            raise JobLensError(_refusal(-link))
        return link

    @property
    def lost(self) -> int:
        """Hits for which the ring had no room."""
        return int(self.functions[MOST_FUNCTIONS - 1].lost)

    def may_tell(self, records: int) -> None:
        """So many commands may be told from now on, and then none: they are counted. Of calls all are told."""
        if self._telling is not None:
            self._telling[0].left = records

    @property
    def may_still_tell(self) -> int:
        """What is left of that."""
        return int(self._telling[0].left) if self._telling is not None else ALL

    @property
    def commands_alone(self) -> int:
        """Simple commands that were counted, and not told."""
        return int(self._telling[0].commands) if self._telling is not None else 0

    # -- what is told ---------------------------------------------------------------------------------------

    def take(self) -> list[Hit]:
        """What was hit since it was last asked, in the order in which it was: all that its ring has room for."""
        found: list[Hit] = []
        for _ in range(MOST_TAKEN // len(self._hits)):
            count = self._taken()
            found += [self._hit(self._hits[at]) for at in range(count)]
            if count < len(self._hits):
                break
        return found

    def take_throws(self) -> list[tuple[Hit, Throw]]:
        """The same of throws."""
        found = []
        for at in range(self._taken()):
            thrown, hit, read = self._hits[at], self._hits[at].hit, self._hits[at].exception
            stack = min(thrown.stack_bytes, ffi.sizeof(thrown.stack))
            taken = Throw(
                time_ns=hit.time_ns,
                pid=hit.pid,
                tid=hit.tid,
                kind=hit.values[1],
                names=tuple(read.names),
                known=(ffi.string(read.name, 128), *(ffi.string(each, 32) for each in read.bases)),
                text=ffi.string(read.text, 256) if read.has_text else None,
                registers=(thrown.instruction, hit.stack, thrown.frame),
                stack=bytes(ffi.buffer(thrown.stack, stack)),
            )
            found.append(
                (Hit(_KINDS[hit.kind], hit.function, hit.time_ns, hit.stack, hit.thread, hit.pid, hit.tid), taken)
            )
        return found

    def take_commands(self) -> list[CommandHit]:
        """The same of commands of shells."""
        found = []
        for at in range(self._taken()):
            told = self._hits[at]
            texts, script = bytes(ffi.buffer(told.text, told.bytes)), told.script_bytes
            found.append(
                CommandHit(
                    told.kind, told.function, told.time_ns, told.stack, told.pid, told.image, told.status, told.line,
                    told.type, told.flags, told.trap, told.how, texts[script:], texts[:script].rstrip(b"\0"),
                    told.top, told.untold,
                )
            )  # fmt: skip
        return found

    def _taken(self) -> int:
        if self._told is not None:
            lib.pass_all(self._ring)
            return int(lib.take_hits(self._told, self._hits, len(self._hits)))
        take = {THROWS: lib.take_throws, COMMANDS: lib.take_commands}[self._of]
        return int(take(self._ring, self._hits, len(self._hits)))

    def _hit(self, told: Any) -> Hit:
        hit = told.hit
        kind, number, values = _KINDS[hit.kind], hit.function, hit.values
        texts: tuple[tuple[int, bytes], ...] = ()
        if kind is Kind.ENTRY and self.functions[number].has_arguments:
            read = tuple(values)
            texts = self._texts(told, self.functions[number].texts) if hit.texts else ()
        else:
            read = (values[0],)  # what is behind it, if anything is, is of another hit
        return Hit(kind, number, hit.time_ns, hit.stack, hit.thread, hit.pid, hit.tid, hit.lost, read, texts)

    @staticmethod
    def _texts(told: Any, wanted: int) -> tuple[tuple[int, bytes], ...]:
        """Those that could be read, by the numbers of their registers."""
        registers = [register for register in range(6) if wanted >> register & 1]
        return tuple(
            (register, ffi.string(told.text[at], 64))
            for at, register in enumerate(registers)
            if told.hit.texts >> register & 1
        )


def _mapped(of: int, record: str, count: int = 1) -> Any:
    """The elements of an array in the kernel, as long as this process lives; None if there is no such map."""
    if of < 0:
        return None
    memory = mmap.mmap(of, -(-ffi.sizeof(f"struct {record}") * count // mmap.PAGESIZE) * mmap.PAGESIZE)
    memory.madvise(mmap.MADV_DONTFORK)  # what reads a file of the job is not to have it
    return ffi.from_buffer(f"struct {record}[]", memory, require_writable=True)


def _loaded(program_file: str, uid: int, rings: Rings | None) -> tuple[Any, int, dict[str, int]]:
    """The object, the program's descriptor, and those of its maps. Raises JobLensError."""
    bpf_object = loader._open_object(program_file, ffi.NULL)
    shared = {} if rings is None else dict(zip(map_layout.RECORDER_MAPS, rings.maps))
    if rings is not None and rings.last >= 0:
        shared[LAST_MAP] = rings.last
    for bpf_map in loader.each_map(bpf_object):
        name = loader._name(lib.bpf_map__name(bpf_map))
        if name in shared:
            lib.bpf_map__reuse_fd(bpf_map, shared[name])
        elif name.endswith(".rodata"):
            slot, places = (lib.NO_SLOT, (1, 1)) if rings is None else (rings.slot, rings.places)
            settings = struct.pack("<6I", uid, os.stat("/proc/self/ns/pid").st_ino, slot, os.getpid(), *places)
            ffi.memmove(lib.bpf_map__initial_value(bpf_map, ffi.new("size_t *")), settings, len(settings))
    for _, program in loader.each_program(bpf_object):
        lib.bpf_program__set_expected_attach_type(program, _ATTACH_UPROBES)
    result = lib.bpf_object__load(bpf_object)
    if result < 0:
        lib.bpf_object__close(bpf_object)
        raise JobLensError(f"{loader._refused(f'the kernel refuses {program_file}', -result)}")
    (program,) = (each for _, each in loader.each_program(bpf_object))
    maps = {loader._name(lib.bpf_map__name(each)): lib.bpf_map__fd(each) for each in loader.each_map(bpf_object)}
    return bpf_object, int(lib.bpf_program__fd(program)), maps


def _close(links: Sequence[int]) -> None:
    for link in links:
        os.close(link)


def _own_file(address: int) -> tuple[str, int]:
    """The file that is mapped at an address of this process, and the offset in it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.split(maxsplit=5)
            start, end = (int(each, 16) for each in words[0].split("-"))
            if start <= address < end:
                return words[5].rstrip("\n"), address - start + int(words[2], 16)
    raise JobLensError("this process does not find itself")


def _refusal(number: int) -> str:
    import errno

    if number in (errno.EINVAL, errno.EOPNOTSUPP):
        return "this kernel has no probes for a process alone: boot Linux 6.6 or later"
    if number == errno.ESRCH:
        return "the process is gone"
    return f"the kernel refuses the probes: {os.strerror(number) if number < 200 else f'error {number}'}"
