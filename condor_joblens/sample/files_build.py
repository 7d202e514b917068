"""Builds `_files`: reads many small kernel files by kept descriptors. A thousand of them a second are parsed here."""

from cffi import FFI

ffi = FFI()
ffi.cdef(
    """
    void read_cpu_stats(const int *fds, size_t count, int64_t *usage, int64_t *user, int64_t *system);
    void read_pressures(const int *fds, size_t count, int64_t *total);
    void read_numbers(const int *fds, size_t count, int64_t *number);
    """
)
ffi.set_source(
    "condor_joblens.sample._files",
    """
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

    static void read_numbers(const int *fds, size_t count, int64_t *number)
    {
        char buffer[64];

        for (size_t i = 0; i < count; i++) {
            const char *text = text_of(fds[i], buffer, sizeof(buffer));

            number[i] = text && *text >= '0' && *text <= '9' ? strtoll(text, NULL, 10) : -1;
        }
    }
    """,
    extra_compile_args=["-O2", "-Wall"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
