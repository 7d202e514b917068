"""Objects, maps and links: loads the programs of a sensor, attaches and pins them, and adopts what is pinned.

Pinned links and maps outlive the agent that made them: the kernel goes on counting. The folder's name is a hash of
everything that must agree (programs, layouts, sizes). So an agent adopts only what it would have loaded itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_joblens.common.bpffs import MOUNT_BPFFS
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.trusted_folder import changeable_by
from condor_joblens.tracer import links, module_types
from condor_joblens.tracer._bpf import ffi, lib
from condor_joblens.tracer.links import DescriptorLink, LibraryLink, Link

OBJECTS = Path(__file__).with_name("objects")
COMPLETE = "complete"
_PLACED_BY_NAME = lib.BPF_PROG_TYPE_RAW_TRACEPOINT, lib.BPF_PROG_TYPE_KPROBE
BTF = "/sys/kernel/btf/vmlinux"


@dataclass(frozen=True)
class Part:
    """Something of a sensor that is counted by itself."""

    name: str  # as people are told that it is missing
    objects: tuple[str, ...]  # for each of the variants, or one for all: names in OBJECTS, or paths, without .bpf.o
    variants: tuple[tuple[str, ...], ...]  # programs, the best first: the first that the kernel takes is loaded
    needed: bool = False  # without it all other parts are of no use
    iterators: tuple[str, ...] = ()  # programs that walk over something when the agent asks
    module: str = ""  # the kernel module that has what these programs look at; none: it is always there
    tracepoints: tuple[str, ...] = ()  # for each of the variants, one that it needs; empty: none


@dataclass(frozen=True)
class Given:
    """What an object is given before it goes to the kernel."""

    sizes: Mapping[str, int]  # entries of maps
    constants: bytes  # what its .rodata begins with
    shared: Mapping[str, int]  # descriptors of maps that others have made


class Loaded:
    """What of a sensor is in the kernel: map, program and iterator descriptors by name."""

    def __init__(self) -> None:
        self.maps: dict[str, int] = {}  # its own
        self.programs: dict[str, int] = {}  # in the order in which they are attached
        self.iterators: dict[str, int] = {}
        self.folder: Path | None = None  # where it is pinned
        self.adopted = False  # found pinned, not loaded
        self.warnings: list[str] = []
        self.missing: dict[str, str] = {}  # parts that the kernel refused, and why
        self._objects: list[Any] = []
        self._programs: dict[str, Any] = {}  # as libbpf has them
        self._links: list[Link] = []
        self._iterator_links: list[LibraryLink] = []
        self._opened: list[int] = []  # descriptors of what was found pinned, or of what another process has loaded
        self._links_given: dict[str, int] = {}  # of programs that the other process has attached

    def take_loaded(self, maps: Mapping[str, int], programs: Mapping[str, int], iterators: Mapping[str, int]) -> None:
        """What another process has loaded: descriptors by name, which are closed with `unload`."""
        self.maps, self.programs, self.iterators = dict(maps), dict(programs), dict(iterators)
        self._opened += [*maps.values(), *programs.values(), *iterators.values()]

    def take_attached(self, links: Mapping[str, int]) -> None:
        """What it has attached already: descriptors of links, by the names of their programs."""
        self._links_given = dict(links)

    def attach(self, folder: Path | None) -> None:
        """Pins everything in `folder` and attaches the programs. Raises JobLensError if the kernel refuses one."""
        if folder is not None:
            remove(folder)
            self._pin(folder)
        try:
            for name in self.programs:
                self._attach_program(name)
        except JobLensError:
            self.detach()
            raise
        if self.folder is not None:
            (self.folder / COMPLETE).mkdir()

    def _pin(self, folder: Path) -> None:
        try:
            _refuse_strangers(folder)
            for kind in ("maps", "programs", "links"):
                (folder / kind).mkdir(parents=True, mode=0o700)
            _refuse_strangers(folder)  # who made it between the two
            for kind, descriptors in (("maps", self.maps), ("programs", self.programs)):
                for name, descriptor in descriptors.items():
                    if lib.bpf_obj_pin(descriptor, os.fsencode(folder / kind / name)) < 0:
                        raise OSError(ffi.errno, os.strerror(ffi.errno), str(folder / kind / name))
        except OSError as error:
            remove(folder)
            self.warnings.append(
                f"nothing can be pinned below {folder.parent.parent} ({error.strerror}): counting stops when this "
                f"daemon does; mount bpffs there ({MOUNT_BPFFS})"
            )
        else:
            self.folder = folder

    def _attach_program(self, name: str) -> None:
        link = self.attached(name)
        self._links.append(link)
        if self.folder is not None:
            pin = self.folder / "links" / name
            failed = link.pin(str(pin))
            if failed:
                self.warnings.append(f"{pin} can't be pinned: {os.strerror(failed)}")

    def attached(self, name: str) -> Link:
        """Attaches one program. Raises JobLensError if the kernel refuses."""
        try:
            if name in self._programs:
                return LibraryLink(lib.bpf_program__attach(self._programs[name]))
            if name in self._links_given:
                return DescriptorLink(self._links_given.pop(name))
            return links.attached(self.programs[name])
        except OSError as error:
            raise _refused(f"the kernel refuses to attach {name}", error.errno) from None

    def attached_to_clock(self, name: str, clock: int) -> Link:
        """One program runs whenever a clock (a descriptor) fires. It is closed then with the link. Raises OSError."""
        link = DescriptorLink(lib.run_at_clock(self.programs[name], clock))
        os.close(clock)
        return link

    def attach_where_named(self) -> dict[str, int]:
        """Attaches programs that do not say themselves where; descriptors of their links, by name, as long as it lives.

        Who has only the descriptors of what is loaded can't. Raises JobLensError if the kernel refuses one.
        """
        found: dict[str, int] = {}
        for name in self.programs:
            if lib.bpf_program__type(self._programs[name]) in _PLACED_BY_NAME:
                link = self.attached(name)
                self._links.append(link)
                found[name] = link.fileno()
        return found

    def detach(self) -> None:
        """The programs stay loaded and run no longer; nothing is pinned."""
        if self.folder is not None:
            remove(self.folder)
            self.folder = None
        for link in self._links:
            link.close()
        self._links.clear()

    def unload(self) -> None:
        """Detaches and forgets all of it, pins included."""
        self.detach()
        for link in self._iterator_links:
            link.close()
        for bpf_object in self._objects:
            lib.bpf_object__close(bpf_object)
        for descriptor in (*self._opened, *self._links_given.values()):
            os.close(descriptor)
        lists = self._iterator_links, self._objects, self._opened, self._programs, self._links_given, self.programs
        for kept in lists:
            kept.clear()


def load(parts: Iterable[Part], given: Given, is_wanted: Callable[[], bool] = lambda: True) -> Loaded:
    """Has the kernel verify all programs; nothing is attached or pinned yet.

    A part that the kernel refuses is named in `Loaded.missing`. Raises JobLensError, with the reason, if all others
    need that part. It also raises it if `is_wanted`, which is called between the parts, has become false.
    """
    if not os.path.exists(BTF):
        raise JobLensError(
            f"{BTF} is missing: this kernel has no BTF, so no program can be loaded; "
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF"
        )
    loaded = Loaded()
    for part in parts:
        try:
            if not is_wanted():
                loaded.unload()
                raise JobLensError("loading was given up")
            _load_part(loaded, part, given)
        except JobLensError as error:
            loaded.missing[part.name] = str(error)
            if part.needed or not is_wanted():
                loaded.unload()
                raise
    return loaded


def adopt(parts: Iterable[Part], folder: Path, given: Given) -> Loaded | None:
    """What an agent like this one left pinned in `folder`, counting; None if that is not there, or not whole.

    Raises JobLensError if a pin can't be opened, or an iterator loaded.
    """
    if not (folder / COMPLETE).is_dir():
        return None
    loaded = Loaded()
    loaded.adopted, loaded.folder = True, folder
    for kind, found in (("maps", loaded.maps), ("programs", loaded.programs)):
        for pin in sorted((folder / kind).iterdir()):
            descriptor = lib.bpf_obj_get(os.fsencode(pin))
            if descriptor < 0:
                raise JobLensError(f"{pin} can't be opened: {os.strerror(ffi.errno)}; remove {folder} and restart")
            found[pin.name] = descriptor
            loaded._opened.append(descriptor)
    for part in parts:
        if part.iterators:
            _load_part(loaded, part, given)
        if not any(all(program in loaded.programs for program in variant) for variant in part.variants):
            loaded.missing[part.name] = "the kernel refused it to an earlier joblensd"
    return loaded


def identity(parts: Iterable[Part], sizes: Mapping[str, int], cpus: int) -> str:
    """The name of the pins' folder: a hash of all objects and of the sizes of their maps."""
    digest = hashlib.sha256(repr((sorted(sizes.items()), cpus)).encode())
    for part in parts:
        for name in part.objects:
            digest.update(_object_path(name).read_bytes())
    return digest.hexdigest()[:16]


