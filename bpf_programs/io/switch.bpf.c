// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Context switches: who runs here now, and how long and for what it had waited; for jobs at level io.
 *
 * A thread that leaves the CPU is remembered with the reason. When it comes back the length of its wait is known, and
 * when it leaves once more also how much of that it had spent ready in the queue: the kernel adds that to run_delay
 * only after this tracepoint. So a wait goes from `jl_io_waiting` to `jl_io_running` to the counters, and an agent that reads
 * them the other way round meets it once at most.
 *
 * A thread that sleeps when its job comes to level io has not been seen to leave. An iterator finds it, and what it
 * waits in; the time is counted from there on, as all else at that level is.
 */
#include "running.bpf.h"

#define REGISTER GET

enum {
	TASK_UNINTERRUPTIBLE = 0x2,	/* include/linux/sched.h */
	TASK_DEAD = 0x80,
	TASK_NOLOAD = 0x400,
};

/* Where `class` has none: what the thread waits in is about no file. */
enum { NO_CLASS = -1 };

/* Those of fcntl (include/uapi/asm-generic/fcntl.h) and flock that wait for a lock, or do not. */
enum { F_SETLKW = 7, F_OFD_SETLKW = 38, LOCK_NB = 4, LOCK_UN = 8 };

static __always_inline bool takes_lock(u64 number, u32 operation)
{
	if (number == NUMBER_FCNTL)
		return operation == F_SETLKW || operation == F_OFD_SETLKW;
	return number == NUMBER_FLOCK && !(operation & (LOCK_NB | LOCK_UN));
}

/* The class of the file that the thread waits for in a call, FILE_LOCK, or NO_CLASS. `leaves`: it is on its way off this CPU, so
 * that its memory can be read; else it sleeps, and a path is where it looks for it. `in_call`: whether it waits in a
 * call at all, and not in a page fault. False: that can't be known. */
static __always_inline bool awaited_class(struct task_struct *task, u64 registers, struct place place,
					  const bool leaves, const bool typed, u32 *class, bool *in_call)
{
	struct pt_regs *regs = typed ? CAST(struct pt_regs, registers) : (void *)registers;
	u64 number = regs ? CALL_NUMBER(regs) : -1;
	u32 kind = regs && !IS_32_BIT(regs) ? call_of(number) & 0xf : NONE;
	bool unread;

	*class = NO_CLASS;
	*in_call = (s32)number >= 0;
	switch (kind) {
	case READS:
	case WRITES:
	case SPLICES:
		*class = class_of_fd(task, ARGUMENT_0(regs), place, typed);
		break;
	case FD:
		*class = takes_lock(number, ARGUMENT_1(regs)) ? (u32)FILE_LOCK :
			 class_of_fd(task, ARGUMENT_0(regs), place, typed);
		break;
	case COPIES:
		*class = class_of_fd(task, ARGUMENT_1(regs), place, typed);
		break;
	case SENDS:
	case MESSAGES:
	case SOCKET:
		*class = FILE_SOCKET;
		break;
	case OPENS:
	case PATH:
		if (opens_fifo(task)) {
			*class = FILE_PIPE;
			break;
		}
		if (!leaves)
			return class_of_walk(task, place, class);
		*class = class_of_path(task, AT_FDCWD, ARGUMENT_0(regs), place, typed, &unread);
		break;
	case OPENS_AT:
	case PATH_AT:
		if (opens_fifo(task)) {
			*class = FILE_PIPE;
			break;
		}
		if (!leaves)
			return class_of_walk(task, place, class);
		*class = class_of_path(task, ARGUMENT_0(regs), ARGUMENT_1(regs), place, typed, &unread);
	}
	return true;
}

/* The wait before the time on the CPU that ends now; how long it was. */
static __always_inline u64 add_wait(struct io_counters *count, struct io_running *running, u64 run_delay)
{
	u64 waited = running->waited_ns, queued = run_delay - running->queued_ns;
	u32 kind = running->kind & 0xff, class = running->kind >> 8;

	count->waits[WAIT_RUN_QUEUE] += queued;
	if (kind == WAIT_RUN_QUEUE)
		return 0;
	waited = waited > queued ? waited - queued : 0;
	if (kind < WAITS)
		count->waits[kind] += waited;
	if (class == FILE_LOCK + 1)
		count->file_lock_ns += waited;
	else if (class)
		count->files[(class - 1 & (FILE_CLASSES - 1)) * FILE_FIELDS + FILE_BLOCKED_NS] += waited;
	return waited;
}

/* As task_state, of the program's own argument: without a helper. */
static __always_inline u32 state_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->__state) ? task->__state : task_state(task);
}

/* What io_waiting.kind says of a thread that waits; it is not ready to run. */
static __always_inline u32 kind_of_wait(u32 state, u32 class)
{
	u32 kind = state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD) ? WAIT_UNINTERRUPTIBLE : WAIT_SLEEP;

	return kind | (class + 1) << 8;
}

