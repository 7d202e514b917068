"""Builds `_eh_frame`, which makes unwind tables of programs, in milliseconds."""

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent

ffi = FFI()
ffi.cdef(
    """
    struct code { uint64_t address, offset, size; };
    enum { RULE_NONE, RULE_STACK, RULE_FRAME, RULE_PLT, RULE_REALIGNED, RULE_SIGNAL, RULE_END };
    size_t unwind_rows(const uint8_t *section, size_t size, uint64_t address, const struct code *code, size_t codes,
        uint64_t *rows, size_t room);
    """
)
ffi.set_source(
    "condor_joblens.profiling._eh_frame",
    '#include "eh_frame.h"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / "eh_frame.h")],
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
