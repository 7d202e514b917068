// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Processes: what forks, execs and exits, and what each thread had used when it ended.
 *
 * The kernel keeps a thread's I/O, faults and run-queue delay anyway. They are added up here once, when the
 * thread exits, and by `living` for the threads that still run. No program runs on a syscall or a switch.
 */
#include "slots.bpf.h"

enum {
	PF_EXITING = 0x4,		/* include/linux/sched.h */
	TASK_UNINTERRUPTIBLE = 0x2,
	TASK_NOLOAD = 0x400,
	SIGNAL_GROUP_EXIT = 0x4,	/* include/linux/sched/signal.h */
};
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES };

/* The greatest resident set of any process that ended, in pages, a word a slot and CPU: a maximum has no atomic
 * instruction before 5.12, and on its own CPU a program at a tracepoint is alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} peaks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot_living);
} living_slots SEC(".maps");

/* Ends of processes that have been counted although other threads of theirs were still on their way out. */
struct process_key { u64 signal; u64 start; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct process_key);
	__type(value, u8);
} ended SEC(".maps");

/* In which round of the iterator a process without its first thread has been seen, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} seen SEC(".maps");

const volatile u32 cpus = 1;

/* The same sums from a thread, whichever of the two structs they go into. The task is the program's own argument, whose
 * type the verifier knows: its members are read as in C, which takes a third off the iterator's time. */
#define ADD_THREAD(to, task, sign)								\
	do {											\
		ADD((to)->call_read_bytes, sign (task)->ioac.rchar);				\
		ADD((to)->call_write_bytes, sign (task)->ioac.wchar);				\
		ADD((to)->read_calls, sign (task)->ioac.syscr);					\
		ADD((to)->write_calls, sign (task)->ioac.syscw);				\
		ADD((to)->storage_read_bytes, sign (task)->ioac.read_bytes);			\
		ADD((to)->storage_write_bytes, sign (task)->ioac.write_bytes);			\
		ADD((to)->minor_faults, sign (u64)(task)->min_flt);				\
		ADD((to)->major_faults, sign (u64)(task)->maj_flt);				\
		ADD((to)->run_queue_ns, sign (task)->sched_info.run_delay);			\
	} while (0)

static __always_inline struct slot_counters *counters_of(struct task_struct *task, u32 *slot)
{
	*slot = slot_of_task(task);
	return *slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&counters, slot);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	u32 slot;

	if (BPF_CORE_READ(child, pid) != BPF_CORE_READ(child, tgid))
		return 0;	/* a thread */

	/* the child's cgroup, not the parent's: clone3 can put it elsewhere at birth */
	struct slot_counters *count = counters_of(child, &slot);

	if (count)
		ADD(count->forked, 1);
	return 0;
}

/* Counting begins with this exec: what the slot and this process did before is not the job's. The process is
 * alone in the slot then, so plain stores do. */
static __always_inline void begin(struct slot_counters *count, struct task_struct *task)
{
	count->main_tgid = BPF_CORE_READ(task, tgid);
	count->forked = count->executed = count->exited = 0;
	count->failed = count->signalled = count->core_dumps = count->oom_kills = 0;
	count->call_read_bytes = count->call_write_bytes = count->read_calls = count->write_calls = 0;
	count->storage_read_bytes = count->storage_write_bytes = 0;
	count->minor_faults = count->major_faults = count->run_queue_ns = 0;
	/* taken off now, it is added again when the thread exits or is found living: sums wrap, and come out right */
	ADD_THREAD(count, task, -);
	/* last: the agent takes the totals for the job's as soon as it sees this */
	barrier();
	count->awaits_exec = 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *task)
{
	u32 slot;
	struct slot_counters *count = counters_of(task, &slot);

	if (!count)
		return 0;
	if (count->awaits_exec)
		begin(count, task);
	ADD(count->executed, 1);
	return 0;
}

/* How a process ended, as wait(2) tells it. A leader that left its threads behind has the code, unless the
 * whole group was told to exit. */
static __always_inline int exit_code_of(struct task_struct *task)
{
	if (BPF_CORE_READ(task, signal, flags) & SIGNAL_GROUP_EXIT)
		return BPF_CORE_READ(task, signal, group_exit_code);
	return BPF_CORE_READ(task, group_leader, exit_code);
}

static __always_inline void keep_peak(u32 slot, u64 pages)
{
	u32 word = slot * cpus + bpf_get_smp_processor_id();
	u64 *peak = bpf_map_lookup_elem(&peaks, &word);

	if (peak && *peak < pages)
		*peak = pages;
}

