// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Level profile: where a job waits. The user stack of a call that ends and has waited for a millisecond or more, as the
 * context switch has measured (io/switch.bpf.c): it is as it was when the wait began, and now it can be read.
 *
 * Each job has a share of stacks on each CPU and second. If it has more waits, all of their time is laid end to end, and
 * a wait has a stack if a mark falls into it: there is one at each length that is set every second. The stack stands for
 * as many such lengths as marks. So a place has its share by time, however long its waits are, and no time is lost.
 */
#include "samples.bpf.h"

/* One slot on one CPU. */
struct wait_share {
	u64 run;	/* whose this is */
	u64 second;
	u64 ns;		/* waited in this second, */
	u64 carried_ns;	/* and what no stack stands for yet */
	u64 every_ns;	/* from one mark to the next; 0: every wait has a stack */
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

#ifdef BEFORE_5_17
#define OWN_WALK jl_wait_walk
#include "frame_pointers.bpf.h"
#define WAIT_ENDED jl_wait_old	/* before Linux 5.17, see waits_old.bpf.c */
#else
#define WAIT_ENDED jl_wait_ended
#endif

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
		if (share->waits > profiled->wait_stacks / 4 * 3)
			share->every_ns = share->ns / (profiled->wait_stacks / 2 + 1);
		else
			share->every_ns /= 2;
		share->second = second;
		share->ns = share->waits = share->stacks = 0;
	}
	share->waits++;
	share->ns += ns;
	share->carried_ns += ns;
	if (share->stacks >= profiled->wait_stacks)
		return 0;
	return share->every_ns ? share->carried_ns - share->carried_ns % share->every_ns : share->carried_ns;
}

/* A stack was taken. If they come faster than three quarters of their share, they become rarer at once. So the share is
 * never used up, and no wait has to stand for all that came after that. */
static __always_inline void taken(struct wait_share *share, struct profiled *profiled, u64 weight, u64 now)
{
	u32 most = profiled->wait_stacks;

	share->carried_ns -= weight;
	share->stacks++;
	if (share->stacks > most / 4 + (u64)most * (now % A_SECOND_NS) / (2ULL * A_SECOND_NS)) {
		u64 mean = share->ns / (share->waits ? share->waits : 1);

		share->every_ns = 2 * (share->every_ns > mean ? share->every_ns : mean);
	}
}

/* In the place of level io's program at the end of system calls (io/syscalls.bpf.c), which has been through. */
SEC("tp_btf/sys_exit")
int BPF_PROG(WAIT_ENDED, struct pt_regs *regs, long result)
{
	struct task_struct *task = this_task();
	u32 slot, zero = 0;
	struct profiled *profiled = profiled_of(task, &slot);

	if (!profiled)
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

#ifdef BEFORE_5_17
	u64 size = take_guessed_stack(walk, ctx, task);
#else
	u64 size = take_user_stack(walk, task, IS_32_BIT(regs) ? false : saved_registers(walk, regs));
#endif

	walk->flags |= SAMPLE_WAITED;
	if (!tell(walk, profiled, size))
		return 0;	/* what it stands for goes to the next one */
	taken(share, profiled, weight, now);
	ADD(sampled->wait_stacks, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
