// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level profile: what each CPU is doing, some times a second: the stacks of tasks in sampled slots.
 *
 * User stacks are unwound here, by tables that the reader of samples has made of the .eh_frame of files
 * (condor_joblens/profiling/eh_frame.h). Only the task's own memory is read, as far as it is there: nothing waits.
 */
#include "owners.bpf.h"
#include "pids.bpf.h"
#include "joblens_profile.h"
#include "python.bpf.h"
#include "unwind.bpf.h"

enum {
	ASK_EVERY_NS = 10000000,	/* a slot's processes are asked for 100 times a second at most */
	ASK_AGAIN_NS = 100000000,	/* after a process's first question; twice as long after each further one */
	MOST_DOUBLINGS = 10,
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

struct asked { u64 at_ns; u32 times; u32 unused; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct process_key);
	__type(value, struct asked);
} jl_asked SEC(".maps");

/* It interrupts other programs: no other one uses this. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} jl_walk SEC(".maps");

/* Whether the reader is to look at this process: it is asked for at once, and then less and less often. */
static __always_inline bool may_ask(struct profiled *profiled, struct process_key *process)
{
	struct asked *asked = bpf_map_lookup_elem(&jl_asked, process), first;
	u64 now = bpf_ktime_get_ns();

	if (asked && now - asked->at_ns < (u64)ASK_AGAIN_NS << (asked->times < MOST_DOUBLINGS ? asked->times : MOST_DOUBLINGS))
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
	sample->process.tgid = task->tgid;
	sample->process.exec = task->self_exec_id;
	sample->process.start_ns = task->group_leader->start_time;
	sample->pid = pid_here(node, task->group_leader);
	sample->tid = pid_here(node, task);
	BPF_CORE_READ_STR_INTO(&sample->thread, task, comm);
}

/* Fills both stacks; all bytes of the sample. */
static __always_inline u64 take_stacks(struct walk *walk, struct bpf_perf_event_data *ctx, struct task_struct *task)
{
	struct sample *sample = &walk->sample;
	long bytes = bpf_get_stack(ctx, walk->frames, SAMPLE_KERNEL_FRAMES * sizeof(u64), 0);

	walk->at = bytes > 0 ? (u32)bytes / sizeof(u64) : 0;
	walk->flags = 0;
	walk->has_called = walk->is_unknown = false;
	sample->kernel_frames = walk->at;
	walk->python_frames = 0;
	if (task->mm && user_registers(walk, ctx, task))
		unwind(walk);
	else
		walk->flags = SAMPLE_WHOLE;
	sample->user_frames = walk->at - sample->kernel_frames;
	if (task->mm)
		add_python(walk, task);
	sample->python_frames = walk->python_frames;
	sample->unused = 0;
	return sizeof(*sample) + walk->at * sizeof(u64);
}

SEC("perf_event")
int jl_sample_cpu(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 slot = slot_of_task(task), zero = 0;

	if (slot == NO_SLOT)
		return 0;

	struct profiled *profiled = bpf_map_lookup_elem(&jl_profiled, &slot);

	if (!profiled || !profiled->run)
		return 0;

	struct sampled *sampled = bpf_map_lookup_elem(&jl_sampled, &slot);
	struct walk *walk = bpf_map_lookup_elem(&jl_walk, &zero);
	struct node *node = this_node();

	if (!sampled || !walk || !node)
		return 0;
	ADD(sampled->samples, 1);
	/* one that ends has no memory any more */
	if (task->mm ? !is_owners(task, profiled->uid) : !has_owners_ids(task, profiled->uid)) {
		ADD(sampled->not_ours, 1);
		return 0;
	}
	describe(&walk->sample, task, node, profiled->run);

	u64 size = take_stacks(walk, ctx, task);

	if (walk->is_unknown && may_ask(profiled, &walk->sample.process))
		walk->flags |= SAMPLE_ASKS;
	walk->sample.flags = walk->flags;
	if (size > sizeof(walk->sample) + sizeof(walk->frames))
		return 0;
	if (bpf_ringbuf_output(&jl_samples, &walk->sample, size, wake(walk->flags)))
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
