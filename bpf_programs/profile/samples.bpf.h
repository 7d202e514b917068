/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Where samples go to, on a CPU or off it, and what is told of a task beside its stack. */
#ifndef JOBLENS_SAMPLES_BPF_H
#define JOBLENS_SAMPLES_BPF_H

#include "owners.bpf.h"
#include "pids.bpf.h"
#include "slots.bpf.h"
#include "joblens_profile.h"
#include "walk.bpf.h"
#ifndef BEFORE_5_17
#include "python.bpf.h"
#include "unwind.bpf.h"
#define is_owners typed_is_owners	/* the verifier knows the type of this_task() */
#define has_owners_ids typed_has_owners_ids
#endif

enum {
	ASK_EVERY_NS = 10000000,	/* a slot's processes are asked for 100 times a second at most */
	ASK_AGAIN_NS = 100000000,	/* after a process's first question; twice as long after each further one */
	MOST_DOUBLINGS = 10,
	DOUBLINGS_OF_NEW = 4,	/* of a process that nobody has looked at: its question was lost among those of others */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct profiled);
} jl_profiled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sampled);
} jl_sampled SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} jl_samples SEC(".maps");

/* What the agent wants of the task's slot, and which that is; null if it is none, or not sampled. */
static __always_inline struct profiled *profiled_of(struct task_struct *task, u32 *slot)
{
	*slot = slot_of_task(task);
	if (*slot == NO_SLOT)
		return 0;

	struct profiled *profiled = bpf_map_lookup_elem(&jl_profiled, slot);

	return profiled && profiled->run ? profiled : 0;
}

struct asked { u64 at_ns; u32 times; u32 unused; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct process_key);
	__type(value, struct asked);
} jl_asked SEC(".maps");

/* Whether the reader is to look at this process: it is asked for at once, and then less and less often. */
static __always_inline bool may_ask(struct profiled *profiled, struct process_key *process, bool is_new)
{
	struct asked *asked = bpf_map_lookup_elem(&jl_asked, process), first;
	u64 now = bpf_ktime_get_ns();
	u32 most = is_new ? DOUBLINGS_OF_NEW : MOST_DOUBLINGS;

	if (asked && now - asked->at_ns < (u64)ASK_AGAIN_NS << (asked->times < most ? asked->times : most))
		return false;
	if (now - profiled->asked_ns < ASK_EVERY_NS)
		return false;
	profiled->asked_ns = now;
	if (asked) {
		asked->at_ns = now;
		asked->times++;
	} else {
		first.at_ns = now;
		first.times = 1;
		first.unused = 0;
		bpf_map_update_elem(&jl_asked, process, &first, BPF_ANY);
	}
	return true;
}

/* The ring's reader comes by itself now and then: it is woken for a question, or if a quarter of the ring is full. */
static __always_inline u64 wake(u32 flags)
{
	return flags & SAMPLE_ASKS || bpf_ringbuf_query(&jl_samples, BPF_RB_AVAIL_DATA) >=
	       bpf_ringbuf_query(&jl_samples, BPF_RB_RING_SIZE) / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* What is told of the task beside its stack. */
static __always_inline void describe(struct sample *sample, struct task_struct *task, struct node *node, u64 run)
{
	sample->run = run;
	sample->process.tgid = MEMBER(task, tgid);
	sample->process.exec = MEMBER(task, self_exec_id);
	sample->process.start_ns = MEMBER(task, group_leader, start_time);
	sample->pid = pid_here(node, MEMBER(task, group_leader));
	sample->tid = pid_here(node, task);
	BPF_CORE_READ_STR_INTO(&sample->thread, task, comm);
}

#ifndef BEFORE_5_17

/* Fills the user's stack, behind the kernel's; all bytes of the sample. `has_registers`: they are in `walk`. */
static __always_inline u64 take_user_stack(struct walk *walk, struct task_struct *task, bool has_registers)
{
	struct sample *sample = &walk->sample;

	walk->flags = 0;
	walk->has_called = walk->is_unknown = walk->is_new = false;
	walk->python_frames = 0;
	if (has_registers)
		unwind(walk, task);
	else
		walk->flags = SAMPLE_WHOLE;
	sample->user_frames = walk->at - sample->kernel_frames;
	if (task->mm)
		add_python(walk, task);
	sample->python_frames = walk->python_frames;
	return sizeof(*sample) + walk->at * sizeof(u64);
}

#endif

/* Gives the sample to the reader; false if the ring has no room for it. */
static __always_inline bool tell(struct walk *walk, struct profiled *profiled, u64 size)
{
	if (walk->is_unknown && may_ask(profiled, &walk->sample.process, walk->is_new))
		walk->flags |= SAMPLE_ASKS;
	walk->sample.flags = walk->flags;
	if (size > sizeof(walk->sample) + sizeof(walk->frames))
		return false;
	return !bpf_ringbuf_output(&jl_samples, &walk->sample, size, wake(walk->flags));
}

#endif
