// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* System calls: counted at their end, by class, error and file system, for jobs at level io.
 *
 * Whether the thread that runs here is watched has been decided at the last context switch (switch.bpf.c): for all
 * others this program compares two words and leaves.
 */
#define REGISTER(regs, member) ((regs)->member)	/* they are the program's own argument */

#include "failures.bpf.h"

enum { MAX_ERRNO = 4095 };
enum { MAP_ANONYMOUS = 0x20 };
enum { ERESTARTSYS = 512, ERESTART_RESTARTBLOCK = 516 };

/* What a signal has interrupted is EINTR to the caller, or it is done again without his knowing. */
static __always_inline u32 error_of(u64 number)
{
	if (number < ERRNOS)
		return constants.errors[number];
	return number >= ERESTARTSYS && number <= ERESTART_RESTARTBLOCK ? ERROR_EINTR : ERROR_OTHER;
}

static __always_inline void add_move(struct io_counters *count, u32 class, u32 bytes_field, u64 bytes)
{
	u64 *file = &count->files[(class & (FILE_CLASSES - 1)) * FILE_FIELDS];

	file[bytes_field] += bytes;
	file[bytes_field + FILE_READ_CALLS - FILE_READ_BYTES] += 1;
}

#define ADD_FILE(count, class, field) ((count)->files[((class) & (FILE_CLASSES - 1)) * FILE_FIELDS + (field)] += 1)

static __always_inline void failed(struct io_counters *count, struct task_struct *task, struct pt_regs *regs,
				   long result, u32 kind, struct place place, const bool typed)
{
	bool unread = false;
	u32 class;

	if ((u64)-result >= ERESTARTSYS)
		return;		/* it is done again */
	if (kind == OPENS)
		class = class_of_path(task, AT_FDCWD, ARGUMENT_0(regs), place, typed, &unread);
	else if (kind == OPENS_AT)
		class = class_of_path(task, ARGUMENT_0(regs), ARGUMENT_1(regs), place, typed, &unread);
	else
		return;
	ADD_FILE(count, class, FILE_FAILED_OPENS);
	count->uncounted[UNCOUNTED_PATHS] += unread;
}

static __always_inline void succeeded(struct io_counters *count, struct task_struct *task, struct pt_regs *regs,
				      u64 result, u32 kind, struct place place, const bool typed)
{
	switch (kind) {
	case READS:
		add_move(count, class_of_fd(task, ARGUMENT_0(regs), place, typed), FILE_READ_BYTES, result);
		break;
	case WRITES:
		add_move(count, class_of_fd(task, ARGUMENT_0(regs), place, typed), FILE_WRITE_BYTES, result);
		break;
	case COPIES:
		add_move(count, class_of_fd(task, ARGUMENT_1(regs), place, typed), FILE_READ_BYTES, result);
		add_move(count, class_of_fd(task, ARGUMENT_0(regs), place, typed), FILE_WRITE_BYTES, result);
		break;
	case SPLICES:
		add_move(count, class_of_fd(task, ARGUMENT_0(regs), place, typed), FILE_READ_BYTES, result);
		add_move(count, class_of_fd(task, ARGUMENT_2(regs), place, typed), FILE_WRITE_BYTES, result);
		break;
	case OPENS:
	case OPENS_AT:
		ADD_FILE(count, class_of_fd(task, result, place, typed), FILE_OPENS);
		break;
	}
}

/* A file was mapped: what is read of it is in no call. */
static __always_inline void mapped(struct io_counters *count, struct task_struct *task, struct pt_regs *regs,
				   struct place place, const bool typed)
{
	u32 zero = 0;
	struct io_node *node = bpf_map_lookup_elem(&jl_io_node, &zero);

	if (node && !(ARGUMENT_3(regs) & MAP_ANONYMOUS) &&
	    node->unseen_mapped >> class_of_fd(task, ARGUMENT_4(regs), place, typed) & 1)
		count->uncounted[UNCOUNTED_MAPPED] += 1;
}

static __always_inline void count_call(struct io_running *running, struct pt_regs *regs, long result, u32 cpu,
				       const bool typed)
{
	u32 index = running->index - 1;
	struct io_counters *count = bpf_map_lookup_elem(&jl_io_counters, &index);

	if (!count)
		return;

	u64 number = CALL_NUMBER(regs);
	u32 call = call_of(number);
	u32 kind = call & 0xf;

	if (IS_32_BIT(regs)) {
		call = CALL(CALL_OTHER, NONE);
		kind = NONE;
		count->uncounted[UNCOUNTED_32_BIT] += 1;
	}
	if (kind == FORKS && !result)
		return;	/* the child's side of it */

	u64 *calls = &count->calls[(call >> 4) * CALL_FIELDS];

	calls[CALL_RETURNS] += 1;
	if ((u64)result >= (u64)-MAX_ERRNO) {
		/* after the return from a signal handler the result is that of what had been interrupted */
		if ((s64)number < 0)
			return;
		calls[CALL_ERRORS] += 1;

		u32 error = error_of(-result);

		if (error < ERROR_CLASSES)
			count->errors[error] += 1;
		if (tells(number, kind, -result) && !IS_32_BIT(regs))
			keep_failure((void *)running->task, regs, (u32)running->key - 1, kind, -result);
		if (kind != OPENS && kind != OPENS_AT)
			return;
	}
	if (kind == NONE && (number != NUMBER_MMAP || IS_32_BIT(regs)))
		return;

	struct task_struct *task = typed ? CAST(struct task_struct, running->task) : (void *)running->task;
	struct place place = { cpu, SCRATCH_OF_CALLS };

	if (kind == NONE) {
		mapped(count, task, regs, place, typed);
		return;
	}
	if (result < 0) {
		failed(count, task, regs, result, kind, place, typed);
		return;
	}
	if (kind <= SPLICES || kind == SENDS)
		calls[CALL_BYTES] += result;
	else if (kind == MESSAGES)
		count->uncounted[UNCOUNTED_MESSAGES] += 1;
	else if (kind == AIO)
		count->uncounted[UNCOUNTED_AIO] += 1;
	succeeded(count, task, regs, result, kind, place, typed);
	if (kind == WRITES && (u32)ARGUMENT_0(regs) == STDERR)
		hear((void *)running->task, regs, (u32)running->key - 1, result);
}

