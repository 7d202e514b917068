/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Whose thread runs on this CPU: decided at the context switch, kept in `jl_io_running`. */
#ifndef JOBLENS_RUNNING_BPF_H
#define JOBLENS_RUNNING_BPF_H

#include "files.bpf.h"

enum {
	PF_KTHREAD = 0x200000,		/* include/linux/sched.h */
	STACK_BYTES = 16384,		/* of a thread in the kernel, x86-64 */
};

/* What a CPU remembers of cgroups: whose they are. Their ids are never used twice. */
enum { GROUPS = 64 };
struct group { u64 id; u64 generation; u64 key; u32 slot; u32 init_tgid; };
struct groups { struct group of[GROUPS]; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct groups);
} jl_io_cgroups SEC(".maps");	/* CPUs */

/* HTCondor's own first process of a job is none of its threads, unless the programs of basic count it with them. */
static __always_inline bool is_init_apart(struct slot_counters *count, u32 tgid)
{
	return count->init_apart && count->init_tgid == tgid;
}

/* The key of a remembered cgroup for this process. */
static __always_inline u64 known_key(struct group *known, u32 tgid)
{
	struct slot_counters *count;
	u32 slot = known->slot;

	if (!known->init_tgid || known->init_tgid != tgid)
		return known->key;
	count = bpf_map_lookup_elem(&jl_counters, &slot);
	return count && is_init_apart(count, tgid) ? 0 : known->key;
}

/* The key of the job at level io that a task belongs to; 0: none. */
static __always_inline u64 key_of(struct task_struct *task, u32 cpu, const bool typed)
{
	u32 zero = 0;
	struct io_node *node = bpf_map_lookup_elem(&jl_io_node, &zero);
	struct groups *groups = bpf_map_lookup_elem(&jl_io_cgroups, &cpu);

	if (!node || !groups || GET(task, flags) & PF_KTHREAD)
		return 0;

	struct css_set *set = GET(task, cgroups);
	struct cgroup *cgroup = GET(set, dfl_cgrp);
	struct kernfs_node *folder = GET(cgroup, kn);
	u64 id = GET(folder, id);
	struct group *known = &groups->of[id & (GROUPS - 1)];

	if (known->id == id && known->generation == node->generation)
		return known_key(known, GET(task, tgid));

	u64 generation = node->generation;
	u32 slot = slot_of(cgroup);
	struct slot_counters *count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	if (count && count->awaits_exec)
		return 0;	/* the job has not begun; not remembered */
	known->id = id;
	known->generation = generation;
	known->key = count ? count->io_key : 0;
	known->slot = slot;
	known->init_tgid = count ? count->init_tgid : 0;
	return known_key(known, GET(task, tgid));
}

/* Where a thread's wait is remembered, at one of two places; null where there is none. `fresh`: for one that has none. */
static __always_inline struct io_waiting *waiting_of(u32 pid, bool fresh)
{
	u32 zero = 0;
	struct io_node *node = bpf_map_lookup_elem(&jl_io_node, &zero);
	u32 mask = node ? node->waiting_mask : 0;
	u32 first = pid & mask, second = pid * 0x9e3779b1 >> 7 & mask;
	struct io_waiting *one = bpf_map_lookup_elem(&jl_io_waiting, &first), *other;

	if (one && one->pid == pid)
		return one;
	other = bpf_map_lookup_elem(&jl_io_waiting, &second);
	if (!one || !other)
		return 0;
	if (other->pid == pid)
		return other;
	if (!fresh)
		return 0;
	return !one->pid ? one : !other->pid ? other : 0;
}

enum bpf_func_id___pt_regs { BPF_FUNC_task_pt_regs___pt_regs = 1 };

/* Remembers where the thread's registers are, as they were when it came into the kernel: by its stack, above whose
 * beginning they lie as far in all threads. That is asked once: the helper takes 25 ns, and before 5.15 there is none.
 *
 * All by way of memory: of what it reads from there alone the kernel knows no pointer, with which it allows no arithmetic. */
static __always_inline void know_registers(struct io_running *running, struct task_struct *task)
{
	running->registers = (u64)task->stack;
	barrier();

	u64 stack = running->registers;

	if (!running->registers_place) {
		if (bpf_core_enum_value_exists(enum bpf_func_id___pt_regs, BPF_FUNC_task_pt_regs___pt_regs)) {
			running->registers_place = (u64)bpf_task_pt_regs(task);
			barrier();
			running->registers_place -= stack;
		}
#if defined(__TARGET_ARCH_x86)
		else
			running->registers_place = STACK_BYTES - bpf_core_type_size(struct pt_regs);
#endif
	}
	running->registers = running->registers_place ? stack + running->registers_place : 0;
}

/* As above, of any thread, by a helper. */
static __always_inline u64 registers_of(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id___pt_regs, BPF_FUNC_task_pt_regs___pt_regs))
		return (u64)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	return (u64)task->stack + STACK_BYTES - bpf_core_type_size(struct pt_regs);
#else
	return 0;
#endif
}

static __always_inline bool has_scheduler_clock(void)
{
	return bpf_core_field_exists(struct sched_entity, cfs_rq) && bpf_core_field_exists(struct rq, clock);
}

/* The scheduler's clock as it is at this switch: it has just been read, and reading one anew costs up to 100 ns.
 *
 * A virtual CPU can stand still between that reading and ours, which makes the offset too large: the least of some looks. */
static __always_inline u64 time_of_switch(struct task_struct *after, struct io_running *running)
{
	if (!has_scheduler_clock())
		return bpf_ktime_get_ns();

	u64 now = after->se.cfs_rq->rq->clock;

	if (running->clock_looks < CLOCK_LOOKS) {
		u64 offset = bpf_ktime_get_ns() - now;

		if (!running->clock_looks || (s64)(offset - running->clock_offset) < 0)
			running->clock_offset = offset;
		running->clock_looks += 1;
	}
	return now;
}

/* A thread comes onto the CPU, and is watched if it has a key. */
static __always_inline void enter(struct io_running *running, struct task_struct *task, u64 key, u64 now, u32 cpu,
				  const bool typed)
{
	u32 pid = GET(task, pid);
	struct io_waiting *waiting = key ? waiting_of(pid, false) : 0;

	running->key = 0;
	running->index = 0;
	barrier();
	if (!key)
		return;
	/* of a thread that is new only how long it queues is known */
	running->waited_ns = running->call_ns = 0;
	running->queued_ns = GET(task, sched_info.run_delay);
	running->kind = WAIT_RUN_QUEUE;
	if (waiting && waiting->key == key && waiting->since_ns) {
		running->waited_ns = now > waiting->since_ns ? now - waiting->since_ns : 0;
		running->queued_ns = waiting->queued_ns;
		running->call_ns = waiting->call_ns;
		running->kind = waiting->kind;
	}
	running->since_ns = now;
	if (waiting)
		waiting->since_ns = 0;
	barrier();
	running->key = key;
	running->index = ((u32)key - 1) * constants.cpus + cpu + 1;
}

/* Kernels have been met that hide some of their switches from tracepoints: what was decided is then about another thread
 * than the one that runs, and is decided anew. The scheduler knows when that one came onto the CPU. */
static __always_inline void look_again(struct io_running *running, struct task_struct *task, u32 cpu, const bool typed)
{
	enter(running, task, key_of(task, cpu, typed), GET(task, sched_info.last_arrival), cpu, typed);
}

#endif
