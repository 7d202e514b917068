// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The flight recorder: the last events of jobs at level trace, in rings that are overwritten for ever.
 *
 * Nobody reads them until somebody asks, mostly because the job has ended otherwise than well. So the agent has no work
 * with them. Each job has rings of its own, and in them a place an event. A program takes a place by an atomic exchange
 * of its number, and drops its event if another one is writing there. So a record is never made of two.
 *
 * Nothing is kept of a task that is not the job owner's alone, as ptrace(2) has it.
 */
#define REGISTER(regs, member) ((regs)->member)	/* they are the program's own argument */

#include "pids.bpf.h"
#include "senders.bpf.h"
#include "slots.bpf.h"
#include "call_arguments.bpf.h"
#include "owners.bpf.h"
#include "joblens_recorder.h"
#include "../io/syscalls.h"

enum {
	EINTR = 4, EAGAIN = 11, ENOTTY = 25, ERESTARTSYS = 512, MAX_ERRNO = 4095, EALREADY = 114, EINPROGRESS = 115,
	ADDRESS_BYTES = 28, IPV4_ADDRESS_BYTES = 16, IPPROTO_TCP = 6, TCP_CLOSE = 7, AF_INET = 2, AF_INET6 = 10,
	SOL_SOCKET = 1, SO_ERROR = 4, S_IFMT = 0170000, S_IFSOCK = 0140000, COMM_BYTES = 16,
	TRACE_SIGNAL_DELIVERED = 0,		/* include/trace/events/signal.h */
	SIGCHLD = 17, SIGCONT = 18, SIGURG = 23, SIGWINCH = 28,
};

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winitializer-overrides"
/* All of .rodata, at whose beginning the loader writes the places of each ring. */
struct recorder_constants { u32 places[RECORDER_RINGS]; u8 calls[CALLS]; };

const volatile struct recorder_constants constants = {
	.places = { 1, 1 },
	.calls = { [0 ... CALLS - 1] = CALL(CALL_OTHER, NONE), CALLS_OF_ARCHITECTURE },
};
#pragma clang diagnostic pop

#define PLACES constants.places
#include "rings.bpf.h"

MAPPED_ARRAY(jl_recorder, struct recorder_node);

/* What a CPU remembers of cgroups: which slots they are. jl_rec_call alone uses it, and never meets itself there. */
enum { GROUPS = 64 };
struct group { u64 id, generation; u32 slot; };
struct groups { struct group of[GROUPS]; };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct groups);
} jl_rec_cgroups SEC(".maps");

/* Whether the task counts for its slot's job by now: the wrapper does not, nor HTCondor's own first process. */
static __always_inline bool is_jobs(u32 slot, u32 tgid)
{
	struct slot_counters *count = bpf_map_lookup_elem(&jl_counters, &slot);

	return count && !count->awaits_exec && !(count->init_apart && count->init_tgid == tgid);
}

static __always_inline bool may_be_told(struct task_struct *task, struct recorded_job *job)
{
	if (typed_is_owners(task, job->uid))
		return true;
	ADD(job->not_ours, 1);
	return false;
}

static __always_inline void describe(struct recorded *record, struct task_struct *task, u32 kind)
{
	struct node *node = this_node();

	record->kind = kind;
	record->pid = node ? pid_here(node, task->group_leader) : 0;
	record->thread = task->pid;
	/* as words: its place is known only when the program is loaded, so it would be copied byte by byte */
	const u64 *program = (const u64 *)task->comm;
	u64 words[] = { program[0], program[1] };

	__builtin_memcpy(record->program, words, sizeof(words));
}

static __always_inline void keep_path(struct recorded *record, u64 address)
{
	long length = bpf_probe_read_user_str(record->text, RECORDED_TEXT_BYTES, (void *)address);

	record->subject = length > 0 ? RECORDED_PATH : RECORDED_UNREAD;
	record->text_bytes = length > 0 ? length - 1 : 0;
}

