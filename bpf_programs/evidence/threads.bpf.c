// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What each thread of one slot waits for: its state and since when, its system call, its kernel stack by name.
 *
 * An iterator, which runs when somebody asks and costs nothing before. It takes no lock that a dead mount could hold and
 * reads no memory of the job, so nothing that a job does can block it.
 */
#include "owners.bpf.h"
#include "pids.bpf.h"
#include "slots.bpf.h"
#include "joblens_evidence.h"

enum {
	EXIT_ZOMBIE = 0x20,		/* include/linux/sched.h */
	PF_EXITING = 0x4,
	NO_CALL = -1,
	KERNEL_STACK_BYTES = 16 << 10,	/* on x86-64 and aarch64; asked before 5.15 only */
};

/* One answer is written at a time: the agent asks for the next when it has the last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct evidence_question);
} jl_question SEC(".maps");

struct thread_scratch { struct thread_report report; u64 stack[KERNEL_FRAMES]; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct thread_scratch);
} jl_thread SEC(".maps");

/* Since when it is off the CPU, by the clock of its CPU's run queue. A thread that had the CPU for itself was put there
 * long ago, and its own clock, which leaves interrupts out, was last read when it left. */
static __always_inline u64 waited_ns(struct task_struct *task)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	u64 left = task->sched_info.last_arrival, now = BPF_CORE_READ(reader, sched_info.last_arrival);

	if (bpf_core_field_exists(task->se.cfs_rq) && bpf_core_field_exists(struct rq, clock_task)) {
		struct rq *rq = BPF_CORE_READ(task, se.cfs_rq, rq);
		u64 last = task->se.exec_start + (BPF_CORE_READ(rq, clock) - BPF_CORE_READ(rq, clock_task));

		left = last > left ? last : left;
		now = BPF_CORE_READ(reader, se.cfs_rq, rq, clock);
	}
	return now > left ? now - left : 0;
}

/* What it called, and from where: the registers that it had when it entered the kernel, which lie at the end of its
 * stack there. */
static __always_inline void read_registers(struct thread_report *report, struct task_struct *task)
{
	struct pt_regs *regs;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		regs = (void *)bpf_task_pt_regs(task);
	else
		regs = task->stack + KERNEL_STACK_BYTES - bpf_core_type_size(struct pt_regs);
	if (!regs)
		return;
	report->flags |= THREAD_HAS_REGISTERS;
#if defined(__TARGET_ARCH_x86)
	report->call = BPF_CORE_READ(regs, orig_ax);
	report->ip = BPF_CORE_READ(regs, ip);
	report->sp = BPF_CORE_READ(regs, sp);
	report->bp = BPF_CORE_READ(regs, bp);
	report->thread_pointer = BPF_CORE_READ(task, thread.fsbase);
	report->arguments[0] = BPF_CORE_READ(regs, di);
	report->arguments[1] = BPF_CORE_READ(regs, si);
	report->arguments[2] = BPF_CORE_READ(regs, dx);
	report->arguments[3] = BPF_CORE_READ(regs, r10);
	report->arguments[4] = BPF_CORE_READ(regs, r8);
	report->arguments[5] = BPF_CORE_READ(regs, r9);
#elif defined(__TARGET_ARCH_arm64)
	report->call = (s64)BPF_CORE_READ(regs, syscallno);
	report->ip = BPF_CORE_READ(regs, pc);
	report->sp = BPF_CORE_READ(regs, sp);
	report->bp = BPF_CORE_READ(regs, regs[29]);
	report->thread_pointer = BPF_CORE_READ(task, thread.uw.tp_value);
	report->arguments[0] = BPF_CORE_READ(regs, orig_x0);
	report->arguments[1] = BPF_CORE_READ(regs, regs[1]);
	report->arguments[2] = BPF_CORE_READ(regs, regs[2]);
	report->arguments[3] = BPF_CORE_READ(regs, regs[3]);
	report->arguments[4] = BPF_CORE_READ(regs, regs[4]);
	report->arguments[5] = BPF_CORE_READ(regs, regs[5]);
#endif
}

SEC("iter/task")
int jl_iter_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	u32 zero = 0;
	struct evidence_question *question = bpf_map_lookup_elem(&jl_question, &zero);
	struct thread_scratch *scratch = bpf_map_lookup_elem(&jl_thread, &zero);
	struct node *node = this_node();

	if (!task || !question || !scratch || !node || slot_of_task(task) != question->slot)
		return 0;

	bool is_zombie = task->exit_state & EXIT_ZOMBIE && task->group_leader == task;

	/* all else that is on its way out has no registers, and is gone in a moment */
	if (task->flags & PF_EXITING && !is_zombie)
		return 0;

	struct thread_report *report = &scratch->report;

	__builtin_memset(report, 0, sizeof(*report));
	report->tid = pid_here(node, task);
	report->tgid = pid_here(node, task->group_leader);
	report->parent_tgid = pid_here(node, task->group_leader->real_parent->group_leader);
	report->inner_tid = pid_inside(task);
	report->state = task_state(task);
	report->call = NO_CALL;
	BPF_CORE_READ_STR_INTO(&report->name, task, comm);
	if (is_zombie) {
		report->flags = THREAD_IS_ZOMBIE;
	} else if (is_owners(task, question->uid)) {
		report->flags = THREAD_IS_OWNERS;
		if (report->state) {
			long bytes;

			report->waited_ns = waited_ns(task);
			read_registers(report, task);
			bytes = bpf_get_task_stack(task, scratch->stack, sizeof(scratch->stack), 0);
			report->kernel_frames = bytes > 0 ? (u32)bytes / sizeof(u64) : 0;
		}
	}
	bpf_seq_write(seq, report, sizeof(*report));
	for (u32 frame = 0; frame < KERNEL_FRAMES; frame++) {
		if (frame >= report->kernel_frames)
			break;
		BPF_SEQ_PRINTF(seq, "%pB\n", scratch->stack[frame]);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
