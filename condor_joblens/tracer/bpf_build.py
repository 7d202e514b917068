"""Builds `_bpf`: the part of libbpf that the tracer calls, the layouts of the maps, and what reads the rings.

Only what orders many calls or runs per event is C of ours; everything else is libbpf's own interface.
"""

import re
from pathlib import Path

from cffi import FFI

PARTS = [Path(__file__).resolve().with_name(name) for name in ("ring.h", "hits.h", "drain.h", "records.h", "io_sums.h")]
PROGRAMS = Path(__file__).resolve().parents[2] / "bpf_programs"
HEADERS = [PROGRAMS / "lib" / "joblens.h", *sorted(PROGRAMS.glob("*/joblens_*.h"))]

KERNEL_TYPES = """
typedef int __s32; typedef unsigned int __u32; typedef unsigned long long __u64; typedef long long __s64;
typedef unsigned short __u16; typedef unsigned char __u8;
"""

RECORDS = """
enum { LONG_RUN = 20 }; /* so many letters and digits on end ask for a closer look */
enum record_kind { RECORD_EXEC = 3, RECORD_EXIT, RECORD_OOM };
enum record_mark {
    MARK_PROGRAM = 1, /* its name asks for a closer look */
    MARK_TEXT = 2,  /* its text does, and is not filled */
    MARK_NAME = 4,  /* it gets the name of its script */
    MARK_ENDED = 8,  /* it belongs to what tells why a run died */
    MARK_CHOICE = 16, /* of the OOM killer: its memory is not filled */
};

/* A record of the ring of events (model/events.py). */
struct event_record {
    __u64 sequence;
    double time;
    __u64 run_number;
    __u32 kind;
    __s32 pid;
    __s32 parent_pid;
    __s32 exit_code;
    __s64 value;
    __s64 limit;
    double lived_seconds;
    char program[32];
    char text[160];
};

struct record_marks { __u32 event; __u32 mark; };

struct record_facts {
    const __u64 *run_numbers; /* one an event; 0: it has no run, and gets no record */
    const __u16 *scan;
    __u64 marked; /* out: of how many records a mark is set */
    double epoch;   /* the time at which CLOCK_MONOTONIC was 0 */
};

/* The maps of level io, which the kernel writes meanwhile. */
struct io_tables {
    const struct io_counters *counts; /* one a job and CPU */
    const struct io_uring_counters *uring; /* one a job; NULL: not there */
    const struct io_running *running; /* one a CPU */
    const struct io_waiting *waiting;
    __u32 max_jobs;
    __u32 cpus;
    __u32 threads; /* that can wait */
    __s64 clock_offset; /* what CLOCK_MONOTONIC is ahead of the scheduler's clock, as far as it is known */
};
"""

