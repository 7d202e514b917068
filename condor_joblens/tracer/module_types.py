"""The types and tracepoints of a kernel module, for programs that look at its structures.

libbpf asks the kernel for a module's BTF, which takes CAP_SYS_ADMIN: joblensd has given that up by the time a module
comes. The same BTF is in a file that root may read.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

BTF = Path("/sys/kernel/btf")
MODULES = Path("/sys/module")

_HEADER = struct.Struct("<HBBIIIII")  # magic, version, flags, length, types' offset and length, strings' the same
_MAGIC = 0xEB9F


def file_of(module: str) -> Path | None:
    """The file that has the types of a module, or of the kernel if the module is built in; None if it is not there.

    A module is not there before somebody mounts its file system, and has no types in a kernel before 5.11.
    """
    own, built_in = BTF / module, MODULES / module
    if own.exists():
        return own
    is_module = (built_in / "initstate").exists()
    return None if is_module or not (BTF / "vmlinux").exists() else BTF / "vmlinux"


def is_there(module: str) -> bool:
    """Whether the module is loaded, or built in with something to set."""
    return (MODULES / module).exists()


def has_tracepoint(types: Path, name: str) -> bool:
    """Whether the module or kernel of these types has a tracepoint."""
    return f"\0btf_trace_{name}\0".encode() in types.read_bytes()


def with_kernels_types(types: Path) -> bytes:
    """The types of a module and of the kernel as one BTF: a module's ids and strings go on where the kernel's end.

    Raises ValueError if a file is no BTF.
    """
    kernel, module = _parts((BTF / "vmlinux").read_bytes()), _parts(types.read_bytes())
    all_types, strings = kernel[0] + module[0], kernel[1] + module[1]
    header = _HEADER.pack(_MAGIC, 1, 0, _HEADER.size, 0, len(all_types), len(all_types), len(strings))
    return header + all_types + strings


def _parts(btf: bytes) -> tuple[bytes, bytes]:
    if len(btf) < _HEADER.size:
        raise ValueError("no BTF")
    magic, _, _, length, types_at, types_length, strings_at, strings_length = _HEADER.unpack_from(btf)
    if magic != _MAGIC:
        raise ValueError("no BTF of this machine's byte order")
    types, strings = length + types_at, length + strings_at
    return btf[types : types + types_length], btf[strings : strings + strings_length]


def in_memory(content: bytes, name: str) -> int:
    """A descriptor of a file in memory with this content; whoever wants a path takes /proc/self/fd/N."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor
