"""Builds `_files`, which reads a thousand small kernel files a second by descriptors that stay open."""

from cffi import FFI

SOURCE = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file's text, or NULL where it can't be read: the cgroup is gone, or the kernel has no such file. */
static char *text_of(int fd, char *buffer, size_t size)
{
    ssize_t got = fd < 0 ? -1 : pread(fd, buffer, size - 1, 0);

    if (got <= 0)
        return NULL;
    buffer[got] = 0;
    return buffer;
}

/* The whole number behind `key` at the start of a line or word; -1 where there is none. */
static int64_t number_behind(const char *text, const char *key)
{
    const char *found = text ? strstr(text, key) : NULL;

    return found ? strtoll(found + strlen(key), NULL, 10) : -1;
}

static void read_cpu_stats(const int *fds, size_t count, int64_t *usage, int64_t *user, int64_t *system)
{
    char buffer[1024];

    for (size_t i = 0; i < count; i++) {
        const char *text = text_of(fds[i], buffer, sizeof(buffer));

        usage[i] = number_behind(text, "usage_usec ");
        user[i] = number_behind(text, "user_usec ");
        system[i] = number_behind(text, "system_usec ");
    }
}

/* The first line of a pressure file is the one of "some". */
static void read_pressures(const int *fds, size_t count, int64_t *total)
{
    char buffer[512];

    for (size_t i = 0; i < count; i++)
        total[i] = number_behind(text_of(fds[i], buffer, sizeof(buffer)), "total=");
}

static void read_oom_kills(const int *fds, size_t count, int64_t *number)
{
    char buffer[512];

    for (size_t i = 0; i < count; i++)
        number[i] = number_behind(text_of(fds[i], buffer, sizeof(buffer)), "oom_kill ");
}

/* The same behind a `key` that begins a line; 0 where there is none. */
static int64_t number_of_line(const char *text, const char *key)
{
    size_t length = strlen(key);

    for (const char *found = strstr(text, key); found; found = strstr(found + length, key))
        if (found == text || found[-1] == 10)
            return strtoll(found + length, NULL, 10);
    return 0;
}

/* Before 5.18 the kernel does not add up what it uses itself for a cgroup. */
static void read_memory_stats(const int *fds, size_t count, int64_t *anon, int64_t *file, int64_t *kernel)
{
    static const char *const parts[] = { "kernel_stack ", "pagetables ", "percpu ", "slab ", "vmalloc " };
    char buffer[16384];

    for (size_t i = 0; i < count; i++) {
        const char *text = text_of(fds[i], buffer, sizeof(buffer));

        anon[i] = text ? number_of_line(text, "anon ") : -1;
        file[i] = text ? number_of_line(text, "file ") : -1;
        kernel[i] = text ? number_of_line(text, "kernel ") : -1;
        if (kernel[i] == 0)
            for (size_t part = 0; part < sizeof(parts) / sizeof(*parts); part++)
                kernel[i] = (uint64_t)kernel[i] + (uint64_t)number_of_line(text, parts[part]);
    }
}

static void read_numbers(const int *fds, size_t count, int64_t *number)
{
    char buffer[64];

    for (size_t i = 0; i < count; i++) {
        const char *text = text_of(fds[i], buffer, sizeof(buffer));

        number[i] = text && *text >= '0' && *text <= '9' ? strtoll(text, NULL, 10) : -1;
    }
}
"""

ffi = FFI()
ffi.cdef(
    """
    void read_cpu_stats(const int *fds, size_t count, int64_t *usage, int64_t *user, int64_t *system);
    void read_pressures(const int *fds, size_t count, int64_t *total);
    void read_numbers(const int *fds, size_t count, int64_t *number);
    void read_oom_kills(const int *fds, size_t count, int64_t *number);
    void read_memory_stats(const int *fds, size_t count, int64_t *anon, int64_t *file, int64_t *kernel);
    """
)
ffi.set_source(
    "condor_joblens.sample._files",
    SOURCE,
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
