// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Context switches: who runs here now, and how long and for what it had waited; for jobs at level io.
 *
 * A thread that leaves the CPU is remembered with the reason. When it comes back the length of its wait is known, and
 * when it leaves once more also how much of that it had spent ready in the queue: the kernel adds that to run_delay
 * only after this tracepoint. So a wait goes from `jl_io_waiting` to `jl_io_running` to the counters, and an agent that reads
 * them the other way round meets it once at most.
 */
#include "running.bpf.h"

#define REGISTER GET

enum {
	TASK_UNINTERRUPTIBLE = 0x2,	/* include/linux/sched.h */
	TASK_DEAD = 0x80,
	TASK_NOLOAD = 0x400,
};

/* One more than the class of the file that the thread waits for in a call; 0 where it is for none. */
static __always_inline u32 awaited_class(struct task_struct *task, u64 registers, u32 cpu, const bool typed)
{
	struct pt_regs *regs = typed ? CAST(struct pt_regs, registers) : (void *)registers;
	struct place place = { cpu, SCRATCH_OF_SWITCH };
	bool unread;

	if (!regs || IS_32_BIT(regs))
		return 0;
	switch (call_of(CALL_NUMBER(regs)) & 0xf) {
	case READS:
	case WRITES:
	case SPLICES:
	case FD:
		return class_of_fd(task, ARGUMENT_0(regs), place, typed) + 1;
	case COPIES:
		return class_of_fd(task, ARGUMENT_1(regs), place, typed) + 1;
	case SENDS:
	case MESSAGES:
	case SOCKET:
		return FILE_SOCKET + 1;
	case OPENS:
	case PATH:
		return class_of_path(task, AT_FDCWD, ARGUMENT_0(regs), place, typed, &unread) + 1;
	case OPENS_AT:
	case PATH_AT:
		return class_of_path(task, ARGUMENT_0(regs), ARGUMENT_1(regs), place, typed, &unread) + 1;
	}
	return 0;
}

/* The wait before the time on the CPU that ends now. */
static __always_inline void add_wait(struct io_counters *count, struct io_running *running, u64 run_delay)
{
	u64 waited = running->waited_ns, queued = run_delay - running->queued_ns;
	u32 kind = running->kind & 0xff, class = running->kind >> 8;

	count->waits[WAIT_RUN_QUEUE] += queued;
	if (kind == WAIT_RUN_QUEUE)
		return;
	waited = waited > queued ? waited - queued : 0;
	if (kind < WAITS)
		count->waits[kind] += waited;
	if (class)
		count->files[(class - 1 & (FILE_CLASSES - 1)) * FILE_FIELDS + FILE_BLOCKED_NS] += waited;
}

/* As task_state, of the program's own argument: without a helper. */
static __always_inline u32 state_of(struct task_struct *task)
{
	return bpf_core_field_exists(task->__state) ? task->__state : task_state(task);
}

static __always_inline void leave(struct io_running *running, struct task_struct *task, u64 now, u32 cpu,
				  const bool typed)
{
	u32 index = running->index - 1, state = state_of(task), pid = task->pid;
	u64 run_delay = task->sched_info.run_delay;
	struct io_counters *count = bpf_map_lookup_elem(&jl_io_counters, &index);
	struct io_waiting *waiting = waiting_of(pid, true);

	if (!count)
		return;
	if (now > running->since_ns)
		count->waits[WAIT_RUNNING] += now - running->since_ns;
	add_wait(count, running, run_delay);
	if (!waiting) {
		count->uncounted[UNCOUNTED_WAITS] += 1;
		return;
	}
	if (state & TASK_DEAD) {
		waiting->since_ns = 0;
		waiting->pid = 0;
		return;
	}
	if (!state)
		waiting->kind = WAIT_RUN_QUEUE;
	else if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		waiting->kind = WAIT_UNINTERRUPTIBLE | awaited_class(task, running->registers, cpu, typed) << 8;
	else
		waiting->kind = WAIT_SLEEP | awaited_class(task, running->registers, cpu, typed) << 8;
	waiting->key = running->key;
	waiting->queued_ns = run_delay;
	waiting->pid = pid;
	waiting->since_ns = now;
}

static __always_inline int switched(struct task_struct *before, struct task_struct *after, const bool typed)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);
	u64 key = key_of(after, cpu, true);

	if (!running)
		return 0;
	if (running->task != (u64)before && running->task)
		look_again(running, before, cpu, true);
	if (running->key | key) {
		u64 now = time_of_switch(after, running);

		if (running->key)
			leave(running, before, now, cpu, typed);
		enter(running, after, key, now, cpu, true);
	}
	running->task = (u64)after;
	know_registers(running, after);
	return 0;
}

#ifndef BY_READS
SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, after, true);
}

#else
SEC("tp_btf/sched_switch")
int BPF_PROG(jl_switch_rd, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, after, false);
}
#endif

/* A job begins with an exec: from here on it counts, not from its first switch after it. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(jl_io_exec, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&jl_io_running, &cpu);

	if (running && !running->key) {
		enter(running, task, key_of(task, cpu, true), bpf_ktime_get_ns() - running->clock_offset, cpu, true);
		running->task = (u64)task;
		know_registers(running, task);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