static __always_inline void leave(struct io_running *running, struct task_struct *task, u32 state, u64 now, u32 cpu,
				  const bool typed)
{
	struct place place = { cpu, SCRATCH_OF_SWITCH };
	u32 index = running->index - 1, pid = task->pid, class;
	u64 run_delay = task->sched_info.run_delay, call_ns, waited;
	bool in_call;
	struct io_counters *count = bpf_map_lookup_elem(&jl_io_counters, &index);
	struct io_waiting *waiting = waiting_of(pid, true);

	if (!count)
		return;
	if (now > running->since_ns)
		count->waits[WAIT_RUNNING] += now - running->since_ns;
	waited = add_wait(count, running, run_delay);
	call_ns = running->call_ns ? running->call_ns + waited : 0;
	if (!waiting) {
		count->uncounted[UNCOUNTED_WAITS] += 1;
		return;
	}
	if (state & TASK_DEAD) {
		waiting->since_ns = 0;
		waiting->pid = 0;
		return;
	}
	if (!state) {
		waiting->kind = WAIT_RUN_QUEUE;
	} else {
		awaited_class(task, running->registers, place, true, typed, &class, &in_call);
		waiting->kind = kind_of_wait(state, class);
		call_ns = !in_call ? 0 : call_ns ? call_ns : 1;
	}
	waiting->call_ns = call_ns;
	waiting->key = running->key;
	waiting->queued_ns = run_delay;
	waiting->pid = pid;
	waiting->since_ns = now;
}

/* As look_again: from here on calls and waits on this CPU are this thread's, by its own registers. */
static __always_inline void know_again(struct io_running *running, struct task_struct *task, u32 cpu)
{
	look_again(running, task, cpu, true);
	running->task = (u64)task;
	know_registers(running, task);
}

static __always_inline int switched(struct task_struct *before, u32 state, struct task_struct *after, const bool typed)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);
	u64 key = key_of(after, cpu, true);

	if (!running)
		return 0;
	if (running->task != (u64)before && running->task)
		know_again(running, before, cpu);
	/* threads that are found asleep need this CPU's clock, whoever runs here */
	if (running->key | key || (has_scheduler_clock() && running->clock_looks < CLOCK_LOOKS)) {
		u64 now = time_of_switch(after, running);

		if (running->key)
			leave(running, before, state, now, cpu, typed);
		enter(running, after, key, now, cpu, true);
	}
	running->task = (u64)after;
	know_registers(running, after);
	return 0;
}

#ifndef BY_READS
/* Since 5.18 the kernel tells the state in which the thread leaves. What the thread says of it can be another by now:
 * who wakes it up on another CPU sets that without waiting for this one. */
SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch, bool preempt, struct task_struct *before, struct task_struct *after, unsigned int state)
{
	return switched(before, state, after, true);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch_5_17, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, state_of(before), after, true);
}

#else
SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch_rd, bool preempt, struct task_struct *before, struct task_struct *after, unsigned int state)
{
	return switched(before, state, after, false);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch_rd517, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, state_of(before), after, false);
}
#endif

/* A thread of a job that has just come to level io, if it sleeps: its wait begins now. */
static __always_inline void find_asleep(struct task_struct *task, const bool typed)
{
	struct place place = { bpf_get_smp_processor_id(), SCRATCH_OF_SLEEPERS };
	u32 slot = slot_of_task(task), state = task_state(task), class;
	bool in_call;
	struct slot_counters *slot_count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &place.cpu);
	u64 key = slot_count ? slot_count->io_key : 0;

	if (!key || is_init_apart(slot_count, task->tgid))
		return;
	if (!running || !state || state & TASK_DEAD || task->on_cpu || task->flags & PF_KTHREAD)
		return;

	u32 index = ((u32)key - 1) * constants.cpus + place.cpu;
	struct io_counters *count = bpf_map_lookup_elem(&jl_io_counters, &index);
	struct io_waiting *waiting = waiting_of(task->pid, true);

	if (!count)
		return;
	if (!waiting) {
		count->uncounted[UNCOUNTED_WAITS] += 1;
		return;
	}
	if (waiting->pid == task->pid && waiting->key == key)
		return;		/* it has been seen to leave */
	if (!awaited_class(task, registers_of(task), place, false, typed, &class, &in_call))
		count->uncounted[UNCOUNTED_SLEEPERS] += 1;
	waiting->kind = kind_of_wait(state, class);
	waiting->call_ns = in_call;
	waiting->key = key;
	waiting->queued_ns = task->sched_info.run_delay;
	waiting->pid = task->pid;
	waiting->since_ns = bpf_ktime_get_ns() - running->clock_offset;
	barrier();
	/* it has been woken meanwhile, and who saw that found nothing here to end */
	if (!task_state(task) || task->on_cpu)
		waiting->since_ns = 0;
}

SEC("iter/task")
int jl_io_asleep(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

#ifndef BY_READS
	if (task)
		find_asleep(task, true);
#else
	if (task)
		find_asleep(task, false);
#endif
	return 0;
}

/* Whether the job has begun with this exec, of which basic's program has just heard. */
static __always_inline bool has_just_begun(struct task_struct *task)
{
	u32 slot = slot_of_task(task);
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	return count && count->job.executed <= 1;
}

/* A job begins with an exec: from here on it counts, not from its first switch after it. If the switch to a thread that
 * was counted before was hidden from us, it still counts from then on. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(jl_io_exec, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);

	if (!running)
		return 0;
	if (running->task != (u64)task && !has_just_begun(task)) {
		know_again(running, task, cpu);
	} else if (!running->key) {
		enter(running, task, key_of(task, cpu, true), bpf_ktime_get_ns() - running->clock_offset, cpu, true);
		running->task = (u64)task;
		know_registers(running, task);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