LIBBPF = """
struct bpf_object; struct bpf_program; struct bpf_map; struct bpf_link;

struct bpf_object *open_object(const char *path, const char *name, const char *types);
int bpf_object__load(struct bpf_object *object);
void bpf_object__close(struct bpf_object *object);
struct bpf_program *bpf_object__next_program(const struct bpf_object *object, struct bpf_program *previous);
struct bpf_map *bpf_object__next_map(const struct bpf_object *object, const struct bpf_map *previous);

const char *bpf_program__name(const struct bpf_program *program);
int bpf_program__fd(const struct bpf_program *program);
enum bpf_prog_type { BPF_PROG_TYPE_RAW_TRACEPOINT, BPF_PROG_TYPE_KPROBE, ... };
enum bpf_prog_type bpf_program__type(const struct bpf_program *program);
int bpf_program__set_autoload(struct bpf_program *program, bool autoload);
int bpf_program__set_expected_attach_type(struct bpf_program *program, int type);
struct bpf_link *bpf_program__attach(const struct bpf_program *program);
struct bpf_link *bpf_program__attach_iter(const struct bpf_program *program, const void *options);

const char *bpf_map__name(const struct bpf_map *map);
int bpf_map__fd(const struct bpf_map *map);
int bpf_map__set_max_entries(struct bpf_map *map, __u32 entries);
int bpf_map__reuse_fd(struct bpf_map *map, int fd);
void *bpf_map__initial_value(struct bpf_map *map, size_t *size);

int bpf_link__fd(const struct bpf_link *link);
int bpf_link__pin(struct bpf_link *link, const char *path);
int bpf_link__destroy(struct bpf_link *link);
int bpf_iter_create(int link_fd);

int bpf_obj_pin(int fd, const char *path);
int bpf_obj_get(const char *path);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_map_get_next_key(int fd, const void *key, void *next);
int bpf_map_lookup_and_delete_elem(int fd, const void *key, void *value);

/* ours */
struct ring;
struct ring *map_ring(int map_fd);
struct ring *map_ring_for(int map_fd, size_t pages);
enum { THROW_PAGES = ... };
size_t take_events(struct ring *ring, struct event *events, size_t room);
void unmap_ring(struct ring *ring);
struct drain;
struct drain *open_drain(int map_fd, struct process_event *events, size_t room);
size_t drain_events(struct drain *drain);
void close_drain(struct drain *drain);
int sum_io(struct io_tables *from, const uint64_t *keys, size_t count, struct io_counters *sums);
size_t make_records(const struct process_event *events, size_t count, struct record_facts *facts,
    struct event_record *to, struct record_marks *marks);
int run_iterator(int link_fd);
int open_cpu_clock(int cpu, unsigned hz);
int bpf_raw_tracepoint_open(const char *name, int program);
int run_at_clock(int program, int clock);
int attach_to_functions(int program, const char *path, const uint64_t *offsets, const uint64_t *cookies, uint32_t count,
    uint32_t pid);
void pass_all(struct ring *ring);
size_t take_hits(struct traced_ring *told, struct traced_texts *hits, size_t room);
size_t take_throws(struct ring *ring, struct traced_throw *throws, size_t room);
size_t take_commands(struct ring *ring, struct traced_command *commands, size_t room);
uintptr_t trial_address(void);
uint64_t run_trial(uint32_t times);
enum inner_flags { ROWS_FLAGS = ..., MAPPINGS_FLAGS = ... };
enum bpf_map_type { BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PERCPU_ARRAY, ... };
int new_array(uint32_t type, const char *name, uint32_t value_bytes, uint32_t entries, uint32_t flags);
int new_task_storage(const char *name, uint32_t value_bytes);
int fill_array(int map_fd, const void *values, uint32_t count);
enum bpf_stats_type { BPF_STATS_RUN_TIME, ... };
int bpf_enable_stats(enum bpf_stats_type type);
int64_t recursion_misses(const int *programs, size_t count);
int64_t program_run_ns(int program_fd, uint64_t *runs);
int64_t read_map(int map_fd, void *keys, size_t key_bytes, void *values, size_t value_bytes, uint32_t room);
int64_t delete_keys(int map_fd, const void *keys, size_t key_bytes, uint32_t count);
void change_inner_maps(int map_fd, const void *keys, size_t key_bytes, const uint32_t *inner, uint32_t count);
void full_barrier(void);
const char *last_messages(void);
void begin_messages(void);
"""

INCLUDES = """
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/perf_event.h>
#include <linux/types.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
""" + "".join(f'#include "{header.name}"\n' for header in HEADERS)