enum { LONG_WAIT_NS = 1000000 };

/* Of jobs at level profile, by row: how long calls have waited. */
struct waits_of_job {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__uint(value_size, sizeof(struct call_waits));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct waits_of_job);
} jl_call_waits SEC(".maps");

/* How many bits the number has, up to 21. */
static __always_inline u32 bits_of(u64 number)
{
	u32 left = number < 1 << (WAIT_LENGTHS - 1) ? number : (1 << (WAIT_LENGTHS - 1)) - 1, bits = 0;

	for (u32 step = 16; step; step /= 2) {
		if (left >> step) {
			bits += step;
			left >>= step;
		}
	}
	return bits + left;
}

static __always_inline void keep_length(u32 row, struct pt_regs *regs, u64 ns)
{
	u64 class = IS_32_BIT(regs) ? CALL_OTHER : call_of(CALL_NUMBER(regs)) >> 4;
	u32 zero = 0;
	void *of_job = bpf_map_lookup_elem(&jl_call_waits, &row);
	struct call_waits *kept = of_job ? bpf_map_lookup_elem(of_job, &zero) : 0;

	if (!kept)
		return;

	u64 length = bits_of(ns * SHORTEST_WAIT_DENOMINATOR / SHORTEST_WAIT_NUMERATOR);

	/* clang knows the bounds of both, and takes those away that the verifier of kernels before 6.7 needs */
	barrier_var(length);
	barrier_var(class);
	length &= 31;
	class &= CLASSES_OF_WAITS - 1;

	u64 place = class * 32 + length;

	barrier_var(place);
	if (place < 512)
		kept->waits[place] += 1;
	if (ns < LONG_WAIT_NS)
		kept->short_ns[class] += ns;
	else
		kept->long_ns[class] += ns;
}

/* The call has waited. Level profile is told if that was long: its program goes on in the place of this one. */
static __always_inline void tell_wait(void *ctx, struct io_running *running, struct pt_regs *regs, const bool typed)
{
	struct task_struct *task = typed ? CAST(struct task_struct, running->task) : (void *)running->task;
	u64 waited = running->call_ns - 1, queued = GET(task, sched_info.run_delay) - running->queued_ns;

	running->call_ns = 0;
	if ((running->kind & 0xff) != WAIT_RUN_QUEUE && running->waited_ns > queued)
		waited += running->waited_ns - queued;
	keep_length((u32)running->key - 1, regs, waited);
	if (waited < LONG_WAIT_NS)
		return;

#if !defined(BY_READS) || defined(__TARGET_ARCH_x86)	/* aarch64 before 6.0 refuses a tail call beside functions */
	u32 zero = 0;
	struct ended_wait *ended = bpf_map_lookup_elem(&jl_ended_wait, &zero);

	if (!ended)
		return;
	ended->ns = waited;
	ended->file_class = running->kind >> 8;
	bpf_tail_call(ctx, &jl_at_waits_end, 0);
#endif
}

static __always_inline int call_ended(void *ctx, struct pt_regs *regs, long result, const bool typed)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);

	if (!running)
		return 0;
	if (running->registers != (u64)regs) {
		u64 current = bpf_get_current_task();

		if (running->task != current)
			look_again(running, typed ? CAST(struct task_struct, current) : (void *)current, cpu, typed);
		running->task = current;
		running->registers = (u64)regs;
	}
	if (!running->index)
		return 0;

	count_call(running, regs, result, cpu, typed);
	if (running->call_ns)
		tell_wait(ctx, running, regs, typed);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(jl_io_exit, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);

	if (running && running->index && !task->signal->live.counter)
		forget_failures(task, (u32)running->key - 1);
	return 0;
}

#ifndef BY_READS
SEC("tp_btf/sys_exit")
int BPF_PROG(jl_sys_exit, struct pt_regs *regs, long result)
{
	return call_ended(ctx, regs, result, true);
}

#else
SEC("tp_btf/sys_exit")
int BPF_PROG(jl_sys_exit_rd, struct pt_regs *regs, long result)
{
	return call_ended(ctx, regs, result, false);
}
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";
