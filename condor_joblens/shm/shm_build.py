"""Builds `_shm`: reading by joblens_shm.h, and the writer's half. Both order loads and stores, as Python can't."""

import re
from pathlib import Path

from cffi import FFI

HEADER = Path(__file__).resolve().parent / "joblens_shm.h"


def plain_declarations(header: str) -> str:
    """The part of joblens_shm.h that cffi can read: the structures."""
    found = re.search(r"cffi: begin \*/(.*)/\* cffi: end \*/", header, re.DOTALL)
    assert found
    return found.group(1)


ffi = FFI()
ffi.cdef(
    plain_declarations(HEADER.read_text())
    + """
    const char *joblens_check(const void *memory, uint64_t bytes, const char *magic);
    const char *joblens_check_artifact(const void *memory, uint64_t bytes);
    int64_t joblens_read_rows(const struct joblens_header *header, void *rows, uint64_t *published, double *time);
    uint64_t joblens_read_events(const struct joblens_header *header, uint64_t *last, void *events,
                                 uint64_t room, uint64_t *missed);
    uint32_t joblens_wake_word(const struct joblens_header *header);
    void joblens_wait(const struct joblens_header *header, uint32_t seen, double seconds);

    uint64_t load_acquire(const void *address);
    void begin_rows(struct joblens_header *header, uint64_t publication);
    void end_rows(struct joblens_header *header, uint64_t publication);
    void append_events(struct joblens_header *header, const void *events, uint64_t count);
    void wake_readers(struct joblens_header *header);
    void wake_waiters(const struct joblens_header *header);
    """
)
ffi.set_source(
    "condor_joblens.shm._shm",
    """
    #include <limits.h>
    #include "joblens_shm.h"

    static uint64_t load_acquire(const void *address)
    {
        return __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE);
    }

    static void begin_rows(struct joblens_header *header, uint64_t publication)
    {
        __atomic_store_n(&header->begun, publication, __ATOMIC_RELAXED);
        /* what is written from here on must not be seen before `begun` */
        __atomic_thread_fence(__ATOMIC_RELEASE);
    }

    static void end_rows(struct joblens_header *header, uint64_t publication)
    {
        __atomic_store_n(&header->published, publication, __ATOMIC_RELEASE);
    }

    static void wake_waiters(const struct joblens_header *header)
    {
        syscall(SYS_futex, &header->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }

    static void wake_readers(struct joblens_header *header)
    {
        __atomic_fetch_add(&header->wake, 1, __ATOMIC_RELEASE);
        wake_waiters(header);
    }

    /* Each event gets the next number in its first word; a reader sees 0 there while the rest is written. */
    static void append_events(struct joblens_header *header, const void *events, uint64_t count)
    {
        uint64_t words = header->record_bytes / 8, head = header->head;
        const uint64_t *from = events;

        for (uint64_t event = 0; event < count; event++, from += words) {
            uint64_t number = ++head;
            uint64_t *record = (uint64_t *)((char *)header + header->records_at +
                                            number % header->capacity * header->record_bytes);

            __atomic_store_n(record, 0, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_RELEASE);
            for (uint64_t word = 1; word < words; word++)
                __atomic_store_n(&record[word], from[word], __ATOMIC_RELAXED);
            __atomic_store_n(record, number, __ATOMIC_RELEASE);
        }
        __atomic_store_n(&header->head, head, __ATOMIC_RELEASE);
    }
    """,
    include_dirs=[str(HEADER.parent)],
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