SOURCE = """
/* What libbpf says: only shown where something fails, and then its end is what tells. */
static char messages[1 << 16];
static size_t messages_used;

static int keep_message(enum libbpf_print_level level, const char *format, va_list arguments)
{
	int added;

	if (level == LIBBPF_DEBUG)
		return 0;
	if (messages_used > sizeof(messages) / 2) {
		memmove(messages, messages + sizeof(messages) / 4, messages_used - sizeof(messages) / 4 + 1);
		messages_used -= sizeof(messages) / 4;
	}
	added = vsnprintf(messages + messages_used, sizeof(messages) - messages_used, format, arguments);
	if (added > 0) {
		messages_used += added;
		if (messages_used >= sizeof(messages))
			messages_used = sizeof(messages) - 1;
	}
	return added;
}

static void begin_messages(void)
{
	messages_used = 0;
	messages[0] = 0;
	libbpf_set_print(keep_message);
}

static const char *last_messages(void) { return messages; }

/* What was stored before is seen by all CPUs before what is stored after: aarch64 may swap two stores. */
static void full_barrier(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* The kernel shows an object's .rodata under the object's name. `types` is a file of BTF; NULL: the kernel's own. */
static struct bpf_object *open_object(const char *path, const char *name, const char *types)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name, .btf_custom_path = types);

	return bpf_object__open_file(path, &options);
}

/* Runs an iterator program once over everything; its output is in maps. Returns 0 or -errno. */
static int run_iterator(int link_fd)
{
	char nothing[64];
	int fd = bpf_iter_create(link_fd);
	ssize_t got;

	if (fd < 0)
		return -errno;
	do
		got = read(fd, nothing, sizeof(nothing));
	while (got > 0 || (got < 0 && errno == EAGAIN));
	got = got < 0 ? -errno : 0;
	close(fd);
	return (int)got;
}

/* A clock on one CPU that fires so often, whoever runs there; its descriptor, or -errno. */
static int open_cpu_clock(int cpu, unsigned hz)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(attributes), .config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_freq = hz, .freq = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* The program is the clock's own, and goes with its last descriptor. Returns another one, or -errno. */
static int give_to_clock(int program, int clock)
{
	int fd;

	if (ioctl(clock, PERF_EVENT_IOC_SET_BPF, program))
		return -errno;
	fd = fcntl(clock, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* The program runs whenever the clock fires, as long as the descriptor is open that this returns; -errno. */
static int run_at_clock(int program, int clock)
{
	int fd = bpf_link_create(program, clock, BPF_PERF_EVENT, NULL);

	if (fd < 0 && errno == EINVAL)	/* before Linux 5.15 there is no such link */
		return give_to_clock(program, clock);
	return fd < 0 ? -errno : fd;
}

/* Of Linux 6.6, which the headers of libbpf 1.1 do not know. */
enum { ATTACH_UPROBES = 48 };

/* Probes at offsets of a file, in one process alone; the descriptor of their link, or -errno. */
static int attach_to_functions(int program, const char *path, const uint64_t *offsets, const uint64_t *cookies,
	uint32_t count, uint32_t pid)
{
	struct {
		__u32 program, target, type, flags;
		__u64 path, offsets, counters, cookies;
		__u32 count, probe_flags, pid, unused;
	} attributes = {
		.program = program, .type = ATTACH_UPROBES, .path = (uintptr_t)path, .offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies, .count = count, .pid = pid,
	};
	int fd = syscall(SYS_bpf, BPF_LINK_CREATE, &attributes, sizeof(attributes));

	return fd < 0 ? -errno : fd;
}

/* What a trial of probes calls. */
static __attribute__((noinline)) void trial_function(void)
{
	__asm__ volatile("");
}

static uintptr_t trial_address(void) { return (uintptr_t)trial_function; }

/* The CPU time of this thread that so many calls take: ns. */
static uint64_t run_trial(uint32_t times)
{
	struct timespec began, ended;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	for (uint32_t i = 0; i < times; i++)
		trial_function();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	return (ended.tv_sec - began.tv_sec) * 1000000000ULL + ended.tv_nsec - began.tv_nsec;
}

/* Flags of the inner maps, as in profile/unwind.bpf.h. */
enum inner_flags { ROWS_FLAGS = BPF_F_INNER_MAP | BPF_F_MMAPABLE, MAPPINGS_FLAGS = BPF_F_INNER_MAP };

/* A new array; its descriptor, or -errno. */
static int new_array(uint32_t type, const char *name, uint32_t value_bytes, uint32_t entries, uint32_t flags)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = flags);
	int fd = bpf_map_create(type, name, sizeof(uint32_t), value_bytes, entries, &options);

	return fd < 0 ? -errno : fd;
}

/* A new map of what belongs to each task; its descriptor, or -errno. The kernel wants to know its types. */
static int new_task_storage(const char *name, uint32_t value_bytes)
{
	struct btf *types = btf__new_empty();
	int key = btf__add_int(types, "int", 4, BTF_INT_SIGNED), byte = btf__add_int(types, "char", 1, 0);
	int value = btf__add_array(types, key, byte, value_bytes), result;

	if (value < 0 || (result = btf__load_into_kernel(types))) {
		result = value < 0 ? value : result;
	} else {
		LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_NO_PREALLOC);
		options.btf_fd = btf__fd(types);
		options.btf_key_type_id = key;
		options.btf_value_type_id = value;
		result = bpf_map_create(BPF_MAP_TYPE_TASK_STORAGE, name, sizeof(int), value_bytes, 0, &options);
		result = result < 0 ? -errno : result;
	}
	btf__free(types);
	return result;
}

/* Writes the first elements of an array, which lie one after the other; 0 or -errno. */
static int fill_array(int map_fd, const void *values, uint32_t count)
{
	uint32_t *keys = malloc(count * sizeof(*keys)), done = count;
	int result;

	if (!keys)
		return -ENOMEM;
	for (uint32_t key = 0; key < count; key++)
		keys[key] = key;
	result = bpf_map_update_batch(map_fd, keys, values, &done, NULL) ? -errno : 0;
	free(keys);
	return result;
}

static int program_info(int fd, struct bpf_prog_info *info)
{
	__u32 size = sizeof(*info);

	memset(info, 0, sizeof(*info));
	return bpf_obj_get_info_by_fd(fd, info, &size);
}

/* How often these programs could not run because they already ran on that CPU; one that can't be asked counts 0. */
static int64_t recursion_misses(const int *programs, size_t count)
{
	struct bpf_prog_info info;
	int64_t missed = 0;

	for (size_t i = 0; i < count; i++)
		if (program_info(programs[i], &info) == 0)
			missed += (int64_t)info.recursion_misses;
	return missed;
}

/* Time the program has run and how often, while kernel.bpf_stats_enabled is 1; -1 where this can't be asked. */
static int64_t program_run_ns(int program_fd, uint64_t *runs)
{
	struct bpf_prog_info info;

	if (program_info(program_fd, &info))
		return -1;
	*runs = info.run_cnt;
	return (int64_t)info.run_time_ns;
}

/* Copies the entries of a hash map, at most `room` of them; returns how many, or -errno. */
static int64_t read_map(int map_fd, void *keys, size_t key_bytes, void *values, size_t value_bytes, uint32_t room)
{
	__u32 position = 0, done = 0, count;
	void *from = NULL;

	while (done < room) {
		count = room - done;
		void *next_keys = (char *)keys + done * key_bytes, *next_values = (char *)values + done * value_bytes;

		if (bpf_map_lookup_batch(map_fd, from, &position, next_keys, next_values, &count, NULL) == 0) {
			done += count;
			from = &position;
		} else if (errno == ENOENT) {	/* these were the last */
			return done + count;
		} else {
			/* ENOSPC: what is left has no room */
			return errno == ENOSPC ? (int64_t)done : -errno;
		}
	}
	return done;
}

/* Takes entries out of a hash map; returns how many of them were there. */
static int64_t delete_keys(int map_fd, const void *keys, size_t key_bytes, uint32_t count)
{
	int64_t deleted = 0;

	for (__u32 i = 0; i < count; i++)
		deleted += bpf_map_delete_elem(map_fd, (const char *)keys + i * key_bytes) == 0;
	return deleted;
}

static int change_inner_map(int map_fd, const void *key, const uint32_t *inner)
{
	return inner ? bpf_map_update_elem(map_fd, key, inner, 0) : bpf_map_delete_elem(map_fd, key);
}

/* Puts maps (descriptors) under keys of a map of maps, or takes out what is there (NULL). What the kernel refuses is
 * left out. For each call it waits until no program is at work on what was there: so it is one for all, if it can. */
static void change_inner_maps(int map_fd, const void *keys, size_t key_bytes, const uint32_t *inner, uint32_t count)
{
	uint32_t at = 0;

	while (at < count) {
		const char *key = (const char *)keys + at * key_bytes;
		const uint32_t *these = inner ? inner + at : NULL;
		uint32_t done = count - at;

		/* on an error `done` is how many it took before the one that it refuses, which is left out */
		if (count - at > 1 && (these ? bpf_map_update_batch(map_fd, key, these, &done, NULL) :
			bpf_map_delete_batch(map_fd, key, &done, NULL)) == 0)
			return;
		if (done >= count - at)	/* it took none of them together: before Linux 6.1 */
			done = 0;
		if (!done)
			change_inner_map(map_fd, key, these);
		at += done + 1;
	}
}
"""


def plain_declarations(header: str) -> str:
    """A header of ours without preprocessor lines: what cffi can read."""
    return "\n".join(line for line in header.splitlines() if not re.match(r"\s*#", line))


ffi = FFI()
ffi.cdef(KERNEL_TYPES + "".join(plain_declarations(header.read_text()) for header in HEADERS) + RECORDS + LIBBPF)
ffi.set_source(
    "condor_joblens.tracer._bpf",
    INCLUDES + SOURCE + RECORDS + "".join(path.read_text() for path in PARTS),
    include_dirs=[str(header.parent) for header in HEADERS],
    libraries=["bpf"],
    extra_compile_args=["-O2", "-Wall", "-Wno-unused-function", "-Wno-discarded-qualifiers"],
    py_limited_api=True,
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
