// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* Processes: which ones fork, exec and exit, and what each thread had used when it ended.
 *
 * The kernel keeps a thread's I/O, faults and run-queue delay anyway. `jl_exit` adds them up once, when the thread
 * exits, and the iterator `jl_iter_task` those of the threads that still run. No program runs on a syscall or a switch.
 */
#include "pids.bpf.h"
#include "senders.bpf.h"
#include "slots.bpf.h"

enum {
	PF_EXITING = 0x4,		/* include/linux/sched.h */
	TASK_UNINTERRUPTIBLE = 0x2,
	TASK_NOLOAD = 0x400,
	SIGNAL_IGNORED = 1,		/* include/trace/events/signal.h: TRACE_SIGNAL_IGNORED */
	SIGKILL = 9, SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22, SIGURG = 23,
	SIGXCPU = 24, SIGWINCH = 28,
	KEEPER_TRIES = 128,
	EXIT_BYTES = __builtin_offsetof(struct process_event, command),
};
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES };

/* What happened to processes. Rings lose the newest, and count it (struct node). */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} jl_proc_events SEC(".maps");

/* Who may change a slot's maximum: whoever has made this entry. A maximum has no atomic instruction before 5.12 and
 * a spin lock is refused to these programs there, but an entry is made by one of two. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u8);
} jl_peak_locks SEC(".maps");

/* Whom the OOM killer has chosen, by tgid: the pages that it had then. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} jl_oom_victims SEC(".maps");

/* Who has used up its CPU time (RLIMIT_CPU), by tgid, and which signal the kernel has sent it for that. */
struct cpu_limit { u64 start; u64 seconds; u32 signal; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct cpu_limit);
} jl_cpu_limits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slot_living);
} jl_live_tasks SEC(".maps");

/* Ends of processes that have been counted although other threads of theirs were still on their way out. */
struct process_key { u64 signal; u64 start; };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct process_key);
	__type(value, u8);
} jl_ended_procs SEC(".maps");

/* Adds what a thread has used so far, or takes it off (`sign` is 1 or -1). The task is the program's own argument, whose
 * type the verifier knows: its members are read as in C, which takes a third off the iterator's time. */
static __always_inline void add_thread(struct thread_sums *to, struct task_struct *task, const s64 sign)
{
	ADD(to->call_read_bytes, sign * task->ioac.rchar);
	ADD(to->call_write_bytes, sign * task->ioac.wchar);
	ADD(to->read_calls, sign * task->ioac.syscr);
	ADD(to->write_calls, sign * task->ioac.syscw);
	ADD(to->storage_read_bytes, sign * task->ioac.read_bytes);
	ADD(to->storage_write_bytes, sign * task->ioac.write_bytes);
	ADD(to->minor_faults, sign * task->min_flt);
	ADD(to->major_faults, sign * task->maj_flt);
	ADD(to->run_queue_ns, sign * task->sched_info.run_delay);
}

/* Whether the task is an earlier job's, which has left its cgroup to this one (jl_slot_entered). */
static __always_inline bool is_earlier(struct slot_counters *count, struct task_struct *task)
{
	return count->since_ns && task->group_leader->start_time < count->since_ns && task->tgid != count->entered_tgid;
}

static __always_inline struct slot_counters *counters_of(struct task_struct *task, u32 *slot)
{
	struct slot_counters *count;

	*slot = slot_of_task(task);
	count = *slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, slot);
	return count && !is_earlier(count, task) ? count : 0;
}

/* What an event costs its slot. Why a run died is told by abnormal exits, so they may use all that the slot has saved
 * up, and others three quarters of it. The end of the first process and the OOM killer's victims are free. */
enum event_price { PRICE_FULL, PRICE_REDUCED, PRICE_FREE };

/* Whether the slot may have one more event: a bucket of tokens, kept as the time up to which it has been emptied. One
 * that starts programs without end loses its own events, and leaves the ring to the others. Two CPUs that look at once
 * can both have the last one. */
static __always_inline bool pays(struct slot_counters *count, struct node *node, enum event_price price, u64 now)
{
	u64 interval = node->event_interval_ns, burst = node->event_burst_ns, until = count->events_paid_until;

	if (!interval || price == PRICE_FREE)
		return true;
	if (until < now)
		count->events_paid_until = until = now;
	if (until - now > (price == PRICE_FULL ? burst - burst / 4 : burst))
		return false;
	ADD(count->events_paid_until, interval);
	return true;
}

