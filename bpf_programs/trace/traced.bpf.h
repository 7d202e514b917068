/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What all programs at probes share: whose hits are looked at, for how long, and where what they see goes. */
#ifndef JOBLENS_TRACED_BPF_H
#define JOBLENS_TRACED_BPF_H

#include "pids.bpf.h"
#include "owners.bpf.h"
#include "joblens_trace.h"
#include "../recorder/joblens_recorder.h"

#ifndef RING_BYTES
#define RING_BYTES (1 << 20)
#endif

enum { WINDOW_SHIFT = 26 };	/* 67 ms: 2^26 ns */
enum { STORAGE_OF_TASKS = 29, STORAGE_CREATE = 1 };	/* BPF_MAP_TYPE_TASK_STORAGE, BPF_LOCAL_STORAGE_GET_F_CREATE */

/* Words of struct pt_regs on x86-64 */
enum { BP = 4, R9 = 8, R8 = 9, AX = 10, CX = 11, DX = 12, SI = 13, DI = 14, IP = 16, SP = 19, WORDS = 21 };

const volatile struct {
	__u32 uid;	/* of the job's owner */
	__u32 pid_namespace_inode;
	__u32 slot;	/* of the flight recorder, if it has the job; else NO_SLOT */
	__u32 trace;	/* a number that no other trace has meanwhile */
	__u32 places[RECORDER_RINGS];
} settings SEC(".rodata") = { .slot = NO_SLOT, .places = { 1, 1 } };

#define PLACES settings.places
#include "../recorder/rings.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} jl_traced_job SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TRACED_FUNCTIONS);
	__type(key, u32);
	__type(value, struct traced_function);
} jl_traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TRACED_POINTS);
	__type(key, u32);
	__type(value, struct traced_point);
} jl_points SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} jl_hits SEC(".maps");

/* One for all traces: what starts them makes it. */
struct {
	__uint(type, STORAGE_OF_TASKS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct traced_recorded);
} jl_rec_last SEC(".maps");

/* Nothing is ever in it. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} jl_nothing SEC(".maps");

/* What each program at a probe begins with. From 6.13 on, the kernel gives a program that needs 64 bytes of stack one for
 * each CPU, and has it run there once at a time. It does not see to that at probes: a thread that is preempted in the
 * program finds there what another one has left, and the kernel falls over a pointer of that one's. A program that may
 * end by a tail call has the stack of its thread.
 */
static __always_inline void have_threads_stack(void *context)
{
	if (!settings.trace)	/* never */
		bpf_tail_call(context, &jl_nothing, 0);
}

/* The probe that was hit; null if nobody knows it. */
static __always_inline struct traced_point *point_of(void *context)
{
	u32 number = bpf_get_attach_cookie(context);

	return bpf_map_lookup_elem(&jl_points, &number);
}

static __always_inline struct traced_function *all_functions(void)
{
	u32 last = TRACED_FUNCTIONS - 1;

	return bpf_map_lookup_elem(&jl_traced, &last);
}

/* Whether the task is the job's. What was found last is remembered by the number of its cgroup: no other one gets that
 * number, and none moves to another place. */
static __always_inline bool is_jobs(struct task_struct *task, struct traced_function *all)
{
	u64 cgroup = task->cgroups->dfl_cgrp->kn->id;

	if (all->cgroup == cgroup)
		return true;
	if (bpf_current_task_under_cgroup(&jl_traced_job, 0) != 1)
		return false;
	all->cgroup = cgroup;
	return true;
}

/* The function that was hit, if it is to be looked at: of a task of the job that is its owner's alone. */
static __always_inline struct traced_function *looked_at(struct traced_point *point, struct task_struct *task,
							 struct traced_function *all)
{
	struct traced_function *function;
	bool is_trial;

	if (!point || !all)
		return 0;
	is_trial = point->kind == TRACED_TRIAL;
	if (!is_trial && !is_jobs(task, all))
		return 0;
	function = bpf_map_lookup_elem(&jl_traced, &point->function);
	if (!function || function->off_ns)
		return 0;
	if (!typed_is_owners(task, settings.uid) && !is_trial) {
		__sync_fetch_and_add(&function->not_ours, 1);
		return 0;
	}
	__sync_fetch_and_add(&function->hits, 1);
	return function;
}

/* A function that is called so often that it costs the job too much is not looked at any more: a leaky bucket of hits.
 * Two CPUs that meet here may lose some of each other's; a function that is hit so often is switched off all the same.
 */
static __always_inline bool is_too_hot_after(struct traced_function *function, u64 now, u32 hits)
{
	u64 window = now >> WINDOW_SHIFT;
	s64 passed = window - function->window;

	if (passed > 0) {
		u64 level = function->level, forgotten = passed * function->forgotten;

		function->window = window;
		function->level = level > forgotten ? level - forgotten : 0;
	}
	__sync_fetch_and_add(&function->level, hits);
	return function->level > function->allowed;
}

static __always_inline bool is_too_hot(struct traced_function *function, u64 now)
{
	return is_too_hot_after(function, now, 1);
}

/* What is told of each hit; its registers are not. */
static __always_inline void describe(struct traced_hit *hit, struct task_struct *task, struct traced_point *point,
				     struct traced_function *all, u64 now)
{
	hit->time_ns = now;
	hit->lost = all->lost;
	hit->pid = pid_in(settings.pid_namespace_inode, task->group_leader);
	hit->tid = task == task->group_leader ? hit->pid : pid_in(settings.pid_namespace_inode, task);
	hit->thread = task->pid;
	hit->function = point->function;
	hit->kind = point->kind == TRACED_JUMP ? TRACED_LEAVE : point->kind;
	hit->texts = 0;
}

/* Whether another trace has put this hit into the flight recorder. Two can have the same function: one that stands for
 * the job's life, and one that somebody has asked for. Both see a hit before the thread goes on. So what the other one
 * has left there is of this hit, and is taken away: of the next one it would be new.
 */
static __always_inline bool has_another(struct task_struct *task, const u32 by, u64 instruction)
{
	struct traced_recorded *recorded = bpf_task_storage_get(&jl_rec_last, task, 0, STORAGE_CREATE);

	if (!recorded)
		return false;
	if (recorded->last[by].instruction == instruction && recorded->last[by].trace &&
	    recorded->last[by].trace != settings.trace) {
		recorded->last[by].trace = 0;
		return true;
	}
	recorded->last[by].instruction = instruction;
	recorded->last[by].trace = settings.trace;
	return false;
}

/* A place in a ring of the flight recorder for what has happened, until `leave`; null if the job is not recorded, or
 * another trace has recorded it. */
static __always_inline struct recorded *recorded_hit(const u32 by, u64 instruction, u32 pid,
						     struct task_struct *task, const u32 ring, u32 kind, u64 *number)
{
	struct recorded_job *job = job_of(settings.slot);
	struct recorded *record;

	if (!job || has_another(task, by, instruction))
		return 0;
	record = take_place(job, ring, number);
	if (!record)
		return 0;
	record->kind = kind;
	record->pid = pid;
	record->thread = task->pid;
	/* as words: its place is known only when the program is loaded, so it would be copied byte by byte */
	const u64 *program = (const u64 *)task->comm;
	u64 words[] = { program[0], program[1] };

	__builtin_memcpy(record->program, words, sizeof(words));
	return record;
}

#endif
