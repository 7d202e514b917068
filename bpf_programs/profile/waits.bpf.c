// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level profile: where a job waits. The user stack of a call that ends and has waited for a millisecond or more, as the
 * context switch has measured (io/switch.bpf.c): it is as it was when the wait began, and now it can be read.
 *
 * Each job has a share of stacks on each CPU and second. If it has more waits, those take a stack that are longer than
 * a length which is set every second, and of shorter ones as many as add up to it. So each stack stands for what it
 * waited, with what was left out since the one before, and no time is lost.
 */
#include "samples.bpf.h"

/* One slot on one CPU. */
struct wait_share {
	u64 run;	/* whose this is */
	u64 second;
	u64 ns;		/* waited in this second, */
	u64 carried_ns;	/* and what stands for no stack yet */
	u64 least_ns;	/* a stack stands for so much at least */
	u32 waits;	/* in this second */
	u32 stacks;	/* that were taken in this second */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct wait_share);
} jl_wait_shares SEC(".maps");

/* Samples of what runs interrupt this program: they have another one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} jl_wait_walk SEC(".maps");

enum { A_SECOND_NS = 1000000000 };

/* The program's own argument, read as it is; a program of 32 bits has a stack of another kind. */
#if defined(__TARGET_ARCH_x86)
#define CALL_OF(regs) ((u32)(regs)->orig_ax)
#define IS_32_BIT(regs) ((regs)->cs == 0x23 || (regs)->cs == 0xe023)
#elif defined(__TARGET_ARCH_arm64)
#define CALL_OF(regs) ((u32)(regs)->syscallno)
#define IS_32_BIT(regs) ((regs)->pstate & 0x10)
#endif

/* What a stack of this wait would stand for; 0 if none is to be taken. */
static __always_inline u64 weight_of(struct wait_share *share, struct profiled *profiled, u64 ns, u64 now)
{
	u64 second = now / A_SECOND_NS;

	if (share->run != profiled->run) {
		__builtin_memset(share, 0, sizeof(*share));
		share->run = profiled->run;
	}
	if (share->second != second) {
		if (share->waits > profiled->wait_stacks && profiled->wait_stacks)
			share->least_ns = share->ns / profiled->wait_stacks;
		else
			share->least_ns /= 2;
		share->second = second;
		share->ns = share->waits = share->stacks = 0;
	}
	share->waits++;
	share->ns += ns;
	share->carried_ns += ns;
	return share->carried_ns < share->least_ns || share->stacks >= profiled->wait_stacks ? 0 : share->carried_ns;
}

/* In the place of level io's program at the end of system calls (io/syscalls.bpf.c), which has been through. */
SEC("tp_btf/sys_exit")
int BPF_PROG(jl_wait_ended, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 slot = slot_of_task(task), zero = 0;

	if (slot == NO_SLOT)
		return 0;

	struct profiled *profiled = bpf_map_lookup_elem(&jl_profiled, &slot);

	if (!profiled || !profiled->run)
		return 0;

	struct sampled *sampled = bpf_map_lookup_elem(&jl_sampled, &slot);
	struct wait_share *share = bpf_map_lookup_elem(&jl_wait_shares, &slot);
	struct ended_wait *ended = bpf_map_lookup_elem(&jl_ended_wait, &zero);
	struct walk *walk = bpf_map_lookup_elem(&jl_wait_walk, &zero);
	struct node *node = this_node();

	if (!sampled || !share || !ended || !walk || !node)
		return 0;

	u64 now = bpf_ktime_get_ns(), known = now - profiled->began_ns, ns = ended->ns < known ? ended->ns : known;

	ADD(sampled->waits, 1);
	ADD(sampled->waited_ns, ns);
	if (!is_owners(task, profiled->uid))
		return 0;

	u64 weight = weight_of(share, profiled, ns, now);

	if (!weight)
		return 0;
	describe(&walk->sample, task, node, profiled->run);
	walk->at = walk->sample.kernel_frames = 0;
	walk->sample.waited_in = CALL_OF(regs) % (1 << WAITED_CLASS_SHIFT) | ended->file_class << WAITED_CLASS_SHIFT;
	walk->sample.waited_ns = weight;

	u64 size = take_user_stack(walk, task, IS_32_BIT(regs) ? false : saved_registers(walk, regs));

	walk->flags |= SAMPLE_WAITED;
	if (!tell(walk, profiled, size))
		return 0;	/* what it stands for goes to the next one */
	share->carried_ns = 0;
	share->stacks++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
