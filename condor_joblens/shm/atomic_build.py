"""Builds `_atomic`: the loads and stores that order the double buffer, which Python itself does not have."""

from cffi import FFI

ffi = FFI()
ffi.cdef(
    """
    uint64_t load_acquire(const void *address);
    void store_release(void *address, uint64_t value);
    void fence_acquire(void);
    void fence_release(void);
    """
)
ffi.set_source(
    "condor_joblens.shm._atomic",
    """
    #include <stdint.h>
    static uint64_t load_acquire(const void *address)
    { return __atomic_load_n((const uint64_t *)address, __ATOMIC_ACQUIRE); }
    static void store_release(void *address, uint64_t value)
    { __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE); }
    static void fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static void fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    """,
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