static __always_inline void keep_address(struct recorded *record, u64 address)
{
	record->subject = RECORDED_ADDRESS;
	record->text_bytes = ADDRESS_BYTES;
	if (!bpf_probe_read_user(record->text, ADDRESS_BYTES, (void *)address))
		return;
	/* one of IPv4 is shorter, and may lie at the end of a page */
	record->text_bytes = IPV4_ADDRESS_BYTES;
	if (!bpf_probe_read_user(record->text, IPV4_ADDRESS_BYTES, (void *)address))
		return;
	record->subject = RECORDED_UNREAD;
	record->text_bytes = 0;
}

static __always_inline struct file *file_of(struct task_struct *task, u32 fd)
{
	struct files_struct *files = task->files;
	struct fdtable *table = files ? files->fdt : 0;
	struct file *file = 0;

	if (table && fd < table->max_fds)
		bpf_probe_read_kernel(&file, sizeof(file), (void *)table->fd + fd * sizeof(file));
	return file;
}

/* The last component of an open file's path, if there is one. */
static __always_inline void keep_file(struct recorded *record, struct task_struct *task, u32 fd)
{
	struct file *file = file_of(task, fd);
	long length;

	if (!file)
		return;
	length = bpf_probe_read_kernel_str(record->text, RECORDED_TEXT_BYTES,
					   BPF_CORE_READ(file, f_path.dentry, d_name.name));
	if (length > 1) {
		record->subject = RECORDED_FILE;
		record->text_bytes = length - 1;
	}
}

/* Whom a socket was to be connected with, as connect(2) has it. */
static __always_inline void keep_peer(struct recorded *record, struct sock *sk)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family), port = BPF_CORE_READ(sk, __sk_common.skc_dport);

	record->subject = RECORDED_ADDRESS;
	__builtin_memset(record->text, 0, ADDRESS_BYTES);
	__builtin_memcpy(record->text, &family, sizeof(family));
	__builtin_memcpy(record->text + 2, &port, sizeof(port));
	if (family == AF_INET) {
		u32 address = BPF_CORE_READ(sk, __sk_common.skc_daddr);

		__builtin_memcpy(record->text + 4, &address, sizeof(address));
		record->text_bytes = IPV4_ADDRESS_BYTES;
	} else {
		BPF_CORE_READ_INTO((struct in6_addr *)(record->text + 8), sk, __sk_common.skc_v6_daddr);
		record->text_bytes = ADDRESS_BYTES;
	}
}

/* The socket of a connection that did not come about, whose error the call has asked for. */
static __always_inline struct sock *unconnected_socket(struct task_struct *task, struct pt_regs *regs)
{
	struct socket *socket;
	struct file *file;
	struct sock *sk;
	u16 family;

	file = file_of(task, ARGUMENT_0(regs));
	/* another thread may have put something else there */
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if ((family != AF_INET && family != AF_INET6) || BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP ||
	    BPF_CORE_READ(sk, __sk_common.skc_state) != TCP_CLOSE)
		return 0;
	return sk;
}

/* What every sound program meets all the time, or asks for: nothing has failed. */
static __always_inline bool is_failure(u64 number, u32 kind, u32 error)
{
	if (error == EAGAIN)
		return kind == FORKS;
	if (error == EINTR || error == EINPROGRESS || error == EALREADY || error == ENOTTY || error >= ERESTARTSYS)
		return false;
	return kind != NONE || number == NUMBER_EXECVE || number == NUMBER_MMAP || number == NUMBER_MREMAP;
}

