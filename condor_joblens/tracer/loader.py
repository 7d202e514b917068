"""Objects, maps and links: what loads the programs, pins them and finds what an earlier agent left pinned.

Pinned links and maps outlive the agent that made them: the kernel goes on counting. The folder's name is a hash of
everything that must agree (programs, layouts, sizes), so that an agent adopts only what it would have loaded itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.tracer._bpf import ffi, lib

OBJECTS = Path(__file__).with_name("objects")
SETS = ("slots", "process", "tcp")
ITERATORS = ("jl_iter_task", "jl_iter_tcp")
COMPLETE = "complete"


@dataclass(frozen=True)
class Part:
    """Something of level io that is counted by itself."""

    name: str  # as people are told that it is missing
    objects: tuple[str, ...]  # for each of the variants, or one for all
    variants: tuple[tuple[str, ...], ...]  # programs, the best first: the first that the kernel takes is loaded
    needed: bool = False  # without it all other parts are of no use


IO_PARTS = (
    Part(
        "context switches",
        ("switch", "switch_reads"),
        (("jl_switch", "jl_io_exec"), ("jl_switch_rd", "jl_io_exec")),
        True,
    ),
    Part("system calls", ("syscalls", "syscalls_reads"), (("jl_sys_exit",), ("jl_sys_exit_rd",))),
    Part("io_uring", ("uring",), (("jl_uring",), ("jl_uring_6_14",))),
    Part("UDP", ("udp",), (("jl_udp_send", "jl_udp_recv"), ("jl_udp_sys_exit",))),
)
"""In the order in which they are attached: no call is counted before it is known who makes it."""


class Loaded:
    """Everything that is in the kernel for us: map, program and iterator descriptors by name."""

    def __init__(self) -> None:
        self.maps: dict[str, int] = {}
        self.programs: dict[str, int] = {}
        self.iterators: dict[str, int] = {}
        self.folder: Path | None = None  # where it is pinned
        self.adopted = False  # found pinned, not loaded
        self.replaced = False  # another version's pins were there and have been removed
        self.warnings: list[str] = []
        self.missing: dict[str, str] = {}  # parts that the kernel refused, and why
        self._objects: list[Any] = []
        self._links: list[Any] = []
        self._opened: list[int] = []  # descriptors of what was found pinned

    def unload(self) -> None:
        """Detaches and forgets all of it, pins included."""
        if self.folder is not None:
            _remove(self.folder)
        for link in self._links:
            lib.bpf_link__destroy(link)
        for bpf_object in self._objects:
            lib.bpf_object__close(bpf_object)
        self._links.clear()
        self._objects.clear()
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened.clear()


def load(pins: Path, sizes: dict[str, int], cpus: int) -> Loaded:
    """Loads and attaches all programs, or adopts those pinned below `pins` by an agent like this one.

    `sizes` has the entries of the maps that a knob sizes. Without a usable `pins` everything works but outliving
    the agent; `Loaded.warnings` says so. Raises JobLensError where the kernel refuses, with the reason.
    """
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        raise JobLensError(
            "/sys/kernel/btf/vmlinux is missing: this kernel has no BTF, so no program can be loaded; "
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF"
        )
    loaded = Loaded()
    folder = pins / _identity(sizes, cpus)
    if (folder / COMPLETE).is_dir():
        loaded.adopted = True
        loaded.folder = folder
        _open_pins(loaded, folder)
    _load_objects(loaded, sizes, cpus)
    if not loaded.adopted:
        _pin(loaded, pins, folder)
        _attach(loaded)
        if loaded.folder is not None:
            (folder / COMPLETE).mkdir()
    return loaded


def _identity(sizes: dict[str, int], cpus: int) -> str:
    digest = hashlib.sha256(repr((sorted(sizes.items()), cpus)).encode())
    for name in [*SETS, *(name for part in IO_PARTS for name in part.objects)]:
        digest.update(_object_path(name).read_bytes())
    return digest.hexdigest()[:16]


def _object_path(name: str) -> Path:
    path = OBJECTS / f"{name}.bpf.o"
    if not path.is_file():
        raise JobLensError(f"{path} is missing: run `make build` and install again")
    return path


def _open_pins(loaded: Loaded, folder: Path) -> None:
    for kind, found in (("maps", loaded.maps), ("programs", loaded.programs)):
        for pin in sorted((folder / kind).iterdir()):
            descriptor = lib.bpf_obj_get(os.fsencode(pin))
            if descriptor < 0:
                raise JobLensError(f"{pin} can't be opened: {os.strerror(ffi.errno)}; remove {folder} and restart")
            found[pin.name] = descriptor
            loaded._opened.append(descriptor)


def _load_objects(loaded: Loaded, sizes: dict[str, int], cpus: int) -> None:
    for name in SETS:
        bpf_object = _open_object(name)
        loaded._objects.append(bpf_object)
        for bpf_map in _each(lib.bpf_object__next_map, bpf_object):
            _size_or_share(loaded, bpf_map, sizes, cpus)
        programs = list(_each(lib.bpf_object__next_program, bpf_object))
        if loaded.adopted:
            for program in programs:
                if _name(lib.bpf_program__name(program)) not in ITERATORS:
                    lib.bpf_program__set_autoload(program, False)
        result = lib.bpf_object__load(bpf_object)
        if result < 0:
            raise _refused(f"the kernel refuses {name}.bpf.o", -result)
        for bpf_map in _each(lib.bpf_object__next_map, bpf_object):
            map_name = _name(lib.bpf_map__name(bpf_map))
            if ".rodata" not in map_name:
                loaded.maps.setdefault(map_name, lib.bpf_map__fd(bpf_map))
        for program in programs:
            _keep(loaded, program)


def load_io(basic: Loaded, sizes: dict[str, int], cpus: int, is_wanted: Callable[[], bool] = lambda: True) -> Loaded:
    """Loads and attaches what level io needs beside `basic`, or adopts it where an earlier agent left it pinned.

    A part that the kernel refuses is named in `Loaded.missing`; without a part that is needed nothing is loaded, nor
    where `is_wanted` has become false, which is looked at between the parts.
    """
    loaded = Loaded()
    folder = None if basic.folder is None else basic.folder / "io"
    if folder is not None and (folder / COMPLETE).is_dir():
        loaded.adopted = True
        loaded.folder = folder
        _open_pins(loaded, folder)
        loaded.missing = _missing_of(loaded)
        return loaded
    loaded.maps.update(basic.maps)
    for part in IO_PARTS:
        if not is_wanted():
            return _nothing_of(loaded, "joblensd stops")
        try:
            _load_part(loaded, part, sizes, cpus)
        except JobLensError as error:
            loaded.missing[part.name] = str(error)
            if part.needed:
                return _nothing_of(loaded, str(error))
    for name in basic.maps:
        del loaded.maps[name]
    if folder is not None:
        _remove(folder)
        _pin_to(loaded, folder)
    try:
        _attach(loaded)
    except JobLensError as error:
        return _nothing_of(loaded, str(error))
    if loaded.folder is not None:
        (loaded.folder / COMPLETE).mkdir()
    return loaded


def _nothing_of(loaded: Loaded, why: str) -> Loaded:
    """Takes out what is there already: all parts are missing."""
    loaded.unload()
    loaded.programs.clear()
    loaded.missing = {part.name: why for part in IO_PARTS}
    return loaded


def has_io(basic: Loaded) -> bool:
    """Whether an earlier agent left level io pinned beside `basic`, or a part of it."""
    return basic.folder is not None and (basic.folder / "io").is_dir()


def _missing_of(adopted: Loaded) -> dict[str, str]:
    def has(part: Part) -> bool:
        return any(all(program in adopted.programs for program in variant) for variant in part.variants)

    return {part.name: "the kernel refused it to an earlier joblensd" for part in IO_PARTS if not has(part)}


def _load_part(loaded: Loaded, part: Part, sizes: dict[str, int], cpus: int) -> None:
    for number, variant in enumerate(part.variants):
        try:
            bpf_object = _open_object(part.objects[min(number, len(part.objects) - 1)])
            for bpf_map in _each(lib.bpf_object__next_map, bpf_object):
                _size_or_share(loaded, bpf_map, sizes, cpus)
            programs = list(_each(lib.bpf_object__next_program, bpf_object))
            chosen = [program for program in programs if _name(lib.bpf_program__name(program)) in variant]
            for program in programs:
                lib.bpf_program__set_autoload(program, program in chosen)
            result = lib.bpf_object__load(bpf_object)
            if result < 0:
                lib.bpf_object__close(bpf_object)
                raise _refused(f"the kernel refuses {variant[0]}", -result)
        except JobLensError:
            if variant is part.variants[-1]:
                raise
            continue
        loaded._objects.append(bpf_object)
        for bpf_map in _each(lib.bpf_object__next_map, bpf_object):
            if ".rodata" not in _name(lib.bpf_map__name(bpf_map)):
                loaded.maps.setdefault(_name(lib.bpf_map__name(bpf_map)), lib.bpf_map__fd(bpf_map))
        for program in chosen:
            loaded.programs[_name(lib.bpf_program__name(program))] = lib.bpf_program__fd(program)
        return


def _open_object(name: str) -> Any:
    lib.begin_messages()
    path = _object_path(name)
    bpf_object = lib.open_object(os.fsencode(path), f"jl_{name}".encode())
    if bpf_object == ffi.NULL:
        raise _refused(f"{path} can't be read", ffi.errno)
    return bpf_object


def _size_or_share(loaded: Loaded, bpf_map: Any, sizes: dict[str, int], cpus: int) -> None:
    name = _name(lib.bpf_map__name(bpf_map))
    if name.endswith(".rodata"):
        size = ffi.new("size_t *")
        value = lib.bpf_map__initial_value(bpf_map, size)
        ffi.cast("uint32_t *", value)[0] = cpus
    elif name in loaded.maps:
        lib.bpf_map__reuse_fd(bpf_map, loaded.maps[name])
    elif name in sizes:
        lib.bpf_map__set_max_entries(bpf_map, sizes[name])


def _keep(loaded: Loaded, program: Any) -> None:
    name = _name(lib.bpf_program__name(program))
    if name in ITERATORS:
        link = lib.bpf_program__attach_iter(program, ffi.NULL)
        if link == ffi.NULL:
            raise _refused(f"the kernel refuses the iterator {name}", ffi.errno)
        loaded._links.append(link)
        loaded.iterators[name] = lib.bpf_link__fd(link)
    elif not loaded.adopted:
        loaded.programs[name] = lib.bpf_program__fd(program)


def _pin(loaded: Loaded, pins: Path, folder: Path) -> None:
    try:
        _remove_others(loaded, pins, folder)
    except OSError as error:
        loaded.warnings.append(_unpinned(folder, error))
    else:
        _pin_to(loaded, folder)


def _pin_to(loaded: Loaded, folder: Path) -> None:
    try:
        for kind in ("maps", "programs", "links"):
            (folder / kind).mkdir(parents=True, mode=0o700)
        for kind, descriptors in (("maps", loaded.maps), ("programs", loaded.programs)):
            for name, descriptor in descriptors.items():
                if lib.bpf_obj_pin(descriptor, os.fsencode(folder / kind / name)) < 0:
                    raise OSError(ffi.errno, os.strerror(ffi.errno), str(folder / kind / name))
    except OSError as error:
        _remove(folder)
        loaded.warnings.append(_unpinned(folder, error))
    else:
        loaded.folder = folder


def _unpinned(folder: Path, error: OSError) -> str:
    return (
        f"nothing can be pinned below {folder.parent} ({error.strerror}): counting stops when this daemon does; "
        "mount bpffs there (mount -t bpf bpf /sys/fs/bpf)"
    )


def _remove_others(loaded: Loaded, pins: Path, folder: Path) -> None:
    # Two agents of different versions must not count side by side; a half-made folder of ours goes as well.
    if pins.is_dir():
        for other in pins.iterdir():
            loaded.replaced = loaded.replaced or other != folder
            _remove(other)


def _attach(loaded: Loaded) -> None:
    for bpf_object in loaded._objects:
        for program in _each(lib.bpf_object__next_program, bpf_object):
            name = _name(lib.bpf_program__name(program))
            if name not in loaded.programs:
                continue  # an iterator, or not loaded
            link = lib.bpf_program__attach(program)
            if link == ffi.NULL:
                raise _refused(f"the kernel refuses to attach {name}", ffi.errno)
            loaded._links.append(link)
            if loaded.folder is not None:
                pin = loaded.folder / "links" / name
                if lib.bpf_link__pin(link, os.fsencode(pin)) < 0:
                    loaded.warnings.append(f"{pin} can't be pinned: {os.strerror(ffi.errno)}")


def _remove(folder: Path) -> None:
    # A second daemon that starts meanwhile must not adopt what is being taken apart.
    with contextlib.suppress(OSError):
        (folder / COMPLETE).rmdir()
    shutil.rmtree(folder, ignore_errors=True)


def _each(following: Any, bpf_object: Any) -> Any:
    current = following(bpf_object, ffi.NULL)
    while current != ffi.NULL:
        yield current
        current = following(bpf_object, current)


def _name(name: Any) -> str:
    text: str = ffi.string(name).decode()
    return text


def _refused(what: str, number: int) -> JobLensError:
    number = abs(number)
    said = ffi.string(lib.last_messages()).decode("ascii", "replace").strip().splitlines()
    remedy = {
        errno.EPERM: "CAP_BPF and CAP_PERFMON are needed (start it from condor_master as root), and no kernel lockdown",
        errno.EINVAL: "the kernel is too old or lacks a feature; `joblens doctor` tells which",
        errno.ENOMEM: "lower JOBLENS_MAX_JOBS",
    }.get(number, "see `joblens doctor`")
    last = f" ({said[-1].removeprefix('libbpf: ')})" if said else ""
    return JobLensError(f"{what}: {os.strerror(number)}{last}: {remedy}")