def remove_others(pins: Path, own: str) -> bool:
    """Two agents of different versions must not count side by side: nothing stays below `pins`, the half-made folder
    `own` included. True if there was another version's."""
    others: list[Path] = []
    with contextlib.suppress(OSError):
        others = list(pins.iterdir())
    for other in others:
        for complete in other.glob(f"*/{COMPLETE}"):
            remove(complete.parent)
        remove(other)
    return any(other.name != own for other in others)


def remove(folder: Path) -> None:
    """Unpins what one sensor has in `folder`."""
    # A second daemon that starts meanwhile must not adopt what is being taken apart.
    with contextlib.suppress(OSError):
        (folder / COMPLETE).rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def _refuse_strangers(folder: Path) -> None:
    strangers = changeable_by(str(folder))
    if strangers:
        raise OSError(errno.EPERM, f"{strangers}: give it to root alone, or remove it")


def _object_path(name: str) -> Path:
    path = OBJECTS / f"{name}.bpf.o"
    if not path.is_file():
        raise JobLensError(f"{path} is missing: run `make build` and install again")
    return path


def _load_part(loaded: Loaded, part: Part, given: Given) -> None:
    """The first variant that the kernel takes, with the iterators; the iterators alone of what is adopted."""
    for number, variant in enumerate(part.variants):
        wanted = part.iterators if loaded.adopted else (*variant, *part.iterators)
        try:
            with _types(part, number) as types:
                _load_object(loaded, part.objects[min(number, len(part.objects) - 1)], wanted, given, types)
        except JobLensError:
            if variant is part.variants[-1]:
                raise
            continue
        for name in () if loaded.adopted else variant:
            loaded.programs[name] = lib.bpf_program__fd(loaded._programs[name])
        for name in part.iterators:
            try:
                link = LibraryLink(lib.bpf_program__attach_iter(loaded._programs[name], ffi.NULL))
            except OSError as error:
                raise _refused(f"the kernel refuses the iterator {name}", error.errno) from None
            loaded._iterator_links.append(link)
            loaded.iterators[name] = link.fileno()
        return


@contextlib.contextmanager
def _types(part: Part, variant: int) -> Iterator[Any]:
    """The file of types that a variant is loaded with, as libbpf wants its name; NULL for the kernel's own.

    Raises JobLensError if the module has none, or lacks a tracepoint.
    """
    if not part.module:
        yield ffi.NULL
        return
    types = module_types.file_of(part.module)
    if types is None:
        raise JobLensError(f"this kernel does not tell the types of its module {part.module}: from 5.11 on they do")
    tracepoint = part.tracepoints[variant] if part.tracepoints else ""
    if tracepoint and not module_types.has_tracepoint(types, tracepoint):
        raise JobLensError(f"this kernel has no tracepoint {tracepoint}")
    if types.name == "vmlinux":
        yield ffi.NULL
        return
    try:
        descriptor = module_types.in_memory(module_types.with_kernels_types(types), part.module)
    except (OSError, ValueError) as error:
        raise JobLensError(f"the types of the kernel's module {part.module} can't be read: {error}") from None
    try:
        yield ffi.new("char[]", f"/proc/self/fd/{descriptor}".encode())
    finally:
        os.close(descriptor)


def _load_object(loaded: Loaded, name: str, wanted: tuple[str, ...], given: Given, types: Any = ffi.NULL) -> None:
    bpf_object = _open_object(name, types)
    for bpf_map in each_map(bpf_object):
        _size_or_share(loaded, bpf_map, given)
    programs = dict(each_program(bpf_object))
    for program_name, program in programs.items():
        lib.bpf_program__set_autoload(program, program_name in wanted)
    result = lib.bpf_object__load(bpf_object)
    if result < 0:
        lib.bpf_object__close(bpf_object)
        raise _refused(f"the kernel refuses {wanted[0]}", -result)
    loaded._objects.append(bpf_object)
    for bpf_map in each_map(bpf_object):
        map_name = _name(lib.bpf_map__name(bpf_map))
        if ".rodata" not in map_name and map_name not in given.shared:
            loaded.maps.setdefault(map_name, lib.bpf_map__fd(bpf_map))
    loaded._programs.update((each, programs[each]) for each in wanted)


