// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* What io_uring reads and writes for jobs at level io: it is in the result of no system call.
 *
 * A request can complete on any CPU and in an interrupt, whoever runs there: it is its submitter's, and its numbers
 * are added by atomic instructions.
 *
 * The kernel tells of a completion when it puts it into the job's ring. Where it puts none there, no tracepoint tells
 * how the request ended: those whose success is not to be told are seen when they are submitted, and completions for
 * which the ring has no room as such, without their requests. They are declared, and so is what moves no bytes that are
 * counted here: at its begin already, since a multishot request may never end.
 */
#include "files.bpf.h"

enum {	/* include/uapi/linux/io_uring.h */
	IORING_OP_NOP = 0, IORING_OP_READV = 1, IORING_OP_WRITEV = 2, IORING_OP_FSYNC = 3, IORING_OP_READ_FIXED = 4,
	IORING_OP_WRITE_FIXED = 5, IORING_OP_POLL_ADD = 6, IORING_OP_POLL_REMOVE = 7, IORING_OP_TIMEOUT = 11,
	IORING_OP_TIMEOUT_REMOVE = 12, IORING_OP_ASYNC_CANCEL = 14, IORING_OP_LINK_TIMEOUT = 15, IORING_OP_CLOSE = 19,
	IORING_OP_READ = 22, IORING_OP_WRITE = 23, IORING_OP_PROVIDE_BUFFERS = 31, IORING_OP_REMOVE_BUFFERS = 32,
	IORING_OP_READV_FIXED = 60, IORING_OP_WRITEV_FIXED = 61,
	IOSQE_CQE_SKIP_SUCCESS = 1 << 6,	/* the request has it as a flag of the same number */
};

#define BIT(operation) (1ULL << (operation))
#define ALL_READ (BIT(IORING_OP_READV) | BIT(IORING_OP_READ_FIXED) | BIT(IORING_OP_READ) | BIT(IORING_OP_READV_FIXED))
#define ALL_WRITE \
	(BIT(IORING_OP_WRITEV) | BIT(IORING_OP_WRITE_FIXED) | BIT(IORING_OP_WRITE) | BIT(IORING_OP_WRITEV_FIXED))
/* those that neither move bytes nor open a file */
#define NO_FILES										\
	(BIT(IORING_OP_NOP) | BIT(IORING_OP_FSYNC) | BIT(IORING_OP_POLL_ADD) | BIT(IORING_OP_POLL_REMOVE) |	\
	 BIT(IORING_OP_TIMEOUT) | BIT(IORING_OP_TIMEOUT_REMOVE) | BIT(IORING_OP_ASYNC_CANCEL) |		\
	 BIT(IORING_OP_LINK_TIMEOUT) | BIT(IORING_OP_CLOSE) | BIT(IORING_OP_PROVIDE_BUFFERS) |		\
	 BIT(IORING_OP_REMOVE_BUFFERS))

MAPPED_ARRAY(jl_io_uring, struct io_uring_counters);	/* rows */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct io_kiocb___before_6_14 { struct task_struct *task; };
#pragma clang attribute pop

static __always_inline struct task_struct *submitter(struct io_kiocb *request)
{
	struct io_kiocb___before_6_14 *old = (void *)request;

	if (bpf_core_field_exists(old->task))
		return BPF_CORE_READ(old, task);
	return BPF_CORE_READ(request, tctx, task);
}

/* The counters of the job at level io that a task belongs to; null where it is in none. */
static __always_inline struct io_uring_counters *counters_of(struct task_struct *task)
{
	u32 slot = task ? slot_of(BPF_CORE_READ(task, cgroups, dfl_cgrp)) : NO_SLOT;
	struct slot_counters *slot_count = slot == NO_SLOT ? 0 : bpf_map_lookup_elem(&jl_counters, &slot);

	if (!slot_count || !slot_count->io_key)
		return 0;

	u32 row = (u32)slot_count->io_key - 1;

	return bpf_map_lookup_elem(&jl_io_uring, &row);
}

static __always_inline u64 operation_of(struct io_kiocb *request)
{
	return BIT(BPF_CORE_READ(request, opcode) & 63);
}

static __always_inline int completed(struct io_kiocb *request, s32 result)
{
	struct place place = { bpf_get_smp_processor_id(), SCRATCH_OF_URING };
	struct io_uring_counters *count = request && result >= 0 ? counters_of(submitter(request)) : 0;
	u64 operation = count ? operation_of(request) : 0;

	if (!(operation & (ALL_READ | ALL_WRITE)))
		return 0;

	u32 class = class_of_file(BPF_CORE_READ(request, file), place, false) & (FILE_CLASSES - 1);
	u64 *file = &count->files[class * FILE_FIELDS];

	if (operation & ALL_READ) {
		ADD(file[FILE_READ_BYTES], result);
		ADD(file[FILE_READ_CALLS], 1);
	} else {
		ADD(file[FILE_WRITE_BYTES], result);
		ADD(file[FILE_WRITE_CALLS], 1);
	}
	return 0;
}

/* From 6.15 on the tracepoint has the completion itself. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(jl_uring, void *ring, struct io_kiocb *request, struct io_uring_cqe *completion)
{
	return completed(request, completion->res);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(jl_uring_6_14, void *ring, struct io_kiocb *request, u64 user_data, s32 result)
{
	/* before 5.19 the tracepoint does not have the request: the kernel shall refuse this program then */
	if (!bpf_core_field_exists(request->cqe))
		((void (*)(void))0xffff)();
	return completed(request, result);
}

static __always_inline int submitted(struct io_kiocb *request)
{
	struct io_uring_counters *count = counters_of(submitter(request));
	u64 operation = count ? operation_of(request) : NO_FILES;

	if (operation & NO_FILES)
		return 0;
	if (!(operation & (ALL_READ | ALL_WRITE)))
		ADD(count->others, 1);
	else if (BPF_CORE_READ(request, flags) & IOSQE_CQE_SKIP_SUCCESS)
		ADD(count->untold, 1);
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(jl_uring_submit, struct io_kiocb *request)
{
	return submitted(request);
}

/* What the tracepoint was called before 6.4. */
SEC("tp_btf/io_uring_submit_sqe")
int BPF_PROG(jl_uring_sqe, struct io_kiocb *request)
{
	return submitted(request);
}

/* It comes in the name of the thread that submitted, or of a worker of its process. */
SEC("tp_btf/io_uring_cqe_overflow")
int BPF_PROG(jl_uring_full)
{
	struct io_uring_counters *count = counters_of((struct task_struct *)bpf_get_current_task());

	if (count)
		ADD(count->untold, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
