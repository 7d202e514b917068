// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level profile: what each CPU is doing, some times a second: the stacks of tasks in sampled slots.
 *
 * User stacks are unwound here, by tables that the reader of samples has made of the .eh_frame of files
 * (condor_joblens/profiling/eh_frame.h). Only the task's own memory is read, as far as it is there: nothing waits.
 */
#include "samples.bpf.h"

/* It interrupts other programs: no other one uses this. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} jl_walk SEC(".maps");

#ifdef BEFORE_5_17
#define OWN_WALK jl_walk
#include "frame_pointers.bpf.h"
#define SAMPLE_CPU jl_sample_old	/* before Linux 5.17, see sample_old.bpf.c */
#else
#define SAMPLE_CPU jl_sample_cpu
#endif

/* How often a slot has begun to be sampled. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} jl_sampling SEC(".maps");

/* What each CPU remembers of cgroups that are in no sampled slot: most samples hit these. Ids are never used twice, and
 * of an earlier `jl_sampling` nothing is known. */
enum { UNSAMPLED = 16 };
struct unsampled { struct { u64 cgroup, sampling; } of[UNSAMPLED]; };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unsampled);
} jl_unsampled SEC(".maps");

/* As profiled_of, and quicker for those that are not sampled. */
static __always_inline struct profiled *sampled_now(struct task_struct *task, u32 *slot)
{
	u32 zero = 0;
	u64 cgroup = MEMBER(task, cgroups, dfl_cgrp, kn, id), *sampling = bpf_map_lookup_elem(&jl_sampling, &zero), begun;
	struct unsampled *unsampled = bpf_map_lookup_elem(&jl_unsampled, &zero);
	u32 at = cgroup & (UNSAMPLED - 1);
	struct profiled *profiled;

	if (!sampling || !unsampled)
		return 0;
	begun = *(volatile u64 *)sampling;
	if (unsampled->of[at].cgroup == cgroup && unsampled->of[at].sampling == begun)
		return 0;
	barrier();
	profiled = profiled_of(task, slot);
	if (!profiled) {
		unsampled->of[at].cgroup = cgroup;
		unsampled->of[at].sampling = begun;
	}
	return profiled;
}

/* Fills both stacks; all bytes of the sample. */
static __always_inline u64 take_stacks(struct walk *walk, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	long bytes = bpf_get_stack(ctx, walk->frames, SAMPLE_KERNEL_FRAMES * sizeof(u64), 0);

	walk->at = bytes > 0 ? (u32)bytes / sizeof(u64) : 0;
	walk->sample.kernel_frames = walk->at;
	walk->sample.waited_in = walk->sample.waited_ns = 0;
#ifdef BEFORE_5_17
	return take_guessed_stack(walk, ctx, task);
#else
	return take_user_stack(walk, task, task->mm && user_registers(walk, ctx, task));
#endif
}

SEC("perf_event")
int SAMPLE_CPU(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = this_task();
	u32 slot, zero = 0;
	struct profiled *profiled = sampled_now(task, &slot);

	if (!profiled)
		return 0;

	struct sampled *sampled = bpf_map_lookup_elem(&jl_sampled, &slot);
	struct walk *walk = bpf_map_lookup_elem(&jl_walk, &zero);
	struct node *node = this_node();

	if (!sampled || !walk || !node)
		return 0;
	ADD(sampled->samples, 1);
	/* one that ends has no memory any more */
	if (MEMBER(task, mm) ? !is_owners(task, profiled->uid) : !has_owners_ids(task, profiled->uid)) {
		ADD(sampled->not_ours, 1);
		return 0;
	}
	describe(&walk->sample, task, node, profiled->run);

	if (!tell(walk, profiled, take_stacks(walk, ctx, task)))
		ADD(sampled->lost, 1);
	return 0;
}

/* Addresses in the kernel, whose names are asked for. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct kernel_addresses);
} jl_addresses SEC(".maps");

SEC("iter/task")
int jl_iter_names(struct bpf_iter__task *ctx)
{
	u32 zero = 0;
	struct kernel_addresses *addresses = bpf_map_lookup_elem(&jl_addresses, &zero);

	if (!addresses || ctx->meta->seq_num || !ctx->task)	/* with the first task */
		return 0;
	for (u32 i = 0; i < NAMED_AT_ONCE; i++) {
		if (i >= addresses->count)
			break;
		BPF_SEQ_PRINTF(ctx->meta->seq, "%pB\n", addresses->at[i]);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
