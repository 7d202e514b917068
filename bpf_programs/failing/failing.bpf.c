// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Calls that fail, at level basic, where the kernel can run a program at the end of one of its functions (fexit).
 *
 * Sound programs fail at opens all the time, and what a process says of it is not heard at this level. So of common
 * errors those alone are kept that are about a file the process was told of by its arguments, and about a program that
 * was to be executed. A file of that name that is opened later takes its failure back, a program that begins all of them.
 * An open that succeeds pays for a look at its return value and at one word.
 */
#include "failed.bpf.h"

enum { PENDING = 4096, LONGEST_NAME = 64, OPENS_TO_EXECUTE = 0x20 /* include/linux/fs.h: __FMODE_EXEC */ };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u32);		/* slot × FAILING_CONNECTORS + place of the process */
	__type(value, struct failed_calls);
} jl_failed_calls SEC(".maps");

/* A process that is looked at now, before it is known whether to keep it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct failed_calls);
} jl_failing_now SEC(".maps");

/* Processes (tgid) of which something is kept, by the last bits of it. One that has lost its place to another keeps what
 * failed, also if it finds it later. So whoever reads that blames only what failed shortly before the end. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PENDING);
	__type(key, u32);
	__type(value, u32);
} jl_failing SEC(".maps");

static __always_inline u32 key_of(u32 slot, u32 tgid)
{
	return slot * FAILING_CONNECTORS + tgid % FAILING_CONNECTORS;
}

static __always_inline u32 slot_of_current(struct task_struct *task)
{
	return slot_of(BPF_CORE_READ(task, cgroups, dfl_cgrp));
}

static __always_inline bool is_pending(u32 tgid)
{
	u32 at = tgid & (PENDING - 1), *pending = bpf_map_lookup_elem(&jl_failing, &at);

	return pending && *pending == tgid;
}

static __always_inline void set_pending(u32 tgid, u32 value)
{
	u32 at = tgid & (PENDING - 1);

	bpf_map_update_elem(&jl_failing, &at, &value, BPF_ANY);
}

/* 1 where two bytes or hashes are the same, else 0. Without a branch: the verifier follows each of a loop anew. */
static __always_inline u64 same(u64 one, u64 other)
{
	u64 difference = one ^ other;

	barrier_var(difference);
	return (difference - 1) >> 63;
}

/* Of a name, byte by byte: it begins after a slash, a "=" or a NUL. */
static __always_inline u64 hashed(u64 hash, u64 next)
{
	return (hash * 31 + next) * (1 - same(next, '/') - same(next, '=') - same(next, 0)) & 0xffffffff;
}

/* Of the last component of a path of so many bytes, NUL included; 0 where it has none, or one too long to be told. */
static __noinline u32 name_in(struct failed_call *call, u32 length)
{
	char end[LONGEST_NAME] = {};
	u32 start = length > LONGEST_NAME ? length - LONGEST_NAME : 0;
	u64 hash = 0;

	bpf_probe_read_kernel_str(end, sizeof(end), call->path + (start & (FAILURE_PATH_BYTES - 1)));
	for (u32 i = 0; i < LONGEST_NAME; i++) {
		u64 next = (u8)end[i];

		if (!next)
			break;
		hash = hashed(hash, next);
	}
	return hash;
}

/* Whether one of the arguments ends with a component of this name, or with `=` and this name. */
static __noinline int is_told(struct failed_calls *calls, u32 name)
{
	u64 hash = 0, found = 0;
	u32 bytes = calls->told_bytes;

	for (u32 i = 0; i < TOLD_BYTES; i++) {
		u64 next = (u8)calls->told[i];

		if (i >= bytes)
			break;
		found |= same(next, 0) & same(hash, name);
		hash = hashed(hash, next);
	}
	return found | same(hash, name);
}

static __always_inline void read_arguments(struct failed_calls *calls, struct task_struct *task)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	u64 start = BPF_CORE_READ(mm, arg_start), size = BPF_CORE_READ(mm, arg_end) - start;

	if (size > TOLD_BYTES)
		size = TOLD_BYTES;
	calls->told_bytes = bpf_probe_read_user(calls->told, size, (void *)start) ? 0 : size;
}

/* What is kept of the current process; made of `now` where nothing is. */
static __always_inline struct failed_calls *kept(u32 slot, u32 tgid, struct failed_calls *now)
{
	u32 key = key_of(slot, tgid);
	struct failed_calls *calls = bpf_map_lookup_elem(&jl_failed_calls, &key);

	if (calls && calls->tgid == tgid)
		return calls;
	now->tgid = tgid;
	now->common_count = now->rare_count = 0;
	for (int i = 0; i < FAILED_CALLS; i++)
		now->last[i].time_ns = 0;
	if (bpf_map_update_elem(&jl_failed_calls, &key, now, BPF_ANY))
		return 0;
	set_pending(tgid, tgid);
	return bpf_map_lookup_elem(&jl_failed_calls, &key);
}

