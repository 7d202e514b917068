"""Links: what keeps a program attached, as long as somebody has it or its pin."""

from __future__ import annotations

import os
from typing import Any, Protocol

from condor_joblens.tracer._bpf import ffi, lib


class Link(Protocol):
    """A program that is attached."""

    def fileno(self) -> int:
        """Its descriptor, as long as it is not closed."""

    def pin(self, path: str) -> int:
        """Keeps it attached when this process ends; an error's number, 0 if there was none."""

    def close(self) -> None:
        """It is attached no longer, unless it is pinned."""


class LibraryLink:
    """One that libbpf has made, of a program that it has loaded in this process."""

    def __init__(self, handle: Any) -> None:
        """Raises OSError if libbpf says that there is none."""
        if handle == ffi.NULL:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        self._handle = handle

    def fileno(self) -> int:
        """As a Link does."""
        return int(lib.bpf_link__fd(self._handle))

    def pin(self, path: str) -> int:
        """As a Link does."""
        return int(ffi.errno) if lib.bpf_link__pin(self._handle, os.fsencode(path)) < 0 else 0

    def close(self) -> None:
        """As a Link does."""
        lib.bpf_link__destroy(self._handle)


class DescriptorLink:
    """One of which this process has the descriptor."""

    def __init__(self, descriptor: int) -> None:
        """The descriptor is its own from now on. Raises OSError if it is negative: -errno."""
        if descriptor < 0:
            raise OSError(-descriptor, os.strerror(-descriptor))
        self._descriptor = descriptor

    def fileno(self) -> int:
        """As a Link does."""
        return self._descriptor

    def pin(self, path: str) -> int:
        """As a Link does."""
        return int(ffi.errno) if lib.bpf_obj_pin(self._descriptor, os.fsencode(path)) < 0 else 0

    def close(self) -> None:
        """As a Link does."""
        os.close(self._descriptor)


def attached(program: int) -> DescriptorLink:
    """A link of a program (a descriptor) that says itself where it runs: at a tracepoint with BTF, a function's end.

    Raises OSError.
    """
    descriptor = int(lib.bpf_raw_tracepoint_open(ffi.NULL, program))
    return DescriptorLink(-int(ffi.errno) if descriptor < 0 else descriptor)