static __always_inline void call_failed(struct recorded_job *job, struct task_struct *task, struct pt_regs *regs,
					u64 call, u32 kind, u32 error)
{
	struct recorded *record;
	u64 number;

	if (!may_be_told(task, job))
		return;
	record = take_place(job, RING_RARE, &number);
	if (!record)
		return;
	describe(record, task, RECORDED_FAILED);
	if (call == NUMBER_EXECVE || kind == OPENS || kind == PATH)
		keep_path(record, ARGUMENT_0(regs));
	else if (kind == OPENS_AT || kind == PATH_AT)
		keep_path(record, ARGUMENT_1(regs));
	else if (call == NUMBER_CONNECT)
		keep_address(record, ARGUMENT_1(regs));
	else if ((kind >= READS && kind <= SPLICES) || kind == FD)
		keep_file(record, task, ARGUMENT_0(regs));
	record->value = error;
	record->other = call;
	leave(record, number);
}

/* What a call that succeeded is recorded as; 0: it is not. */
static __always_inline u16 kind_of_success(u64 call, u32 kind, u64 result)
{
	if (call == NUMBER_CONNECT)
		return RECORDED_CONNECT;
	if (kind == OPENS || kind == OPENS_AT)
		return RECORDED_OPEN;
	return kind == FORKS && result ? RECORDED_FORK : 0;
}

/* Whether the call asks for the error of a socket, which is told once. */
static __always_inline bool asks_for_error(u64 call, struct pt_regs *regs)
{
	return call == NUMBER_GETSOCKOPT && ARGUMENT_1(regs) == SOL_SOCKET && ARGUMENT_2(regs) == SO_ERROR;
}

/* By what the hook is given alone. Most calls of the node are no events: whose they are need not be known, and each
 * helper that is called takes as long as all of this, or several times as long. */
static __always_inline bool may_be_event(struct pt_regs *regs, u64 call, u32 kind, long result)
{
	if ((u64)result >= (u64)-MAX_ERRNO)
		return is_failure(call, kind, -result);
	return kind_of_success(call, kind, result) || asks_for_error(call, regs);
}

/* A program that has not waited for its connection learns of its end by SO_ERROR, which tells it once. */
static __always_inline void connection_refused(struct recorded_job *job, struct task_struct *task, struct pt_regs *regs)
{
	struct sock *sk = unconnected_socket(task, regs);
	struct recorded *record;
	u64 number;
	int error;

	if (!sk || !may_be_told(task, job))
		return;
	if (bpf_probe_read_user(&error, sizeof(error), (void *)ARGUMENT_3(regs)) || error <= 0 || error > MAX_ERRNO)
		return;
	record = take_place(job, RING_RARE, &number);
	if (!record)
		return;
	describe(record, task, RECORDED_REFUSED);
	keep_peer(record, sk);
	record->value = error;
	leave(record, number);
}

static __always_inline void call_succeeded(struct recorded_job *job, struct task_struct *task, struct pt_regs *regs,
					   u64 call, u32 kind, u64 result)
{
	u16 recorded_kind = kind_of_success(call, kind, result);
	struct recorded *record;
	u64 number;

	if (!recorded_kind) {
		connection_refused(job, task, regs);
		return;
	}
	if (!may_be_told(task, job))
		return;
	record = take_place(job, RING_FREQUENT, &number);
	if (!record)
		return;
	describe(record, task, recorded_kind);
	if (call == NUMBER_CONNECT)
		keep_address(record, ARGUMENT_1(regs));
	else if (kind == OPENS)
		keep_path(record, ARGUMENT_0(regs));
	else if (kind == OPENS_AT)
		keep_path(record, ARGUMENT_1(regs));
	record->value = result;
	record->other = call;
	leave(record, number);
}