/* What the ring's events of the current process have in common. */
static __always_inline struct process_event *new_process_event(u32 kind, u64 size, u64 *lost, enum event_price price,
							       struct node *node, struct slot_counters *count,
							       u32 slot, struct task_struct *task)
{
	struct process_event *event;
	u64 now = bpf_ktime_get_ns();

	if (!pays(count, node, price, now)) {
		ADD(count->events_lost, 1);
		return 0;
	}
	event = bpf_ringbuf_reserve(&jl_proc_events, size, 0);
	if (!event) {
		ADD(*lost, 1);
		return 0;
	}

	struct task_struct *leader = task->group_leader, *parent = task->real_parent;

	event->time_ns = now;
	event->cgroup_id = count->cgroup_id;
	event->lived_ns = now - leader->start_time;
	event->resident_pages = event->peak_pages = event->cpu_limit_seconds = 0;
	event->kind = kind;
	event->slot = slot;
	event->tgid = task->tgid;
	event->flags = event->tgid == count->main_tgid ? PROCESS_MAIN : 0;
	event->exit_code = 0;
	event->parent_tgid = parent->tgid;
	event->pid = pid_here(node, leader);
	event->parent_pid = pid_here(node, parent->group_leader);
	event->command_bytes = 0;
	bpf_get_current_comm(event->program, sizeof(event->program));
	return event;
}

/* The event is whole. Its reader is woken, unless nobody waits for events: then it comes once a round by itself, and is
 * woken before the ring is full. */
