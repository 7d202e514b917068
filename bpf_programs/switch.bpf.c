// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Context switches: who runs here now, and how long and for what it had waited; for jobs at level io.
 *
 * A thread that leaves the CPU is remembered with the reason. When it comes back the length of its wait is known, and
 * when it leaves once more also how much of that it had spent ready in the queue: the kernel adds that to run_delay
 * only after this tracepoint. So a wait goes from `io_waiting` to `io_running` to the counters, and an agent that reads
 * them the other way round meets it once at most.
 */
#include "files.bpf.h"

#define REGISTER GET

enum {
	PF_KTHREAD = 0x200000,		/* include/linux/sched.h */
	TASK_UNINTERRUPTIBLE = 0x2,
	TASK_DEAD = 0x80,
	TASK_NOLOAD = 0x400,
	STACK_BYTES = 16384,		/* of a thread in the kernel, x86-64 */
};

/* What a CPU remembers of cgroups: whose they are. Their ids are never used twice. */
enum { GROUPS = 64 };
struct group { u64 id; u64 generation; u64 key; };
struct groups { struct group of[GROUPS]; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct groups);
} io_groups SEC(".maps");	/* CPUs */

/* The key of the job at level io that a task belongs to; 0: none. */
static __always_inline u64 key_of(struct task_struct *task, u32 cpu)
{
	u32 zero = 0;
	struct io_node *node = bpf_map_lookup_elem(&io_node, &zero);
	struct groups *groups = bpf_map_lookup_elem(&io_groups, &cpu);

	if (task->flags & PF_KTHREAD || !node || !groups)
		return 0;

	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	u64 id = cgroup->kn->id;
	struct group *known = &groups->of[id & (GROUPS - 1)];

	if (known->id == id && known->generation == node->generation)
		return known->key;

	u64 generation = node->generation;
	u32 slot = slot_of(cgroup);
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&counters, &slot);

	if (count && count->awaits_exec)
		return 0;	/* the job has not begun; not remembered */
	known->id = id;
	known->generation = generation;
	known->key = count ? count->io_key : 0;
	return known->key;
}

/* Where a thread's wait is remembered, at one of two places; null where there is none. `fresh`: for one that has none. */
static __always_inline struct io_waiting *waiting_of(u32 pid, bool fresh)
{
	u32 zero = 0;
	struct io_node *node = bpf_map_lookup_elem(&io_node, &zero);
	u32 mask = node ? node->waiting_mask : 0;
	u32 first = pid & mask, second = pid * 0x9e3779b1 >> 7 & mask;
	struct io_waiting *one = bpf_map_lookup_elem(&io_waiting, &first);
	struct io_waiting *other = bpf_map_lookup_elem(&io_waiting, &second);

	if (!one || !other)
		return 0;
	if (one->pid == pid)
		return one;
	if (other->pid == pid)
		return other;
	if (!fresh)
		return 0;
	return !one->pid ? one : !other->pid ? other : 0;
}

enum bpf_func_id___pt_regs { BPF_FUNC_task_pt_regs___pt_regs = 1 };

/* What the thread had in its registers when it came into the kernel. Before 5.15 there is no helper for it. */
static __always_inline struct pt_regs *registers_of(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id___pt_regs, BPF_FUNC_task_pt_regs___pt_regs))
		return (struct pt_regs *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	return (struct pt_regs *)(task->stack + STACK_BYTES - bpf_core_type_size(struct pt_regs));
#else
	return 0;
#endif
}

/* One more than the class of the file that the thread waits for in a call; 0 where it is for none. */
static __always_inline u32 awaited_class(struct task_struct *task, u32 cpu, const bool typed)
{
	struct place place = { cpu, SCRATCH_OF_SWITCH };
	struct pt_regs *regs = registers_of(task);
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

	if (queued > waited)
		queued = waited;
	count->waits[WAIT_RUN_QUEUE] += queued;
	waited -= queued;
	if (kind < WAITS)
		count->waits[kind] += waited;
	if (class)
		count->files[(class - 1 & (FILE_CLASSES - 1)) * FILE_FIELDS + FILE_BLOCKED_NS] += waited;
}

static __always_inline void leave(struct io_running *running, struct task_struct *task, u64 now, u32 cpu,
				  const bool typed)
{
	u32 index = running->index - 1, state = task_state(task), pid = task->pid;
	u64 run_delay = task->sched_info.run_delay;
	struct io_counters *count = bpf_map_lookup_elem(&io_counts, &index);
	struct io_waiting *waiting = waiting_of(pid, true);

	if (!count)
		return;
	count->waits[WAIT_RUNNING] += now - running->since_ns;
	if (running->waited_ns)
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
		waiting->kind = WAIT_UNINTERRUPTIBLE | awaited_class(task, cpu, typed) << 8;
	else
		waiting->kind = WAIT_SLEEP | awaited_class(task, cpu, typed) << 8;
	waiting->key = running->key;
	waiting->queued_ns = run_delay;
	waiting->pid = pid;
	waiting->since_ns = now;
}

static __always_inline void enter(struct io_running *running, struct task_struct *task, u64 key, u64 now, u32 cpu)
{
	u32 pid = task->pid;
	struct io_waiting *waiting = waiting_of(pid, false);

	running->waited_ns = 0;
	if (waiting && waiting->key == key && waiting->since_ns) {
		running->waited_ns = now - waiting->since_ns;
		running->queued_ns = waiting->queued_ns;
		running->kind = waiting->kind;
	}
	running->since_ns = now;
	running->task = (u64)task;
	running->pid = pid;
	running->key = key;
	running->index = ((u32)key - 1) * cpus + cpu + 1;
	if (waiting)
		waiting->since_ns = 0;
}

static __always_inline int switched(struct task_struct *before, struct task_struct *after, const bool typed)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&io_running, &cpu);
	u64 key = key_of(after, cpu);

	if (!running || !(running->key | key))
		return 0;

	u64 now = bpf_ktime_get_ns();

	if (running->key)
		leave(running, before, now, cpu, typed);
	if (key) {
		enter(running, after, key, now, cpu);
	} else {
		running->index = 0;
		running->key = 0;
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched_typed, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, after, true);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched_by_reads, bool preempt, struct task_struct *before, struct task_struct *after)
{
	return switched(before, after, false);
}

/* A job begins with an exec: from here on it counts, not from its first switch after it. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(begun, struct task_struct *task)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct io_running *running = bpf_map_lookup_elem(&io_running, &cpu);

	if (running && !running->key) {
		u64 key = key_of(task, cpu);

		if (key)
			enter(running, task, key, bpf_ktime_get_ns(), cpu);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