def _open_object(name: str, types: Any) -> Any:
    lib.begin_messages()
    path = _object_path(name)
    bpf_object = lib.open_object(os.fsencode(path), f"jl_{Path(name).name}".encode(), types)
    if bpf_object == ffi.NULL:
        raise _refused(f"{path} can't be read", ffi.errno)
    return bpf_object


def _size_or_share(loaded: Loaded, bpf_map: Any, given: Given) -> None:
    name = _name(lib.bpf_map__name(bpf_map))
    if name.endswith(".rodata"):
        value = lib.bpf_map__initial_value(bpf_map, ffi.new("size_t *"))
        ffi.memmove(value, given.constants, len(given.constants))
    elif name in given.shared or name in loaded.maps:
        lib.bpf_map__reuse_fd(bpf_map, given.shared[name] if name in given.shared else loaded.maps[name])
    elif name in given.sizes:
        lib.bpf_map__set_max_entries(bpf_map, given.sizes[name])


def each_program(bpf_object: Any) -> Iterator[tuple[str, Any]]:
    """Name and libbpf's handle of each program in an object."""
    for program in _each(lib.bpf_object__next_program, bpf_object):
        yield _name(lib.bpf_program__name(program)), program


def each_map(bpf_object: Any) -> Iterator[Any]:
    """libbpf's handle of each map in an object."""
    return _each(lib.bpf_object__next_map, bpf_object)


def _each(following: Any, bpf_object: Any) -> Iterator[Any]:
    current = following(bpf_object, ffi.NULL)
    while current != ffi.NULL:
        yield current
        current = following(bpf_object, current)


def _name(name: Any) -> str:
    text: str = ffi.string(name).decode()
    return text


def _refused(what: str, number: int | None) -> JobLensError:
    number = abs(number or 0)
    said = ffi.string(lib.last_messages()).decode("ascii", "replace").strip().splitlines()
    remedy = {
        errno.EPERM: "CAP_BPF and CAP_PERFMON are needed (start it from condor_master as root), and no kernel lockdown",
        errno.EINVAL: "the kernel is too old or lacks a feature; `joblens doctor` tells which",
        errno.ENOMEM: "lower JOBLENS_MAX_JOBS",
    }.get(number, "see `joblens doctor`")
    last = f" ({said[-1].removeprefix('libbpf: ')})" if said else ""
    return JobLensError(f"{what}: {os.strerror(number)}{last}: {remedy}")