static __always_inline void submit_process_event(struct process_event *event, struct node *node)
{
	u64 wake_at = node->wake_at_bytes, flags = 0;

	if (wake_at) {
		u64 waiting = bpf_ringbuf_query(&jl_proc_events, BPF_RB_AVAIL_DATA);

		flags = waiting < wake_at ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(event, flags);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(jl_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 slot;

	if (BPF_CORE_READ(child, pid) != BPF_CORE_READ(child, tgid))
		return 0;	/* a thread */

	/* the child's cgroup, not the parent's: clone3 can put it elsewhere at birth */
	struct slot_counters *count = counters_of(child, &slot);

	if (count)
		ADD(count->job.forked, 1);
	return 0;
}

static __always_inline bool are_within_wrappers(struct thread_sums *sums)
{
	return (s64)sums->call_read_bytes <= WRAPPERS_READ_BYTES && (s64)sums->read_calls <= WRAPPERS_CALLS &&
	       (s64)sums->call_write_bytes <= WRAPPERS_WRITTEN_BYTES && (s64)sums->write_calls <= WRAPPERS_CALLS &&
	       (s64)sums->storage_read_bytes <= WRAPPERS_STORAGE_BYTES &&
	       (s64)sums->storage_write_bytes <= WRAPPERS_STORAGE_BYTES &&
	       (s64)sums->minor_faults <= WRAPPERS_FAULTS && (s64)sums->major_faults <= WRAPPERS_FAULTS;
}

/* CPU time of the process's threads that have ended, and of this one. */
static __always_inline u64 cpu_ns(struct task_struct *task)
{
	return task->signal->sum_sched_runtime + task->se.sum_exec_runtime;
}

/* -- HTCondor's own first process of a job with process ids of its own ----------------------------------------
 *
 * With USE_PID_NAMESPACES the slot's first process is condor_pid_ns_init, which starts the job, waits for it and hands
 * signals on. It is told by what a job can't forge: it is the slot's first process, as which only HTCondor brings one
 * in; the first of its pid namespace, which no process becomes; and what it has become, before anything but the wrapper
 * ran, is the file that the agent has named. It has the job's environment, so a library of the user's can work in it.
 * That is why it is left out only while it does no more than a wrapper may: see is_apart.
 */

static __always_inline bool is_init(struct node *node, struct inode *program)
{
	return node->init_inode && BPF_CORE_READ(program, i_ino) == node->init_inode &&
	       BPF_CORE_READ(program, i_sb, s_dev) == node->init_device;
}

/* Whether the process has just become condor_pid_ns_init, and its child will be the job. */
static __always_inline bool becomes_init(struct slot_counters *count, struct task_struct *task,
					 struct linux_binprm *program)
{
	struct node *node = this_node();
	struct job_counters *job = &count->job;

	if (!node || count->init_tgid || !is_init(node, program->file->f_inode) || pid_inside(task) != 1)
		return false;
	if (count->awaits_exec == AWAITS_FIRST)
		return true;	/* there is no wrapper */
	return count->main_tgid == task->tgid && job->executed <= WRAPPERS_PROGRAMS && job->forked <= WRAPPERS_FORKS;
}

static __always_inline bool is_child_of_init(struct slot_counters *count, struct task_struct *task)
{
	return count->init_tgid && task->real_parent->tgid == count->init_tgid;
}

/* Whether the process is the one as which condor_pid_ns_init starts the job. */
static __always_inline bool is_inits_job(struct slot_counters *count, struct task_struct *task)
{
	return is_child_of_init(count, task) && count->main_tgid == count->init_tgid;
}

/* Whether the thread is condor_pid_ns_init's own and not counted with the job. One that does more than that program is
 * counted from then on, with all that it has done. */
static __always_inline bool is_apart(struct slot_counters *count, struct task_struct *task)
{
	struct thread_sums sums = {};
	struct mm_struct *mm = task->mm;

	if (!count->init_apart || task->tgid != count->init_tgid)
		return false;
	add_thread(&sums, task, 1);
	/* it has one thread, and a page fault can bring more than a page */
	if (task->pid == task->tgid && cpu_ns(task) <= WRAPPERS_CPU_MS * 1000000ULL && are_within_wrappers(&sums) &&
	    (!mm || mm_pages(mm, MM_ANONPAGES) <= WRAPPERS_FAULTS))
		return true;
	count->init_apart = 0;
	count->kept_early = KEPT_INIT;
	return false;
}

/* Whether the slot and this process, which becomes the job, have done no more until now than the wrapper does; and
 * condor_pid_ns_init if it is the job's parent: that is one program and one fork more. */
static __always_inline bool only_wrapper_ran(struct slot_counters *count, struct task_struct *task)
{
	struct job_counters *job = &count->job;
	struct thread_sums sums = job->threads;
	u32 inits = is_inits_job(count, task);
	u64 cpu = cpu_ns(task);

	if (count->main_tgid && count->main_tgid != task->tgid && !inits)
		return false;
	if (job->executed > WRAPPERS_PROGRAMS + inits || job->forked > WRAPPERS_FORKS + inits ||
	    job->exited > WRAPPERS_EXITS)
		return false;
	if (job->signalled || job->core_dumps || job->oom_kills)
		return false;
	if (count->connected || count->accepted || count->connect_failed)
		return false;
	add_thread(&sums, task, 1);
	if (inits) {
		struct task_struct *parent = task->real_parent;

		add_thread(&sums, parent, 1);
		cpu += cpu_ns(parent);
	}
	return cpu <= WRAPPERS_CPU_MS * 1000000ULL && are_within_wrappers(&sums);
}

/* Counting begins with this exec: what the slot and this process did before is not the job's. The process is
 * alone in the slot then, so plain stores do. Where more than the wrapper has run, nothing is taken off. */
static __always_inline void begin(struct slot_counters *count, struct task_struct *task)
{
	if (count->awaits_exec == AWAITS_JOB && !only_wrapper_ran(count, task)) {
		count->kept_early = KEPT_WRAPPER;
		if (!count->main_tgid || is_inits_job(count, task))
			count->main_tgid = task->tgid;
		barrier();
		count->awaits_exec = AWAITS_NOTHING;
		return;
	}
	count->init_apart = count->init_tgid != 0;
	count->main_tgid = BPF_CORE_READ(task, tgid);
	count->main_start_ns = 0;
	count->ender_ns = 0;
	__builtin_memset(&count->job, 0, sizeof(count->job));
	/* taken off now, it is added again when the thread exits or is found living: sums wrap, and come out right */
	add_thread(&count->job.threads, task, -1);
	/* last: the agent takes the totals for the job's as soon as it sees this */
	barrier();
	count->awaits_exec = AWAITS_NOTHING;
}

/* The process has become condor_pid_ns_init: the next exec, of its child, is the job's. */
static __always_inline void await_child(struct slot_counters *count, struct task_struct *task)
{
	if (count->awaits_exec == AWAITS_FIRST) {
		count->main_tgid = task->tgid;
		__builtin_memset(&count->job, 0, sizeof(count->job));
		add_thread(&count->job.threads, task, -1);
		barrier();
		count->awaits_exec = AWAITS_JOB;
	}
	count->init_tgid = task->tgid;
}

/* Which program it is, whatever it is called: the agent knows the wrapper's. */
static __always_inline void keep_program(struct slot_counters *count, struct linux_binprm *program)
{
	u64 number = count->job.executed;
	struct inode *inode;

	if (number >= WRAPPERS_PROGRAMS)
		return;
	inode = program->file->f_inode;
	count->program_inodes[number] = inode->i_ino;
	count->program_devices[number] = inode->i_sb->s_dev;
}

/* What is started, and the head of its arguments: the kernel has just put them where the program finds them. */
static __always_inline void tell_exec(struct slot_counters *count, u32 slot, struct task_struct *task)
{
	struct node *node = this_node();
	struct process_event *event;
	struct mm_struct *mm = task->mm;

	if (!node || !mm)
		return;
	event = new_process_event(PROCESS_EXEC, sizeof(*event), &node->lost_execs, PRICE_FULL, node, count, slot, task);
	if (!event)
		return;

	u64 start = mm->arg_start, size = mm->arg_end - start;

	if (size > COMMAND_BYTES)
		size = COMMAND_BYTES;
	if (bpf_probe_read_user(event->command, size, (void *)start) == 0)
		event->command_bytes = size;
	submit_process_event(event, node);
}

/* Whether the wrapper starts, or its helper, which waits for the agent: on a full node that can be long after. Of a job
 * that has been heard it is also the first program that it starts. */
static __always_inline bool somebody_waits_soon(struct slot_counters *count)
{
	return count->awaits_exec == AWAITS_FIRST || count->job.executed == WRAPPERS_PROGRAMS - 1;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(jl_exec, struct task_struct *task, pid_t old_pid, struct linux_binprm *program)
{
	u32 slot;
	struct slot_counters *count = counters_of(task, &slot);

	if (!count)
		return 0;
	if (somebody_waits_soon(count))
		tell_lender(slot);
	if (becomes_init(count, task, program)) {
		await_child(count, task);
	} else if (count->awaits_exec) {
		begin(count, task);
	} else if (is_inits_job(count, task)) {
		count->main_tgid = task->tgid;	/* the wrapper was not heard, and is counted: the job is this one */
	}
	keep_program(count, program);
	ADD(count->job.executed, 1);
	tell_exec(count, slot, task);
	return 0;
}

/* Only a new maximum has to take the lock, and nobody holds it for longer than a store takes. */
static __always_inline void keep_peak(struct slot_counters *count, u32 slot, u64 pages)
{
	u8 one = 1;
	struct node *node;

	for (int i = 0; i < KEEPER_TRIES; i++) {
		if (count->ended_peak_pages >= pages)
			return;
		if (bpf_map_update_elem(&jl_peak_locks, &slot, &one, BPF_NOEXIST))
			continue;
		if (count->ended_peak_pages < pages)
			count->ended_peak_pages = pages;
		bpf_map_delete_elem(&jl_peak_locks, &slot);
		return;
	}
	node = this_node();
	if (node)
		ADD(node->lost_peaks, 1);
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
		return !bpf_map_lookup_elem(&jl_ended_procs, &key);
	return bpf_map_update_elem(&jl_ended_procs, &key, &one, BPF_NOEXIST) == 0;
}

static __always_inline void main_exited(struct slot_counters *count, u32 slot, struct task_struct *task, int code)
{
	count->main_exit_code = code;
	count->main_exits += 1;
	tell_lender(slot);

	struct event *event = new_event(EVENT_MAIN_EXITED, count->cgroup_id, slot);

	if (event) {
		event->exit_code = code;
		bpf_ringbuf_submit(event, 0);
	}
}

/* The limit of CPU time for which the kernel has sent the process that ends by this signal just that one; else 0. */
static __always_inline u64 cpu_limit_of(struct task_struct *task, u32 signal)
{
	u32 tgid = task->tgid;
	struct cpu_limit *limit;

	if (signal != SIGKILL && signal != SIGXCPU)
		return 0;
	limit = bpf_map_lookup_elem(&jl_cpu_limits, &tgid);
	return limit && limit->signal == signal && limit->start == task->group_leader->start_time ? limit->seconds : 0;
}

static __always_inline void tell_exit(struct slot_counters *count, u32 slot, struct task_struct *task, int code,
				      bool victim)
{
	struct node *node = this_node();
	struct process_event *event;
	u32 tgid = task->tgid;
	u64 *pages;

	if (!node)
		return;

	enum event_price price = victim || tgid == count->main_tgid ? PRICE_FREE : code ? PRICE_REDUCED : PRICE_FULL;

	event = new_process_event(PROCESS_EXIT, EXIT_BYTES, &node->lost_exits, price, node, count, slot, task);
	if (!event)
		return;
	event->exit_code = code;
	event->peak_pages = task->signal->maxrss;
	event->cpu_limit_seconds = cpu_limit_of(task, code & 0x7f);
	if (victim) {
		pages = bpf_map_lookup_elem(&jl_oom_victims, &tgid);
		event->flags |= PROCESS_OOM_VICTIM;
		event->resident_pages = pages ? *pages : 0;
	}
	submit_process_event(event, node);
}

/* Signals that end a process that does not handle them: all but those of signal(7) that are ignored, stop or continue
 * it. Somebody who wants it to end may take any of them. */
static __always_inline bool may_end(int signal)
{
	return signal != SIGCHLD && signal != SIGCONT && signal != SIGURG && signal != SIGWINCH && signal != SIGSTOP &&
	       signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU;
}

/* The kernel sends a process this signal of its own accord, from one of its threads: for its CPU time, if that has
 * reached the limit by the clock by which the kernel decides. The soft one has SIGXCPU, the hard one SIGKILL. */
static __always_inline void keep_cpu_limit(struct task_struct *task, u32 signal)
{
	struct task_struct *current = (struct task_struct *)bpf_get_current_task();
	struct signal_struct *group = task->signal;
	struct cpu_limit limit = { .start = task->group_leader->start_time, .signal = signal };
	struct rlimit allowed;
	u32 tgid = task->tgid;
	u64 used;

	if (!bpf_core_field_exists(group->cputimer.cputime_atomic) || BPF_CORE_READ(current, tgid) != tgid)
		return;
	used = group->cputimer.cputime_atomic.utime.counter + group->cputimer.cputime_atomic.stime.counter;
	/* RLIMIT_CPU is the first of them */
	if (bpf_probe_read_kernel(&allowed, sizeof(allowed),
				  (void *)BPF_CORE_READ(task, signal) + bpf_core_field_offset(struct signal_struct, rlim)))
		return;
	limit.seconds = signal == SIGKILL ? allowed.rlim_max : allowed.rlim_cur;
	if (used / 1000000000 >= limit.seconds)
		bpf_map_update_elem(&jl_cpu_limits, &tgid, &limit, BPF_ANY);
}

/* Who ends the job's first process, as seen from outside of the slot, and what the OOM killer's victims hold. */
SEC("tp_btf/signal_generate")
int BPF_PROG(jl_signal, int signal, struct kernel_siginfo *info, struct task_struct *task, int group, int result)
{
	u32 slot;

	if (!may_end(signal) || result == SIGNAL_IGNORED || task->flags & PF_EXITING)
		return 0;

	struct slot_counters *count = counters_of(task, &slot);
	struct node *node = this_node();

	if (!count || !node)
		return 0;
	if ((signal == SIGKILL || signal == SIGXCPU) && (u64)info == SEND_SIG_PRIV)
		keep_cpu_limit(task, signal);
	if (signal == SIGKILL && (u64)info == SEND_SIG_PRIV) {
		struct mm_struct *mm = task->mm;
		u32 tgid = task->tgid;

		if (mm) {
			u64 pages = mm_pages(mm, MM_FILEPAGES) + mm_pages(mm, MM_ANONPAGES) + mm_pages(mm, MM_SHMEMPAGES);
			bpf_map_update_elem(&jl_oom_victims, &tgid, &pages, BPF_ANY);
		}
		return 0;
	}
	/* what is sent to condor_pid_ns_init is meant for the job, to which it hands it on */
	if ((task->tgid != count->main_tgid && task->tgid != count->init_tgid) || !somebody_sent(info))
		return 0;

	struct task_struct *from = (struct task_struct *)bpf_get_current_task();

	if (slot_of(BPF_CORE_READ(from, cgroups, dfl_cgrp)) == slot)
		return 0;

	struct bpf_pidns_info here = {};

	bpf_get_ns_current_pid_tgid(node->pid_namespace_device, node->pid_namespace_inode, &here, sizeof(here));
	count->ender_pid = here.tgid;
	count->ender_signal = signal;
	bpf_get_current_comm(count->ender, sizeof(count->ender));
	count->ender_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(jl_exit, struct task_struct *task)
{
	u32 slot;
	struct slot_counters *count = counters_of(task, &slot);

	if (!count || is_apart(count, task))
		return 0;
	add_thread(&count->job.threads, task, 1);
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		keep_peak(count, slot, BPF_CORE_READ(task, signal, maxrss));
	if (!ends_process(task, ctx))
		return 0;

	int code = exit_code_of(task);

	ADD(count->job.exited, 1);
	if (code & 0x7f)
		ADD(count->job.signalled, 1);
	else if (code >> 8 & 0xff)
		ADD(count->job.failed, 1);
	if (code & 0x80)
		ADD(count->job.core_dumps, 1);
	/* set by the OOM killer on its victim, and on nobody else */
	bool victim = BPF_CORE_READ(task, signal, oom_mm);

	if (victim)
		ADD(count->job.oom_kills, 1);
	tell_exit(count, slot, task, code, victim);
	if (BPF_CORE_READ(task, tgid) == count->main_tgid)
		main_exited(count, slot, task, code);
	return 0;
}

/* Whether this thread is the one that stands for its process: the first one, or, where that has ended and left its
 * threads behind, the one behind it in the kernel's list of them. No table has to remember any. */
static __always_inline bool stands_for_process(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;

	if (task->pid == task->tgid)
		return true;
	return leader->flags & PF_EXITING && task->thread_node.prev == &leader->thread_node;
}

static __always_inline void add_memory(struct slot_living *living, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	/* processes can share one memory: a vfork()ed child and its parent do until it execs */
	if (!mm)
		return;
	if (bpf_core_field_exists(mm->owner) ? mm->owner->tgid != task->tgid : mm == task->real_parent->mm)
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

/* Whether it is condor_pid_ns_init, as far as can be seen of one that was not seen to start. */
static __always_inline bool runs_init(struct node *node, struct task_struct *task)
{
	struct mm_struct *mm = task->mm;

	return mm && pid_inside(task) == 1 && is_init(node, BPF_CORE_READ(mm, exe_file, f_inode));
}

/* The first process of a slot that was taken while its job ran: the oldest of those whose parent is outside. One
 * that a daemon left to init is younger. Without it the agent would learn of the job's end from its empty cgroup,
 * which is when the starter does. */
static __always_inline void find_main(u32 slot, struct task_struct *task)
{
	struct slot_counters *count = bpf_map_lookup_elem(&jl_counters, &slot);
	struct node *node = this_node();

	if (!count || !node || count->awaits_exec || task->tgid == count->init_tgid)
		return;
	/* one whose exec was seen has 0 there, and none is older; condor_pid_ns_init is older than its job */
	if (count->main_tgid && count->main_tgid != count->init_tgid && task->start_time >= count->main_start_ns)
		return;

	bool is_inits = is_child_of_init(count, task);

	if (!is_inits && slot_of_task(task->real_parent) == slot)
		return;
	if (!is_inits)
		count->init_tgid = runs_init(node, task) ? task->tgid : 0;
	count->main_start_ns = task->start_time;
	count->main_tgid = task->tgid;
}

/* Adds every living thread to its slot. The agent has read the totals of the ended ones *before*: a thread that
 * ends in between is then missing from both for one round, and never counted twice. */
SEC("iter/task")
int jl_iter_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || task->flags & PF_EXITING)
		return 0;

	u32 slot;
	struct slot_counters *count = counters_of(task, &slot);

	if (!count || is_apart(count, task))
		return 0;

	struct slot_living *living = bpf_map_lookup_elem(&jl_live_tasks, &slot);

	if (!living)
		return 0;

	u32 state = task_state(task);

	add_thread(&living->threads_used, task, 1);
	ADD(living->threads, 1);
	if (state == 0)
		ADD(living->runnable, 1);
	else if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		ADD(living->uninterruptible, 1);
	if (stands_for_process(task)) {
		ADD(living->processes, 1);
		find_main(slot, task);
		add_memory(living, task);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