/* True for exactly one thread of each process that ends. From 6.16 on the tracepoint tells: its type has the third
 * argument that our declaration of it has. Before, signal->live is decremented some way before the tracepoint, so
 * several of the last threads can find 0 there, and the first of them takes the end for itself. Where only one
 * thread is left it must still look: another may have been here already. */
static __always_inline bool ends_process(struct task_struct *task, u64 *arguments)
{
	if (bpf_core_type_exists(btf_trace_sched_process_exit))
		return arguments[1];

	struct process_key key = {
		.signal = (u64)BPF_CORE_READ(task, signal),
		.start = BPF_CORE_READ(task, group_leader, start_time),
	};
	u8 one = 1;

	if (BPF_CORE_READ(task, signal, live.counter) != 0)
		return false;
	if (BPF_CORE_READ(task, signal, nr_threads) == 1)
		return !bpf_map_lookup_elem(&ended, &key);
	return bpf_map_update_elem(&ended, &key, &one, BPF_NOEXIST) == 0;
}

static __always_inline void main_exited(struct slot_counters *count, u32 slot, struct task_struct *task, int code)
{
	count->main_exit_code = code;
	count->main_exits += 1;

	struct event *event = new_event(EVENT_MAIN_EXITED, count->cgroup_id, slot);

	if (event) {
		event->exit_code = code;
		bpf_ringbuf_submit(event, 0);
	}
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exited, struct task_struct *task)
{
	u32 slot;
	struct slot_counters *count = counters_of(task, &slot);

	if (!count)
		return 0;
	ADD_THREAD(count, task, +);
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		keep_peak(slot, BPF_CORE_READ(task, signal, maxrss));
	if (!ends_process(task, ctx))
		return 0;

	int code = exit_code_of(task);

	ADD(count->exited, 1);
	if (code & 0x7f)
		ADD(count->signalled, 1);
	else if (code >> 8 & 0xff)
		ADD(count->failed, 1);
	if (code & 0x80)
		ADD(count->core_dumps, 1);
	/* set by the OOM killer on its victim, and on nobody else */
	if (BPF_CORE_READ(task, signal, oom_mm))
		ADD(count->oom_kills, 1);
	if (BPF_CORE_READ(task, tgid) == count->main_tgid)
		main_exited(count, slot, task, code);
	return 0;
}

/* Whether this thread is the one that stands for its process: the first one, or, where that has ended and left
 * its threads behind, whichever is met first in this round. */
static __always_inline bool stands_for_process(struct task_struct *task, u64 round)
{
	u32 tgid = task->tgid;

	if (task->pid == tgid)
		return true;
	if (!(task->group_leader->flags & PF_EXITING))
		return false;

	u64 *when = bpf_map_lookup_elem(&seen, &tgid);

	if (when && *when == round)
		return false;
	bpf_map_update_elem(&seen, &tgid, &round, BPF_ANY);
	return true;
}

static __always_inline void add_memory(struct slot_living *living, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	/* a vfork()ed child lives in its parent's memory until it execs */
	if (!mm || mm == task->real_parent->mm)
		return;

	u64 anon = mm_pages(mm, MM_ANONPAGES);
	u64 file = mm_pages(mm, MM_FILEPAGES) + mm_pages(mm, MM_SHMEMPAGES);
	u64 peak = mm->hiwater_rss;
	u64 before_exec = task->signal->maxrss;

	if (peak < anon + file)
		peak = anon + file;
	if (peak < before_exec)
		peak = before_exec;
	if (living->peak_pages < peak)
		living->peak_pages = peak;
	ADD(living->anon_pages, anon);
	ADD(living->file_pages, file);
	ADD(living->swap_pages, mm_pages(mm, MM_SWAPENTS));
}

/* Adds every living thread to its slot. The agent has read the totals of the ended ones *before*: a thread that
 * ends in between is then missing from both for one round, and never counted twice. */
SEC("iter/task")
int living(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || task->flags & PF_EXITING)
		return 0;

	u32 slot = slot_of_task(task);

	if (slot == NO_SLOT)
		return 0;

	struct slot_living *living = bpf_map_lookup_elem(&living_slots, &slot);
	struct node *node = this_node();

	if (!living || !node)
		return 0;

	u32 state = task_state(task);

	ADD_THREAD(living, task, +);
	ADD(living->threads, 1);
	if (state == 0)
		ADD(living->runnable, 1);
	else if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		ADD(living->uninterruptible, 1);
	if (stands_for_process(task, node->round)) {
		ADD(living->processes, 1);
		add_memory(living, task);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
