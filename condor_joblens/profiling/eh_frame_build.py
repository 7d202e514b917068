"""Builds `_eh_frame`, which makes unwind tables of programs and sorts their symbols, in milliseconds."""

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
    struct symbol { uint64_t start, end; uint32_t name; uint16_t strings, section; };
    void sort_rows(uint64_t *rows, uint64_t *spare, size_t count);
    size_t find_symbols(const uint8_t *table, size_t count, uint32_t kinds, uint16_t strings, struct symbol *found);
    void finish_functions(struct symbol *all, struct symbol *spare, size_t count, const uint64_t *section_ends,
        size_t sections);
    ptrdiff_t last_function(const struct symbol *all, size_t count, uint64_t address);
    ptrdiff_t function_at(const struct symbol *all, size_t count, uint64_t address);
    size_t first_called(const uint8_t *table, size_t count, const uint32_t *names, size_t name_count);
    size_t read_entries(const uint8_t *pairs, size_t count, uint64_t address, uint64_t *entries, uint64_t *spare);
    size_t widest_gap(const uint64_t *numbers, size_t count);
    """
)
ffi.set_source(
    "condor_joblens.profiling._eh_frame",
    '#include "eh_frame.h"\n#include "elf_symbols.h"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / "eh_frame.h"), str(HERE / "elf_symbols.h")],
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