/* The slot of a task, NO_SLOT where its job has not begun. */
static __always_inline u32 remembered_slot(struct task_struct *task)
{
	u32 zero = 0;
	struct recorder_node *node = bpf_map_lookup_elem(&jl_recorder, &zero);
	struct groups *groups = bpf_map_lookup_elem(&jl_rec_cgroups, &zero);

	if (!node || !groups)
		return NO_SLOT;

	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	u64 id = cgroup->kn->id, generation = *(volatile u64 *)&node->generation;
	struct group *known = &groups->of[id & (GROUPS - 1)];

	if (known->id == id && known->generation == generation)
		return known->slot;
	known->slot = slot_of(cgroup);
	known->generation = generation;
	known->id = id;
	return known->slot;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(jl_rec_call, struct pt_regs *regs, long result)
{
	u64 call = CALL_NUMBER(regs);
	u32 kind = call < CALLS ? constants.calls[call] & 0xf : NONE;

	if (!may_be_event(regs, call, kind, result) || IS_32_BIT(regs))
		return 0;

	struct task_struct *task = bpf_get_current_task_btf();
	u32 slot = remembered_slot(task);
	struct recorded_job *job = job_of(slot);

	if (!job || !is_jobs(slot, task->tgid))
		return 0;
	if ((u64)result >= (u64)-MAX_ERRNO)
		call_failed(job, task, regs, call, kind, -result);
	else
		call_succeeded(job, task, regs, call, kind, result);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(jl_rec_exec, struct task_struct *task)
{
	u32 slot = slot_of_task(task);
	struct recorded_job *job = job_of(slot);
	struct recorded *record;
	u64 number;

	if (!job || !is_jobs(slot, task->tgid) || !may_be_told(task, job))
		return 0;

	record = take_place(job, RING_RARE, &number);
	if (!record)
		return 0;
	describe(record, task, RECORDED_EXEC);

	struct mm_struct *mm = task->mm;
	u64 start = mm->arg_start, size = mm->arg_end - start;

	barrier_var(size);	/* kernels before 6.7 lose the bound of what lies on the stack */
	if (size > RECORDED_TEXT_BYTES)
		size = RECORDED_TEXT_BYTES;
	record->subject = bpf_probe_read_user(record->text, size, (void *)start) ? RECORDED_UNREAD : RECORDED_ARGUMENTS;
	if (record->subject == RECORDED_ARGUMENTS)
		record->text_bytes = size;
	leave(record, number);
	return 0;
}

/* Of its last threads several may find that they are the last: the reader takes them for one. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(jl_rec_exit, struct task_struct *task)
{
	u32 slot = slot_of_task(task);
	struct recorded_job *job = job_of(slot);
	struct recorded *record;
	u64 number;

	if (!job || task->signal->live.counter || !is_jobs(slot, task->tgid))
		return 0;
	/* its memory may be gone by now, and nothing is read of it */
	if (!typed_has_owners_ids(task, job->uid)) {
		ADD(job->not_ours, 1);
		return 0;
	}
	record = take_place(job, RING_RARE, &number);
	if (!record)
		return 0;
	describe(record, task, RECORDED_EXIT);
	record->value = exit_code_of(task);
	leave(record, number);
	return 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(jl_rec_signal, int signal, struct kernel_siginfo *info, struct task_struct *task, int group, int result)
{
	struct task_struct *sender = bpf_get_current_task_btf();
	struct recorded *record;
	struct recorded_job *job;
	u32 slot;
	u64 sent;

	if (result != TRACE_SIGNAL_DELIVERED || signal == SIGCHLD || signal == SIGCONT || signal == SIGURG ||
	    signal == SIGWINCH)
		return 0;
	slot = slot_of_task(task);
	job = job_of(slot);
	if (!job || !is_jobs(slot, task->tgid) || !may_be_told(task, job))
		return 0;
	record = take_place(job, RING_RARE, &sent);
	if (!record)
		return 0;
	describe(record, task, RECORDED_SIGNAL);
	record->value = signal;
	if (somebody_sent(info)) {
		struct node *node = this_node();

		record->other = node ? pid_here(node, sender->group_leader) : 0;
		record->subject = RECORDED_NAME;
		record->text_bytes = COMM_BYTES;
		bpf_get_current_comm(record->text, COMM_BYTES);
	}
	leave(record, sent);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
