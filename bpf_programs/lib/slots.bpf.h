/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps that all programs share, and the one question they all ask first: whose is this cgroup? */
#ifndef JOBLENS_SLOTS_BPF_H
#define JOBLENS_SLOTS_BPF_H

#include "compat.bpf.h"
#include "joblens.h"

/* Sizes marked 1 are set by the loader: the number of slots is a knob. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);		/* inode of a slot's cgroup */
	__type(value, u32);		/* its slot index */
} jl_slot_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot_counters);
} jl_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct node);
} jl_node SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} jl_slot_events SEC(".maps");

/* That a slot is born, its first program starts or its first process exits, for whoever lends the agent priority: then
 * somebody waits for it, for milliseconds. He takes them as they come. If he does not, they are lost, and nothing else.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);	/* a page of any kernel */
} jl_urgent SEC(".maps");

/* What runs when a call ends that has waited for long, instead of the rest of level io's program at its end; mostly
 * nothing. It is told of that wait on the same CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} jl_at_waits_end SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ended_wait);
} jl_ended_wait SEC(".maps");

static __always_inline void tell_lender(u32 slot)
{
	bpf_ringbuf_output(&jl_urgent, &slot, sizeof(slot), BPF_RB_FORCE_WAKEUP);
}

enum { MAX_DEPTH = 24 };

static __always_inline struct node *this_node(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&jl_node, &zero);
}

/* The slot that a cgroup is in: the outermost of its ancestors that is a slot. A job may make cgroups of any
 * name below its own, so what is further in never counts. NO_SLOT where the cgroup is nobody's. */
static __always_inline u32 slot_of(struct cgroup *cgroup)
{
	struct node *node = this_node();

	if (!node || !cgroup)
		return NO_SLOT;

	u64 depths = node->slot_depths;
	u32 level = BPF_CORE_READ(cgroup, level);

	for (u32 depth = 1; depth < MAX_DEPTH; depth++) {
		if (depth > level)
			break;
		if (!(depths >> depth & 1))
			continue;
		u64 id = ancestor_id(cgroup, depth);
		u32 *slot = bpf_map_lookup_elem(&jl_slot_index, &id);
		if (slot)
			return *slot;
	}
	return NO_SLOT;
}

static __always_inline u32 slot_of_task(struct task_struct *task)
{
	return slot_of(MEMBER(task, cgroups, dfl_cgrp));
}

enum { SIGNAL_GROUP_EXIT = 0x4 };	/* include/linux/sched/signal.h */

/* How a process ended, as wait(2) tells it. A leader that left its threads behind has the code, unless the
 * whole group was told to exit. */
static __always_inline int exit_code_of(struct task_struct *task)
{
	if (BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
		return BPF_CORE_READ(task, signal, group_exit_code);
	return BPF_CORE_READ(task, group_leader, exit_code);
}

#define ADD(total, amount) __sync_fetch_and_add(&(total), (amount))

static __always_inline struct event *new_event(u32 kind, u64 cgroup_id, u32 slot)
{
	struct event *event = bpf_ringbuf_reserve(&jl_slot_events, sizeof(*event), 0);

	if (!event) {
		struct node *node = this_node();
		if (node)
			ADD(node->lost_events, 1);
		return 0;
	}
	event->time_ns = bpf_ktime_get_ns();
	event->cgroup_id = cgroup_id;
	event->kind = kind;
	event->slot = slot;
	event->pid = 0;
	event->exit_code = 0;
	/* what is in the ring is what was there before, and a name is read by its length */
	__builtin_memset(event->name, 0, sizeof(event->name));
	return event;
}

#endif
