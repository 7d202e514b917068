"""Builds `_sample_ring`, which takes samples out of the kernel's ring."""

from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent

ffi = FFI()
ffi.cdef(
    """
    struct sample_ring;
    struct sample_ring *map_samples(int fd, size_t bytes);
    void unmap_samples(struct sample_ring *ring);
    size_t take_samples(struct sample_ring *ring, char *to, size_t room);
    """
)
ffi.set_source(
    "condor_joblens.profiling._sample_ring",
    '#include "sample_ring.h"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / "sample_ring.h")],
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