/* The place of the next failure. */
static __always_inline u32 next_place(struct failed_calls *calls, u32 error)
{
	u32 place = is_common(error) ? calls->common_count++ % COMMON_FAILED_CALLS :
		COMMON_FAILED_CALLS + calls->rare_count++ % (FAILED_CALLS - COMMON_FAILED_CALLS);

	barrier_var(place);
	return place & (FAILED_CALLS - 1);
}

static __noinline int open_failed(struct filename *name, const struct open_flags *how, u32 error)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 slot = slot_of_current(task), tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	struct failed_calls *now = bpf_map_lookup_elem(&jl_failing_now, &zero), *calls;
	bool executes = BPF_CORE_READ(how, open_flag) & OPENS_TO_EXECUTE;

	if (slot == NO_SLOT || !now || error == EAGAIN || (!is_common(error) && !is_rare(error)))
		return 0;

	struct failed_call *call = &now->last[0];
	long length = bpf_probe_read_kernel_str(call->path, FAILURE_PATH_BYTES, BPF_CORE_READ(name, name));

	if (length <= 1 || length > FAILURE_PATH_BYTES || is_catalogue(call->path, length))
		return 0;

	u32 hash = name_in(call, length);

	read_arguments(now, task);
	if (is_common(error) && !executes && !(hash && is_told(now, hash)))
		return 0;
	calls = kept(slot, tgid, now);
	if (!calls)
		return 0;

	u32 place = next_place(calls, error);

	call = &calls->last[place];
	if (bpf_probe_read_kernel(call->path, FAILURE_PATH_BYTES, now->last[0].path))
		return 0;
	calls->names[place] = hash;
	call->subject = executes ? FAILED_PROGRAM : FAILED_PATH;
	call->bytes = length - 1;
	call->error = error;
	call->limit = ~0ULL;
	if (error == ENFILE)
		call->subject = FAILED_DESCRIPTORS;
	call->time_ns = bpf_ktime_get_ns();
	return 0;
}

/* The current process has opened a file after all that it did not get before, or another one of that name. */
static __noinline int open_succeeded(struct filename *name)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	u32 key = key_of(slot_of_current((void *)bpf_get_current_task()), tgid);
	struct failed_calls *calls = bpf_map_lookup_elem(&jl_failed_calls, &key);
	struct failed_calls *now = bpf_map_lookup_elem(&jl_failing_now, &zero);

	if (!calls || !now || calls->tgid != tgid)
		return 0;

	long length = bpf_probe_read_kernel_str(now->last[0].path, FAILURE_PATH_BYTES, BPF_CORE_READ(name, name));
	u32 hash = name_in(&now->last[0], length > 0 ? length : 0);

	for (int i = 0; i < FAILED_CALLS; i++)
		if (calls->names[i] == hash)
			calls->last[i].time_ns = 0;
	return 0;
}

static __always_inline int ends(u64 *context, struct filename *name, const struct open_flags *how, struct file *file)
{
	s64 result = 0;

	if ((u64)file < -4095ULL) {
		if (is_pending(bpf_get_current_pid_tgid() >> 32))
			open_succeeded(name);
		return 0;
	}
	bpf_probe_read_kernel(&result, sizeof(result), context + 3);	/* a number: the verifier takes it for a pointer */
	return open_failed(name, how, -result);
}

SEC("fexit/do_filp_open")
int BPF_PROG(jl_open_end, int folder, struct filename *name, const struct open_flags *how, struct file *file)
{
	return ends(ctx, name, how, file);
}

/* 7.2 */
SEC("fexit/do_file_open")
int BPF_PROG(jl_file_open, int folder, struct filename *name, const struct open_flags *how, struct file *file)
{
	return ends(ctx, name, how, file);
}

/* What failed before was another program's. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(jl_exec_after, struct task_struct *task)
{
	u32 tgid = task->tgid;

	if (is_pending(tgid)) {
		u32 key = key_of(slot_of_task(task), tgid);
		struct failed_calls *calls = bpf_map_lookup_elem(&jl_failed_calls, &key);

		if (calls && calls->tgid == tgid)
			bpf_map_delete_elem(&jl_failed_calls, &key);
		set_pending(tgid, 0);
	}
	return 0;
}

static __noinline int map_failed(u64 asked)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 slot = slot_of_current(task), tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	struct failed_calls *now = bpf_map_lookup_elem(&jl_failing_now, &zero), *calls;

	if (slot == NO_SLOT || !now)
		return 0;
	now->told_bytes = 0;
	calls = kept(slot, tgid, now);
	if (!calls)
		return 0;

	u32 place = next_place(calls, ENOMEM);
	struct failed_call *call = &calls->last[place];

	keep_limit(call, task, FAILED_MEMORY, RLIMIT_AS, asked);
	calls->names[place] = 0;
	call->error = ENOMEM;
	call->time_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fexit/vm_mmap_pgoff")
int BPF_PROG(jl_map_end, struct file *file, unsigned long address, unsigned long length, unsigned long protection,
	     unsigned long flags, unsigned long offset, unsigned long result)
{
	return result == (u64)-ENOMEM ? map_failed(length) : 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
