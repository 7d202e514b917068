"""Types of kernel modules: found, and joined to the kernel's own."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from condor_joblens.tracer import module_types

HEADER = struct.Struct("<HBBIIIII")


def btf(types: bytes, strings: bytes, gap: bytes = b"") -> bytes:
    head = HEADER.pack(0xEB9F, 1, 0, HEADER.size, 0, len(types), len(types) + len(gap), len(strings))
    return head + types + gap + strings


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module_types, "BTF", tmp_path / "btf")
    monkeypatch.setattr(module_types, "MODULES", tmp_path / "module")
    (tmp_path / "btf").mkdir()
    (tmp_path / "btf" / "vmlinux").write_bytes(btf(b"KERNEL", b"\0int\0"))
    return tmp_path


def test_a_modules_types_follow_the_kernels(machine: Path) -> None:
    (machine / "btf" / "fuse").write_bytes(btf(b"MODULE!", b"fuse_req\0btf_trace_fuse_request_end\0", b"gap"))
    types = module_types.file_of("fuse")
    assert types == machine / "btf" / "fuse"
    assert module_types.with_kernels_types(types) == btf(
        b"KERNELMODULE!", b"\0int\0fuse_req\0btf_trace_fuse_request_end\0"
    )
    assert module_types.has_tracepoint(types, "fuse_request_end")
    assert not module_types.has_tracepoint(types, "fuse_request")


def test_what_is_built_in_has_the_kernels_types_and_an_old_kernels_module_none(machine: Path) -> None:
    (machine / "module" / "fuse").mkdir(parents=True)
    assert module_types.is_there("fuse") and not module_types.is_there("nfs")
    assert module_types.file_of("fuse") == machine / "btf" / "vmlinux"
    (machine / "module" / "fuse" / "initstate").write_text("live\n")
    assert module_types.file_of("fuse") is None


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\x7fELF" + b"\0" * 100])
def test_what_is_no_btf_is_refused(machine: Path, content: bytes) -> None:
    (machine / "btf" / "fuse").write_bytes(content)
    with pytest.raises(ValueError, match="BTF"):
        module_types.with_kernels_types(machine / "btf" / "fuse")


def test_a_file_in_memory_can_be_read_by_its_path() -> None:
    descriptor = module_types.in_memory(b"x" * 100_000, "types")
    try:
        assert Path(f"/proc/self/fd/{descriptor}").read_bytes() == b"x" * 100_000
    finally:
        os.close(descriptor)
